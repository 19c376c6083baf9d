//! The structures of the header, in its order and with its widths, and its enumerations' values.
//!
//! Contract: `tests/c/layout.c` and this module agree; an enumeration is an `i32` here, since C may
//! pass any integer. Used by the services.

use busway_port::apex::{OperatingMode, SystemTime};
use busway_port::{Direction, Discipline};

/// `SAMPLING_PORT_STATUS_TYPE`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SamplingPortStatus {
    /// `REFRESH_PERIOD` in ns.
    pub refresh_period: SystemTime,
    /// `MAX_MESSAGE_SIZE` in bytes.
    pub max_message_size: i32,
    /// `PORT_DIRECTION`.
    pub port_direction: i32,
    /// `LAST_MSG_VALIDITY`.
    pub last_msg_validity: i32,
}

/// `SAMPLING_PORT_CURRENT_STATUS_TYPE`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SamplingPortCurrentStatus {
    /// `REFRESH_PERIOD` in ns.
    pub refresh_period: SystemTime,
    /// `TIME_STAMP` in ns.
    pub time_stamp: SystemTime,
    /// `MAX_MESSAGE_SIZE` in bytes.
    pub max_message_size: i32,
    /// `PORT_DIRECTION`.
    pub port_direction: i32,
    /// `MESSAGE_AGE`.
    pub message_age: i32,
    /// `UPDATED`.
    pub updated: i32,
}

/// `QUEUING_PORT_STATUS_TYPE`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct QueuingPortStatus {
    /// `NB_MESSAGE`.
    pub nb_message: i32,
    /// `MAX_NB_MESSAGE`.
    pub max_nb_message: i32,
    /// `MAX_MESSAGE_SIZE` in bytes.
    pub max_message_size: i32,
    /// `PORT_DIRECTION`.
    pub port_direction: i32,
    /// `WAITING_PROCESSES`.
    pub waiting_processes: i32,
}

/// `PARTITION_STATUS_TYPE`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PartitionStatus {
    /// `PERIOD` in ns.
    pub period: SystemTime,
    /// `DURATION` in ns.
    pub duration: SystemTime,
    /// `IDENTIFIER`.
    pub identifier: i32,
    /// `LOCK_LEVEL`.
    pub lock_level: i32,
    /// `OPERATING_MODE`.
    pub operating_mode: i32,
    /// `START_CONDITION`.
    pub start_condition: i32,
    /// `NUM_ASSIGNED_CORES`.
    pub num_assigned_cores: i32,
}

pub(crate) fn direction(value: i32) -> Option<Direction> {
    [Direction::Source, Direction::Destination]
        .into_iter()
        .find(|direction| *direction as i32 == value)
}

pub(crate) fn discipline(value: i32) -> Option<Discipline> {
    [Discipline::Fifo, Discipline::Priority]
        .into_iter()
        .find(|discipline| *discipline as i32 == value)
}

pub(crate) fn operating_mode(value: i32) -> Option<OperatingMode> {
    use OperatingMode::{ColdStart, Idle, Normal, WarmStart};
    [Idle, ColdStart, WarmStart, Normal]
        .into_iter()
        .find(|mode| *mode as i32 == value)
}

/// A number that a 32-bit integer of the standard is to hold; the configuration keeps all of them
/// in its range.
pub(crate) fn narrow(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
