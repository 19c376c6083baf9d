//! The services about the partition itself that ports need: mode, status, time, priority of the
//! caller.

use std::cell::Cell;

use super::{Refusal, SystemTime};
use crate::config::Clock;
use crate::partition::{Partition, mode};

/// `OPERATING_MODE_TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum OperatingMode {
    /// Shut down: no port can be created, and no call waits.
    Idle = 0,
    /// Initialising, with nothing kept.
    ColdStart = 1,
    /// Initialising after a restart that kept something.
    WarmStart = 2,
    /// At work.
    Normal = 3,
}

/// `START_CONDITION_TYPE`, as far as Linux shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum StartCondition {
    /// The first start in this store.
    NormalStart = 0,
    /// A later start.
    PartitionRestart = 1,
    /// A start by the supervisor of the module, after a fault.
    HmPartitionRestart = 3,
}

impl OperatingMode {
    /// From a word of a partition's file. What is no mode is taken for IDLE.
    pub(crate) fn from_word(word: u64) -> Self {
        match word {
            mode::NORMAL => OperatingMode::Normal,
            mode::COLD_START => OperatingMode::ColdStart,
            mode::WARM_START => OperatingMode::WarmStart,
            _ => OperatingMode::Idle,
        }
    }
}

/// `PARTITION_STATUS_TYPE`. Periods and durations, which need a time schedule, are not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionStatus {
    /// The number that the configuration gives the partition.
    pub identifier: i64,
    /// Its mode.
    pub operating_mode: OperatingMode,
    /// Why it was started.
    pub start_condition: StartCondition,
}

/// GET_PARTITION_STATUS.
#[must_use]
pub fn get_partition_status(partition: &Partition) -> PartitionStatus {
    PartitionStatus {
        identifier: partition.identifier(),
        operating_mode: OperatingMode::from_word(partition.mode()),
        start_condition: match partition.start_condition() {
            0 => StartCondition::NormalStart,
            3 => StartCondition::HmPartitionRestart,
            _ => StartCondition::PartitionRestart,
        },
    }
}

/// SET_PARTITION_MODE, for all processes of the partition.
///
/// A start mode begins a new incarnation, in which no port is created yet; ending and starting the
/// processes themselves is their own business, or their supervisor's.
///
/// # Errors
/// [`Refusal::NoAction`] if the partition is in the mode `NORMAL` already; [`Refusal::InvalidMode`]
/// for a warm start out of a cold start; [`Refusal::NotAvailable`] if the kernel refuses the lock
/// that the change needs.
pub fn set_partition_mode(partition: &Partition, operating_mode: OperatingMode) -> Result<(), Refusal> {
    let now = partition.mode();
    match operating_mode {
        OperatingMode::Normal if now == mode::NORMAL => return Err(Refusal::NoAction),
        OperatingMode::WarmStart if now == mode::COLD_START => return Err(Refusal::InvalidMode),
        _ => {}
    }
    partition
        .set_mode(operating_mode as u64)
        .map_err(|_| Refusal::NotAvailable)
}

/// Records for the partition's supervisor that this program ends by an application error that no
/// error handler took. The caller ends the program.
pub fn report_application_error(partition: &Partition) {
    partition.mark_error();
}

/// GET_TIME: nanoseconds of `CLOCK_MONOTONIC`, the clock of source time stamps inside a host.
#[must_use]
pub fn get_time() -> SystemTime {
    Clock::Monotonic.now_ns()
}

thread_local! {
    static PRIORITY: Cell<i64> = const { Cell::new(0) };
}

/// Sets the priority with which the calling thread, a process in the standard's words, waits at
/// ports of the discipline `PRIORITY` from now on: larger is sooner, 0 before the first call.
pub fn set_process_priority(priority: i64) {
    PRIORITY.set(priority);
}

pub(super) fn process_priority() -> i64 {
    PRIORITY.get()
}
