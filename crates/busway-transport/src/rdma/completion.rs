//! Completions of one channel end, polled or slept for.
//!
//! Contract: an end whose lane is about to sleep polls until nothing is left, and then calls
//! [`Completions::arm`]; if that returns `true`, the end polls once more. A lane that spins arms
//! nothing, since an event costs three system calls and the kernel's work for it. After a poll that
//! found nothing and an `arm` that returned `false`, the descriptor becomes readable with the next
//! completion:
//!
//! ```text
//! loop {
//!     if completions.poll(&mut batch)? == 0 && !completions.arm()? { break }
//!     …
//! }
//! ```
//!
//! No completion is missed: the request for an event comes before the last poll of the queue
//! (InfiniBand Architecture 1.4, 11.4.2.2: a completion that is added after the request makes an
//! event), so either that poll finds a completion or it makes an event. No lane is woken endlessly:
//! an event is taken from the channel as soon as a completion was seen since the request, since
//! only then can there be one. Used by one lane.

use std::io;
use std::sync::Arc;

use super::queue_pair::{Completion, POLL_MAX, QueuePair};

/// Room for completions of one poll.
pub type Batch = [Completion; POLL_MAX];

/// An empty one.
pub const NOTHING: Batch = [Completion {
    number: 0,
    is_recv: false,
    len_bytes: 0,
    status: 0,
}; POLL_MAX];

/// See the module.
#[derive(Debug)]
pub struct Completions {
    pair: Arc<QueuePair>,
    is_armed: bool,
    /// Completions were seen since it was armed, so that an event may have been made.
    may_have_event: bool,
}

impl Completions {
    /// Of this queue pair; there is one such value a pair.
    pub fn new(pair: Arc<QueuePair>) -> Completions {
        Completions {
            pair,
            is_armed: false,
            may_have_event: false,
        }
    }

    /// The queue pair.
    pub fn pair(&self) -> &QueuePair {
        &self.pair
    }

    /// Takes finished work; returns how much.
    ///
    /// # Errors
    /// The completion queue has failed.
    pub fn poll(&mut self, into: &mut Batch) -> io::Result<usize> {
        let count = self.pair.poll(into)?;
        self.may_have_event |= self.is_armed && count > 0;
        Ok(count)
    }

    /// After a poll that found nothing: whether to poll once more before it is sure that the
    /// descriptor will wake a sleeper.
    ///
    /// # Errors
    /// The completion queue has failed.
    pub fn arm(&mut self) -> io::Result<bool> {
        let queue = self.pair.completion_queue();
        if self.is_armed {
            if !self.may_have_event || !queue.take_event() {
                return Ok(false);
            }
            while queue.take_event() {}
        }
        queue.request_event()?;
        self.is_armed = true;
        self.may_have_event = false;
        Ok(true)
    }
}
