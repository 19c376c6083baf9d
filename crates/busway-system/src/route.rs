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
    /// The gateways of both hosts, over every bus.
    Gateways,
}

impl System {
    /// The ways of a channel, in the order of its destinations.
    pub fn routes_of(&self, channel: &Channel) -> Vec<Route> {
        let here = &self.partitions[channel.source.partition].host;
        let way = |destination: PortRef| {
            let there = &self.partitions[destination.partition].host;
            if here == there {
                return Some(Way::InsideHost);
            }
            let wanted = channel.bus.as_deref();
            links_between(&self.links, here, there).find_map(|(link, joins)| {
                let bus = joins
                    .buses
                    .iter()
                    .map(LinkBus::name)
                    .find(|bus| wanted.is_none_or(|wanted| wanted == *bus))?;
                Some(Way::Link {
                    link,
                    bus,
                    carrier: Carrier::Gateways,
                    clock: joins.clock,
                })
            })
        };
        let routes = channel.destinations.iter().map(|&destination| Route {
            destination,
            way: way(destination).expect("a System's channels have been validated: a link has the bus"),
        });
        routes.collect()
    }
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
