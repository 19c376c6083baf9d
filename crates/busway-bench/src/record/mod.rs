//! The result of a run of any experiment: what `--json` writes, and the source of tables, `--csv`,
//! `--report` and `busway bench compare`.
//!
//! Contract: field names are stable and carry their units; a field that does not apply to an
//! experiment is absent; a reader takes fields that it does not know for absent.
//! `docs/bench-results.md` describes every field. Written by the experiments, read by the views.

mod distribution;
mod measured;
mod ratio;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::environment::Environment;

pub use busway_doctor::conditions::Condition;
pub use distribution::{Distribution, Recorder};
pub use measured::{Interruption, Maximum, Measured, Used};
pub use ratio::Ratio;
pub(crate) use ratio::median;

pub const SCHEMA: &str = "busway-bench/1";

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
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
        self.into()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub schema: String,
    pub experiment: Experiment,
    pub command: Vec<String>,
    /// Seconds since 1970-01-01 UTC.
    pub started_unix_s: u64,
    /// How long it took in s, preparations included.
    pub duration_s: f64,
    pub interrupted: bool,
    pub settings: Settings,
    pub environment: Environment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follower: Option<Environment>,
    #[serde(default)]
    pub conditions: Vec<Condition>,
    #[serde(default)]
    pub warnings: Vec<String>,
    #[serde(default)]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub rounds: u32,
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

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What messages were exchanged over, such as `unix-socket`.
    pub technology: String,
    pub wait: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    pub payload_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ns: Option<u64>,
    pub threads: u32,
    pub crowded: bool,
    /// Whether the sender did not keep the interval that it was asked for: what was seen then says
    /// nothing about it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub off_pace: bool,
    pub rounds: u32,
    pub sent: u64,
    pub received: u64,
    /// Messages that never came. On a sampling channel: overwritten before they were seen.
    pub lost: u64,
    pub corrupt: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_rtt_ns: Option<Distribution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ns: Option<Distribution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmitted_interval_ns: Option<Distribution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_interval_ns: Option<Distribution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages_per_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<Load>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Load>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calls>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maxima: Vec<Maximum>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interruptions: Vec<Interruption>,
    /// The runs of which a long one consists, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<Piece>,
    /// The figure by which technologies are compared, of each round in turn (`null` for a round
    /// without one): the median round trip in ns, bytes a second, CPU load in percent, the median
    /// execution time or observed interval in ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_round: Vec<Option<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_floor: Option<Ratio>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_tunnel: Option<Ratio>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<Verdict>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub process_user_percent: f64,
    pub process_system_percent: f64,
    pub host_user_percent: f64,
    pub host_system_percent: f64,
    /// Hardware and soft interrupts of the whole host. 0 where the kernel does not account for
    /// them.
    pub host_interrupt_percent: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_sent_per_message: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_received_per_message: Option<f64>,
}

impl Load {
    pub fn total_percent(&self) -> f64 {
        self.process_user_percent + self.process_system_percent + self.gateway_percent.unwrap_or(0.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    pub write_ns: f64,
    pub read_ns: f64,
    pub write_and_read_ns: f64,
    /// Reading the clock once, as a write does for its time stamp.
    pub clock_ns: f64,
}

/// A run of a series that was continued, and under which conditions it measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    pub command: Vec<String>,
    pub started_unix_s: u64,
    pub duration_s: f64,
    pub environment: Environment,
    pub conditions: Vec<Condition>,
}

impl Piece {
    /// The end of `run`, behind the `pieces` that are known of its series; `None` if they are all.
    pub(crate) fn last_of(run: &Run, pieces: &[Self]) -> Option<Self> {
        let known_s: f64 = pieces.iter().map(|piece| piece.duration_s).sum();
        let started = pieces
            .last()
            .map_or(run.started_unix_s, |it| it.started_unix_s + it.duration_s as u64);
        (run.duration_s > known_s + 1.0).then(|| Self {
            command: run.command.clone(),
            started_unix_s: started,
            duration_s: run.duration_s - known_s,
            environment: run.environment.clone(),
            conditions: run.conditions.clone(),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub figure: String,
    pub expected: f64,
    pub measured: f64,
    pub tolerance: f64,
    pub passed: bool,
}

fn command_line() -> Vec<String> {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        let name = Path::new(&program).file_name().map(|name| name.to_string_lossy());
        *program = name.map_or_else(|| program.clone(), std::borrow::Cow::into_owned);
    }
    words
}

impl Run {
    /// A run that begins now and has found nothing yet.
    pub fn new(experiment: Experiment) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            schema: SCHEMA.to_owned(),
            experiment,
            command: command_line(),
            started_unix_s: started.map_or(0, |since| since.as_secs()),
            duration_s: 0.0,
            interrupted: false,
            settings: Settings::default(),
            environment: Environment::default(),
            follower: None,
            conditions: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
            baseline: None,
            rows: Vec::new(),
        }
    }

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
