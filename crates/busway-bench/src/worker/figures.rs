//! What a worker counted, and how it counts.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::pattern::{Header, now_ns};

/// Longest latency that is told apart, in ns; longer ones count as this.
const MAX_LATENCY_NS: u64 = 100_000_000_000;

/// Percentiles of a latency, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Least.
    pub min: u64,
    /// Half are below.
    pub p50: u64,
    /// 99 % are below.
    pub p99: u64,
    /// 99.9 % are below.
    pub p99_9: u64,
    /// Greatest.
    pub max: u64,
}

/// Final or intermediate counts of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Messages sent (publish, ping, send).
    pub sent: u64,
    /// Messages received whole, or answers.
    pub received: u64,
    /// Messages that came after one of a higher number, or twice.
    pub out_of_order: u64,
    /// Messages whose pattern was wrong.
    pub corrupt: u64,
    /// `CLOCK_MONOTONIC` of the first counted message, in ns.
    pub first_ns: u64,
    /// The same of the last one.
    pub last_ns: u64,
    /// One-way latency of a stream whose messages carry their send time.
    pub latency_ns: Option<Percentiles>,
    /// CPU time of the program while it counted, in s, where it looks itself: its process is gone when the figures are there.
    pub cpu_s: f64,
}

impl Figures {
    /// Messages a second between the first and the last.
    pub fn rate(&self) -> f64 {
        let span_ns = self.last_ns.saturating_sub(self.first_ns);
        if span_ns == 0 {
            0.0
        } else {
            self.received.saturating_sub(1) as f64 * 1e9 / span_ns as f64
        }
    }
}

/// A latency histogram that never allocates after it was made.
pub(super) struct Latency(Histogram<u64>);

impl Latency {
    pub(super) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3).expect("constant bounds are valid"))
    }

    pub(super) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub(super) fn percentiles(&self) -> Option<Percentiles> {
        (!self.0.is_empty()).then(|| Percentiles {
            min: self.0.min(),
            p50: self.0.value_at_quantile(0.5),
            p99: self.0.value_at_quantile(0.99),
            p99_9: self.0.value_at_quantile(0.999),
            max: self.0.max(),
        })
    }
}

/// Round trips that are not counted, because they touch pages and caches for the first time: 50, or a tenth of the time where
/// that is less.
pub(super) struct WarmUp {
    until_ns: u64,
}

impl WarmUp {
    const ROUND_TRIPS: u64 = 50;

    pub(super) fn new(seconds: f64) -> Self {
        Self {
            until_ns: now_ns() + (seconds * 1e8) as u64,
        }
    }

    /// Whether the round trip of this number, started at `now_ns`, counts.
    pub(super) fn is_over(&self, sequence: u64, now_ns: u64) -> bool {
        sequence >= Self::ROUND_TRIPS || now_ns >= self.until_ns
    }
}

/// Counts a stream of messages at its receiver.
pub(super) struct Tally {
    figures: Figures,
    latency: Option<Latency>,
    next: u64,
    probed: bool,
}

impl Tally {
    pub(super) fn new(latency: bool) -> Self {
        Self {
            figures: Figures::default(),
            latency: latency.then(Latency::new),
            next: 0,
            probed: false,
        }
    }

    /// Counts one message; true when it is the first sign that the path stands.
    pub(super) fn count(&mut self, checked: Option<Header>) -> bool {
        let Some(header) = checked else {
            self.figures.corrupt += 1;
            return false;
        };
        if header.is_probe() {
            return !std::mem::replace(&mut self.probed, true);
        }
        // Reading the clock costs as much as a small message: without a histogram only the ends of the stream need a time,
        // and every 64th message is near enough to the last one.
        if self.latency.is_some() || self.figures.received & 63 == 0 {
            self.figures.last_ns = now_ns();
        }
        if self.figures.received == 0 {
            self.figures.first_ns = self.figures.last_ns;
        }
        if let Some(latency) = &mut self.latency {
            latency.record(self.figures.last_ns.saturating_sub(header.sent_ns));
        }
        self.figures.received += 1;
        if header.sequence < self.next {
            self.figures.out_of_order += 1;
        } else {
            self.next = header.sequence + 1;
        }
        false
    }

    /// Notes the time of the last message; called when nothing more waits.
    pub(super) fn note_pause(&mut self, last_received: u64) {
        if self.figures.received != last_received {
            self.figures.last_ns = now_ns();
        }
    }

    pub(super) fn received(&self) -> u64 {
        self.figures.received
    }

    /// Whether the message with the highest number of `total` has arrived.
    pub(super) fn has_last_of(&self, total: u64) -> bool {
        self.next >= total
    }

    pub(super) fn figures(&self) -> Figures {
        Figures {
            latency_ns: self.latency.as_ref().and_then(Latency::percentiles),
            ..self.figures
        }
    }
}
