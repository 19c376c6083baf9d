//! Which way a channel's messages take to each of its destinations.
//!
//! Contract: decided by the system file alone, so every host and every partition comes to the same. Used by ports, the
//! gateway and `busway check`.

use serde::Serialize;

use crate::System;
use crate::link::{Link, LinkBus};
use crate::ports::{Channel, Clock, PortRef};

/// The way to one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// The destination port.
    pub destination: PortRef,
    /// How messages get there.
    #[serde(flatten)]
    pub way: Way,
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
    /// The source's partition writes straight into the other host's memory, and no software runs there.
    Partition,
    /// The gateways of both hosts.
    Gateways,
}

impl System {
    /// The ways of a channel, in the order of its destinations.
    pub fn routes_of(&self, channel: &Channel) -> Vec<Route> {
        let here = host_of(self, channel.source);
        let way = |destination: PortRef| {
            let there = host_of(self, destination);
            if here == there {
                return Some(Way::InsideHost);
            }
            let (link, bus) = link_between(self, channel, here, there)?;
            Some(Way::Link {
                link,
                bus,
                carrier: self.carrier(channel, link, bus),
                clock: self.links[link].clock,
            })
        };
        let routes = channel.destinations.iter().map(|&destination| Route {
            destination,
            way: way(destination).expect("a System's channels have been validated: a link has the bus"),
        });
        routes.collect()
    }

    fn carrier(&self, channel: &Channel, link: usize, bus: &str) -> Carrier {
        let is_sampling = channel.slots.is_some();
        if !is_sampling || !busway_transport::registry::is_one_sided(bus) {
            return Carrier::Gateways;
        }
        let area = self.port_area(link, bus, host_of(self, channel.source));
        // By the source, which no other channel has.
        let mut registers = area.registers.iter();
        if registers.any(|register| self.channels[register.channel].source == channel.source) {
            Carrier::Partition
        } else {
            Carrier::Gateways
        }
    }
}

/// The host of a port.
pub(crate) fn host_of(system: &System, at: PortRef) -> &str {
    &system.partitions[at.partition].host
}

/// The link, by its index, and the bus that take a channel from one host to another: the first link that has the wanted bus, else its first
/// bus.
pub(crate) fn link_between(
    system: &System,
    channel: &Channel,
    here: &str,
    there: &str,
) -> Option<(usize, &'static str)> {
    let wanted = channel.bus.as_deref();
    links_between(&system.links, here, there).find_map(|(link, joins)| {
        let mut buses = joins.buses.iter().map(LinkBus::name);
        Some((
            link,
            buses.find(|bus| wanted.is_none_or(|wanted| wanted == *bus))?,
        ))
    })
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
