//! A queue of the port store that the peer writes, over a bus that reaches registered memory.
//!
//! Contract: the receiving host gives a link the ring of a queuing channel, the memory from which
//! its programs receive ([`Link::open_ring`](super::Link::open_ring)). The peer's sender writes
//! each message there. Nothing at the receiving host copies it: the receiving end, on a lane, only
//! takes it in ([`RingOwner::take_in`]: counts it, and wakes who waits), and tells the sender what
//! it has taken in and what its programs have released. While the receiving end lives nobody else
//! writes the ring, and once that end is dropped the peer can reach it no more.
//!
//! Both ends count in step: the message with the number `n` of its source is in the line
//! `position.line + (n - numbers.newest - 1)`. So the receiving host knows from the ring alone
//! which messages it has, whenever either gateway was killed.

use std::fmt;

use busway_core::ring::{Layout, Position};

use super::one_sided::PortMemory;

/// Whose numbers messages carry, the newest of them that counts as delivered, and losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueNumbers {
    /// Names the source's store; 0: none yet.
    pub origin: u64,
    /// Number of a message; messages after it are new.
    pub newest: u64,
    /// Messages that the source's queue had no room for, ever, as far as the host knows.
    pub lost: u64,
}

/// The store's side of a ring that the peer writes. Used on one thread at a time.
pub trait RingOwner: Send {
    /// Notes the sender's numbers before it may write. They come from the peer.
    ///
    /// # Errors
    /// In words: the ring is not as it was described any more, so the sender must not write.
    fn begin(&mut self, numbers: QueueNumbers) -> Result<(), String>;

    /// Counts the messages that have arrived whole since the last call, and wakes who waits for
    /// them; returns how many.
    ///
    /// # Errors
    /// In words: the sender broke the protocol, and no further message can be found.
    fn take_in(&mut self) -> Result<u64, &'static str>;

    /// Line position behind the last message that was taken in.
    fn placed(&self) -> u64;

    /// Behind the last message that programs have received: lines and data are free up to there.
    fn released(&self) -> Position;
}

/// See the module.
pub struct LandingRing {
    /// Lines and data of the ring and nothing else: the peer can write every byte of it.
    pub memory: PortMemory,
    /// Its shape.
    pub layout: Layout,
    /// Most messages that the queue may hold, at most as many as lines.
    pub depth: usize,
    /// Where the next message goes.
    pub position: Position,
    /// See [`RingOwner::released`].
    pub released: Position,
    /// The source that this host had messages of last, the newest of them, and known losses.
    pub numbers: QueueNumbers,
    /// The store.
    pub owner: Box<dyn RingOwner>,
}

impl fmt::Debug for LandingRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LandingRing")
            .field("layout", &self.layout)
            .field("position", &self.position)
            .field("numbers", &self.numbers)
            .finish_non_exhaustive()
    }
}
