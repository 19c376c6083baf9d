//! What the supervisor measured and counted: the status file, and the summary at the end.
//!
//! Contract: the file is replaced in one piece, so that a reader never sees a half of it. Times are
//! kept with two significant digits, up to 10 s.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use busway_system::Fault;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Freezing that takes longer is an overrun.
pub(crate) const OVERRUN_NS: u64 = 1_000_000;
const LONGEST_TIME_NS: u64 = 10_000_000_000;

/// The whole status.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// This host.
    pub host: String,
    /// The supervisor's process.
    pub pid: u32,
    /// The control group of the module.
    pub cgroup: PathBuf,
    /// Length of the major frame in ns; `None`: partitions run all the time.
    pub major_frame_ns: Option<u64>,
    /// Whether the scheduling threads have a real-time priority; `None` without a frame.
    pub is_real_time: Option<bool>,
    /// All partitions of the host that have a program.
    pub partitions: Vec<PartitionStatus>,
    /// Why the module ended; `None` while it runs.
    pub end: Option<End>,
}

/// One partition.
#[derive(Clone, Debug, Serialize)]
pub struct PartitionStatus {
    /// Its name in the system file.
    pub name: String,
    /// What it does now.
    pub state: State,
    /// Its process; `None` while it has none.
    pub pid: Option<u32>,
    /// Restarts after faults.
    pub restarts: u64,
    /// How often each fault happened; those that did not are left out.
    pub faults: BTreeMap<&'static str, u64>,
    /// Its windows.
    pub windows: WindowSummary,
}

/// What a partition does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Its program is about to start, in its next window.
    Starting,
    /// It runs in its windows.
    Running,
    /// It waits for its next start after a fault.
    BackOff,
    /// Its processes are being ended.
    Ending,
    /// Its program has ended and the fault was ignored.
    Ended,
    /// It is stopped for good.
    Idle,
    /// It was restarted too often, and is stopped for good.
    GivenUp,
}

/// Why the module ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "because")]
pub enum End {
    /// Ctrl-C or SIGTERM.
    Asked,
    /// No partition has anything left to do.
    AllIdle,
    /// A fault whose action is `shutdown`.
    Shutdown {
        /// The partition.
        partition: String,
        /// The fault, as the system file names it.
        fault: &'static str,
    },
}

/// What was measured about the windows of one partition.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WindowSummary {
    /// Windows in which it ran.
    pub count: u64,
    /// Windows that it lost to a partition that could not be frozen.
    pub lost: u64,
    /// How often freezing it took longer than 1 ms.
    pub overruns: u64,
    /// How late windows began, in ns.
    pub late_ns: Percentiles,
    /// How long freezing took, in ns.
    pub freeze_ns: Percentiles,
}

/// A distribution in ns; zeros if nothing was measured.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

/// What a scheduling thread measures of one partition. Recording does not allocate.
#[derive(Debug)]
pub(crate) struct WindowTimes {
    late_ns: Histogram<u64>,
    freeze_ns: Histogram<u64>,
    overruns: u64,
    pub(crate) lost: u64,
}

impl WindowTimes {
    pub(crate) fn new() -> Self {
        let histogram =
            || Histogram::new_with_bounds(1, LONGEST_TIME_NS, 2).expect("the bounds are possible");
        Self {
            late_ns: histogram(),
            freeze_ns: histogram(),
            overruns: 0,
            lost: 0,
        }
    }

    pub(crate) fn began(&mut self, late_ns: u64) {
        self.late_ns.saturating_record(late_ns);
    }

    pub(crate) fn froze(&mut self, took_ns: u64) {
        self.freeze_ns.saturating_record(took_ns);
        self.overruns += u64::from(took_ns > OVERRUN_NS);
    }

    pub(crate) fn summary(&self) -> WindowSummary {
        WindowSummary {
            count: self.late_ns.len(),
            lost: self.lost,
            overruns: self.overruns,
            late_ns: Percentiles::of(&self.late_ns),
            freeze_ns: Percentiles::of(&self.freeze_ns),
        }
    }
}

/// How often each fault happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultCounts(BTreeMap<&'static str, u64>);

impl FaultCounts {
    pub(crate) fn count(&mut self, fault: Fault) {
        *self.0.entry(fault.name()).or_default() += 1;
    }

    pub(crate) fn named(&self) -> BTreeMap<&'static str, u64> {
        self.0.clone()
    }
}

/// Replaces the status file.
pub(crate) fn write(path: &Path, status: &Status) -> std::io::Result<()> {
    let text = serde_json::to_vec_pretty(status).map_err(std::io::Error::other)?;
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    std::fs::write(&new, text)?;
    std::fs::rename(&new, path)
}
