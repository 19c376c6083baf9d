//! What a system file makes of partitions and channels: each channel's way, and for sampling
//! channels how many slots make retries impossible and how long a read can take, by copy times
//! measured on this machine.

use std::collections::HashMap;

use busway_bench::copy_time::{self, CopyTime};
use busway_buses::writes_registers;
use busway_system::slots::{longest_read_ns, slots_without_retry};
use busway_system::{Carrier, Channel, Hop, Host, Partition, PortKind, PortRef, System, Way, WhenFull};
use serde::Serialize;

/// A channel and all its ways.
#[derive(Serialize)]
pub struct ChannelReport<'a> {
    pub name: &'a str,
    /// `sampling` or `queuing`.
    pub kind: &'static str,
    pub max_size_bytes: u32,
    pub source: End<'a>,
    pub routes: Vec<RouteReport<'a>>,
    /// What happens to a message for a full queue; `None` for a sampling channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_full: Option<WhenFull>,
    /// The lane on which gateways move the messages, if any crosses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<&'a str>,
    /// `None` for a queuing channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotsReport>,
}

/// One end of a channel.
#[derive(Serialize)]
pub struct End<'a> {
    pub partition: &'a str,
    pub port: &'a str,
    pub host: &'a str,
}

/// Who writes a register in the other host's port store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegisterWriter {
    /// The source's own process if it can open its device, else the gateway of its host.
    Partition,
    /// The gateway of the source's host, always.
    Gateway,
}

/// The way to one destination.
#[derive(Serialize)]
pub struct RouteReport<'a> {
    pub to: End<'a>,
    #[serde(flatten)]
    pub way: Way,
    /// Who writes the other host's ports, where the sending host does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register_writer: Option<RegisterWriter>,
    /// Where messages go while that way is down, the best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<Hop>,
    /// Other buses that are named, and that it never takes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unused: Vec<&'static str>,
}

/// The register of a sampling channel.
#[derive(Serialize)]
pub struct SlotsReport {
    pub count: u32,
    /// Whether the file gives the number.
    pub from_file: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_write_interval_ns: Option<u64>,
    /// Measured on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyTime>,
    /// The number with which no read retries where writes arrive as they were made; `None`: not
    /// known, or more than there can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_retry: Option<u32>,
    /// Whether `count` is that many.
    pub no_retry: bool,
    /// The longest read, all retries included, if nothing interrupts the reader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_read_ns: Option<u64>,
}

/// The partitions of `only`, or all.
pub fn partitions<'a>(system: &'a System, only: Option<&Host>) -> Vec<&'a Partition> {
    let shown = |partition: &&Partition| only.is_none_or(|only| only.name == partition.host);
    system.partitions.iter().filter(shown).collect()
}

/// The channels that begin or end on `only`, or all.
pub fn channels<'a>(system: &'a System, only: Option<&Host>) -> Vec<ChannelReport<'a>> {
    let mut copies: HashMap<u32, Option<CopyTime>> = HashMap::new();
    let here = |at: PortRef| only.is_none_or(|only| system.partitions[at.partition].host == only.name);
    system
        .channels
        .iter()
        .filter(|channel| here(channel.source) || channel.destinations.iter().any(|at| here(*at)))
        .map(|channel| report(system, channel, &mut copies))
        .collect()
}

fn report<'a>(
    system: &'a System,
    channel: &'a Channel,
    copies: &mut HashMap<u32, Option<CopyTime>>,
) -> ChannelReport<'a> {
    let source = system.port(channel.source);
    let max_size_bytes = source.max_size_bytes;
    let slots = match (&source.kind, channel.slots) {
        (
            PortKind::Sampling {
                min_write_interval_ns,
                ..
            },
            Some(count),
        ) => {
            let copy = *copies
                .entry(max_size_bytes)
                .or_insert_with(|| copy_time::measure(max_size_bytes));
            Some(slots_report(
                count,
                channel.slots_from_file,
                *min_write_interval_ns,
                copy,
            ))
        }
        _ => None,
    };
    let routes = system.routes_of(channel).into_iter().map(|route| RouteReport {
        to: end(system, route.destination),
        register_writer: register_writer(system, channel, &route.way),
        way: route.way,
        fallbacks: route.fallbacks,
        unused: route.unused,
    });
    let routes: Vec<RouteReport<'_>> = routes.collect();
    let crosses = routes.iter().any(|route| matches!(route.way, Way::Link { .. }));
    ChannelReport {
        name: &channel.name,
        kind: source.kind.name(),
        max_size_bytes,
        source: end(system, channel.source),
        routes,
        when_full: channel.when_full,
        lane: crosses.then(|| system.lanes[channel.lane].name.as_str()),
        slots,
    }
}

/// See [`RouteReport::register_writer`].
fn register_writer(system: &System, channel: &Channel, way: &Way) -> Option<RegisterWriter> {
    let Way::Link {
        link,
        bus,
        carrier: Carrier::Gateways,
        ..
    } = way
    else {
        return None;
    };
    if !system.port(channel.source).kind.is_sampling() || !writes_registers(bus) {
        return None;
    }
    let host = &system.partitions[channel.source.partition].host;
    let settings = system.bus_of(host, *link, bus)?;
    Some(match settings.register_device() {
        Some(_) => RegisterWriter::Partition,
        None => RegisterWriter::Gateway,
    })
}

fn slots_report(
    count: u32,
    from_file: bool,
    min_write_interval_ns: Option<u64>,
    copy: Option<CopyTime>,
) -> SlotsReport {
    let without_retry = min_write_interval_ns
        .zip(copy)
        .and_then(|(interval_ns, copy)| slots_without_retry(copy.read_ns, copy.write_ns, interval_ns));
    SlotsReport {
        count,
        from_file,
        min_write_interval_ns,
        copy,
        without_retry,
        no_retry: without_retry.is_some_and(|needed| needed <= count),
        longest_read_ns: copy.map(|copy| longest_read_ns(copy.read_ns)),
    }
}

fn end(system: &System, at: PortRef) -> End<'_> {
    let partition = &system.partitions[at.partition];
    End {
        partition: &partition.name,
        port: &partition.ports[at.port].name,
        host: &partition.host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: CopyTime = CopyTime {
        read_ns: 300,
        write_ns: 200,
    };

    #[test]
    fn slots_suffice_depending_on_interval_and_copy_time() {
        let report = slots_report(4, false, Some(500), Some(COPY));
        assert_eq!((report.without_retry, report.no_retry), (Some(4), true));
        let report = slots_report(3, true, Some(500), Some(COPY));
        assert_eq!((report.without_retry, report.no_retry), (Some(4), false));
        assert_eq!(report.longest_read_ns, Some(17 * 300));
    }

    #[test]
    fn no_slots_are_promised_without_interval() {
        let report = slots_report(4096, true, None, Some(COPY));
        assert_eq!((report.without_retry, report.no_retry), (None, false));
    }
}
