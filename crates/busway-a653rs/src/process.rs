//! The processes of the partition: threads that start when the partition becomes `NORMAL`.
//!
//! Contract: processes are created and started while the partition initialises; [`run`] starts the
//! threads and never returns. Called through the traits of `a653rs`.

use std::cell::Cell;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use a653rs::bindings::{
    ApexPartitionP4, ApexProcessAttribute, ApexProcessP4, ApexSystemTime, ErrorReturnCode,
    INFINITE_TIME_VALUE, MAX_PRIORITY_VALUE, MIN_PRIORITY_VALUE, OperatingMode, ProcessId,
};
use busway_port::apex;

use crate::Busway;

/// What a thread needs on Linux beside the process's own stack, in bytes.
const SYSTEM_STACK_BYTES: usize = 256 * 1024;

/// The most processes of a partition (`SYSTEM_LIMIT_NUMBER_OF_PROCESSES`).
const MAX_PROCESSES: usize = 128;

/// A created process. Its identifier is its place, from 1.
struct Created {
    attributes: ApexProcessAttribute,
    is_started: bool,
}

static PROCESSES: Mutex<Vec<Created>> = Mutex::new(Vec::new());

thread_local! {
    /// Period in ns and next release, in ns of GET_TIME, of the process that this thread is; `None`
    /// if it is aperiodic.
    static RELEASE: Cell<Option<(ApexSystemTime, ApexSystemTime)>> = const { Cell::new(None) };
}

fn processes() -> MutexGuard<'static, Vec<Created>> {
    // The list is whole after every change.
    PROCESSES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ApexProcessP4 for Busway {
    fn create_process(attributes: &ApexProcessAttribute) -> Result<ProcessId, ErrorReturnCode> {
        let mut processes = processes();
        if processes.len() >= MAX_PROCESSES {
            return Err(ErrorReturnCode::InvalidConfig);
        }
        if processes
            .iter()
            .any(|known| known.attributes.name == attributes.name)
        {
            return Err(ErrorReturnCode::NoAction);
        }
        let is_time = |time| time == INFINITE_TIME_VALUE || time > 0;
        if !(MIN_PRIORITY_VALUE..=MAX_PRIORITY_VALUE).contains(&attributes.base_priority)
            || !is_time(attributes.period)
            || !is_time(attributes.time_capacity)
            || (attributes.period > 0 && attributes.time_capacity > attributes.period)
        {
            return Err(ErrorReturnCode::InvalidParam);
        }
        if Busway::get_partition_status().operating_mode == OperatingMode::Normal {
            return Err(ErrorReturnCode::InvalidMode);
        }
        processes.push(Created {
            attributes: attributes.clone(),
            is_started: false,
        });
        Ok(processes.len() as ProcessId)
    }

    fn start(process_id: ProcessId) -> Result<(), ErrorReturnCode> {
        let mut processes = processes();
        let index = usize::try_from(process_id).ok().and_then(|id| id.checked_sub(1));
        let process = index
            .and_then(|index| processes.get_mut(index))
            .ok_or(ErrorReturnCode::InvalidParam)?;
        if process.is_started {
            return Err(ErrorReturnCode::NoAction);
        }
        process.is_started = true;
        if Busway::get_partition_status().operating_mode == OperatingMode::Normal {
            spawn(&process.attributes)?;
        }
        Ok(())
    }
}

/// Starts the processes that are to run, and gives the calling thread, which initialised the
/// partition, nothing more to do.
pub(crate) fn run() -> Result<(), ErrorReturnCode> {
    {
        let processes = processes();
        for process in processes.iter().filter(|process| process.is_started) {
            spawn(&process.attributes)?;
        }
    }
    loop {
        thread::park();
    }
}

/// Starts a process as a thread. `InvalidConfig` if the system has no room for one more.
fn spawn(attributes: &ApexProcessAttribute) -> Result<(), ErrorReturnCode> {
    let (entry_point, period) = (attributes.entry_point, attributes.period);
    let priority = i64::from(attributes.base_priority);
    let stack_bytes = (attributes.stack_size as usize).saturating_add(SYSTEM_STACK_BYTES);
    let body = move || {
        apex::set_process_priority(priority);
        if period > 0 {
            RELEASE.set(Some((period, apex::get_time().saturating_add(period))));
        }
        entry_point();
    };
    let thread = thread::Builder::new().stack_size(stack_bytes).spawn(body);
    thread.map(|_| ()).map_err(|_| ErrorReturnCode::InvalidConfig)
}

/// Waits for the calling process's next release point; those that it has missed are left out.
pub(crate) fn wait_for_release() -> Result<(), ErrorReturnCode> {
    let (period, release) = RELEASE.get().ok_or(ErrorReturnCode::InvalidMode)?;
    let late = apex::get_time().saturating_sub(release);
    let missed = if late > 0 { late / period + 1 } else { 0 };
    let release = release.saturating_add(missed.saturating_mul(period));
    let wait = release.saturating_sub(apex::get_time());
    thread::sleep(Duration::from_nanos(u64::try_from(wait).unwrap_or(0)));
    RELEASE.set(Some((period, release.saturating_add(period))));
    Ok(())
}

/// Executes this program again, with its arguments and environment: threads can't be stopped in any
/// other way. Returns only if the system refuses.
pub(crate) fn execute_anew() -> Result<(), ErrorReturnCode> {
    let program = std::env::current_exe().map_err(|_| ErrorReturnCode::NotAvailable)?;
    let error = Command::new(program).args(std::env::args_os().skip(1)).exec();
    tracing::error!(%error, "cannot execute the program anew");
    Err(ErrorReturnCode::NotAvailable)
}
