//! The services of queuing ports: ARINC 653 Part 1.
//!
//! Contract: as [`busway_port::apex`], with the standard's parameters. When a service returns no
//! message, `LENGTH` is 0. Called by C.

use std::ffi::c_char;

use busway_port::apex::{self, INFINITE, ReturnCode};
use busway_port::{Direction, Discipline};

use crate::boundary::{Landing, Name, Out, Outgoing, answer};
use crate::joined::joined;
use crate::types::{QueuingPortStatus, direction, discipline, narrow};

/// A size that no port has: what is to fail as `INVALID_CONFIG` fails then, after the checks that
/// come before.
const NO_SIZE: usize = 0;

/// CREATE_QUEUING_PORT.
///
/// # Safety
/// The name is null or ends as the header says; output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CREATE_QUEUING_PORT(
    QUEUING_PORT_NAME: *const c_char,
    MAX_MESSAGE_SIZE: i32,
    MAX_NB_MESSAGE: i32,
    PORT_DIRECTION: i32,
    QUEUING_DISCIPLINE: i32,
    QUEUING_PORT_ID: *mut i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (name, id, code) = unsafe {
        (
            Name::new(QUEUING_PORT_NAME),
            Out::new(QUEUING_PORT_ID),
            Out::new(RETURN_CODE),
        )
    };
    answer(&code, || {
        id.put(0)?;
        let (direction, discipline) = (direction(PORT_DIRECTION), discipline(QUEUING_DISCIPLINE));
        let known = direction.and(discipline);
        let size = known.and_then(|_| usize::try_from(MAX_MESSAGE_SIZE).ok());
        let created = apex::create_queuing_port(
            &joined()?.partition,
            name.text(),
            size.unwrap_or(NO_SIZE),
            usize::try_from(MAX_NB_MESSAGE).unwrap_or(0),
            direction.unwrap_or(Direction::Source),
            discipline.unwrap_or(Discipline::Fifo),
        )?;
        id.put(created)?;
        Ok(ReturnCode::NoError)
    });
}

/// SEND_QUEUING_MESSAGE.
///
/// # Safety
/// The message is null or valid for reads of the lesser of `LENGTH` and the port's longest message;
/// the return code is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SEND_QUEUING_MESSAGE(
    QUEUING_PORT_ID: i32,
    MESSAGE_ADDR: *const u8,
    LENGTH: i32,
    TIME_OUT: i64,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (message, code) = unsafe { (Outgoing::new(MESSAGE_ADDR, LENGTH), Out::new(RETURN_CODE)) };
    answer(&code, || {
        let joined = joined()?;
        let Some(message) = message.bytes(joined.longest_bytes(QUEUING_PORT_ID)) else {
            // Too long, unless there is no such port or the time-out is wrong, which are looked at
            // first.
            apex::get_queuing_port_status(&joined.partition, QUEUING_PORT_ID)?;
            return Ok(if TIME_OUT < INFINITE {
                ReturnCode::InvalidParam
            } else {
                ReturnCode::InvalidConfig
            });
        };
        apex::send_queuing_message(&joined.partition, QUEUING_PORT_ID, message, TIME_OUT)?;
        Ok(ReturnCode::NoError)
    });
}

/// RECEIVE_QUEUING_MESSAGE.
///
/// # Safety
/// The message area is null or valid for writes of the port's longest message, and nobody else uses
/// it meanwhile; output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RECEIVE_QUEUING_MESSAGE(
    QUEUING_PORT_ID: i32,
    TIME_OUT: i64,
    MESSAGE_ADDR: *mut u8,
    LENGTH: *mut i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (mut landing, length, code) = unsafe {
        (
            Landing::new(MESSAGE_ADDR),
            Out::new(LENGTH),
            Out::new(RETURN_CODE),
        )
    };
    answer(&code, || {
        length.put(0)?;
        let joined = joined()?;
        let area = landing.area(joined.longest_bytes(QUEUING_PORT_ID));
        let received = apex::receive_queuing_message(&joined.partition, QUEUING_PORT_ID, TIME_OUT, area)?;
        length.put(narrow(received.length))?;
        Ok(received.code())
    });
}

/// GET_QUEUING_PORT_ID.
///
/// # Safety
/// The name is null or ends as the header says; output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_QUEUING_PORT_ID(
    QUEUING_PORT_NAME: *const c_char,
    QUEUING_PORT_ID: *mut i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (name, id, code) = unsafe {
        (
            Name::new(QUEUING_PORT_NAME),
            Out::new(QUEUING_PORT_ID),
            Out::new(RETURN_CODE),
        )
    };
    answer(&code, || {
        id.put(0)?;
        id.put(apex::get_queuing_port_id(&joined()?.partition, name.text())?)?;
        Ok(ReturnCode::NoError)
    });
}

/// GET_QUEUING_PORT_STATUS.
///
/// # Safety
/// Output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_QUEUING_PORT_STATUS(
    QUEUING_PORT_ID: i32,
    QUEUING_PORT_STATUS: *mut QueuingPortStatus,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (place, code) = unsafe { (Out::new(QUEUING_PORT_STATUS), Out::new(RETURN_CODE)) };
    answer(&code, || {
        let status = apex::get_queuing_port_status(&joined()?.partition, QUEUING_PORT_ID)?;
        place.put(QueuingPortStatus {
            nb_message: narrow(status.nb_message),
            max_nb_message: narrow(status.max_nb_message),
            max_message_size: narrow(status.max_message_size),
            port_direction: status.port_direction as i32,
            waiting_processes: narrow(status.waiting_processes),
        })?;
        Ok(ReturnCode::NoError)
    });
}

/// CLEAR_QUEUING_PORT.
///
/// # Safety
/// The return code is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CLEAR_QUEUING_PORT(QUEUING_PORT_ID: i32, RETURN_CODE: *mut i32) {
    // SAFETY: as this function was promised.
    let code = unsafe { Out::new(RETURN_CODE) };
    answer(&code, || {
        apex::clear_queuing_port(&joined()?.partition, QUEUING_PORT_ID)?;
        Ok(ReturnCode::NoError)
    });
}
