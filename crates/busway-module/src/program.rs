//! Starts the program of a partition in its control group, and waits for its end.
//!
//! Contract: one thread for each partition, the keeper, starts its program and waits for it. The
//! kernel ends the program when its keeper ends (`PR_SET_PDEATHSIG` goes by the thread), so keepers
//! live as long as the supervisor. The child joins its group before it executes the program; if the
//! group is frozen, it stays there until the partition's next window, and so does its keeper.
//! Called by the supervisor.
#![allow(unsafe_code)] // What a child does between fork and exec is unsafe to say.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use busway_system::{Fault, SchedulingPolicy};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::CpuSet;

use crate::sys;

/// What a keeper needs to start the program.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) partition: String,
    pub(crate) program: busway_system::Program,
    /// Beside those of `program`: the system file and the partition.
    pub(crate) environment: Vec<(String, PathBuf)>,
    pub(crate) processors: Vec<usize>,
    pub(crate) policy: SchedulingPolicy,
}

/// What a keeper reports.
#[derive(Debug)]
pub(crate) enum Event {
    /// The program runs, or waits for the first window of its partition.
    Started { partition: usize, pid: u32 },
    /// The program has ended.
    Ended { partition: usize, status: ExitStatus },
    /// It could not be started.
    NotStarted { partition: usize, error: StartError },
}

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
#[error("partition {partition}: {program}: cannot {action}: {source}{mend}")]
pub(crate) struct StartError {
    partition: String,
    program: String,
    action: &'static str,
    source: io::Error,
    mend: &'static str,
}

/// The thread that starts a partition's program.
#[derive(Debug)]
pub(crate) struct Keeper {
    orders: Sender<File>,
    thread: JoinHandle<()>,
}

impl Keeper {
    pub(crate) fn new(at: usize, launch: Launch, events: Sender<Event>) -> Self {
        let (orders, receiver) = channel();
        let thread = std::thread::spawn(move || keep(at, &launch, &receiver, &events));
        Self { orders, thread }
    }

    /// Starts the program; `entrance` is the file by which it joins its group.
    pub(crate) fn start(&self, entrance: File) {
        // The thread ends only when this value is dropped.
        let _ = self.orders.send(entrance);
    }

    /// Whether the keeper has ended; it does so when its program has, and no order comes.
    pub(crate) fn finish(self) -> JoinHandle<()> {
        self.thread
    }
}

fn keep(at: usize, launch: &Launch, orders: &Receiver<File>, events: &Sender<Event>) {
    for entrance in orders {
        let event = match launch.spawn(entrance) {
            Err(error) => Event::NotStarted { partition: at, error },
            Ok(mut child) => {
                let pid = child.id();
                // A supervisor that listens no more has ended all partitions.
                let _ = events.send(Event::Started { partition: at, pid });
                match child.wait() {
                    Ok(status) => Event::Ended {
                        partition: at,
                        status,
                    },
                    Err(source) => Event::NotStarted {
                        partition: at,
                        error: launch.error("wait for the program", source, ""),
                    },
                }
            }
        };
        let _ = events.send(event);
    }
}

/// What the child does before it executes the program. A failure crosses to the parent as an error
/// number, which has room for the step.
#[derive(Clone, Copy)]
enum ChildStep {
    Follow = 1,
    Processors,
    Policy,
    Join,
}

const STEP_FACTOR: i32 = 10_000;

impl ChildStep {
    fn mark(self) -> impl Fn(io::Error) -> io::Error {
        move |error| {
            io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0) + self as i32 * STEP_FACTOR)
        }
    }

    /// What failed, and the fix.
    fn explain(step: i32) -> (&'static str, &'static str) {
        match step {
            1 => ("bind it to the supervisor's life", ""),
            2 => ("set its processors", "; name processors that this machine has"),
            3 => (
                "set its scheduling policy",
                "; run as root or raise the rtprio limit (ulimit -r)",
            ),
            4 => (
                "join its control group",
                "; the supervisor needs write access to cgroup.procs of the group that it is in itself",
            ),
            _ => ("start", "; correct `command`, which is relative to `directory`"),
        }
    }
}

impl Launch {
    fn error(&self, action: &'static str, source: io::Error, mend: &'static str) -> StartError {
        StartError {
            partition: self.partition.clone(),
            program: self.program.command[0].clone(),
            action,
            source,
            mend,
        }
    }

    fn spawn(&self, entrance: File) -> Result<std::process::Child, StartError> {
        let directory = &self.program.directory;
        let mut command = Command::new(program_path(&self.program.command[0], directory));
        command
            .args(&self.program.command[1..])
            .current_dir(directory)
            .envs(&self.program.environment)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            // Ctrl-C is for the supervisor.
            .process_group(0);
        let supervisor = std::process::id();
        let (processors, policy) = (sys::cpu_set(&self.processors), self.policy);
        let prepare = move || prepare_child(supervisor, processors.as_ref(), policy, &entrance);
        // SAFETY: between fork and exec the child may only call functions that are safe in a signal
        // handler. `prepare_child` makes system calls on values that exist already, and neither
        // allocates nor locks.
        unsafe { command.pre_exec(prepare) };
        command.spawn().map_err(|error| {
            let number = error.raw_os_error().unwrap_or(0);
            let (action, mend) = ChildStep::explain(number / STEP_FACTOR);
            let source = match number {
                0 => error,
                _ => io::Error::from_raw_os_error(number % STEP_FACTOR),
            };
            self.error(action, source, mend)
        })
    }
}

/// A program with a `/` is relative to the directory in which it runs.
fn program_path(name: &str, directory: &Path) -> PathBuf {
    if name.contains('/') {
        directory.join(name)
    } else {
        PathBuf::from(name)
    }
}

fn prepare_child(
    supervisor: u32,
    processors: Option<&CpuSet>,
    policy: SchedulingPolicy,
    entrance: &File,
) -> io::Result<()> {
    let follow = ChildStep::Follow.mark();
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| follow(error.into()))?;
    // A supervisor that died before the line above sends no signal.
    if std::os::unix::process::parent_id() != supervisor {
        return Err(follow(rustix::io::Errno::SRCH.into()));
    }
    sys::set_processors(processors).map_err(ChildStep::Processors.mark())?;
    sys::set_policy(policy).map_err(ChildStep::Policy.mark())?;
    // 0 is the writer itself. If the group is frozen, the child goes no further until it is thawed.
    rustix::io::write(entrance.as_fd(), b"0").map_err(|error| ChildStep::Join.mark()(error.into()))?;
    Ok(())
}

/// The fault that the end of a program is, unless the partition asked for it.
pub(crate) fn fault_of(status: ExitStatus, has_raised_error: bool) -> Fault {
    match (status.code(), status.signal()) {
        (Some(0), _) => Fault::Exit,
        (Some(_), _) if has_raised_error => Fault::ApplicationError,
        (Some(_), _) => Fault::Failure,
        (None, Some(libc::SIGSEGV | libc::SIGBUS)) => Fault::MemoryViolation,
        (None, Some(libc::SIGFPE)) => Fault::NumericError,
        (None, Some(libc::SIGILL | libc::SIGSYS | libc::SIGTRAP)) => Fault::IllegalRequest,
        _ => Fault::Killed,
    }
}

/// Checks that this process may give a partition its processors and priority, on a thread that ends
/// afterwards.
pub(crate) fn check_rights(
    processors: &[usize],
    policy: SchedulingPolicy,
) -> Result<(), (&'static str, io::Error)> {
    let set = sys::cpu_set(processors);
    let check = move || {
        sys::set_processors(set.as_ref()).map_err(|error| ("processors", error))?;
        sys::set_policy(policy).map_err(|error| ("policy", error))
    };
    std::thread::spawn(check).join().unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_of_a_program_is_the_fault_of_its_status() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        for (status, raised, fault) in [
            (exited(0), false, Fault::Exit),
            (exited(3), false, Fault::Failure),
            (exited(1), true, Fault::ApplicationError),
            (ExitStatus::from_raw(libc::SIGSEGV), false, Fault::MemoryViolation),
            (ExitStatus::from_raw(libc::SIGFPE), false, Fault::NumericError),
            (ExitStatus::from_raw(libc::SIGILL), false, Fault::IllegalRequest),
            (ExitStatus::from_raw(libc::SIGKILL), true, Fault::Killed),
        ] {
            assert_eq!(fault_of(status, raised), fault, "{status}");
        }
    }
}
