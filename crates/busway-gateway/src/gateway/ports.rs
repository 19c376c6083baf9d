//! Channels of ARINC 653 ports between this host and others: the gateway's places in the store.
//!
//! What crosses follows from the system file alone. Each channel between this host and another is a
//! flow of the decision core ([`crate::control::port`]); here are its port in the store, its
//! counters, and the ends that its lane moves messages through. Called by [`super`], on the control
//! thread alone.

mod writers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use busway_port::carry::{PortReceiver, PortSource};
use busway_port::system::{Crossing, crossings_of, module_of, root_of};
use busway_port::{Partition, PortKind, Store};
use busway_system::{Carrier, Clock, Hop, System};
use busway_transport::{ChannelEnd, ChannelError, ChannelSpec, HEAD_BYTES, Keep};

use super::clocks::Clocks;
use super::landed::{Ended, Landed};
use super::lanes::Lanes;
use super::links::Links;
use super::own_writers::{self, OwnWriters};
use crate::GatewayError;
use crate::clock::{Estimator, Wire, monotonic_ns};
use crate::control::Core;
use crate::control::endpoint::Endpoint;
use crate::control::flow::{Flow, InPhase, OutPhase};
use crate::control::link::LinkProfile;
use crate::control::port::{PortEndpoint, PortRoute};
use crate::counters::{PortCounters, PortSnapshot, add};
use crate::iox::sample::Outgoing;
use crate::lane::port::{InboundPort, OutboundPort, Revoker, SharedReceiver};
use crate::lane::{ChannelKey, FlowId, LaneCommand, PortCommand, PortEnd, Report};
use crate::status::PortStatus;

/// The most unacknowledged messages; the queues themselves may be deeper.
const MOST_UNDER_WAY: u32 = 256;

/// One end of a channel between this host and another.
struct PortChannel {
    crossing: Crossing,
    /// The gateway's place in the store.
    partition: Arc<Partition>,
    routes: Vec<Route>,
    counters: Arc<PortCounters>,
}

/// A link that can carry a channel.
struct Route {
    link: usize,
    /// How the clocks are compared.
    clock: Clock,
    /// The source's host writes the register in the other host's store.
    writes_register: bool,
    /// A process of the source's partition may do that itself, over the link of this index in the
    /// system file.
    own_writer: Option<u32>,
    /// The source's gateway writes the queue in the other host's store.
    writes_ring: bool,
}

impl Route {
    /// Whether this host must know the offset of the other host's clock. Whoever writes the
    /// register or queue stamps by the clock of the host that reads it.
    fn needs_clock(&self, leaves: bool) -> bool {
        if self.writes_ring {
            return leaves;
        }
        self.clock == Clock::Estimated && leaves == self.writes_register
    }

    /// Stamps of messages over this link.
    fn wire(&self, estimator: &Estimator) -> Wire {
        if self.writes_ring {
            // Nothing but `busway port` looks at stamps of a queue, which are of the store's own
            // clock whichever bus the messages take: an estimate will do.
            Wire::to_peer(Clock::Estimated, estimator)
        } else if self.writes_register {
            Wire::to_peer(self.clock, estimator)
        } else {
            Wire::new(self.clock, estimator)
        }
    }
}

/// See the module.
pub struct Ports {
    channels: Vec<PortChannel>,
    /// Offsets of the peers' clocks.
    pub clocks: Clocks,
    /// Ends of channels that write the other host's store.
    landed: Landed,
    /// Ports whose register or queue a bus has, and whose sender has not connected.
    landing_ports: HashMap<FlowId, PortReceiver>,
    /// Processes of partitions that write the other host's store themselves.
    own_writers: OwnWriters,
    /// While a process has a channel: number of the message up to which what it wrote is counted.
    counted: HashMap<FlowId, u64>,
    /// Sessions of the peers, by link.
    peer_sessions: HashMap<usize, u64>,
    /// Receiving ends in lanes, of queues that another host may write.
    shared_ends: HashMap<FlowId, Revoker>,
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
            landed: Landed::default(),
            landing_ports: HashMap::new(),
            own_writers: OwnWriters::default(),
            counted: HashMap::new(),
            peer_sessions: HashMap::new(),
            shared_ends: HashMap::new(),
            session,
        };
        let mut crossings = crossings_of(system, host);
        // What this host's partitions write into another host's memory needs no gateway, nor do the
        // queues that two hosts share. With a core there is no conversation: see `super::cores`.
        crossings.retain(|crossing| crossing.carrier == Carrier::Gateways || !crossing.leaves);
        crossings.retain(|crossing| !crossing.has_shared_queues());
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
        let store = Store::open(&root, module_of(system, host))?;
        if store
            .module()
            .channels
            .iter()
            .any(|it| !it.own_writers.is_empty())
        {
            ports.own_writers.open(&root);
        }
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
            ports.add(system, crossing, partition, links, core);
        }
        Ok(ports)
    }

    fn add(
        &mut self,
        system: &System,
        crossing: Crossing,
        partition: Arc<Partition>,
        links: &[LinkProfile],
        core: &mut Core,
    ) {
        let routes = routes_of(system, &crossing, links);
        for route in &routes {
            let is_read_by_partitions = crossing.carrier == Carrier::Partition || route.own_writer.is_some();
            if is_read_by_partitions && route.clock == Clock::Estimated {
                self.clocks.need_for(route.link, &partition);
            } else if crossing.carrier == Carrier::Gateways && route.needs_clock(crossing.leaves) {
                self.clocks.need(route.link);
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
        let route = |route: &Route| PortRoute {
            link: route.link,
            needs_clock: route.needs_clock(crossing.leaves),
        };
        let endpoint = PortEndpoint {
            peer: crossing.peer.clone(),
            leaves: crossing.leaves,
            spec: spec_of(&crossing),
            routes: routes.iter().map(route).collect(),
            clocks_known: BTreeSet::new(),
            at: 0,
        };
        core.add_port(self.channels.len() as u32, crossing.channel.clone(), endpoint);
        self.channels.push(PortChannel {
            crossing,
            partition,
            routes,
            counters: Arc::default(),
        });
    }

    fn of(&self, flow: FlowId) -> Option<&PortChannel> {
        channel_of(&self.channels, flow)
    }

    /// The number of the lane that moves the messages of a channel.
    pub fn lane(&self, flow: FlowId) -> u32 {
        self.of(flow).map_or(0, |channel| channel.crossing.lane as u32)
    }

    /// Gives the lane an end of a channel.
    pub fn add_end(
        &mut self,
        flow: FlowId,
        key: ChannelKey,
        end: ChannelEnd<Outgoing>,
        links: &mut Links,
        lanes: &Lanes,
    ) {
        let Some(channel) = channel_of(&self.channels, flow) else {
            return;
        };
        let no_clock = Estimator::default();
        let estimator = self.clocks.of(key.link).unwrap_or(&no_clock);
        let route = channel.route_over(key.link);
        let wire = route.map_or_else(
            || Wire::new(channel.crossing.clock, estimator),
            |route| route.wire(estimator),
        );
        let writes_ring = route.is_some_and(|route| route.writes_ring);
        let writes_register = route.is_some_and(|route| route.writes_register);
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
            ChannelEnd::Receiver(receiver) if writes_register => {
                add(&channel.counters.opened, 1);
                if let Some(port) = self.landing_ports.remove(&flow) {
                    self.landed.add(flow, key, receiver, port);
                }
                return;
            }
            ChannelEnd::Receiver(receiver) => {
                links.set_doorbell(key.link, lane, number as u32, receiver.wait_for());
                let port = if writes_ring {
                    self.landing_ports.remove(&flow)
                } else {
                    PortReceiver::open(partition, name)
                };
                let receiver = if channel.may_write_ring() {
                    let shared = SharedReceiver::new(receiver);
                    self.shared_ends.insert(flow, shared.revoker());
                    Box::new(shared)
                } else {
                    receiver
                };
                let Some(port) = port else {
                    // The channel was opened for a port that has gone over to another one.
                    return;
                };
                let inbound = InboundPort::new(key, port, receiver, wire, counters);
                Some(PortEnd::Inbound(Box::new(if writes_ring {
                    inbound.landed()
                } else {
                    inbound
                })))
            }
        };
        add(&channel.counters.opened, 1);
        let made = made.expect("the crossing's port is in the module that it comes from");
        lane.send(LaneCommand::Port {
            flow,
            command: PortCommand::Add(made),
        });
    }

    /// Whether the channel writes a register of the receiving host's store over this link.
    pub fn writes_register(&self, flow: FlowId, link: usize) -> bool {
        let route = self.of(flow).and_then(|channel| channel.route_over(link));
        route.is_some_and(|route| route.writes_register)
    }

    fn writes_ring(&self, flow: FlowId, link: usize) -> bool {
        let route = self.of(flow).and_then(|channel| channel.route_over(link));
        route.is_some_and(|route| route.writes_ring)
    }

    /// Opens the receiving end of a channel: it gets this host's register or queue, or a landing
    /// place of its bus.
    ///
    /// # Errors
    /// Why the bus can't, in words.
    pub fn open_receiver(
        &mut self,
        flow: FlowId,
        key: ChannelKey,
        spec: &ChannelSpec,
        links: &mut Links,
    ) -> Result<Vec<u8>, String> {
        self.drop_landed(flow);
        if let Some(end) = self.shared_ends.remove(&flow) {
            end.revoke();
        }
        let (lands, writes_ring) = (
            self.writes_register(flow, key.link),
            self.writes_ring(flow, key.link),
        );
        let lane = self.lane(flow);
        if !lands && !writes_ring {
            return links.open_receiver(key, spec, lane);
        }
        let port = self.of(flow).and_then(PortChannel::receiver);
        let port = port.ok_or("the store has no such port")?;
        if writes_ring {
            let ring = port.landing_ring().ok_or("the store's queue is another one")?;
            self.landing_ports.insert(flow, port);
            return links.open_ring(key, ring, lane);
        }
        let register = port.landing().ok_or("the register is damaged beyond repair")?;
        self.landing_ports.insert(flow, port);
        links.open_register(key, register)
    }

    /// Opens the sending end of a channel.
    ///
    /// # Errors
    /// Why the bus can't, in words.
    pub fn open_sender(
        &mut self,
        (flow, key): (FlowId, ChannelKey),
        spec: &ChannelSpec,
        landing: &[u8],
        links: &mut Links,
        lanes: &Lanes,
    ) -> Result<(), String> {
        if self.landed.take_sender(flow) {
            self.end(flow, lanes);
        }
        self.count_written(flow, false);
        self.own_writers.take(flow);
        let lane = self.lane(flow);
        if self.writes_ring(flow, key.link) {
            let numbers = self.of(flow).and_then(|channel| {
                PortSource::queue_numbers(&channel.partition, &channel.crossing.port.port, self.session)
            });
            let numbers = numbers.ok_or("the store has no such port")?;
            return links.open_ring_sender(key, spec, landing, lane, numbers);
        }
        if !self.writes_register(flow, key.link) {
            return links.open_sender(key, spec, landing, lane);
        }
        let numbers = self.of(flow).and_then(|channel| {
            PortSource::numbers(&channel.partition, &channel.crossing.port.port, self.session)
        });
        let numbers = numbers.ok_or("the store has no such port")?;
        if let Some(offer) = self.offer((flow, key), landing, numbers) {
            let is_clock_known = self.is_clock_known(&offer);
            if self.own_writers.offer(offer, is_clock_known, Instant::now()) {
                return Ok(());
            }
        }
        links.open_register_sender(key, spec, landing, lane, numbers)
    }

    /// Ends a sending end, unless it goes on without its conversation. Returns the report, if no
    /// lane makes it.
    pub fn end_sender(
        &mut self,
        flow: FlowId,
        key: ChannelKey,
        is_link_up: bool,
        lanes: &Lanes,
    ) -> Option<Report> {
        if self.own_writers.has(flow, key) {
            if is_link_up {
                self.count_written(flow, false);
                self.own_writers.take(flow);
            } else {
                self.own_writers.detach(flow);
            }
            return is_link_up.then(|| own_writers::sender_ended(flow, key, None));
        }
        if !is_link_up && self.writes_register(flow, key.link) {
            self.landed.detach_sender(flow, key);
        } else {
            self.end(flow, lanes);
        }
        None
    }

    /// Ends a receiving end, unless it goes on without its conversation. Returns whether it has
    /// ended; else its lane reports.
    pub fn end_receiver(&mut self, flow: FlowId, key: ChannelKey, is_link_up: bool, lanes: &Lanes) -> bool {
        if !self.landed.has(flow, key) {
            self.end(flow, lanes);
            return false;
        }
        if is_link_up {
            self.drop_landed(flow);
        } else {
            self.landed.detach(flow);
        }
        is_link_up
    }

    /// A lane has dropped a sending end.
    pub fn sender_ended(&mut self, flow: FlowId, key: ChannelKey) {
        self.landed.sender_ended(flow, key);
    }

    /// Looks for receiving ends that have ended by themselves. A channel that this side is leaving
    /// ends with its sender: that is no failure.
    pub fn ended(&mut self, core: &Core) -> Vec<Report> {
        let is_left = |ended: &Ended| {
            let flow = core.flow(ended.flow);
            let channel = flow.and_then(|flow| flow.inbound.get(&ended.key));
            channel.is_some_and(|channel| channel.phase == InPhase::Closing)
        };
        let failed = self.landed.look().into_iter().filter(|ended| !is_left(ended));
        failed
            .map(|ended| Report::ReceiverEnded {
                flow: ended.flow,
                key: ended.key,
                // The sending host has ended it: it opens the next one.
                failure: (!matches!(ended.failure, ChannelError::Closed)).then(|| ended.failure.to_string()),
            })
            .collect()
    }

    /// Whether receiving ends must be looked at now and then.
    pub fn has_landed(&self) -> bool {
        !self.landed.is_empty()
    }

    /// The other host can write this channel's register no more.
    fn drop_landed(&mut self, flow: FlowId) {
        self.landing_ports.remove(&flow);
        if let (Some(written), Some(channel)) = (self.landed.remove(flow), self.of(flow)) {
            add(&channel.counters.received, written);
        }
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
    pub fn status(&mut self, core: &Core) -> Vec<PortStatus> {
        for flow in core.flows() {
            self.count_written(flow.id, true);
        }
        let now_ns = monotonic_ns();
        let flows = core.flows().filter_map(|flow| Some((flow, self.of(flow.id)?)));
        flows
            .map(|(flow, channel)| {
                let link = route_taken(flow);
                let estimator = link.and_then(|link| self.clocks.of(link));
                let best = estimator.and_then(|estimator| estimator.best(now_ns));
                let counters = channel.counters.snapshot();
                let route = link.and_then(|link| channel.route_over(link));
                let writer = route
                    .filter(|route| route.writes_register && channel.crossing.leaves)
                    .map(|route| self.own_writers.writer(flow.id, route.own_writer.is_some()));
                PortStatus {
                    channel: channel.crossing.channel.clone(),
                    peer: channel.crossing.peer.clone(),
                    leaves: channel.crossing.leaves,
                    bus: link.map_or("", |link| core.links()[link].profile.bus).to_string(),
                    open: is_open(flow)
                        || self.landed.is_detached(flow.id)
                        || self.own_writers.is_detached(flow.id),
                    writer: writer.as_ref().map(|(writer, _)| *writer),
                    writer_reason: writer.and_then(|(_, why)| why),
                    core: None,
                    complaint: flow.complaint.clone(),
                    clock_error_ns: best
                        .filter(|_| route.is_some_and(|it| it.needs_clock(channel.crossing.leaves)))
                        .map(|best| best.error_at_ns(now_ns)),
                    counters: PortSnapshot {
                        received: counters.received + self.landed.written(flow.id),
                        ..counters
                    },
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

/// The links that can carry a crossing, the best first.
fn routes_of(system: &System, crossing: &Crossing, links: &[LinkProfile]) -> Vec<Route> {
    let route = |hop: Hop| {
        let link = links
            .iter()
            .position(|link| link.number == hop.link && link.bus == hop.bus)
            .expect("a route takes this host's links");
        Route {
            link,
            clock: hop.clock,
            writes_register: crossing.writes_register(&hop),
            own_writer: own_writers::link_of(system, crossing, &hop),
            writes_ring: crossing.writes_ring(&hop),
        }
    };
    crossing.hops().map(route).collect()
}

fn channel_of(channels: &[PortChannel], flow: FlowId) -> Option<&PortChannel> {
    match flow {
        FlowId::Port(number) => channels.get(number as usize),
        FlowId::Service(_) | FlowId::Core(_) => None,
    }
}

impl PortChannel {
    fn route_over(&self, link: usize) -> Option<&Route> {
        self.routes.iter().find(|route| route.link == link)
    }

    /// Whether the other host may write this host's queue itself, over one of the links.
    fn may_write_ring(&self) -> bool {
        self.routes.iter().any(|route| route.writes_ring)
    }

    /// The port that gets its messages here.
    fn receiver(&self) -> Option<PortReceiver> {
        PortReceiver::open(&self.partition, &self.crossing.port.port)
    }
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
