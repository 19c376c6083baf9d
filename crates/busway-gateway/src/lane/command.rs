//! What the control thread and a lane tell each other.

use std::sync::Arc;

use busway_transport::{Doorbell, Receiver, Sender};

use super::inbound::{Continuity, InboundSetup};
use super::out::LargeOut;
use super::outbound::OutboundSetup;
use super::port_in::PortIn;
use super::port_out::PortOut;
use super::{ChannelKey, FlowId};
use crate::iox::companion::{Ear, Voice};
use crate::iox::ports::{Inlet, Outgoing};

/// What the control thread tells a lane.
pub enum Command {
    /// The flow has an outbound half from now on.
    SetOutbound(FlowId, Box<OutboundSetup>),
    /// The flow's outbound half ends; what it holds is given back.
    DropOutbound(FlowId),
    /// One more host gets the flow's samples; with `true`, all of them by this channel.
    AddSender(FlowId, ChannelKey, Box<dyn Sender<Outgoing>>, bool),
    /// The host that has this channel gets what is large by another one.
    AddLarge(FlowId, ChannelKey, LargeOut),
    /// A host gets no more of them.
    EndSender(FlowId, ChannelKey, Ending),
    /// The flow has an inbound half from now on.
    SetInbound(FlowId, Box<InboundSetup>),
    /// The flow's inbound half ends.
    DropInbound(FlowId),
    /// One more host sends messages; with `true`, gaps in them are losses.
    AddReceiver(FlowId, ChannelKey, Box<dyn Receiver>, Arc<Continuity>, bool),
    /// A host's channel is about to end: its sender waits for confirmations.
    ConfirmReceiver(FlowId, ChannelKey),
    /// A host sends no more; what has arrived is taken first.
    EndReceiver(FlowId, ChannelKey),
    /// The publisher is replaced after a fault.
    SetInlet(FlowId, Box<Inlet>),
    /// Notifiers of the companion came, or all went.
    SetEar(FlowId, Option<Ear>),
    /// Listeners of the companion came, or all went.
    SetVoice(FlowId, Option<Voice>),
    /// Local subscribers came or went.
    MeetSubscribers(FlowId),
    /// Local publishers came or went.
    MeetPublishers(FlowId),
    /// The doorbell of a link, for channels without descriptor; `None` when the link goes down.
    SetDoorbell(usize, Option<Box<dyn Doorbell>>),
    /// One more channel of ports.
    AddPort(FlowId, PortEnd),
    /// A channel of ports ends at once; the lane reports it.
    EndPort(FlowId),
    /// The lane ends.
    Stop,
}

/// How a sending channel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At once: nobody wants what is left.
    Now,
    /// After what programs have published so far has been sent.
    Drained,
    /// After what was taken so far has been sent: what follows reaches the host by another channel, which opens then. Where publishers wait for room they wait for that.
    Moved,
    /// The link is down: what was not confirmed is in doubt, and what follows is counted, until the link is back.
    Lost,
    /// What was not confirmed is in doubt, but what follows reaches the host: it has a channel over another link, or its end has failed and it asks anew.
    Replaced,
}

/// What a lane tells the control thread.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// The flow.
    pub flow: FlowId,
    /// The channel.
    pub key: ChannelKey,
    /// What happened to it.
    pub kind: ReportKind,
    /// Why, if it was not asked for.
    pub reason: Option<String>,
}

/// See [`Report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// The sending end is gone.
    SenderEnded {
        /// Messages whose receipt was not confirmed. After a failure none: they are counted already.
        unconfirmed: u64,
    },
    /// The lane has the receiving end: what is sent from now on is not passed over.
    ReceiverAdded,
    /// The receiving end is gone, and all that had arrived was taken.
    ReceiverEnded,
    /// The flow's publisher had no memory behind a sample and must be replaced.
    InletSpoilt,
}

/// This host's end of a channel of ARINC 653 ports.
pub enum PortEnd {
    /// The source is on this host.
    Out(Box<PortOut>),
    /// Destinations are on this host.
    In(Box<PortIn>),
}
