//! The result of a run, whatever the experiment: what `--json` writes, and what tables, `--csv`,
//! `--report` and `busway bench compare` are made from.
//!
//! Contract: field names are stable and carry their units; a field that does not apply to an
//! experiment is absent; a reader takes fields that it does not know for absent.
//! `docs/bench-results.md` describes every field. Written by the experiments, read by the views.

mod distribution;
mod measured;
mod ratio;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::environment::Environment;

pub use busway_doctor::conditions::Condition;
pub use distribution::{Distribution, Recorder};
pub use measured::{Interruption, Maximum, Measured, Used};
pub use ratio::Ratio;
pub(crate) use ratio::median;

/// What [`Run::schema`] says of files that this version writes.
pub const SCHEMA: &str = "busway-bench/1";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// Round trips by size.
    Latency,
    /// One direction, as fast as it goes, by size.
    Throughput,
    /// One direction at a constant rate: what it costs.
    Stream,
    /// What receiving costs a task that shares the core.
    Interference,
    /// Intervals at which messages are seen, beside those at which they were sent.
    Timeliness,
    /// One long run of round trips.
    Jitter,
    /// iceoryx2 program to iceoryx2 program through two gateways.
    Gateway,
    /// What a call of a port costs with nobody else at the channel.
    Calls,
    /// The instrument measures a path whose delay, loss and jitter are known.
    SelfTest,
}

impl Experiment {
    pub fn word(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Stream => "stream",
            Self::Interference => "interference",
            Self::Timeliness => "timeliness",
            Self::Jitter => "jitter",
            Self::Gateway => "gateway",
            Self::Calls => "calls",
            Self::SelfTest => "self-test",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub schema: String,
    pub experiment: Experiment,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When it began: seconds since 1970-01-01 UTC.
    pub started_unix_s: u64,
    /// How long it took in s, preparations included.
    pub duration_s: f64,
    /// Whether it was ended before all was measured.
    pub interrupted: bool,
    pub settings: Settings,
    pub environment: Environment,
    /// The machine of the follower, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follower: Option<Environment>,
    /// What was asked of the system for the programs under test, and whether it was granted.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// What makes the figures worth less: for people, beside the figures.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What was left out or failed, and why.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Technology that [`Row::ratio`] compares with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// How often each measurement was made, interleaved with all others.
    pub rounds: u32,
    /// How long each measurement counted, in s; absent where messages were counted off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// How many messages each measurement sent; absent where it went by time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Whether every byte of every payload was written and read; if not, only its first 16 bytes
    /// were.
    pub touched: bool,
    /// Messages a second of an open loop, whose times count from the intended instant of sending;
    /// absent in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop_hz: Option<f64>,
}

/// The figures of one technology, one way of waiting, one size (and one interval).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What messages were exchanged over, such as `unix-socket`.
    pub technology: String,
    /// How the programs waited: `spin`, `adaptive`, `event`.
    pub wait: String,
    /// What distinguishes rows of the same technology beyond that (gateway: `ping-pong`, `latest`,
    /// `lossless`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    pub payload_bytes: u64,
    /// Messages that the receiver's queue holds, where it can be chosen (gateway).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u64>,
    /// Interval at which messages were sent, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ns: Option<u64>,
    /// Threads that may be busy at once.
    pub threads: u32,
    /// Whether these are more than the cores they had.
    pub crowded: bool,
    /// Rounds that gave figures.
    pub rounds: u32,
    pub sent: u64,
    pub received: u64,
    /// Messages that never came. On a sampling channel: overwritten before they were seen.
    pub lost: u64,
    /// Messages that were torn, altered, or came twice.
    pub corrupt: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
    /// Halves of the same round trips; without a histogram of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_rtt_ns: Option<Distribution>,
    /// Time that the task on the same core took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ns: Option<Distribution>,
    /// Intervals between the sending times of messages that were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmitted_interval_ns: Option<Distribution>,
    /// Intervals between the sending times of messages that were seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_interval_ns: Option<Distribution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages_per_s: Option<f64>,
    /// What sending cost, or asking: there a message is a round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<Load>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Load>,
    /// What a call of a port cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calls>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maxima: Vec<Maximum>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interruptions: Vec<Interruption>,
    /// The figure by which technologies are compared, of each round in turn (`null` for a round
    /// without one): the median round trip in ns, bytes a second, CPU load in percent, the median
    /// execution time or observed interval in ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_round: Vec<Option<f64>>,
    /// That figure over the baseline's at the same size and interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// That figure over the floor's: the sum of the hops of a round trip, or the bare bus
    /// (gateway).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_floor: Option<Ratio>,
    /// That figure over that of iceoryx2's own Zenoh tunnel (gateway).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_tunnel: Option<Ratio>,
    /// What the instrument should have found (self-test).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<Verdict>,
}

/// What one side cost while counting, in percent of one core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub process_user_percent: f64,
    pub process_system_percent: f64,
    /// User time of the whole host, this program's included.
    pub host_user_percent: f64,
    pub host_system_percent: f64,
    /// Hardware and soft interrupts of the whole host. 0 where the kernel does not account for
    /// them.
    pub host_interrupt_percent: f64,
    /// Time of the gateway on that side, user and system; absent without gateways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_percent: Option<f64>,
    /// Packets that the network interface sent for each message; absent where no network is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_sent_per_message: Option<f64>,
    /// Packets that it received for each message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_received_per_message: Option<f64>,
}

impl Load {
    /// All CPU time of this side's programs.
    pub fn total_percent(&self) -> f64 {
        self.process_user_percent + self.process_system_percent + self.gateway_percent.unwrap_or(0.0)
    }
}

/// Cost of calls of a port, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    pub write_ns: f64,
    pub read_ns: f64,
    pub write_and_read_ns: f64,
    /// Reading the clock once, as a write does for its time stamp.
    pub clock_ns: f64,
}

/// One thing that the self-test knows beforehand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub figure: String,
    pub expected: f64,
    pub measured: f64,
    /// How far they may be apart.
    pub tolerance: f64,
    /// Whether they are no further apart.
    pub passed: bool,
}

pub(crate) fn command_line() -> Vec<String> {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        let name = Path::new(&program).file_name().map(|name| name.to_string_lossy());
        *program = name.map_or_else(|| program.clone(), std::borrow::Cow::into_owned);
    }
    words
}

impl Run {
    /// Reads a file that `--json` wrote.
    ///
    /// # Errors
    ///
    /// It cannot be read, is no result of `busway bench`, or one of a version that this one does
    /// not know.
    pub fn load(path: &Path) -> Result<Self, BenchError> {
        let text =
            std::fs::read_to_string(path).map_err(BenchError::io(format!("read {}", path.display())))?;
        let unusable = |problem: String| BenchError::Option {
            option: "FILE",
            value: path.display().to_string(),
            problem,
            mend: "give a file that `busway bench … --json FILE` of this version wrote".into(),
        };
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let head: Head = serde_json::from_str(&text)
            .map_err(|e| unusable(format!("is no result of busway bench: {e}")))?;
        if head.schema != SCHEMA {
            return Err(unusable(format!(
                "has the schema {:?}, not {SCHEMA:?}",
                head.schema
            )));
        }
        serde_json::from_str(&text).map_err(|e| unusable(format!("is no whole result: {e}")))
    }

    /// Writes the file that [`load`](Self::load) reads: first beside it, then in its place, so that
    /// nobody ever finds half a file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), BenchError> {
        let text = serde_json::to_string_pretty(self).map_err(|e| BenchError::Io {
            what: "results as JSON".into(),
            source: e.into(),
        })?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        std::fs::write(&beside, text + "\n")
            .and_then(|()| std::fs::rename(&beside, path))
            .map_err(BenchError::io(format!("write {}", path.display())))
    }
}
