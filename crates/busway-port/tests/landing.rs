//! A sampling channel whose register another host's gateway writes by itself: what readers get,
//! what counts as delivered, and what survives a gateway that was killed. The other host is a
//! writer of this test in the same memory.
#![cfg(not(loom))]

use std::sync::Arc;

use busway_core::RemoteWrite as _;
use busway_core::register::RegisterWriter;
use busway_port::apex::{OperatingMode, Updated, Validity, set_partition_mode};
use busway_port::carry::{Carried, PortReceiver, PortSource};
use busway_port::{
    ChannelConfig, Clock, Direction, Module, Partition, PartitionConfig, PortConfig, PortKind, PortRef,
    SamplingDestination, Store,
};
use busway_transport::{LandingRegister, SourceNumbers};

const SIZE_BYTES: usize = 16;
const HOUR_NS: i64 = 3_600_000_000_000;
const ORIGIN: u64 = 7;

struct Host {
    _directory: tempfile::TempDir,
    store: Store,
}

fn partition(name: &str, direction: Direction) -> PartitionConfig {
    PartitionConfig {
        name: name.into(),
        identifier: 1,
        ports: vec![PortConfig::new(
            "P",
            direction,
            SIZE_BYTES as u32,
            PortKind::SAMPLING,
        )],
    }
}

impl Host {
    fn new(is_checked: bool) -> Host {
        let (from, to) = (PortRef::new("/other", "P"), PortRef::new("sink", "P"));
        let channel = ChannelConfig {
            is_checked,
            ..ChannelConfig::new("c", from, vec![to])
        };
        let module = Module {
            partitions: vec![
                partition("/other", Direction::Source),
                partition("sink", Direction::Destination),
            ],
            channels: vec![channel],
        };
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let store = Store::open(directory.path(), module).expect("a store");
        Host {
            _directory: directory,
            store,
        }
    }

    fn gateway(&self) -> PortReceiver {
        let place = Arc::new(self.store.join("/other").expect("a place"));
        PortReceiver::open(&place, "P").expect("configured")
    }

    fn sink(&self) -> Partition {
        self.store.join("sink").expect("a place")
    }
}

fn input(sink: &Partition) -> SamplingDestination<'_> {
    let port = sink.sampling_destination("P", HOUR_NS).expect("configured");
    set_partition_mode(sink, OperatingMode::Normal).expect("it was starting");
    port
}

fn read(port: SamplingDestination<'_>) -> Option<u8> {
    let mut buffer = [0; SIZE_BYTES];
    let read = port.read(&mut buffer).ok()?;
    assert_eq!(read.validity, Validity::Valid);
    Some(buffer[0])
}

/// The message if nobody in the partition has read it.
fn read_new(port: SamplingDestination<'_>) -> Option<u8> {
    let mut buffer = [0; SIZE_BYTES];
    let read = port.read_updated(&mut buffer).expect("a destination");
    (read.updated == Updated::NewMessage).then_some(buffer[0])
}

/// The other host's end: writes messages by their numbers.
struct Writer {
    register: LandingRegister,
    numbers: SourceNumbers,
}

impl Writer {
    /// Tells `numbers`, and writes from then on.
    fn begin(port: &PortReceiver, origin: u64, newest: u64) -> Writer {
        let mut register = port.landing().expect("a sampling port");
        let numbers = SourceNumbers { origin, newest };
        let begin = std::mem::replace(&mut register.begin, Box::new(|_| ()));
        begin(numbers);
        Writer { register, numbers }
    }

    fn sequence(&self, number: u64) -> u64 {
        self.register.latest + number - self.numbers.newest
    }

    fn write(&self, number: u64) {
        let LandingRegister {
            memory,
            layout,
            start,
            ..
        } = &self.register;
        let before = self.sequence(number) - 1;
        let mut window = memory.window().clone();
        if layout.latest(&window) != Ok(before) {
            layout.prepare(&mut window, before).expect("inside");
        }
        let mut writer = RegisterWriter::resume(window, *layout, *start, before).expect("it fits");
        let now_ns = Clock::Monotonic.now_ns() as u64;
        writer
            .write(&[&[number as u8; SIZE_BYTES]], now_ns)
            .expect("inside");
    }

    /// Only the index of a message arrives.
    fn write_index(&self, number: u64) {
        let mut window = self.register.memory.window().clone();
        window.publish(0, self.sequence(number)).expect("inside");
    }
}

fn carried(sequence: u64) -> Carried {
    Carried {
        len_bytes: SIZE_BYTES,
        time_ns: Clock::Monotonic.now_ns(),
        sequence,
        lost: 0,
    }
}

#[test]
fn register_written_by_the_other_host_is_read_and_counts_as_delivered_afterwards() {
    for is_checked in [false, true] {
        let host = Host::new(is_checked);
        let sink = host.sink();
        let input = input(&sink);
        let gateway = host.gateway();
        assert!(gateway.deliver(&[1; SIZE_BYTES], ORIGIN, &carried(1)));
        assert_eq!(read_new(input), Some(1));
        let writer = Writer::begin(&gateway, ORIGIN, 1);
        assert_eq!(
            writer.register.numbers, writer.numbers,
            "this host knows the source"
        );
        for number in [2, 3, 7, 8] {
            writer.write(number);
            assert_eq!(read_new(input), Some(number as u8));
        }
        assert_eq!(gateway.landed(), 7);
        // As after a kill: nobody has said that the other host has stopped.
        drop((gateway, writer));
        let gateway = host.gateway();
        assert!(gateway.is_old(ORIGIN, 8) && !gateway.is_old(ORIGIN, 9));
        assert!(!gateway.deliver(&[8; SIZE_BYTES], ORIGIN, &carried(8)));
        assert_eq!(read_new(input), None, "nothing is taken twice");
        assert!(gateway.deliver(&[9; SIZE_BYTES], ORIGIN, &carried(9)));
        assert_eq!((read_new(input), read(input)), (Some(9), Some(9)));
    }
}

#[test]
fn newest_message_that_never_arrived_whole_does_not_count_and_is_never_read() {
    let host = Host::new(true);
    let sink = host.sink();
    let input = input(&sink);
    let gateway = host.gateway();
    let writer = Writer::begin(&gateway, ORIGIN, 0);
    writer.write(1);
    assert_eq!(read(input), Some(1));
    writer.write_index(2);
    assert_eq!(read(input), Some(1), "the last good one");
    drop((gateway, writer));
    let gateway = host.gateway();
    assert!(gateway.is_old(ORIGIN, 1) && !gateway.is_old(ORIGIN, 2));
    assert!(gateway.deliver(&[2; SIZE_BYTES], ORIGIN, &carried(2)));
    assert_eq!(read_new(input), Some(2));
}

#[test]
fn index_that_goes_back_for_a_moment_takes_no_reader_back() {
    let host = Host::new(true);
    let sink = host.sink();
    let input = input(&sink);
    let gateway = host.gateway();
    let writer = Writer::begin(&gateway, ORIGIN, 0);
    for number in 1..=3 {
        writer.write(number);
        assert_eq!(read(input), Some(number as u8));
    }
    // Two WRITEs of indices overtook each other, twice.
    for number in 4..=5 {
        writer.write_index(number - 2);
        assert_eq!(read(input), Some(number as u8 - 1));
        writer.write_index(number - 1);
        writer.write(number);
        assert_eq!(read(input), Some(number as u8));
    }
}

#[test]
fn source_whose_store_is_new_begins_a_new_count() {
    let host = Host::new(true);
    let sink = host.sink();
    let input = input(&sink);
    let gateway = host.gateway();
    Writer::begin(&gateway, ORIGIN, 0).write(1);
    assert_eq!(read_new(input), Some(1));
    let gateway = host.gateway();
    let register = gateway.landing().expect("a sampling port");
    assert_eq!(
        register.numbers,
        SourceNumbers {
            origin: ORIGIN,
            newest: 1
        }
    );
    let gateway = host.gateway();
    let writer = Writer::begin(&gateway, ORIGIN + 1, 40);
    writer.write(41);
    assert_eq!(read_new(input), Some(41));
    drop((gateway, writer));
    let gateway = host.gateway();
    assert!(gateway.is_old(ORIGIN + 1, 41) && !gateway.is_old(ORIGIN + 1, 42));
    assert!(
        !gateway.is_old(ORIGIN, 42),
        "another store's numbers mean nothing"
    );
}

#[test]
fn impossible_index_from_the_other_host_leaves_the_channel_usable() {
    let host = Host::new(true);
    let sink = host.sink();
    let input = input(&sink);
    let gateway = host.gateway();
    let writer = Writer::begin(&gateway, ORIGIN, 0);
    writer.write(1);
    assert_eq!(read(input), Some(1));
    let mut window = writer.register.memory.window().clone();
    window.publish(0, u64::MAX / 2).expect("inside");
    drop((gateway, writer));
    let gateway = host.gateway();
    assert!(gateway.deliver(&[2; SIZE_BYTES], ORIGIN, &carried(2)));
    assert_eq!(read(input), Some(2));
}

#[test]
fn sending_host_knows_its_origin_and_newest_number() {
    let (from, to) = (PortRef::new("source", "P"), PortRef::new("/other", "P"));
    let module = Module {
        partitions: vec![
            partition("source", Direction::Source),
            partition("/other", Direction::Destination),
        ],
        channels: vec![ChannelConfig::new("c", from, vec![to])],
    };
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let store = Store::open(directory.path(), module).expect("a store");
    let source = store.join("source").expect("a place");
    let output = source.sampling_source("P").expect("configured");
    let place = Arc::new(store.join("/other").expect("a place"));
    let numbers = || PortSource::numbers(&place, "P", ORIGIN).expect("a sampling port");
    assert_eq!(
        numbers(),
        SourceNumbers {
            origin: ORIGIN,
            newest: 0
        }
    );
    output.write(&[1]).expect("a source");
    output.write(&[2]).expect("a source");
    assert_eq!(
        numbers(),
        SourceNumbers {
            origin: ORIGIN,
            newest: 2
        }
    );
}
