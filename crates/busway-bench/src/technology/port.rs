//! `sampling`, `queuing` and, for each bus of the registry, `sampling-BUS`, `queuing-BUS`: ARINC
//! 653 ports of two partitions, on one host or on two.

use std::fmt::Write as _;
use std::time::Duration;

use busway_buses::{BUS_NAMES, missing};
use busway_port::apex::{OperatingMode, Refusal, SystemTime, set_partition_mode};
use busway_port::system::{module_of, root_of};
use busway_port::{
    Discipline, Partition, QueuingDestination, QueuingSource, SamplingDestination, SamplingSource, Store,
};
use busway_system::System;

use super::message::{Message, Received, SHORT_BYTES};
use super::path::{
    Description, LOOK_TIMEOUT, MeetingPoint, OneWay, Opening, Path, Reach, Side, Stage, User, reach_of,
};
use super::wait::Wait;
use crate::control::WorkerResult;
use crate::record::Measured;

/// Of every sampling destination; longer than any message is under way.
const REFRESH_PERIOD_NS: SystemTime = 1_000_000_000;
/// Messages in a queue are no longer than this together, unless four are.
const QUEUE_BYTES: usize = 1 << 20;
const PARTITIONS: [&str; 2] = ["near", "far"];

pub(super) fn describe() -> Vec<Description> {
    let mut all = Vec::new();
    for (kind, queuing) in [("sampling", false), ("queuing", true)] {
        let buses = BUS_NAMES.iter().map(|bus| Some(*bus));
        for bus in std::iter::once(None).chain(buses) {
            all.push(Description {
                name: bus.map_or(kind.to_owned(), |bus| format!("{kind}-{bus}")),
                title: match bus {
                    None => format!("ARINC 653 {kind} ports of two partitions on one host"),
                    Some(bus) => format!("ARINC 653 {kind} ports of two hosts over {bus}"),
                },
                waits: if queuing {
                    vec![Wait::Event, Wait::Spin]
                } else {
                    vec![Wait::Spin, Wait::Adaptive]
                },
                reach: bus.map_or(Reach::Host, reach_of),
                one_way: Some(if queuing {
                    OneWay::Lossless
                } else {
                    OneWay::Sampling
                }),
                least_bytes: SHORT_BYTES,
                max_bytes: 16 << 20,
                helpers: 0,
                stage: Stage::Ports { bus, queuing },
                missing: bus.and_then(missing),
            });
        }
    }
    all
}

pub(super) fn with(name: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    let partition = join(opening.place, opening.side)?;
    let ends = Ends {
        outgoing: vec![0; opening.payload_bytes],
        incoming: vec![0; opening.payload_bytes],
        touched: opening.touched,
    };
    let [source, destination] = port_names(opening.payload_bytes, opening.side);
    if name.starts_with("queuing") {
        user.exchange(Queuing::open(&partition, &source, &destination, ends, opening)?)
    } else {
        user.exchange(Sampling::open(&partition, &source, &destination, ends)?)
    }
}

/// The tables of both partitions, on `hosts`, and of a channel each way for each size in bytes.
pub(crate) fn partitions(hosts: [&str; 2], sizes: &[usize], queuing: bool) -> String {
    let kind = if queuing { "queuing" } else { "sampling" };
    let mut text = String::new();
    for (side, host) in [Side::Asks, Side::Answers].into_iter().zip(hosts) {
        let partition = partition_of(side);
        let _ = writeln!(
            text,
            "\n[[partition]]\nname = \"{partition}\"\nhost = \"{host}\"\nports = ["
        );
        for bytes in sizes {
            let [source, destination] = port_names(*bytes, side);
            let depth = (QUEUE_BYTES / bytes).clamp(4, 256);
            let (both, far) = if queuing {
                (
                    format!("max_messages = {depth}, "),
                    "direction = \"destination\", discipline = \"fifo\"",
                )
            } else {
                (
                    String::new(),
                    "direction = \"destination\", refresh_period = \"1s\"",
                )
            };
            for (port, direction) in [(source, "direction = \"source\""), (destination, far)] {
                let _ = writeln!(
                    text,
                    "  {{ name = \"{port}\", kind = \"{kind}\", max_size = {bytes}, {both}{direction} }},"
                );
            }
        }
        text.push_str("]\n");
    }
    for bytes in sizes {
        for (from, to) in [(Side::Asks, Side::Answers), (Side::Answers, Side::Asks)] {
            let [source, _] = port_names(*bytes, from);
            let [_, destination] = port_names(*bytes, to);
            let _ = writeln!(
                text,
                "\n[[channel]]\nsource = \"{}/{source}\"\ndestinations = [\"{}/{destination}\"]",
                partition_of(from),
                partition_of(to)
            );
        }
    }
    text
}

pub(crate) fn partition_of(side: Side) -> &'static str {
    match side {
        Side::Asks => PARTITIONS[0],
        Side::Answers => PARTITIONS[1],
    }
}

/// Names of a side's source and destination for messages of one size.
pub(crate) fn port_names(payload_bytes: usize, side: Side) -> [String; 2] {
    let there = format!("THERE_{payload_bytes}");
    let back = format!("BACK_{payload_bytes}");
    match side {
        Side::Asks => [there, back],
        Side::Answers => [back, there],
    }
}

pub(crate) fn join(place: &MeetingPoint, side: Side) -> WorkerResult<Partition> {
    let name = partition_of(side);
    let file = place
        .system
        .as_deref()
        .ok_or("ports need a system file, and none was given")?;
    let system = System::load(file).map_err(|e| e.to_string())?;
    let partition = system
        .partition(name)
        .ok_or_else(|| format!("{} has no partition {name}", file.display()))?;
    let host = &partition.host;
    let store = Store::open(root_of(&system, host), module_of(&system, host));
    store
        .map_err(|e| e.to_string())?
        .join(name)
        .map_err(|e| e.to_string())
}

/// Ends the start of the partition, after which its ports move messages.
pub(crate) fn start(partition: &Partition) -> WorkerResult<()> {
    set_partition_mode(partition, OperatingMode::Normal)
        .map_err(|e| format!("start partition {}: {e}", partition.name()))
}

pub(crate) fn sampling_ports<'p>(
    partition: &'p Partition,
    source: &str,
    destination: &str,
) -> WorkerResult<(SamplingSource<'p>, SamplingDestination<'p>)> {
    Ok((
        partition
            .sampling_source(source)
            .map_err(|e| refused(partition, source, e))?,
        partition
            .sampling_destination(destination, REFRESH_PERIOD_NS)
            .map_err(|e| refused(partition, destination, e))?,
    ))
}

fn refused(partition: &Partition, port: &str, refusal: Refusal) -> String {
    format!("create {}/{port}: {refusal}", partition.name())
}

struct Ends {
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    touched: bool,
}

struct Sampling<'p> {
    source: SamplingSource<'p>,
    destination: SamplingDestination<'p>,
    ends: Ends,
}

impl<'p> Sampling<'p> {
    fn open(partition: &'p Partition, source: &str, destination: &str, ends: Ends) -> WorkerResult<Self> {
        let (source, destination) = sampling_ports(partition, source, destination)?;
        start(partition)?;
        Ok(Self {
            source,
            destination,
            ends,
        })
    }
}

impl Path for Sampling<'_> {
    #[inline]
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        message.fill(&mut self.ends.outgoing, self.ends.touched);
        self.source
            .write(&self.ends.outgoing)
            .map_err(|e| format!("write: {e}"))?;
        Ok(true)
    }

    #[inline]
    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        match self.destination.read_updated(&mut self.ends.incoming) {
            Ok(read) => Ok((read.length > 0)
                .then(|| Message::read(&self.ends.incoming, self.ends.touched))
                .flatten()),
            Err(refusal) => Err(format!("read: {refusal}")),
        }
    }
}

struct Queuing<'p> {
    source: QueuingSource<'p>,
    destination: QueuingDestination<'p>,
    ends: Ends,
    /// How long a call waits at most, in ns.
    send_time_out: SystemTime,
    receive_time_out: SystemTime,
    control: crate::control::Control,
}

impl<'p> Queuing<'p> {
    fn open(
        partition: &'p Partition,
        source: &str,
        destination: &str,
        ends: Ends,
        opening: &Opening<'_>,
    ) -> WorkerResult<Self> {
        let look_ns = LOOK_TIMEOUT.as_nanos() as SystemTime;
        let ports = Self {
            source: partition
                .queuing_source(source, Discipline::Fifo)
                .map_err(|e| refused(partition, source, e))?,
            destination: partition
                .queuing_destination(destination, Discipline::Fifo)
                .map_err(|e| refused(partition, destination, e))?,
            ends,
            send_time_out: if opening.timed { 0 } else { look_ns },
            receive_time_out: if opening.blocks() { look_ns } else { 0 },
            control: opening.control.clone(),
        };
        start(partition)?;
        Ok(ports)
    }

    fn take(&mut self, time_out: SystemTime) -> WorkerResult<Option<Received>> {
        match self.destination.receive(&mut self.ends.incoming, time_out) {
            Ok(_) => Ok(Message::read(&self.ends.incoming, self.ends.touched)),
            Err(Refusal::NotAvailable | Refusal::TimedOut) => Ok(None),
            Err(refusal) => Err(format!("receive: {refusal}")),
        }
    }
}

impl Path for Queuing<'_> {
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        message.fill(&mut self.ends.outgoing, self.ends.touched);
        loop {
            match self.source.send(&self.ends.outgoing, self.send_time_out) {
                Ok(()) => return Ok(true),
                Err(Refusal::NotAvailable | Refusal::TimedOut)
                    if self.send_time_out == 0 || self.control.ended() =>
                {
                    return Ok(false);
                }
                Err(Refusal::NotAvailable | Refusal::TimedOut) => {}
                Err(refusal) => return Err(format!("send: {refusal}")),
            }
        }
    }

    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        self.take(self.receive_time_out)
    }

    fn wait(&mut self, at_most: Duration) {
        // The port gives no way to wait without taking.
        std::thread::sleep(at_most.min(Duration::from_micros(10)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partitions_are_a_possible_system_on_one_host_and_on_two() {
        for hosts in [["a", "b"], ["a", "a"]] {
            for queuing in [false, true] {
                let text = format!(
                    "[host.a]\n[host.b]\n[[link]]\nhosts = [\"a\", \"b\"]\nbuses = [\"tcp\"]\ntcp.a = {{ listen = \"127.0.0.1:1\" }}\n{}",
                    partitions(hosts, &[16, 64], queuing)
                );
                let system = System::parse(&text, "system.toml".as_ref()).expect("right");
                assert_eq!((system.partitions.len(), system.channels.len()), (2, 4));
            }
        }
    }
}
