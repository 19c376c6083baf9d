//! Errors and messages of the application: health monitoring, as far as there is some on Linux.
//!
//! Contract: messages go to standard error, one line each. An error goes to the error handler if
//! there is one, which runs while the process that raised it waits; without a handler it ends the
//! program with status 1. A supervisor (`busway module run`) then does what its table says. Called
//! by C.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use busway_port::apex::{self, Refusal, ReturnCode};

use super::Stop;
use super::table::{self, EntryPoint, MAX_STACK_BYTES, is_normal};
use super::thread::{end_thread, is_handler, me, me_running, run_handler};
use crate::boundary::{Out, Outgoing, answer};
use crate::joined::joined;

/// `MAX_ERROR_MESSAGE_SIZE`.
const MAX_ERROR_MESSAGE_BYTES: usize = 128;
/// `APPLICATION_ERROR` of `ERROR_CODE_TYPE`, the only one that a program may raise.
const APPLICATION_ERROR: i32 = 1;

/// `ERROR_STATUS_TYPE`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ErrorStatus {
    /// `ERROR_CODE`.
    pub error_code: i32,
    /// `LENGTH` of the message in bytes.
    pub length: i32,
    /// `FAILED_PROCESS_ID`.
    pub failed_process_id: i32,
    /// `FAILED_ADDRESS`, which is not known here.
    pub failed_address: Option<extern "C-unwind" fn()>,
    /// `MESSAGE`.
    pub message: [u8; MAX_ERROR_MESSAGE_BYTES],
}

/// The error that the handler reads. The first GET_ERROR_STATUS takes it.
static PENDING: Mutex<Option<ErrorStatus>> = Mutex::new(None);
/// Held while the error handler runs.
static HANDLING: Mutex<()> = Mutex::new(());

fn pending() -> std::sync::MutexGuard<'static, Option<ErrorStatus>> {
    // An error is there or not.
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a line about the calling process.
fn say(what: &str, message: &[u8]) {
    let partition = joined().map_or("", |joined| joined.partition.name());
    let process = me().map(|me| table::table().processes[me.index].name.clone());
    let text = String::from_utf8_lossy(message);
    let line = format!(
        "busway-apex: {partition}/{}: {what}{}\n",
        process.as_deref().unwrap_or("main"),
        text.trim_end_matches(['\0', '\n']).replace('\n', " ")
    );
    // Without standard error there is no way to report it.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// REPORT_APPLICATION_MESSAGE.
///
/// # Safety
/// The message is null or valid for reads of its length, the return code null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn REPORT_APPLICATION_MESSAGE(
    MESSAGE_ADDR: *const u8,
    LENGTH: i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (message, code) = unsafe { (Outgoing::new(MESSAGE_ADDR, LENGTH), Out::new(RETURN_CODE)) };
    answer(&code, || {
        let message = message
            .bytes(MAX_ERROR_MESSAGE_BYTES)
            .ok_or(Refusal::InvalidParam)?;
        say("", message);
        Ok(ReturnCode::NoError)
    });
}

/// CREATE_ERROR_HANDLER.
///
/// # Safety
/// The return code is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CREATE_ERROR_HANDLER(
    ENTRY_POINT: Option<EntryPoint>,
    STACK_SIZE: u32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    answer(&code, || {
        let mut table = table::table();
        if table.error_handler.is_some() {
            return Err(Refusal::NoAction);
        }
        let entry_point = ENTRY_POINT.ok_or(Refusal::InvalidParam)?;
        if STACK_SIZE > MAX_STACK_BYTES {
            return Err(Refusal::InvalidConfig);
        }
        if is_normal()? {
            return Err(Refusal::InvalidMode);
        }
        table.error_handler = Some((entry_point, STACK_SIZE));
        Ok(ReturnCode::NoError)
    });
}

/// GET_ERROR_STATUS.
///
/// # Safety
/// Output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_ERROR_STATUS(ERROR_STATUS: *mut ErrorStatus, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let (place, code) = unsafe { (Out::new(ERROR_STATUS), Out::new(RETURN_CODE)) };
    answer(&code, || {
        if !is_handler() {
            return Err(Refusal::InvalidConfig);
        }
        place.put(pending().take().ok_or(Refusal::NoAction)?)?;
        Ok(ReturnCode::NoError)
    });
}

/// RAISE_APPLICATION_ERROR.
///
/// # Safety
/// As for [`REPORT_APPLICATION_MESSAGE`]. The calling thread's C functions may be unwound.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn RAISE_APPLICATION_ERROR(
    ERROR_CODE: i32,
    MESSAGE_ADDR: *const u8,
    LENGTH: i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (message, code) = unsafe { (Outgoing::new(MESSAGE_ADDR, LENGTH), Out::new(RETURN_CODE)) };
    let mut has_ended = false;
    answer(&code, || {
        let message = message
            .bytes(MAX_ERROR_MESSAGE_BYTES)
            .ok_or(Refusal::InvalidParam)?;
        if LENGTH < 0 || ERROR_CODE != APPLICATION_ERROR {
            return Err(Refusal::InvalidParam);
        }
        raise(message);
        has_ended = me_running() == Err(Stop::Ended);
        Ok(ReturnCode::NoError)
    });
    if has_ended {
        // SAFETY: the thread is a process's; `Outgoing` and `Out` give nothing back.
        unsafe { end_thread() }
    }
}

/// Has the error handled, or ends the program.
fn raise(message: &[u8]) {
    let handler = table::table().error_handler;
    if let (Some((entry_point, stack_bytes)), Some(me)) = (handler, me()) {
        let _one_at_a_time = HANDLING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = ErrorStatus {
            error_code: APPLICATION_ERROR,
            length: crate::types::narrow(message.len()),
            failed_process_id: crate::types::narrow(me.index + 1),
            failed_address: None,
            message: [0; MAX_ERROR_MESSAGE_BYTES],
        };
        status.message[..message.len()].copy_from_slice(message);
        *pending() = Some(status);
        if run_handler(entry_point, stack_bytes) {
            return;
        }
    }
    say("application error, which no error handler takes: ", message);
    if let Ok(joined) = joined() {
        apex::report_application_error(&joined.partition);
    }
    std::process::exit(1);
}
