//! What the readers of TOML and of XML find, before names are looked up: the one input of
//! [`super::connect`].
//!
//! Contract: its reader has checked and reported each thing by itself; places and keys are kept for
//! what can only be checked together.

use crate::System;
use crate::diagnostic::{Notes, SourceSpan};
use crate::ports::{Channel, MAX_NAME_BYTES, Port, WhenFull};

/// Everything found in a system file and in the module file that it includes.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) partitions: Vec<DraftPartition>,
    pub(crate) channels: Vec<DraftChannel>,
}

impl Draft {
    /// What was written of a channel; by its source, which no other channel has.
    pub(crate) fn written(&self, system: &System, channel: &Channel) -> Option<&DraftChannel> {
        let partition = &system.partitions[channel.source.partition];
        let source = (partition.name.as_str(), system.port(channel.source).name.as_str());
        self.channels.iter().find(|written| {
            let end = written.source.as_ref();
            end.is_some_and(|end| (end.partition.as_str(), end.port.as_str()) == source)
        })
    }
}

/// Where something stands, and how it is called in messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spot {
    pub(crate) place: SourceSpan,
    pub(crate) key: String,
}

impl Spot {
    pub(crate) fn new(place: impl Into<SourceSpan>, key: impl Into<String>) -> Spot {
        Spot {
            place: place.into(),
            key: key.into(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct DraftPartition {
    pub(crate) name: String,
    pub(crate) id: Option<i32>,
    pub(crate) host: Option<(String, Spot)>,
    pub(crate) ports: Vec<DraftPort>,
    pub(crate) spot: Spot,
}

#[derive(Debug)]
pub(crate) struct DraftPort {
    pub(crate) port: Port,
    /// Whether all of it could be read; if not, what follows from it would only confuse.
    pub(crate) sound: bool,
    pub(crate) spot: Spot,
}

#[derive(Debug, Default)]
pub(crate) struct DraftChannel {
    pub(crate) name: Option<(String, Spot)>,
    /// `None`: unreadable, or outside of the system.
    pub(crate) source: Option<DraftEnd>,
    pub(crate) destinations: Vec<DraftEnd>,
    /// Whether an end could not be read or lies outside of the system: then a channel without ends
    /// is no mistake of its own.
    pub(crate) ends_elsewhere: bool,
    /// The only bus that may carry it.
    pub(crate) bus: Option<(String, Spot)>,
    /// The buses that may carry it, the best first; empty if `bus` says it, or nothing does.
    pub(crate) buses: Vec<(String, Spot)>,
    pub(crate) slots: Option<(u32, Spot)>,
    pub(crate) when_full: Option<(WhenFull, Spot)>,
    pub(crate) lane: Option<(String, Spot)>,
    pub(crate) spot: Spot,
}

impl DraftChannel {
    /// The buses that may carry it, the best first, by either key; none: all of the links.
    pub(crate) fn wanted_buses(&self) -> impl Iterator<Item = &(String, Spot)> {
        self.buses.iter().chain(&self.bus)
    }
}

/// The name of a port that a channel joins.
#[derive(Debug)]
pub(crate) struct DraftEnd {
    pub(crate) partition: String,
    pub(crate) port: String,
    pub(crate) spot: Spot,
}

/// Notes what is wrong with the name of a partition, port or channel. Whether it is right.
pub(crate) fn check_name(name: &str, what: &str, spot: &Spot, notes: &mut Notes<'_>) -> bool {
    let problem = if name.is_empty() {
        format!("the {what} has an empty name")
    } else if name.len() > MAX_NAME_BYTES {
        format!("the name {name:?} has {} bytes", name.len())
    } else if name.chars().any(char::is_control) {
        format!("the name {name:?} has a control character")
    } else if what == "partition" && name.contains('/') {
        format!("the name {name:?} has a `/`, which parts partition and port")
    } else {
        return true;
    };
    notes.error_at(
        &spot.place,
        &spot.key,
        problem,
        format!("write 1 to {MAX_NAME_BYTES} bytes, as ARINC 653 has it"),
    );
    false
}
