//! One source port on a host whose links to several others are udp, a destination on each of those:
//! what leaves the host for each message. To be used in a network of its own
//! ([`crate::own_network`]).

use std::time::{Duration, Instant};

use busway_port::apex::{OperatingMode, Refusal, set_partition_mode};
use busway_port::observe::ObservedPort;
use busway_port::system::crossings_of;
use busway_port::{Discipline, Partition};
use busway_system::System;

use crate::fan::{NAMES, links};
use crate::own_network::sent;
use crate::ports::join;
use crate::quiet::look;
use crate::{Rig, eventually};

/// Length of a message in bytes: its number, over and over.
const LENGTH_BYTES: usize = 8192;
const DEPTH: u64 = 16;
/// Between two messages, where the source does not send as many as there is room for.
pub const GAP: Duration = Duration::from_micros(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sampling,
    /// Queuing ports; a full queue loses messages.
    Overflow,
    Wait,
}

impl Kind {
    fn write(self, source: &Partition, message: &[u8]) -> bool {
        let done = match self {
            Kind::Sampling => source.sampling_source("P").expect("configured").write(message),
            Kind::Overflow | Kind::Wait => {
                let port = source.queuing_source("P", Discipline::Fifo);
                port.expect("configured").send(message, 0)
            }
        };
        done.is_ok()
    }

    fn read(self, sink: &Partition, buffer: &mut [u8]) -> Option<usize> {
        let done = match self {
            Kind::Sampling => {
                let port = sink.sampling_destination("P", i64::MAX).expect("configured");
                port.read(buffer).map(|read| read.length)
            }
            Kind::Overflow | Kind::Wait => {
                let port = sink
                    .queuing_destination("P", Discipline::Fifo)
                    .expect("configured");
                port.receive(buffer, 0).map(|received| received.length)
            }
        };
        match done {
            Ok(length) => Some(length),
            Err(Refusal::NoAction | Refusal::NotAvailable) => None,
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

#[derive(Debug)]
pub struct PortFan {
    pub rig: Rig,
    kind: Kind,
    source: Partition,
    sinks: Vec<Sink>,
    last: u64,
    /// A destination that the source does not wait for, though it may lose messages so.
    pub ignored: Option<usize>,
}

#[derive(Debug)]
struct Sink {
    /// The end of the channel to it that the gateway of `a` has.
    observed: ObservedPort,
    partition: Partition,
    seen: Seen,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub last: u64,
    pub received: u64,
    pub missing: u64,
}

fn table(host: &str, ports: &str) -> String {
    format!(
        "[[partition]]\nname = \"on-{host}\"\nhost = \"{host}\"\nports = [{{ name = \"P\", max_size = {LENGTH_BYTES}, {ports} }}]\n"
    )
}

fn system_file(kind: Kind, others: &[&str], settings: &str) -> String {
    let (kind_of, more) = match kind {
        Kind::Sampling => ("kind = \"sampling\"".to_owned(), ", refresh_period = \"1s\""),
        Kind::Overflow | Kind::Wait => (format!("kind = \"queuing\", max_messages = {DEPTH}"), ""),
    };
    let source = format!("{kind_of}, direction = \"source\"");
    let sink = format!("{kind_of}, direction = \"destination\"{more}");
    let sinks: String = others.iter().map(|host| table(host, &sink)).collect();
    let names: Vec<String> = others.iter().map(|host| format!("\"on-{host}/P\"")).collect();
    let channel = format!(
        "[[channel]]\nsource = \"on-a/P\"\ndestinations = [{}]\n{}",
        names.join(", "),
        if kind == Kind::Wait {
            "when_full = \"wait\"\n"
        } else {
            ""
        }
    );
    [links(others.len(), settings), table("a", &source), sinks, channel].concat()
}

impl PortFan {
    pub fn flowing(kind: Kind, others: usize, settings: &str) -> PortFan {
        let names = &NAMES[..=others];
        let text = system_file(kind, &names[1..], settings);
        let mut rig = Rig::stopped(names, &[], &text);
        rig.start_gateways();
        (0..=others).for_each(|host| rig.links_up(host));
        let normal = |host: &str| {
            let partition = join(&rig.system, &format!("on-{host}"));
            // What a partition has not created when it is NORMAL, it never has.
            if host == "a" {
                let _ = kind.write(&partition, &[]);
            } else {
                kind.read(&partition, &mut [0; LENGTH_BYTES]);
            }
            set_partition_mode(&partition, OperatingMode::Normal).expect("it was starting");
            partition
        };
        let system = System::load(&rig.system).expect("the test's system file is right");
        let crossings = crossings_of(&system, "a");
        let observed = |host: &str| {
            let crossing = crossings.iter().find(|crossing| crossing.peer == host);
            look(&system, "a", &crossing.expect("it leaves").port)
        };
        let sink = |host: &&str| Sink {
            observed: observed(host),
            partition: normal(host),
            seen: Seen::default(),
        };
        let mut fan = PortFan {
            kind,
            source: normal("a"),
            sinks: names[1..].iter().map(sink).collect(),
            last: 0,
            ignored: None,
            rig,
        };
        for sink in 0..others {
            fan.until(sink, "it flows", |seen| seen.received > 200);
        }
        fan
    }

    pub fn seen(&self, sink: usize) -> Seen {
        self.sinks[sink].seen
    }

    pub fn until(&mut self, sink: usize, what: &str, mut is_done: impl FnMut(&Seen) -> bool) {
        eventually(what, || {
            self.step();
            is_done(&self.sinks[sink].seen).then_some(())
        });
    }

    pub fn sent_for_each(&mut self, time: Duration, gap: Duration) -> f64 {
        let (bytes, reads) = (sent().0, self.reads());
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.step();
            if !gap.is_zero() {
                std::thread::sleep(gap);
            }
        }
        let (bytes, reads) = (sent().0 - bytes, self.reads() - reads);
        assert!(reads > 100, "{reads} messages left");
        bytes as f64 / (reads * LENGTH_BYTES as u64) as f64
    }

    fn reads(&self) -> u64 {
        self.sinks[0].observed.counters().reads
    }

    fn step(&mut self) {
        let mut awaited = self.sinks.iter().enumerate();
        // So no queue overflows because this thread, or a gateway, waits for a processor.
        let is_due = awaited.all(|(at, sink)| {
            let queued = sink.observed.in_queue().unwrap_or(0);
            let under_way = queued.max(self.last - sink.seen.last);
            self.kind == Kind::Sampling || Some(at) == self.ignored || under_way < DEPTH
        });
        if is_due {
            self.write();
        }
        for sink in &mut self.sinks {
            sink.take_all(self.kind);
        }
    }

    fn write(&mut self) {
        let message = (self.last + 1).to_le_bytes().repeat(LENGTH_BYTES / 8);
        self.last += u64::from(self.kind.write(&self.source, &message));
    }
}

impl Sink {
    fn take_all(&mut self, kind: Kind) {
        let mut buffer = [0; LENGTH_BYTES];
        while let Some(length) = kind.read(&self.partition, &mut buffer) {
            let is_repeated = self.seen.note(&buffer[..length]);
            if is_repeated {
                assert_eq!(kind, Kind::Sampling, "{:?}", self.seen);
                break;
            }
        }
    }
}

impl Seen {
    fn note(&mut self, message: &[u8]) -> bool {
        assert_eq!(message.len(), LENGTH_BYTES);
        let number = crate::ports::number(&message[..8]);
        assert_eq!(
            message,
            number.to_le_bytes().repeat(LENGTH_BYTES / 8),
            "it is torn"
        );
        if number == self.last {
            return true;
        }
        assert!(number > self.last, "{number} after {}", self.last);
        self.missing += number - self.last - 1;
        self.received += 1;
        self.last = number;
        false
    }
}
