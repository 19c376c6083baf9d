//! The task of each of two programs that exchange messages.

use serde::{Deserialize, Serialize};

use super::relay::Injected;
use crate::clock::now_ns;
use crate::conditions::Wanted;
use crate::technology::{MeetingPoint, NUMBERS, PROBE, Side, Wait};
use crate::worker::schedule::Seat;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exchange {
    pub technology: String,
    pub place: MeetingPoint,
    pub part: ExchangePart,
    pub payload_bytes: usize,
    pub touched: bool,
    #[serde(default)]
    pub overwrites: bool,
    pub wait: Wait,
    pub wanted: Wanted,
    /// First number: what a measurement before has left behind is below it, or [`NUMBERS`] above.
    pub base: u64,
    pub extent: Extent,
    /// Its place in a time table of partitions, if there is one.
    #[serde(default)]
    pub seat: Option<Seat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    Seconds(f64),
    Messages(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExchangePart {
    /// Asks, measures round trips, and asks again.
    Ping,
    /// Measures round trips for long, and reports the results since the report before.
    Watch {
        /// Between reports.
        report_ns: u64,
        /// Between the instants at which round trips are due; `None`: each follows the one before.
        interval_ns: Option<u64>,
    },
    /// Asks at instants of its own, this many ns apart, whether or not it has been answered.
    OpenLoop(u64),
    /// Answers each new message with the same.
    Echo(Option<Injected>),
    /// Sends as fast as the path takes messages, or at this interval in ns.
    Send(Option<u64>),
    /// Counts what comes, and records the intervals between the times in messages.
    Receive,
    /// Counts what has come, once in each frame of so many ns. Its looks must not block: it waits
    /// by [`Wait::Spin`].
    ReceiveInFrames(u64),
    /// As `Send`, with a report each tenth of a second.
    Publish(u64),
    /// As `Receive` on the sender's machine, with the latencies of messages instead of their
    /// intervals, and a report each tenth of a second.
    Subscribe,
}

impl ExchangePart {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Watch { .. } => "watching ping",
            Self::OpenLoop(_) => "open-loop ping",
            Self::Echo(_) => "echo",
            Self::Send(_) => "sender",
            Self::Receive => "receiver",
            Self::ReceiveInFrames(_) => "receiving partition",
            Self::Publish(_) => "publisher",
            Self::Subscribe => "subscriber",
        }
    }

    pub(super) fn is_one_way(self) -> bool {
        !matches!(
            self,
            Self::Ping | Self::Watch { .. } | Self::OpenLoop(_) | Self::Echo(_)
        )
    }

    pub fn side(self) -> Side {
        match self {
            Self::Ping | Self::Watch { .. } | Self::OpenLoop(_) | Self::Send(_) | Self::Publish(_) => {
                Side::Asks
            }
            Self::Echo(_) | Self::Receive | Self::ReceiveInFrames(_) | Self::Subscribe => Side::Answers,
        }
    }
}

impl Exchange {
    /// Whether a message belongs to this measurement; probes count with it.
    pub(super) fn is_ours(&self, number: u64) -> bool {
        (self.base..self.base + NUMBERS).contains(&(number & !PROBE))
    }
}

pub(super) struct End {
    at_ns: u64,
    messages: u64,
}

impl End {
    pub(super) fn of(extent: Extent) -> Self {
        match extent {
            Extent::Seconds(seconds) => Self {
                at_ns: now_ns() + (seconds * 1e9) as u64,
                messages: u64::MAX,
            },
            Extent::Messages(messages) => Self {
                at_ns: u64::MAX,
                messages,
            },
        }
    }

    pub(super) fn has_come(&self, now_ns: u64, sent: u64) -> bool {
        now_ns >= self.at_ns || sent >= self.messages
    }
}
