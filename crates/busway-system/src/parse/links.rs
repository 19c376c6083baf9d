//! `[[link]]` and the bus tables in it.

use std::ops::Range;

use busway_buses::BUS_NAMES;
use toml::Spanned;

use super::bus_tables;
use crate::diagnostic::{Notes, nearest, one_of};
use crate::link::{Large, Link};
use crate::model::Host;
use crate::ports::Clock;
use crate::read::{At, Fields};

/// Buses that the design has and this version does not.
const LATER_BUSES: [&str; 1] = ["zenoh"];

/// Keys of a link beside its bus tables.
const KEYS: [&str; 4] = ["hosts", "buses", "large", "clock"];

const CLOCKS: [(&str, Clock); 2] = [("estimated", Clock::Estimated), ("ptp", Clock::Ptp)];

const HOSTS_EXAMPLE: &str = r#"hosts = ["a", "b"]"#;
const BUSES_EXAMPLE: &str = r#"buses = ["tcp"]"#;

pub(super) fn read(root: &Fields<'_, '_>, hosts: &[Host], notes: &mut Notes<'_>) -> Vec<Link> {
    let mut links = Vec::new();
    for link in root.tables("link", notes) {
        let ends = ends(&link, hosts, notes);
        let buses = buses(&link, notes);
        let large = large(&link, &buses, notes);
        let clock = link.word("clock", &CLOCKS, notes).unwrap_or_default();
        refuse_unknown_keys(&link, &buses, notes);
        let Some(ends) = ends else { continue };
        let buses = buses
            .iter()
            .filter_map(|bus| bus_tables::read(&link, bus, &ends, notes))
            .collect();
        links.push(Link {
            hosts: ends,
            buses,
            large,
            clock,
        });
    }
    check_hosts_are_linked(root, hosts, &links, notes);
    links
}

/// Warns of hosts without a link, unless a link is so wrong that it could be theirs, or the one
/// host has partitions to itself.
fn check_hosts_are_linked(root: &Fields<'_, '_>, hosts: &[Host], links: &[Link], notes: &mut Notes<'_>) {
    let has_partitions = ["partition", "module"]
        .iter()
        .any(|field| root.get(field).is_some());
    if hosts.len() == 1 && has_partitions {
        return;
    }
    let readable = match root.get("link") {
        Some(written) => written
            .get_ref()
            .as_array()
            .is_some_and(|array| array.len() == links.len()),
        None => true,
    };
    let Some(table) = root.get("host").and_then(|it| it.get_ref().as_table()) else {
        return;
    };
    for (name, _) in table.iter().filter(|_| readable) {
        let host = name.get_ref().as_ref();
        if hosts.iter().any(|known| known.name == host)
            && !links.iter().any(|link| link.hosts.iter().any(|it| it == host))
        {
            notes.warning(
                &name.span(),
                format!("host.{host}"),
                "no link joins this host to another",
                format!("add a [[link]] with {host:?} in its hosts, or remove the host"),
            );
        }
    }
}

/// The two hosts, if they are two and known.
fn ends(link: &Fields<'_, '_>, hosts: &[Host], notes: &mut Notes<'_>) -> Option<[String; 2]> {
    if link.get("hosts").is_none() {
        notes.error(
            &link.span,
            &link.key,
            "`hosts` is missing",
            format!("add {HOSTS_EXAMPLE}"),
        );
    }
    let names = link.texts("hosts", HOSTS_EXAMPLE, notes)?;
    let key = link.key_of("hosts");
    let mut known = true;
    for (index, (name, span)) in names.iter().enumerate() {
        if hosts.iter().any(|host| host.name == *name) {
            continue;
        }
        known = false;
        let mend = match nearest(name, hosts.iter().map(|host| host.name.as_str())) {
            Some(host) => format!("write {host:?}, or add [host.{name}]"),
            None => format!("add [host.{name}]"),
        };
        notes.error(
            span,
            format!("{key}[{index}]"),
            format!("there is no host {name:?}"),
            mend,
        );
    }
    let span = link.get("hosts").map_or(link.span.clone(), Spanned::span);
    let [(first, _), (second, second_span)] = names.as_slice() else {
        notes.error(
            &span,
            key,
            format!("a link joins two hosts, not {}", names.len()),
            format!("write {HOSTS_EXAMPLE}, and one [[link]] for each pair"),
        );
        return None;
    };
    if first == second {
        notes.error(
            second_span,
            key,
            format!("{first:?} is linked to itself"),
            "name two different hosts",
        );
        return None;
    }
    known.then(|| [first.to_string(), second.to_string()])
}

/// The known buses of a link, with their places.
fn buses<'a>(link: &Fields<'a, '_>, notes: &mut Notes<'_>) -> Vec<At<&'a str>> {
    if link.get("buses").is_none() {
        notes.error(
            &link.span,
            &link.key,
            "`buses` is missing",
            format!("add {BUSES_EXAMPLE}"),
        );
    }
    bus_list(link, notes)
}

/// The known buses of the list `buses` of a table, the best first, with their places; none if there
/// is no such list.
pub(super) fn bus_list<'a>(table: &Fields<'a, '_>, notes: &mut Notes<'_>) -> Vec<At<&'a str>> {
    let Some(names) = table.texts("buses", BUSES_EXAMPLE, notes) else {
        return Vec::new();
    };
    let mut buses: Vec<At<&str>> = Vec::new();
    for (index, (name, span)) in names.iter().enumerate() {
        let key = format!("{}[{index}]", table.key_of("buses"));
        if buses.iter().any(|(earlier, _)| earlier == name) {
            notes.error(
                span,
                key,
                format!("{name:?} is named twice"),
                "name each bus once, the best first",
            );
        } else if BUS_NAMES.contains(name) {
            buses.push((name, span.clone()));
        } else {
            unknown_bus(name, span, key, notes);
        }
    }
    if names.is_empty() {
        let span = table.get("buses").map_or(table.span.clone(), Spanned::span);
        notes.error(
            &span,
            table.key_of("buses"),
            "there is no bus",
            format!("write {BUSES_EXAMPLE}"),
        );
    }
    buses
}

/// `large = { from, buses }`: another order of `known`, the link's buses, for what is large. Those
/// that it does not name follow, in the link's order.
fn large(link: &Fields<'_, '_>, known: &[At<&str>], notes: &mut Notes<'_>) -> Option<Large> {
    let table = Fields::of(link.get("large")?, link.key_of("large"), notes)?;
    table.only(&["from", "buses"], notes);
    for (field, example) in [("from", "from = \"64KiB\""), ("buses", BUSES_EXAMPLE)] {
        if table.get(field).is_none() {
            let problem = format!("`{field}` is missing");
            notes.error(&table.span, &table.key, problem, format!("add {example}"));
        }
    }
    let buses = bus_list(&table, notes);
    for (bus, span) in &buses {
        if !known.iter().any(|(other, _)| other == bus) {
            notes.error(
                span,
                table.key_of("buses"),
                format!("the link has no bus {bus:?}"),
                format!("add {bus:?} to the link's `buses` and give it a table, or remove it here"),
            );
        }
    }
    let from_bytes = table.size("from", 1..=u64::from(u32::MAX), notes)?;
    // With nothing named there is nothing to compare: that has been noted.
    let others = known
        .iter()
        .filter(|(bus, _)| !buses.iter().any(|(other, _)| other == bus));
    let all: Vec<String> = buses
        .iter()
        .chain(others)
        .map(|(bus, _)| bus.to_string())
        .collect();
    if !buses.is_empty() && all.iter().eq(known.iter().map(|(bus, _)| *bus)) {
        let problem = match all.as_slice() {
            [only] => format!("no effect: {only:?} is the link's only bus"),
            _ => "no effect: it is the link's own order".to_string(),
        };
        notes.warning(
            &table.span,
            &table.key,
            problem,
            "name a bus first that the link does not have first, or remove `large`",
        );
    }
    Some(Large {
        from_bytes,
        buses: all,
    })
}

fn unknown_bus(name: &str, span: &Range<usize>, key: String, notes: &mut Notes<'_>) {
    if LATER_BUSES.contains(&name) {
        let mend = format!("use {} for now", one_of(BUS_NAMES.iter().copied()));
        notes.error(span, key, format!("the bus {name:?} is not built yet"), mend);
        return;
    }
    let mend = match nearest(name, BUS_NAMES.iter().copied()) {
        Some(bus) => format!("write {bus:?}"),
        None => format!("write {}", one_of(BUS_NAMES.iter().copied())),
    };
    notes.error(span, key, format!("there is no bus {name:?}"), mend);
}

fn refuse_unknown_keys(link: &Fields<'_, '_>, buses: &[At<&str>], notes: &mut Notes<'_>) {
    for (field, span, _) in link.entries() {
        if KEYS.contains(&field) || buses.iter().any(|(bus, _)| *bus == field) {
            continue;
        }
        if BUS_NAMES.contains(&field) {
            notes.warning(
                &span,
                link.key_of(field),
                format!("the table is not used: `buses` does not name {field:?}"),
                format!("add {field:?} to `buses`, or remove the table"),
            );
        } else {
            let known: Vec<&str> = KEYS.into_iter().chain(BUS_NAMES.iter().copied()).collect();
            crate::read::unknown_key(&link.key_of(field), field, &span, &known, notes);
        }
    }
}
