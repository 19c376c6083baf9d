//! What is measured, in which order.

use clap::ValueEnum;
use serde::Serialize;

use crate::BenchError;
use crate::pattern::MIN_PAYLOAD_BYTES;
use crate::worker::Wait;

/// Sizes in bytes that are measured if nothing else is asked for.
pub const SIZES_BYTES: [usize; 5] = [64, 4 << 10, 64 << 10, 1 << 20, 4 << 20];
/// Largest size; iceoryx2 keeps dozens of messages of a service in memory.
const MAX_SIZE_BYTES: usize = 64 << 20;
/// Programs and gateways that run at once: with fewer cores, spinning ones steal each other's time.
const BUSY_PROCESSES: usize = 4;

/// How messages get from one program to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Programs and gateways, a shared window
    Memory,
    /// Programs and gateways, TCP
    Tcp,
    /// Two processes, a shared window, nothing else
    BareCopy,
    /// Two processes, a TCP connection, nothing else
    BareTcp,
    /// Two programs in one iceoryx2 domain
    Iceoryx2Hop,
    /// Programs and iceoryx2's own tunnel over Zenoh
    ZenohTunnel,
}

impl Transport {
    /// The word used in results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tcp => "tcp",
            Self::BareCopy => "bare-copy",
            Self::BareTcp => "bare-tcp",
            Self::Iceoryx2Hop => "iceoryx2-hop",
            Self::ZenohTunnel => "zenoh-tunnel",
        }
    }

    /// What rows call it: our gateways are told from the bare bus of the same name.
    pub fn technology(self) -> &'static str {
        match self {
            Self::Memory => "gateway-memory",
            Self::Tcp => "gateway-tcp",
            other => other.word(),
        }
    }

    /// The bus of our gateways.
    pub fn bus(self) -> Option<&'static str> {
        match self {
            Self::Memory | Self::Tcp => Some(self.word()),
            _ => None,
        }
    }

    /// The same bus without gateways.
    pub fn floor(self) -> Option<Self> {
        match self {
            Self::Memory => Some(Self::BareCopy),
            Self::Tcp => Some(Self::BareTcp),
            _ => None,
        }
    }

    fn modes(self) -> &'static [Mode] {
        match self {
            Self::BareCopy | Self::BareTcp => &[Mode::PingPong, Mode::Lossless],
            // The tunnel carries services with default settings only, and those overwrite.
            Self::ZenohTunnel => &[Mode::PingPong, Mode::Overwriting],
            _ => &[Mode::PingPong, Mode::Lossless, Mode::Overwriting],
        }
    }
}

/// What is done with the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One message there, one back.
    PingPong,
    /// As fast as it goes; the sender waits for the receiver.
    Lossless,
    /// As fast as the sender can; the receiver's queue loses its oldest message.
    Overwriting,
    /// Nothing is sent.
    Idle,
}

impl Mode {
    /// The word used in results.
    pub fn word(self) -> &'static str {
        match self {
            Self::PingPong => "ping-pong",
            Self::Lossless => "lossless",
            Self::Overwriting => "overwriting",
            Self::Idle => "idle",
        }
    }
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Measurement {
    /// Over what.
    pub transport: Transport,
    /// How programs and lanes wait.
    pub wait: Wait,
    /// What is done.
    pub mode: Mode,
    /// Size of a message in bytes.
    pub payload_bytes: usize,
}

/// Measurements that share one pair of gateways, started once a round.
#[derive(Clone, Debug)]
pub struct Group {
    /// Over what.
    pub transport: Transport,
    /// How lanes wait.
    pub wait: Wait,
    /// In this order.
    pub measurements: Vec<Measurement>,
}

/// The groups of one round, and what was left out for want of cores.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In this order; repeated each round, so that a disturbance meets all transports alike.
    pub groups: Vec<Group>,
    /// One line each.
    pub skipped: Vec<String>,
}

impl Plan {
    /// Lays out a round. Round trips are measured with every strategy in `waits`, streams with [`Wait::Adaptive`] or else the first; without
    /// `insist`, nothing spins that would not have a core.
    pub fn new(
        transports: &[Transport],
        sizes: &[usize],
        waits: &[Wait],
        cores: usize,
        insist: bool,
    ) -> Self {
        let mut plan = Self {
            groups: Vec::new(),
            skipped: Vec::new(),
        };
        let stream_wait = waits
            .iter()
            .copied()
            .find(|wait| *wait == Wait::Adaptive)
            .unwrap_or(waits[0]);
        for &transport in transports {
            for &wait in waits {
                let gateways = transport.bus().is_some() || transport == Transport::ZenohTunnel;
                if wait == Wait::Spin && gateways && cores < BUSY_PROCESSES && !insist {
                    plan.skipped.push(format!(
                        "{} spin: skipped: needs {BUSY_PROCESSES} cores, here are {cores} (--wait spin measures it anyway)",
                        transport.word()
                    ));
                    continue;
                }
                let mut measurements = Vec::new();
                for &payload_bytes in sizes {
                    for &mode in transport.modes() {
                        if mode == Mode::PingPong || wait == stream_wait {
                            measurements.push(Measurement {
                                transport,
                                wait,
                                mode,
                                payload_bytes,
                            });
                        }
                    }
                }
                plan.groups.push(Group {
                    transport,
                    wait,
                    measurements,
                });
            }
        }
        plan
    }

    /// Measurements in a round.
    pub fn measurements(&self) -> usize {
        self.groups.iter().map(|group| group.measurements.len()).sum()
    }
}

/// Reads a size such as `64`, `4KiB` or `1MiB`.
///
/// # Errors
///
/// Not a size, not a multiple of 8, or outside 24 bytes to 64 MiB.
pub fn parse_size(text: &str) -> Result<usize, BenchError> {
    size_within(text, MIN_PAYLOAD_BYTES, MAX_SIZE_BYTES)
}

/// Reads a size of `least` to `most` bytes, a multiple of 8.
///
/// # Errors
///
/// [`BenchError::Option`].
pub(crate) fn size_within(text: &str, least: usize, most: usize) -> Result<usize, BenchError> {
    let wrong = |problem: &str| BenchError::Option {
        option: "--sizes",
        value: text.to_owned(),
        problem: problem.to_owned(),
        mend: format!(
            "write a multiple of 8 from {least} to {}MiB, such as 64 or 4KiB",
            most >> 20
        ),
    };
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        _ => return Err(wrong("has an unknown unit")),
    };
    let number: usize = digits.parse().map_err(|_| wrong("is not a size"))?;
    let bytes = number.checked_mul(factor).ok_or_else(|| wrong("is too large"))?;
    if !(least..=most).contains(&bytes) || !bytes.is_multiple_of(8) {
        return Err(wrong("is not a possible size"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_unit_and_refused_with_what_would_be_right() {
        assert_eq!(parse_size("64").unwrap(), 64);
        assert_eq!(parse_size("4KiB").unwrap(), 4096);
        assert_eq!(parse_size("1MiB").unwrap(), 1 << 20);
        for wrong in [
            "",
            "0",
            "63",
            "65",
            "4GB",
            "99999999999999999999",
            "1000MiB",
            "16",
        ] {
            let message = parse_size(wrong).unwrap_err().to_string();
            assert!(
                message.contains("--sizes") && message.contains("4KiB"),
                "{message}"
            );
        }
    }

    #[test]
    fn gateways_spin_only_where_each_has_a_core_unless_asked_to() {
        let spins = |cores, insist| {
            let plan = Plan::new(
                &[Transport::Tcp],
                &[64],
                &[Wait::Event, Wait::Spin],
                cores,
                insist,
            );
            plan.groups.iter().any(|group| group.wait == Wait::Spin)
        };
        assert!(!spins(2, false));
        assert!(spins(4, false));
        assert!(spins(2, true));
    }

    #[test]
    fn streams_are_measured_once_and_round_trips_with_every_wait_strategy() {
        let plan = Plan::new(
            &[Transport::Memory],
            &[64, 4096],
            &[Wait::Event, Wait::Adaptive],
            4,
            false,
        );
        let all: Vec<_> = plan.groups.iter().flat_map(|group| &group.measurements).collect();
        assert_eq!(all.iter().filter(|m| m.mode == Mode::PingPong).count(), 4);
        assert_eq!(all.iter().filter(|m| m.mode == Mode::Lossless).count(), 2);
        assert!(
            all.iter()
                .all(|m| m.mode == Mode::PingPong || m.wait == Wait::Adaptive)
        );
    }
}
