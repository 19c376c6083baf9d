//! What the control thread knows and holds of one service.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use busway_system::Link;

use super::large::LargeOpening;
use super::rest::Rests;
use crate::counters::ServiceCounters;
use crate::description::ServiceDescription;
use crate::iox::publisher::Backpressure;
use crate::iox::service::Factory;
use crate::lane::WhenFull;
use crate::lane::inbound::Continuity;
use crate::lane::{ChannelKey, FlowId, Lane};

/// Where a channel that we receive stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPhase {
    /// The bus is making it.
    Opening,
    /// The same, but we want no more by now; the sender has been told.
    Abandoned,
    /// A lane has it.
    Active,
    /// We want no more; the sender has been told and is still at it.
    Closing,
    /// The lane has given it up; the sender's word that it is gone is still to come.
    Dead,
    /// The sender is gone; the lane takes what has arrived.
    Draining,
}

/// A channel that we receive.
#[derive(Debug)]
pub struct InChannel {
    /// The host that sends.
    pub peer: String,
    /// Where it stands.
    pub phase: InPhase,
    /// Whether it is a second one, for what is large.
    pub is_large: bool,
    /// Whether it keeps all messages.
    pub keeps_all: bool,
    /// Nobody here wants the peer's messages any more: what passes until a channel is opened again is no loss.
    pub is_unwanted: bool,
}

/// Which lane has an inbound half.
pub enum InLane {
    /// One of the configured lanes.
    Shared(usize),
    /// One of its own, since its publisher may wait; with its number.
    Own(Lane, u32),
}

/// The inbound half, seen from the control thread.
pub struct InState {
    /// Keeps our publisher from waiting in vain.
    pub backpressure: Arc<Backpressure>,
    /// The lane.
    pub lane: InLane,
    /// The channels.
    pub channels: HashMap<ChannelKey, InChannel>,
    /// When a spoilt publisher may be replaced.
    pub replace_publisher_at: Option<Instant>,
    /// Whether a companion's voice was given.
    pub has_voice: bool,
    /// Subscribers at the last reconciliation: newcomers are met at once.
    pub subscribers: usize,
}

/// Where a channel that we send stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutPhase {
    /// The bus is making it.
    Opening,
    /// A lane has it.
    Active,
    /// The lane was told to end it.
    Ending,
    /// The same, since the peer's end has failed.
    Failed,
}

/// A channel that we send.
pub struct OutChannel {
    /// The host that receives.
    pub peer: String,
    /// Where it stands.
    pub phase: OutPhase,
    /// Set if it is a second one, for what is large.
    pub large: Option<LargeOpening>,
}

/// For how long our subscriber stays for a host that has no channel.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// Until then.
    pub until: Instant,
    /// The channel that moves to a better link, if that is why: it may take the host a while to read what came by it.
    pub moves: Option<ChannelKey>,
}

impl Hold {
    /// For a host that is about to ask again.
    pub fn until(until: Instant) -> Hold {
        Hold { until, moves: None }
    }
}

/// The outbound half, seen from the control thread.
pub struct OutState {
    /// The channels.
    pub channels: HashMap<ChannelKey, OutChannel>,
    /// Hosts that wanted the service when their last channel went, with its link or to make room for one over a better link, and until
    /// when we hold our subscriber for them, to count what they miss.
    pub lost: HashMap<String, Hold>,
    /// Our subscriber's id, whom our own publisher must not wait for.
    pub outlet_id: u128,
    /// Whether a companion's ear was given.
    pub has_ear: bool,
    /// Publishers at the last reconciliation: newcomers are met at once.
    pub publishers: usize,
}

/// How the service is carried, from the system file.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whether it crosses at all.
    pub crosses: bool,
    /// Its rule, if there is one.
    pub keep: Option<busway_system::KeepRule>,
    /// Its lane.
    pub lane: usize,
    /// The buses that may carry it, the best first; empty: all of the links, in their order.
    pub buses: Vec<String>,
}

impl Plan {
    /// Whether a bus may carry it at all, where a link has it.
    pub fn may_take(&self, bus: &str) -> bool {
        self.buses.is_empty() || self.buses.iter().any(|named| named == bus)
    }

    /// How well a bus of a link carries messages of at most `max_size_bytes` bytes, less is better; `None` if it may not.
    pub fn rank_of(
        &self,
        (number, link): (usize, &Link),
        bus: &str,
        max_size_bytes: u64,
    ) -> Option<(usize, usize)> {
        if self.buses.is_empty() {
            let mut buses = link.buses_for(max_size_bytes);
            return Some((number, buses.position(|other| other.name() == bus)?));
        }
        let named = self.buses.iter().position(|named| named == bus)?;
        Some((named, number))
    }
}

/// One service.
pub struct ServiceState {
    /// Names it towards the lanes.
    pub flow: FlowId,
    /// From the system file.
    pub plan: Plan,
    /// The service, held open.
    pub factory: Option<(Factory, ServiceDescription)>,
    /// The inbound half.
    pub inbound: Option<InState>,
    /// The outbound half.
    pub outbound: Option<OutState>,
    /// The number of the last sample that was sent.
    pub sequence: Arc<AtomicU64>,
    /// The counters.
    pub counters: Arc<ServiceCounters>,
    /// The losses that were reported last.
    pub reported_losses: u64,
    /// By host.
    pub continuity: HashMap<String, Arc<Continuity>>,
    /// What the peers were told last, as in [`Say::Offer`](crate::protocol::Say::Offer).
    pub offered: Option<(ServiceDescription, Option<u64>)>,
    /// After something was refused: when to try again.
    pub retry_at: Option<Instant>,
    /// Links over which a channel failed.
    pub(super) rests: Rests,
    /// The last complaint, said once.
    pub complaint: Option<String>,
}

impl OutChannel {
    /// Whether it is the one without which the host gets nothing.
    pub fn is_main(&self) -> bool {
        self.large.is_none()
    }
}

impl OutState {
    /// Whether a main channel to this host is left.
    pub fn reaches(&self, host: &str) -> bool {
        self.channels
            .values()
            .any(|channel| channel.is_main() && channel.peer == host)
    }
}

impl InState {
    /// The channels from a host, with their keys.
    pub fn channels_from<'a>(
        &'a self,
        host: &'a str,
    ) -> impl Iterator<Item = (&'a ChannelKey, &'a InChannel)> {
        self.channels
            .iter()
            .filter(move |(_, channel)| channel.peer == host)
    }

    /// Whether the main channel from a host takes this link, and is in use or about to be.
    pub fn has_main_over(&self, host: &str, link: usize) -> bool {
        self.channels_from(host).any(|(key, channel)| {
            !channel.is_large
                && key.link == link
                && matches!(channel.phase, InPhase::Opening | InPhase::Active)
        })
    }
}

impl ServiceState {
    /// A service that nobody has done anything with.
    pub fn new(flow: FlowId, plan: Plan) -> ServiceState {
        ServiceState {
            flow,
            plan,
            factory: None,
            inbound: None,
            outbound: None,
            sequence: Arc::default(),
            counters: Arc::default(),
            reported_losses: 0,
            continuity: HashMap::new(),
            offered: None,
            retry_at: None,
            rests: Rests::default(),
            complaint: None,
        }
    }

    /// The channels that send, then those that receive.
    pub fn channels(&self) -> impl Iterator<Item = &ChannelKey> {
        let sends = self.outbound.iter().flat_map(|out| out.channels.keys());
        sends.chain(self.inbound.iter().flat_map(|input| input.channels.keys()))
    }

    /// Whether something of it depends on time.
    pub fn needs_tick(&self) -> bool {
        self.retry_at.is_some()
            || self.rests.needs_tick()
            || self.outbound.as_ref().is_some_and(|out| !out.lost.is_empty())
            || self
                .inbound
                .as_ref()
                .is_some_and(|input| input.replace_publisher_at.is_some())
    }

    /// Says what is wrong, once.
    pub fn complain(&mut self, name: &str, complaint: String) {
        if self.complaint.as_deref() != Some(&complaint) {
            tracing::warn!("service {name:?}: {complaint}");
            self.complaint = Some(complaint);
        }
    }
}

/// What a full channel does, by rule and by the service's own settings.
pub fn when_full(plan: &Plan, description: &ServiceDescription) -> WhenFull {
    use busway_system::{KeepRule, Policy};
    let by_settings = if description.settings.safe_overflow {
        WhenFull::DropOldest
    } else {
        WhenFull::Wait
    };
    match plan.keep {
        None | Some(KeepRule::All { policy: None, .. }) => by_settings,
        Some(KeepRule::Latest) => WhenFull::DropOldest,
        Some(KeepRule::All {
            policy: Some(policy), ..
        }) => match policy {
            Policy::Block => WhenFull::Wait,
            Policy::DropOldest => WhenFull::DropOldest,
            Policy::DropNewest => WhenFull::DropNewest,
        },
    }
}

/// Whether our publisher waits for slow local readers, and so needs a lane of its own.
pub fn publisher_waits(plan: &Plan, description: &ServiceDescription) -> bool {
    !description.settings.safe_overflow && when_full(plan, description) == WhenFull::Wait
}

/// How the channel of a service is laid out.
pub fn channel_spec(plan: &Plan, description: &ServiceDescription) -> busway_transport::ChannelSpec {
    use busway_system::KeepRule;
    use busway_transport::{ChannelSpec, HEAD_BYTES, Keep};
    /// What a slice or flatbuffer is taken to be before the first has come; longer ones pass in pieces.
    const UNKNOWN_LENGTH_BYTES: u64 = 64 << 10;
    /// About this much is on its way at most, unless a rule asks for more.
    const ON_THE_WAY_BYTES: u64 = 8 << 20;
    const DEPTHS: std::ops::RangeInclusive<u64> = 4..=1024;

    let is_any_length = description.payload.slice || description.is_flatbuffer();
    let payload_bytes = if is_any_length {
        UNKNOWN_LENGTH_BYTES.max(description.payload.size_bytes)
    } else {
        description.payload.size_bytes
    };
    let message_bytes = HEAD_BYTES as u64 + description.user_header.size_bytes + payload_bytes;
    let by_settings = (ON_THE_WAY_BYTES / message_bytes)
        .clamp(*DEPTHS.start(), *DEPTHS.end())
        .max(description.settings.subscriber_max_buffer_size.min(*DEPTHS.end())) as u32;
    let keep = match plan.keep {
        Some(KeepRule::Latest) => Keep::Latest,
        Some(KeepRule::All {
            depth: Some(depth), ..
        }) => Keep::All { depth },
        None | Some(KeepRule::All { depth: None, .. }) => Keep::All { depth: by_settings },
    };
    ChannelSpec { keep, message_bytes }
}
