//! How a partition runs: its program, processors, priority and windows, and what its faults do.
//!
//! Contract: everything here has been validated. The windows of two partitions of one host never
//! overlap where they may share a processor, and all of them lie in the host's major frame. Made by
//! [`crate::System::parse`], used by the module supervisor and the command line. Terms are those of
//! ARINC 653 Part 1 (partition scheduling, health monitoring).

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::ser::{Serialize, SerializeMap, Serializer};

/// Highest real-time priority of a partition: 99 belongs to the supervisor, which preempts all.
pub const MAX_PRIORITY: u8 = 98;

/// Processors are numbered from 0 to one less than this.
pub const MAX_PROCESSORS: usize = 1024;

/// Shortest window in nanoseconds: freezing a partition takes tens of microseconds by itself.
pub const MIN_WINDOW_NS: u64 = 100_000;

/// Most windows of one partition in a major frame.
pub const MAX_WINDOWS: u64 = 10_000;

/// How a partition runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Execution {
    /// What the supervisor starts; `None`: someone else starts the partition's processes.
    pub program: Option<Program>,
    /// The processors that it may use, in ascending order; empty: all.
    pub processors: Vec<usize>,
    /// Its scheduling policy and priority.
    pub policy: SchedulingPolicy,
    /// When it runs in each major frame, by offset; empty: always, or never on a host with a frame.
    pub windows: Vec<Window>,
    /// The period of the partition in nanoseconds, which divides the major frame; `None` without a
    /// window.
    pub period_ns: Option<u64>,
    /// What each fault does.
    pub on_fault: FaultTable,
    /// After this many restarts in a row the partition stays stopped; `None`: it never gives up.
    pub restart_limit: Option<u32>,
}

impl Execution {
    /// How long the partition runs in each of its periods, in nanoseconds, if windows say it.
    pub fn duration_ns(&self, major_frame_ns: u64) -> Option<u64> {
        let periods = major_frame_ns.checked_div(self.period_ns?)?;
        let sum_ns: u64 = self.windows.iter().map(|window| window.duration_ns).sum();
        sum_ns.checked_div(periods)
    }

    /// Whether both may run on one processor.
    pub fn shares_processor_with(&self, other: &Execution) -> bool {
        let is_shared = |processor| other.processors.contains(processor);
        self.processors.is_empty() || other.processors.is_empty() || self.processors.iter().any(is_shared)
    }
}

/// A program that the supervisor starts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Program {
    /// The program and its arguments; at least one. A program without `/` is looked up in `PATH`,
    /// any other is relative to `directory`.
    pub command: Vec<String>,
    /// Its working directory. Relative to the system file's folder.
    pub directory: PathBuf,
    /// Environment variables that it gets beside those of the supervisor.
    pub environment: BTreeMap<String, String>,
}

/// How Linux schedules the processes of a partition, inside its windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "name", content = "priority")]
pub enum SchedulingPolicy {
    /// `SCHED_OTHER`, the ordinary scheduler.
    #[default]
    Other,
    /// `SCHED_FIFO` with a priority from 1 to [`MAX_PRIORITY`].
    Fifo(u8),
    /// `SCHED_RR` with a priority from 1 to [`MAX_PRIORITY`].
    RoundRobin(u8),
}

/// A part of the major frame in which a partition runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Window {
    /// Its begin in nanoseconds after that of the frame.
    pub offset_ns: u64,
    /// Its length in nanoseconds, at least [`MIN_WINDOW_NS`].
    pub duration_ns: u64,
}

impl Window {
    /// Its end in nanoseconds after the begin of the frame.
    pub fn end_ns(&self) -> u64 {
        self.offset_ns + self.duration_ns
    }
}

/// What may happen to a partition, as far as Linux shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The program ended with status 0, without having set the mode IDLE.
    Exit,
    /// The program ended with another status.
    Failure,
    /// The partition raised an application error that no error handler took.
    ApplicationError,
    /// `SIGSEGV` or `SIGBUS`; a stack overflow is one too.
    MemoryViolation,
    /// `SIGFPE`.
    NumericError,
    /// `SIGILL`, `SIGSYS` or `SIGTRAP`.
    IllegalRequest,
    /// Any other signal ended the program, `SIGKILL` and `SIGABRT` among them.
    Killed,
    /// The program could not be started.
    Start,
}

impl Fault {
    /// All of them, in the order of [`FaultTable`].
    pub const ALL: [Fault; 8] = [
        Fault::Exit,
        Fault::Failure,
        Fault::ApplicationError,
        Fault::MemoryViolation,
        Fault::NumericError,
        Fault::IllegalRequest,
        Fault::Killed,
        Fault::Start,
    ];

    /// Its key in the system file.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Exit => "exit",
            Fault::Failure => "failure",
            Fault::ApplicationError => "application_error",
            Fault::MemoryViolation => "memory_violation",
            Fault::NumericError => "numeric_error",
            Fault::IllegalRequest => "illegal_request",
            Fault::Killed => "killed",
            Fault::Start => "start",
        }
    }
}

/// What the supervisor does about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultAction {
    /// Counts it. What has ended stays ended; other processes of the partition go on.
    Ignore,
    /// Ends the partition's processes and starts its program, in the mode WARM_START.
    WarmStart,
    /// The same, in the mode COLD_START.
    ColdStart,
    /// Ends the partition's processes for good, in the mode IDLE. Other partitions go on.
    Idle,
    /// Ends all partitions and the supervisor.
    Shutdown,
}

impl FaultAction {
    /// Its word in the system file, and all of them.
    pub const WORDS: [(&'static str, FaultAction); 5] = [
        ("ignore", FaultAction::Ignore),
        ("warm-start", FaultAction::WarmStart),
        ("cold-start", FaultAction::ColdStart),
        ("idle", FaultAction::Idle),
        ("shutdown", FaultAction::Shutdown),
    ];

    /// Its word in the system file.
    pub fn name(self) -> &'static str {
        let mut words = Self::WORDS.into_iter();
        words
            .find(|(_, action)| *action == self)
            .map_or("", |(word, _)| word)
    }
}

/// The health monitor's table of one partition: an action for each fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultTable([FaultAction; Fault::ALL.len()]);

impl FaultTable {
    /// What `fault` does.
    pub fn action(&self, fault: Fault) -> FaultAction {
        self.0[fault as usize]
    }

    pub(crate) fn set(&mut self, fault: Fault, action: FaultAction) {
        self.0[fault as usize] = action;
    }
}

impl Default for FaultTable {
    /// A program that ends well is done; every other fault is a cold start.
    fn default() -> Self {
        let mut table = FaultTable([FaultAction::ColdStart; Fault::ALL.len()]);
        table.set(Fault::Exit, FaultAction::Idle);
        table
    }
}

impl Serialize for FaultTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Fault::ALL.len()))?;
        for fault in Fault::ALL {
            map.serialize_entry(fault.name(), self.action(fault).name())?;
        }
        map.end()
    }
}
