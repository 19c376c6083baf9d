//! The programs of most experiments: two of them exchange messages over a technology.
//!
//! Contract: whatever they exchange messages over is a [`Path`], and the loops around it ([`ping`], [`open_loop`], [`one_way`]) are the same for
//! all. No loop allocates while it counts. Started as workers: see [`super::Role::Exchange`]. The asking program, or the one
//! that sends, is started when the answering one has said that it is ready.

mod calls;
mod one_way;
mod open_loop;
mod ping;
mod relay;
mod watch;

use serde::{Deserialize, Serialize};

use super::{Report, report};
use crate::clock::now_ns;
use crate::conditions::{self, Wanted};
use crate::control::{Control, WorkerResult};
use crate::record::Measured;
use crate::technology::{self, Opening, Path, Place, Side, User, Wait};

pub(super) use calls::calls;
pub use relay::Injected;

/// Set in the number of a message that only tests whether the path stands; it is not counted.
pub(crate) const PROBE: u64 = 1 << 63;

/// Numbers of one measurement: from [`Exchange::base`], and fewer than this.
pub const NUMBERS: u64 = 1 << 40;

/// One of two programs that exchange messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exchange {
    /// Over what: the name of a technology.
    pub technology: String,
    /// Where.
    pub place: Place,
    /// What this one does.
    pub part: ExchangePart,
    /// Size of a message in bytes: a multiple of 8, at least [`technology::MIN_MESSAGE_BYTES`].
    pub payload_bytes: usize,
    /// Whether every byte is written and read.
    pub touched: bool,
    /// Whether a full queue loses its oldest message, where that can be chosen.
    #[serde(default)]
    pub overwrites: bool,
    /// How the program waits for a message.
    pub wait: Wait,
    /// What it asks of the system.
    pub wanted: Wanted,
    /// First number: what a measurement before has left behind is below it, or [`NUMBERS`] above.
    pub base: u64,
    /// When to end.
    pub extent: Extent,
}

/// How long the active program goes on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// For this time in s.
    Seconds(f64),
    /// For so many messages.
    Messages(u64),
}

/// What one of two programs does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExchangePart {
    /// Asks, measures round trips, and asks again.
    Ping,
    /// Measures round trips for long, and reports each so many ns what it has found since the report before.
    Watch(u64),
    /// Asks at instants of its own, this many ns apart, whether or not it has been answered.
    OpenLoop(u64),
    /// Answers each new message with the same.
    Echo(Option<Injected>),
    /// Sends as fast as the path takes messages, or one each so many ns.
    Send(Option<u64>),
    /// Counts what comes, and records the intervals between the times in messages.
    Receive,
    /// As `Send`, with a report each tenth of a second.
    Publish(u64),
    /// As `Receive` on the sender's machine, with the latencies of messages instead of their intervals,
    /// and a report each tenth of a second.
    Subscribe,
}

impl ExchangePart {
    /// What the program is called in messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Watch(_) => "watching ping",
            Self::OpenLoop(_) => "open-loop ping",
            Self::Echo(_) => "echo",
            Self::Send(_) => "sender",
            Self::Receive => "receiver",
            Self::Publish(_) => "publisher",
            Self::Subscribe => "subscriber",
        }
    }

    /// Whether messages go from this program to the other only, or from the other to this one.
    fn is_one_way(self) -> bool {
        matches!(
            self,
            Self::Send(_) | Self::Receive | Self::Publish(_) | Self::Subscribe
        )
    }

    /// Which side of the path it has.
    pub fn side(self) -> Side {
        match self {
            Self::Ping | Self::Watch(_) | Self::OpenLoop(_) | Self::Send(_) | Self::Publish(_) => Side::Asks,
            Self::Echo(_) | Self::Receive | Self::Subscribe => Side::Answers,
        }
    }
}

/// Runs the program.
pub(super) fn run(spec: &Exchange, control: &Control) -> WorkerResult<Measured> {
    let (_granted, conditions) = conditions::apply(&spec.wanted);
    report(&Report::Conditions(conditions));
    let opening = Opening {
        side: spec.part.side(),
        place: &spec.place,
        payload_bytes: spec.payload_bytes,
        wait: spec.wait,
        touched: spec.touched,
        timed: matches!(spec.part, ExchangePart::OpenLoop(_)),
        one_way: spec.part.is_one_way(),
        overwrites: spec.overwrites,
        control,
        listening: &|address| report(&Report::Ready(address)),
    };
    technology::with_path(&spec.technology, &opening, Program { spec, control })
}

struct Program<'a> {
    spec: &'a Exchange,
    control: &'a Control,
}

impl User for Program<'_> {
    fn exchange(self, mut path: impl Path) -> WorkerResult<Measured> {
        let Self { spec, control } = self;
        // Only the loops whose every call shows in a figure are made for each technology anew; the rest, for all of them once.
        let path_of_any_kind: &mut dyn Path = &mut path;
        match spec.part {
            ExchangePart::Ping => ping::ping(&mut path, spec, control),
            ExchangePart::Echo(None) => ping::echo(&mut path, spec, control),
            ExchangePart::Echo(Some(injected)) => {
                let relay = &mut relay::Relay::new(path_of_any_kind, injected, spec.base);
                ping::echo(relay, spec, control)
            }
            ExchangePart::Watch(report_ns) => watch::watch(path_of_any_kind, spec, report_ns, control),
            ExchangePart::OpenLoop(interval_ns) => {
                open_loop::ping(path_of_any_kind, spec, interval_ns, control)
            }
            ExchangePart::Send(interval_ns) => one_way::send(path_of_any_kind, spec, interval_ns, control),
            ExchangePart::Publish(interval_ns) => {
                one_way::send(path_of_any_kind, spec, Some(interval_ns), control)
            }
            ExchangePart::Receive | ExchangePart::Subscribe => {
                one_way::receive(path_of_any_kind, spec, control)
            }
        }
    }
}

impl Exchange {
    /// Whether a message belongs to this measurement; probes count with it.
    fn is_ours(&self, number: u64) -> bool {
        (self.base..self.base + NUMBERS).contains(&(number & !PROBE))
    }
}

/// When the active program ends.
struct End {
    at_ns: u64,
    messages: u64,
}

impl End {
    /// Counted from now.
    fn of(extent: Extent) -> Self {
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

    fn has_come(&self, now_ns: u64, sent: u64) -> bool {
        now_ns >= self.at_ns || sent >= self.messages
    }
}

/// What reading the clock once costs, in ns: the least of several means.
pub(super) fn clock_ns() -> u64 {
    const CALLS: u64 = 1000;
    let mean_ns = |_| {
        let begun_ns = now_ns();
        for _ in 1..CALLS {
            std::hint::black_box(now_ns());
        }
        (now_ns() - begun_ns) / CALLS
    };
    (0..10).map(mean_ns).min().unwrap_or(0)
}
