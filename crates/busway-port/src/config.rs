//! What a module consists of: the input of this crate, as plain data.
//!
//! Contract: these structs know no file format; the reader of the system file or of ARINC 653 XML
//! fills them in. [`Module::validate`] finds what would make a store impossible. Called by
//! [`Store::open`](crate::Store::open).

use std::collections::HashSet;
use std::fmt;

use busway_core::ring;
use busway_transport::contract::{PortPlace, RegisterDevicePlace};
use busway_transport::core_queue::Part;

pub use busway_system::MAX_NAME_BYTES as MAX_NAME_LENGTH_BYTES;

const MIN_SLOTS: usize = busway_system::slots::MIN_SLOTS as usize;
const MAX_SLOTS: usize = busway_system::slots::MAX_SLOTS as usize;
const MAX_MESSAGE_BYTES: usize = busway_system::MAX_MESSAGE_BYTES as usize;
const MAX_MESSAGES: usize = busway_system::MAX_MESSAGES as usize;

/// The partitions of one host, their ports, and the channels between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Module {
    /// Partitions, each with a name of its own.
    pub partitions: Vec<PartitionConfig>,
    /// Channels, each with a name of its own.
    pub channels: Vec<ChannelConfig>,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionConfig {
    /// 1 ..= 32 bytes.
    pub name: String,
    /// The number by which `GET_PARTITION_STATUS` calls it.
    pub identifier: i64,
    /// Its ports, each with a name of its own. A port's place in this list, from 1, is its
    /// identifier.
    pub ports: Vec<PortConfig>,
}

pub use busway_system::{Direction, Discipline, Port as PortConfig, PortKind, WhenFull};

/// A port by the names of its partition and itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PortRef {
    /// Name of the partition.
    pub partition: String,
    /// Name of the port.
    pub port: String,
}

impl PortRef {
    /// The port `port` of `partition`.
    #[must_use]
    pub fn new(partition: impl Into<String>, port: impl Into<String>) -> Self {
        Self {
            partition: partition.into(),
            port: port.into(),
        }
    }
}

impl fmt::Display for PortRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.partition, self.port)
    }
}

/// One source port and the destination ports that get its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelConfig {
    /// 1 ..= 32 bytes.
    pub name: String,
    /// Where messages come from.
    pub source: PortRef,
    /// Where they go; at least one, unless there are `copies` or `shared_queues`.
    pub destinations: Vec<PortRef>,
    /// Registers of a sampling channel in other hosts' memory, which the source's processes write
    /// themselves.
    pub copies: Vec<FarMemory>,
    /// Registers of a sampling channel in other hosts' stores, which the source's processes may
    /// write with a queue pair of their own. Each is the gateway's port for that host, which is
    /// among the destinations too.
    pub own_writers: Vec<FarPort>,
    /// The register of a sampling channel whose source is a partition of another host that writes
    /// into this host's memory itself. `source` is then the port of the partition that stands for
    /// that host.
    pub landing: Option<FarMemory>,
    /// Queues of a queuing channel in memory that another host shares. At the source's host: those
    /// of destinations on other hosts, which are not among `destinations`. At a destination's host:
    /// those of `destinations`, in their order; `source` is then the port of the partition that
    /// stands for the source's host.
    pub shared_queues: Vec<SharedQueue>,
    /// Slots of a sampling channel's register, 3 ..= 4096. Not looked at for a queuing channel.
    pub slots: usize,
    /// Whether messages carry a checksum: a device that another host drives may write the register
    /// or the queue, in any order.
    pub is_checked: bool,
    /// What happens to a message for a full queue. Ignored for a sampling channel.
    pub when_full: WhenFull,
    /// Clock of the source time stamps.
    pub clock: Clock,
}

impl ChannelConfig {
    /// A channel with the usual settings: 4 slots; a full queue holds the sender back if it is the
    /// only one, and overflows on its own if there are several; stamps of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn new(name: impl Into<String>, source: PortRef, destinations: Vec<PortRef>) -> Self {
        let when_full = if destinations.len() == 1 {
            WhenFull::Wait
        } else {
            WhenFull::Overflow
        };
        Self {
            name: name.into(),
            source,
            destinations,
            copies: Vec::new(),
            own_writers: Vec::new(),
            landing: None,
            shared_queues: Vec::new(),
            slots: 4,
            is_checked: false,
            when_full,
            clock: Clock::Monotonic,
        }
    }
}

impl ChannelConfig {
    /// Whether the queues of `destinations` lie in memory that the source's host shares.
    pub(crate) fn has_shared_source(&self) -> bool {
        !self.shared_queues.is_empty() && crate::system::is_other_host(&self.source.partition)
    }

    /// A register of a sampling channel outside this host's store, if only such ones have the
    /// messages' payloads: the source or all destinations are on other hosts.
    pub(crate) fn payloads_elsewhere(&self) -> Option<&FarMemory> {
        let is_read_here = !self.destinations.is_empty();
        let copy = self.copies.first().filter(|_| !is_read_here);
        self.landing.as_ref().or(copy)
    }
}

/// A sampling channel's register in memory that one host writes and another one reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarMemory {
    /// The memory, as this host sees it.
    pub place: PortPlace,
    /// Where the register begins in it, in bytes, a multiple of 128.
    pub offset_bytes: usize,
    /// Distinguishes the channel from earlier ones in that memory: a digest of its description.
    pub key: u64,
    /// How the two hosts compare times.
    pub clock: busway_system::Clock,
}

/// A sampling channel's register in the store of another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarPort {
    /// The port of the partition that stands for that host.
    pub port: PortRef,
    /// The devices that reach the host, each with its link, index in `System::links`.
    pub devices: Vec<(usize, RegisterDevicePlace)>,
    /// How the two hosts compare times.
    pub clock: busway_system::Clock,
}

/// The queue of one destination port in memory that the hosts of source and destination share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedQueue {
    /// What the source's host writes, as this host sees it: the ring.
    pub source: Part,
    /// What the destination's host writes, as this host sees it.
    pub destination: Part,
    /// The shape of the ring.
    pub layout: ring::Layout,
    /// Most messages in the queue: the destination port's, which the ring may exceed.
    pub max_messages: usize,
    /// Distinguishes the queue from earlier ones in that memory: a digest of its description.
    pub key: u64,
}

/// Makes keys of descriptions: the same on every host and in every build.
pub(crate) static DIGEST: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_XZ);

/// The clock of source time stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`: within one host, where no step of the wall clock may change a message's
    /// validity.
    Monotonic,
    /// `CLOCK_TAI`: between hosts whose clocks are synchronised.
    Tai,
}

impl Clock {
    /// What the clock says now, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn now_ns(self) -> i64 {
        let clock = match self {
            Clock::Monotonic => rustix::time::ClockId::Monotonic,
            // rustix has no name for CLOCK_TAI as a clock that is always there.
            Clock::Tai => return crate::sys::tai_ns(),
        };
        let time = rustix::time::clock_gettime(clock);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    /// A time of `CLOCK_MONOTONIC` in ns of this clock.
    pub(crate) fn of_monotonic_ns(self, time_ns: i64) -> i64 {
        match self {
            Clock::Monotonic => time_ns,
            Clock::Tai => time_ns.saturating_add(crate::peer_clock::tai_minus_monotonic_ns()),
        }
    }

    /// A time of this clock in ns of `CLOCK_MONOTONIC`, which is what GET_TIME returns; 0 if it was
    /// before that clock began, or is unknown.
    pub(crate) fn to_monotonic_ns(self, time_ns: i64) -> i64 {
        let monotonic_ns = match self {
            Clock::Monotonic => time_ns,
            Clock::Tai => time_ns.saturating_sub(crate::peer_clock::tai_minus_monotonic_ns()),
        };
        monotonic_ns.max(0)
    }
}

/// Why a module is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// A name of an impossible length, or with a zero byte.
    #[error("{what} name {name:?} has {} bytes: use 1 to {MAX_NAME_LENGTH_BYTES}, none of them zero", name.len())]
    Name {
        /// Of what.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name used twice.
    #[error("{what} {name} exists twice: give one of them another name")]
    Twice {
        /// Of what.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A value out of its range.
    #[error("{what} of {of} is {value}: use {least} to {most}")]
    Range {
        /// Which value.
        what: &'static str,
        /// Of which port or channel.
        of: String,
        /// What it is.
        value: usize,
        /// The least that is possible.
        least: usize,
        /// The most that is possible.
        most: usize,
    },
    /// A channel's port that no partition has.
    #[error("channel {channel} names port {port}, which does not exist: correct the name or add the port")]
    NoPort {
        /// Name of the channel.
        channel: String,
        /// The port that it names.
        port: PortRef,
    },
    /// A port on the wrong end of a channel.
    #[error(
        "channel {channel} uses port {port} as {wanted}, but its direction is {found}: correct one of them"
    )]
    Direction {
        /// Name of the channel.
        channel: String,
        /// The port.
        port: PortRef,
        /// What the channel needs.
        wanted: Direction,
        /// What the port is.
        found: Direction,
    },
    /// Ports of two kinds in one channel.
    #[error(
        "channel {channel} joins the {source_kind} port {from} with the {kind} port {port}: make them alike"
    )]
    Kind {
        /// Name of the channel.
        channel: String,
        /// Its source.
        from: Box<PortRef>,
        /// The source's kind.
        source_kind: &'static str,
        /// The destination.
        port: Box<PortRef>,
        /// The destination's kind.
        kind: &'static str,
    },
    /// Ports of two sizes in one channel.
    #[error(
        "channel {channel} joins {from} for messages of {source_bytes} bytes with {port} for {bytes}: make them equal"
    )]
    Size {
        /// Name of the channel.
        channel: String,
        /// Its source.
        from: Box<PortRef>,
        /// The source's longest message in bytes.
        source_bytes: usize,
        /// The destination.
        port: Box<PortRef>,
        /// The destination's longest message in bytes.
        bytes: usize,
    },
    /// A port in two channels, or twice in one.
    #[error("port {port} is used by channel {first} and by channel {second}: a port has one channel")]
    Shared {
        /// The port.
        port: PortRef,
        /// Name of one channel.
        first: String,
        /// Name of the other.
        second: String,
    },
    /// A channel that leads nowhere.
    #[error("channel {channel} has no destination: name one")]
    NoDestination {
        /// Name of the channel.
        channel: String,
    },
}

impl Module {
    /// The partition called `name`.
    #[must_use]
    pub fn partition(&self, name: &str) -> Option<&PartitionConfig> {
        self.partitions.iter().find(|partition| partition.name == name)
    }

    /// The port that `reference` names, and its place in its partition.
    pub(crate) fn port(&self, reference: &PortRef) -> Option<(usize, &PortConfig)> {
        let ports = &self.partition(&reference.partition)?.ports;
        ports
            .iter()
            .enumerate()
            .find(|(_, port)| port.name == reference.port)
    }

    /// Finds the first thing that is impossible.
    ///
    /// # Errors
    /// [`ModuleError`].
    pub fn validate(&self) -> Result<(), ModuleError> {
        let mut seen = HashSet::new();
        for partition in &self.partitions {
            check_name("partition", &partition.name)?;
            if !seen.insert(&partition.name) {
                return Err(twice("partition", partition.name.clone()));
            }
            partition.validate()?;
        }
        let (mut names, mut used) = (HashSet::new(), Vec::new());
        for channel in &self.channels {
            check_name("channel", &channel.name)?;
            if !names.insert(&channel.name) {
                return Err(twice("channel", channel.name.clone()));
            }
            self.validate_channel(channel, &mut used)?;
        }
        Ok(())
    }

    fn validate_channel<'m>(
        &'m self,
        channel: &'m ChannelConfig,
        used: &mut Vec<(&'m PortRef, &'m str)>,
    ) -> Result<(), ModuleError> {
        let name = || channel.name.clone();
        let source = self.channel_port(channel, &channel.source, Direction::Source)?;
        let goes_elsewhere = !channel.copies.is_empty() || !channel.shared_queues.is_empty();
        if channel.destinations.is_empty() && !goes_elsewhere {
            return Err(ModuleError::NoDestination { channel: name() });
        }
        if source.kind.is_sampling() {
            check_range("slots", channel.name.clone(), channel.slots, MIN_SLOTS, MAX_SLOTS)?;
        }
        for reference in std::iter::once(&channel.source).chain(&channel.destinations) {
            if let Some((_, first)) = used.iter().find(|(port, _)| *port == reference) {
                return Err(ModuleError::Shared {
                    port: reference.clone(),
                    first: (*first).into(),
                    second: name(),
                });
            }
            used.push((reference, &channel.name));
        }
        for reference in &channel.destinations {
            let port = self.channel_port(channel, reference, Direction::Destination)?;
            if port.kind.is_sampling() != source.kind.is_sampling() {
                return Err(ModuleError::Kind {
                    channel: name(),
                    from: Box::new(channel.source.clone()),
                    source_kind: source.kind.name(),
                    port: Box::new(reference.clone()),
                    kind: port.kind.name(),
                });
            }
            if port.max_size_bytes != source.max_size_bytes {
                return Err(ModuleError::Size {
                    channel: name(),
                    from: Box::new(channel.source.clone()),
                    source_bytes: source.max_size(),
                    port: Box::new(reference.clone()),
                    bytes: port.max_size(),
                });
            }
        }
        Ok(())
    }

    fn channel_port(
        &self,
        channel: &ChannelConfig,
        reference: &PortRef,
        wanted: Direction,
    ) -> Result<&PortConfig, ModuleError> {
        let (_, port) = self.port(reference).ok_or_else(|| ModuleError::NoPort {
            channel: channel.name.clone(),
            port: reference.clone(),
        })?;
        if port.direction != wanted {
            return Err(ModuleError::Direction {
                channel: channel.name.clone(),
                port: reference.clone(),
                wanted,
                found: port.direction,
            });
        }
        Ok(port)
    }
}

impl PartitionConfig {
    fn validate(&self) -> Result<(), ModuleError> {
        let mut seen = HashSet::new();
        for port in &self.ports {
            check_name("port", &port.name)?;
            let of = || format!("{}/{}", self.name, port.name);
            if !seen.insert(&port.name) {
                return Err(twice("port", of()));
            }
            let what = "the longest message in bytes";
            check_range(what, of(), port.max_size(), 1, MAX_MESSAGE_BYTES)?;
            if let Some(max_messages) = port.kind.max_messages() {
                check_range("the number of messages", of(), max_messages, 1, MAX_MESSAGES)?;
            }
        }
        Ok(())
    }
}

fn check_name(what: &'static str, name: &str) -> Result<(), ModuleError> {
    if (1..=MAX_NAME_LENGTH_BYTES).contains(&name.len()) && !name.contains('\0') {
        return Ok(());
    }
    Err(ModuleError::Name {
        what,
        name: name.into(),
    })
}

fn check_range(
    what: &'static str,
    of: String,
    value: usize,
    least: usize,
    most: usize,
) -> Result<(), ModuleError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ModuleError::Range {
        what,
        of,
        value,
        least,
        most,
    })
}

fn twice(what: &'static str, name: String) -> ModuleError {
    ModuleError::Twice { what, name }
}
