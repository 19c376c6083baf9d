//! From a system file to the module of one host, and to the channels that cross between hosts.
//!
//! Contract: a store knows one host. A channel that leaves the host gets, for each other host, one
//! destination port in a partition that stands for that host; one that comes from elsewhere has its
//! source port there. The gateway joins as these partitions ([`crate::carry`]), so the store needs
//! no idea of hosts. Over a one-sided bus a sampling channel has a register in the other host's
//! memory instead, which the source's processes write themselves, and a queuing channel may have
//! queues in memory that both hosts share. The partition for host `control`
//! is called `/control`: users' names have no `/`. Everything follows from the file alone, so all
//! processes of a host come to the same. Called by the gateway, by partitions at their start and by
//! the command line.

mod shared_queue;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use busway_buses::writes_registers;
use busway_core::ring;
use busway_system::{self as file, BusSettings, Carrier, Hop, System, Way};
use busway_transport::contract::Access;
use busway_transport::core_queue::Part;

use crate::config::{
    ChannelConfig, Clock, DIGEST, Direction, FarMemory, FarPort, MAX_NAME_LENGTH_BYTES, Module,
    PartitionConfig, PortConfig, PortKind, PortRef, WhenFull,
};
use crate::store::Store;

/// What stands first in names that users can't write.
const MARK: char = '/';

/// A channel between this host and another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    /// Name of the channel in the system file.
    pub channel: String,
    /// The other host.
    pub peer: String,
    /// Whether the messages leave this host.
    pub leaves: bool,
    /// The gateway's port for it: a destination port if the messages leave, else the source port.
    pub port: PortRef,
    /// Sampling or queuing; the depth is that of the gateway's port.
    pub kind: PortKind,
    /// Longest message in bytes.
    pub max_message_size_bytes: usize,
    /// Index in [`System::links`].
    pub link: usize,
    /// The bus of that link.
    pub bus: &'static str,
    /// Who moves the messages. If the source's partition does, `port` is one that nobody uses, and
    /// the gateway has only the clocks to compare.
    pub carrier: Carrier,
    /// How the two hosts compare times.
    pub clock: file::Clock,
    /// Where the messages go while that bus is down, the best first.
    pub fallbacks: Vec<Hop>,
    /// Index in [`System::lanes`] of the lane that moves the messages.
    pub lane: usize,
    /// Whether it is a queue with one destination at the receiving host, which holds its sender
    /// back when it is full: such a one another host's device can write.
    pub fills_one_queue: bool,
}

impl Crossing {
    /// The buses that the messages may take, the best first.
    pub fn hops(&self) -> impl Iterator<Item = Hop> + '_ {
        let best = Hop {
            link: self.link,
            bus: self.bus,
            clock: self.clock,
        };
        std::iter::once(best).chain(self.fallbacks.iter().copied())
    }

    /// Whether the messages wait in queues in memory that both hosts share: the gateways have
    /// nothing to do.
    #[must_use]
    pub fn has_shared_queues(&self) -> bool {
        self.carrier == Carrier::Partition && !self.kind.is_sampling()
    }

    /// How the hosts compare times where the source's host writes the register in the other
    /// host's store itself; `None` where none of the buses can.
    #[must_use]
    pub fn register_clock(&self) -> Option<file::Clock> {
        let mut hops = self.hops();
        let may = self.kind.is_sampling() && self.carrier == Carrier::Gateways;
        hops.find(|hop| may && writes_registers(hop.bus))
            .map(|hop| hop.clock)
    }

    /// Whether the source's gateway writes the queue in the other host's store itself while the
    /// messages take this bus.
    #[must_use]
    pub fn writes_ring(&self, hop: &Hop) -> bool {
        self.fills_one_queue && self.carrier == Carrier::Gateways && writes_registers(hop.bus)
    }

    /// Whether the source's host writes the register in the other host's store itself while the
    /// messages take this bus. All such buses of a channel compare times alike.
    #[must_use]
    pub fn writes_register(&self, hop: &Hop) -> bool {
        writes_registers(hop.bus) && self.register_clock() == Some(hop.clock)
    }
}

/// Where the queue of a channel between a core, on which no gateway runs, and another host lies, as
/// one of them sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreQueue {
    /// The shape of the ring.
    pub layout: ring::Layout,
    /// What the source writes.
    pub source: Part,
    /// What the destination writes.
    pub destination: Part,
    /// Distinguishes the channel from earlier ones in that memory: a digest of its description.
    pub key: u64,
    /// Silence after which the other host has stopped, as the link's bus says.
    pub timeout: Duration,
}

/// The queue of a [`Crossing`] of `host`; `None` if that is no channel of a core.
#[must_use]
pub fn core_queue_of(system: &System, host: &str, crossing: &Crossing) -> Option<CoreQueue> {
    if crossing.carrier != Carrier::Core {
        return None;
    }
    let index = system
        .channels
        .iter()
        .position(|channel| channel.name == crossing.channel)?;
    let (source, layout) = queue_part(system, host, index, crossing, crossing.leaves)?;
    let (destination, _) = queue_part(system, host, index, crossing, !crossing.leaves)?;
    let description = format!(
        "{}\n{}\n{}\n{}\n{}\n{}\n{}",
        crossing.channel,
        name_of(system, system.channels[index].source),
        layout.lines(),
        layout.data_bytes(),
        layout.max_size_bytes(),
        source.offset_bytes,
        destination.offset_bytes
    );
    Some(CoreQueue {
        layout,
        source,
        destination,
        // 0 is what fresh memory has.
        key: DIGEST.checksum(description.as_bytes()).max(1),
        timeout: bus_of(system, host, crossing)?.silence(),
    })
}

/// The bus that a crossing takes, as `host` sees it.
fn bus_of(system: &System, host: &str, crossing: &Crossing) -> Option<BusSettings> {
    system.bus_of(host, crossing.link, crossing.bus)
}

/// The part of a core's queue that `host` writes, or the one that its peer writes.
fn queue_part(
    system: &System,
    host: &str,
    index: usize,
    crossing: &Crossing,
    is_ours: bool,
) -> Option<(Part, ring::Layout)> {
    let (writer, access) = writer_of(host, crossing, is_ours);
    let area = system.port_area(crossing.link, crossing.bus, writer);
    let queue = area.queues.iter().find(|queue| queue.channel == index)?;
    let part = Part {
        place: bus_of(system, host, crossing)?.port_place(access)?,
        offset_bytes: queue.offset_bytes,
        len_bytes: queue.len_bytes,
    };
    Some((part, queue.layout))
}

/// Who writes a part of what a crossing shares, and what `host` does with it.
fn writer_of<'a>(host: &'a str, crossing: &'a Crossing, is_ours: bool) -> (&'a str, Access) {
    if is_ours {
        (host, Access::Writes)
    } else {
        (crossing.peer.as_str(), Access::Reads)
    }
}

/// The directory that holds the ports of `host`: what the file says, else one in `/dev/shm` that is
/// named after the module and the host.
#[must_use]
pub fn root_of(system: &System, host: &str) -> PathBuf {
    let said = system.host(host).and_then(|host| host.ports.clone());
    said.unwrap_or_else(|| {
        let module = system.module.as_deref().unwrap_or("module");
        Store::default_root(&format!("{module}-{host}"))
    })
}

/// The module of `host`: its partitions, and every channel that has an end there.
#[must_use]
pub fn module_of(system: &System, host: &str) -> Module {
    let mut partitions: Vec<PartitionConfig> = system
        .partitions
        .iter()
        .filter(|partition| partition.host == host)
        .map(partition_of)
        .collect();
    let mut others: BTreeMap<String, Vec<PortConfig>> = BTreeMap::new();
    let mut channels = Vec::new();
    for (index, channel) in system.channels.iter().enumerate() {
        let Some(config) = channel_of(system, host, index, channel) else {
            continue;
        };
        for crossing in crossings(system, host, index, channel) {
            if crossing.leaves && crossing.carrier == Carrier::Partition {
                continue;
            }
            others
                .entry(crossing.port.partition)
                .or_default()
                .push(PortConfig {
                    name: crossing.port.port,
                    direction: if crossing.leaves {
                        Direction::Destination
                    } else {
                        Direction::Source
                    },
                    max_size_bytes: system.port(channel.source).max_size_bytes,
                    kind: crossing.kind,
                });
        }
        channels.push(config);
    }
    partitions.extend(others.into_iter().map(|(name, ports)| PartitionConfig {
        name,
        identifier: -1,
        ports,
    }));
    Module { partitions, channels }
}

/// All channels between `host` and others, once for each other host, in the order of the file.
#[must_use]
pub fn crossings_of(system: &System, host: &str) -> Vec<Crossing> {
    let channels = system.channels.iter().enumerate();
    channels
        .flat_map(|(index, channel)| crossings(system, host, index, channel))
        .collect()
}

/// Whether a partition of a [`module_of`] stands for another host.
#[must_use]
pub fn is_other_host(partition: &str) -> bool {
    partition.starts_with(MARK)
}

fn partition_of(partition: &file::Partition) -> PartitionConfig {
    PartitionConfig {
        name: partition.name.clone(),
        identifier: partition.id.into(),
        ports: partition.ports.clone(),
    }
}

/// The kind of the gateway's port that stands for `port`: periods and discipline are the port's own.
fn kind_of(port: &PortConfig) -> PortKind {
    match port.kind {
        PortKind::Sampling { .. } => PortKind::SAMPLING,
        PortKind::Queuing { max_messages, .. } => PortKind::queuing(max_messages),
    }
}

fn host_of(system: &System, at: file::PortRef) -> &str {
    &system.partitions[at.partition].host
}

fn name_of(system: &System, at: file::PortRef) -> PortRef {
    PortRef::new(&system.partitions[at.partition].name, &system.port(at).name)
}

/// The part of a channel that `host` has; `None` if no end of it is there.
fn channel_of(system: &System, host: &str, index: usize, channel: &file::Channel) -> Option<ChannelConfig> {
    let is_here = |at: &file::PortRef| host_of(system, *at) == host;
    let crossings = crossings(system, host, index, channel);
    let here = channel.destinations.iter().copied().filter(is_here);
    let mut destinations: Vec<PortRef> = here.map(|at| name_of(system, at)).collect();
    let (mut copies, mut own_writers, mut landing) = (Vec::new(), Vec::new(), None);
    let mut shared_queues = Vec::new();
    let (mut is_checked, mut clock) = (false, Clock::Monotonic);
    let far = |crossing: &Crossing| match crossing.carrier {
        Carrier::Partition => far_memory(system, host, index, channel, crossing),
        Carrier::Gateways | Carrier::Core => None,
    };
    let shared = |crossing: &Crossing| shared_queue::shared_queues_of(system, host, index, crossing);
    let source = if is_here(&channel.source) {
        for crossing in crossings {
            if crossing.has_shared_queues() {
                shared_queues.extend(shared(&crossing));
                continue;
            }
            match far(&crossing) {
                Some(copy) => copies.push(copy),
                None => {
                    own_writers.extend(own_writer(system, host, &crossing));
                    destinations.push(crossing.port);
                }
            }
        }
        name_of(system, channel.source)
    } else {
        let crossing = crossings.into_iter().next()?;
        if crossing.has_shared_queues() {
            shared_queues = shared(&crossing);
        }
        landing = far(&crossing);
        is_checked = is_checked_landing(system, host, &crossing);
        if crossing.register_clock() == Some(file::Clock::Ptp) {
            clock = Clock::Tai;
        }
        crossing.port
    };
    Some(ChannelConfig {
        name: short_name(index, &channel.name),
        source,
        destinations,
        copies,
        own_writers,
        landing,
        shared_queues,
        slots: channel.slots.map_or(4, |slots| slots as usize),
        is_checked,
        when_full: channel.when_full.unwrap_or(WhenFull::Wait),
        // Stamps of another host are brought to this clock when they arrive, or before.
        clock,
    })
}

/// The register of a crossing that the source's processes may write with a queue pair of their
/// own, if a device of this host is for them.
fn own_writer(system: &System, host: &str, crossing: &Crossing) -> Option<FarPort> {
    let device = |hop: Hop| {
        let bus = system.bus_of(host, hop.link, hop.bus)?;
        Some((hop.link, bus.register_device()?))
    };
    let hops = crossing.hops().filter(|hop| crossing.writes_register(hop));
    let devices: Vec<_> = hops.filter_map(device).collect();
    let clock = crossing.register_clock()?;
    (!devices.is_empty()).then(|| FarPort {
        port: crossing.port.clone(),
        devices,
        clock,
    })
}

/// Whether a device of this host places messages of a crossing in a register or queue that needs
/// checksums.
fn is_checked_landing(system: &System, host: &str, crossing: &Crossing) -> bool {
    let checks = |hop: Hop| {
        let bus = system.bus_of(host, hop.link, hop.bus);
        bus.is_some_and(|bus| bus.checks_registers())
    };
    crossing
        .hops()
        .any(|hop| (crossing.writes_register(&hop) || crossing.writes_ring(&hop)) && checks(hop))
}

/// The other hosts that a channel joins with `host`, once each.
fn crossings(system: &System, host: &str, index: usize, channel: &file::Channel) -> Vec<Crossing> {
    let source_host = host_of(system, channel.source);
    let leaves = source_host == host;
    let mut found: Vec<Crossing> = Vec::new();
    for route in system.routes_of(channel) {
        let there = host_of(system, route.destination);
        let Way::Link {
            link,
            bus,
            carrier,
            clock,
        } = route.way
        else {
            continue;
        };
        if !leaves && there != host {
            continue;
        }
        let peer = if leaves { there } else { source_host };
        let end = if leaves { route.destination } else { channel.source };
        let kind = kind_of(system.port(end));
        if let Some(same) = found.iter_mut().find(|crossing| crossing.peer == peer) {
            same.kind = deeper(same.kind, kind);
            continue;
        }
        found.push(Crossing {
            channel: channel.name.clone(),
            peer: peer.to_string(),
            leaves,
            port: PortRef::new(other_host(system, peer), short_name(index, &channel.name)),
            kind,
            max_message_size_bytes: system.port(channel.source).max_size(),
            link,
            bus,
            carrier,
            clock,
            fallbacks: route.fallbacks,
            lane: channel.lane,
            fills_one_queue: fills_one_queue(system, channel, there),
        });
    }
    found
}

/// See [`Crossing::fills_one_queue`]; `there` is the receiving host.
fn fills_one_queue(system: &System, channel: &file::Channel, there: &str) -> bool {
    let destinations = channel.destinations.iter();
    let count = destinations.filter(|at| host_of(system, **at) == there).count();
    let is_queue = !system.port(channel.source).kind.is_sampling();
    is_queue && count == 1 && channel.when_full.unwrap_or(WhenFull::Wait) == WhenFull::Wait
}

/// The register of a channel that crosses over a one-sided bus; `None` if the bus has set no memory
/// aside for it.
fn far_memory(
    system: &System,
    host: &str,
    index: usize,
    channel: &file::Channel,
    crossing: &Crossing,
) -> Option<FarMemory> {
    let (writer, access) = writer_of(host, crossing, crossing.leaves);
    let area = system.port_area(crossing.link, crossing.bus, writer);
    let register = area.registers.iter().find(|register| register.channel == index)?;
    let bus = bus_of(system, host, crossing)?;
    let source = name_of(system, channel.source);
    let (size_bytes, slots) = (register.layout.max_size_bytes(), register.layout.slots());
    let description = format!(
        "{}\n{source}\n{size_bytes}\n{slots}\n{:?}\n{}",
        channel.name, crossing.clock, register.offset_bytes
    );
    Some(FarMemory {
        place: bus.port_place(access)?,
        offset_bytes: register.offset_bytes,
        // 0 is what fresh memory has.
        key: DIGEST.checksum(description.as_bytes()).max(1),
        clock: crossing.clock,
    })
}

/// The deeper of two kinds of ports of one channel.
fn deeper(one: PortKind, other: PortKind) -> PortKind {
    if other.max_messages() > one.max_messages() {
        other
    } else {
        one
    }
}

/// Name of the partition that represents `host`. Long names are cut, and distinguished by the
/// host's place in the file.
fn other_host(system: &System, host: &str) -> String {
    let plain = format!("{MARK}{host}");
    if plain.len() <= MAX_NAME_LENGTH_BYTES {
        return plain;
    }
    let index = system.hosts.iter().position(|known| known.name == host);
    cut(format!("{MARK}{}{MARK}{host}", index.unwrap_or_default()))
}

/// A channel's name in the store: its own, unless it is too long or looks like one that was.
fn short_name(index: usize, name: &str) -> String {
    if name.len() <= MAX_NAME_LENGTH_BYTES && !name.starts_with(MARK) {
        return name.to_string();
    }
    cut(format!("{MARK}{index}{MARK}{name}"))
}

fn cut(mut name: String) -> String {
    while name.len() > MAX_NAME_LENGTH_BYTES {
        name.pop();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[host.a]
[host.b]
[host.a-host-with-a-name-that-is-longer-than-a-partitions]
[[link]]
hosts = ["a", "b"]
buses = ["tcp"]
tcp.a = { listen = "127.0.0.1:7400" }
[[link]]
hosts = ["a", "a-host-with-a-name-that-is-longer-than-a-partitions"]
buses = ["tcp"]
tcp.a = { listen = "127.0.0.1:7401" }
[[partition]]
name = "source"
host = "a"
ports = [
  { name = "S", kind = "sampling", direction = "source", max_size = 8 },
  { name = "Q", kind = "queuing", direction = "source", max_size = 8, max_messages = 2 },
]
[[partition]]
name = "near"
host = "a"
ports = [{ name = "S", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" }]
[[partition]]
name = "far"
host = "b"
ports = [
  { name = "S", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" },
  { name = "T", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" },
  { name = "Q", kind = "queuing", direction = "destination", max_size = 8, max_messages = 5 },
]
[[partition]]
name = "distant"
host = "a-host-with-a-name-that-is-longer-than-a-partitions"
ports = [{ name = "S", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" }]
[[channel]]
name = "s"
source = "source/S"
destinations = ["near/S", "far/S", "far/T", "distant/S"]
[[channel]]
source = "source/Q"
destinations = ["far/Q"]
"#;

    fn system() -> System {
        System::parse(TEXT, "system.toml".as_ref()).expect("right")
    }

    #[test]
    fn every_host_has_a_possible_module() {
        let system = system();
        for host in &system.hosts {
            assert_eq!(module_of(&system, &host.name).validate(), Ok(()), "{}", host.name);
        }
    }

    #[test]
    fn many_destinations_on_one_other_host_are_one_port_of_the_gateway() {
        let module = module_of(&system(), "a");
        let sampling = &module.channels[0];
        assert_eq!(sampling.source, PortRef::new("source", "S"));
        assert_eq!(
            sampling.destinations,
            [
                PortRef::new("near", "S"),
                PortRef::new("/b", "s"),
                PortRef::new("/2/a-host-with-a-name-that-is-lo", "s")
            ]
        );
    }

    #[test]
    fn a_source_elsewhere_is_a_port_of_the_gateway() {
        let module = module_of(&system(), "b");
        assert_eq!(module.channels[0].source, PortRef::new("/a", "s"));
        assert_eq!(
            module.channels[0].destinations,
            [PortRef::new("far", "S"), PortRef::new("far", "T")]
        );
        let [sampling, queuing] = &module.partition("/a").expect("made").ports[..] else {
            panic!("two channels come from a");
        };
        assert_eq!(sampling.kind, PortKind::SAMPLING);
        assert_eq!(queuing.kind, PortKind::queuing(2));
    }

    #[test]
    fn both_hosts_agree_on_what_crosses() {
        let system = system();
        let (a, b) = (crossings_of(&system, "a"), crossings_of(&system, "b"));
        assert_eq!((a.len(), b.len()), (3, 2));
        assert!(a.iter().all(|crossing| crossing.leaves));
        for there in &b {
            let here = a
                .iter()
                .find(|here| here.peer == "b" && here.channel == there.channel);
            let here = here.expect("both ends");
            assert_eq!((here.link, here.bus), (there.link, there.bus));
            assert!(!there.leaves);
        }
    }
}
