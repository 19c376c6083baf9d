//! Channels of ARINC 653 ports between this host and others: the gateway's places in the store.
//!
//! What crosses follows from the system file alone. Each channel between this host and another is a
//! flow of the decision core ([`crate::control::port`]); here are its port in the store, its
//! counters, and the ends that its lane moves messages through. Called by [`super`], on the control
//! thread alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use busway_port::carry::{PortReceiver, PortSource};
use busway_port::system::{Crossing, crossings_of, module_of, root_of};
use busway_port::{Partition, PortKind, Store};
use busway_system::{Carrier, Clock, Hop, System};
use busway_transport::{ChannelEnd, ChannelSpec, HEAD_BYTES, Keep};

use super::clocks::Clocks;
use super::lanes::Lanes;
use super::links::Links;
use crate::GatewayError;
use crate::clock::{Estimator, Wire, monotonic_ns};
use crate::control::Core;
use crate::control::endpoint::Endpoint;
use crate::control::flow::{Flow, InPhase, OutPhase};
use crate::control::link::LinkProfile;
use crate::control::port::{PortEndpoint, PortRoute};
use crate::counters::{PortCounters, add};
use crate::iox::sample::Outgoing;
use crate::lane::port::{InboundPort, OutboundPort};
use crate::lane::{ChannelKey, FlowId, LaneCommand, PortCommand, PortEnd};
use crate::status::PortStatus;

/// The most unacknowledged messages; the queues themselves may be deeper.
const MOST_UNDER_WAY: u32 = 256;

/// One end of a channel between this host and another.
struct PortChannel {
    crossing: Crossing,
    /// The gateway's place in the store.
    partition: Arc<Partition>,
    /// How the clocks are compared over each of its routes, with the link.
    clocks: Vec<(usize, Clock)>,
    counters: Arc<PortCounters>,
}

/// See the module.
pub struct Ports {
    channels: Vec<PortChannel>,
    /// Offsets of the peers' clocks.
    pub clocks: Clocks,
    session: u64,
}

impl Ports {
    /// Takes the gateway's places in the store of this host, if any channel crosses, and adds the
    /// channels to the decision core.
    ///
    /// # Errors
    /// The store can't be opened.
    pub fn new(
        system: &System,
        host: &str,
        session: u64,
        links: &[LinkProfile],
        core: &mut Core,
    ) -> Result<Ports, GatewayError> {
        let mut ports = Ports {
            channels: Vec::new(),
            clocks: Clocks::new(),
            session,
        };
        let mut crossings = crossings_of(system, host);
        // What this host's partitions write into another host's memory needs no gateway, and with a
        // core there is no conversation: see `super::cores`.
        crossings.retain(|crossing| crossing.carrier == Carrier::Gateways || !crossing.leaves);
        crossings.retain(|crossing| !system.is_core(&crossing.peer));
        if crossings.is_empty() {
            return Ok(ports);
        }
        let root = root_of(system, host);
        tracing::info!(
            "{} channel(s) of ports cross; state in {}",
            crossings.len(),
            root.display()
        );
        let store = Store::open(root, module_of(system, host))?;
        let mut joined: BTreeMap<String, Arc<Partition>> = BTreeMap::new();
        for crossing in crossings {
            let partition = match joined.get(&crossing.port.partition) {
                Some(partition) => partition.clone(),
                None => {
                    let partition = Arc::new(store.join(&crossing.port.partition)?);
                    joined.insert(crossing.port.partition.clone(), partition.clone());
                    partition
                }
            };
            ports.add(crossing, partition, links, core);
        }
        Ok(ports)
    }

    fn add(&mut self, crossing: Crossing, partition: Arc<Partition>, links: &[LinkProfile], core: &mut Core) {
        let clocks = routes_of(&crossing, links);
        for &(link, _) in clocks.iter().filter(|(_, clock)| *clock == Clock::Estimated) {
            if crossing.carrier == Carrier::Partition {
                self.clocks.need_for(link, &partition);
            } else if !crossing.leaves {
                self.clocks.need(link);
            }
        }
        if crossing.carrier != Carrier::Gateways {
            return;
        }
        if crossing.leaves {
            // All at once, so that the messages of one source have the same origin whichever host
            // comes first.
            PortSource::claim(&partition, &crossing.port.port, self.session);
        }
        let route = |&(link, clock): &(usize, Clock)| PortRoute {
            link,
            needs_clock: clock == Clock::Estimated && !crossing.leaves,
        };
        let endpoint = PortEndpoint {
            peer: crossing.peer.clone(),
            leaves: crossing.leaves,
            spec: spec_of(&crossing),
            routes: clocks.iter().map(route).collect(),
            clocks_known: BTreeSet::new(),
            at: 0,
        };
        core.add_port(self.channels.len() as u32, crossing.channel.clone(), endpoint);
        self.channels.push(PortChannel {
            crossing,
            partition,
            clocks,
            counters: Arc::default(),
        });
    }

    fn of(&self, flow: FlowId) -> Option<&PortChannel> {
        match flow {
            FlowId::Port(number) => self.channels.get(number as usize),
            FlowId::Service(_) | FlowId::Core(_) => None,
        }
    }

    /// The number of the lane that moves the messages of a channel.
    pub fn lane(&self, flow: FlowId) -> u32 {
        self.of(flow).map_or(0, |channel| channel.crossing.lane as u32)
    }

    /// Gives the lane an end of a channel.
    pub fn add_end(
        &self,
        flow: FlowId,
        key: ChannelKey,
        end: ChannelEnd<Outgoing>,
        links: &mut Links,
        lanes: &Lanes,
    ) {
        let Some(channel) = self.of(flow) else { return };
        let no_clock = Estimator::default();
        let estimator = self.clocks.of(key.link).unwrap_or(&no_clock);
        let clock = channel.clocks.iter().find(|(link, _)| *link == key.link);
        let clock = clock.map_or(channel.crossing.clock, |(_, clock)| *clock);
        let wire = Wire::new(clock, estimator);
        let (partition, name) = (&channel.partition, &channel.crossing.port.port);
        let counters = channel.counters.clone();
        let number = channel.crossing.lane;
        let lane = lanes.shared(number);
        let made = match end {
            ChannelEnd::Sender(sender) => {
                links.set_doorbell(key.link, lane, number as u32, sender.wait_for());
                let of = channel.crossing.channel.as_str().into();
                PortSource::open(partition, name, self.session).map(|source| {
                    PortEnd::Outbound(Box::new(OutboundPort::new(
                        key, of, source, sender, wire, counters,
                    )))
                })
            }
            ChannelEnd::Receiver(receiver) => {
                links.set_doorbell(key.link, lane, number as u32, receiver.wait_for());
                PortReceiver::open(partition, name).map(|port| {
                    PortEnd::Inbound(Box::new(InboundPort::new(key, port, receiver, wire, counters)))
                })
            }
        };
        add(&channel.counters.opened, 1);
        let made = made.expect("the crossing's port is in the module that it comes from");
        lane.send(LaneCommand::Port {
            flow,
            command: PortCommand::Add(made),
        });
    }

    /// Ends the end that the lane has, if it has one.
    pub fn end(&self, flow: FlowId, lanes: &Lanes) {
        if let Some(channel) = self.of(flow) {
            lanes.shared(channel.crossing.lane).send(LaneCommand::Port {
                flow,
                command: PortCommand::End,
            });
        }
    }

    /// For the status file.
    pub fn status(&self, core: &Core) -> Vec<PortStatus> {
        let now_ns = monotonic_ns();
        let flows = core.flows().filter_map(|flow| Some((flow, self.of(flow.id)?)));
        flows
            .map(|(flow, channel)| {
                let link = route_taken(flow);
                let estimator = link.and_then(|link| self.clocks.of(link));
                let best = estimator.and_then(|estimator| estimator.best(now_ns));
                PortStatus {
                    channel: channel.crossing.channel.clone(),
                    peer: channel.crossing.peer.clone(),
                    leaves: channel.crossing.leaves,
                    bus: link.map_or("", |link| core.links()[link].profile.bus).to_string(),
                    open: is_open(flow),
                    core: None,
                    complaint: flow.complaint.clone(),
                    clock_error_ns: best
                        .filter(|_| !channel.crossing.leaves)
                        .map(|best| best.error_at_ns(now_ns)),
                    counters: channel.counters.snapshot(),
                }
            })
            .collect()
    }
}

fn is_open(flow: &Flow) -> bool {
    let mut receives = flow.inbound.values();
    let mut sends = flow.outbound.values();
    receives.any(|channel| channel.phase == InPhase::Active)
        || sends.any(|channel| channel.phase == OutPhase::Active)
}

/// The link that a channel takes, or took last.
fn route_taken(flow: &Flow) -> Option<usize> {
    match &flow.endpoint {
        Endpoint::Port(port) => port.routes.get(port.at).map(|route| route.link),
        Endpoint::Service(_) => None,
    }
}

/// The links that can carry a crossing, the best first, and how clocks are compared over each.
fn routes_of(crossing: &Crossing, links: &[LinkProfile]) -> Vec<(usize, Clock)> {
    let best = Hop {
        link: crossing.link,
        bus: crossing.bus,
        clock: crossing.clock,
    };
    let route = |hop: &Hop| {
        let link = links
            .iter()
            .position(|link| link.number == hop.link && link.bus == hop.bus)
            .expect("a route takes this host's links");
        (link, hop.clock)
    };
    [best].iter().chain(&crossing.fallbacks).map(route).collect()
}

fn spec_of(crossing: &Crossing) -> ChannelSpec {
    let keep = match crossing.kind {
        PortKind::Sampling { .. } => Keep::Latest,
        PortKind::Queuing { max_messages, .. } => Keep::All {
            depth: max_messages.clamp(1, MOST_UNDER_WAY),
        },
    };
    ChannelSpec {
        keep,
        message_bytes: (HEAD_BYTES + crossing.max_message_size_bytes) as u64,
    }
}
