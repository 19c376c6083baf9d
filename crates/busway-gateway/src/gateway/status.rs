//! Links and services in the status file, from the decision core's state.
//!
//! Called by [`super`] once a second.

use super::services::Services;
use crate::control::Core;
use crate::control::flow::Flow;
use crate::control::shared::Part;
use crate::lane::ChannelKey;
use crate::status::{LinkStatus, ServiceStatus};

/// All links.
pub fn links(core: &Core) -> Vec<LinkStatus> {
    let links = core.links().iter().map(|link| LinkStatus {
        peer: link.profile.peer.clone(),
        bus: link.profile.bus.to_string(),
        up: link.up_since.is_some(),
        reason: link.reason.clone(),
        offers: link.offers.len(),
    });
    links.collect()
}

/// All services that the gateway knows of.
pub fn services(core: &Core, services: &Services) -> Vec<ServiceStatus> {
    let of = |flow: &Flow| {
        let service = flow.service()?;
        let bus = |key: &ChannelKey| core.links()[key.link].profile.bus;
        let sends = flow.outbound.values().filter(|channel| channel.is_main());
        let receives = flow.inbound.values().filter(|channel| !channel.is_large());
        let counters = services.counters(flow.id);
        Some(ServiceStatus {
            name: flow.name.clone(),
            mirror: service.held == Part::Ready,
            sends_to: sends.map(|channel| channel.peer.clone()).collect(),
            receives_from: receives.map(|channel| channel.peer.clone()).collect(),
            over: flow.outbound.keys().chain(flow.inbound.keys()).map(bus).collect(),
            complaint: flow.complaint.clone(),
            counters: counters.map_or_else(Default::default, |counters| counters.snapshot()),
        })
    };
    core.flows().filter_map(of).collect()
}
