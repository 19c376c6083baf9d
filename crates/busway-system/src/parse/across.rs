//! What several links together may not do: use one piece of memory twice, or listen at one address.

use std::net::SocketAddr;
use std::ops::Range;

use busway_buses::BusSettings;
use busway_transport::contract::WindowUse;

use crate::diagnostic::Notes;
use crate::link::Link;
use crate::read::Fields;

/// A bus of a link as one host sees it, with its place in the file.
struct Use<'a> {
    link: usize,
    host: &'a str,
    peer: &'a str,
    settings: BusSettings,
    key: String,
    span: Range<usize>,
}

/// `links` holds every link of the file, or nothing is checked: what follows from a link that is
/// wrong would only confuse.
pub(super) fn check(root: &Fields<'_, '_>, links: &[Link], notes: &mut Notes<'_>) {
    if notes.has_errors() {
        return;
    }
    let uses = uses(root, links);
    let mut overlapping = Vec::new();
    for (at, later) in uses.iter().enumerate() {
        for earlier in &uses[..at] {
            if earlier.host == later.host && earlier.link != later.link {
                // The other host of two parallel links sees the same overlap: once is enough.
                if !overlapping.contains(&(earlier.link, later.link)) && same_memory(earlier, later, notes) {
                    overlapping.push((earlier.link, later.link));
                }
                same_route(earlier, later, notes);
            }
            if earlier.host != later.host {
                same_address(earlier, later, notes);
            }
        }
    }
}

fn uses<'a>(root: &Fields<'_, '_>, links: &'a [Link]) -> Vec<Use<'a>> {
    let tables = root.get("link").and_then(|it| it.get_ref().as_array());
    let mut uses = Vec::new();
    for (index, link) in links.iter().enumerate() {
        let table = tables
            .and_then(|tables| tables.get(index))
            .and_then(|it| it.get_ref().as_table());
        for bus in &link.buses {
            let place = table.and_then(|table| table.get_key_value(bus.name()));
            for at in 0..2 {
                uses.push(Use {
                    link: index,
                    host: &link.hosts[at],
                    peer: &link.hosts[1 - at],
                    settings: bus.seen_from(at),
                    key: format!("link[{index}].{}", bus.name()),
                    span: place.map_or(0..0, |(key, _)| key.span()),
                });
            }
        }
    }
    uses
}

/// The address on which a host accepts connections for a link.
fn listens(settings: &BusSettings) -> Option<SocketAddr> {
    settings.addresses()?.listens()
}

/// Whether windows of the two overlap.
fn same_memory(earlier: &Use<'_>, later: &Use<'_>, notes: &mut Notes<'_>) -> bool {
    let taken = earlier.settings.windows();
    for window in later.settings.windows() {
        let range = window.bytes();
        let same = || taken.iter().filter(|other| other.memory == window.memory);
        let overlaps =
            |other: &&WindowUse| other.bytes().start < range.end && range.start < other.bytes().end;
        let Some(bytes) = same().find(overlaps).map(WindowUse::bytes) else {
            continue;
        };
        let free = same().map(|other| other.bytes().end).max();
        notes.error(
            &later.span,
            &later.key,
            format!(
                "bytes {} to {} of {} overlap with bytes {} to {}, which host {:?} uses for link[{}]",
                range.start, range.end, window.source, bytes.start, bytes.end, later.host, earlier.link
            ),
            format!(
                "begin at `offset` {} or beyond, or name another {}",
                free.unwrap_or(bytes.end),
                if window.is_path { "file" } else { "resource" }
            ),
        );
        return true;
    }
    false
}

/// The address distinguishes parallel links.
fn same_route(earlier: &Use<'_>, later: &Use<'_>, notes: &mut Notes<'_>) {
    let address = listens(&later.settings);
    if address.is_none() || address != listens(&earlier.settings) || earlier.peer != later.peer {
        return;
    }
    let address = address.expect("checked above");
    notes.error(
        &later.span,
        &later.key,
        format!(
            "host {:?} listens on {address} for {:?} in link[{}] already: the two links can't be told apart",
            later.host, later.peer, earlier.link
        ),
        format!(
            "listen on another port, such as {:?}",
            SocketAddr::new(address.ip(), address.port().wrapping_add(1))
        ),
    );
}

fn same_address(earlier: &Use<'_>, later: &Use<'_>, notes: &mut Notes<'_>) {
    let address = listens(&later.settings);
    if let Some(address) = address
        .filter(|address| listens(&earlier.settings) == Some(*address) && !address.ip().is_unspecified())
    {
        notes.warning(
            &later.span,
            &later.key,
            format!(
                "host {:?} listens on {address}, and so does host {:?} in link[{}]",
                later.host, earlier.host, earlier.link
            ),
            "give each host its own address, or its own port where they share a machine",
        );
    }
}
