//! The supervisor: starts partitions, handles their faults, and ends them.
//!
//! Contract: everything here runs on the thread that calls [`Supervisor::run`]; scheduling threads
//! and keepers only report. Called by [`crate::run`].

use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use busway_port::Store;
use busway_port::supervise::Supervised;
use busway_port::system::{module_of, root_of};
use busway_system::{Execution, Partition, Program, SchedulingPolicy, System};

use crate::cgroup::{self, ModuleGroup};
use crate::partition::{GRACE, Managed, Phase};
use crate::program::{self, Event, Keeper, Launch};
use crate::scheduler::{Scheduled, Scheduler};
use crate::status::{self, End, PartitionStatus, Status, WindowTimes};
use crate::timeline::timelines;
use crate::{ModuleError, Options};

const TICK: Duration = Duration::from_millis(10);
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How long killed processes may take to go, before they are left behind with a warning.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The directory of the ports' state, as partitions find it.
const STORE: &str = "BUSWAY_STORE";

/// Runs a module.
#[derive(Debug)]
pub(crate) struct Supervisor {
    host: String,
    partitions: Vec<Managed>,
    /// In the order of `partitions`.
    scheduled: Arc<Vec<Scheduled>>,
    scheduler: Scheduler,
    major_frame_ns: Option<u64>,
    events: Receiver<Event>,
    status: Option<PathBuf>,
    status_failed: bool,
    end: Option<End>,
    /// The last field: its directory is removed when everything in it has ended.
    group: ModuleGroup,
}

impl Supervisor {
    pub(crate) fn new(system: &System, host: &str, options: &Options) -> Result<Self, ModuleError> {
        let supervised = programs(system, host)?;
        for (partition, _) in &supervised {
            check_rights(partition)?;
        }
        let major_frame_ns = system.host(host).and_then(|host| host.major_frame_ns);
        let root = env::var_os(STORE).map_or_else(|| root_of(system, host), PathBuf::from);
        let store = Store::open(&root, module_of(system, host))?;
        let base = match &options.cgroup {
            Some(base) => base.clone(),
            None => cgroup::own_group()?,
        };
        let group = ModuleGroup::create(&base, &group_name(&root))?;
        let (sender, events) = channel();
        let (mut partitions, mut scheduled) = (Vec::new(), Vec::new());
        for (at, (partition, program)) in supervised.iter().enumerate() {
            let name = format!("partition-{}", partition.name);
            scheduled.push(Scheduled {
                group: group.add(&name, &partition.execution.processors)?,
                times: Mutex::new(WindowTimes::new()),
            });
            let launch = launch(system, partition, program);
            let keeper = Keeper::new(at, launch, sender.clone());
            let file = Supervised::open(&store, &partition.name)?;
            partitions.push(Managed::new(partition, keeper, file, major_frame_ns));
        }
        let executions: Vec<Execution> = supervised.iter().map(|(it, _)| it.execution.clone()).collect();
        let scheduled = Arc::new(scheduled);
        let timelines = major_frame_ns.map_or_else(Vec::new, |frame_ns| timelines(&executions, frame_ns));
        let scheduler = Scheduler::start(timelines, major_frame_ns.unwrap_or(1), &scheduled);
        Ok(Self {
            host: host.to_owned(),
            partitions,
            scheduled,
            scheduler,
            major_frame_ns,
            events,
            status: options.status.clone(),
            status_failed: false,
            end: None,
            group,
        })
    }

    /// Runs until `stop` is set or nothing is left to do.
    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        for (partition, scheduled) in self.partitions.iter_mut().zip(self.scheduled.iter()) {
            if self.major_frame_ns.is_none()
                && let Err(error) = scheduled.group.set_frozen(false)
            {
                tracing::error!("partition {} cannot be thawed: {error}", partition.name);
            }
            partition.start(&scheduled.group, None);
        }
        let mut written = Instant::now();
        while self.end.is_none() {
            match self.events.recv_timeout(TICK) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            for (partition, scheduled) in self.partitions.iter_mut().zip(self.scheduled.iter()) {
                partition.tick(&scheduled.group);
            }
            // Relaxed: a signal handler sets it, and it carries nothing else.
            if stop.load(Ordering::Relaxed) {
                self.end.get_or_insert(End::Asked);
            } else if self.is_done() {
                self.end.get_or_insert(End::AllIdle);
            }
            if written.elapsed() >= STATUS_INTERVAL {
                written = Instant::now();
                self.write_status();
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let at = match &event {
            Event::Started { partition, .. }
            | Event::Ended { partition, .. }
            | Event::NotStarted { partition, .. } => *partition,
        };
        let group = &self.scheduled[at].group;
        let shutdown = self.partitions[at].handle(event, group);
        if let Some(fault) = shutdown {
            let partition = self.partitions[at].name.clone();
            tracing::error!("partition {partition}: {}: shuts down the module", fault.name());
            self.end.get_or_insert(End::Shutdown {
                partition,
                fault: fault.name(),
            });
        }
    }

    /// Whether no partition runs, nor ever will.
    fn is_done(&self) -> bool {
        let mut all = self.partitions.iter().zip(self.scheduled.iter());
        all.all(|(partition, scheduled)| match partition.phase {
            Phase::Idle | Phase::GivenUp => true,
            Phase::Ended => !scheduled.group.is_populated(),
            _ => false,
        })
    }

    /// Ends all partitions, and says what was measured.
    pub(crate) fn shut_down(mut self) -> Status {
        self.scheduler.stop();
        for scheduled in self.scheduled.iter() {
            // In this order: a frozen process cannot end, so its number is not another's.
            scheduled.group.terminate();
            if let Err(error) = scheduled.group.set_frozen(false) {
                tracing::error!("a partition cannot be thawed: {error}");
            }
        }
        let status = self.status();
        let keepers: Vec<JoinHandle<()>> = self.partitions.drain(..).map(Managed::finish).collect();
        let asked = Instant::now();
        let is_left = || {
            let mut groups = self.scheduled.iter();
            groups.any(|it| it.group.is_populated()) || keepers.iter().any(|keeper| !keeper.is_finished())
        };
        while is_left() {
            let waited = asked.elapsed();
            if waited > GRACE + KILL_TIMEOUT {
                tracing::error!(
                    "{}: killed processes do not end; see cgroup.procs there",
                    self.group.path().display()
                );
                break;
            }
            if waited > GRACE {
                for scheduled in self.scheduled.iter() {
                    scheduled.group.kill();
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(path) = &self.status
            && let Err(error) = status::write(path, &status)
        {
            tracing::warn!("status file {}: {error}", path.display());
        }
        status
    }

    fn status(&self) -> Status {
        let partitions = self.partitions.iter().zip(self.scheduled.iter());
        let partitions = partitions.map(|(partition, scheduled)| PartitionStatus {
            name: partition.name.clone(),
            state: partition.state(),
            pid: partition.pid,
            restarts: partition.restarts.total,
            faults: partition.faults.named(),
            windows: scheduled
                .times
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .summary(),
        });
        Status {
            host: self.host.clone(),
            pid: std::process::id(),
            cgroup: self.group.path().to_path_buf(),
            major_frame_ns: self.major_frame_ns,
            is_real_time: self.major_frame_ns.map(|_| self.scheduler.is_real_time),
            partitions: partitions.collect(),
            end: self.end.clone(),
        }
    }

    fn write_status(&mut self) {
        let Some(path) = &self.status else { return };
        let written = status::write(path, &self.status());
        match written {
            Ok(()) => self.status_failed = false,
            Err(error) if !self.status_failed => {
                tracing::warn!(
                    "status file {}: {error}; the module runs on without it",
                    path.display()
                );
                self.status_failed = true;
            }
            Err(_) => {}
        }
    }
}

/// The partitions of `host` that have a program.
fn programs<'a>(system: &'a System, host: &str) -> Result<Vec<(&'a Partition, &'a Program)>, ModuleError> {
    let mut found = Vec::new();
    for partition in system
        .partitions
        .iter()
        .filter(|partition| partition.host == host)
    {
        match &partition.execution.program {
            Some(program) => found.push((partition, program)),
            None if !partition.execution.windows.is_empty() => tracing::warn!(
                "partition {} has windows and no program: nothing runs in them; add `command`",
                partition.name
            ),
            None => {}
        }
    }
    if found.is_empty() {
        return Err(ModuleError::NoProgram {
            file: system.file.clone(),
            host: host.to_owned(),
        });
    }
    Ok(found)
}

/// Whether this process may give a partition its processors and its priority.
fn check_rights(partition: &Partition) -> Result<(), ModuleError> {
    let execution = &partition.execution;
    let refused = |value: String| {
        move |(what, source): (&'static str, std::io::Error)| ModuleError::Refused {
            partition: partition.name.clone(),
            what,
            value,
            source,
            mend: match what {
                "processors" => "name processors that this machine has and this process may use",
                _ => "run as root or raise the rtprio limit (ulimit -r)",
            },
        }
    };
    for processor in &execution.processors {
        program::check_rights(&[*processor], SchedulingPolicy::Other)
            .map_err(refused(processor.to_string()))?;
    }
    let value = match execution.policy {
        SchedulingPolicy::Other => "other".to_owned(),
        SchedulingPolicy::Fifo(priority) => format!("fifo {priority}"),
        SchedulingPolicy::RoundRobin(priority) => format!("round-robin {priority}"),
    };
    program::check_rights(&[], execution.policy).map_err(refused(value))
}

fn launch(system: &System, partition: &Partition, program: &Program) -> Launch {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    Launch {
        partition: partition.name.clone(),
        program: Program {
            directory: absolute(&program.directory),
            ..program.clone()
        },
        environment: vec![
            ("BUSWAY_SYSTEM".to_owned(), absolute(&system.file)),
            ("BUSWAY_PARTITION".to_owned(), PathBuf::from(&partition.name)),
        ],
        processors: partition.execution.processors.clone(),
        policy: partition.execution.policy,
    }
}

/// The name of a module's control group: that of the directory with the state of its ports, of
/// which each module has its own.
fn group_name(root: &Path) -> String {
    let root = std::path::absolute(root).unwrap_or_else(|_| root.to_path_buf());
    let text = root.to_string_lossy();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    let escaped: String = text.chars().map(plain).collect();
    // Names of directories have at most 255 bytes; the end tells modules apart.
    let start = escaped.len().saturating_sub(200);
    format!("busway-module{}", &escaped[start..])
}
