//! What is measured, in which order.

use busway_transport::registry::BUS_NAMES;
use serde::Serialize;

use crate::worker::Wait;

/// Sizes in bytes that are measured if nothing else is asked for.
pub const SIZES_BYTES: [usize; 4] = [16, 64, 1 << 10, 4 << 10];
/// Size of the messages whose intervals and costs are measured.
pub const SMALL_BYTES: usize = 64;
/// Transmission intervals in µs.
pub const INTERVALS_US: [u64; 9] = [1, 2, 3, 5, 10, 30, 100, 300, 1000];
/// Programs that exchange messages, and gateways that carry them.
const PROGRAMS: usize = 2;
const GATEWAYS: usize = 2;

/// What the programs exchange messages over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Medium {
    /// A bare word each way.
    TwoLines,
    /// The published register of one slot.
    Flags,
    /// A bare TCP connection.
    Sockets,
    /// Ports inside one host.
    Local,
    /// Ports of two hosts over this bus of the registry.
    Bus(&'static str),
}

impl Medium {
    /// All of them, every bus of the registry included.
    pub fn all() -> Vec<Self> {
        let bare = [Self::TwoLines, Self::Flags, Self::Sockets, Self::Local];
        let buses = BUS_NAMES.iter().copied().map(Self::Bus);
        bare.into_iter().chain(buses).collect()
    }

    /// The word used on the command line and in results.
    pub fn word(self) -> &'static str {
        match self {
            Self::TwoLines => "two-lines",
            Self::Flags => "begin-end-flags",
            Self::Sockets => "sockets",
            Self::Local => "local",
            Self::Bus(name) => name,
        }
    }

    /// The medium called `word`.
    pub fn of(word: &str) -> Option<Self> {
        Self::all().into_iter().find(|medium| medium.word() == word)
    }

    /// Whether messages go through ports.
    pub fn has_ports(self) -> bool {
        matches!(self, Self::Local | Self::Bus(_))
    }

    /// The bus between the hosts.
    pub fn bus(self) -> Option<&'static str> {
        match self {
            Self::Bus(name) => Some(name),
            _ => None,
        }
    }

    /// Threads that may be busy at once.
    pub fn threads(self) -> usize {
        PROGRAMS + if self.bus().is_some() { GATEWAYS } else { 0 }
    }

    /// How the gateways' lanes wait where programs wait as `wait` says: they spin only if each thread has a core.
    pub fn lanes_wait(self, wait: Wait, cores: usize) -> Wait {
        if cores < self.threads() {
            Wait::Adaptive
        } else {
            wait
        }
    }
}

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Round trips
    PingPong,
    /// Intervals at which messages are seen, beside those at which they are written
    Interval,
    /// Cost of a write and a read with nobody else at the channel
    Costs,
}

/// How programs that use ports wait; a sampling port wakes nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Polling {
    /// Looks without pause
    Spin,
    /// Spins for a microsecond, yields for some 50 µs, then sleeps 50 µs between looks
    Adaptive,
}

impl From<Polling> for Wait {
    fn from(polling: Polling) -> Self {
        match polling {
            Polling::Spin => Self::Spin,
            Polling::Adaptive => Self::Adaptive,
        }
    }
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Measurement {
    /// What.
    pub part: Part,
    /// Over what.
    pub medium: Medium,
    /// How programs wait.
    pub wait: Wait,
    /// Size of a message in bytes.
    pub payload_bytes: usize,
    /// Transmission interval in µs; 0 in other parts.
    pub interval_us: u64,
}

/// Measurements that share one pair of gateways, started once a round.
#[derive(Clone, Debug)]
pub struct Group {
    /// Over what.
    pub medium: Medium,
    /// How programs wait.
    pub wait: Wait,
    /// In this order.
    pub measurements: Vec<Measurement>,
}

/// What was asked for; nothing left empty.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// Which parts.
    pub parts: Vec<Part>,
    /// Over what.
    pub media: Vec<Medium>,
    /// How programs that use ports wait.
    pub waits: Vec<Wait>,
    /// Sizes of ping-pong messages in bytes.
    pub sizes: Vec<usize>,
    /// Transmission intervals in µs.
    pub intervals_us: Vec<u64>,
}

impl Wishes {
    /// The groups of one round, in this order, so that a disturbance meets all media alike.
    ///
    /// What ports are compared with polls; sockets also block, as the published comparison does.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups = Vec::new();
        for &medium in &self.media {
            let waits = match medium {
                Medium::TwoLines | Medium::Flags => &[Wait::Spin][..],
                Medium::Sockets => &[Wait::Spin, Wait::Event],
                Medium::Local | Medium::Bus(_) => &self.waits,
            };
            for (index, &wait) in waits.iter().enumerate() {
                let measurements = self.measurements(medium, wait, index == 0);
                if !measurements.is_empty() {
                    groups.push(Group {
                        medium,
                        wait,
                        measurements,
                    });
                }
            }
        }
        groups
    }

    fn measurements(&self, medium: Medium, wait: Wait, is_first: bool) -> Vec<Measurement> {
        let one = |part, payload_bytes, interval_us| Measurement {
            part,
            medium,
            wait,
            payload_bytes,
            interval_us,
        };
        let has = |part| self.parts.contains(&part);
        let mut measurements = Vec::new();
        if has(Part::PingPong) {
            // Two words have one size, whatever the others'.
            let sizes = if medium == Medium::TwoLines {
                &self.sizes[..1]
            } else {
                &self.sizes
            };
            measurements.extend(sizes.iter().map(|bytes| one(Part::PingPong, *bytes, 0)));
        }
        if has(Part::Interval) && medium.has_ports() {
            let intervals = self.intervals_us.iter();
            measurements.extend(intervals.map(|us| one(Part::Interval, SMALL_BYTES, *us)));
        }
        // Nobody waits.
        if has(Part::Costs) && medium == Medium::Local && is_first {
            measurements.push(one(Part::Costs, SMALL_BYTES, 0));
        }
        measurements
    }

    /// Every size that needs ports, once.
    pub fn port_sizes(&self) -> Vec<usize> {
        let mut sizes = self.sizes.clone();
        sizes.push(SMALL_BYTES);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes() -> Wishes {
        Wishes {
            parts: vec![Part::PingPong, Part::Interval, Part::Costs],
            media: Medium::all(),
            waits: vec![Wait::Spin, Wait::Adaptive],
            sizes: vec![16, 4096],
            intervals_us: vec![1, 10, 100],
        }
    }

    fn count(part: Part, medium: Medium) -> usize {
        let groups = wishes().groups();
        let all = groups.iter().flat_map(|group| &group.measurements);
        all.filter(|m| m.part == part && m.medium == medium).count()
    }

    #[test]
    fn every_bus_of_the_registry_is_measured_without_being_named_here() {
        for name in BUS_NAMES {
            let medium = Medium::of(name).expect("known by its name");
            assert_eq!(count(Part::PingPong, medium), 4, "{name}");
            assert_eq!(count(Part::Interval, medium), 6, "{name}");
        }
    }

    #[test]
    fn what_has_no_ports_is_measured_in_round_trips_alone_and_two_words_in_one_size() {
        assert_eq!(count(Part::PingPong, Medium::TwoLines), 1);
        assert_eq!(count(Part::PingPong, Medium::Flags), 2);
        assert_eq!(count(Part::PingPong, Medium::Sockets), 4);
        for medium in [Medium::TwoLines, Medium::Flags, Medium::Sockets] {
            assert_eq!(count(Part::Interval, medium) + count(Part::Costs, medium), 0);
        }
        assert_eq!(count(Part::Costs, Medium::Local), 1);
    }

    #[test]
    fn lanes_spin_only_where_every_busy_thread_has_a_core() {
        let bus = Medium::Bus("tcp");
        assert_eq!(bus.lanes_wait(Wait::Spin, 4), Wait::Spin);
        assert_eq!(bus.lanes_wait(Wait::Spin, 3), Wait::Adaptive);
    }
}
