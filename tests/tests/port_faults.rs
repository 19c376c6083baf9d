//! Hosts cut off and back, sources killed, writers that never pause: what ports on the other host
//! see of it, over every bus.

use std::time::Duration;

use busway_buses::{is_one_sided, writes_registers};
use busway_port::apex::{Validity, get_queuing_port_status, get_time};
use busway_port::{PortRef, SamplingDestination};
use busway_system::System;
use busway_tests::outage::{Outage as LinkOutage, start};
use busway_tests::ports::{
    TORTURE_BYTES, Task, join, next_is, normal, queue_in, queue_out, read, receive, run,
};
use busway_tests::skip::skipped;
use busway_tests::{Bus, Rig, eventually, holds_for, on_each_and_named_bus};
use rustix::process::Signal;

on_each_and_named_bus!(
    queue_of_killed_source_delivers_sent_messages_and_continues,
    eight_readers_of_fast_remote_writer_read_whole_messages_in_order,
    sampling_port_without_gateway_keeps_message_and_says_how_old_it_is,
    ports_recover_after_cut_link,
);

const REFRESH_NS: i64 = 700_000_000;

const PORTS: &str = r#"
[[partition]]
name = "source"
host = "a"
ports = [
  { name = "OUT", kind = "sampling", direction = "source", max_size = 8 },
  { name = "QUEUE", kind = "queuing", direction = "source", max_size = 8, max_messages = 4 },
]
[[partition]]
name = "near"
host = "a"
ports = [{ name = "IN", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" }]
[[partition]]
name = "sink"
host = "b"
ports = [
  { name = "IN", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" },
  { name = "QUEUE", kind = "queuing", direction = "destination", max_size = 8, max_messages = 4 },
]
[[channel]]
source = "source/OUT"
destinations = ["near/IN", "sink/IN"]
[[channel]]
source = "source/QUEUE"
destinations = ["sink/QUEUE"]
"#;

#[derive(Debug, Clone, Copy)]
enum Outage {
    Killed(usize),
    Stopped(usize),
}

const OUTAGES: [Outage; 4] = [
    Outage::Killed(0),
    Outage::Killed(1),
    Outage::Stopped(0),
    Outage::Stopped(1),
];

impl Outage {
    fn begin(self, rig: &mut Rig) {
        match self {
            Outage::Killed(host) => rig.gateway(host).kill(),
            Outage::Stopped(host) => rig.gateway(host).signal(Signal::STOP),
        }
    }

    fn end(self, rig: &mut Rig) {
        match self {
            Outage::Killed(host) => rig.start_gateway(host),
            Outage::Stopped(host) => rig.gateway(host).signal(Signal::CONT),
        }
    }
}

fn look(port: SamplingDestination<'_>) -> Option<(i64, Validity)> {
    let before_ns = get_time();
    let (written_ns, read) = read(port)?;
    let age_ns = before_ns - written_ns as i64;
    assert!(
        read.validity == Validity::Invalid || age_ns <= REFRESH_NS,
        "a message of {age_ns} ns is valid"
    );
    Some((written_ns as i64, read.validity))
}

fn valid(port: SamplingDestination<'_>, after_ns: i64, when: &str) -> i64 {
    let (written_ns, _) = eventually(&format!("a valid message {when}"), || {
        look(port).filter(|(written_ns, validity)| *written_ns > after_ns && *validity == Validity::Valid)
    });
    written_ns
}

/// A valid message before an outage that has just begun turns stale and stays, while the source's
/// own host goes on.
fn goes_stale(near: SamplingDestination<'_>, far: SamplingDestination<'_>, when: &str) {
    let cut_ns = get_time();
    eventually(&format!("the message goes stale: {when}"), || {
        look(far).filter(|(_, validity)| *validity == Validity::Invalid)
    });
    holds_for(
        Duration::from_millis(200),
        "the stale message is returned",
        || look(far).is_some_and(|(_, validity)| validity == Validity::Invalid),
    );
    valid(near, cut_ns, &format!("on the source's own host during {when}"));
}

/// Without a gateway: over a bus whose messages the gateways carry, the last one turns stale; over
/// a bus by which the source writes the other host's memory it goes on writing, and queues wait.
fn sampling_port_without_gateway_keeps_message_and_says_how_old_it_is(bus: Bus) {
    let mut rig = Rig::pair_with(bus, PORTS);
    if is_one_sided(bus.name()) {
        return stays_valid_without_gateways(&mut rig);
    }
    if writes_registers(bus.name()) {
        return stays_valid_while_receiving_gateway_lives(&mut rig);
    }
    let (sink, near) = (join(&rig.system, "sink"), join(&rig.system, "near"));
    let far = sink.sampling_destination("IN", REFRESH_NS).expect("configured");
    let near = near.sampling_destination("IN", REFRESH_NS).expect("configured");
    let _source = run(&rig, 0, "source", "OUT", Task::WriteTime);
    for outage in OUTAGES {
        let when = format!("{outage:?}");
        valid(far, get_time(), &format!("before {when}"));
        outage.begin(&mut rig);
        goes_stale(near, far, &when);
        outage.end(&mut rig);
        valid(far, get_time(), &format!("after {when}"));
    }
}

fn stays_valid_without_gateways(rig: &mut Rig) {
    let (source, sink) = (join(&rig.system, "source"), join(&rig.system, "sink"));
    let far = sink.sampling_destination("IN", REFRESH_NS).expect("configured");
    let out = queue_out(&source, "QUEUE");
    let queue = queue_in(&sink, "QUEUE");
    normal(&sink);
    let _writer = run(rig, 0, "source", "OUT", Task::WriteTime);
    let mut sent = 0_u64;
    for outage in OUTAGES {
        outage.begin(rig);
        valid(
            far,
            get_time() + REFRESH_NS,
            &format!("long after the beginning of {outage:?}"),
        );
        for message in sent + 1..=sent + 4 {
            out.send(&message.to_le_bytes(), 0).expect("room on this side");
        }
        outage.end(rig);
        for message in sent + 1..=sent + 4 {
            next_is(queue, message);
        }
        sent += 4;
        valid(far, get_time(), &format!("after {outage:?}"));
        // The last one is confirmed before the next outage: all rooms are free.
        eventually("confirmation", || {
            let status = get_queuing_port_status(&source, out.id()).expect("created");
            (status.nb_message == 0).then_some(())
        });
    }
}

/// Over a bus by which the source's process writes the other host's ports itself, messages go on
/// until the receiving gateway is killed, which has the queue pair there.
fn stays_valid_while_receiving_gateway_lives(rig: &mut Rig) {
    let (sink, near) = (join(&rig.system, "sink"), join(&rig.system, "near"));
    let far = sink.sampling_destination("IN", REFRESH_NS).expect("configured");
    let near = near.sampling_destination("IN", REFRESH_NS).expect("configured");
    let _source = run(rig, 0, "source", "OUT", Task::WriteTime);
    for outage in OUTAGES {
        let when = format!("{outage:?}");
        valid(far, get_time(), &format!("before {when}"));
        eventually("the source's process writes", || {
            let mut ports = rig.status(0)?.ports.into_iter();
            let is_it = |writer: &str| writer == "partition";
            ports.find(|port| port.open && port.writer.as_deref().is_some_and(is_it))
        });
        outage.begin(rig);
        match outage {
            Outage::Killed(1) => goes_stale(near, far, &when),
            _ => {
                valid(far, get_time() + 2 * REFRESH_NS, &format!("during {when}"));
            }
        }
        outage.end(rig);
        valid(far, get_time(), &format!("after {when}"));
    }
}

fn queue_of_killed_source_delivers_sent_messages_and_continues(bus: Bus) {
    let rig = Rig::pair_with(bus, PORTS);
    let sink = join(&rig.system, "sink");
    let port = queue_in(&sink, "QUEUE");
    normal(&sink);
    let system = System::load(&rig.system).expect("the test's own");
    // What the other host is not known to have stays there.
    let left = busway_tests::quiet::look(&system, "a", &PortRef::new("source", "QUEUE"));
    let mut last = 0;
    for _ in 0..3 {
        let (from, to) = (last + 1, u64::MAX);
        let mut source = run(&rig, 0, "source", "QUEUE", Task::Send { from, to });
        (from..from + 50).for_each(|expected| next_is(port, expected));
        last += 50;
        source.kill();
        let mut take_all = || {
            while let Some((number, lost)) = receive(port, Duration::ZERO) {
                assert_eq!((number, lost), (last + 1, false));
                last = number;
            }
        };
        eventually("all that was sent has arrived over there", || {
            take_all();
            (left.in_queue() == Some(0)).then_some(())
        });
        take_all();
    }
}

fn ports_recover_after_cut_link(bus: Bus) {
    let mut rig = match Rig::isolated_pair(bus, PORTS) {
        Ok(rig) => rig,
        Err(what) => return skipped(&what),
    };
    start(&mut rig);
    let (sink, near) = (join(&rig.system, "sink"), join(&rig.system, "near"));
    let far = sink.sampling_destination("IN", REFRESH_NS).expect("configured");
    let near = near.sampling_destination("IN", REFRESH_NS).expect("configured");
    let queue = queue_in(&sink, "QUEUE");
    let source = join(&rig.system, "source");
    let out = queue_out(&source, "QUEUE");
    let _writer = run(&rig, 0, "source", "OUT", Task::WriteTime);
    normal(&sink);
    let (mut sent, mut received) = (0_u64, 0_u64);
    let fill = |messages: std::ops::RangeInclusive<u64>| {
        for message in messages {
            eventually("room", || out.send(&message.to_le_bytes(), 0).ok());
        }
    };
    let mut next = || {
        let next = eventually("the next message", || receive(queue, Duration::from_secs(1)));
        received += 1;
        assert_eq!(next, (received, false));
        received
    };
    for round in 0..2 {
        // Some cross before the cut, the others wait for its end: as many as there is room for on
        // this side.
        fill(sent + 1..=sent + 2);
        next();
        valid(far, get_time(), &format!("before cut {round}"));
        let outage = LinkOutage::begin(&rig, 0, bus);
        fill(sent + 3..=sent + 5);
        // What a source writes into the other host's memory itself needs no link.
        if !is_one_sided(bus.name()) {
            goes_stale(near, far, &format!("cut {round}"));
        }
        outage.end(&rig);
        valid(far, get_time(), &format!("after cut {round}"));
        sent += 5;
        while next() < sent {}
    }
    assert_eq!(receive(queue, Duration::from_millis(200)), None);
}

fn eight_readers_of_fast_remote_writer_read_whole_messages_in_order(bus: Bus) {
    const DIFFERENT: u64 = 50;
    let mut more = String::new();
    let port = |name: String, direction: &str, size: usize, rest: &str| {
        format!(
            "{{ name = {name:?}, kind = \"sampling\", direction = {direction:?}, max_size = {size}{rest} }}"
        )
    };
    let refresh = ", refresh_period = \"1h\"";
    let sources = TORTURE_BYTES.map(|size| port(format!("OUT{size}"), "source", size, ""));
    let sinks = TORTURE_BYTES.map(|size| port(format!("IN{size}"), "destination", size, refresh));
    for (name, host, ports) in [("source", "a", sources), ("sink", "b", sinks)] {
        let ports = ports.join(", ");
        more += &format!("[[partition]]\nname = {name:?}\nhost = {host:?}\nports = [{ports}]\n");
    }
    for size in TORTURE_BYTES {
        more += &format!("[[channel]]\nsource = \"source/OUT{size}\"\ndestinations = [\"sink/IN{size}\"]\n");
    }
    let rig = Rig::pair_with(bus, &more);
    let _writer = run(&rig, 0, "source", "", Task::Flood);
    let mut readers = [(); 4].map(|()| run(&rig, 1, "sink", "", Task::Check));
    for reader in &mut readers {
        eventually("every thread sees different messages of every size", || {
            assert!(reader.ended().is_none(), "something was wrong");
            let different: u64 = reader.last_line()?.parse().expect("a number");
            (different > DIFFERENT).then_some(())
        });
    }
    for reader in &mut readers {
        assert!(reader.finish().success(), "something was wrong");
    }
}
