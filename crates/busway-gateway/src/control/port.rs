//! One end of a channel of ARINC 653 ports as an endpoint.
//!
//! What crosses follows from the system file alone, so nothing is offered: the receiving side opens
//! its channel as soon as a link of its routes is up (and, where the link estimates the clocks'
//! offset, an estimate is there). What is unacknowledged stays in the store
//! ([`busway_port::carry`]), so a channel may end at any moment without a loss. Plain state;
//! [`super::port_flow`] decides by it.

use std::collections::BTreeSet;

use busway_transport::{ChannelSpec, Keep};

use super::link::Link;

/// A link that can carry the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRoute {
    /// Index in the gateway's links.
    pub link: usize,
    /// Receiving over it needs an estimate of the offset of the two clocks.
    pub needs_clock: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct PortEndpoint {
    /// The other host.
    pub peer: String,
    /// Whether messages leave this host.
    pub leaves: bool,
    /// The shape of its channels.
    pub spec: ChannelSpec,
    /// At least one, the best first.
    pub routes: Vec<PortRoute>,
    /// Links whose clock offset is known.
    pub clocks_known: BTreeSet<usize>,
    /// Index in `routes` of the one that it takes, or took last.
    pub at: usize,
}

impl PortEndpoint {
    /// The index of its route over a link.
    pub fn route_over(&self, link: usize) -> Option<usize> {
        self.routes.iter().position(|route| route.link == link)
    }

    /// Whether a peer's idea of the channel agrees with this host's.
    pub fn agrees(&self, spec: &ChannelSpec) -> bool {
        let keeps_latest = |spec: &ChannelSpec| spec.keep == Keep::Latest;
        self.spec.message_bytes == spec.message_bytes && keeps_latest(&self.spec) == keeps_latest(spec)
    }

    pub(super) fn may_open(&self, route: &PortRoute, links: &[Link]) -> bool {
        let has_clock = !route.needs_clock || self.clocks_known.contains(&route.link);
        links[route.link].is_usable() && has_clock
    }
}
