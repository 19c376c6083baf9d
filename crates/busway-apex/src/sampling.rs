//! The services of sampling ports: ARINC 653 Part 1 and the extensions of Part 2.
//!
//! Contract: as [`busway_port::apex`], with the standard's parameters. When a service returns no
//! message, `LENGTH` is 0, `VALIDITY` is `INVALID`, and `UPDATED` is `EMPTY_PORT` unless the port
//! has a message. Called by C.

use std::ffi::c_char;

use busway_port::apex::{self, ReturnCode, Updated, Validity};

use crate::boundary::{Landing, Name, Out, Outgoing, answer};
use crate::joined::joined;
use crate::types::{SamplingPortCurrentStatus, SamplingPortStatus, direction, narrow};

/// A size that no port has: what is to fail as `INVALID_CONFIG` fails then, after the checks that
/// come before.
const NO_SIZE: usize = 0;

/// CREATE_SAMPLING_PORT.
///
/// # Safety
/// The name is null or ends as the header says; output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CREATE_SAMPLING_PORT(
    SAMPLING_PORT_NAME: *const c_char,
    MAX_MESSAGE_SIZE: i32,
    PORT_DIRECTION: i32,
    REFRESH_PERIOD: i64,
    SAMPLING_PORT_ID: *mut i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (name, id, code) = unsafe {
        (
            Name::new(SAMPLING_PORT_NAME),
            Out::new(SAMPLING_PORT_ID),
            Out::new(RETURN_CODE),
        )
    };
    answer(&code, || {
        id.put(0)?;
        let direction = direction(PORT_DIRECTION);
        let size = direction.and_then(|_| usize::try_from(MAX_MESSAGE_SIZE).ok());
        let created = apex::create_sampling_port(
            &joined()?.partition,
            name.text(),
            size.unwrap_or(NO_SIZE),
            direction.unwrap_or(busway_port::Direction::Source),
            REFRESH_PERIOD,
        )?;
        id.put(created)?;
        Ok(ReturnCode::NoError)
    });
}

/// WRITE_SAMPLING_MESSAGE.
///
/// # Safety
/// The message is null or valid for reads of the lesser of `LENGTH` and the port's longest message;
/// the return code is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn WRITE_SAMPLING_MESSAGE(
    SAMPLING_PORT_ID: i32,
    MESSAGE_ADDR: *const u8,
    LENGTH: i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (message, code) = unsafe { (Outgoing::new(MESSAGE_ADDR, LENGTH), Out::new(RETURN_CODE)) };
    answer(&code, || {
        let joined = joined()?;
        let Some(message) = message.bytes(joined.longest_bytes(SAMPLING_PORT_ID)) else {
            // Too long, unless there is no such port, which is looked at first.
            apex::get_sampling_port_status(&joined.partition, SAMPLING_PORT_ID)?;
            return Ok(ReturnCode::InvalidConfig);
        };
        apex::write_sampling_message(&joined.partition, SAMPLING_PORT_ID, message)?;
        Ok(ReturnCode::NoError)
    });
}

/// READ_SAMPLING_MESSAGE.
///
/// # Safety
/// The message area is null or valid for writes of the port's longest message, and nobody else uses
/// it meanwhile; output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn READ_SAMPLING_MESSAGE(
    SAMPLING_PORT_ID: i32,
    MESSAGE_ADDR: *mut u8,
    LENGTH: *mut i32,
    VALIDITY: *mut i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (mut landing, length, validity, code) = unsafe {
        (
            Landing::new(MESSAGE_ADDR),
            Out::new(LENGTH),
            Out::new(VALIDITY),
            Out::new(RETURN_CODE),
        )
    };
    answer(&code, || {
        length.put(0)?;
        validity.put(Validity::Invalid as i32)?;
        let joined = joined()?;
        let area = landing.area(joined.longest_bytes(SAMPLING_PORT_ID));
        let read = apex::read_sampling_message(&joined.partition, SAMPLING_PORT_ID, area)?;
        length.put(narrow(read.length))?;
        validity.put(read.validity as i32)?;
        Ok(ReturnCode::NoError)
    });
}

/// GET_SAMPLING_PORT_ID.
///
/// # Safety
/// The name is null or ends as the header says; output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_SAMPLING_PORT_ID(
    SAMPLING_PORT_NAME: *const c_char,
    SAMPLING_PORT_ID: *mut i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (name, id, code) = unsafe {
        (
            Name::new(SAMPLING_PORT_NAME),
            Out::new(SAMPLING_PORT_ID),
            Out::new(RETURN_CODE),
        )
    };
    answer(&code, || {
        id.put(0)?;
        id.put(apex::get_sampling_port_id(&joined()?.partition, name.text())?)?;
        Ok(ReturnCode::NoError)
    });
}

/// GET_SAMPLING_PORT_STATUS.
///
/// # Safety
/// Output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_SAMPLING_PORT_STATUS(
    SAMPLING_PORT_ID: i32,
    SAMPLING_PORT_STATUS: *mut SamplingPortStatus,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (place, code) = unsafe { (Out::new(SAMPLING_PORT_STATUS), Out::new(RETURN_CODE)) };
    answer(&code, || {
        let status = apex::get_sampling_port_status(&joined()?.partition, SAMPLING_PORT_ID)?;
        place.put(SamplingPortStatus {
            refresh_period: status.refresh_period,
            max_message_size: narrow(status.max_message_size),
            port_direction: status.port_direction as i32,
            last_msg_validity: status.last_msg_validity as i32,
        })?;
        Ok(ReturnCode::NoError)
    });
}

/// READ_UPDATED_SAMPLING_MESSAGE.
///
/// # Safety
/// As [`READ_SAMPLING_MESSAGE`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn READ_UPDATED_SAMPLING_MESSAGE(
    SAMPLING_PORT_ID: i32,
    MESSAGE_ADDR: *mut u8,
    LENGTH: *mut i32,
    UPDATED: *mut i32,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (mut landing, length, updated, code) = unsafe {
        (
            Landing::new(MESSAGE_ADDR),
            Out::new(LENGTH),
            Out::new(UPDATED),
            Out::new(RETURN_CODE),
        )
    };
    answer(&code, || {
        length.put(0)?;
        updated.put(Updated::EmptyPort as i32)?;
        let joined = joined()?;
        let area = landing.area(joined.longest_bytes(SAMPLING_PORT_ID));
        let read = apex::read_updated_sampling_message(&joined.partition, SAMPLING_PORT_ID, area)?;
        length.put(narrow(read.length))?;
        updated.put(read.updated as i32)?;
        Ok(read.code())
    });
}

/// GET_SAMPLING_PORT_CURRENT_STATUS.
///
/// # Safety
/// Output pointers are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GET_SAMPLING_PORT_CURRENT_STATUS(
    SAMPLING_PORT_ID: i32,
    SAMPLING_PORT_CURRENT_STATUS: *mut SamplingPortCurrentStatus,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (place, code) = unsafe { (Out::new(SAMPLING_PORT_CURRENT_STATUS), Out::new(RETURN_CODE)) };
    answer(&code, || {
        let status = apex::get_sampling_port_current_status(&joined()?.partition, SAMPLING_PORT_ID)?;
        place.put(SamplingPortCurrentStatus {
            refresh_period: status.refresh_period,
            time_stamp: status.time_stamp,
            max_message_size: narrow(status.max_message_size),
            port_direction: status.port_direction as i32,
            message_age: status.message_age as i32,
            updated: status.updated as i32,
        })?;
        Ok(ReturnCode::NoError)
    });
}

/// READ_SAMPLING_MESSAGE_CONDITIONAL.
///
/// # Safety
/// As [`READ_SAMPLING_MESSAGE`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn READ_SAMPLING_MESSAGE_CONDITIONAL(
    SAMPLING_PORT_ID: i32,
    REF_TIME_STAMP: i64,
    MESSAGE_ADDR: *mut u8,
    LENGTH: *mut i32,
    TIME_STAMP: *mut i64,
    RETURN_CODE: *mut i32,
) {
    // SAFETY: as this function was promised.
    let (mut landing, length, time_stamp, code) = unsafe {
        (
            Landing::new(MESSAGE_ADDR),
            Out::new(LENGTH),
            Out::new(TIME_STAMP),
            Out::new(RETURN_CODE),
        )
    };
    answer(&code, || {
        length.put(0)?;
        time_stamp.put(0)?;
        let joined = joined()?;
        let area = landing.area(joined.longest_bytes(SAMPLING_PORT_ID));
        let partition = &joined.partition;
        let read =
            apex::read_sampling_message_conditional(partition, SAMPLING_PORT_ID, REF_TIME_STAMP, area)?;
        length.put(narrow(read.length))?;
        time_stamp.put(read.time_stamp)?;
        Ok(read.code())
    });
}
