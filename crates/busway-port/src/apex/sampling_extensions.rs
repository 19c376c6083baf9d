//! Sampling port extensions: ARINC 653 Part 2.

use super::sampling::{consume, destination, is_within_refresh_period, judge, read, refresh_period_ns};
use super::{PortId, Refusal, ReturnCode, SystemTime, created};
use crate::config::Direction;
use crate::partition::far::is_since;
use crate::partition::{End, Partition};
use crate::store::layout::port;
use crate::sync::Ordering;

/// `UPDATED_TYPE`: what this destination port has to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Updated {
    /// Nothing was ever written.
    EmptyPort = 0,
    /// A process of the partition has read the latest message.
    ConsumedMessage = 1,
    /// Nobody in the partition has read the latest message.
    NewMessage = 2,
}

/// `MESSAGE_AGE_TYPE`: as a validity, but of the message that is there and not of one that was
/// read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Age {
    /// Older than the refresh period, or no message at all.
    Stale = 0,
    /// Not older.
    Fresh = 1,
}

/// What READ_UPDATED_SAMPLING_MESSAGE returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdatedRead {
    /// `LENGTH` in bytes; 0 unless the message is new.
    pub length: usize,
    /// `UPDATED`.
    pub updated: Updated,
}

impl UpdatedRead {
    /// `NO_ERROR` with a new message, else `NO_ACTION`.
    #[must_use]
    pub fn code(&self) -> ReturnCode {
        match self.updated {
            Updated::NewMessage => ReturnCode::NoError,
            Updated::EmptyPort | Updated::ConsumedMessage => ReturnCode::NoAction,
        }
    }
}

/// What READ_SAMPLING_MESSAGE_CONDITIONAL returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionalRead {
    /// `LENGTH` in bytes; 0 unless the message is younger than asked for.
    pub length: usize,
    /// `TIME_STAMP` in ns of the latest message; 0 if there is none.
    pub time_stamp: SystemTime,
}

impl ConditionalRead {
    /// `NO_ERROR` with a message, else `NO_ACTION`.
    #[must_use]
    pub fn code(&self) -> ReturnCode {
        if self.length > 0 {
            ReturnCode::NoError
        } else {
            ReturnCode::NoAction
        }
    }
}

/// `SAMPLING_PORT_CURRENT_STATUS_TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplingPortCurrentStatus {
    /// `REFRESH_PERIOD` in ns.
    pub refresh_period: SystemTime,
    /// `TIME_STAMP` in ns of the latest message; 0 if there is none.
    pub time_stamp: SystemTime,
    /// `MAX_MESSAGE_SIZE` in bytes.
    pub max_message_size: usize,
    /// `PORT_DIRECTION`.
    pub port_direction: Direction,
    /// `MESSAGE_AGE` of the latest message.
    pub message_age: Age,
    /// `UPDATED`; a source port, which consumes nothing, has a new message or none.
    pub updated: Updated,
}

/// READ_UPDATED_SAMPLING_MESSAGE: as [`read_sampling_message`](super::read_sampling_message), but
/// only what no process of the partition has read at this port. Of several processes that call it
/// at once, one gets the message.
///
/// # Errors
/// As [`read_sampling_message`](super::read_sampling_message), except that an empty port is no
/// error.
#[inline]
pub fn read_updated_sampling_message(
    partition: &Partition,
    id: PortId,
    buffer: &mut [u8],
) -> Result<UpdatedRead, Refusal> {
    let nothing = |updated| UpdatedRead { length: 0, updated };
    let (port, latest) = destination(partition, id, buffer)?;
    let Some((latest, sequence)) = latest.and_then(|latest| Some((latest, latest.newest_sequence()?))) else {
        return Ok(nothing(Updated::EmptyPort));
    };
    if is_since(port.area.word(port::CONSUMED).load(Ordering::Relaxed), sequence) {
        return Ok(nothing(Updated::ConsumedMessage));
    }
    let delivered = match read(partition, port, latest, buffer) {
        // The first message has not arrived whole yet.
        Err(Refusal::NoAction) => return Ok(nothing(Updated::EmptyPort)),
        read => read?,
    };
    if !consume(port, delivered.sequence) {
        return Ok(nothing(Updated::ConsumedMessage));
    }
    judge(port, latest, delivered.time_ns);
    Ok(UpdatedRead {
        length: delivered.len_bytes,
        updated: Updated::NewMessage,
    })
}

/// GET_SAMPLING_PORT_CURRENT_STATUS.
///
/// # Errors
/// [`Refusal::InvalidParam`] for an unknown port.
pub fn get_sampling_port_current_status(
    partition: &Partition,
    id: PortId,
) -> Result<SamplingPortCurrentStatus, Refusal> {
    let port = created(partition, id, true)?;
    let (message, clock) = match &port.end {
        End::SamplingDestination(latest) => {
            let message = latest.peek().map(|message| (message.sequence, message.time_ns));
            (message, Some(latest.clock()))
        }
        End::SamplingSource(register) => (
            register.latest_time_ns().map(|time_ns| (u64::MAX, time_ns)),
            Some(register.clock()),
        ),
        _ => (None, None),
    };
    let consumed = port.area.word(port::CONSUMED).load(Ordering::Relaxed);
    let is_message_fresh = message
        .zip(clock)
        .is_some_and(|((_, time_ns), clock)| is_within_refresh_period(port, clock, time_ns));
    Ok(SamplingPortCurrentStatus {
        refresh_period: refresh_period_ns(port),
        time_stamp: message
            .zip(clock)
            .map_or(0, |((_, time_ns), clock)| clock.to_monotonic_ns(time_ns)),
        max_message_size: port.config.max_size(),
        port_direction: port.config.direction,
        message_age: if is_message_fresh { Age::Fresh } else { Age::Stale },
        updated: match message {
            None => Updated::EmptyPort,
            Some((sequence, _)) if is_since(consumed, sequence) => Updated::ConsumedMessage,
            Some(_) => Updated::NewMessage,
        },
    })
}

/// READ_SAMPLING_MESSAGE_CONDITIONAL: returns the latest message if it was written after
/// `ref_time_stamp` (ns).
///
/// # Errors
/// In this order: [`Refusal::InvalidParam`] for an unknown port; [`Refusal::InvalidMode`] for a
/// source port; [`Refusal::InvalidParam`] if `buffer` is shorter than the port's longest message or
/// `ref_time_stamp` is negative. An empty port is no error.
#[inline]
pub fn read_sampling_message_conditional(
    partition: &Partition,
    id: PortId,
    ref_time_stamp: SystemTime,
    buffer: &mut [u8],
) -> Result<ConditionalRead, Refusal> {
    let nothing = |time_stamp| ConditionalRead {
        length: 0,
        time_stamp,
    };
    let (port, latest) = destination(partition, id, buffer)?;
    if ref_time_stamp < 0 {
        return Err(Refusal::InvalidParam);
    }
    let Some((latest, message)) = latest.and_then(|latest| Some((latest, latest.peek()?))) else {
        return Ok(nothing(0));
    };
    let time_stamp = latest.clock().to_monotonic_ns(message.time_ns);
    if time_stamp <= ref_time_stamp {
        return Ok(nothing(time_stamp));
    }
    let delivered = read(partition, port, latest, buffer)?;
    consume(port, delivered.sequence);
    judge(port, latest, delivered.time_ns);
    Ok(ConditionalRead {
        length: delivered.len_bytes,
        time_stamp: latest.clock().to_monotonic_ns(delivered.time_ns),
    })
}
