//! Sampling and queuing ports: `a653rs`'s types around [`busway_port::apex`].
//!
//! Contract: the same checks in the same order, the same codes. Called through the traits of
//! `a653rs`.
#![allow(unsafe_code)] // Two methods are unsafe by their declaration in `a653rs`; nothing in them is.

use a653rs::bindings::{
    ApexByte, ApexName, ApexQueuingPortP1, ApexQueuingPortP4, ApexSamplingPortP1, ApexSamplingPortP4,
    ApexSamplingPortStatus, ApexSystemTime, ErrorReturnCode, MessageRange, MessageSize, PortDirection,
    QueueOverflow, QueuingDiscipline, QueuingPortId, QueuingPortName, QueuingPortStatus, SamplingPortId,
    SamplingPortName, Validity,
};
use busway_port::apex;
use busway_port::{Direction, Discipline, Partition};

use crate::{Busway, code};

fn partition() -> Result<&'static Partition, ErrorReturnCode> {
    busway_apex::partition().map_err(code)
}

/// The text before the first zero byte; empty, which no port is called, if it is not UTF-8.
fn text(name: &ApexName) -> &str {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    std::str::from_utf8(&name[..end]).unwrap_or_default()
}

/// The 32 bits that identify a port; 0, which identifies none, for a number that has more.
fn port(id: i64) -> apex::PortId {
    apex::PortId::try_from(id).unwrap_or(0)
}

fn direction(direction: PortDirection) -> Direction {
    match direction {
        PortDirection::Source => Direction::Source,
        PortDirection::Destination => Direction::Destination,
    }
}

fn port_direction(direction: Direction) -> PortDirection {
    match direction {
        Direction::Source => PortDirection::Source,
        Direction::Destination => PortDirection::Destination,
    }
}

fn validity(validity: apex::Validity) -> Validity {
    match validity {
        apex::Validity::Invalid => Validity::Invalid,
        apex::Validity::Valid => Validity::Valid,
    }
}

/// A number of 32 bits; the configuration keeps all of them in its range.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl ApexSamplingPortP4 for Busway {
    fn create_sampling_port(
        sampling_port_name: SamplingPortName,
        max_message_size: MessageSize,
        port_direction: PortDirection,
        refresh_period: ApexSystemTime,
    ) -> Result<SamplingPortId, ErrorReturnCode> {
        let (name, direction) = (text(&sampling_port_name), direction(port_direction));
        let size = max_message_size as usize;
        apex::create_sampling_port(partition()?, name, size, direction, refresh_period)
            .map(SamplingPortId::from)
            .map_err(code)
    }

    fn write_sampling_message(
        sampling_port_id: SamplingPortId,
        message: &[ApexByte],
    ) -> Result<(), ErrorReturnCode> {
        apex::write_sampling_message(partition()?, port(sampling_port_id), message).map_err(code)
    }

    unsafe fn read_sampling_message(
        sampling_port_id: SamplingPortId,
        message: &mut [ApexByte],
    ) -> Result<(Validity, MessageSize), ErrorReturnCode> {
        let read =
            apex::read_sampling_message(partition()?, port(sampling_port_id), message).map_err(code)?;
        Ok((validity(read.validity), narrow(read.length)))
    }
}

impl ApexSamplingPortP1 for Busway {
    fn get_sampling_port_id(sampling_port_name: SamplingPortName) -> Result<SamplingPortId, ErrorReturnCode> {
        apex::get_sampling_port_id(partition()?, text(&sampling_port_name))
            .map(SamplingPortId::from)
            .map_err(code)
    }

    fn get_sampling_port_status(
        sampling_port_id: SamplingPortId,
    ) -> Result<ApexSamplingPortStatus, ErrorReturnCode> {
        let status = apex::get_sampling_port_status(partition()?, port(sampling_port_id)).map_err(code)?;
        Ok(ApexSamplingPortStatus {
            refresh_period: status.refresh_period,
            max_message_size: narrow(status.max_message_size),
            port_direction: port_direction(status.port_direction),
            last_msg_validity: validity(status.last_msg_validity),
        })
    }
}

impl ApexQueuingPortP4 for Busway {
    fn create_queuing_port(
        queuing_port_name: QueuingPortName,
        max_message_size: MessageSize,
        max_nb_message: MessageRange,
        port_direction: PortDirection,
        queuing_discipline: QueuingDiscipline,
    ) -> Result<QueuingPortId, ErrorReturnCode> {
        let discipline = match queuing_discipline {
            QueuingDiscipline::Fifo => Discipline::Fifo,
            QueuingDiscipline::Priority => Discipline::Priority,
        };
        apex::create_queuing_port(
            partition()?,
            text(&queuing_port_name),
            max_message_size as usize,
            max_nb_message as usize,
            direction(port_direction),
            discipline,
        )
        .map(QueuingPortId::from)
        .map_err(code)
    }

    fn send_queuing_message(
        queuing_port_id: QueuingPortId,
        message: &[ApexByte],
        time_out: ApexSystemTime,
    ) -> Result<(), ErrorReturnCode> {
        apex::send_queuing_message(partition()?, port(queuing_port_id), message, time_out).map_err(code)
    }

    unsafe fn receive_queuing_message(
        queuing_port_id: QueuingPortId,
        time_out: ApexSystemTime,
        message: &mut [ApexByte],
    ) -> Result<(MessageSize, QueueOverflow), ErrorReturnCode> {
        let received = apex::receive_queuing_message(partition()?, port(queuing_port_id), time_out, message)
            .map_err(code)?;
        Ok((narrow(received.length), received.overflowed))
    }

    fn get_queuing_port_status(queuing_port_id: QueuingPortId) -> Result<QueuingPortStatus, ErrorReturnCode> {
        let status = apex::get_queuing_port_status(partition()?, port(queuing_port_id)).map_err(code)?;
        Ok(QueuingPortStatus {
            nb_message: narrow(status.nb_message),
            max_nb_message: narrow(status.max_nb_message),
            max_message_size: narrow(status.max_message_size),
            port_direction: port_direction(status.port_direction),
            waiting_processes: i32::try_from(status.waiting_processes).unwrap_or(i32::MAX),
        })
    }

    fn clear_queuing_port(queuing_port_id: QueuingPortId) -> Result<(), ErrorReturnCode> {
        apex::clear_queuing_port(partition()?, port(queuing_port_id)).map_err(code)
    }
}

impl ApexQueuingPortP1 for Busway {
    fn get_queuing_port_id(queuing_port_name: QueuingPortName) -> Result<QueuingPortId, ErrorReturnCode> {
        apex::get_queuing_port_id(partition()?, text(&queuing_port_name))
            .map(QueuingPortId::from)
            .map_err(code)
    }
}
