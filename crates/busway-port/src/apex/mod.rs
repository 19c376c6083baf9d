//! The services of ARINC 653 for ports, one function a service.
//!
//! Contract: a function does what the service of the same name does, checks in the standard's
//! order, and returns what the service returns: `Ok` with the output parameters, or [`Refusal`],
//! which maps one to one to `RETURN_CODE_TYPE`. Where a service returns a message *and* a code
//! other than `NO_ERROR`, the `Ok` value says so (`code()`). Lengths, times and identifiers have
//! the standard's widths: bytes, nanoseconds as `i64` (`-1` is infinite), `i32` (`APEX_INTEGER`).
//!
//! Source: ARINC 653 Part 1 (required services, sections 3.2 and 3.6.2) and Part 2 (sampling port
//! extensions), in the reading of the open implementations POK, JetOS and a653rs-linux where
//! readers differ: see `docs/decisions/005-ports.md`.

mod partition;
mod queuing;
mod sampling;
mod sampling_extensions;

pub use partition::{
    OperatingMode, PartitionStatus, StartCondition, get_partition_status, get_time, report_application_error,
    set_partition_mode, set_process_priority,
};
pub use queuing::{
    QueuingPortStatus, Received, clear_queuing_port, create_queuing_port, get_queuing_port_id,
    get_queuing_port_status, receive_queuing_message, send_queuing_message,
};
pub use sampling::{
    SamplingPortStatus, SamplingRead, create_sampling_port, get_sampling_port_id, get_sampling_port_status,
    read_sampling_message, write_sampling_message,
};
pub use sampling_extensions::{
    Age, ConditionalRead, SamplingPortCurrentStatus, Updated, UpdatedRead, get_sampling_port_current_status,
    read_sampling_message_conditional, read_updated_sampling_message,
};

use crate::config::Direction;
use crate::partition::{Partition, Port};

/// `APEX_INTEGER`: identifiers of ports.
pub type PortId = i32;

/// `SYSTEM_TIME_TYPE`: nanoseconds.
pub type SystemTime = i64;

/// `INFINITE_TIME_VALUE`.
pub const INFINITE: SystemTime = -1;

/// `RETURN_CODE_TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ReturnCode {
    /// `NO_ERROR`
    NoError = 0,
    /// `NO_ACTION`
    NoAction = 1,
    /// `NOT_AVAILABLE`
    NotAvailable = 2,
    /// `INVALID_PARAM`
    InvalidParam = 3,
    /// `INVALID_CONFIG`
    InvalidConfig = 4,
    /// `INVALID_MODE`
    InvalidMode = 5,
    /// `TIMED_OUT`
    TimedOut = 6,
}

/// Why a service did not do what it was called for: every return code but `NO_ERROR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(i32)]
pub enum Refusal {
    /// The state of the port makes the call superfluous, or there is nothing to return.
    #[error("NO_ACTION: the port is already created, or there is no message to return")]
    NoAction = 1,
    /// What the call needs is not there now, and the call did not want to wait.
    #[error("NOT_AVAILABLE: no message, or no room for one, and the time-out is 0")]
    NotAvailable = 2,
    /// A parameter is wrong in itself.
    #[error("INVALID_PARAM: no such port, or a length or time that no port takes")]
    InvalidParam = 3,
    /// A parameter contradicts the configuration.
    #[error("INVALID_CONFIG: name, size, direction or length contradict the configuration")]
    InvalidConfig = 4,
    /// The call is impossible in this mode of the partition, or in this direction.
    #[error("INVALID_MODE: not in this mode of the partition, or not for a port of this direction")]
    InvalidMode = 5,
    /// The time-out passed.
    #[error("TIMED_OUT: no message, or no room for one, within the time-out")]
    TimedOut = 6,
}

impl From<Refusal> for ReturnCode {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoAction => Self::NoAction,
            Refusal::NotAvailable => Self::NotAvailable,
            Refusal::InvalidParam => Self::InvalidParam,
            Refusal::InvalidConfig => Self::InvalidConfig,
            Refusal::InvalidMode => Self::InvalidMode,
            Refusal::TimedOut => Self::TimedOut,
        }
    }
}

/// `VALIDITY_TYPE`: whether a message's age is within its destination port's refresh period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Validity {
    /// Older than the refresh period, or no message at all.
    Invalid = 0,
    /// Not older.
    Valid = 1,
}

/// The created port `id` of one kind.
#[inline]
fn created(partition: &Partition, id: PortId, wants_sampling: bool) -> Result<&Port, Refusal> {
    partition
        .created(id)
        .filter(|port| port.config.kind.is_sampling() == wants_sampling)
        .ok_or(Refusal::InvalidParam)
}

/// The identifier of the created port `name` of one kind.
fn id_of(partition: &Partition, name: &str, wants_sampling: bool) -> Result<PortId, Refusal> {
    let (id, port) = configured(partition, name, wants_sampling).ok_or(Refusal::InvalidConfig)?;
    if partition.is_created(port) {
        Ok(id)
    } else {
        Err(Refusal::InvalidConfig)
    }
}

/// The configured port `name` of one kind, and its identifier.
fn configured<'p>(partition: &'p Partition, name: &str, wants_sampling: bool) -> Option<(PortId, &'p Port)> {
    let index = partition
        .ports()
        .iter()
        .position(|port| port.config.name == name)?;
    let port = &partition.ports()[index];
    let id = PortId::try_from(index + 1).ok()?;
    (port.config.kind.is_sampling() == wants_sampling).then_some((id, port))
}

/// The checks that both CREATE services share, in the standard's order: unknown name, second
/// creation, size, what `fits` says, direction, mode. Under the port's lock `store` then keeps the
/// port's attributes.
fn create(
    partition: &Partition,
    name: &str,
    wants_sampling: bool,
    (max_message_size, direction): (usize, Direction),
    fits: impl FnOnce(&Port) -> bool,
    store: impl FnOnce(&Port),
) -> Result<PortId, Refusal> {
    use crate::partition::mode;
    let (id, port) = configured(partition, name, wants_sampling).ok_or(Refusal::InvalidConfig)?;
    let _lock = partition.lock(port);
    if partition.is_created(port) {
        return Err(Refusal::NoAction);
    }
    if max_message_size != port.config.max_size() || !fits(port) || direction != port.config.direction {
        return Err(Refusal::InvalidConfig);
    }
    if !matches!(partition.mode(), mode::COLD_START | mode::WARM_START) {
        return Err(Refusal::InvalidMode);
    }
    store(port);
    partition.mark_created(port);
    Ok(id)
}
