//! From a [`Draft`] to partitions and channels: resolves names, and checks what can only be checked
//! together.
//!
//! Contract: the same for TOML and XML. Notes everything that is wrong; what it returns is right if
//! nothing was noted as an error.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::draft::{Draft, DraftChannel, DraftEnd, DraftPartition, Spot};
use crate::diagnostic::{Notes, nearest, one_of};
use crate::execution::Execution;
use crate::link::Link;
use crate::model::{Host, Lane};
use crate::ports::{Channel, Direction, Partition, Port, PortKind, PortRef, WhenFull};
use crate::slots::default_slots;

/// What channels are checked against.
struct Module<'a> {
    draft: &'a Draft,
    partitions: Vec<Partition>,
    by_name: HashMap<&'a str, usize>,
    links: &'a [Link],
    lanes: &'a [Lane],
    /// Which channel a port is in already, by its key.
    taken: HashMap<PortRef, String>,
}

pub(super) fn connect(
    draft: &Draft,
    hosts: &[Host],
    links: &[Link],
    lanes: &[Lane],
    notes: &mut Notes<'_>,
) -> (Vec<Partition>, Vec<Channel>) {
    let (partitions, by_name) = partitions(draft, hosts, notes);
    let mut module = Module {
        draft,
        partitions,
        by_name,
        links,
        lanes,
        taken: HashMap::new(),
    };
    let mut channels: Vec<Channel> = Vec::new();
    let mut names: HashMap<String, String> = HashMap::new();
    for written in &draft.channels {
        if let Some(mut channel) = module.channel(written, notes) {
            name_channel(&mut channel, written, &mut names, notes);
            channels.push(channel);
        }
    }
    module.warn_of_idle_ports(notes);
    (module.partitions, channels)
}

fn partitions<'a>(
    draft: &'a Draft,
    hosts: &[Host],
    notes: &mut Notes<'_>,
) -> (Vec<Partition>, HashMap<&'a str, usize>) {
    let mut partitions: Vec<Partition> = Vec::new();
    let mut by_name = HashMap::new();
    let mut next_id = 1;
    for (index, written) in draft.partitions.iter().enumerate() {
        // Of two, the name means the first.
        match by_name.entry(written.name.as_str()) {
            Entry::Occupied(_) => note_twice(&written.spot, "partition", &written.name, notes),
            Entry::Vacant(free) => {
                free.insert(index);
            }
        }
        check_port_names(written, notes);
        partitions.push(Partition {
            name: written.name.clone(),
            id: id_of(written, draft, &mut next_id),
            host: host_of(written, hosts, notes).unwrap_or_default(),
            ports: written.ports.iter().map(|port| port.port.clone()).collect(),
            // Filled by `schedule::apply`.
            execution: Execution::default(),
        });
    }
    warn_of_shared_ids(draft, notes);
    (partitions, by_name)
}

fn note_twice(spot: &Spot, what: &str, name: &str, notes: &mut Notes<'_>) {
    notes.error_at(
        &spot.place,
        &spot.key,
        format!("there is a {what} {name:?} already"),
        "rename one of the two",
    );
}

fn check_port_names(partition: &DraftPartition, notes: &mut Notes<'_>) {
    let mut names = HashSet::new();
    for port in &partition.ports {
        if !names.insert(port.port.name.as_str()) {
            let what = format!("port of {}", partition.name);
            note_twice(&port.spot, &what, &port.port.name, notes);
        }
    }
}

/// The id in the file, or the next that no partition of the file has.
fn id_of(partition: &DraftPartition, draft: &Draft, next_id: &mut i32) -> i32 {
    if let Some(id) = partition.id {
        return id;
    }
    let taken = |id: i32| draft.partitions.iter().any(|other| other.id == Some(id));
    while taken(*next_id) {
        *next_id = next_id.saturating_add(1);
    }
    *next_id += 1;
    *next_id - 1
}

/// Public configurations number several partitions alike, so this is no error.
fn warn_of_shared_ids(draft: &Draft, notes: &mut Notes<'_>) {
    let mut owners: HashMap<i32, &str> = HashMap::new();
    for partition in &draft.partitions {
        let Some(id) = partition.id else { continue };
        if let Some(owner) = owners.get(&id) {
            notes.warning_at(
                &partition.spot.place,
                &partition.spot.key,
                format!(
                    "partition {:?} has the identifier {id}, and so has {owner:?}",
                    partition.name
                ),
                "give each partition an identifier of its own: its programs are told this one",
            );
        }
        owners.entry(id).or_insert(&partition.name);
    }
}

fn host_of(partition: &DraftPartition, hosts: &[Host], notes: &mut Notes<'_>) -> Option<String> {
    let names = || hosts.iter().map(|host| host.name.as_str());
    let Some((host, spot)) = &partition.host else {
        if let [only] = hosts {
            return Some(only.name.clone());
        }
        // Without hosts, that has been noted.
        if !hosts.is_empty() {
            notes.error_at(
                &partition.spot.place,
                &partition.spot.key,
                format!("it is not said on which host partition {:?} runs", partition.name),
                format!("give it a host: {}", one_of(names())),
            );
        }
        return None;
    };
    if names().any(|name| name == host) {
        return Some(host.clone());
    }
    let mend = match nearest(host, names()) {
        Some(name) => format!("write {name:?}"),
        None if hosts.is_empty() => format!("add [host.{host}] to the system file"),
        None => format!("write {}", one_of(names())),
    };
    notes.error_at(&spot.place, &spot.key, format!("there is no host {host:?}"), mend);
    None
}

/// Gives a channel its name: the written one, unless another channel has it, else that of its
/// source.
fn name_channel(
    channel: &mut Channel,
    written: &DraftChannel,
    names: &mut HashMap<String, String>,
    notes: &mut Notes<'_>,
) {
    if let Some((name, spot)) = &written.name {
        if let Some(owner) = names.get(name) {
            notes.warning_at(
                &spot.place,
                &spot.key,
                format!("{owner} is called {name:?} too"),
                format!("rename one of the two; this one is now called {:?}", channel.name),
            );
        } else {
            channel.name.clone_from(name);
        }
    }
    if names
        .insert(channel.name.clone(), written.spot.key.clone())
        .is_some()
    {
        note_twice(&written.spot, "channel", &channel.name, notes);
    }
}

impl Module<'_> {
    fn port(&self, at: PortRef) -> &Port {
        &self.partitions[at.partition].ports[at.port]
    }

    fn is_sound(&self, at: PortRef) -> bool {
        self.draft.partitions[at.partition].ports[at.port].sound
    }

    /// `PARTITION/PORT`.
    fn name(&self, at: PortRef) -> String {
        let partition = &self.partitions[at.partition];
        format!("{}/{}", partition.name, partition.ports[at.port].name)
    }

    fn host(&self, at: PortRef) -> &str {
        &self.partitions[at.partition].host
    }

    fn channel(&mut self, written: &DraftChannel, notes: &mut Notes<'_>) -> Option<Channel> {
        let source = written
            .source
            .as_ref()
            .and_then(|end| self.end(end, Direction::Source, &written.spot.key, notes));
        let mut destinations = Vec::new();
        for end in &written.destinations {
            let Some(at) = self.end(end, Direction::Destination, &written.spot.key, notes) else {
                continue;
            };
            destinations.push(at);
            if let Some(source) = source {
                self.compare(source, at, &end.spot, notes);
                self.check_way(source, at, written, &end.spot, notes);
            }
        }
        if written.destinations.is_empty() && !written.ends_elsewhere {
            notes.error_at(
                &written.spot.place,
                &written.spot.key,
                "the channel has no destination",
                "name at least one destination port",
            );
        }
        let source = source?;
        if destinations.is_empty() {
            return None;
        }
        self.warn_of_idle_bus(source, &destinations, written, notes);
        self.warn_of_idle_lane(source, &destinations, written, notes);
        Some(self.finish(source, destinations, written, notes))
    }

    fn finish(
        &self,
        source: PortRef,
        destinations: Vec<PortRef>,
        written: &DraftChannel,
        notes: &mut Notes<'_>,
    ) -> Channel {
        let port = self.port(source);
        let asked = written.slots.as_ref();
        let slots = match port.kind {
            PortKind::Sampling {
                min_write_interval_ns,
                ..
            } => Some(asked.map_or_else(
                || default_slots(port.max_size_bytes, min_write_interval_ns),
                |(slots, _)| *slots,
            )),
            PortKind::Queuing { .. } => {
                if let Some((slots, spot)) = asked {
                    notes.error_at(
                        &spot.place,
                        &spot.key,
                        format!("{slots} slots for a queuing channel"),
                        "remove the number: the ports' own queues say how many messages wait",
                    );
                }
                None
            }
        };
        let when_full = when_full(&port.kind, destinations.len(), written, notes);
        Channel {
            name: self.name(source),
            lane: self.lane(written, notes),
            when_full,
            source,
            destinations,
            buses: written.wanted_buses().map(|(bus, _)| bus.clone()).collect(),
            slots_from_file: slots.is_some() && asked.is_some(),
            slots,
        }
    }

    /// The port that an end names, if it is there, of the right direction and in no other channel.
    fn end(
        &mut self,
        end: &DraftEnd,
        direction: Direction,
        channel: &str,
        notes: &mut Notes<'_>,
    ) -> Option<PortRef> {
        let at = self.find(end, notes)?;
        if !self.is_sound(at) {
            return None;
        }
        let found = self.port(at).direction;
        if found != direction {
            let (is, asked) = match found {
                Direction::Source => ("a source", "destination"),
                Direction::Destination => ("a destination", "source"),
            };
            notes.error_at(
                &end.spot.place,
                &end.spot.key,
                format!("{} is {is} port", self.name(at)),
                format!("name a {asked} port here, or change the port's direction"),
            );
            return None;
        }
        if let Some(owner) = self.taken.insert(at, channel.to_string()) {
            let name = self.name(at);
            let (problem, mend) = if owner == channel {
                (
                    format!("{name} stands here twice"),
                    "name each port once".to_string(),
                )
            } else {
                let mend = match direction {
                    Direction::Source => format!("add these destinations to {owner}"),
                    Direction::Destination => "give the partition a port for each channel".to_string(),
                };
                (format!("{name} is in {owner} already"), mend)
            };
            notes.error_at(&end.spot.place, &end.spot.key, problem, mend);
            return None;
        }
        Some(at)
    }

    fn find(&self, end: &DraftEnd, notes: &mut Notes<'_>) -> Option<PortRef> {
        let Some(&partition) = self.by_name.get(end.partition.as_str()) else {
            let names = self.partitions.iter().map(|partition| partition.name.as_str());
            let mend = match nearest(&end.partition, names) {
                Some(name) => format!("write {name:?}"),
                None => "name a partition of this module".to_string(),
            };
            let problem = format!("there is no partition {:?}", end.partition);
            notes.error_at(&end.spot.place, &end.spot.key, problem, mend);
            return None;
        };
        let ports = &self.partitions[partition].ports;
        let port = ports.iter().position(|port| port.name == end.port);
        if port.is_none() {
            let names = || ports.iter().map(|port| port.name.as_str());
            let mend = match nearest(&end.port, names()) {
                Some(name) => format!("write {name:?}"),
                None if ports.is_empty() => "add the port to the partition".to_string(),
                None => format!("it has {}", one_of(names())),
            };
            notes.error_at(
                &end.spot.place,
                &end.spot.key,
                format!("partition {:?} has no port {:?}", end.partition, end.port),
                mend,
            );
        }
        port.map(|port| PortRef { partition, port })
    }

    /// The ports of a channel are of one kind and size.
    fn compare(&self, source: PortRef, at: PortRef, spot: &Spot, notes: &mut Notes<'_>) {
        let (from, to) = (self.port(source), self.port(at));
        if from.kind.name() != to.kind.name() {
            notes.error_at(
                &spot.place,
                &spot.key,
                format!(
                    "{} is a {} port, its source {} a {} port",
                    self.name(at),
                    to.kind.name(),
                    self.name(source),
                    from.kind.name()
                ),
                "join ports of one kind",
            );
        } else if from.max_size_bytes != to.max_size_bytes {
            notes.error_at(
                &spot.place,
                &spot.key,
                format!(
                    "{} takes {} bytes, its source {} writes up to {}",
                    self.name(at),
                    to.max_size_bytes,
                    self.name(source),
                    from.max_size_bytes
                ),
                "give all ports of a channel the same maximum size",
            );
        }
    }

    /// Hosts are linked, by the wanted bus if there is one.
    fn check_way(
        &self,
        source: PortRef,
        at: PortRef,
        written: &DraftChannel,
        end: &Spot,
        notes: &mut Notes<'_>,
    ) {
        let (here, there) = (self.host(source), self.host(at));
        if here == there || here.is_empty() || there.is_empty() {
            return;
        }
        let buses: Vec<&str> = crate::route::links_between(self.links, here, there)
            .flat_map(|(_, link)| link.buses.iter().map(crate::link::LinkBus::name))
            .collect();
        if buses.is_empty() {
            notes.error_at(
                &end.place,
                &end.key,
                format!(
                    "{} runs on host {here:?} and {} on host {there:?}, and no link joins the two",
                    self.name(source),
                    self.name(at)
                ),
                format!("add a [[link]] with hosts = [{here:?}, {there:?}]"),
            );
        }
        for (bus, spot) in written.wanted_buses() {
            if buses.is_empty() || buses.contains(&bus.as_str()) {
                continue;
            }
            notes.error_at(
                &spot.place,
                &spot.key,
                format!("no link between {here:?} and {there:?} has the bus {bus:?}"),
                match nearest(bus, buses.iter().copied()) {
                    Some(near) => format!("write {near:?}"),
                    None => format!(
                        "write {}, or add {bus:?} to the link",
                        one_of(buses.iter().copied())
                    ),
                },
            );
        }
    }

    /// The place of the channel's lane.
    fn lane(&self, written: &DraftChannel, notes: &mut Notes<'_>) -> usize {
        let Some((name, spot)) = &written.lane else {
            return 0;
        };
        let names = || self.lanes.iter().map(|lane| lane.name.as_str());
        let found = names().position(|known| known == name);
        if found.is_none() {
            let mend = match nearest(name, names()) {
                Some(near) => format!("write {near:?}"),
                None => format!("add [[lane]] with name = {name:?} to the system file"),
            };
            notes.error_at(&spot.place, &spot.key, format!("there is no lane {name:?}"), mend);
        }
        found.unwrap_or(0)
    }

    fn warn_of_idle_lane(
        &self,
        source: PortRef,
        destinations: &[PortRef],
        written: &DraftChannel,
        notes: &mut Notes<'_>,
    ) {
        let inside = |at: &PortRef| self.host(*at) == self.host(source);
        if let Some((lane, spot)) = &written.lane
            && destinations.iter().all(inside)
        {
            notes.warning_at(
                &spot.place,
                &spot.key,
                format!(
                    "the channel stays inside host {:?}: no lane moves its messages",
                    self.host(source)
                ),
                format!("remove {lane:?}"),
            );
        }
    }

    fn warn_of_idle_bus(
        &self,
        source: PortRef,
        destinations: &[PortRef],
        written: &DraftChannel,
        notes: &mut Notes<'_>,
    ) {
        let inside = |at: &PortRef| self.host(*at) == self.host(source);
        if let Some((bus, spot)) = written.wanted_buses().next()
            && destinations.iter().all(inside)
        {
            notes.warning_at(
                &spot.place,
                &spot.key,
                format!(
                    "the channel stays inside host {:?}: no bus carries it",
                    self.host(source)
                ),
                format!("remove {bus:?}"),
            );
        }
    }

    fn warn_of_idle_ports(&self, notes: &mut Notes<'_>) {
        let elsewhere = self
            .draft
            .channels
            .iter()
            .flat_map(|channel| channel.source.iter().chain(&channel.destinations));
        let named: HashSet<(&str, &str)> = elsewhere
            .map(|end| (end.partition.as_str(), end.port.as_str()))
            .collect();
        for partition in &self.draft.partitions {
            for port in &partition.ports {
                if !named.contains(&(partition.name.as_str(), port.port.name.as_str())) {
                    notes.warning_at(
                        &port.spot.place,
                        &port.spot.key,
                        format!("no channel joins the port {}/{}", partition.name, port.port.name),
                        "name it in a channel, or remove it",
                    );
                }
            }
        }
    }
}

/// What happens to a message for a full queue: from the file, else by the number of destinations.
fn when_full(
    kind: &PortKind,
    destinations: usize,
    written: &DraftChannel,
    notes: &mut Notes<'_>,
) -> Option<WhenFull> {
    let asked = written.when_full.as_ref();
    match kind {
        PortKind::Queuing { .. } => Some(asked.map_or(
            if destinations == 1 {
                WhenFull::Wait
            } else {
                WhenFull::Overflow
            },
            |(when_full, _)| *when_full,
        )),
        PortKind::Sampling { .. } => {
            if let Some((_, spot)) = asked {
                notes.error_at(
                    &spot.place,
                    &spot.key,
                    "a sampling channel is never full",
                    "remove the word: a newer message replaces an older one",
                );
            }
            None
        }
    }
}
