//! What the readers of TOML and of XML find, before names are looked up: the one input of
//! [`super::connect`].
//!
//! Contract: its reader has checked and reported each thing by itself; places and keys are kept for
//! what can only be checked together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::System;
use crate::diagnostic::{Notes, SourceSpan};
use crate::execution::{Fault, FaultAction};
use crate::ports::{Channel, MAX_NAME_BYTES, Port, WhenFull};

/// Everything found in a system file and in the module file that it includes.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) partitions: Vec<DraftPartition>,
    pub(crate) channels: Vec<DraftChannel>,
    /// The major frame of an XML file's schedule, in ns, for hosts that give none themselves.
    pub(crate) major_frame: Option<(u64, Spot)>,
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
    pub(crate) execution: DraftExecution,
    pub(crate) spot: Spot,
}

/// What is written about the execution of a partition.
#[derive(Debug, Default)]
pub(crate) struct DraftExecution {
    pub(crate) command: Option<(Vec<String>, Spot)>,
    pub(crate) directory: Option<(PathBuf, Spot)>,
    pub(crate) environment: Option<(BTreeMap<String, String>, Spot)>,
    pub(crate) processors: Option<(Vec<usize>, Spot)>,
    pub(crate) policy: Option<(PolicyName, Spot)>,
    pub(crate) priority: Option<(u8, Spot)>,
    pub(crate) windows: Vec<DraftWindow>,
    /// The partition's period in ns, where an XML file says it.
    pub(crate) period_ns: Option<u64>,
    /// By [`Fault`]; `None`: the default.
    pub(crate) on_fault: [Option<FaultAction>; Fault::ALL.len()],
    pub(crate) restart_limit: Option<u32>,
}

impl DraftExecution {
    /// Replaces what `over` says too.
    pub(crate) fn replace_by(&mut self, over: DraftExecution) {
        fn replace<T>(own: &mut Option<T>, over: Option<T>) {
            if over.is_some() {
                *own = over;
            }
        }
        replace(&mut self.command, over.command);
        replace(&mut self.directory, over.directory);
        replace(&mut self.environment, over.environment);
        replace(&mut self.processors, over.processors);
        replace(&mut self.policy, over.policy);
        replace(&mut self.priority, over.priority);
        replace(&mut self.restart_limit, over.restart_limit);
        if !over.windows.is_empty() {
            self.windows = over.windows;
            self.period_ns = None;
        }
        for (own, over) in self.on_fault.iter_mut().zip(over.on_fault) {
            replace(own, over);
        }
    }
}

/// A scheduling policy without its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyName {
    Other,
    Fifo,
    RoundRobin,
}

/// A window as it is written: repeated with `period_ns`, if there is one.
#[derive(Debug)]
pub(crate) struct DraftWindow {
    pub(crate) offset_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) period_ns: Option<u64>,
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
