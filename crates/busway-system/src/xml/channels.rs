//! `Connection_Table` with its `Channel`s.

use std::collections::HashMap;

use super::tree::Element;
use super::{extension, partitions, spot, unknown};
use crate::diagnostic::Notes;
use crate::parse::draft::{Draft, DraftChannel, DraftEnd, DraftPartition, check_name};

const READ: [&str; 2] = ["Source", "Destination"];
const ENDS: [&str; 2] = ["Standard_Partition", "Pseudo_Partition"];

/// Reads a table; partitions have been read.
pub(super) fn read(table: &Element<'_>, draft: &mut Draft, notes: &mut Notes<'_>) {
    let mut identifiers = HashMap::new();
    for child in table.children() {
        if child.name() != "Channel" || child.is_foreign() {
            unknown(&child, table.name(), &["Channel"], notes);
            continue;
        }
        let channel = channel(&child, &draft.partitions, &mut identifiers, notes);
        draft.channels.push(channel);
    }
}

fn channel(
    element: &Element<'_>,
    partitions: &[DraftPartition],
    identifiers: &mut HashMap<i32, String>,
    notes: &mut Notes<'_>,
) -> DraftChannel {
    let known = ["ChannelIdentifier", "ChannelName", "Name", "Identifier"];
    element.only(element.name(), &known, notes);
    let name = element.attribute(&["ChannelName", "Name"], element.name());
    let identifier = element.attribute(&["ChannelIdentifier", "Identifier"], element.name());
    let called = name.as_ref().or(identifier.as_ref());
    let key = match called {
        Some(attribute) => format!("{}[{}]", element.name(), attribute.value),
        None => element.name().to_string(),
    };
    if let Some(attribute) = &identifier
        && let Some(id) = partitions::identifier_of(attribute, notes)
    {
        if let Some(owner) = identifiers.get(&id) {
            // Public examples of AIR do this; nothing goes by it.
            notes.warning_at(
                &attribute.spot.place,
                format!("{key}/@{}", attribute.name),
                format!("{owner} has the identifier {id} too"),
                "give each channel an identifier of its own",
            );
        }
        identifiers.entry(id).or_insert_with(|| key.clone());
    }
    let name = name.and_then(|name| {
        check_name(name.value, "channel", &name.spot, notes).then(|| (name.value.to_string(), name.spot))
    });
    let mut channel = DraftChannel {
        name,
        spot: spot(element, &key),
        ..DraftChannel::default()
    };
    ends(element, &key, partitions, &mut channel, notes);
    channel
}

fn ends(
    element: &Element<'_>,
    key: &str,
    partitions: &[DraftPartition],
    channel: &mut DraftChannel,
    notes: &mut Notes<'_>,
) {
    let mut sources = 0;
    for child in element.children() {
        let name = child.name();
        if child.namespace() == extension::NAMESPACE && name == "Bus" {
            let bus = extension::bus(&child, key, notes);
            channel.bus = bus.name;
            channel.lane = bus.lane;
            channel.slots = bus.slots;
            continue;
        }
        if child.namespace() == extension::NAMESPACE && name == "Queue" {
            channel.when_full = extension::queue(&child, key, notes);
            continue;
        }
        if child.is_foreign() || !READ.contains(&name) {
            let known = if child.is_foreign() {
                &["Bus", "Queue"][..]
            } else {
                &READ
            };
            unknown(&child, key, known, notes);
            continue;
        }
        let side = format!("{key}/{name}");
        for end in child.children() {
            let found = end_of(&end, &side, partitions, notes);
            channel.ends_elsewhere |= found.is_none();
            if name == "Destination" {
                channel.destinations.extend(found);
                continue;
            }
            sources += 1;
            if sources == 1 {
                channel.source = found;
            } else {
                notes.error_at(
                    &end.place(),
                    &side,
                    "a channel has one source",
                    "remove this one, or give it a channel of its own",
                );
            }
        }
    }
    if sources == 0 {
        notes.error_at(
            &element.place(),
            key,
            "the channel has no source",
            "add <Source> with a <Standard_Partition PartitionName=\"..\" PortName=\"..\"/>",
        );
    }
}

/// A port of this module; `None` for everything else, which has been noted.
fn end_of(
    element: &Element<'_>,
    side: &str,
    partitions: &[DraftPartition],
    notes: &mut Notes<'_>,
) -> Option<DraftEnd> {
    let key = format!("{side}/{}", element.name());
    match element.name() {
        "Standard_Partition" => {}
        "Pseudo_Partition" | "UDP" => {
            notes.warning_at(
                &element.place(),
                key,
                format!(
                    "<{}> lies outside of this module: Busway carries nothing there",
                    element.name()
                ),
                "leave it, or describe that partition in this system",
            );
            return None;
        }
        _ => {
            unknown(element, side, &ENDS, notes);
            return None;
        }
    }
    let known = [
        "PartitionIdentifier",
        "PartitionName",
        "PortName",
        "PhysicalAddress",
        "Procedure",
        "Mode",
    ];
    element.only(&key, &known, notes);
    let port = element.required(&["PortName"], "ATTITUDE", &key, notes);
    let partition = partition_of(element, &key, partitions, notes)?;
    let port = port?;
    Some(DraftEnd {
        partition,
        port: port.value.to_string(),
        spot: port.spot,
    })
}

/// The name of the partition, which may be given by its identifier alone.
pub(super) fn partition_of(
    element: &Element<'_>,
    key: &str,
    partitions: &[DraftPartition],
    notes: &mut Notes<'_>,
) -> Option<String> {
    let identifier = element.attribute(&["PartitionIdentifier"], key);
    let id = identifier
        .as_ref()
        .and_then(|attribute| partitions::identifier_of(attribute, notes));
    if let Some(name) = element.attribute(&["PartitionName"], key) {
        let named = partitions.iter().find(|partition| partition.name == name.value);
        if let (Some(id), Some(named), Some(attribute)) = (id, named, &identifier)
            && named.id.is_some_and(|own| own != id)
        {
            notes.warning_at(
                &attribute.spot.place,
                &attribute.spot.key,
                format!(
                    "partition {:?} has the identifier {}, not {id}",
                    name.value,
                    named.id.unwrap_or_default()
                ),
                "correct one of the two: the name counts",
            );
        }
        return Some(name.value.to_string());
    }
    let Some(attribute) = identifier else {
        element.required(&["PartitionName"], "navigation", key, notes);
        return None;
    };
    let named = partitions
        .iter()
        .find(|partition| id.is_some() && partition.id == id);
    if named.is_none() {
        attribute.refuse(
            "is no partition's identifier",
            "write that of a partition of this module",
            notes,
        );
    }
    named.map(|partition| partition.name.clone())
}
