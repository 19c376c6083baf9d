//! Opens and moves the channels of ARINC 653 ports.
//!
//! Contract: a channel is wanted whenever one of its links is up. Called by [`super::core`].

use busway_transport::ChannelSpec;

use super::endpoint::Endpoint;
use super::flow::Flow;
use super::port::PortRoute;
use super::routes::{Routes, Wanted};
use super::shared::Shared;
use crate::lane::ChannelKey;

impl Flow {
    /// Opens, moves or closes the channel of a port whose messages arrive.
    pub fn reconcile_port(&mut self, shared: &mut Shared) {
        self.backoff.tick(shared.now);
        let Endpoint::Port(port) = &self.endpoint else {
            return;
        };
        if port.leaves {
            return;
        }
        let rank = |(index, route): (usize, &PortRoute)| {
            port.may_open(route, &shared.links)
                .then(|| (self.backoff.has(route.link, shared.now), index))
        };
        let best = port.routes.iter().enumerate().filter_map(rank).min();
        let Some((is_in_backoff, best)) = best else { return };
        let (peer, link, spec) = (port.peer.clone(), port.routes[best].link, port.spec);
        let wanted = Wanted::from([(peer.clone(), Routes::whole(link))]);
        self.close_unwanted(&wanted, shared);
        if !is_in_backoff && self.inbound.is_empty() {
            self.take_route_over(link);
            self.open_receiver(&peer, link, spec, None, shared);
        }
    }

    fn take_route_over(&mut self, link: usize) {
        if let Endpoint::Port(port) = &mut self.endpoint {
            port.at = port.route_over(link).unwrap_or(port.at);
        }
    }

    /// Whether a peer may have this port's messages over a channel; if not, why.
    ///
    /// # Errors
    /// The reason, in words for the peer.
    pub fn check_port_request(&mut self, key: ChannelKey, spec: &ChannelSpec) -> Result<(), String> {
        let Endpoint::Port(port) = &self.endpoint else {
            return Err("it is no channel of ports".into());
        };
        if !port.agrees(spec) {
            return Err("it has another kind or size by this host's system file".into());
        }
        if self.outbound.keys().any(|present| present.link == key.link) {
            return Err("it is still open; try again".into());
        }
        self.take_route_over(key.link);
        Ok(())
    }
}
