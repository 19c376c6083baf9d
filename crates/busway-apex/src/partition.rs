//! The services about the partition and time that ports need, and what this library has beside the
//! standard.
//!
//! Contract: as [`busway_port::apex`]. GET_TIME needs no partition. Called by C.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::Path;
use std::thread;

use busway_port::apex::{self, INFINITE, OperatingMode, Refusal, ReturnCode};

use crate::boundary::{Out, answer};
use crate::joined::{self, joined};
use crate::process;
use crate::types::{PartitionStatus, operating_mode};

/// GET_PARTITION_STATUS.
///
/// # Safety
/// Output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_PARTITION_STATUS(PARTITION_STATUS: *mut PartitionStatus, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let (place, code) = unsafe { (Out::new(PARTITION_STATUS), Out::new(RETURN_CODE)) };
    answer(&code, || {
        let joined = joined()?;
        let status = apex::get_partition_status(&joined.partition);
        let (period, duration) = joined.period_and_duration_ns.unwrap_or((INFINITE, INFINITE));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        place.put(PartitionStatus {
            period,
            duration,
            identifier: identifier(status.identifier),
            lock_level: process::lock_level(),
            operating_mode: status.operating_mode as i32,
            start_condition: status.start_condition as i32,
            num_assigned_cores: crate::types::narrow(cores),
        })?;
        Ok(ReturnCode::NoError)
    });
}

/// SET_PARTITION_MODE. `INVALID_PARAM` for a mode that does not exist.
///
/// # Safety
/// The return code is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SET_PARTITION_MODE(OPERATING_MODE: i32, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    answer(&code, || {
        let mode = operating_mode(OPERATING_MODE).ok_or(Refusal::InvalidParam)?;
        let changed = apex::set_partition_mode(&joined()?.partition, mode);
        match mode {
            // Does not return if this program has processes, also if another program of the
            // partition was faster.
            OperatingMode::Normal if matches!(changed, Ok(()) | Err(Refusal::NoAction)) => process::run()?,
            OperatingMode::Idle if changed.is_ok() => process::end_program(),
            OperatingMode::ColdStart | OperatingMode::WarmStart if changed.is_ok() => {
                process::execute_anew()?
            }
            _ => {}
        }
        changed.map(|()| ReturnCode::NoError)
    });
}

/// GET_MY_PARTITION_ID.
///
/// # Safety
/// Output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_MY_PARTITION_ID(PARTITION_ID: *mut i32, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let (place, code) = unsafe { (Out::new(PARTITION_ID), Out::new(RETURN_CODE)) };
    answer(&code, || {
        place.put(identifier(joined()?.partition.identifier()))?;
        Ok(ReturnCode::NoError)
    });
}

/// GET_TIME.
///
/// # Safety
/// Output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_TIME(SYSTEM_TIME: *mut i64, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let (place, code) = unsafe { (Out::new(SYSTEM_TIME), Out::new(RETURN_CODE)) };
    answer(&code, || {
        place.put(apex::get_time())?;
        Ok(ReturnCode::NoError)
    });
}

/// Joins a partition by name; null means the environment. Returns a `RETURN_CODE_TYPE`.
///
/// # Safety
/// Both are null or strings that end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn busway_apex_join(SYSTEM: *const c_char, PARTITION: *const c_char) -> i32 {
    // SAFETY: as this function was promised.
    let (system, partition) = unsafe { (text(SYSTEM), text(PARTITION)) };
    let joined = catch_unwind(|| {
        let system = system.map(|path| Path::new(OsStr::from_bytes(path)));
        let partition = partition.map(String::from_utf8_lossy);
        joined::join(system, partition.as_deref())
    });
    joined.unwrap_or_else(|_| {
        joined::report_panic();
        ReturnCode::InvalidConfig
    }) as i32
}

/// Why joining failed last, as a string that stays valid; empty if it did not.
#[unsafe(no_mangle)]
pub extern "C" fn busway_apex_error() -> *const c_char {
    joined::error_text().as_ptr()
}

/// Sets the priority with which the calling thread waits.
#[unsafe(no_mangle)]
pub extern "C" fn busway_apex_set_priority(PRIORITY_VALUE: i32) {
    apex::set_process_priority(PRIORITY_VALUE.into());
}

/// # Safety
/// `string` is null or ends with a zero byte, and outlives the result.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: as this function was promised.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
}

/// The configuration's identifiers are 32 bits wide.
fn identifier(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
