//! The two ends of a channel, as the users of a bus see them.
//!
//! One lane polls both; no call blocks. A [`Sender`] takes ownership of whole messages. A
//! [`Receiver`] asks its caller, the [`Sink`], where to put each message, so that it can read a
//! socket straight into a loaned sample.

use std::os::fd::RawFd;

use super::message::{Head, Message, SegmentId};
use super::sender_group::SenderGroup;

/// Why a channel failed. The lane drops the end, and the control thread opens a new channel.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The peer closed the channel after its last message.
    #[error("the peer closed the channel")]
    Closed,
    /// The bus failed.
    #[error("the bus failed: {0}")]
    Io(#[from] std::io::Error),
    /// The peer sent bytes that violate the protocol.
    #[error("the peer sent bytes that are no message: {0}")]
    Corrupt(&'static str),
}

/// Why [`Sender::send`] returned a message to the caller.
#[derive(Debug)]
pub enum Refused<M> {
    /// The channel has no room (no credit, or the bus is busy). Try again after [`Sender::flush`].
    Full(M),
    /// The message is longer than the channel can ever carry.
    TooLong {
        /// The message.
        message: M,
        /// The most bytes of head, user header and payload together.
        limit_bytes: u64,
    },
    /// The channel has failed.
    Failed(M, ChannelError),
}

/// What [`Sender::flush`] left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Every accepted message was handed to the bus.
    Idle,
    /// An accepted message waits for the bus (a full socket, no credit): see
    /// [`Sender::wait_for`].
    Waiting,
}

/// What wakes a sleeping lane when a channel end has work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// This descriptor becomes readable (or, if asked for, writable). It stays the same for the
    /// whole life of the end.
    Fd {
        /// The descriptor, owned by the channel end.
        fd: RawFd,
        /// Whether to wait for room to write as well.
        writable: bool,
    },
    /// The lane's doorbell of this link rings ([`Link::doorbell`](super::Link::doorbell)).
    Doorbell,
    /// Nothing: the lane must poll.
    Poll,
}

/// The end that sends.
pub trait Sender<M: Message>: Send {
    /// Accepts `message` and sends it in order, at the latest with the next
    /// [`flush`](Self::flush). Drops the message as soon as the bus no longer needs its bytes. On
    /// a channel that keeps the latest, a newer message replaces one that still waits, which counts
    /// in [`overwritten`](Self::overwritten); a head without a message, such as
    /// [`Kind::Notify`](super::Kind::Notify), replaces none and is refused while one waits.
    ///
    /// # Errors
    /// [`Refused`] returns the message.
    fn send(&mut self, message: M) -> Result<(), Refused<M>>;

    /// Sends what waits (one system call or one fence for a batch) and reads credits.
    ///
    /// # Errors
    /// The channel has failed; [`outstanding`](Self::outstanding) says how many messages are
    /// unacknowledged.
    fn flush(&mut self) -> Result<Flushed, ChannelError>;

    /// Whether [`send`](Self::send) would accept a message of this many bytes (head and user header
    /// included) now. The gateway asks before it takes a sample from a queue with back pressure.
    fn has_room(&mut self, total_bytes: u64) -> bool;

    /// Accepted messages that no credit has acknowledged. After a failure their delivery is
    /// unknown.
    fn outstanding(&self) -> u64;

    /// Messages that a newer one replaced on this side (channels that keep the latest).
    fn overwritten(&self) -> u64;

    /// Messages sent whose payload this process copied into memory that the bus reads; `None` where
    /// the bus does not count (the kernel copies for a socket).
    fn copied(&self) -> Option<u64> {
        None
    }

    /// Whether the lane must call [`flush`](Self::flush) whenever [`wait_for`](Self::wait_for) is
    /// ready, even after [`Flushed::Idle`]: a bus that loses packets may have to retransmit.
    fn needs_flush(&self) -> bool {
        false
    }

    /// What wakes a lane that sleeps until this end has work.
    fn wait_for(&self) -> WaitFor;

    /// Adds this sender to `group`. From then on the caller sends each message through every
    /// sender of the group and then flushes them all, on one thread. Returns whether the bus
    /// sends such a message once for several hosts.
    fn join(&mut self, group: &mut SenderGroup) -> bool {
        let _ = group;
        false
    }

    /// Called when the caller skips this sender for lack of credit or memory, while others of its
    /// [group](Self::join) may get the message. They wait for this sender as for one that has
    /// refused the message.
    fn hold_back(&mut self) {}

    /// Copies a message out at once, for a caller that keeps it: a program that writes a register
    /// of the other host's port store by itself (`RegisterDevice`). Returns whether everything is
    /// with the device. If not, this message or an earlier one waits: the caller calls
    /// [`flush`](Self::flush) until nothing waits, and then offers its newest message again. A
    /// message that is no newer than one before is left out.
    ///
    /// # Errors
    /// The channel has failed, or it writes no register.
    fn copy_out(&mut self, head: &Head, payload: &[u8]) -> Result<bool, ChannelError> {
        let _ = (head, payload);
        Err(std::io::Error::from(std::io::ErrorKind::Unsupported).into())
    }
}

/// The end that receives.
pub trait Receiver: Send {
    /// Delivers at most `budget` messages to `sink` and returns how many. Stops early, keeping the
    /// rest, where the sink answers [`Verdict::Later`]. Returns credits for messages that the sink
    /// has delivered or discarded.
    ///
    /// # Errors
    /// The channel has ended or failed; every message that arrived whole has been delivered.
    fn poll(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<usize, ChannelError>;

    /// Returns all credits that [`poll`](Self::poll) kept for a later batch: the sender is about
    /// to close and waits for them. Does nothing on a bus whose `poll` keeps none.
    fn acknowledge(&mut self) {}

    /// Messages delivered whose payload this process copied out of memory that the bus writes;
    /// `None` where the bus does not count (the kernel copies for a socket).
    fn copied(&self) -> Option<u64> {
        None
    }

    /// What wakes a lane that sleeps until this end has work.
    fn wait_for(&self) -> WaitFor;
}

/// What a sink answers to the head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Put it where [`Sink::landing`] says.
    Land,
    /// Discard its bytes (unknown size, no subscriber).
    Discard,
    /// Keep it and ask again at the next poll.
    Later,
}

/// Where a message lands: two slices as long as its head says.
#[derive(Debug)]
pub struct Landing<'a> {
    /// For the user header.
    pub user_header: &'a mut [u8],
    /// For the payload.
    pub payload: &'a mut [u8],
}

/// The user of a receiver: says where each message goes, and takes it when it is whole.
///
/// A receiver calls `land`; after [`Verdict::Land`] any number of `landing`, then either `deliver`
/// or `abandon`.
pub trait Sink {
    /// A message with this head has arrived. A peer wrote it: check its lengths before use.
    fn land(&mut self, head: &Head) -> Verdict;
    /// Where the message goes; the same slices at every call until `deliver` or `abandon`.
    fn landing(&mut self) -> Landing<'_>;
    /// The memory that holds the landing's payload; `None` where it has no lasting name, so that a
    /// bus must copy.
    fn segment(&mut self) -> Option<SegmentId> {
        None
    }
    /// The message is whole.
    fn deliver(&mut self, head: &Head);
    /// The message will never be whole, or is read again after a torn read.
    fn abandon(&mut self);
}

/// A channel end, ready for use.
pub enum ChannelEnd<M: Message> {
    /// This host sends.
    Sender(Box<dyn Sender<M>>),
    /// This host receives.
    Receiver(Box<dyn Receiver>),
}

impl<M: Message> std::fmt::Debug for ChannelEnd<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ChannelEnd::Sender(_) => "ChannelEnd::Sender",
            ChannelEnd::Receiver(_) => "ChannelEnd::Receiver",
        })
    }
}
