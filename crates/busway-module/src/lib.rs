//! Runs the ARINC 653 partitions of one host as Linux processes: the supervisor behind
//! `busway module run`.
//!
//! - Each partition has a control group (cgroup v2) in which all its processes are. Outside of its
//!   windows the group is frozen, so nothing in it runs, whatever the program does.
//! - A scheduling thread for each set of processors freezes the partition whose window ends, waits
//!   until the kernel confirms it, and thaws the next one.
//! - What a fault of a partition does stands in the system file or in the health monitor's tables
//!   of the ARINC 653 XML file: ignore, restart, stop the partition, shut down the module.
//! - How late windows began, how long freezing took, faults and restarts are measured and counted
//!   ([`Status`]).
//!
//! Contract: [`run`] returns when it is asked to stop, when a fault shuts the module down, or when
//! no partition has anything left to do. Then no process and no control group of it is left. If the
//! supervisor is killed, the kernel kills the partitions' programs; the next start kills what they
//! had started and removes the groups. `docs/decisions/017-module.md` says what this can promise
//! and what it can't. Called by the command line.

mod cgroup;
mod partition;
mod program;
mod restarts;
mod scheduler;
mod status;
mod supervisor;
mod sys;
pub mod time_table;
mod timeline;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use busway_port::{JoinError, StoreError};
use busway_system::System;

pub use cgroup::CgroupError;
pub use status::{End, PartitionStatus, Percentiles, State, Status, WindowSummary};

/// What the command line says beside the system file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the status is written once a second; `None`: nowhere.
    pub status: Option<PathBuf>,
    /// The control group in which the module gets its own; `None`: that of this process.
    pub cgroup: Option<PathBuf>,
}

/// Why a module can't run.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// No partition names a program.
    #[error(
        "{}: no partition of host {host:?} has a program; add command = [\"./program\"] to a [[partition]], or to \
         [module.partition.NAME] for one of an XML file", file.display()
    )]
    NoProgram {
        /// The system file.
        file: PathBuf,
        /// The host.
        host: String,
    },
    /// The kernel refuses a partition's processors or priority.
    #[error("partition {partition}: {what} {value}: {source}; {mend}")]
    Refused {
        /// The partition.
        partition: String,
        /// The key in the system file.
        what: &'static str,
        /// Its value.
        value: String,
        /// Why.
        source: std::io::Error,
        /// The fix.
        mend: &'static str,
    },
    /// There is no control group.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// The state of the host's ports can't be had.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state of a partition can't be had.
    #[error(transparent)]
    Partition(#[from] JoinError),
}

/// Runs the partitions of `host` until `stop` is set, a fault shuts the module down, or all
/// partitions are done. Returns what was measured.
///
/// # Errors
/// [`ModuleError`], before any partition was started.
pub fn run(system: &System, host: &str, options: &Options, stop: &AtomicBool) -> Result<Status, ModuleError> {
    let mut supervisor = supervisor::Supervisor::new(system, host, options)?;
    supervisor.run(stop);
    Ok(supervisor.shut_down())
}
