//! One partition under supervision: its phases from start to end.
//!
//! Contract: a partition's processes are all ended before its program starts again. What the
//! partition asked for itself (mode IDLE) is no fault. Called by the supervisor, on its thread.

use std::process::ExitStatus;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use busway_port::apex::OperatingMode;
use busway_port::supervise::Supervised;
use busway_system::{Fault, FaultAction, FaultTable, Partition};

use crate::cgroup::Group;
use crate::program::{Event, Keeper, fault_of};
use crate::restarts::Restarts;
use crate::status::{FaultCounts, State};

/// How long partitions may take to end when asked, before they are killed.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) name: String,
    keeper: Keeper,
    file: Supervised,
    on_fault: FaultTable,
    grace: Duration,
    pub(crate) phase: Phase,
    pub(crate) pid: Option<u32>,
    pub(crate) restarts: Restarts,
    pub(crate) faults: FaultCounts,
    started: Instant,
    /// The incarnation of the partition before its program was started last.
    incarnation_before: u64,
}

/// What a partition does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The keeper was asked to start the program.
    Starting,
    Running,
    /// It set the mode IDLE and was asked to end; it is killed at that time.
    Leaving {
        kill_at: Instant,
    },
    /// What is left of its processes is killed.
    Clearing(After),
    BackOff {
        due: Instant,
        mode: OperatingMode,
    },
    /// Its program has ended, and others of its processes may run.
    Ended,
    Idle,
    GivenUp,
}

/// What follows when a partition has no process any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Restart { due: Instant, mode: OperatingMode },
    Idle,
    GivenUp,
}

impl Managed {
    pub(crate) fn new(
        partition: &Partition,
        keeper: Keeper,
        file: Supervised,
        major_frame_ns: Option<u64>,
    ) -> Self {
        Self {
            name: partition.name.clone(),
            keeper,
            incarnation_before: file.incarnation(),
            file,
            on_fault: partition.execution.on_fault,
            // It reads the request in its next window.
            grace: GRACE + Duration::from_nanos(major_frame_ns.unwrap_or(0)),
            phase: Phase::Starting,
            pid: None,
            restarts: Restarts::new(partition.execution.restart_limit),
            faults: FaultCounts::default(),
            started: Instant::now(),
        }
    }

    /// Starts the program, after a fault in `mode`.
    pub(crate) fn start(&mut self, group: &Group, mode: Option<OperatingMode>) {
        self.file.start_next_in(mode);
        self.incarnation_before = self.file.incarnation();
        self.started = Instant::now();
        self.phase = Phase::Starting;
        match group.entrance() {
            Ok(entrance) => self.keeper.start(entrance),
            Err(error) => {
                tracing::error!("partition {}: cannot open its control group: {error}", self.name);
                self.phase = Phase::Clearing(After::GivenUp);
            }
        }
    }

    /// Takes what the keeper reports. The fault, if it shuts down the module.
    pub(crate) fn handle(&mut self, event: Event, group: &Group) -> Option<Fault> {
        match event {
            Event::Started { pid, .. } => {
                tracing::info!("partition {}: started as process {pid}", self.name);
                self.pid = Some(pid);
                self.started = Instant::now();
                if self.phase == Phase::Starting {
                    self.phase = Phase::Running;
                }
                None
            }
            Event::Ended { status, .. } => {
                self.pid = None;
                self.ended(status, group)
            }
            Event::NotStarted { error, .. } => {
                tracing::error!("{error}");
                self.fault(Fault::Start, group)
            }
        }
    }

    fn ended(&mut self, status: ExitStatus, group: &Group) -> Option<Fault> {
        match self.phase {
            Phase::Starting | Phase::Running if !self.wants_idle() => {
                let has_raised = self.has_joined() && self.file.has_raised_error();
                let fault = fault_of(status, has_raised);
                tracing::warn!(
                    "partition {}: {}: its program ended ({status})",
                    self.name,
                    fault.name()
                );
                self.fault(fault, group)
            }
            Phase::Starting | Phase::Running | Phase::Leaving { .. } => {
                tracing::info!("partition {}: ended in the mode IDLE", self.name);
                self.phase = Phase::Clearing(After::Idle);
                None
            }
            _ => None,
        }
    }

    fn fault(&mut self, fault: Fault, group: &Group) -> Option<Fault> {
        self.faults.count(fault);
        let action = self.on_fault.action(fault);
        let mode = match action {
            FaultAction::Shutdown => return Some(fault),
            FaultAction::Ignore => {
                self.phase = Phase::Ended;
                return None;
            }
            FaultAction::Idle => {
                self.clear(After::Idle, group);
                return None;
            }
            FaultAction::WarmStart => OperatingMode::WarmStart,
            FaultAction::ColdStart => OperatingMode::ColdStart,
        };
        let after = match self.restarts.next(self.started.elapsed()) {
            Some(delay) => After::Restart {
                due: Instant::now() + delay,
                mode,
            },
            None => {
                tracing::error!(
                    "partition {}: restarted too often, so it stays stopped",
                    self.name
                );
                After::GivenUp
            }
        };
        self.clear(after, group);
        None
    }

    fn clear(&mut self, after: After, group: &Group) {
        group.kill();
        self.phase = Phase::Clearing(after);
    }

    /// Goes on where time or the kernel has to come first.
    pub(crate) fn tick(&mut self, group: &Group) {
        match self.phase {
            Phase::Running if self.wants_idle() => {
                group.terminate();
                self.phase = Phase::Leaving {
                    kill_at: Instant::now() + self.grace,
                };
            }
            Phase::Leaving { kill_at } if Instant::now() >= kill_at => group.kill(),
            Phase::Clearing(_) if group.is_populated() => group.kill(),
            Phase::Clearing(After::Restart { due, mode }) => self.phase = Phase::BackOff { due, mode },
            Phase::Clearing(After::Idle) => self.stop(Phase::Idle),
            Phase::Clearing(After::GivenUp) => self.stop(Phase::GivenUp),
            Phase::BackOff { due, mode } if Instant::now() >= due => self.start(group, Some(mode)),
            _ => {}
        }
    }

    fn stop(&mut self, phase: Phase) {
        if let Err(error) = self.file.set_idle() {
            tracing::warn!("partition {}: cannot set the mode IDLE: {error}", self.name);
        }
        self.phase = phase;
    }

    /// Whether a process has joined the partition since the program was started last. What the
    /// partition's file says is older without it.
    fn has_joined(&self) -> bool {
        self.file.incarnation() > self.incarnation_before
    }

    fn wants_idle(&self) -> bool {
        self.has_joined() && self.file.mode() == OperatingMode::Idle
    }

    pub(crate) fn state(&self) -> State {
        match self.phase {
            Phase::Starting => State::Starting,
            Phase::Running => State::Running,
            Phase::Leaving { .. } | Phase::Clearing(_) => State::Ending,
            Phase::BackOff { .. } => State::BackOff,
            Phase::Ended => State::Ended,
            Phase::Idle => State::Idle,
            Phase::GivenUp => State::GivenUp,
        }
    }

    /// The keeper's thread, which ends with the program.
    pub(crate) fn finish(self) -> JoinHandle<()> {
        self.keeper.finish()
    }
}
