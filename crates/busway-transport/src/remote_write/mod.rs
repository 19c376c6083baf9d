//! Channels over buses on which a host writes into the other host's memory.
//!
//! A channel is a *landing place* in the receiver's memory, which the sender writes, and a *credit
//! entry* in the sender's memory, which the receiver writes. [`shape`] lays out a landing place,
//! [`outbox`] and [`inbox`] carry messages of any length through a ring, [`sender`] and
//! [`receiver`] are the channel ends that lanes poll.
//!
//! Contract: a bus implements [`RemoteAccess`]. It is resolved at compile time, so a store into a
//! mapping stays a store. Used by [`crate::window`] and by RDMA WRITE.

pub mod credit_writer;
pub mod inbox;
pub mod outbox;
pub mod receiver;
pub mod sender;
pub mod shape;

use std::fmt::Debug;

use busway_core::RemoteWrite;

use crate::contract::ChannelError;

/// Bytes of a credit entry, and of the sender's line of a landing place: a cache line.
pub const ENTRY_BYTES: usize = busway_core::LINE_BYTES;

/// Word of a credit entry: lines of the ring consumed, cumulative. The receiver writes all words of
/// the entry.
pub const CREDIT_RING_AT: usize = 0;
/// Word of a credit entry: sequence of the last message taken from the register; 0: none yet.
pub const CREDIT_TAKEN_SEQUENCE_AT: usize = 32;
/// Word of a credit entry: number of messages that the receiver took from the register.
pub const CREDIT_TAKEN_COUNT_AT: usize = 40;
/// Word of a credit entry: the channel's tag once the receiver has gone away.
pub const CREDIT_CLOSED_AT: usize = 48;

/// Word of the sender's line: the place's tag once the sender has closed in good order.
pub const SENDER_CLOSED_AT: usize = 0;
/// Word of the sender's line: not 0 while the sender waits for credit.
pub const SENDER_AWAITS_CREDIT_AT: usize = 8;

/// How one end of a channel reaches the other over a bus.
pub trait RemoteAccess: Debug + 'static {
    /// A part of the far memory.
    type Memory: RemoteWrite + Debug + Send;
    /// Whether that memory may be written now.
    type WritePermission: WritePermission;
    /// How the ends wake each other.
    type Waker: Waker;
    /// What must live as long as the end: mappings, a landing place.
    type Keep: Debug + Send;

    /// Number of empty polls in a row after which a receiver writes its credits; 0: at once. Where
    /// a write across the bus is expensive, the reply to a message leaves first, and several
    /// messages share one write. A ring that runs low on credit and a lane that goes to sleep do
    /// not wait.
    const CREDITS_AFTER_POLLS: u32;
}

/// Whether far memory may be written. Not after the link went down: the peer may then reuse it.
pub trait WritePermission: Debug + Send {
    /// Proof that the memory stays this channel's until it is dropped.
    type Guard<'a>
    where
        Self: 'a;

    /// Enters.
    ///
    /// # Errors
    /// Why nothing may be written any more.
    fn begin_write(&self) -> Result<Self::Guard<'_>, ChannelError>;

    /// Why nothing more will arrive from the other end, as far as the bus knows. It may come late.
    fn end_reason(&self) -> Option<ChannelError>;
}

/// Wakes the lane of the other end, and has this end's lane woken.
///
/// *Marks* are positions: a sender's mark grows with what it publishes, a receiver's with its
/// credits.
pub trait Waker: Debug + Send {
    /// Everything up to `mark` is published: wakes the other end's lane if it may sleep without
    /// having seen it.
    fn wake(&mut self, mark: u64);

    /// Once a turn: takes in what came beside the memory. Does nothing by default.
    fn poll(&mut self) {}

    /// This end has seen everything up to `seen` and is to be woken when there is more. True: the
    /// caller must look once more, since the request may have come too late.
    fn prepare_sleep(&mut self, seen: u64) -> bool;

    /// This end has found something: it need not be woken.
    fn cancel_sleep(&mut self) {}

    /// Whether this end's lane goes to sleep next.
    fn is_about_to_sleep(&self) -> bool {
        false
    }

    /// Whether something that was written waits on this side for room on the bus.
    fn has_backlog(&self) -> bool {
        false
    }
}

/// The error of an end whose link went down.
pub fn link_went_down() -> ChannelError {
    let kind = std::io::ErrorKind::ConnectionReset;
    ChannelError::Io(std::io::Error::new(kind, "the link went down"))
}
