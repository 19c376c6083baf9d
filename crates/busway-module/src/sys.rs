//! System calls that rustix has no word for: scheduling policies and the timer slack.
//!
//! Contract: each function changes the calling thread only. Called by the scheduling threads, by
//! the check of rights, and in the child between fork and exec, so nothing here allocates.
#![allow(unsafe_code)] // sched_setscheduler and prctl have no safe wrapper in our libraries.

use std::io;

use busway_system::SchedulingPolicy;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Priority of the scheduling threads: above that of every partition.
pub(crate) const SUPERVISOR_PRIORITY: u8 = busway_system::MAX_PRIORITY + 1;

/// Sets the scheduling policy of the calling thread, which its children inherit.
pub(crate) fn set_policy(policy: SchedulingPolicy) -> io::Result<()> {
    let (number, priority) = match policy {
        SchedulingPolicy::Other => (libc::SCHED_OTHER, 0),
        SchedulingPolicy::Fifo(priority) => (libc::SCHED_FIFO, priority),
        SchedulingPolicy::RoundRobin(priority) => (libc::SCHED_RR, priority),
    };
    // SAFETY: a zeroed sched_param is a valid one on Linux; pid 0 is the calling thread; the call
    // only reads the structure.
    let failed = unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        param.sched_priority = libc::c_int::from(priority);
        libc::sched_setscheduler(0, number, &param) != 0
    };
    if failed {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The set of these processors; `None`: all, so nothing need be set.
pub(crate) fn cpu_set(processors: &[usize]) -> Option<CpuSet> {
    if processors.is_empty() {
        return None;
    }
    let mut set = CpuSet::new();
    for processor in processors {
        set.set(*processor);
    }
    Some(set)
}

/// Binds the calling thread, and its children, to `set`.
pub(crate) fn set_processors(set: Option<&CpuSet>) -> io::Result<()> {
    match set {
        Some(set) => sched_setaffinity(None, set).map_err(io::Error::from),
        None => Ok(()),
    }
}

/// Lets the calling thread sleep as precisely as the kernel can.
pub(crate) fn sleep_precisely() {
    // SAFETY: sets the timer slack of the calling thread to 1 ns (prctl(2)) and touches nothing
    // else; a failure leaves the default of 50 us.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
}
