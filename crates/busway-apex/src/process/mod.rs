//! The processes of the partition: threads of this program, started when the partition becomes
//! `NORMAL`.
//!
//! Contract: one table for the program (`table`), whose lock is never held while a process waits,
//! runs or ends. Linux schedules: a process's priority orders it where it waits at ports, its
//! deadline is reported and not watched. A thread cannot be halted from outside, so what one
//! process does to another (`STOP`, `SUSPEND`) takes effect when that one next calls a service of
//! this module, at once if it waits in one. Called by C through `services` and `error`.
//!
//! Source: ARINC 653 Part 1, sections 3.3 (process management), 3.4 (time management) and 3.8
//! (health monitoring).

mod error;
mod services;
mod table;
mod thread;

pub use error::{
    CREATE_ERROR_HANDLER, ErrorStatus, GET_ERROR_STATUS, RAISE_APPLICATION_ERROR, REPORT_APPLICATION_MESSAGE,
};
pub use services::{
    CREATE_PROCESS, DELAYED_START, GET_MY_ID, GET_PROCESS_ID, GET_PROCESS_STATUS, LOCK_PREEMPTION,
    PERIODIC_WAIT, REPLENISH, RESUME, SET_PRIORITY, START, STOP, STOP_SELF, SUSPEND, SUSPEND_SELF,
    TIMED_WAIT, UNLOCK_PREEMPTION,
};
pub use table::{ProcessAttribute, ProcessStatus};
pub(crate) use thread::{end_program, execute_anew, lock_level, run};

use busway_port::apex::Refusal;

/// Why a service does not come back to its caller as it was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The calling process was stopped: its thread ends.
    Ended,
    /// The service refuses.
    Refused(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
