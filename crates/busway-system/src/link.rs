//! Links: which two hosts are joined, over which buses.
//!
//! What a bus's table holds is the bus's business ([`busway_buses`]); the reader of
//! this crate finds the tables, lays a host's table over what stands beside it for both, and says
//! where in the file a problem lies.

use busway_buses::{self as registry, BusSettings, HostTable};
use serde::Serialize;

use crate::ports::Clock;

/// A link of the file.
#[derive(Clone, Debug)]
pub struct Link {
    /// The two hosts, as ordered in the file: a bus that treats them differently goes by this
    /// order.
    pub hosts: [String; 2],
    /// In order of preference, at least one.
    pub buses: Vec<LinkBus>,
    /// Another order of them for what is large.
    pub large: Option<Large>,
    /// How the two hosts compare times.
    pub clock: Clock,
}

/// Which buses of a link carry what is large: one that is best for 64 bytes may be beaten at 64
/// KiB.
///
/// Decided for each message of a service whose messages may have any length; else by the longest
/// that a service, or a channel of ports, can have. It does not hold for services and channels that
/// name buses of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Large {
    /// Length of a message, in bytes of payload, from which on it holds.
    pub from_bytes: u64,
    /// All of the link's, the best first: those that the file names here, then the others in their
    /// order, so that no length is without the buses that the link falls back on.
    pub buses: Vec<String>,
}

impl Link {
    /// All buses, in the order for messages of at most `max_size_bytes` bytes, the best first.
    pub fn buses_for(&self, max_size_bytes: u64) -> impl Iterator<Item = &LinkBus> {
        let large = self.large.as_ref();
        let large = large.filter(|large| large.from_bytes <= max_size_bytes);
        let named = large.into_iter().flat_map(|large| &large.buses);
        let named = named.filter_map(|name| self.buses.iter().find(|bus| bus.name() == name));
        named.chain(self.buses.iter().filter(move |_| large.is_none()))
    }
}

/// One bus of a link: the table of each host, in the order of [`Link::hosts`]. Both are of the same
/// bus.
#[derive(Clone, Debug)]
pub struct LinkBus {
    /// The tables, with what holds for both hosts laid under each.
    pub hosts: [HostTable; 2],
}

impl LinkBus {
    /// The bus, such as `tcp`.
    pub fn name(&self) -> &'static str {
        self.hosts[0].name()
    }

    /// The settings as the host at this place of [`Link::hosts`] sees them.
    pub fn seen_from(&self, at: usize) -> BusSettings {
        let [local, peer] = [&self.hosts[at], &self.hosts[1 - at]].map(HostTable::clone);
        registry::link_settings(self.name(), local, peer, at == 0)
    }
}

/// A link as one of its hosts sees it.
#[derive(Clone, Debug)]
pub struct LinkOf {
    /// Index in [`crate::System::links`]: distinguishes parallel links between the same hosts.
    pub index: usize,
    /// The other host.
    pub peer: String,
    /// Whether this host is the first of [`Link::hosts`].
    pub local_is_first: bool,
    /// In order of preference, at least one.
    pub buses: Vec<BusSettings>,
    /// Another order for what is large.
    pub large: Option<Large>,
    /// How the two hosts compare times.
    pub clock: Clock,
}
