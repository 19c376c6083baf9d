//! `Partition` with its `Sampling_Port`s and `Queuing_Port`s.

use super::tree::{Attribute, Element, number};
use super::{extension, health, spot, unknown};
use crate::diagnostic::{Notes, nearest, one_of};
use crate::parse::draft::{DraftExecution, DraftPartition, DraftPort, Spot, check_name};
use crate::ports::{Direction, Discipline, MAX_MESSAGE_BYTES, MAX_MESSAGES, Port, PortKind};

/// What a partition holds that is not about ports.
const SKIPPED: [&str; 12] = [
    "Process",
    "PartitionConfiguration",
    "Memory",
    "Memory_Regions",
    "Memory_Blocks",
    "Threads",
    "ARINC653_Buffers",
    "ARINC653_Blackboards",
    "ARINC653_Events",
    "ARINC653_Semaphores",
    "Error_Handler",
    "PartitionAccess",
];

const READ: [&str; 5] = [
    "Sampling_Port",
    "Queuing_Port",
    "ARINC653_Ports",
    "Definition",
    "HM_Table",
];

const NAMES: [&str; 2] = ["PartitionName", "Name"];
const IDENTIFIERS: [&str; 2] = ["PartitionIdentifier", "Identifier"];
const PARTITION_ATTRIBUTES: [&str; 10] = [
    "PartitionIdentifier",
    "PartitionName",
    "Identifier",
    "Name",
    "Criticality",
    "SystemPartition",
    "System",
    "EntryPoint",
    "Period",
    "Duration",
];

pub(super) fn read(element: &Element<'_>, notes: &mut Notes<'_>) -> Option<DraftPartition> {
    let anonymous = element.name().to_string();
    element.only(&anonymous, &PARTITION_ATTRIBUTES, notes);
    let definition = element.children().find(|child| child.name() == "Definition");
    if let Some(definition) = &definition {
        definition.only(&format!("{anonymous}/Definition"), &PARTITION_ATTRIBUTES, notes);
    }
    let said = |names: &[&'static str]| {
        element.attribute(names, &anonymous).or_else(|| {
            definition
                .as_ref()
                .and_then(|definition| definition.attribute(names, &anonymous))
        })
    };
    let identifier = said(&IDENTIFIERS);
    let id = identifier.as_ref().and_then(|id| identifier_of(id, notes));
    // The schema lets the name be absent; then the identifier is the name.
    let Some(name) = said(&NAMES).or(identifier) else {
        notes.error_at(
            &element.place(),
            &anonymous,
            format!("<{}> has no `PartitionName`", element.name()),
            "add PartitionIdentifier=\"1\" PartitionName=\"navigation\"",
        );
        return None;
    };
    check_name(name.value, "partition", &name.spot, notes);
    let key = format!("{anonymous}[{}]", name.value);
    let mut partition = DraftPartition {
        name: name.value.to_string(),
        id,
        host: None,
        ports: Vec::new(),
        execution: DraftExecution::default(),
        spot: Spot {
            key: format!("{key}/@{}", name.name),
            ..name.spot
        },
    };
    walk(element, &key, &mut partition, true, notes);
    Some(partition)
}

fn walk(
    parent: &Element<'_>,
    key: &str,
    partition: &mut DraftPartition,
    is_partition: bool,
    notes: &mut Notes<'_>,
) {
    for child in parent.children() {
        match child.name() {
            "Place" if child.namespace() == extension::NAMESPACE && is_partition => {
                partition.host = extension::place(&child, key, notes).or(partition.host.take());
            }
            _ if child.is_foreign() => unknown(&child, key, &["Place"], notes),
            "Sampling_Port" => partition.ports.extend(port(&child, key, true, notes)),
            "Queuing_Port" | "Queueing_Port" => partition.ports.extend(port(&child, key, false, notes)),
            // One level: ports stand nowhere deeper.
            "ARINC653_Ports" if is_partition => walk(&child, key, partition, false, notes),
            "Definition" if is_partition => {}
            "HM_Table" if is_partition => health::of_partition(&child, &mut partition.execution, notes),
            name if SKIPPED.contains(&name) => {}
            _ => unknown(&child, key, &READ, notes),
        }
    }
}

/// A partition's, channel's or schedule's identifier.
pub(super) fn identifier_of(attribute: &Attribute<'_>, notes: &mut Notes<'_>) -> Option<i32> {
    let id = attribute.number().and_then(|number| i32::try_from(number).ok());
    if id.is_none() {
        attribute.refuse(
            "is no identifier",
            format!("write a whole number from 0 to {}", i32::MAX),
            notes,
        );
    }
    id
}

fn port(
    element: &Element<'_>,
    partition: &str,
    is_sampling: bool,
    notes: &mut Notes<'_>,
) -> Option<DraftPort> {
    let before = notes.error_count();
    let nameless = format!("{partition}/{}", element.name());
    let name = element.required(&["Name", "PortName"], "ATTITUDE", &nameless, notes)?;
    let key = format!("{nameless}[{}]", name.value);
    let spot = Spot {
        key: format!("{key}/@{}", name.name),
        ..name.spot
    };
    check_name(name.value, "port", &spot, notes);
    let direction = direction(element, &key, notes);
    let size = element.required(&["MaxMessageSize"], "64", &key, notes);
    let max_size_bytes = size.and_then(|size| size_of(&size, notes));
    let interval = extensions(
        element,
        &key,
        is_sampling && direction == Some(Direction::Source),
        notes,
    );
    let kind = if is_sampling {
        sampling(element, &key, direction, interval, notes)
    } else {
        queuing(element, &key, notes)
    };
    Some(DraftPort {
        port: Port {
            name: name.value.to_string(),
            direction: direction.unwrap_or(Direction::Source),
            max_size_bytes: max_size_bytes.unwrap_or(1),
            kind,
        },
        sound: notes.error_count() == before,
        spot,
    })
}

/// The least interval between writes, if the port says it.
fn extensions(
    element: &Element<'_>,
    key: &str,
    is_sampling_source: bool,
    notes: &mut Notes<'_>,
) -> Option<u64> {
    let mut interval = None;
    for child in element.children() {
        if !extension::is(&child, "Rate", key, notes) {
            continue;
        }
        interval = extension::rate(&child, key, notes);
        if !is_sampling_source {
            let at = spot(&child, &format!("{key}/Rate"));
            notes.error_at(
                &at.place,
                &at.key,
                "only the source of a sampling channel has a rate",
                "move <Rate> to the source port",
            );
        }
    }
    interval
}

fn direction(element: &Element<'_>, key: &str, notes: &mut Notes<'_>) -> Option<Direction> {
    let words = ["SOURCE", "DESTINATION"];
    let attribute = element.required(&["Direction"], "SOURCE", key, notes)?;
    match attribute.value {
        "SOURCE" => Some(Direction::Source),
        "DESTINATION" => Some(Direction::Destination),
        other => {
            let mend = match nearest(&other.to_uppercase(), words) {
                Some(word) => format!("write {word:?}"),
                None => format!("write {}", one_of(words)),
            };
            attribute.refuse("is no direction", mend, notes);
            None
        }
    }
}

fn sampling(
    element: &Element<'_>,
    key: &str,
    direction: Option<Direction>,
    min_write_interval_ns: Option<u64>,
    notes: &mut Notes<'_>,
) -> PortKind {
    const REFRESH: [&str; 3] = ["RefreshRateSeconds", "RefreshPeriodSeconds", "Refresh"];
    let mut known = vec!["Name", "PortName", "MaxMessageSize", "Direction", "Protocol"];
    known.extend(REFRESH);
    element.only(key, &known, notes);
    let is_destination = direction == Some(Direction::Destination);
    let attribute = if is_destination {
        element.required(&REFRESH, "0.02", key, notes)
    } else {
        element.attribute(&REFRESH, key)
    };
    let refresh_period_ns = attribute.and_then(|attribute| {
        let ns = if attribute.name == "Refresh" {
            refresh_ns(&attribute, notes)
        } else {
            seconds_ns(&attribute, notes)
        }?;
        if ns == 0 && is_destination {
            attribute.refuse(
                "would make every message invalid",
                "write more than 0, such as \"0.02\"",
                notes,
            );
        }
        (ns > 0).then_some(ns)
    });
    PortKind::Sampling {
        refresh_period_ns,
        min_write_interval_ns,
    }
}

fn queuing(element: &Element<'_>, key: &str, notes: &mut Notes<'_>) -> PortKind {
    const DEPTH: [&str; 2] = ["MaxNbMessages", "MaxNbMessage"];
    const DISCIPLINE: [&str; 2] = ["Discipline", "QueuingDiscipline"];
    let mut known = vec!["Name", "PortName", "MaxMessageSize", "Direction", "Protocol"];
    known.extend(DEPTH);
    known.extend(DISCIPLINE);
    element.only(key, &known, notes);
    let max_messages = element.required(&DEPTH, "16", key, notes).and_then(|attribute| {
        let messages = attribute.number().and_then(|number| u32::try_from(number).ok());
        let good = messages.filter(|messages| (1..=MAX_MESSAGES).contains(messages));
        if good.is_none() {
            let right = format!("write a whole number from 1 to {MAX_MESSAGES}");
            attribute.refuse("is no number of messages", right, notes);
        }
        good
    });
    let discipline = element.attribute(&DISCIPLINE, key).and_then(|attribute| {
        let found = match attribute.value.to_ascii_uppercase().as_str() {
            "FIFO" => Some(Discipline::Fifo),
            "PRIORITY" => Some(Discipline::Priority),
            _ => None,
        };
        if found.is_none() {
            attribute.refuse("is no discipline", "write \"FIFO\" or \"PRIORITY\"", notes);
        }
        found
    });
    PortKind::Queuing {
        max_messages: max_messages.unwrap_or(1),
        discipline,
    }
}

/// Bytes: decimal or hexadecimal, with `K` or `M` behind it for 2^10 or 2^20 as in JetOS.
fn size_of(attribute: &Attribute<'_>, notes: &mut Notes<'_>) -> Option<u32> {
    let text = attribute.value;
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'K')) => (&text[..at], 1 << 10),
        Some((at, 'M')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let bytes = number(digits)
        .and_then(|number| number.checked_mul(factor))
        .and_then(|bytes| u32::try_from(bytes).ok())
        .filter(|bytes| (1..=MAX_MESSAGE_BYTES).contains(bytes));
    if bytes.is_none() {
        let right = format!("write 1 to {MAX_MESSAGE_BYTES} bytes, such as \"64\", \"0x40\" or \"4K\"");
        attribute.refuse("is no size of a message", right, notes);
    }
    bytes
}

/// Seconds with a fraction, in nanoseconds (rounded to the nearest), 0 to `i64::MAX`.
pub(super) fn seconds_ns(attribute: &Attribute<'_>, notes: &mut Notes<'_>) -> Option<u64> {
    let seconds: Option<f64> = attribute.value.parse().ok();
    let ns = seconds.map(|seconds| (seconds * 1e9).round());
    // 2^63 is exact as a float; a NaN is in no range.
    let good = ns.filter(|ns| (0.0..9_223_372_036_854_775_808.0).contains(ns));
    if good.is_none() {
        attribute.refuse("is no time in seconds", "write for example \"0.02\"", notes);
    }
    good.map(|ns| ns as u64)
}

/// JetOS: whole seconds, milliseconds or nanoseconds by their unit; without one, nanoseconds.
pub(super) fn refresh_ns(attribute: &Attribute<'_>, notes: &mut Notes<'_>) -> Option<u64> {
    let text = attribute.value;
    let units = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("", 1),
    ];
    let (digits, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
    let ns = number(digits.trim_end())
        .and_then(|number| number.checked_mul(factor))
        .filter(|ns| i64::try_from(*ns).is_ok());
    if ns.is_none() {
        attribute.refuse("is no time", "write for example \"20ms\" or \"1s\"", notes);
    }
    ns
}
