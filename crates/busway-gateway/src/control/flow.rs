//! One flow: a source on one host, destinations on others, and the channels between them.
//!
//! An iceoryx2 service and a channel of ARINC 653 ports are flows of two kinds of [`Endpoint`]; the
//! state machine of their channels is one. A flow's channels come from any number of hosts
//! ([`Flow::inbound`], opened by this side) and go to any number ([`Flow::outbound`], opened by
//! peers).
//!
//! ```text
//! inbound:   Requested ─> Opening ─> Active ─> Closing ─> Draining ─> (gone)
//!                            └─> Abandoned ──────┘  └─> Dead ─> (gone)
//! outbound:  Requested ─> Opening ─> Active ─> Ending ─> (gone)
//! ```
//!
//! Contract: transitions happen in [`super::inbound`] and [`super::outbound`] alone. A channel from
//! a host is opened only once no other one from that host is left, except the second one for large
//! messages: that keeps the order, and nothing comes twice.

use std::collections::BTreeMap;

use busway_transport::ChannelSpec;

use super::backoff::Backoff;
use super::endpoint::Endpoint;
use super::fact::Action;
use super::link;
use super::shared::Shared;
use crate::lane::{ChannelKey, FlowId};

/// Where a channel that this host receives stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPhase {
    /// The bus is asked for a landing place.
    Requested,
    /// The peer is asked to send; the bus makes this end.
    Opening,
    /// As `Opening`, but no longer wanted; the peer was asked to close.
    Abandoned,
    /// The lane has it.
    Active,
    /// No longer wanted; the peer was asked to close and still sends.
    Closing,
    /// The lane has dropped it; the peer has not yet confirmed that its end is gone.
    Dead,
    /// The peer's end is gone; the lane takes what has arrived.
    Draining,
}

/// A channel that this host receives.
#[derive(Debug)]
pub struct InChannel {
    /// The host that sends.
    pub peer: String,
    /// Where it stands.
    pub phase: InPhase,
    /// Its shape.
    pub spec: ChannelSpec,
    /// If it is the one for large messages: bytes of payload from which on messages take it.
    pub large_from_bytes: Option<u64>,
    /// Nobody here wants the peer's messages any more: those that pass until a channel is opened
    /// again are no loss.
    pub is_unwanted: bool,
}

impl InChannel {
    /// Whether it is the second one, for large messages.
    pub fn is_large(&self) -> bool {
        self.large_from_bytes.is_some()
    }
}

/// Where a channel that this host sends stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutPhase {
    /// The source is not ready, or an earlier channel has to end first.
    Requested {
        /// As the peer's bus describes its landing place.
        landing: Vec<u8>,
    },
    /// The bus makes this end.
    Opening,
    /// The second one, for large messages, is made and waits for its peer and for the main one.
    Made,
    /// The lane has it.
    Active,
    /// The lane was asked to end it.
    Ending,
    /// As `Ending`, since the peer's end has failed.
    Failed,
}

/// A channel that this host sends.
#[derive(Debug)]
pub struct OutChannel {
    /// The host that receives.
    pub peer: String,
    /// Where it stands.
    pub phase: OutPhase,
    /// Its shape.
    pub spec: ChannelSpec,
    /// Set if it is the second one, for large messages.
    pub large: Option<LargeOpening>,
    /// The peer asked to close it once what was published has arrived.
    pub is_draining: bool,
}

/// The sending end of a second channel on its way into the lane.
///
/// The receiving side sends [`Use`](crate::protocol::ControlMessage::Use) once its lane has its
/// end: from then on no message that takes this channel can be overtaken by one on the main
/// channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeOpening {
    /// Bytes of payload from which on a message takes it.
    pub from_bytes: u64,
    /// The peer's lane has its end.
    pub may_use: bool,
}

impl OutChannel {
    /// Whether it is the one without which the host gets nothing.
    pub fn is_main(&self) -> bool {
        self.large.is_none()
    }

    /// Whether a lane may have it.
    pub fn is_in_lane(&self) -> bool {
        matches!(self.phase, OutPhase::Active | OutPhase::Ending | OutPhase::Failed)
    }
}

/// See the module.
pub struct Flow {
    /// Names it towards lanes and shell.
    pub id: FlowId,
    /// The service's name, or the channel's in the system file.
    pub name: String,
    /// What it joins.
    pub endpoint: Endpoint,
    /// Channels that this host receives.
    pub inbound: BTreeMap<ChannelKey, InChannel>,
    /// Channels that this host sends.
    pub outbound: BTreeMap<ChannelKey, OutChannel>,
    /// Links that it avoids.
    pub backoff: Backoff,
    /// The last complaint, logged once.
    pub complaint: Option<String>,
}

impl Flow {
    /// Without channels.
    pub fn new(id: FlowId, name: String, endpoint: Endpoint) -> Flow {
        Flow {
            id,
            name,
            endpoint,
            inbound: BTreeMap::new(),
            outbound: BTreeMap::new(),
            backoff: Backoff::default(),
            complaint: None,
        }
    }

    /// The channels from a host.
    pub fn inbound_from<'a>(
        &'a self,
        host: &'a str,
    ) -> impl Iterator<Item = (&'a ChannelKey, &'a InChannel)> {
        self.inbound
            .iter()
            .filter(move |(_, channel)| channel.peer == host)
    }

    /// Whether a main channel to this host is left.
    pub fn reaches(&self, host: &str) -> bool {
        self.outbound
            .values()
            .any(|channel| channel.is_main() && channel.peer == host)
    }

    /// Logs what is wrong, once.
    pub fn complain(&mut self, complaint: String, shared: &mut Shared) {
        if self.complaint.as_deref() != Some(&complaint) {
            let what = self.endpoint.describe(&self.name);
            shared.act(Action::Warn(format!("{what}: {complaint}")));
            self.complaint = Some(complaint);
        }
    }

    /// A channel over this link failed: the link is in back-off for this flow.
    pub fn back_off(&mut self, link: usize, shared: &Shared) {
        let has_other = self.has_other(link, shared);
        self.backoff.failed(link, has_other, shared.now);
    }

    /// Whether a usable link other than this one leads to the same host and may carry the flow.
    pub fn has_other(&self, link: usize, shared: &Shared) -> bool {
        link::has_other(&shared.links, link, |index, other| {
            self.endpoint.may_take(index, other)
        })
    }
}
