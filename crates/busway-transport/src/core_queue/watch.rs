//! Pings a core to find out whether it runs.
//!
//! Contract: writes one word of this end's line, which nothing else writes, and reads two words of
//! the other's. Called by the gateway's control thread.

use std::time::{Duration, Instant};

use busway_core::{OutOfBounds, RemoteWrite};

use super::{Ends, KEY, PING, PONG, SESSION};

/// Pings within the time after which a silent core has stopped.
const PINGS: u32 = 8;

/// What a [`Watch`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The core has not opened its end, or describes the channel differently.
    Absent,
    /// It has opened its end, and has not answered yet.
    Waiting,
    /// It answers.
    Up,
    /// It has answered, and does so no more.
    Stopped,
}

/// See the module.
#[derive(Debug)]
pub struct Watch {
    ends: Ends,
    timeout: Duration,
    ping: u64,
    asked_at: Option<Instant>,
    answered_at: Option<Instant>,
}

impl Watch {
    /// Of the core at the other end; `timeout` is the longest silence of one that runs.
    pub fn new(ends: Ends, timeout: Duration) -> Watch {
        Watch {
            ends,
            timeout,
            ping: 0,
            asked_at: None,
            answered_at: None,
        }
    }

    /// How often to look, so that a silent core is noticed within the timeout.
    pub fn period(&self) -> Duration {
        self.timeout / PINGS
    }

    /// Sends a ping if one is due. Returns the core's state.
    ///
    /// # Errors
    /// [`OutOfBounds`] if a part is shorter than a line.
    pub fn look(&mut self, now: Instant) -> Result<State, OutOfBounds> {
        if self.ping != 0 && self.ends.other.load_acquire(PONG)? == self.ping {
            self.answered_at = Some(now);
        }
        let is_due = self.asked_at.is_none_or(|at| now - at >= self.period());
        let is_answered = self.answered_at == Some(now);
        if is_due && is_answered || self.asked_at.is_none() {
            // Above what the process before has asked, so that no old answer is taken for one.
            let last = self.ping.max(self.ends.own.load(PING)?);
            self.ping = last.wrapping_add(1).max(1);
            self.ends.own.store(PING, self.ping)?;
            self.ends.own.flush();
            self.asked_at = Some(now);
        }
        let is_there = self.ends.other.load_acquire(SESSION)? != 0
            && self.ends.other.load_acquire(KEY)? == self.ends.key;
        // A ping and the look for its answer each take up to one period, by which the core may have
        // stopped earlier.
        let longest = self.timeout - 2 * self.period();
        Ok(match self.answered_at {
            Some(at) if now - at < longest => State::Up,
            Some(_) => State::Stopped,
            None if is_there => State::Waiting,
            None => State::Absent,
        })
    }
}
