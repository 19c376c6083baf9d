//! Partitions, ports and channels of an ARINC 653 module, as plain values, from every file format.
//!
//! Contract: everything here has been validated. A channel has one source and destinations of its
//! kind and size, no port is in two channels, and hosts that a channel joins are linked by its bus.
//! Made by [`crate::System::parse`]; used by the ports, the gateway and the command line. Terms are
//! those of ARINC 653 Part 1, section 2.3.5 (interpartition communication).

use std::fmt;

use serde::Serialize;

use crate::execution::Execution;

/// Longest name of a partition, port or channel in bytes: ARINC 653's `MAX_NAME_LENGTH`.
pub const MAX_NAME_BYTES: usize = 32;

/// Largest `max_size` of a port in bytes: `MESSAGE_SIZE_TYPE` is a signed 32-bit integer.
pub const MAX_MESSAGE_BYTES: u32 = i32::MAX as u32;

/// Largest `max_messages` of a queuing port.
pub const MAX_MESSAGES: u32 = 1 << 20;

/// One partition: one or several Linux processes that share its ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Partition {
    /// 1 to [`MAX_NAME_BYTES`] bytes without `/` and control characters; unique in the system.
    pub name: String,
    /// `PARTITION_ID_TYPE`; as in the file, else the smallest free number from 1 on. Two partitions
    /// may have the same one if the file says so, which has been warned of.
    pub id: i32,
    /// Name of one of [`crate::System::hosts`].
    pub host: String,
    /// In the order of the file. Names are unique.
    pub ports: Vec<Port>,
    /// How its processes run.
    pub execution: Execution,
}

/// One port of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// 1 to [`MAX_NAME_BYTES`] bytes without control characters; unique in the partition.
    pub name: String,
    /// Which way messages go.
    pub direction: Direction,
    /// Longest message in bytes, 1 to [`MAX_MESSAGE_BYTES`]; the same at all ports of a channel.
    pub max_size_bytes: u32,
    /// What it does with messages.
    #[serde(flatten)]
    pub kind: PortKind,
}

impl Port {
    /// A port called `name`.
    pub fn new(name: impl Into<String>, direction: Direction, max_size_bytes: u32, kind: PortKind) -> Port {
        Port {
            name: name.into(),
            direction,
            max_size_bytes,
            kind,
        }
    }

    /// `max_size_bytes`, to compare with lengths in memory.
    pub fn max_size(&self) -> usize {
        self.max_size_bytes as usize
    }
}

/// Which way messages go through a port (`PORT_DIRECTION_TYPE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(i32)]
pub enum Direction {
    /// The partition writes or sends.
    Source = 0,
    /// The partition reads or receives.
    Destination = 1,
}

impl fmt::Display for Direction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Direction::Source => "source",
            Direction::Destination => "destination",
        })
    }
}

/// What a port does with messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum PortKind {
    /// The latest message only.
    Sampling {
        /// Age in nanoseconds up to which a message is valid, 1 to `i64::MAX`. Always there at a
        /// destination; at a source it is what the file says, if anything, and means nothing.
        refresh_period_ns: Option<u64>,
        /// Least time in nanoseconds between the beginnings of two writes; only at a source.
        min_write_interval_ns: Option<u64>,
    },
    /// Every message, in order.
    Queuing {
        /// Messages that the port holds, 1 to [`MAX_MESSAGES`].
        max_messages: u32,
        /// In which order waiting processes are served: a program that creates the port must ask
        /// for this one; `None`: as it asks.
        discipline: Option<Discipline>,
    },
}

impl PortKind {
    /// Sampling, without periods.
    pub const SAMPLING: PortKind = PortKind::Sampling {
        refresh_period_ns: None,
        min_write_interval_ns: None,
    };

    /// Queuing, for `max_messages`, with the discipline that the program asks for.
    pub const fn queuing(max_messages: u32) -> PortKind {
        PortKind::Queuing {
            max_messages,
            discipline: None,
        }
    }

    /// `sampling` or `queuing`.
    pub fn name(&self) -> &'static str {
        match self {
            PortKind::Sampling { .. } => "sampling",
            PortKind::Queuing { .. } => "queuing",
        }
    }

    /// Whether it keeps the latest message only.
    pub fn is_sampling(&self) -> bool {
        matches!(self, PortKind::Sampling { .. })
    }

    /// How many messages a queuing port holds.
    pub fn max_messages(&self) -> Option<usize> {
        match self {
            PortKind::Sampling { .. } => None,
            PortKind::Queuing { max_messages, .. } => Some(*max_messages as usize),
        }
    }
}

/// In which order processes that wait for a queuing port are served (`QUEUING_DISCIPLINE_TYPE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(i32)]
pub enum Discipline {
    /// Who waited longest.
    Fifo = 0,
    /// The highest priority, then who waited longest.
    Priority = 1,
}

/// A port by its place in [`crate::System::partitions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct PortRef {
    /// Index in [`crate::System::partitions`].
    pub partition: usize,
    /// Index in [`Partition::ports`].
    pub port: usize,
}

/// One source port and the destination ports that get what is written into it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Channel {
    /// Unique in the system; the source as `PARTITION/PORT` where the file gives no name of its
    /// own.
    pub name: String,
    /// The source port.
    pub source: PortRef,
    /// At least one, all of the source's kind and size.
    pub destinations: Vec<PortRef>,
    /// The buses that may carry it between hosts, the best first, whatever its length; empty: all
    /// of the links, in their order.
    pub buses: Vec<String>,
    /// Slots of the register of a sampling channel, 3 to 4096; `None` for a queuing channel. Every
    /// host computes the same.
    pub slots: Option<u32>,
    /// What happens to a message for a full queue; `None` for a sampling channel. Every host
    /// computes the same.
    pub when_full: Option<WhenFull>,
    /// Index in [`crate::System::lanes`] of the lane on which gateways move its messages: 0, the
    /// default lane, where the file names none.
    pub lane: usize,
    /// Whether the file gives `slots`, and not [`crate::slots::default_slots`].
    pub slots_from_file: bool,
}

/// What happens to a message for a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The sender waits until every destination has room, or its time-out passes. No message is
    /// lost. The default with one destination.
    Wait,
    /// The full destination loses the message, counts it, and its next receive returns
    /// `INVALID_CONFIG`. The others get the message, the sender never waits. The default with
    /// several destinations.
    Overflow,
}

/// How hosts that a link joins compare times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The link estimates the offset of the two clocks itself, and how far off it may be: validity
    /// takes that into account.
    #[default]
    Estimated,
    /// Both hosts' clocks are kept together from outside (PTP): `CLOCK_TAI` stamps are compared as
    /// they are.
    Ptp,
}
