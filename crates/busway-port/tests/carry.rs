//! The gateway's ends of channels: what is taken, confirmed, given, and what survives a restart.
//! Both hosts are stores of this test.
#![cfg(not(loom))]

use std::sync::Arc;

use busway_port::apex::{OperatingMode, Refusal, Validity, set_partition_mode};
use busway_port::carry::{Carried, PortReceiver, PortSource};
use busway_port::{
    ChannelConfig, Clock, Direction, Discipline, Module, Partition, PartitionConfig, PortConfig, PortKind,
    PortRef, QueuingDestination, QueuingSource, Store, WhenFull,
};

const ORIGIN: u64 = 7;
const DEPTH: u32 = 4;

fn port(name: &str, direction: Direction, kind: PortKind) -> PortConfig {
    PortConfig::new(name, direction, 8, kind)
}

fn partition(name: &str, ports: Vec<PortConfig>) -> PartitionConfig {
    PartitionConfig {
        name: name.into(),
        identifier: 1,
        ports,
    }
}

/// A host with a source and a destination, joined by a channel; one of them is the gateway's.
struct Host {
    _directory: tempfile::TempDir,
    store: Store,
}

impl Host {
    fn new(kind: PortKind) -> Self {
        Self::with_sinks(kind, &["sink"])
    }

    /// The same with several destinations; a full one loses messages.
    fn with_sinks(kind: PortKind, sinks: &[&str]) -> Self {
        let mut partitions = vec![partition("source", vec![port("P", Direction::Source, kind)])];
        let sink = |name: &&str| partition(name, vec![port("P", Direction::Destination, kind)]);
        partitions.extend(sinks.iter().map(sink));
        let module = Module {
            partitions,
            channels: vec![ChannelConfig {
                when_full: if sinks.len() > 1 {
                    WhenFull::Overflow
                } else {
                    WhenFull::Wait
                },
                ..ChannelConfig::new(
                    "c",
                    PortRef::new("source", "P"),
                    sinks.iter().map(|name| PortRef::new(*name, "P")).collect(),
                )
            }],
        };
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let store = Store::open(directory.path(), module).expect("a store");
        Self {
            _directory: directory,
            store,
        }
    }

    fn queuing() -> Self {
        Self::new(PortKind::queuing(DEPTH))
    }

    fn join(&self, name: &str) -> Arc<Partition> {
        Arc::new(self.store.join(name).expect("a place"))
    }
}

fn queue_out(source: &Partition) -> QueuingSource<'_> {
    source.queuing_source("P", Discipline::Fifo).expect("configured")
}

/// The queue's port in `sink`, whose partition is in the mode NORMAL from then on.
fn queue_in(sink: &Partition) -> QueuingDestination<'_> {
    let port = sink.queuing_destination("P", Discipline::Fifo);
    set_partition_mode(sink, OperatingMode::Normal).expect("it was starting");
    port.expect("configured")
}

/// The gateway's end in the place of the partition `name`.
fn port_source(host: &Host, name: &str, origin: u64) -> PortSource {
    PortSource::open(&host.join(name), "P", origin).expect("configured")
}

/// The gateway's end in the place of the source.
fn receiver(host: &Host) -> PortReceiver {
    PortReceiver::open(&host.join("source"), "P").expect("configured")
}

fn carried(sequence: u64, lost: u64) -> Carried {
    Carried {
        len_bytes: 1,
        time_ns: Clock::Monotonic.now_ns(),
        sequence,
        lost,
    }
}

#[test]
fn a_queue_keeps_what_is_not_confirmed_and_has_room_for_what_is() {
    let host = Host::queuing();
    let source = host.join("source");
    let out = queue_out(&source);
    let mut port_source = port_source(&host, "sink", ORIGIN);
    for message in 1..=DEPTH as u8 {
        out.send(&[message], 0).expect("room");
    }
    let mut buffer = [0; 8];
    for number in 1..=DEPTH as u64 {
        let carried = port_source.next(&mut buffer).expect("a message");
        assert_eq!(
            (carried.sequence, carried.len_bytes, buffer[0]),
            (number, 1, number as u8)
        );
    }
    assert_eq!(port_source.next(&mut buffer), None);
    assert_eq!(out.send(&[5], 0), Err(Refusal::NotAvailable));
    port_source.confirm(3);
    for message in 5..8 {
        out.send(&[message], 0).expect("room for three");
    }
    assert_eq!(out.send(&[8], 0), Err(Refusal::NotAvailable));
    assert_eq!(port_source.next(&mut buffer).map(|it| it.sequence), Some(5));
}

#[test]
fn a_new_gateway_takes_what_was_not_confirmed_again_under_the_same_numbers() {
    let host = Host::queuing();
    let source = host.join("source");
    let out = queue_out(&source);
    for message in 1..=3 {
        out.send(&[message], 0).expect("room");
    }
    let mut buffer = [0; 8];
    {
        let mut port_source = port_source(&host, "sink", ORIGIN);
        while port_source.next(&mut buffer).is_some() {}
        port_source.confirm(1);
    }
    let mut port_source = port_source(&host, "sink", ORIGIN + 1);
    assert_eq!(port_source.origin(), ORIGIN, "the numbers are the store's");
    assert_eq!(port_source.next(&mut buffer).map(|it| it.sequence), Some(2));
    assert_eq!(buffer[0], 2);
}

#[test]
fn a_message_that_comes_again_is_given_once_also_by_a_new_gateway() {
    let host = Host::queuing();
    let (sink, port_receiver) = (host.join("sink"), receiver(&host));
    let input = queue_in(&sink);
    assert!(port_receiver.deliver(&[1], ORIGIN, &carried(1, 0)));
    assert!(port_receiver.is_old(ORIGIN, 1) && !port_receiver.is_old(ORIGIN, 2));
    assert!(!port_receiver.deliver(&[1], ORIGIN, &carried(1, 0)));
    drop(port_receiver);
    let port_receiver = receiver(&host);
    assert!(!port_receiver.deliver(&[1], ORIGIN, &carried(1, 0)));
    assert!(port_receiver.deliver(&[2], ORIGIN, &carried(2, 0)));
    let mut buffer = [0; 8];
    for expected in [1, 2] {
        let received = input.receive(&mut buffer, 0).expect("a message");
        assert_eq!((buffer[0], received.overflowed), (expected, false));
    }
    assert_eq!(input.receive(&mut buffer, 0), Err(Refusal::NotAvailable));
}

#[test]
fn what_the_other_host_had_no_room_for_is_told_once_with_the_next_message() {
    let host = Host::queuing();
    let (sink, port_receiver) = (host.join("sink"), receiver(&host));
    let input = queue_in(&sink);
    let mut buffer = [0; 8];
    // Five were lost before this host heard of the store at all.
    for (sequence, lost, is_told) in [
        (11, 5, false),
        (12, 5, false),
        (13, 6, true),
        (14, 6, false),
        (16, 6, true),
    ] {
        assert!(port_receiver.deliver(&[1], ORIGIN, &carried(sequence, lost)));
        let received = input.receive(&mut buffer, 0).expect("a message");
        assert_eq!(received.overflowed, is_told, "message {sequence}");
    }
    assert_eq!(sink.counters("P").expect("configured").overflows, 2);
}

#[test]
fn what_was_lost_before_the_first_message_of_a_store_is_told_with_it() {
    let host = Host::queuing();
    let (sink, port_receiver) = (host.join("sink"), receiver(&host));
    let input = queue_in(&sink);
    let mut buffer = [0; 8];
    for (sequence, is_told) in [(1, true), (2, false)] {
        assert!(port_receiver.deliver(&[1], ORIGIN, &carried(sequence, 5)));
        let received = input.receive(&mut buffer, 0).expect("a message");
        assert_eq!(received.overflowed, is_told, "message {sequence}");
    }
    assert_eq!(sink.counters("P").expect("configured").overflows, 5);
}

#[test]
fn numbers_of_another_store_begin_anew() {
    let host = Host::queuing();
    let port_receiver = receiver(&host);
    assert!(port_receiver.deliver(&[1], ORIGIN, &carried(1000, 0)));
    assert!(!port_receiver.is_old(ORIGIN + 1, 1));
    assert!(port_receiver.deliver(&[2], ORIGIN + 1, &carried(1, 0)));
    assert!(port_receiver.is_old(ORIGIN + 1, 1));
}

#[test]
fn a_full_queue_has_no_room_for_the_gateway_either() {
    let host = Host::queuing();
    let port_receiver = receiver(&host);
    for sequence in 1..=DEPTH as u64 {
        assert!(port_receiver.has_room());
        assert!(port_receiver.deliver(&[1], ORIGIN, &carried(sequence, 0)));
    }
    assert!(!port_receiver.has_room());
}

#[test]
fn a_sampling_message_keeps_its_source_time_and_is_taken_once() {
    let (here, there) = (Host::new(PortKind::SAMPLING), Host::new(PortKind::SAMPLING));
    let source = here.join("source");
    let out = source.sampling_source("P").expect("configured");
    let mut port_source = port_source(&here, "sink", ORIGIN);
    let port_receiver = receiver(&there);
    let sink = there.join("sink");
    let second_ns = 1_000_000_000;
    let input = sink.sampling_destination("P", second_ns).expect("configured");
    let mut buffer = [0; 8];
    assert_eq!(port_source.next(&mut buffer), None);
    for message in 1..=3 {
        out.write(&[message]).expect("a source port");
    }
    let mut carried = port_source.next(&mut buffer).expect("a message");
    assert_eq!((carried.sequence, buffer[0]), (3, 3));
    assert_eq!(port_source.next(&mut buffer), None);
    assert!(port_receiver.deliver(&buffer[..1], port_source.origin(), &carried));
    assert_eq!(
        input.read(&mut buffer).expect("a message").validity,
        Validity::Valid
    );
    carried.sequence += 1;
    carried.time_ns -= 2 * second_ns;
    assert!(port_receiver.deliver(&buffer[..1], port_source.origin(), &carried));
    assert_eq!(
        input.read(&mut buffer).expect("a message").validity,
        Validity::Invalid
    );
}

/// Two port_sources of one source of this kind.
fn two_taps(kind: PortKind) -> (Host, [PortSource; 2]) {
    let host = Host::with_sinks(kind, &["one", "two"]);
    let port_sources = ["one", "two"].map(|name| port_source(&host, name, ORIGIN));
    (host, port_sources)
}

#[test]
fn a_tap_takes_over_what_another_one_of_the_same_queue_has_given_and_goes_on_behind_it() {
    let (host, [mut one, mut two]) = two_taps(PortKind::queuing(DEPTH));
    let source = host.join("source");
    let out = queue_out(&source);
    for message in 1..=2 {
        out.send(&[message], 0).expect("room");
    }
    let mut buffer = [0; 8];
    assert_eq!(two.due_up_to(0), None, "nobody has given anything");
    let first = one.next(&mut buffer).expect("a message");
    assert_eq!(two.due_up_to(first.sequence), Some(1));
    assert!(two.skip_same(&first, &buffer[..1]));
    assert_eq!(two.due_up_to(first.sequence), None);
    assert!(!two.skip_same(&first, &buffer[..1]), "it has it");
    let second = two.next(&mut buffer).expect("a message");
    assert_eq!((second.sequence, buffer[0]), (2, 2));
    assert!(one.skip_same(&second, &buffer[..1]));
    two.confirm(2);
    assert_eq!(
        (one.in_queue(), two.in_queue()),
        (2, 0),
        "each is confirmed by itself"
    );
}

#[test]
fn what_differs_in_two_queues_of_one_source_is_not_taken_over() {
    let (host, [mut one, mut two]) = two_taps(PortKind::queuing(DEPTH));
    let source = host.join("source");
    let out = queue_out(&source);
    let mut buffer = [0; 8];
    out.send(&[1], 0).expect("room");
    let first = one.next(&mut buffer).expect("a message");
    let others = [
        (
            Carried {
                time_ns: first.time_ns + 1,
                ..first
            },
            vec![1],
        ),
        (Carried { sequence: 2, ..first }, vec![1]),
        (Carried { lost: 1, ..first }, vec![1]),
        (first, vec![2]),
        (first, vec![1, 1]),
    ];
    for (carried, bytes) in others {
        assert!(!two.skip_same(&carried, &bytes), "{carried:?} {bytes:?}");
    }
    // The second queue overflows, the first does not.
    for message in 2..=DEPTH as u8 + 1 {
        one.confirm(message.into());
        out.send(&[message], 0).expect("nothing holds it back");
        let carried = one.next(&mut buffer).expect("a message");
        assert!(!two.skip_same(&carried, &buffer[..1]), "the first is due first");
    }
    for number in 1..=DEPTH as u64 {
        let carried = two.next(&mut buffer).expect("a message");
        assert_eq!((carried.sequence, carried.lost), (number, 1), "an overflow");
    }
}

#[test]
fn a_tap_takes_over_the_newest_message_that_another_one_has_read_and_no_older_one() {
    let (host, [mut one, mut two]) = two_taps(PortKind::SAMPLING);
    let source = host.join("source");
    let out = source.sampling_source("P").expect("configured");
    let mut buffer = [0; 8];
    let mut write = |message: u8| {
        out.write(&[message]).expect("a source port");
        one.next(&mut buffer).expect("a message")
    };
    let (first, second) = (write(1), write(2));
    assert_eq!(two.due_up_to(second.sequence), Some(second.sequence));
    assert!(two.skip_same(&second, &[2]));
    assert!(!two.skip_same(&first, &[1]));
    assert_eq!(two.next(&mut buffer), None, "it has the newest");
    let reads = |name| host.join(name).counters("P").expect("configured").reads;
    assert_eq!((reads("one"), reads("two")), (2, 1));
}

#[test]
fn ports_of_one_source_that_are_claimed_together_have_one_origin_whenever_they_are_opened() {
    let host = Host::with_sinks(PortKind::SAMPLING, &["one", "two"]);
    for name in ["one", "two"] {
        assert_eq!(PortSource::claim(&host.join(name), "P", ORIGIN), Some(ORIGIN));
    }
    let open = |name, origin| port_source(&host, name, origin).origin();
    assert_eq!((open("one", ORIGIN), open("two", ORIGIN + 1)), (ORIGIN, ORIGIN));
}
