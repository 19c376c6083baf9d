//! A bus with faults that are known: delay, jitter and loss put into any path, by which the
//! instrument is tested.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::control::WorkerResult;
use crate::technology::{Message, PROBE, Path, Received};

/// Messages that can be under way; more are held up at the path itself.
const UNDER_WAY: usize = 1 << 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Every message is handed on this much later, in ns.
    pub delay_ns: u64,
    /// Message number n later again by n modulo [`JITTER_STEPS`](Self::JITTER_STEPS) of so many
    /// equal steps, the last of which is this, in ns.
    pub jitter_ns: u64,
    /// Every nth message is lost; 0: none.
    pub lose_every: u64,
    /// Every nth message is delayed by this much more, in ns, and those behind it with it.
    pub stall_ns: u64,
    /// See `stall_ns`; 0: none.
    pub stall_every: u64,
}

impl Injected {
    /// Steps of the jitter.
    pub const JITTER_STEPS: u64 = 11;

    /// Whether the message of this number (counted from 0) is lost.
    pub fn loses(&self, number: u64) -> bool {
        self.lose_every > 0 && number % self.lose_every == self.lose_every - 1
    }

    /// How long the message of this number is held, in ns.
    pub fn holds_ns(&self, number: u64) -> u64 {
        let jitter_ns = self.jitter_ns * (number % Self::JITTER_STEPS) / (Self::JITTER_STEPS - 1);
        let is_stall = self.stall_every > 0 && number % self.stall_every == self.stall_every - 1;
        self.delay_ns + jitter_ns + if is_stall { self.stall_ns } else { 0 }
    }
}

pub(super) struct Relay<'p> {
    path: &'p mut dyn Path,
    injected: Injected,
    base: u64,
    /// In order: messages, and when to pass them on.
    under_way: VecDeque<(Received, u64)>,
}

impl<'p> Relay<'p> {
    /// Numbers of messages are counted from `base`.
    pub(super) fn new(path: &'p mut dyn Path, injected: Injected, base: u64) -> Self {
        Self {
            path,
            injected,
            base,
            under_way: VecDeque::with_capacity(UNDER_WAY),
        }
    }
}

impl Path for Relay<'_> {
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        self.path.send(message)
    }

    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        if self.under_way.len() < UNDER_WAY
            && let Some(received) = self.path.receive()?
        {
            let number = received.message.number;
            if number & PROBE != 0 {
                return Ok(Some(received));
            }
            let number = number.wrapping_sub(self.base);
            if !self.injected.loses(number) {
                let due_ns = now_ns() + self.injected.holds_ns(number);
                // Order is kept: none overtakes the one before it.
                let before_ns = self.under_way.back().map_or(0, |(_, due_ns)| *due_ns);
                self.under_way.push_back((received, due_ns.max(before_ns)));
            }
        }
        let is_due = self
            .under_way
            .front()
            .is_some_and(|(_, due_ns)| now_ns() >= *due_ns);
        Ok(is_due
            .then(|| self.under_way.pop_front())
            .flatten()
            .map(|(received, _)| received))
    }
}
