//! Whether a core is there: pings it, and waits for its answer.
//!
//! Contract: writes one word of this end's line, which nobody else writes, and reads two of the other's. Called by the gateway's control thread, now and
//! then.

use std::time::{Duration, Instant};

use busway_core::{OutOfBounds, RemoteWrite};

use super::{Ends, KEY, PING, PONG, SESSION};

/// Pings within the time after which a silent core has stopped.
const PINGS: u32 = 8;

/// What a [`Watch`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The core has not opened its end since the memory was made, or has another description of the channel.
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

    /// Asks if it is time to, and says what is known.
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
        // An answer is looked for once a period, and asked for once a period: the core may have stopped that much earlier.
        let longest = self.timeout - 2 * self.period();
        Ok(match self.answered_at {
            Some(at) if now - at < longest => State::Up,
            Some(_) => State::Stopped,
            None if is_there => State::Waiting,
            None => State::Absent,
        })
    }
}
