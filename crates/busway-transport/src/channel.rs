//! The two ends of a channel, as the users of a bus see them.
//!
//! Both are polled by one lane and never block. A [`Sender`] takes over whole messages; a [`Receiver`] asks its caller, the
//! [`Sink`], where each message shall land, so that a socket is read straight into a loaned sample.

use std::os::fd::RawFd;

use crate::message::{Head, Message, SegmentId};

/// Why a channel can't go on. The lane drops the end and the control thread opens the channel anew.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side closed the channel in an orderly way, after its last message.
    #[error("the peer closed the channel")]
    Closed,
    /// The bus failed.
    #[error("the bus failed: {0}")]
    Io(#[from] std::io::Error),
    /// The peer wrote bytes that follow no protocol of ours.
    #[error("the peer sent bytes that are no message: {0}")]
    Corrupt(&'static str),
}

/// A message that was not taken, given back to its owner.
#[derive(Debug)]
pub enum Refused<M> {
    /// The channel has no room (no credit, or the bus is not ready): try again after [`Sender::flush`] made progress.
    Full(M),
    /// Longer than the channel can ever carry; `limit_bytes` is the most for head, user header and payload together.
    TooLong {
        /// The message.
        message: M,
        /// The most that this channel carries.
        limit_bytes: u64,
    },
    /// The channel has failed.
    Failed(M, ChannelError),
}

/// What [`Sender::flush`] left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing is waiting on this side: everything accepted was handed to the bus.
    Idle,
    /// Something accepted is still waiting for the bus (a full socket, no credit): see [`Sender::wait_for`].
    Waiting,
}

/// How a lane that wants to sleep learns that a channel end has work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// This descriptor becomes readable (and, if asked for, writable). It is the same for the end's whole life.
    Fd {
        /// The descriptor, owned by the channel end.
        fd: RawFd,
        /// Whether to wait for room to write as well.
        writable: bool,
    },
    /// The lane's doorbell for this link is rung ([`crate::Link::doorbell`]).
    Doorbell,
    /// Nothing wakes the lane: it must poll.
    Poll,
}

/// The end that sends.
pub trait Sender<M: Message>: Send {
    /// Takes over `message`, which leaves in order with the others, at the latest with the next [`flush`](Self::flush).
    /// The message is dropped as soon as the bus needs its bytes no more (small ones at once). On a channel that keeps the
    /// latest, a message that waits is replaced by the next one, and counted in [`overwritten`](Self::overwritten).
    ///
    /// # Errors
    /// [`Refused`] gives the message back.
    fn send(&mut self, message: M) -> Result<(), Refused<M>>;

    /// Moves what waits (one system call or one fence a batch), and takes in credits.
    ///
    /// # Errors
    /// The channel has failed; what was not confirmed is in [`outstanding`](Self::outstanding).
    fn flush(&mut self) -> Result<Flushed, ChannelError>;

    /// Whether [`send`](Self::send) would take a message of this many bytes (head and user header included) now. The gateway
    /// asks before it takes a sample out of a queue whose writer shall wait.
    fn has_room(&mut self, total_bytes: u64) -> bool;

    /// Messages accepted whose receipt by the far end's sink is not confirmed by a credit. After a failure these are in doubt.
    fn outstanding(&self) -> u64;

    /// Messages that were replaced by a newer one on this side (channels that keep the latest).
    fn overwritten(&self) -> u64;

    /// Of the messages sent since the end was opened, those whose payload this process's processor copied between the message and the memory that the bus reads; `None` where the bus does not count (a
    /// socket's copies are the kernel's).
    fn copied(&self) -> Option<u64> {
        None
    }

    /// Whether [`flush`](Self::flush) must go on being called, whenever [`wait_for`](Self::wait_for) is ready, although it has said [`Flushed::Idle`]: on a bus that
    /// loses things something may have to be sent again.
    fn needs_flush(&self) -> bool {
        false
    }

    /// How to sleep until there is something to do for this end.
    fn wait_for(&self) -> WaitFor;

    /// From now on the caller gives this sender the same messages as those that have joined before: each message to one after the other, and then it flushes
    /// them all. All of them are used by one thread. A bus that can carries what several are due once; returns whether it can here.
    #[cfg(not(loom))]
    fn join(&mut self, company: &mut crate::Company<M>) -> bool {
        let _ = company;
        false
    }

    /// The caller keeps the next message from this sender for want of credit or memory, while others of its [company](Self::join) may get it: they wait for this
    /// one a moment, as for one that has refused the message.
    fn hold_back(&mut self) {}
}

/// The end that receives.
pub trait Receiver: Send {
    /// Moves what has arrived into `sink`, at most `budget` messages; returns how many were delivered. Returns early, with
    /// the rest kept, where the sink says [`Verdict::Later`]. Gives credits back for what the sink has delivered or discarded.
    ///
    /// # Errors
    /// The channel has ended or failed; everything that arrived whole before has been delivered.
    fn poll(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<usize, ChannelError>;

    /// Gives back all credits that [`poll`](Self::poll) owes for messages that were taken, however few: the sender is about to end, and waits for them. Nothing to do for a bus whose `poll` owes none.
    fn confirm(&mut self) {}

    /// Of the messages delivered since the end was opened, those whose payload this process's processor copied between the memory that the bus writes and the landing; `None` where the bus does not count (a
    /// socket's copies are the kernel's).
    fn copied(&self) -> Option<u64> {
        None
    }

    /// How to sleep until there is something to do for this end.
    fn wait_for(&self) -> WaitFor;
}

/// What a sink says of a message whose head has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has a place: [`Sink::landing`] gives it.
    Land,
    /// It is not wanted (unknown size, no subscriber): the bus throws its bytes away.
    Discard,
    /// Not now; the bus keeps it and asks again at the next poll.
    Later,
}

/// Where a message lands: two places whose lengths are exactly those in its head.
#[derive(Debug)]
pub struct Landing<'a> {
    /// For the user header.
    pub user_header: &'a mut [u8],
    /// For the payload.
    pub payload: &'a mut [u8],
}

/// The user of a receiver: gives each message its place and takes it when it is whole.
///
/// Calls come in this order: `land`; if it said [`Verdict::Land`], any number of `landing`, then `deliver` or `abandon`.
pub trait Sink {
    /// A message with this head has arrived (a peer wrote it: judge its lengths before use).
    fn land(&mut self, head: &Head) -> Verdict;
    /// The places of the message being received; the same ones at every call until `deliver` or `abandon`.
    fn landing(&mut self) -> Landing<'_>;
    /// The memory that the landing's payload lies in; `None` where it has no lasting name: a bus then copies.
    fn segment(&mut self) -> Option<SegmentId> {
        None
    }
    /// The message is whole.
    fn deliver(&mut self, head: &Head);
    /// The message will never be whole (or was torn and is read anew): its place is free.
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
