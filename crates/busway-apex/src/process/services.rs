//! The services of processes and their time. Those in which a process may end are "C-unwind": see
//! `thread`.

use std::ffi::c_char;

use busway_port::apex::{self, INFINITE, Refusal, ReturnCode, SystemTime};

use super::Stop;
use super::table::{
    self, Me, ProcessAttribute, ProcessStatus, State, Table, is_normal, wait, wait_even_suspended, wake_all,
};
use super::thread::{self, end_thread, is_handler, me, me_running};
use crate::boundary::{Name, Out, answer};

/// `MAX_LOCK_LEVEL`.
const MAX_LOCK_LEVEL: i32 = 16;

/// Does `service` and writes its code, as [`answer`] does. Whether the calling process has ended
/// meanwhile.
fn ends(code: &Out<i32>, service: impl FnOnce() -> Result<ReturnCode, Stop>) -> bool {
    let mut has_ended = false;
    answer(code, || match service() {
        Ok(code) => Ok(code),
        Err(Stop::Refused(refusal)) => Err(refusal),
        Err(Stop::Ended) => {
            has_ended = true;
            Ok(ReturnCode::NoError)
        }
    });
    has_ended
}

/// Does `service` with the table.
fn with_table(code: &Out<i32>, service: impl FnOnce(&mut Table) -> Result<(), Refusal>) {
    answer(code, || {
        service(&mut table::table()).map(|()| ReturnCode::NoError)
    });
}

fn holds_preemption(table: &Table, me: Me) -> bool {
    table.lock.is_some_and(|(owner, _)| owner == me)
}

/// CREATE_PROCESS.
///
/// # Safety
/// The attributes are null or valid for reads, output pointers null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CREATE_PROCESS(
    ATTRIBUTES: *const ProcessAttribute,
    PROCESS_ID: *mut i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised; the enumeration in the structure is an integer here.
    let (place, code) = unsafe { (Out::new(PROCESS_ID), Out::new(RETURN_CODE)) };
    // SAFETY: as above.
    let attributes = (!ATTRIBUTES.is_null()).then(|| unsafe { ATTRIBUTES.read() });
    answer(&code, || {
        crate::joined::joined()?;
        let attributes = attributes.ok_or(Refusal::InvalidParam)?;
        // SAFETY: the name is an array of this frame, as long as the longest name.
        let name = unsafe { Name::new(attributes.name.as_ptr()) };
        place.put(0)?;
        place.put(table::table().create(attributes, name.text())?)?;
        Ok(ReturnCode::NoError)
    });
}

/// START.
///
/// # Safety
/// The return code is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn START(PROCESS_ID: i32, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    answer(&code, || {
        thread::start(PROCESS_ID, 0).map(|()| ReturnCode::NoError)
    });
}

/// DELAYED_START.
///
/// # Safety
/// The return code is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn DELAYED_START(PROCESS_ID: i32, DELAY_TIME: i64, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    answer(&code, || {
        thread::start(PROCESS_ID, DELAY_TIME).map(|()| ReturnCode::NoError)
    });
}

/// STOP.
///
/// # Safety
/// The return code is null or valid for writes. The calling thread's C functions may be unwound.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn STOP(PROCESS_ID: i32, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    let has_ended = ends(&code, || {
        let me = me_running()?;
        let mut table = table::table();
        let state = table.process(PROCESS_ID)?.state;
        if state == State::Dormant {
            return Err(Refusal::NoAction.into());
        }
        let index = PROCESS_ID as usize - 1;
        table.stop(index);
        wake_all();
        if me.is_some_and(|me| me.index == index) {
            return Err(Stop::Ended);
        }
        Ok(ReturnCode::NoError)
    });
    if has_ended {
        // SAFETY: the thread is a process's; `Out` gives nothing back.
        unsafe { end_thread() }
    }
}

/// STOP_SELF. Returns if the calling thread is no process.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn STOP_SELF() {
    let me = me();
    if let Some(me) = me {
        thread::stop_me(me);
    }
    if me.is_some() || is_handler() {
        // SAFETY: the thread is a process's, or the error handler's; nothing here gives anything
        // back.
        unsafe { end_thread() }
    }
}

/// SUSPEND_SELF.
///
/// # Safety
/// As for [`STOP`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn SUSPEND_SELF(TIME_OUT: i64, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    let has_ended = ends(&code, || {
        let me = me_running()?.ok_or(Refusal::InvalidMode)?;
        let mut table = table::table();
        if holds_preemption(&table, me) {
            return Err(Refusal::InvalidMode.into());
        }
        if TIME_OUT < INFINITE {
            return Err(Refusal::InvalidParam.into());
        }
        if table.processes[me.index].is_periodic() {
            return Err(Refusal::InvalidMode.into());
        }
        if TIME_OUT == 0 {
            return Ok(ReturnCode::NoError);
        }
        table.processes[me.index].is_suspended = true;
        let resumed = |table: &Table| !table.processes[me.index].is_suspended;
        let (mut table, is_resumed) = wait_even_suspended(table, me, until(TIME_OUT), resumed)?;
        table.processes[me.index].is_suspended = false;
        if is_resumed {
            Ok(ReturnCode::NoError)
        } else {
            Err(Refusal::TimedOut.into())
        }
    });
    if has_ended {
        // SAFETY: as in `STOP`.
        unsafe { end_thread() }
    }
}

/// The moment in ns of GET_TIME at which `time_out` from now has passed.
fn until(time_out: SystemTime) -> SystemTime {
    match time_out {
        INFINITE => SystemTime::MAX,
        time_out => apex::get_time().saturating_add(time_out),
    }
}

/// SUSPEND.
///
/// # Safety
/// The return code is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SUSPEND(PROCESS_ID: i32, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    with_table(&code, |table| {
        let holder = table.lock.map(|(owner, _)| owner.index + 1);
        let process = table.process(PROCESS_ID)?;
        // What a process holds can't be taken from it: a process that waits for it never gets it.
        if holder == usize::try_from(PROCESS_ID).ok() {
            return Err(Refusal::InvalidMode);
        }
        if process.state == State::Dormant || process.is_periodic() {
            return Err(Refusal::InvalidMode);
        }
        if process.is_suspended {
            return Err(Refusal::NoAction);
        }
        process.is_suspended = true;
        Ok(())
    });
}

/// RESUME.
///
/// # Safety
/// The return code is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RESUME(PROCESS_ID: i32, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    with_table(&code, |table| {
        let process = table.process(PROCESS_ID)?;
        if process.state == State::Dormant || process.is_periodic() {
            return Err(Refusal::InvalidMode);
        }
        if !process.is_suspended {
            return Err(Refusal::NoAction);
        }
        process.is_suspended = false;
        wake_all();
        Ok(())
    });
}

/// SET_PRIORITY.
///
/// # Safety
/// The return code is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SET_PRIORITY(PROCESS_ID: i32, PRIORITY: i32, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    with_table(&code, |table| {
        let process = table.process(PROCESS_ID)?;
        if !(table::MIN_PRIORITY..=table::MAX_PRIORITY).contains(&PRIORITY) {
            return Err(Refusal::InvalidParam);
        }
        if process.state == State::Dormant {
            return Err(Refusal::InvalidMode);
        }
        process.priority = PRIORITY;
        if me().is_some_and(|me| me.index + 1 == PROCESS_ID as usize) {
            apex::set_process_priority(PRIORITY.into());
        }
        Ok(())
    });
}

/// GET_PROCESS_ID.
///
/// # Safety
/// The name is null or readable up to its end or the longest name's; output pointers are null or
/// valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_PROCESS_ID(
    PROCESS_NAME: *const c_char,
    PROCESS_ID: *mut i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (name, place, code) = unsafe {
        (
            Name::new(PROCESS_NAME),
            Out::new(PROCESS_ID),
            Out::new(RETURN_CODE),
        )
    };
    with_table(&code, |table| {
        let index = table
            .processes
            .iter()
            .position(|process| process.name == name.text());
        place.put(crate::types::narrow(index.ok_or(Refusal::InvalidConfig)? + 1))
    });
}

/// GET_MY_ID.
///
/// # Safety
/// Output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_MY_ID(PROCESS_ID: *mut i32, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let (place, code) = unsafe { (Out::new(PROCESS_ID), Out::new(RETURN_CODE)) };
    answer(&code, || {
        let me = me().ok_or(Refusal::InvalidMode)?;
        place.put(crate::types::narrow(me.index + 1))?;
        Ok(ReturnCode::NoError)
    });
}

/// GET_PROCESS_STATUS.
///
/// # Safety
/// Output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_PROCESS_STATUS(
    PROCESS_ID: i32,
    PROCESS_STATUS: *mut ProcessStatus,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (place, code) = unsafe { (Out::new(PROCESS_STATUS), Out::new(RETURN_CODE)) };
    with_table(&code, |table| {
        let process = table.process(PROCESS_ID)?;
        place.put(ProcessStatus {
            deadline_time: process.deadline_ns,
            current_priority: process.priority,
            process_state: process.state as i32,
            attributes: process.attributes,
        })
    });
}

/// LOCK_PREEMPTION.
///
/// # Safety
/// As for [`STOP`]; output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn LOCK_PREEMPTION(LOCK_LEVEL: *mut i32, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let (place, code) = unsafe { (Out::new(LOCK_LEVEL), Out::new(RETURN_CODE)) };
    let has_ended = ends(&code, || {
        let me = me_running()?.filter(|_| is_normal().unwrap_or(false));
        let Some(me) = me else {
            place.put(thread::lock_level())?;
            return Err(Refusal::NoAction.into());
        };
        let is_free = |table: &Table| table.lock.is_none_or(|(owner, _)| owner == me);
        let (mut table, _) = wait(table::table(), me, SystemTime::MAX, is_free)?;
        let level = table.lock.map_or(0, |(_, level)| level);
        if level >= MAX_LOCK_LEVEL {
            return Err(Refusal::InvalidConfig.into());
        }
        place.put(level + 1)?;
        table.lock = Some((me, level + 1));
        Ok(ReturnCode::NoError)
    });
    if has_ended {
        // SAFETY: as in `STOP`.
        unsafe { end_thread() }
    }
}

/// UNLOCK_PREEMPTION.
///
/// # Safety
/// Output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn UNLOCK_PREEMPTION(LOCK_LEVEL: *mut i32, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let (place, code) = unsafe { (Out::new(LOCK_LEVEL), Out::new(RETURN_CODE)) };
    with_table(&code, |table| {
        let level = table.lock.map_or(0, |(_, level)| level);
        let Some(me) = me().filter(|me| holds_preemption(table, *me)) else {
            place.put(level)?;
            return Err(Refusal::NoAction);
        };
        place.put(level - 1)?;
        table.lock = (level > 1).then_some((me, level - 1));
        wake_all();
        Ok(())
    });
}

/// TIMED_WAIT. `INVALID_PARAM` for a negative time, the infinite one included.
///
/// # Safety
/// As for [`STOP`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn TIMED_WAIT(DELAY_TIME: i64, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    let has_ended = ends(&code, || {
        let me = me_running()?;
        if me.is_some_and(|me| holds_preemption(&table::table(), me)) {
            return Err(Refusal::InvalidMode.into());
        }
        let delay_ns = u64::try_from(DELAY_TIME).map_err(|_| Refusal::InvalidParam)?;
        match (delay_ns, me) {
            (0, _) => std::thread::yield_now(),
            (_, Some(me)) => drop(wait(table::table(), me, until(DELAY_TIME), |_| false)?),
            (_, None) => std::thread::sleep(std::time::Duration::from_nanos(delay_ns)),
        }
        Ok(ReturnCode::NoError)
    });
    if has_ended {
        // SAFETY: as in `STOP`.
        unsafe { end_thread() }
    }
}

/// PERIODIC_WAIT. Releases that were missed are left out.
///
/// # Safety
/// As for [`STOP`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn PERIODIC_WAIT(RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    let has_ended = ends(&code, || {
        let me = me_running()?.ok_or(Refusal::InvalidMode)?;
        let mut table = table::table();
        let process = &mut table.processes[me.index];
        let period_ns = process.attributes.period;
        if !process.is_periodic() || holds_preemption(&table, me) {
            return Err(Refusal::InvalidMode.into());
        }
        let process = &mut table.processes[me.index];
        let passed = apex::get_time().saturating_sub(process.release_ns).max(0) / period_ns;
        let release_ns = process
            .release_ns
            .saturating_add((passed + 1).saturating_mul(period_ns));
        process.release_ns = release_ns;
        process.set_deadline(release_ns);
        drop(wait(table, me, release_ns, |_| false)?);
        Ok(ReturnCode::NoError)
    });
    if has_ended {
        // SAFETY: as in `STOP`.
        unsafe { end_thread() }
    }
}

/// REPLENISH.
///
/// # Safety
/// The return code is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn REPLENISH(BUDGET_TIME: i64, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    with_table(&code, |table| {
        let me = me().filter(|me| !table.is_over(*me)).ok_or(Refusal::NoAction)?;
        if BUDGET_TIME < INFINITE {
            return Err(Refusal::InvalidParam);
        }
        let process = &mut table.processes[me.index];
        let deadline_ns = until(BUDGET_TIME);
        let next_release_ns = process.release_ns.saturating_add(process.attributes.period);
        if process.is_periodic() && deadline_ns > next_release_ns {
            return Err(Refusal::InvalidMode);
        }
        process.deadline_ns = if BUDGET_TIME == INFINITE {
            INFINITE
        } else {
            deadline_ns
        };
        Ok(())
    });
}
