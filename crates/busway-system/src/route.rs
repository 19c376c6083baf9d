//! Which way a channel's messages take to each of its destinations, and between which hosts the
//! services of a rule find none.
//!
//! Contract: decided by the system file alone, so every host and every partition comes to the same.
//! Used by ports, the gateway and `busway check`.

use serde::Serialize;

use crate::System;
use crate::link::{Link, LinkBus};
use crate::model::ServiceRule;
use crate::ports::{Channel, Clock, PortRef};

/// The way to one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// The destination port.
    pub destination: PortRef,
    /// How messages get there.
    #[serde(flatten)]
    pub way: Way,
    /// Where they go while `way` is down, the best first. None inside a host, where the source's
    /// partition writes the other host's memory itself, and to or from a core.
    pub fallbacks: Vec<Hop>,
    /// Other buses that the channel or its links name, and that it never takes: the source's
    /// partition writes by itself, and moves to no other bus.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unused: Vec<&'static str>,
}

/// One bus of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// Index in [`System::links`].
    pub link: usize,
    /// The bus, one of the link's.
    pub bus: &'static str,
    /// How the two hosts compare times.
    pub clock: Clock,
}

/// How messages get to a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "way")]
pub enum Way {
    /// Source and destination share the memory of one host: nobody moves anything.
    InsideHost,
    /// Over a link.
    Link {
        /// Index in [`System::links`].
        link: usize,
        /// The bus, one of the link's: the wanted one, else the first.
        bus: &'static str,
        /// Who moves the message.
        carrier: Carrier,
        /// How the two hosts compare times.
        clock: Clock,
    },
}

/// Who moves messages over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// The source's partition itself. A sampling channel: it writes the register in the other
    /// host's memory, and no software runs there. A queuing channel: it sends into a queue in
    /// memory that both hosts share ([`shared_queue`](crate::shared_queue)), and wakes the
    /// receiver.
    Partition,
    /// The gateways of both hosts.
    Gateways,
    /// The gateway of one host, and the programs of the other, a core without one, through a ring
    /// in the memory that both see.
    Core,
}

impl System {
    /// The ways of a channel, in the order of its destinations.
    pub fn routes_of(&self, channel: &Channel) -> Vec<Route> {
        let here = host_of(self, channel.source);
        let route = |&destination: &PortRef| {
            let there = host_of(self, destination);
            if here == there {
                return Route {
                    destination,
                    way: Way::InsideHost,
                    fallbacks: Vec::new(),
                    unused: Vec::new(),
                };
            }
            let mut hops = hops_between(self, channel, here, there);
            let Hop { link, bus, clock } = hops
                .next()
                .expect("a System's channels have been validated: a link has the bus");
            let carrier = self.carrier(channel, there, link, bus);
            let (fallbacks, unused) = match carrier {
                Carrier::Gateways => (hops.collect(), Vec::new()),
                Carrier::Partition => (Vec::new(), others(bus, hops)),
                Carrier::Core => (Vec::new(), Vec::new()),
            };
            Route {
                destination,
                way: Way::Link {
                    link,
                    bus,
                    carrier,
                    clock,
                },
                fallbacks,
                unused,
            }
        };
        channel.destinations.iter().map(route).collect()
    }

    /// Pairs of hosts between which the services of a rule do not cross although links join them:
    /// none of those has a bus that the rule names.
    pub fn unreached_by(&self, rule: &ServiceRule) -> Vec<[&str; 2]> {
        let takes = |(_, link): (usize, &Link)| link.buses.iter().any(|bus| rule.may_take(bus.name()));
        let mut pairs: Vec<[&str; 2]> = Vec::new();
        for [one, other] in self
            .links
            .iter()
            .map(|link| link.hosts.each_ref().map(String::as_str))
        {
            let is_new = !pairs.contains(&[one, other]) && !pairs.contains(&[other, one]);
            let has_gateways = !self.is_core(one) && !self.is_core(other);
            if is_new && has_gateways && !links_between(&self.links, one, other).any(takes) {
                pairs.push([one, other]);
            }
        }
        pairs
    }

    fn carrier(&self, channel: &Channel, there: &str, link: usize, bus: &str) -> Carrier {
        let is_sampling = channel.slots.is_some();
        let here = host_of(self, channel.source);
        if !is_sampling && (self.is_core(here) || self.is_core(there)) {
            return Carrier::Core;
        }
        if !is_sampling {
            return self.carrier_of_queue(channel, there, link, bus);
        }
        if !busway_buses::is_one_sided(bus) {
            return Carrier::Gateways;
        }
        let area = self.port_area(link, bus, here);
        // By the source, which no other channel has.
        let mut registers = area.registers.iter();
        if registers.any(|register| self.channels[register.channel].source == channel.source) {
            Carrier::Partition
        } else {
            Carrier::Gateways
        }
    }

    /// The source's partition, if both hosts have room for their parts of the queue.
    fn carrier_of_queue(&self, channel: &Channel, there: &str, link: usize, bus: &str) -> Carrier {
        let has_part = |writer: &str| {
            let queues = self.port_area(link, bus, writer).shared_queues;
            let mut channels = queues.iter().map(|queue| &self.channels[queue.channel]);
            channels.any(|known| known.source == channel.source)
        };
        let here = host_of(self, channel.source);
        if self.may_share_queue(channel, there, link, bus) && has_part(here) && has_part(there) {
            Carrier::Partition
        } else {
            Carrier::Gateways
        }
    }
}

/// The buses of these hops beside the one that is taken, each once.
fn others(taken: &str, hops: impl Iterator<Item = Hop>) -> Vec<&'static str> {
    let mut others: Vec<&str> = Vec::new();
    for bus in hops.map(|hop| hop.bus) {
        if bus != taken && !others.contains(&bus) {
            others.push(bus);
        }
    }
    others
}

/// The host of a port.
pub(crate) fn host_of(system: &System, at: PortRef) -> &str {
    &system.partitions[at.partition].host
}

/// The buses that can take a channel's messages from one host to another, the best first: those
/// that it names, or, if it names none, those of the links for messages of its length, in the order
/// of the file.
pub(crate) fn hops_between<'a>(
    system: &'a System,
    channel: &'a Channel,
    here: &'a str,
    there: &'a str,
) -> impl Iterator<Item = Hop> {
    let links = &system.links;
    let max_size_bytes = u64::from(system.port(channel.source).max_size_bytes);
    let hop = |link, joins: &Link, bus: &LinkBus| Hop {
        link,
        bus: bus.name(),
        clock: joins.clock,
    };
    let named = channel.buses.iter().flat_map(move |name| {
        links_between(links, here, there).filter_map(move |(link, joins)| {
            let bus = joins.buses.iter().find(|bus| bus.name() == name)?;
            Some(hop(link, joins, bus))
        })
    });
    let by_length = links_between(links, here, there)
        .filter(|_| channel.buses.is_empty())
        .flat_map(move |(link, joins)| {
            let buses = joins.buses_for(max_size_bytes);
            buses.map(move |bus| hop(link, joins, bus))
        });
    named.chain(by_length)
}

/// Links that join two hosts, with their index, in the order of the file.
pub(crate) fn links_between<'a>(
    links: &'a [Link],
    here: &'a str,
    there: &'a str,
) -> impl Iterator<Item = (usize, &'a Link)> {
    links
        .iter()
        .enumerate()
        .filter(move |(_, link)| link.hosts == [here, there] || link.hosts == [there, here])
}
