//! A queuing channel whose queue another host's gateway writes by itself: what receivers get, what
//! counts as delivered, and what survives a gateway that was killed. The other host is a ring
//! producer of this test in the same memory.
#![cfg(not(loom))]

use std::sync::Arc;

use busway_core::RemoteWrite as _;
use busway_core::Window;
use busway_core::ring::{CREDIT_BYTES, RingProducer};
use busway_core::window::Medium;
use busway_port::apex::{
    OperatingMode, PortId, Received, Refusal, create_queuing_port, get_queuing_port_status,
    receive_queuing_message, set_partition_mode,
};
use busway_port::carry::{Carried, PortReceiver, PortSource};
use busway_port::{
    ChannelConfig, Clock, Direction, Discipline, Module, Partition, PartitionConfig, PortConfig, PortKind,
    PortRef, Store, WhenFull,
};
use busway_transport::{LandingRing, QueueNumbers};

const DEPTH: usize = 3;
const ORIGIN: u64 = 7;
/// Short ones fit their lines, long ones have a data area.
const SIZES_BYTES: [usize; 2] = [16, 4000];

struct Host {
    _directory: tempfile::TempDir,
    store: Store,
    size_bytes: usize,
}

fn partition(name: &str, direction: Direction, size_bytes: usize) -> PartitionConfig {
    PartitionConfig {
        name: name.into(),
        identifier: 1,
        ports: vec![PortConfig::new(
            "P",
            direction,
            size_bytes as u32,
            PortKind::queuing(DEPTH as u32),
        )],
    }
}

impl Host {
    fn new(is_checked: bool, size_bytes: usize) -> Host {
        let (from, to) = (PortRef::new("/other", "P"), PortRef::new("sink", "P"));
        let channel = ChannelConfig {
            is_checked,
            ..ChannelConfig::new("c", from, vec![to])
        };
        let module = Module {
            partitions: vec![
                partition("/other", Direction::Source, size_bytes),
                partition("sink", Direction::Destination, size_bytes),
            ],
            channels: vec![channel],
        };
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let store = Store::open(directory.path(), module).expect("a store");
        Host {
            _directory: directory,
            store,
            size_bytes,
        }
    }

    /// All kinds of rings.
    fn each() -> impl Iterator<Item = Host> {
        let checks = [false, true].into_iter();
        checks.flat_map(|is_checked| SIZES_BYTES.map(|size_bytes| Host::new(is_checked, size_bytes)))
    }

    fn gateway(&self) -> PortReceiver {
        let place = Arc::new(self.store.join("/other").expect("a place"));
        PortReceiver::open(&place, "P").expect("configured")
    }

    fn sink(&self) -> Sink {
        let partition = self.store.join("sink").expect("a place");
        let size_bytes = self.size_bytes;
        let direction = Direction::Destination;
        let port = create_queuing_port(&partition, "P", size_bytes, DEPTH, direction, Discipline::Fifo);
        let port = port.expect("configured");
        set_partition_mode(&partition, OperatingMode::Normal).expect("it was starting");
        Sink {
            partition,
            port,
            size_bytes,
        }
    }

    fn message(&self, number: u64) -> Vec<u8> {
        vec![number as u8; self.size_bytes]
    }

    fn carried(&self, sequence: u64) -> Carried {
        Carried {
            len_bytes: self.size_bytes,
            time_ns: Clock::Monotonic.now_ns(),
            sequence,
            lost: 0,
        }
    }
}

struct Sink {
    partition: Partition,
    port: PortId,
    size_bytes: usize,
}

impl Sink {
    /// The next message's number and what the service said of it, without waiting.
    fn receive(&self) -> Option<(u8, Received)> {
        let mut buffer = vec![0; self.size_bytes];
        match receive_queuing_message(&self.partition, self.port, 0, &mut buffer) {
            Ok(received) => {
                assert_eq!(received.length, self.size_bytes);
                assert!(buffer.iter().all(|byte| *byte == buffer[0]), "torn");
                Some((buffer[0], received))
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::NotAvailable);
                None
            }
        }
    }

    fn number(&self) -> Option<u8> {
        self.receive().map(|(number, _)| number)
    }

    fn waiting(&self) -> usize {
        let status = get_queuing_port_status(&self.partition, self.port);
        status.expect("created").nb_message
    }
}

/// The other host's end: writes messages by their numbers.
struct Writer {
    ring: LandingRing,
    producer: RingProducer<Window>,
    credit: Window,
}

fn window(len_bytes: usize) -> Window {
    let words: &'static mut [u64] = Box::leak(vec![0; len_bytes / 8].into_boxed_slice());
    #[allow(unsafe_code)]
    // SAFETY: leaked, aligned, and reached through windows only from here on.
    unsafe {
        Window::from_raw_parts(words.as_mut_ptr().cast(), len_bytes, Medium::Coherent)
    }
}

impl Writer {
    /// Tells its numbers, and writes from then on.
    fn begin(port: &PortReceiver, origin: u64, newest: u64) -> Writer {
        Writer::begin_with(
            port,
            QueueNumbers {
                origin,
                newest,
                lost: 0,
            },
        )
        .expect("it may begin")
    }

    fn begin_with(port: &PortReceiver, numbers: QueueNumbers) -> Result<Writer, String> {
        let mut ring = port.landing_ring().expect("a queue with one destination");
        ring.owner.begin(numbers)?;
        let credit = window(CREDIT_BYTES);
        let memory = ring.memory.window().clone();
        let mut writer = Writer {
            producer: RingProducer::resume(memory, ring.layout, ring.position, credit.clone())
                .expect("it fits"),
            ring,
            credit,
        };
        writer.take_credits();
        Ok(writer)
    }

    fn take_credits(&mut self) {
        let released = self.ring.owner.released();
        self.credit.publish(0, released.line).expect("inside");
        self.credit.publish(8, released.data).expect("inside");
    }

    /// Writes a message; nothing runs at the receiving host.
    fn write(&mut self, message: &[u8]) {
        self.producer.push(&[message], 1).expect("it has room");
    }

    /// The receiving gateway's lane looks.
    fn take_in(&mut self) -> u64 {
        self.ring
            .owner
            .take_in()
            .expect("the writer keeps to the protocol")
    }
}

#[test]
fn queue_written_by_the_other_host_is_received_and_counts_as_delivered_afterwards() {
    for host in Host::each() {
        let sink = host.sink();
        let gateway = host.gateway();
        assert!(gateway.deliver(&host.message(1), ORIGIN, &host.carried(1)));
        let mut writer = Writer::begin(&gateway, ORIGIN, 1);
        assert_eq!(writer.ring.numbers.newest, 1, "this host knows the source");
        // Several laps, some with and some without the gateway between.
        for number in 2..=20 {
            writer.write(&host.message(number));
            assert_eq!(sink.waiting(), 2, "message {number}");
            if number % 3 == 0 {
                writer.take_in();
                assert_eq!(writer.ring.owner.placed(), number);
            }
            assert_eq!(sink.number(), Some(number as u8 - 1));
            writer.take_credits();
        }
        assert_eq!(sink.waiting(), 1);
        // As after a kill: nobody has taken the last ones in, or said that the other host stopped.
        drop((gateway, writer));
        let gateway = host.gateway();
        assert!(gateway.is_old(ORIGIN, 20) && !gateway.is_old(ORIGIN, 21));
        assert!(!gateway.deliver(&host.message(20), ORIGIN, &host.carried(20)));
        assert!(gateway.deliver(&host.message(21), ORIGIN, &host.carried(21)));
        let received: Vec<u8> = std::iter::from_fn(|| sink.number()).collect();
        assert_eq!(received, [20, 21], "nothing is lost, and nothing is taken twice");
    }
}

#[test]
fn receiver_that_waits_is_woken_when_the_gateway_takes_the_message_in() {
    let host = Host::new(true, 16);
    let sink = host.sink();
    let gateway = host.gateway();
    let mut writer = Writer::begin(&gateway, ORIGIN, 0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut buffer = vec![0; 16];
            receive_queuing_message(&sink.partition, sink.port, -1, &mut buffer).map(|_| buffer[0])
        });
        writer.write(&host.message(9));
        while writer.take_in() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(waiting.join().expect("it ends"), Ok(9));
    });
}

#[test]
fn message_behind_one_that_never_arrived_is_taken_back_before_another_source_sends() {
    let host = Host::new(true, 16);
    let sink = host.sink();
    let gateway = host.gateway();
    let mut writer = Writer::begin(&gateway, ORIGIN, 0);
    for number in 1..=3 {
        writer.write(&host.message(number));
    }
    // Message 2 is not there yet, message 3 is: writes may overtake each other over iWARP.
    let line = writer.ring.layout.line_bytes();
    let window = writer.ring.memory.window().clone();
    window.store(line, 0).expect("inside");
    assert_eq!(writer.take_in(), 1);
    assert_eq!((sink.number(), sink.number()), (Some(1), None));
    drop((gateway, writer));
    let gateway = host.gateway();
    assert!(gateway.is_old(ORIGIN, 1) && !gateway.is_old(ORIGIN, 2));
    // The source's host has a new store by now: its numbers begin again.
    for number in [1, 2, 3] {
        assert!(gateway.deliver(&host.message(100 + number), ORIGIN + 1, &host.carried(number)));
        assert_eq!(sink.number(), Some(100 + number as u8));
        assert_eq!(sink.number(), None, "nothing of the dead source");
    }
}

#[test]
fn message_whose_bytes_have_not_all_arrived_is_neither_received_nor_counted() {
    for size_bytes in SIZES_BYTES {
        let host = Host::new(true, size_bytes);
        let sink = host.sink();
        let gateway = host.gateway();
        let mut writer = Writer::begin(&gateway, ORIGIN, 0);
        writer.write(&host.message(1));
        // The last bytes of the payload arrive late.
        let layout = writer.ring.layout;
        let (line, data) = (layout.line_bytes(), layout.data_bytes());
        let at = if data == 0 { 24 } else { layout.lines() * line } + size_bytes - 8;
        let window = writer.ring.memory.window().clone();
        let word = window.load(at).expect("inside");
        window.store(at, 0).expect("inside");
        assert_eq!((writer.take_in(), sink.number()), (0, None));
        window.store(at, word).expect("inside");
        assert_eq!((writer.take_in(), sink.number()), (1, Some(1)));
    }
}

#[test]
fn losses_at_the_source_are_told_to_the_receiver_as_an_overflow() {
    let host = Host::new(true, 16);
    let sink = host.sink();
    let gateway = host.gateway();
    Writer::begin(&gateway, ORIGIN, 0).write(&host.message(1));
    let gateway = host.gateway();
    assert_eq!(
        sink.receive().map(|(_, received)| received.overflowed),
        Some(false)
    );
    // Messages 2 and 3 are not in the source's queue any more, and it lost one before it.
    let numbers = QueueNumbers {
        origin: ORIGIN,
        newest: 3,
        lost: 1,
    };
    let mut writer = Writer::begin_with(&gateway, numbers).expect("it may begin");
    writer.write(&host.message(4));
    let (number, received) = sink.receive().expect("a message");
    assert!(number == 4 && received.overflowed);
    drop((gateway, writer));
    let gateway = host.gateway();
    assert!(gateway.is_old(ORIGIN, 4) && !gateway.is_old(ORIGIN, 5));
    assert_eq!(
        gateway.landing_ring().expect("a queue").numbers,
        QueueNumbers { newest: 4, ..numbers }
    );
}

#[test]
fn source_whose_store_is_new_begins_a_new_count() {
    let host = Host::new(true, 16);
    let sink = host.sink();
    let gateway = host.gateway();
    Writer::begin(&gateway, ORIGIN, 0).write(&host.message(1));
    let gateway = host.gateway();
    let mut writer = Writer::begin(&gateway, ORIGIN + 1, 40);
    writer.write(&host.message(41));
    let received: Vec<_> = std::iter::from_fn(|| sink.receive()).collect();
    let numbers: Vec<u8> = received.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 41]);
    assert!(received.iter().all(|(_, received)| !received.overflowed));
    drop((gateway, writer));
    let gateway = host.gateway();
    assert!(gateway.is_old(ORIGIN + 1, 41) && !gateway.is_old(ORIGIN + 1, 42));
    assert!(
        !gateway.is_old(ORIGIN, 42),
        "another store's numbers mean nothing"
    );
}

#[test]
fn sender_is_refused_when_messages_came_over_another_channel_since_the_queue_was_described() {
    let host = Host::new(true, 16);
    let gateway = host.gateway();
    let mut ring = gateway.landing_ring().expect("a queue");
    assert!(gateway.deliver(&host.message(1), ORIGIN, &host.carried(1)));
    let numbers = QueueNumbers {
        origin: ORIGIN,
        newest: 1,
        lost: 0,
    };
    let refused = ring
        .owner
        .begin(numbers)
        .expect_err("it would overwrite a message");
    assert!(refused.contains("another channel"), "{refused}");
    let mut ring = gateway.landing_ring().expect("a queue");
    ring.owner.begin(numbers).expect("nothing has come since");
    ring.owner.begin(numbers).expect_err("one sender at a time");
}

#[test]
fn scribbling_sender_ends_its_channel_and_leaves_the_queue_usable() {
    let host = Host::new(false, 16);
    let sink = host.sink();
    let gateway = host.gateway();
    let mut writer = Writer::begin(&gateway, ORIGIN, 0);
    writer.write(&host.message(1));
    writer.write(&host.message(2));
    let line = writer.ring.layout.line_bytes();
    let window = writer.ring.memory.window().clone();
    // The length of the second message is impossible.
    window.store(line + 8, u64::MAX).expect("inside");
    let error = writer.ring.owner.take_in().expect_err("no message");
    assert!(error.contains("no message"), "{error}");
    assert_eq!((sink.number(), sink.number()), (Some(1), None));
    drop((gateway, writer));
    let gateway = host.gateway();
    assert!(gateway.deliver(&host.message(2), ORIGIN, &host.carried(2)));
    assert_eq!((sink.number(), sink.number()), (Some(2), None));
}

#[test]
fn only_a_queue_with_one_destination_that_waits_when_full_can_be_written_by_another_host() {
    let (from, to) = (PortRef::new("/other", "P"), PortRef::new("sink", "P"));
    let also = PortRef::new("also", "P");
    let one = ChannelConfig::new("c", from.clone(), vec![to.clone()]);
    let overflowing = ChannelConfig {
        when_full: WhenFull::Overflow,
        ..one.clone()
    };
    let two = ChannelConfig {
        when_full: WhenFull::Wait,
        ..ChannelConfig::new("c", from, vec![to, also])
    };
    for (channel, can_be) in [(one, true), (overflowing, false), (two, false)] {
        let module = Module {
            partitions: vec![
                partition("/other", Direction::Source, 16),
                partition("sink", Direction::Destination, 16),
                partition("also", Direction::Destination, 16),
            ],
            channels: vec![channel],
        };
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let store = Store::open(directory.path(), module).expect("a store");
        let place = Arc::new(store.join("/other").expect("a place"));
        let gateway = PortReceiver::open(&place, "P").expect("configured");
        assert_eq!(gateway.landing_ring().is_some(), can_be);
    }
}

#[test]
fn sending_host_knows_its_origin_and_what_was_confirmed() {
    let (from, to) = (PortRef::new("source", "P"), PortRef::new("/other", "P"));
    let module = Module {
        partitions: vec![
            partition("source", Direction::Source, 16),
            partition("/other", Direction::Destination, 16),
        ],
        channels: vec![ChannelConfig::new("c", from, vec![to])],
    };
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let store = Store::open(directory.path(), module).expect("a store");
    let source = store.join("source").expect("a place");
    let direction = Direction::Source;
    let port = create_queuing_port(&source, "P", 16, DEPTH, direction, Discipline::Fifo).expect("configured");
    set_partition_mode(&source, OperatingMode::Normal).expect("it was starting");
    let place = Arc::new(store.join("/other").expect("a place"));
    let numbers = || PortSource::queue_numbers(&place, "P", ORIGIN).expect("a queuing port");
    let expected = |newest| QueueNumbers {
        origin: ORIGIN,
        newest,
        lost: 0,
    };
    assert_eq!(numbers(), expected(0));
    for _ in 0..2 {
        busway_port::apex::send_queuing_message(&source, port, &[1; 16], 0).expect("it has room");
    }
    let mut taken = PortSource::open(&place, "P", ORIGIN).expect("configured");
    let mut buffer = [0; 16];
    assert_eq!(taken.next(&mut buffer).map(|carried| carried.sequence), Some(1));
    assert_eq!(numbers(), expected(0), "not confirmed");
    taken.confirm(1);
    assert_eq!(numbers(), expected(1));
}
