//! `[[partition]]` and the ports in it, `[[channel]]`.

use super::execution;
use crate::diagnostic::Notes;
use crate::parse::draft::{Draft, DraftChannel, DraftEnd, DraftPartition, DraftPort, Spot, check_name};
use crate::parse::links::bus_list;
use crate::ports::{Direction, Discipline, MAX_MESSAGE_BYTES, MAX_MESSAGES, Port, PortKind, WhenFull};
use crate::read::{At, Fields};
use crate::slots::{MAX_SLOTS, MIN_SLOTS};

const PARTITION_KEYS: [&str; 5] = ["name", "host", "id", "ports", "port"];
const PORT_KEYS: [&str; 8] = [
    "name",
    "kind",
    "direction",
    "max_size",
    "refresh_period",
    "min_write_interval",
    "max_messages",
    "discipline",
];
const CHANNEL_KEYS: [&str; 8] = [
    "name",
    "source",
    "destinations",
    "bus",
    "buses",
    "lane",
    "slots",
    "when_full",
];

const DIRECTIONS: [(&str, Direction); 2] = [
    ("source", Direction::Source),
    ("destination", Direction::Destination),
];
const DISCIPLINES: [(&str, Discipline); 2] = [("fifo", Discipline::Fifo), ("priority", Discipline::Priority)];

const WHEN_FULL: [(&str, WhenFull); 2] = [("wait", WhenFull::Wait), ("overflow", WhenFull::Overflow)];

/// Keys of a port, with what they mean something for.
const SAMPLING_ONLY: [&str; 2] = ["refresh_period", "min_write_interval"];
const QUEUING_ONLY: [&str; 2] = ["max_messages", "discipline"];

pub(super) fn read(root: &Fields<'_, '_>, draft: &mut Draft, notes: &mut Notes<'_>) {
    for table in root.tables("partition", notes) {
        draft.partitions.extend(partition(&table, notes));
    }
    for table in root.tables("channel", notes) {
        draft.channels.push(channel(&table, notes));
    }
}

fn partition(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Option<DraftPartition> {
    let known: Vec<&str> = PARTITION_KEYS.into_iter().chain(execution::KEYS).collect();
    table.only(&known, notes);
    let mut ports = Vec::new();
    for field in ["ports", "port"] {
        for port_table in table.tables(field, notes) {
            ports.extend(port(&port_table, notes));
        }
    }
    let id = table
        .number("id", 0..=i64::from(i32::MAX), notes)
        .and_then(|id| i32::try_from(id).ok());
    let host = table.get("host").and_then(|_| {
        let (host, span) = table.required("host", "vision", notes)?;
        Some((host.to_string(), Spot::new(span, table.key_of("host"))))
    });
    let (name, spot) = name(table, "partition", "navigation", notes)?;
    Some(DraftPartition {
        name,
        id,
        host,
        ports,
        execution: execution::read(table, notes),
        spot,
    })
}

fn name(table: &Fields<'_, '_>, what: &str, example: &str, notes: &mut Notes<'_>) -> Option<(String, Spot)> {
    let (name, span) = table.required("name", example, notes)?;
    let spot = Spot::new(span, table.key_of("name"));
    check_name(name, what, &spot, notes);
    Some((name.to_string(), spot))
}

fn port(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Option<DraftPort> {
    let before = notes.error_count();
    table.only(&PORT_KEYS, notes);
    let sampling = needed(table, "kind", "sampling", notes)
        .then(|| table.word("kind", &[("sampling", true), ("queuing", false)], notes))
        .flatten();
    let direction = needed(table, "direction", "source", notes)
        .then(|| table.word("direction", &DIRECTIONS, notes))
        .flatten();
    if table.get("max_size").is_none() {
        missing(table, "max_size", "64", notes);
    }
    let max_size_bytes = table
        .size("max_size", 1..=u64::from(MAX_MESSAGE_BYTES), notes)
        .and_then(|bytes| u32::try_from(bytes).ok());
    let direction = direction.unwrap_or(Direction::Source);
    let kind = match sampling {
        Some(false) => queuing(table, notes),
        Some(true) => sampling_kind(table, direction, notes),
        None => PortKind::Sampling {
            refresh_period_ns: None,
            min_write_interval_ns: None,
        },
    };
    let (name, spot) = name(table, "port", "ATTITUDE", notes)?;
    Some(DraftPort {
        port: Port {
            name,
            direction,
            max_size_bytes: max_size_bytes.unwrap_or(1),
            kind,
        },
        sound: notes.error_count() == before,
        spot,
    })
}

fn sampling_kind(table: &Fields<'_, '_>, direction: Direction, notes: &mut Notes<'_>) -> PortKind {
    refuse(table, &QUEUING_ONLY, "a queuing port", notes);
    if direction == Direction::Destination {
        if table.get("refresh_period").is_none() {
            missing(table, "refresh_period", "\"20ms\"", notes);
        }
        refuse(
            table,
            &["min_write_interval"],
            "the source port, which is written",
            notes,
        );
    }
    PortKind::Sampling {
        refresh_period_ns: table.duration_ns("refresh_period", notes),
        min_write_interval_ns: table.duration_ns("min_write_interval", notes),
    }
}

fn queuing(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> PortKind {
    refuse(table, &SAMPLING_ONLY, "a sampling port", notes);
    if table.get("max_messages").is_none() {
        missing(table, "max_messages", "16", notes);
    }
    PortKind::Queuing {
        max_messages: table
            .number("max_messages", 1..=i64::from(MAX_MESSAGES), notes)
            .and_then(|messages| u32::try_from(messages).ok())
            .unwrap_or(1),
        discipline: table.word("discipline", &DISCIPLINES, notes),
    }
}

/// Notes keys that belong to something else.
fn refuse(table: &Fields<'_, '_>, fields: &[&str], owner: &str, notes: &mut Notes<'_>) {
    for (field, span, _) in table.entries() {
        if fields.contains(&field) {
            notes.error(
                &span,
                table.key_of(field),
                format!("`{field}` belongs to {owner}"),
                format!("remove `{field}`"),
            );
        }
    }
}

pub(super) fn missing(table: &Fields<'_, '_>, field: &str, example: &str, notes: &mut Notes<'_>) {
    notes.error(
        &table.span,
        &table.key,
        format!("`{field}` is missing"),
        format!("add {field} = {example}"),
    );
}

/// Whether a text is there; notes it if not.
fn needed(table: &Fields<'_, '_>, field: &str, example: &str, notes: &mut Notes<'_>) -> bool {
    let there = table.get(field).is_some();
    if !there {
        missing(table, field, &format!("{example:?}"), notes);
    }
    there
}

fn channel(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> DraftChannel {
    table.only(&CHANNEL_KEYS, notes);
    let source = source(table, notes).and_then(|at| end(at, table.key_of("source"), notes));
    if table.get("destinations").is_none() {
        missing(table, "destinations", "[\"PARTITION/PORT\"]", notes);
    }
    let written = table.texts("destinations", "[\"navigation/ATTITUDE\"]", notes);
    let unreadable = source.is_none() || written.is_none();
    let count = written.as_ref().map_or(0, Vec::len);
    let destinations: Vec<DraftEnd> = written
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(index, at)| end(at, format!("{}[{index}]", table.key_of("destinations")), notes))
        .collect();
    DraftChannel {
        name: table
            .get("name")
            .and_then(|_| name(table, "channel", "attitude", notes)),
        source,
        ends_elsewhere: unreadable || destinations.len() < count,
        destinations,
        bus: text(table, "bus", "memory", notes),
        buses: buses(table, notes),
        lane: text(table, "lane", "control-loop", notes),
        slots: slots(table, notes),
        when_full: table.get("when_full").and_then(|value| {
            let found = table.word("when_full", &WHEN_FULL, notes)?;
            Some((found, Spot::new(value.span(), table.key_of("when_full"))))
        }),
        spot: Spot::new(table.span.clone(), &table.key),
    }
}

/// A text that need not be there.
fn text(table: &Fields<'_, '_>, field: &str, example: &str, notes: &mut Notes<'_>) -> Option<(String, Spot)> {
    table.get(field)?;
    let (text, span) = table.required(field, example, notes)?;
    Some((text.to_string(), Spot::new(span, table.key_of(field))))
}

/// The order of buses.
fn buses(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Vec<(String, Spot)> {
    if let (Some(value), Some(_)) = (table.get("buses"), table.get("bus")) {
        let problem = "stands beside `bus`, which names the only one";
        notes.error(
            &value.span(),
            table.key_of("buses"),
            problem,
            "remove one of the two",
        );
    }
    let named = bus_list(table, notes).into_iter();
    named
        .map(|(bus, span)| (bus.to_string(), Spot::new(span, table.key_of("buses"))))
        .collect()
}

fn slots(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Option<(u32, Spot)> {
    let slots = table.number("slots", i64::from(MIN_SLOTS)..=i64::from(MAX_SLOTS), notes)?;
    let span = table.get("slots")?.span();
    Some((u32::try_from(slots).ok()?, Spot::new(span, table.key_of("slots"))))
}

fn source<'a>(table: &Fields<'a, '_>, notes: &mut Notes<'_>) -> Option<At<&'a str>> {
    let value = table.get("source");
    if let Some(list) = value.filter(|value| value.get_ref().is_array()) {
        notes.error(
            &list.span(),
            table.key_of("source"),
            "a channel has one source",
            "write source = \"PARTITION/PORT\", and a channel for each source",
        );
        return None;
    }
    table.required("source", "sensors/ATTITUDE_OUT", notes)
}

fn end((text, span): At<&str>, key: String, notes: &mut Notes<'_>) -> Option<DraftEnd> {
    let Some((partition, port)) = text.split_once('/') else {
        notes.error(
            &span,
            key,
            format!("{text:?} names no port"),
            "write \"PARTITION/PORT\", such as \"navigation/ATTITUDE\"",
        );
        return None;
    };
    Some(DraftEnd {
        partition: partition.to_string(),
        port: port.to_string(),
        spot: Spot::new(span, key),
    })
}
