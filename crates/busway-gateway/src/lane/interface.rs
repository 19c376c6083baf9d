//! Plain data that the control thread and the lanes exchange: names, reports, how a channel ends.
//!
//! Nothing here needs iceoryx2, a bus or a thread, so decisions can be made and tested with it
//! alone.

/// Names a flow within this gateway: an iceoryx2 service, or a channel of ARINC 653 ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowId {
    /// A service.
    Service(u32),
    /// A channel of ports between two gateways.
    Port(u32),
    /// A channel of ports between this host and a real-time core, on which no gateway runs.
    Core(u32),
}

/// Names a channel within this gateway: the link's number and the channel's number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelKey {
    pub link: usize,
    /// The link's conversation, counted by this gateway. A restarted peer uses channel numbers
    /// again, perhaps before a lane has reported the end of an earlier channel of that number.
    pub conversation: u32,
    /// See [`busway_transport::ChannelId`].
    pub channel: u32,
}

/// How the sending end of a service's channel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At once: the other host wants no more messages.
    Now,
    /// After every message that local programs have published so far has been sent.
    Drained,
    /// After every message that the lane has taken so far has been sent; a channel over another
    /// link will carry the next ones. Where publishers wait for readers, they wait for that
    /// channel.
    Moved,
    /// Now, since the link is down: the delivery of unacknowledged messages is unknown, and later
    /// ones are counted as lost until a channel is back.
    Lost,
    /// Now: the delivery of unacknowledged messages is unknown, but later ones have a channel, over
    /// another link or because the receiving host asks for a new one.
    Replaced,
}

/// What happens to a message when the channel to a host is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits, and so, through the service's own buffer, does the publisher.
    Wait,
    /// The oldest message that waits in the gateway is dropped.
    DropOldest,
    /// It is dropped.
    DropNewest,
}

/// What a lane reports to the control thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The sending end of a channel is gone.
    SenderEnded {
        flow: FlowId,
        key: ChannelKey,
        /// Messages that the receiver had not acknowledged. 0 after a failure, when the lane has
        /// counted them itself, and for ports, whose queues keep such messages.
        unacknowledged: u64,
        /// The reason, if no command ended it.
        failure: Option<String>,
    },
    /// The lane has the receiving end: it will take every message sent from now on.
    ReceiverAdded { flow: FlowId, key: ChannelKey },
    /// The receiving end is gone, and every message that had arrived was taken.
    ReceiverEnded {
        flow: FlowId,
        key: ChannelKey,
        /// The reason, if no command ended it.
        failure: Option<String>,
    },
    /// The flow's publisher had no memory behind a sample and must be replaced.
    PublisherFailed { flow: FlowId },
}
