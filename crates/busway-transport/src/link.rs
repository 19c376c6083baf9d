//! A link to one peer host: the control conversation, and the opening of channels.
//!
//! One control thread polls all links of a process; no call blocks. A link is retried for ever and comes back by itself; each
//! time it comes up both sides have exchanged [`PeerHello`]s, and all channels of an earlier time are void.
//!
//! A channel is opened by its *receiver*, who owns the landing place: [`Link::open_receiver`] gives a description of that
//! place, which the users exchange over the control conversation; the other side passes it to [`Link::open_sender`]. Both
//! then get [`LinkEvent::Channel`] when their end is ready.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::channel::ChannelEnd;
use crate::message::Message;

/// Names a channel within one link and one direction. Chosen by the receiving side, never used twice within one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// The role of this host in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// This host sends.
    Send,
    /// This host receives.
    Receive,
}

/// What a channel does when the receiver is slower than the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The newest message only: a sampling channel.
    Latest,
    /// Every message, in order; at most `depth` are on their way unconfirmed: a queuing channel.
    All {
        /// Messages on their way, at least 1.
        depth: u32,
    },
}

/// What both ends must know about a channel; the receiver sends it along with the landing place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// Sampling or queuing.
    pub keep: Keep,
    /// Size in bytes, with head and user header, of the messages that this channel is laid out for. Longer ones must pass as well
    /// (in pieces, where the landing place is smaller).
    pub message_bytes: u64,
}

/// Who this process is, for the hello.
#[derive(Clone, Debug)]
pub struct LinkIdentity {
    /// Name of this host in the system file.
    pub host: String,
    /// Drawn anew at each start of the process, never 0.
    pub session: u64,
    /// What the layer above needs to know of the peer before it talks (for the gateway: the iceoryx2 version).
    pub application: String,
}

/// What the peer said of itself when the link came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHello {
    /// Name of the peer in the system file.
    pub host: String,
    /// The peer's session.
    pub session: u64,
    /// The peer's `application` string.
    pub application: String,
}

/// What a link has to tell.
#[derive(Debug)]
pub enum LinkEvent<M: Message> {
    /// The conversation stands; nothing of an earlier time is valid.
    Up(PeerHello),
    /// The conversation ended: why, in words for people. Channel ends still in use may drain what has arrived, then fail.
    Down(String),
    /// The peer can't be talked to (other protocol version, other byte order, wrong name, no window there): one clear line, said once
    /// until the reason changes. The link goes on trying.
    Refused(String),
    /// A message of the control conversation.
    Control(Vec<u8>),
    /// A channel is ready, or could not be opened (why, in words).
    Channel(Direction, ChannelId, Result<ChannelEnd<M>, String>),
}

/// Why a channel can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The conversation is down.
    #[error("the link is down")]
    Down,
    /// The landing place that the peer described can't be right.
    #[error("the peer's landing place is unusable: {0}")]
    BadLanding(String),
    /// No resources for one more channel.
    #[error("no room for one more channel: {0}")]
    NoRoom(String),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Wakes a sleeping lane whose channels have no descriptor of their own. One a lane and link.
pub trait Doorbell: Send {
    /// Becomes readable when the bell is rung.
    fn fd(&self) -> BorrowedFd<'_>;
    /// From now on the peer rings. The lane must look at its channels once more after this before it sleeps.
    fn arm(&mut self);
    /// The lane is awake: the peer need not ring; past rings are cleared.
    fn disarm(&mut self);
}

/// How long the last bytes of a sending end that was dropped may take to arrive, while the link stands.
pub const LINGER: Duration = Duration::from_secs(2);

/// A link to one peer over one bus.
pub trait Link<M: Message>: Send {
    /// The bus's name as in the system file, such as `tcp`.
    fn bus(&self) -> &'static str;

    /// How long a peer may be silent before the link goes down, as far as the bus's settings say.
    fn patience(&self) -> Duration;

    /// Whether a channel that keeps all messages may lose some although the link stands.
    fn may_lose(&self) -> bool {
        false
    }

    /// Does what is due (connect, accept, heartbeat, read) and returns the next event; call until `None`.
    fn poll(&mut self, now: Instant) -> Option<LinkEvent<M>>;

    /// Readable when [`poll`](Self::poll) has something to do; `None` where only time drives the link.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// How long [`poll`](Self::poll) may wait at most although the descriptor is quiet.
    fn poll_within(&self, now: Instant) -> Duration;

    /// Sends a message of the control conversation: reliable and in order, or the link goes down.
    ///
    /// # Errors
    /// [`OpenError::Down`] if the link is not up.
    fn send_control(&mut self, bytes: &[u8]) -> Result<(), OpenError>;

    /// Makes a landing place for a channel that this host receives. Returns its description for the peer's
    /// [`open_sender`](Self::open_sender). `lane` says which of this process's lanes will poll the end (see [`doorbell`](Self::doorbell)).
    ///
    /// # Errors
    /// See [`OpenError`].
    fn open_receiver(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        lane: u32,
    ) -> Result<Vec<u8>, OpenError>;

    /// Opens the sending end towards a landing place that the peer described.
    ///
    /// # Errors
    /// See [`OpenError`].
    fn open_sender(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
    ) -> Result<(), OpenError>;

    /// Forgets a channel. For a receiver: its landing place may be used again, so call it only after the peer has said (over the control
    /// conversation) that its sender is gone, or after the link went down. The ends themselves are simply dropped.
    fn close(&mut self, direction: Direction, channel: ChannelId);

    /// The doorbell of one of this process's lanes; `None` where every channel end of this bus has a descriptor, or where nothing
    /// can wake a sleeper and lanes must poll. Valid until the link goes down.
    fn doorbell(&mut self, lane: u32) -> Option<Box<dyn Doorbell>>;
}
