//! Sampling ports: ARINC 653 Part 1, section 3.6.2.1.

use super::{PortId, Refusal, SystemTime, Validity, create, created, id_of};
use crate::config::{Clock, Direction};
use crate::counters::{Counter, Counting};
use crate::crash;
use crate::fast_clock;
use crate::partition::far::{between, is_since};
use crate::partition::sampling::{Delivered, Latest, Nothing};
use crate::partition::{End, Partition, Port};
use crate::store::layout::port;
use crate::sync::Ordering;

/// What a read returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplingRead {
    /// `LENGTH` in bytes.
    pub length: usize,
    /// `VALIDITY`.
    pub validity: Validity,
}

/// `SAMPLING_PORT_STATUS_TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplingPortStatus {
    /// `REFRESH_PERIOD` in ns.
    pub refresh_period: SystemTime,
    /// `MAX_MESSAGE_SIZE` in bytes.
    pub max_message_size: usize,
    /// `PORT_DIRECTION`.
    pub port_direction: Direction,
    /// `LAST_MSG_VALIDITY`: of the message that a process of the partition read last.
    pub last_msg_validity: Validity,
}

/// CREATE_SAMPLING_PORT. `refresh_period` in ns is the port's from now on; at a source port it
/// means nothing.
///
/// # Errors
/// In this order: [`Refusal::InvalidConfig`] for an unknown name; [`Refusal::NoAction`] for a
/// second creation; [`Refusal::InvalidConfig`] for another size, direction, or a period that is not
/// positive; [`Refusal::InvalidMode`] outside the start modes.
pub fn create_sampling_port(
    partition: &Partition,
    name: &str,
    max_message_size: usize,
    port_direction: Direction,
    refresh_period: SystemTime,
) -> Result<PortId, Refusal> {
    create(
        partition,
        name,
        true,
        (max_message_size, port_direction),
        |_| refresh_period > 0,
        |created| {
            let period = refresh_period as u64;
            created
                .area
                .word(port::REFRESH_PERIOD)
                .store(period, Ordering::Relaxed);
        },
    )
}

/// WRITE_SAMPLING_MESSAGE.
///
/// # Errors
/// In this order: [`Refusal::InvalidParam`] for an unknown port; [`Refusal::InvalidConfig`] for a
/// message longer than the port's; [`Refusal::InvalidParam`] for an empty one;
/// [`Refusal::InvalidMode`] for a destination port.
#[inline]
pub fn write_sampling_message(partition: &Partition, id: PortId, message: &[u8]) -> Result<(), Refusal> {
    let port = created(partition, id, true)?;
    if message.len() > port.config.max_size() {
        return Err(Refusal::InvalidConfig);
    }
    if message.is_empty() {
        return Err(Refusal::InvalidParam);
    }
    if port.config.direction != Direction::Source {
        return Err(Refusal::InvalidMode);
    }
    if let End::SamplingSource(register) = &port.end {
        let lock = partition.lock(port);
        crash::step("locked");
        if !register.write(message) {
            return Err(Refusal::NotAvailable);
        }
        Counting(&port.area).bump(Counter::Writes);
        crash::step("before-unlock");
        drop(lock);
        port.ringers.ring();
        crash::step("unlocked");
    }
    Ok(())
}

/// READ_SAMPLING_MESSAGE: copies the latest message into `buffer`, however old it is, and says
/// whether it is valid.
///
/// # Errors
/// In this order: [`Refusal::InvalidParam`] for an unknown port; [`Refusal::InvalidMode`] for a
/// source port; [`Refusal::InvalidParam`] if `buffer` is shorter than the port's longest message;
/// [`Refusal::NoAction`] if nothing was ever written (`LENGTH` is 0 and `VALIDITY` is `INVALID`
/// then). [`Refusal::NotAvailable`] if the writer was faster than more than a thousand attempts and
/// this process has no earlier message: with the number of slots that the write interval asks for,
/// that can't happen.
#[inline]
pub fn read_sampling_message(
    partition: &Partition,
    id: PortId,
    buffer: &mut [u8],
) -> Result<SamplingRead, Refusal> {
    let (port, latest) = destination(partition, id, buffer)?;
    let Some(latest) = latest else {
        return Err(Refusal::NoAction);
    };
    let delivered = read(partition, port, latest, buffer)?;
    consume(port, delivered.sequence);
    Ok(SamplingRead {
        length: delivered.len_bytes,
        validity: judge(port, latest, delivered.time_ns),
    })
}

/// GET_SAMPLING_PORT_ID.
///
/// # Errors
/// [`Refusal::InvalidConfig`] if the partition has created no such sampling port.
pub fn get_sampling_port_id(partition: &Partition, name: &str) -> Result<PortId, Refusal> {
    id_of(partition, name, true)
}

/// GET_SAMPLING_PORT_STATUS.
///
/// # Errors
/// [`Refusal::InvalidParam`] for an unknown port.
pub fn get_sampling_port_status(partition: &Partition, id: PortId) -> Result<SamplingPortStatus, Refusal> {
    let port = created(partition, id, true)?;
    let validity = port.area.word(port::LAST_VALIDITY).load(Ordering::Relaxed);
    Ok(SamplingPortStatus {
        refresh_period: refresh_period_ns(port),
        max_message_size: port.config.max_size(),
        port_direction: port.config.direction,
        last_msg_validity: if validity == 0 {
            Validity::Invalid
        } else {
            Validity::Valid
        },
    })
}

/// The destination port `id`, checked for reading into `buffer`; no register if it has no channel.
#[inline]
pub(super) fn destination<'p>(
    partition: &'p Partition,
    id: PortId,
    buffer: &[u8],
) -> Result<(&'p Port, Option<&'p Latest>), Refusal> {
    let port = created(partition, id, true)?;
    debug_assert!(port.config.kind.is_sampling());
    if port.config.direction != Direction::Destination {
        return Err(Refusal::InvalidMode);
    }
    if buffer.len() < port.config.max_size() {
        return Err(Refusal::InvalidParam);
    }
    match &port.end {
        End::SamplingDestination(latest) => Ok((port, Some(latest))),
        _ => Ok((port, None)),
    }
}

/// Reads the latest message, and counts.
#[inline]
pub(super) fn read(
    partition: &Partition,
    port: &Port,
    latest: &Latest,
    buffer: &mut [u8],
) -> Result<Delivered, Refusal> {
    let counting = Counting(&port.area);
    let place = partition.members().place();
    latest.read(buffer, &counting, place).map_err(|nothing| {
        if nothing == Nothing::Empty {
            port.area.word(port::LAST_VALIDITY).store(0, Ordering::Relaxed);
            Refusal::NoAction
        } else {
            Refusal::NotAvailable
        }
    })
}

/// Marks the message `sequence` as consumed at this port, for all processes of the partition.
/// Whether it was new.
#[inline]
pub(super) fn consume(port: &Port, sequence: u64) -> bool {
    let consumed = port.area.word(port::CONSUMED);
    // Relaxed: the word orders nothing, it only grows within a session.
    let later = |before: u64| (!is_since(before, sequence)).then_some(sequence);
    let Ok(before) = consumed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later) else {
        return false;
    };
    let overwritten = between(before, sequence);
    if overwritten > 0 {
        Counting(&port.area).add(Counter::Overwritten, overwritten);
    }
    true
}

/// Decides by its source time whether a message just read is valid, and keeps the result for the
/// port's status.
#[inline]
pub(super) fn judge(port: &Port, latest: &Latest, time_ns: SystemTime) -> Validity {
    let is_valid = is_within_refresh_period(port, latest.clock(), time_ns);
    let last = port.area.word(port::LAST_VALIDITY);
    if last.load(Ordering::Relaxed) != u64::from(is_valid) {
        last.store(u64::from(is_valid), Ordering::Relaxed);
    }
    if is_valid {
        Validity::Valid
    } else {
        Counting(&port.area).add(Counter::Stale, 1);
        Validity::Invalid
    }
}

/// Whether a message written at `time_ns` of `clock` is within the port's refresh period now. One
/// from the future, which a writer with a clock of its own could claim, is fresh as long as the
/// claim is within a refresh period too.
#[inline]
pub(super) fn is_within_refresh_period(port: &Port, clock: Clock, time_ns: SystemTime) -> bool {
    fast_clock::is_within(clock, time_ns, refresh_period_ns(port) as u64)
}

#[inline]
pub(super) fn refresh_period_ns(port: &Port) -> SystemTime {
    port.area.word(port::REFRESH_PERIOD).load(Ordering::Relaxed) as SystemTime
}
