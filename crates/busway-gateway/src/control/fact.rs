//! What the decision core is told, and what it asks for: plain data in both directions.
//!
//! Contract: the shell carries out actions in their order. Those whose documentation names a fact
//! are answered by it at once, before any other fact. Called by [`super::core`] and the shell.

use std::time::Duration;

use busway_transport::{ChannelSpec, Direction};

use super::plan::WhenFull;
use crate::description::ServiceDescription;
use crate::lane::{ChannelKey, Ending, FlowId, Report};
use crate::protocol::ControlMessage;

/// The programs of this host in one service, without the gateway's own ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalService {
    /// Types and settings.
    pub description: ServiceDescription,
    /// Nodes of programs that have it open.
    pub nodes: usize,
    /// Publishers.
    pub publishers: usize,
    /// Subscribers.
    pub subscribers: usize,
    /// Length in bytes of the longest message; `None` if no program publishes.
    pub longest_bytes: Option<u64>,
}

/// Notifiers and listeners of the event service of the same name as a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalEvents {
    /// Notifiers of programs.
    pub notifiers: usize,
    /// Listeners of programs.
    pub listeners: usize,
}

/// Why a service can't be opened or created here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldError {
    /// In words.
    pub reason: String,
    /// Two hosts use one name for different types: already complained about.
    pub is_type_conflict: bool,
}

/// Something that happened.
#[derive(Debug)]
pub enum Fact {
    /// A link's conversation stands.
    LinkUp {
        /// Index of the link.
        link: usize,
        /// The peer's version line, see [`crate::protocol::application`].
        application: String,
        /// Whether a channel that keeps all messages may lose some although the link stands.
        may_lose: bool,
        /// How long the peer may be silent before the link goes down.
        silence_timeout: Duration,
    },
    /// A link's conversation ended; its channels are void.
    LinkDown {
        /// Index of the link.
        link: usize,
        /// Why, in words.
        reason: String,
    },
    /// The peer can't be talked to; the link goes on trying.
    LinkRefused {
        /// Index of the link.
        link: usize,
        /// Why, in words.
        reason: String,
    },
    /// A peer sent a control message.
    Control {
        /// Index of the link.
        link: usize,
        /// The message.
        message: ControlMessage,
    },
    /// The offset of a peer's clock is known now.
    ClockKnown {
        /// Index of the link.
        link: usize,
    },
    /// The programs of a service came, went or changed; `None`: it is gone.
    Local {
        /// The service's name.
        service: String,
        /// Its programs.
        programs: Option<LocalService>,
        /// The programs of its companion event service.
        events: LocalEvents,
    },
    /// A bus has made this host's end of a channel, or could not (why, in words).
    EndReady {
        /// The role of this host.
        direction: Direction,
        /// The channel.
        key: ChannelKey,
        /// The shell keeps the end itself.
        result: Result<(), String>,
    },
    /// A lane reports.
    Lane(Report),
    /// Answers [`Action::HoldService`].
    ServiceHeld {
        /// The flow.
        flow: FlowId,
        /// Whether it is open now.
        result: Result<(), HoldError>,
    },
    /// Answers [`Action::MakePublisher`] and [`Action::ReplacePublisher`].
    PublisherMade {
        /// The flow.
        flow: FlowId,
        /// Why not, in words.
        result: Result<(), String>,
        /// It was to replace one.
        was_there: bool,
    },
    /// Answers [`Action::MakeSubscriber`].
    SubscriberMade {
        /// The flow.
        flow: FlowId,
        /// Why not, in words.
        result: Result<(), String>,
    },
    /// Answers [`Action::SetNotifier`].
    NotifierSet {
        /// The flow.
        flow: FlowId,
        /// Why not, in words.
        result: Result<(), String>,
    },
    /// Answers [`Action::SetListener`].
    ListenerSet {
        /// The flow.
        flow: FlowId,
        /// Why not, in words.
        result: Result<(), String>,
    },
    /// Answers [`Action::OpenReceiver`].
    ReceiverOpened {
        /// The channel.
        key: ChannelKey,
        /// The landing place, as the bus describes it to the peer; or why there is none.
        result: Result<Vec<u8>, String>,
    },
    /// Answers [`Action::OpenSender`].
    SenderOpened {
        /// The channel.
        key: ChannelKey,
        /// Why not, in words.
        result: Result<(), String>,
    },
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a control message. A link that goes down meanwhile becomes a fact of its own.
    Send {
        /// Index of the link.
        link: usize,
        /// The message.
        message: ControlMessage,
    },
    /// Open or create the service here. Answered by [`Fact::ServiceHeld`].
    HoldService {
        /// The flow.
        flow: FlowId,
        /// Its types and settings.
        description: Box<ServiceDescription>,
    },
    /// Close the service here.
    ReleaseService {
        /// The flow.
        flow: FlowId,
    },
    /// Make the publisher that stands for remote ones. Answered by [`Fact::PublisherMade`].
    MakePublisher {
        /// The flow.
        flow: FlowId,
        /// It waits for slow readers, and so needs a lane of its own.
        waits: bool,
    },
    /// Make it anew, after a fault. Answered by [`Fact::PublisherMade`].
    ReplacePublisher {
        /// The flow.
        flow: FlowId,
    },
    /// Drop it.
    DropPublisher {
        /// The flow.
        flow: FlowId,
    },
    /// Make the subscriber that stands for remote ones. Answered by [`Fact::SubscriberMade`].
    MakeSubscriber {
        /// The flow.
        flow: FlowId,
        /// What a full channel does with the next sample.
        when_full: WhenFull,
    },
    /// Drop it.
    DropSubscriber {
        /// The flow.
        flow: FlowId,
    },
    /// Make or drop the notifier of the companion event service. Answered by [`Fact::NotifierSet`].
    SetNotifier {
        /// The flow.
        flow: FlowId,
        /// Whether there shall be one.
        is_wanted: bool,
    },
    /// Make or drop the listener of the companion event service. Answered by [`Fact::ListenerSet`].
    SetListener {
        /// The flow.
        flow: FlowId,
        /// Whether there shall be one.
        is_wanted: bool,
    },
    /// Subscribers of programs came or went: newcomers get the history.
    NoticeSubscribers {
        /// The flow.
        flow: FlowId,
    },
    /// Publishers of programs came or went.
    NoticePublishers {
        /// The flow.
        flow: FlowId,
    },
    /// Make a landing place. Answered by [`Fact::ReceiverOpened`].
    OpenReceiver {
        /// The flow.
        flow: FlowId,
        /// The channel.
        key: ChannelKey,
        /// Its shape.
        spec: ChannelSpec,
    },
    /// Open the sending end towards a peer's landing place. Answered by [`Fact::SenderOpened`].
    OpenSender {
        /// The flow.
        flow: FlowId,
        /// The channel.
        key: ChannelKey,
        /// Its shape.
        spec: ChannelSpec,
        /// As the peer's bus describes it.
        landing: Vec<u8>,
    },
    /// Forget a channel: its landing place is free.
    CloseChannel {
        /// The role of this host.
        direction: Direction,
        /// The channel.
        key: ChannelKey,
    },
    /// Give the lane a sending end.
    AddSender {
        /// The flow.
        flow: FlowId,
        /// The channel.
        key: ChannelKey,
        /// Every message to its host takes it: it may share what leaves with other hosts' channels.
        may_join: bool,
    },
    /// Give the lane a second sending end, for large messages.
    AddLargeSender {
        /// The flow.
        flow: FlowId,
        /// The channel.
        key: ChannelKey,
        /// The main channel to the same host.
        main: ChannelKey,
        /// Bytes of payload from which on a message takes it.
        from_bytes: u64,
        /// Whether order is kept across both channels.
        in_order: bool,
    },
    /// End a sending end.
    EndSender {
        /// The flow.
        flow: FlowId,
        /// The channel.
        key: ChannelKey,
        /// How.
        ending: Ending,
    },
    /// Give the lane a receiving end.
    AddReceiver {
        /// The flow.
        flow: FlowId,
        /// The channel.
        key: ChannelKey,
        /// The host that sends: numbering continues from its last channel.
        peer: String,
        /// Whether gaps in the numbers are losses.
        keeps_all: bool,
    },
    /// Acknowledge each message as soon as it is taken: the sender is about to end.
    AcknowledgeReceiver {
        /// The flow.
        flow: FlowId,
        /// The channel.
        key: ChannelKey,
    },
    /// End a receiving end once it has taken what arrived.
    EndReceiver {
        /// The flow.
        flow: FlowId,
        /// The channel.
        key: ChannelKey,
    },
    /// The next message of this host begins a new count: what came before was not wanted.
    ResetContinuity {
        /// The flow.
        flow: FlowId,
        /// The host that sends.
        peer: String,
    },
    /// Messages were handed to a bus that failed: their delivery is unknown.
    CountDeliveryUnknown {
        /// The flow.
        flow: FlowId,
        /// How many.
        messages: u64,
    },
    /// Log what is wrong.
    Warn(String),
    /// Log a change.
    Info(String),
}
