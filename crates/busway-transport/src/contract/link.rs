//! A link to one peer host: the control conversation, and the opening of channels.
//!
//! One control thread polls all links of a process; no call blocks. A link that is down keeps
//! trying. Each time it comes up both sides have exchanged [`PeerHello`]s, and all earlier channels
//! are void.
//!
//! The *receiver* opens a channel, since it owns the landing place. [`Link::open_receiver`] returns
//! a description of that place, which the users send over the control conversation. The other side
//! passes it to [`Link::open_sender`]. Each side gets [`LinkEvent::Channel`] when its end is ready.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::channel::ChannelEnd;
use super::message::Message;
#[cfg(not(loom))]
use super::register::{LandingRegister, SourceNumbers};
#[cfg(not(loom))]
use super::ring::{LandingRing, QueueNumbers};

/// Names a channel within one link and one direction. The receiver chooses it, once in a session.
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
    /// Every message, in order, at most `depth` of them unacknowledged: a queuing channel.
    All {
        /// Unacknowledged messages, at least 1.
        depth: u32,
    },
}

/// What both ends must know about a channel; the receiver sends it with the landing place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// Sampling or queuing.
    pub keep: Keep,
    /// The size, with head and user header, of the messages that this channel is laid out for. The
    /// channel carries longer ones as well, in pieces where the landing place is smaller.
    pub message_bytes: u64,
}

/// Who this process is, for the hello.
#[derive(Clone, Debug)]
pub struct LinkIdentity {
    /// Name of this host in the system file.
    pub host: String,
    /// A random number of this run of the process, never 0.
    pub session: u64,
    /// What the layer above must know of the peer first (for the gateway: the iceoryx2 version).
    pub application: String,
}

/// What the peer sent about itself when the link came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHello {
    /// Name of the peer in the system file.
    pub host: String,
    /// The peer's session.
    pub session: u64,
    /// The peer's `application` string.
    pub application: String,
}

/// What a link reports.
#[derive(Debug)]
pub enum LinkEvent<M: Message> {
    /// The conversation is up; nothing from before is valid.
    Up(PeerHello),
    /// The conversation ended, for this reason. Channel ends in use may deliver what has arrived,
    /// then fail.
    Down(String),
    /// The peer can't be used (other protocol version or byte order, wrong name, no window): one
    /// line, reported once until the reason changes. The link keeps trying.
    Refused(String),
    /// A message of the control conversation.
    Control(Vec<u8>),
    /// A channel is ready, or could not be opened for this reason.
    Channel(Direction, ChannelId, Result<ChannelEnd<M>, String>),
}

/// Why a channel can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The conversation is down.
    #[error("the link is down")]
    Down,
    /// The peer described a landing place that can't be right.
    #[error("the peer's landing place is unusable: {0}")]
    BadLanding(String),
    /// No resources for one more channel.
    #[error("no room for one more channel: {0}")]
    NoRoom(String),
    /// The bus can't write a register or a queue of the port store.
    #[error("a sender over {bus} cannot write the port store: open an ordinary channel")]
    NoRegister {
        /// Name of the bus.
        bus: &'static str,
    },
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Wakes a sleeping lane whose channels have no descriptor; one for each lane and link.
pub trait Doorbell: Send {
    /// Becomes readable when the doorbell rings.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Asks the peer to ring from now on. The lane must check its channels once more before it
    /// sleeps.
    fn arm(&mut self);
    /// The lane is awake: the peer need not ring. Clears past rings.
    fn disarm(&mut self);
}

/// How long a link keeps sending the last bytes of a sender that was dropped.
pub const LINGER: Duration = Duration::from_secs(2);

/// A link to one peer over one bus.
pub trait Link<M: Message>: Send {
    /// The bus's name as in the system file, such as `tcp`.
    fn bus(&self) -> &'static str;

    /// How long a peer may be silent before the link goes down.
    fn silence_timeout(&self) -> Duration;

    /// Whether a channel that keeps all messages may lose some while the link is up.
    fn may_lose(&self) -> bool {
        false
    }

    /// Connects, accepts, reads and sends heartbeats as needed, and returns the next event. Call it
    /// until it returns `None`.
    fn poll(&mut self, now: Instant) -> Option<LinkEvent<M>>;

    /// Readable when [`poll`](Self::poll) has work; `None` where only time drives the link.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// The longest time until the next [`poll`](Self::poll) while the descriptor is quiet.
    fn poll_within(&self, now: Instant) -> Duration;

    /// Sends a message of the control conversation, reliably and in order; else the link goes down.
    ///
    /// # Errors
    /// [`OpenError::Down`] if the link is not up.
    fn send_control(&mut self, bytes: &[u8]) -> Result<(), OpenError>;

    /// Makes a landing place for a channel that this host receives, and returns its description
    /// for the peer's [`open_sender`](Self::open_sender). `lane` is the lane of this process that
    /// will poll the end (see [`doorbell`](Self::doorbell)).
    ///
    /// # Errors
    /// See [`OpenError`].
    fn open_receiver(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        lane: u32,
    ) -> Result<Vec<u8>, OpenError>;

    /// Opens the sending end of a channel whose landing place the peer described.
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

    /// As [`open_receiver`](Self::open_receiver), for a sampling channel whose sender writes
    /// `register` itself. The receiving end delivers nothing: its `poll` fails once the peer can
    /// write no more, and it may be polled on any thread. It lives on when the link goes down,
    /// until it is dropped. Only where [`Bus::WRITES_REGISTERS`](super::Bus::WRITES_REGISTERS).
    ///
    /// # Errors
    /// See [`OpenError`].
    #[cfg(not(loom))]
    fn open_register(&mut self, channel: ChannelId, register: LandingRegister) -> Result<Vec<u8>, OpenError> {
        let _ = (channel, register);
        Err(OpenError::NoRegister { bus: self.bus() })
    }

    /// As [`open_sender`](Self::open_sender), towards a landing place of
    /// [`open_register`](Self::open_register). `source` has the numbers of the messages to come.
    /// The sender lives on when the link goes down, until it is dropped or the peer drops its end.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[cfg(not(loom))]
    fn open_register_sender(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
        source: SourceNumbers,
    ) -> Result<(), OpenError> {
        let _ = (channel, spec, landing, lane, source);
        Err(OpenError::NoRegister { bus: self.bus() })
    }

    /// As [`open_receiver`](Self::open_receiver), for a queuing channel whose sender writes `ring`
    /// itself. The receiving end's `poll` delivers nothing to its sink: it counts what has arrived.
    /// Only where [`Bus::WRITES_REGISTERS`](super::Bus::WRITES_REGISTERS).
    ///
    /// # Errors
    /// See [`OpenError`].
    #[cfg(not(loom))]
    fn open_ring(&mut self, channel: ChannelId, ring: LandingRing, lane: u32) -> Result<Vec<u8>, OpenError> {
        let _ = (channel, ring, lane);
        Err(OpenError::NoRegister { bus: self.bus() })
    }

    /// As [`open_sender`](Self::open_sender), towards a landing place of
    /// [`open_ring`](Self::open_ring). `source` has the numbers of the messages to come.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[cfg(not(loom))]
    fn open_ring_sender(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
        source: QueueNumbers,
    ) -> Result<(), OpenError> {
        let _ = (channel, spec, landing, lane, source);
        Err(OpenError::NoRegister { bus: self.bus() })
    }

    /// Forgets a channel; its ends are simply dropped. The landing place of a receiver may then be
    /// used again, so call this only after the peer has closed its sender (it says so over the
    /// control conversation), or after the link went down.
    fn close(&mut self, direction: Direction, channel: ChannelId);

    /// The doorbell of a lane of this process, valid until the link goes down; `None` where every
    /// channel end has a descriptor, or where nothing can wake a lane and it must poll.
    fn doorbell(&mut self, lane: u32) -> Option<Box<dyn Doorbell>>;
}
