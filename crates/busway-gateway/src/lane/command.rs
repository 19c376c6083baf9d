//! Commands of the control thread to a lane.
//!
//! A command for a flow, half or channel that has ended meanwhile changes nothing.

use std::sync::Arc;

use busway_transport::{Doorbell, Receiver, Sender};

use super::destination::LargeSender;
use super::inbound::{Continuity, InboundSetup};
use super::interface::{ChannelKey, Ending, FlowId};
use super::outbound::OutboundSetup;
use super::port::{InboundPort, OutboundPort};
use crate::iox::events::{EventListener, EventNotifier};
use crate::iox::publisher::SamplePublisher;
use crate::iox::sample::Outgoing;

/// A command to a lane.
pub enum LaneCommand {
    /// For the half of a service that sends to other hosts.
    Outbound { flow: FlowId, command: OutboundCommand },
    /// For the half of a service that receives from other hosts.
    Inbound { flow: FlowId, command: InboundCommand },
    /// For a channel of ports.
    Port { flow: FlowId, command: PortCommand },
    /// Sets the doorbell of a link, for channels without descriptor.
    SetDoorbell {
        link: usize,
        /// `None` when the link goes down.
        doorbell: Option<Box<dyn Doorbell>>,
    },
    /// The lane ends.
    Stop,
}

/// See [`LaneCommand::Outbound`].
#[expect(clippy::large_enum_variant, reason = "commands are few, and none waits long")]
pub enum OutboundCommand {
    /// Starts the half, without destinations.
    Begin(Box<OutboundSetup>),
    /// Ends it; samples that it holds go back to their publishers.
    End,
    /// Adds a destination.
    AddSender {
        key: ChannelKey,
        sender: Box<dyn Sender<Outgoing>>,
        /// Every message takes this channel, so the bus may send one message to several hosts once.
        may_join: bool,
    },
    /// Adds a channel for large messages to a destination.
    AddLargeSender {
        /// The destination's main channel.
        main: ChannelKey,
        large: LargeSender,
    },
    /// Ends a channel; the lane reports when it is gone.
    EndSender { key: ChannelKey, ending: Ending },
    /// Sets the listener of the companion event service.
    SetListener(Option<EventListener>),
    /// Local publishers came or went.
    NoticePublishers,
}

/// See [`LaneCommand::Inbound`].
#[expect(clippy::large_enum_variant, reason = "commands are few, and none waits long")]
pub enum InboundCommand {
    /// Starts the half, without sources.
    Begin(Box<InboundSetup>),
    /// Ends it.
    End,
    /// Adds a channel; the lane reports that it has it.
    AddReceiver {
        key: ChannelKey,
        receiver: Box<dyn Receiver>,
        /// The numbering of messages from the sending host.
        continuity: Arc<Continuity>,
        /// Whether a gap in the numbers is a loss.
        keeps_all: bool,
    },
    /// Acknowledges each message as soon as it is taken: the sender is about to end.
    AcknowledgeReceiver { key: ChannelKey },
    /// Ends a channel once every message that has arrived is taken; the lane reports it.
    EndReceiver { key: ChannelKey },
    /// Replaces the publisher after a fault.
    ReplacePublisher(Box<SamplePublisher>),
    /// Sets the notifier of the companion event service.
    SetNotifier(Option<EventNotifier>),
    /// Local subscribers came or went.
    NoticeSubscribers,
}

/// See [`LaneCommand::Port`].
pub enum PortCommand {
    /// Adds this host's end of the channel.
    Add(PortEnd),
    /// Ends it at once; the lane reports it.
    End,
}

/// This host's end of a channel of ARINC 653 ports.
pub enum PortEnd {
    /// The source is on this host.
    Outbound(Box<OutboundPort>),
    /// Destinations are on this host.
    Inbound(Box<InboundPort>),
}
