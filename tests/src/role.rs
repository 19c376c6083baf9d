//! What the Rust program under test does on command, what it reports, and the messages that it
//! sends.
//!
//! A message is a slice of bytes: origin and number in the first 16 (little-endian), then a pattern
//! that follows from both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::program::Program;
use crate::wait::eventually;

/// Settings by which the program makes or opens its service; those not given are iceoryx2's
/// defaults.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    pub safe_overflow: Option<bool>,
    pub history: Option<usize>,
    pub buffer: Option<usize>,
}

impl Settings {
    /// Publishers wait for room in a buffer of this many messages.
    pub const fn lossless(buffer: usize) -> Settings {
        Settings {
            safe_overflow: Some(false),
            ..Settings::overwriting(buffer)
        }
    }

    /// A full buffer of this many messages loses its oldest one.
    pub const fn overwriting(buffer: usize) -> Settings {
        Settings {
            safe_overflow: None,
            history: None,
            buffer: Some(buffer),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    Publish {
        service: String,
        settings: Settings,
        origin: u64,
        lengths_bytes: Vec<usize>,
        gap_us: u64,
        count: Option<u64>,
        /// Begins once the service has this many subscribers.
        subscribers: usize,
    },
    Subscribe {
        service: String,
        settings: Settings,
        gap_us: u64,
    },
    Hold {
        services: String,
        count: usize,
        publishes: bool,
        talks: bool,
    },
}

impl Role {
    pub fn subscribe(service: &str, settings: Settings) -> Role {
        Role::Subscribe {
            service: service.to_owned(),
            settings,
            gap_us: 0,
        }
    }

    /// A publisher of 64-byte messages, one each 200 µs, without end.
    pub fn publish(service: &str, settings: Settings, origin: u64) -> Role {
        Role::publish_of(service, settings, origin, 64)
    }

    pub fn publish_of(service: &str, settings: Settings, origin: u64, length_bytes: usize) -> Role {
        Role::Publish {
            service: service.to_owned(),
            settings,
            origin,
            lengths_bytes: vec![length_bytes],
            gap_us: 200,
            count: None,
            subscribers: 1,
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            Role::Publish { .. } => "publisher",
            Role::Subscribe { .. } => "subscriber",
            Role::Hold { .. } => "holder",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub received: u64,
    pub first: u64,
    pub last: u64,
    pub missing: u64,
    pub backwards: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub ready: bool,
    pub sent: u64,
    pub seen: BTreeMap<u64, Seen>,
    pub corrupt: u64,
    /// The longest time before a message without another one, of those that have come since the
    /// last report.
    #[serde(default)]
    pub longest_silence_us: u64,
    pub done: bool,
}

#[derive(Debug)]
pub struct Runner(pub Program);

impl Runner {
    pub fn report(&self) -> Report {
        let line = self.0.last_line();
        line.map_or_else(Report::default, |line| {
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?} is no report: {error}"))
        })
    }

    pub fn ready(self) -> Runner {
        self.until("the program is ready", |report| report.ready);
        self
    }

    pub fn next_report(&self) -> Report {
        let before = self.report();
        self.until("the next report", |report| *report != before)
    }

    pub fn until(&self, what: &str, wanted: impl Fn(&Report) -> bool) -> Report {
        eventually(what, || Some(self.report()).filter(&wanted))
    }

    /// Waits until what it has seen of origin 1 is as wanted.
    pub fn until_seen(&self, what: &str, wanted: impl Fn(&Seen) -> bool) -> Report {
        self.until(what, |report| report.seen.get(&1).is_some_and(&wanted))
    }

    pub fn seen(&self, origin: u64) -> Seen {
        self.report().seen.get(&origin).copied().unwrap_or_default()
    }

    pub fn finish(mut self) -> Report {
        let status = self.0.finish();
        assert!(
            status.success(),
            "the program ended with {status}: {}",
            self.0.log()
        );
        self.report()
    }
}

pub fn fill(message: &mut [u8], origin: u64, number: u64) {
    let (head, rest) = message.split_at_mut(16);
    head[..8].copy_from_slice(&origin.to_le_bytes());
    head[8..].copy_from_slice(&number.to_le_bytes());
    for (byte, expected) in rest.iter_mut().zip(pattern(origin, number)) {
        *byte = expected;
    }
}

pub fn check(message: &[u8]) -> Option<(u64, u64)> {
    let (head, rest) = message.split_at_checked(16)?;
    let word = |at: usize| Some(u64::from_le_bytes(head[at..at + 8].try_into().ok()?));
    let (origin, number) = (word(0)?, word(8)?);
    rest.iter()
        .zip(pattern(origin, number))
        .all(|(byte, expected)| *byte == expected)
        .then_some((origin, number))
}

fn pattern(origin: u64, number: u64) -> impl Iterator<Item = u8> {
    let start = origin.wrapping_mul(131).wrapping_add(number.wrapping_mul(31)) as u8;
    (0u64..).map(move |i| (i as u8).wrapping_add((i >> 8) as u8).wrapping_add(start))
}
