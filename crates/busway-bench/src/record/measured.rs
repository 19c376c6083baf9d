//! What one program of an experiment counted: reported by the program, merged into rows by the
//! experiment.

use serde::{Deserialize, Serialize};

/// Counts and times of one program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub sent: u64,
    pub received: u64,
    /// Questions without an answer, of an open loop.
    pub lost: u64,
    /// Messages that were torn, altered, or came twice.
    pub corrupt: u64,
    /// Those of `corrupt` that were whole, but came late or twice.
    #[serde(default)]
    pub out_of_order: u64,
    /// `CLOCK_MONOTONIC` of the first counted message, in ns.
    pub first_ns: u64,
    /// The same of the last one.
    pub last_ns: u64,
    /// Round trips, intervals or latencies: [`super::Recorder::encode`].
    pub times: Option<String>,
    /// What it cost.
    pub usage: Used,
    /// Of a long run: round trips longer than all before them.
    #[serde(default)]
    pub maxima: Vec<Maximum>,
    /// Of a long run: times in which nothing was answered.
    #[serde(default)]
    pub interruptions: Vec<Interruption>,
}

/// Sums from the beginning to the end of counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    pub span_s: f64,
    pub user_s: f64,
    pub system_s: f64,
    /// User time of all CPUs of the host in s; known to 10 ms.
    pub host_user_s: f64,
    /// System time of all CPUs of the host, without interrupts, in s.
    pub host_system_s: f64,
    /// Hardware and soft interrupts of all CPUs of the host in s.
    pub host_interrupt_s: f64,
    /// Packets that the interface towards the peer has sent; none without a network.
    pub packets_sent: Option<u64>,
    /// Packets that it has received.
    pub packets_received: Option<u64>,
}

/// A round trip longer than all before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Maximum {
    /// Since the beginning of the first run of a continued series, in s.
    pub at_s: f64,
    pub rtt_ns: u64,
}

/// A time in which nothing was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interruption {
    /// As in [`Maximum::at_s`].
    pub at_s: f64,
    pub lasted_s: f64,
    /// What happened, in words.
    pub reason: String,
}
