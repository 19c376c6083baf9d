//! Which processes there are, what they may do, and who waits for what.
//!
//! Contract: every change is made under the table's lock and leaves it whole; `CHANGED` wakes all
//! that wait for a change. A process's *run* counts its starts and stops: a thread of an earlier
//! run ends at its next service. Called by the rest of this module.

use std::ffi::c_char;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use busway_port::MAX_NAME_LENGTH_BYTES;
use busway_port::apex::{self, INFINITE, OperatingMode, Refusal, SystemTime};

use super::Stop;
use crate::joined::joined;

/// `SYSTEM_LIMIT_NUMBER_OF_PROCESSES`.
pub(super) const MAX_PROCESSES: usize = 128;
pub(super) const MIN_PRIORITY: i32 = 1;
pub(super) const MAX_PRIORITY: i32 = 239;
/// The largest stack of one process that is requested from Linux, in bytes.
pub(super) const MAX_STACK_BYTES: u32 = 1 << 30;
/// The longest sleep before looking again, so that times that no clock reaches need no special
/// case.
const LONGEST_SLEEP_NS: i64 = 3_600_000_000_000;

/// The entry point of a process. Ending the thread unwinds it.
pub(super) type EntryPoint = extern "C-unwind" fn();

/// `PROCESS_ATTRIBUTE_TYPE`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ProcessAttribute {
    /// `PERIOD` in ns; `INFINITE_TIME_VALUE` for an aperiodic process.
    pub period: SystemTime,
    /// `TIME_CAPACITY` in ns, or `INFINITE_TIME_VALUE`.
    pub time_capacity: SystemTime,
    /// `ENTRY_POINT`.
    pub entry_point: Option<extern "C-unwind" fn()>,
    /// `STACK_SIZE` in bytes.
    pub stack_size: u32,
    /// `BASE_PRIORITY`.
    pub base_priority: i32,
    /// `DEADLINE`.
    pub deadline: i32,
    /// `NAME`.
    pub name: [c_char; MAX_NAME_LENGTH_BYTES],
}

/// `PROCESS_STATUS_TYPE`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ProcessStatus {
    /// `DEADLINE_TIME` in ns of GET_TIME, or `INFINITE_TIME_VALUE`.
    pub deadline_time: SystemTime,
    /// `CURRENT_PRIORITY`.
    pub current_priority: i32,
    /// `PROCESS_STATE`.
    pub process_state: i32,
    /// `ATTRIBUTES`.
    pub attributes: ProcessAttribute,
}

/// `PROCESS_STATE_TYPE`. Linux does not say which thread has a processor: what is ready is shown as
/// running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum State {
    Dormant = 0,
    Running = 2,
    Waiting = 3,
}

/// One created process. Its identifier is its place, from 1.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) attributes: ProcessAttribute,
    pub(super) name: String,
    pub(super) state: State,
    /// Counts starts and stops.
    pub(super) run: u64,
    pub(super) priority: i32,
    pub(super) is_suspended: bool,
    /// Delay of the start, in ns.
    pub(super) delay_ns: SystemTime,
    /// Next release in ns of GET_TIME; of a periodic process.
    pub(super) release_ns: SystemTime,
    /// In ns of GET_TIME, or infinite.
    pub(super) deadline_ns: SystemTime,
}

impl Process {
    pub(super) fn is_periodic(&self) -> bool {
        self.attributes.period != INFINITE
    }

    /// Begins the time budget at `from_ns`.
    pub(super) fn set_deadline(&mut self, from_ns: SystemTime) {
        self.deadline_ns = match self.attributes.time_capacity {
            INFINITE => INFINITE,
            capacity_ns => from_ns.saturating_add(capacity_ns),
        };
    }
}

/// The process that a thread is, by its place and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Me {
    pub(super) index: usize,
    pub(super) run: u64,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) processes: Vec<Process>,
    /// Whether [`super::run`] has started the processes.
    pub(super) is_running: bool,
    /// Who has locked preemption, and how often.
    pub(super) lock: Option<(Me, i32)>,
    pub(super) error_handler: Option<(EntryPoint, u32)>,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    processes: Vec::new(),
    is_running: false,
    lock: None,
    error_handler: None,
});
static CHANGED: Condvar = Condvar::new();

/// The table, locked.
pub(super) fn table() -> MutexGuard<'static, Table> {
    // The table is whole after every change.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes all that wait, to check again.
pub(super) fn wake_all() {
    CHANGED.notify_all();
}

impl Table {
    /// The process `id`.
    pub(super) fn process(&mut self, id: i32) -> Result<&mut Process, Refusal> {
        let index = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        index
            .and_then(|index| self.processes.get_mut(index))
            .ok_or(Refusal::InvalidParam)
    }

    /// CREATE_PROCESS, in the standard's order of checks.
    pub(super) fn create(&mut self, attributes: ProcessAttribute, name: &str) -> Result<i32, Refusal> {
        if self.processes.len() >= MAX_PROCESSES {
            return Err(Refusal::InvalidConfig);
        }
        if self.processes.iter().any(|known| known.name == name) {
            return Err(Refusal::NoAction);
        }
        let is_time = |time| time == INFINITE || time > 0;
        let ProcessAttribute {
            period,
            time_capacity,
            ..
        } = attributes;
        if name.is_empty()
            || attributes.entry_point.is_none()
            || attributes.stack_size > MAX_STACK_BYTES
            || !(MIN_PRIORITY..=MAX_PRIORITY).contains(&attributes.base_priority)
            || !is_time(period)
            || !is_time(time_capacity)
            || (period != INFINITE && time_capacity > period)
            || !matches!(attributes.deadline, 0 | 1)
        {
            return Err(Refusal::InvalidParam);
        }
        if is_normal()? {
            return Err(Refusal::InvalidMode);
        }
        self.processes.push(Process {
            attributes,
            name: name.to_owned(),
            state: State::Dormant,
            run: 0,
            priority: attributes.base_priority,
            is_suspended: false,
            delay_ns: 0,
            release_ns: 0,
            deadline_ns: INFINITE,
        });
        Ok(i32::try_from(self.processes.len()).unwrap_or(i32::MAX))
    }

    /// Whether the thread `me` was stopped.
    pub(super) fn is_over(&self, me: Me) -> bool {
        self.processes
            .get(me.index)
            .is_none_or(|process| process.run != me.run)
    }

    /// The state and run of a process that is stopped now.
    pub(super) fn stop(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.state = State::Dormant;
        process.run += 1;
        process.is_suspended = false;
        process.priority = process.attributes.base_priority;
        if self.lock.is_some_and(|(owner, _)| owner.index == index) {
            self.lock = None;
        }
    }
}

/// Whether the partition is in the mode `NORMAL`.
pub(super) fn is_normal() -> Result<bool, Refusal> {
    let status = apex::get_partition_status(&joined()?.partition);
    Ok(status.operating_mode == OperatingMode::Normal)
}

/// What a wait comes back with: the table, and whether what it waited for has happened.
pub(super) type Waited = (MutexGuard<'static, Table>, bool);

/// As [`wait_even_suspended`], and then for as long as the process is suspended.
pub(super) fn wait(
    table: MutexGuard<'static, Table>,
    me: Me,
    until_ns: SystemTime,
    is_done: impl Fn(&Table) -> bool,
) -> Result<Waited, Stop> {
    let (table, done) = wait_even_suspended(table, me, until_ns, is_done)?;
    let goes_on = |table: &Table| !table.processes[me.index].is_suspended;
    let (table, _) = wait_even_suspended(table, me, SystemTime::MAX, goes_on)?;
    Ok((table, done))
}

/// Sleeps until `is_done`, `until_ns` of GET_TIME, or the end of the run of `me`. Shows the process
/// as waiting meanwhile.
pub(super) fn wait_even_suspended(
    mut table: MutexGuard<'static, Table>,
    me: Me,
    until_ns: SystemTime,
    is_done: impl Fn(&Table) -> bool,
) -> Result<Waited, Stop> {
    loop {
        if table.is_over(me) {
            return Err(Stop::Ended);
        }
        let left_ns = until_ns.saturating_sub(apex::get_time());
        let done = is_done(&table);
        if done || left_ns <= 0 {
            table.processes[me.index].state = State::Running;
            return Ok((table, done));
        }
        table.processes[me.index].state = State::Waiting;
        let sleep_ns = left_ns.min(LONGEST_SLEEP_NS);
        let sleep = Duration::from_nanos(sleep_ns.unsigned_abs());
        (table, _) = CHANGED
            .wait_timeout(table, sleep)
            .unwrap_or_else(PoisonError::into_inner);
    }
}
