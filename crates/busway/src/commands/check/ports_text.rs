//! Partitions and channels of a [`super::report::Report`] for people.

use std::fmt::Write;

use busway_buses as registry;
use busway_system::slots::READ_RETRIES;
use busway_system::{
    Carrier, Clock, DEFAULT_LANE, Direction, Discipline, Partition, Port, PortKind, Way, WhenFull,
};

use super::ports::{ChannelReport, End, RegisterWriter, RouteReport, SlotsReport};
use super::schedule_text::write_execution;
use super::text::bytes_text;

pub fn write_partitions(partitions: &[&Partition], to: &mut String) -> std::fmt::Result {
    if partitions.is_empty() {
        return Ok(());
    }
    writeln!(to, "partitions")?;
    for partition in partitions {
        writeln!(
            to,
            "  {:<10} {} on {}",
            partition.name, partition.id, partition.host
        )?;
        write_execution(&partition.execution, to)?;
        let width = partition.ports.iter().map(|port| port.name.chars().count()).max();
        for port in &partition.ports {
            writeln!(
                to,
                "    {:<width$}  {}",
                port.name,
                port_text(port),
                width = width.unwrap_or(0)
            )?;
        }
    }
    Ok(())
}

fn port_text(port: &Port) -> String {
    let direction = match port.direction {
        Direction::Source => "source",
        Direction::Destination => "destination",
    };
    let mut text = format!(
        "{} {direction}, {}",
        port.kind.name(),
        bytes_text(port.max_size_bytes.into())
    );
    match port.kind {
        PortKind::Sampling {
            refresh_period_ns,
            min_write_interval_ns,
        } => {
            if let Some(ns) = refresh_period_ns.filter(|_| port.direction == Direction::Destination) {
                text.push_str(&format!(", valid for {}", time_text(ns)));
            }
            if let Some(ns) = min_write_interval_ns {
                text.push_str(&format!(", written every {} at most", time_text(ns)));
            }
        }
        PortKind::Queuing {
            max_messages,
            discipline,
        } => {
            text.push_str(&format!(", {max_messages} messages"));
            match discipline {
                Some(Discipline::Fifo) => text.push_str(", created as FIFO only"),
                Some(Discipline::Priority) => text.push_str(", created as PRIORITY only"),
                None => {}
            }
        }
    }
    text
}

pub fn write_channels(channels: &[ChannelReport<'_>], to: &mut String) -> std::fmt::Result {
    if channels.is_empty() {
        return Ok(());
    }
    writeln!(to, "channels")?;
    for channel in channels {
        writeln!(
            to,
            "  {:<10} {}, {}, from {} on {}",
            channel.name,
            channel.kind,
            bytes_text(channel.max_size_bytes.into()),
            name(&channel.source),
            channel.source.host
        )?;
        for route in &channel.routes {
            writeln!(
                to,
                "    to       {} on {}: {}",
                name(&route.to),
                route.to.host,
                way_text(route, kind_of(channel, route))
            )?;
        }
        match channel.when_full {
            Some(WhenFull::Wait) => writeln!(to, "    if full  the sender waits")?,
            Some(WhenFull::Overflow) => {
                writeln!(to, "    if full  that destination loses the message, and is told")?
            }
            None => {}
        }
        if let Some(lane) = channel.lane.filter(|lane| *lane != DEFAULT_LANE) {
            writeln!(to, "    lane     {lane}")?;
        }
        if let Some(slots) = &channel.slots {
            write_slots(slots, &channel.routes, to)?;
        }
    }
    Ok(())
}

fn name(end: &End<'_>) -> String {
    format!("{}/{}", end.partition, end.port)
}

/// What a bus that reaches registered memory can do for a channel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sampling,
    /// A queue that the source's gateway can write.
    OneQueue,
    /// Several destinations at that host have a queue each.
    SeveralQueues,
    /// A full queue loses messages, of which its receiver is told.
    OverflowingQueue,
}

fn kind_of(channel: &ChannelReport<'_>, route: &RouteReport<'_>) -> Kind {
    let is_there = |other: &&RouteReport<'_>| other.to.host == route.to.host;
    if channel.slots.is_some() {
        Kind::Sampling
    } else if channel.when_full == Some(WhenFull::Overflow) {
        Kind::OverflowingQueue
    } else if channel.routes.iter().filter(is_there).count() > 1 {
        Kind::SeveralQueues
    } else {
        Kind::OneQueue
    }
}

fn way_text(route: &RouteReport<'_>, kind: Kind) -> String {
    let is_sampling = kind == Kind::Sampling;
    match &route.way {
        Way::InsideHost => "inside the host".to_string(),
        Way::Link {
            bus, carrier, clock, ..
        } => {
            let said = match carrier {
                Carrier::Gateways if route.register_writer == Some(RegisterWriter::Partition) => {
                    "written into the other host's ports by the source's process if it can open its RDMA device, else by its gateway"
                }
                Carrier::Gateways if route.register_writer.is_some() => {
                    "written by the source's gateway into the other host's ports"
                }
                Carrier::Partition if !is_sampling => {
                    "sent by the source's partition, in memory that both hosts share"
                }
                Carrier::Gateways if kind == Kind::OneQueue && registry::writes_registers(bus) => {
                    "written by the source's gateway into the other host's queue, whose gateway wakes the receiver"
                }
                Carrier::Partition => "written by the source's partition into the other host's memory",
                Carrier::Gateways => "moved by the gateways",
                Carrier::Core => "moved by one gateway, through a ring that the core's program uses",
            };
            let clock = match clock {
                Clock::Estimated => "the link estimates the clocks' offset",
                Clock::Ptp => "PTP keeps the clocks together",
            };
            let may_share = !is_sampling && *carrier == Carrier::Gateways && registry::shares_memory(bus);
            let is_short = is_sampling && *carrier == Carrier::Gateways && registry::is_one_sided(bus);
            let why = if is_short {
                ", for want of room in the window"
            } else if route.register_writer == Some(RegisterWriter::Gateway) {
                ", by partition_writes = false of the source's host"
            } else if may_share && route.fallbacks.is_empty() {
                ", for want of room in the window or of coherent memory"
            } else if may_share {
                ", since only they can move the messages to another bus"
            } else if kind == Kind::SeveralQueues && registry::writes_registers(bus) {
                ", since several destinations there have a queue each"
            } else if kind == Kind::OverflowingQueue && registry::writes_registers(bus) {
                ", since a full queue is to lose messages"
            } else {
                ""
            };
            let others: Vec<&str> = route.fallbacks.iter().map(|hop| hop.bus).collect();
            let others = match (others.as_slice(), route.unused.as_slice()) {
                ([], []) => String::new(),
                ([], unused) => format!(", never over {}", unused.join(" or ")),
                (others, _) => format!("; while that is down over {}", others.join(", then ")),
            };
            format!("{said} ({bus}{why}), {clock}{others}")
        }
    }
}

fn write_slots(slots: &SlotsReport, routes: &[RouteReport<'_>], to: &mut String) -> std::fmt::Result {
    let chosen = if slots.from_file { "" } else { " by default" };
    let Some(copy) = slots.copy else {
        return writeln!(
            to,
            "    slots    {}{chosen}; this machine has no memory to measure a copy",
            slots.count
        );
    };
    let retries = match (slots.min_write_interval_ns, slots.without_retry) {
        (None, _) => {
            "a read may retry: `min_write_interval` at the source would say which number makes that impossible".to_string()
        }
        (Some(_), None) => "a read may retry: no number of slots is enough for this rate".to_string(),
        (Some(_), Some(needed)) if needed <= slots.count => format!("no read retries with {needed} or more"),
        (Some(_), Some(needed)) => format!("a read may retry: slots = {needed} makes that impossible"),
    };
    writeln!(to, "    slots    {}{chosen}; {retries}", slots.count)?;
    let by_gateways = |route: &RouteReport<'_>| {
        matches!(
            route.way,
            Way::Link {
                carrier: Carrier::Gateways,
                ..
            }
        )
    };
    if slots.no_retry && routes.iter().any(by_gateways) {
        writeln!(
            to,
            "             (not where gateways move messages: several may arrive at once)"
        )?;
    }
    let longest = if slots.no_retry {
        format!("{} without a retry, ", time_text(copy.read_ns))
    } else {
        String::new()
    };
    writeln!(
        to,
        "    read     {longest}at most {} with {READ_RETRIES} retries, if nothing interrupts it (here a read copies in {}, a write in {})",
        time_text(slots.longest_read_ns.unwrap_or(copy.read_ns)),
        time_text(copy.read_ns),
        time_text(copy.write_ns)
    )
}

/// With three digits at most, in the unit that suits.
pub fn time_text(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
    match units.into_iter().find(|(unit, _)| ns >= *unit) {
        None => format!("{ns} ns"),
        Some((unit, name)) => {
            let value = ns as f64 / unit as f64;
            let digits = match value {
                _ if ns.is_multiple_of(unit) => 0,
                v if v < 10.0 => 2,
                v if v < 100.0 => 1,
                _ => 0,
            };
            format!("{value:.digits$} {name}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_in_a_suitable_unit() {
        for (ns, text) in [
            (7, "7 ns"),
            (1_000, "1 µs"),
            (1_234, "1.23 µs"),
            (20_000_000, "20 ms"),
            (123_456_789, "123 ms"),
            (90_000_000_000, "90 s"),
        ] {
            assert_eq!(time_text(ns), text);
        }
    }
}
