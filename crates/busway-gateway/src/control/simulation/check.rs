//! What must hold in every simulated run, after each step and at its end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use busway_transport::Direction;

use super::pipe::Message;
use super::world::{World, service_name};
use crate::control::endpoint::Endpoint;
use crate::control::flow::{InChannel, InPhase, OutPhase};
use crate::control::link::{OUTAGE_HOLD, REOFFER};
use crate::control::shared::Part;
use crate::lane::FlowId;

/// Sending host, receiving host, service.
pub type Stream = (usize, usize, usize);

/// Facts and actions kept for a failed run.
const TRACE: usize = 100_000;

/// See the module.
#[derive(Default)]
pub struct Checks {
    pub violations: Vec<String>,
    /// Messages that programs got, over all streams and ports.
    pub delivered: u64,
    /// Messages missing, all of them accounted.
    pub missing: u64,
    wanted: BTreeMap<Stream, Interest>,
    publishes: BTreeMap<(usize, usize), bool>,
    subscribes: BTreeMap<(usize, usize), bool>,
    last: BTreeMap<Stream, u64>,
    ports: BTreeMap<usize, u64>,
    /// Streams that the receiving gateway has declared unwanted: until it opens a channel again
    /// nothing of them is lost.
    unwanted: BTreeSet<Stream>,
    /// When a channel of the stream last existed at its sender.
    channels: BTreeMap<Stream, Duration>,
    trace: VecDeque<String>,
}

/// One time during which a program publishes, one on the other host subscribes, and both gateways
/// live.
#[derive(Clone, Copy, Debug)]
struct Interest {
    /// The sending gateway's session.
    session: u64,
    /// The last message delivered in it.
    last: u64,
    /// The losses that the receiver had counted by then.
    lost: u64,
}

impl Checks {
    pub fn violate(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Keeps the last facts and actions of a run.
    pub fn note(&mut self, host: usize, now: Duration, what: &impl std::fmt::Debug) {
        if std::env::var_os("BUSWAY_SIMULATION_TRACE").is_some() {
            if self.trace.len() == TRACE {
                self.trace.pop_front();
            }
            self.trace.push_back(format!("{now:?} h{host} {what:?}"));
        }
    }

    pub fn trace(&self) -> String {
        self.trace.iter().map(|line| format!("{line}\n")).collect()
    }

    pub fn programs_changed(&mut self, host: usize, service: usize, publishes: bool, subscribes: bool) {
        self.publishes.insert((host, service), publishes);
        self.subscribes.insert((host, service), subscribes);
        let (sources, sinks) = (&self.publishes, &self.subscribes);
        self.wanted.retain(|(from, to, of), _| {
            *of != service || (sources[&(*from, service)] && sinks[&(*to, service)])
        });
    }

    pub fn host_restarted(&mut self, host: usize) {
        self.wanted
            .retain(|(from, to, _), _| *from != host && *to != host);
        self.channels.retain(|(from, ..), _| *from != host);
    }

    /// The receiving gateway wants no more of a stream, or begins a new channel of it.
    pub fn set_unwanted(&mut self, stream: Stream, is_unwanted: bool) {
        if is_unwanted {
            self.wanted.remove(&stream);
            self.unwanted.insert(stream);
        } else {
            self.unwanted.remove(&stream);
        }
    }

    /// The sender has a channel of the stream.
    pub fn has_channel(&mut self, stream: Stream, now: Duration) {
        self.channels.insert(stream, now);
    }

    /// A gateway dropped its subscriber: nobody counts what wanting hosts miss from now on. It may
    /// do so for a host that has had no channel for [`REOFFER`] although a link to it stands.
    pub fn subscriber_dropped(&mut self, host: usize, service: usize, is_joined: &[bool], now: Duration) {
        let streams: Vec<_> = self.wanted.keys().copied().collect();
        for stream in streams.into_iter().filter(|of| of.0 == host && of.2 == service) {
            self.wanted.remove(&stream);
            let Some(last) = self.channels.get(&stream) else {
                continue;
            };
            let silent = now - *last;
            let keeps = if is_joined[stream.1] { REOFFER } else { OUTAGE_HOLD };
            if silent + Duration::from_millis(1) < keeps {
                self.violate(format!(
                    "{now:?} h{host}: subscriber of {} dropped {silent:?} after h{}'s last channel",
                    service_name(service),
                    stream.1
                ));
            }
        }
    }

    /// A program got a message. `lost`: what the receiver has counted as lost from that host.
    pub fn delivered(&mut self, stream: Stream, message: Message, lost: u64, now: Duration) {
        self.delivered += 1;
        self.note(stream.1, now, &("delivered", stream, message, lost));
        let Message { number, session, .. } = message;
        let (from, to, service) = stream;
        if from == to {
            self.violate(format!("{now:?} h{to}: {} loops", service_name(service)));
        }
        let last = self.last.insert(stream, number).unwrap_or(0);
        if number <= last {
            self.violate(format!(
                "{now:?} {} from h{from} to h{to}: message {number} after {last}",
                service_name(service)
            ));
        }
        let both =
            |map: &BTreeMap<(usize, usize), bool>, host| map.get(&(host, service)).copied() == Some(true);
        let is_unwanted = self.unwanted.contains(&stream);
        if is_unwanted || !both(&self.publishes, from) || !both(&self.subscribes, to) {
            self.wanted.remove(&stream);
            return;
        }
        let new = Interest {
            session,
            last: number,
            lost,
        };
        let Some(old) = self.wanted.insert(stream, new) else {
            return;
        };
        let missing = number.saturating_sub(old.last + 1);
        self.missing += missing;
        if old.session == session && missing > lost - old.lost {
            self.violate(format!(
                "{now:?} {} from h{from} to h{to}: {missing} missing between {} and {number}, {} accounted",
                service_name(service),
                old.last,
                lost - old.lost
            ));
        }
    }

    /// A port accepted a message: none is missing, none comes twice.
    pub fn port_delivered(&mut self, port: usize, number: u64) {
        self.delivered += 1;
        let last = self.ports.insert(port, number).unwrap_or(0);
        if number != last + 1 {
            self.violate(format!("channel-{port}: message {number} after {last}"));
        }
    }

    pub fn port_accepted(&self, port: usize) -> u64 {
        self.ports.get(&port).copied().unwrap_or(0)
    }
}

/// After each step: each wanted message has one route, and each channel one owner.
pub fn structure(world: &mut World, host: usize) {
    let mut found = Vec::new();
    let mut streams = Vec::new();
    let of = &world.hosts[host];
    let core = &of.core;
    for flow in core.flows() {
        let name = &flow.name;
        if let Some(service) = service_of(name) {
            let mains = flow.outbound.values().filter(|channel| channel.is_main());
            let peers = mains.map(|channel| host_of(&channel.peer));
            streams.extend(peers.map(|peer| (host, peer, service)));
        }
        let mut mains: BTreeMap<&str, usize> = BTreeMap::new();
        for (key, channel) in &flow.inbound {
            let link = &core.links()[key.link];
            if !link.is_usable() {
                found.push(format!("{name}: receives over a link that is down"));
            }
            if link.profile.peer != channel.peer {
                found.push(format!("{name}: channel from another host than its link's"));
            }
            if core.flow_of(Direction::Receive, *key) != Some(flow.id) {
                found.push(format!("{name}: {key:?} is not in the index"));
            }
            *mains.entry(&channel.peer).or_default() += usize::from(!channel.is_large());
        }
        for (peer, mains) in mains {
            if mains > 1 {
                found.push(format!("{name}: {mains} main channels from {peer}"));
            }
        }
        for (key, channel) in &flow.outbound {
            if !core.links()[key.link].is_usable() {
                found.push(format!("{name}: sends over a link that is down"));
            }
            if core.flow_of(Direction::Send, *key) != Some(flow.id) {
                found.push(format!("{name}: {key:?} is not in the index"));
            }
            let is_requested = matches!(channel.phase, OutPhase::Requested { .. });
            let has_source = flow
                .service()
                .is_none_or(|service| service.subscriber == Part::Ready);
            if !is_requested && !has_source {
                found.push(format!("{name}: sends to {} without a subscriber", channel.peer));
            }
        }
        if let Some(service) = flow.service() {
            let has_publisher = service.publisher != Part::Absent;
            if !flow.inbound.is_empty() && !has_publisher {
                found.push(format!("{name}: receives without a publisher"));
            }
            if (has_publisher || service.subscriber == Part::Ready) && service.held != Part::Ready {
                found.push(format!("{name}: ports in a service that is not held"));
            }
        }
    }
    let now = world.now;
    for stream in streams {
        world.checks.has_channel(stream, now);
    }
    for what in found {
        world.checks.violate(format!("{now:?} h{host}: {what}"));
    }
}

/// The number of a simulated service.
pub fn service_of(name: &str) -> Option<usize> {
    name.strip_prefix("service-")?.parse().ok()
}

/// The number of a simulated host.
pub fn host_of(name: &str) -> usize {
    name[1..].parse().expect("hosts are named h0, h1, ...")
}

/// Once nothing has changed for long: what is wanted has a channel, over the best link that is up.
pub fn settled(world: &mut World) {
    let mut found = Vec::new();
    for service in 0..world.options.services {
        for to in 0..world.hosts.len() {
            for from in 0..world.hosts.len() {
                let is_wanted = from != to
                    && world.hosts[from].programs[service].publishers > 0
                    && world.hosts[to].programs[service].subscribers > 0
                    && joined(world, from, to);
                let channels = channels_of(world, from, to, service);
                let name = service_name(service);
                if !is_wanted && !channels.is_empty() {
                    found.push(format!("{name}: h{from} still sends to h{to}: {channels:?}"));
                }
                if is_wanted && !channels.contains(&(first_link(world, from, to), InPhase::Active)) {
                    found.push(format!("{name}: h{to} wants h{from}'s, has {channels:?}"));
                }
            }
        }
    }
    for (number, port) in world.ports.iter().enumerate() {
        let accepted = world.checks.port_accepted(number);
        if joined(world, port.from, port.to) && accepted != port.written {
            found.push(format!(
                "channel-{number}: {accepted} of {} arrived",
                port.written
            ));
        }
    }
    for what in found {
        world.checks.violate(format!("settled: {what}"));
    }
}

fn joined(world: &World, one: usize, other: usize) -> bool {
    let peer = &world.hosts[other].name;
    let mut links = world.hosts[one].core.links().iter();
    links.any(|link| link.profile.peer == *peer)
}

/// The link that messages of 64 bytes take while all are up.
fn first_link(world: &World, from: usize, to: usize) -> usize {
    let peer = &world.hosts[from].name;
    let links = world.hosts[to].core.links();
    links
        .iter()
        .position(|link| link.profile.peer == *peer)
        .unwrap_or(usize::MAX)
}

fn channels_of(world: &World, from: usize, to: usize, service: usize) -> Vec<(usize, InPhase)> {
    let name = service_name(service);
    let peer = &world.hosts[from].name;
    let flow = world.hosts[to].core.flows().find(|flow| flow.name == name);
    let is_main = |channel: &InChannel| !channel.is_large() && channel.peer == *peer;
    flow.iter()
        .flat_map(|flow| &flow.inbound)
        .filter(|(_, channel)| is_main(channel))
        .map(|(key, channel)| (key.link, channel.phase))
        .collect()
}

/// Once all programs have left and every hold has ended: nothing is left of services.
pub fn released(world: &mut World) {
    let mut found = Vec::new();
    for host in &world.hosts {
        let is_port = |flow: FlowId| matches!(flow, FlowId::Port(_));
        for flow in host
            .core
            .flows()
            .filter(|flow| matches!(flow.endpoint, Endpoint::Service(_)))
        {
            if !flow.inbound.is_empty() || !flow.outbound.is_empty() {
                found.push(format!("{}: {} keeps channels", host.name, flow.name));
            }
            let service = flow.service().expect("filtered");
            for (what, part) in [
                ("the service", service.held),
                ("a publisher", service.publisher),
                ("a subscriber", service.subscriber),
            ] {
                if part != Part::Absent {
                    found.push(format!("{}: {} keeps {what}", host.name, flow.name));
                }
            }
        }
        if !host.held.is_empty() || !host.publishers.is_empty() || !host.lanes.leftovers().is_empty() {
            found.push(format!(
                "{}: held {:?}, publishers {:?}, lanes {:?}",
                host.name,
                host.held,
                host.publishers,
                host.lanes.leftovers()
            ));
        }
        for (direction, key) in host.channels.keys() {
            let flow = host.core.flow_of(*direction, *key);
            if !flow.is_some_and(is_port) {
                found.push(format!(
                    "{}: {direction:?} {key:?} is still known to the bus",
                    host.name
                ));
            }
        }
        for (direction, key) in host.ends.keys() {
            found.push(format!(
                "{}: {direction:?} end {key:?} is in nobody's hands",
                host.name
            ));
        }
    }
    for what in found {
        world.checks.violate(format!("released: {what}"));
    }
}
