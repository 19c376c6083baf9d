//! Sets the processor, priority and locked memory of a lane's thread, from the system file.
//!
//! What the system refuses is logged once, with the mend; the lane runs all the same.
#![allow(unsafe_code)] // sched_setscheduler, mlockall and prctl have no safe wrapper in our libraries.

use busway_system::Lane as LaneSettings;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Applies the settings to the calling thread.
pub fn apply(settings: &LaneSettings) {
    let lane = &settings.name;
    // SAFETY: sets the timer slack of the calling thread to 1 ns (prctl(2)); short sleeps are then
    // as short as asked for.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
    if let Some(cpu) = settings.cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::warn!(
                "lane {lane}: can't run on cpu {cpu}: {error}; does this host have that processor?"
            );
        }
    }
    if let Some(priority) = settings.priority {
        // SAFETY: a zeroed sched_param is a valid one on Linux; pid 0 is the calling thread.
        let failed = unsafe {
            let mut param: libc::sched_param = std::mem::zeroed();
            param.sched_priority = libc::c_int::from(priority);
            libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) != 0
        };
        if failed {
            let error = std::io::Error::last_os_error();
            tracing::warn!(
                "lane {lane}: no SCHED_FIFO priority {priority}: {error}; run as root or raise the rtprio limit (ulimit -r)"
            );
        }
    }
    if settings.lock_memory {
        // SAFETY: locks pages into memory; touches nothing of ours.
        if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } != 0 {
            let error = std::io::Error::last_os_error();
            tracing::warn!("lane {lane}: memory is not locked: {error}; raise the memlock limit (ulimit -l)");
        }
    }
}
