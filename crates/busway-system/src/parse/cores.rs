//! What a host without a gateway, a real-time core, can't do.
//!
//! Contract: checks a file in which everything else is right. A core reaches other hosts only
//! through memory that both see, and only by channels whose place follows from the file, since a
//! core has no conversation.

use std::ops::Range;

use super::draft::Draft;
use crate::diagnostic::Notes;
use crate::ports::{Channel, Clock};
use crate::read::Fields;
use crate::route::{Carrier, Way, host_of};
use crate::{Host, System};

/// Notes what can't work.
pub(super) fn check(system: &System, root: &Fields<'_, '_>, draft: &Draft, notes: &mut Notes<'_>) {
    if notes.has_errors() {
        return;
    }
    for host in system.hosts.iter().filter(|host| !host.gateway) {
        check_links(system, host, root, notes);
    }
    for channel in &system.channels {
        for (problem, mend) in problems(system, channel) {
            let written = draft.written(system, channel).expect("each channel was written");
            notes.error_at(&written.spot.place, &written.spot.key, problem, mend);
        }
    }
}

fn host_span(root: &Fields<'_, '_>, name: &str) -> Range<usize> {
    let hosts = root.get("host").and_then(|hosts| hosts.get_ref().as_table());
    let host = hosts.and_then(|hosts| hosts.get_key_value(name));
    host.map_or(0..0, |(key, _)| key.span())
}

fn check_links(system: &System, host: &Host, root: &Fields<'_, '_>, notes: &mut Notes<'_>) {
    let key = format!("host.{}", host.name);
    for link in system.links.iter().filter(|link| link.hosts.contains(&host.name)) {
        for bus in link.buses.iter().map(|bus| bus.name()) {
            if !busway_buses::is_one_sided(bus) {
                notes.error(
                    &host_span(root, &host.name),
                    &key,
                    format!(
                        "no gateway runs on {:?}, so nothing can go there over {bus}",
                        host.name
                    ),
                    "join it by links with the bus \"memory\" alone",
                );
            }
        }
        if link.clock != Clock::Ptp {
            notes.warning(
                &host_span(root, &host.name),
                &key,
                format!(
                    "nobody estimates the clock of {:?}, since no gateway runs there: its sampling messages count as stale",
                    host.name
                ),
                "write clock = \"ptp\" in its link, and have the core give its times as TAI",
            );
        }
    }
}

/// What is wrong with a channel that a core takes part in.
fn problems(system: &System, channel: &Channel) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let here = host_of(system, channel.source);
    let mut theres: Vec<&str> = Vec::new();
    for route in system.routes_of(channel) {
        let there = host_of(system, route.destination);
        let Some(core) = [here, there].into_iter().find(|host| system.is_core(host)) else {
            continue;
        };
        match route.way {
            Way::InsideHost => found.push((
                format!("both ends of {:?} are on {core:?}, where no gateway runs", channel.name),
                "remove the channel: a core's program hands messages to itself".to_string(),
            )),
            Way::Link { link, bus, carrier, .. } if !has_place(system, channel, link, bus, carrier, [here, there]) => found.push((
                format!(
                    "the memory that {here:?} and {there:?} share has no room for {:?}: half of each window is for channels of ports",
                    channel.name
                ),
                "give the link a longer window, or the port fewer or smaller messages".to_string(),
            )),
            Way::Link { .. } => {}
        }
        if system.is_core(here) && theres.iter().any(|other| *other != there) {
            found.push((
                format!(
                    "{:?} leaves {core:?} for several hosts, and a core writes each message once",
                    channel.name
                ),
                "give the core a port and a channel for each host".to_string(),
            ));
        }
        if system.is_core(there) && channel.slots.is_none() && theres.contains(&there) {
            found.push((
                format!(
                    "two queuing ports on {core:?} receive {:?}, and its ring has one reader",
                    channel.name
                ),
                "name one of them".to_string(),
            ));
        }
        theres.push(there);
    }
    found
}

fn has_place(
    system: &System,
    channel: &Channel,
    link: usize,
    bus: &str,
    carrier: Carrier,
    hosts: [&str; 2],
) -> bool {
    match carrier {
        Carrier::Partition => true,
        Carrier::Gateways => false,
        Carrier::Core => hosts.iter().all(|writer| {
            let area = system.port_area(link, bus, writer);
            // By the source, which no other channel has.
            area.queues
                .iter()
                .any(|queue| system.channels[queue.channel].source == channel.source)
        }),
    }
}
