//! What a right file names and never uses: buses of a channel, and rules of services between two
//! hosts.
//!
//! Contract: warns only, of a file in which everything is right: what follows from a mistake would
//! only confuse.

use toml::Spanned;

use super::draft::Draft;
use crate::System;
use crate::diagnostic::{Notes, one_of};
use crate::read::Fields;
use crate::route::{Way, links_between};

pub(super) fn check(system: &System, root: &Fields<'_, '_>, draft: &Draft, notes: &mut Notes<'_>) {
    if notes.has_errors() {
        return;
    }
    warn_of_rules(system, root, notes);
    warn_of_buses(system, draft, notes);
}

/// Of a rule whose buses are those of other hosts.
fn warn_of_rules(system: &System, root: &Fields<'_, '_>, notes: &mut Notes<'_>) {
    // A second reading, for the places.
    let tables = root.get("service").and_then(|it| it.get_ref().as_array());
    let tables = tables.into_iter().flat_map(|tables| tables.iter());
    for (index, (table, rule)) in tables.zip(&system.services).enumerate() {
        let Some(buses) = table.get_ref().get("buses").map(Spanned::span) else {
            continue;
        };
        for [one, other] in system.unreached_by(rule) {
            let theirs = links_between(&system.links, one, other);
            let theirs = theirs.flat_map(|(_, link)| link.buses.iter().map(|bus| bus.name()));
            notes.warning(
                &buses,
                format!("service[{index}].buses"),
                format!(
                    "{:?} does not cross between {one:?} and {other:?}, whose links have none of these buses",
                    rule.name.as_str()
                ),
                format!(
                    "add {} here, or {} to a link between the two",
                    one_of(theirs),
                    one_of(rule.buses.iter().map(String::as_str))
                ),
            );
        }
    }
}

/// Of a sampling channel that is written by the source's own partition, and names buses for a
/// fail-over that it hasn't.
fn warn_of_buses(system: &System, draft: &Draft, notes: &mut Notes<'_>) {
    let names_several = |channel: &&crate::Channel| channel.slots.is_some() && channel.buses.len() > 1;
    for channel in system.channels.iter().filter(names_several) {
        let routes = system.routes_of(channel);
        let Some((bus, unused)) = routes.iter().find_map(|route| match route.way {
            Way::Link { bus, .. } if !route.unused.is_empty() => Some((bus, &route.unused)),
            _ => None,
        }) else {
            continue;
        };
        let is_moved = |bus: &&&str| !busway_buses::is_one_sided(bus);
        let fail_over = unused.iter().find(is_moved).map_or(String::new(), |moved| {
            format!("name {moved:?} first for fail-over, or ")
        });
        let written = draft.written(system, channel).expect("each channel was written");
        let spot = written
            .wanted_buses()
            .nth(1)
            .map_or(&written.spot, |(_, spot)| spot);
        notes.warning_at(
            &spot.place,
            &spot.key,
            format!(
                "{:?} never takes {}: over {bus:?} the source's own process writes into the other host's memory, and moves to no other bus",
                channel.name,
                one_of(unused.iter().copied())
            ),
            format!("{fail_over}name {bus:?} alone if that is meant"),
        );
    }
}
