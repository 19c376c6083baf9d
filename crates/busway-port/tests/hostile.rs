//! A source that breaks every rule: it writes anything anywhere into its channel's file, which is
//! what a partition can harm. Readers never crash, never return what is no message, never loop, and
//! come back when the source behaves again.
//!
//! The file is written through its descriptor: the same pages that the readers have mapped.
#![cfg(not(loom))]

mod support;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use busway_port::apex::{self, Refusal};
use busway_port::carry::PortSource;
use busway_port::{
    Discipline, Partition, QueuingDestination, QueuingSource, SamplingDestination, SamplingSource,
};
use proptest::prelude::*;
use support::shared::{SIZE_BYTES, SMALL_BYTES};
use support::{Shell, Value, directory, store};
use tempfile::TempDir;

const HOUR_NS: i64 = 3_600_000_000_000;

/// What the buffer behind a message must still be when a service has returned.
const UNTOUCHED: u8 = 0xa5;

/// A source that behaves again gets through within so many messages: a ring full, and one.
const PATIENCE: u8 = 16;

/// Where the first slot of a register begins with the number of its message, in words: behind the
/// two lines of the index.
const FIRST_SLOT_WORD: u64 = 16;

/// The ports of the channel `command`.
const COMMAND: (&str, &str) = ("COMMAND_OUT", "COMMAND");

/// Who scribbles over a channel.
struct Vandal {
    file: File,
    /// Where the header ends.
    body: u64,
    body_bytes: u64,
}

impl Vandal {
    /// Knows of the file's header where its text ends: at 24 lies the text's length, at 128 the
    /// text.
    fn open(root: &Path, channel: &str) -> Self {
        let path = root.join(format!("channel-{channel}"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .expect("the channel's file");
        let mut text_bytes = [0; 8];
        file.read_exact_at(&mut text_bytes, 24).expect("the header");
        let body = (128 + u64::from_ne_bytes(text_bytes)).next_multiple_of(128);
        let body_bytes = file.metadata().expect("a file").len() - body;
        Self {
            file,
            body,
            body_bytes,
        }
    }

    fn strike(&self, blow: &Blow) {
        let words = self.body_bytes / 8;
        blow.value.write(&self.file, self.body + blow.word % words * 8);
    }

    /// The word number `word` becomes `value`.
    fn set(&self, word: u64, value: u64) {
        let value = Value::Anything(value);
        self.strike(&Blow { word, value });
    }
}

/// One word of the file becomes something else.
#[derive(Debug, Clone)]
struct Blow {
    word: u64,
    value: Value,
}

fn blow() -> impl Strategy<Value = Blow> {
    // The first words are those that publish, and where the source stands; then come headers of
    // slots or lines.
    let word = prop_oneof![4 => 0..24_u64, 2 => (0..40_u64).prop_map(|slot| slot * 8), 1 => any::<u64>()];
    let edges = prop::sample::select(vec![
        0,
        1,
        63,
        64,
        65,
        1 << 31,
        1 << 47,
        1 << 48,
        1 << 63,
        u64::MAX,
    ]);
    let value = prop_oneof![
        3 => (-70..70_i64).prop_map(Value::Moved),
        2 => edges.prop_map(Value::Anything),
        1 => any::<u64>().prop_map(Value::Anything),
    ];
    (word, value).prop_map(|(word, value)| Blow { word, value })
}

/// Rounds of blows; after each, the receivers look, and after some the source uses its port.
fn rounds() -> impl Strategy<Value = Vec<(Vec<Blow>, bool)>> {
    prop::collection::vec((prop::collection::vec(blow(), 0..6), any::<bool>()), 1..12)
}

fn partitions() -> (TempDir, Partition, Partition) {
    let directory = directory();
    let store = store(&directory);
    let [sensors, navigation] = ["sensors", "navigation"].map(|name| store.join(name).expect("a place"));
    (directory, sensors, navigation)
}

/// The ends of the channel `attitude`.
fn attitude<'p>(from: &'p Partition, to: &'p Partition) -> (SamplingSource<'p>, SamplingDestination<'p>) {
    let out = from.sampling_source("ATTITUDE_OUT").expect("configured");
    let port = to.sampling_destination("ATTITUDE", HOUR_NS);
    (out, port.expect("configured"))
}

/// The ends of a queue, by their names.
fn queue<'p>(
    from: &'p Partition,
    to: &'p Partition,
    (out, port): (&str, &str),
) -> (QueuingSource<'p>, QueuingDestination<'p>) {
    let out = from.queuing_source(out, Discipline::Fifo).expect("configured");
    let port = to.queuing_destination(port, Discipline::Fifo);
    (out, port.expect("configured"))
}

/// A buffer longer than any message of the port.
fn buffer() -> [u8; SIZE_BYTES + 64] {
    [UNTOUCHED; SIZE_BYTES + 64]
}

/// Nothing was written behind the longest message, and none is longer.
fn is_sound(buffer: &[u8], length: usize, longest: usize) -> bool {
    length <= longest && buffer[longest..].iter().all(|byte| *byte == UNTOUCHED)
}

/// Uses every service that reads a sampling port.
fn look_at_sampling(partition: &Partition, port: SamplingDestination<'_>) {
    let mut bytes = buffer();
    if let Ok(read) = port.read(&mut bytes) {
        assert!(is_sound(&bytes, read.length, SIZE_BYTES), "{read:?}");
    }
    if let Ok(read) = port.read_updated(&mut bytes) {
        assert!(is_sound(&bytes, read.length, SIZE_BYTES), "{read:?}");
    }
    if let Ok(read) = apex::read_sampling_message_conditional(partition, port.id(), 0, &mut bytes) {
        assert!(is_sound(&bytes, read.length, SIZE_BYTES), "{read:?}");
    }
    apex::get_sampling_port_status(partition, port.id()).expect("created");
    apex::get_sampling_port_current_status(partition, port.id()).expect("created");
}

/// The source writes, and soon the destination reads that.
fn sampling_recovers(out: SamplingSource<'_>, port: SamplingDestination<'_>) {
    let mut bytes = buffer();
    for number in 1..=PATIENCE {
        out.write(&[number; 9]).expect("a source port");
        if port.read(&mut bytes).map(|read| read.length) == Ok(9) && bytes[..9] == [number; 9] {
            return;
        }
    }
    panic!("nothing of what a source writes that behaves again is read");
}

/// Uses every service of a receiving queuing port.
fn look_at_queuing(partition: &Partition, port: QueuingDestination<'_>, longest: usize) {
    let mut bytes = buffer();
    if let Ok(received) = port.receive(&mut bytes, 0) {
        assert!(is_sound(&bytes, received.length, longest), "{received:?}");
    }
    let status = apex::get_queuing_port_status(partition, port.id()).expect("created");
    assert!(status.nb_message <= status.max_nb_message);
}

/// The source sends, and soon the destination receives that.
fn queuing_recovers(out: QueuingSource<'_>, port: QueuingDestination<'_>, longest: usize) {
    let mut bytes = buffer();
    let message = |number: u8| vec![number; longest];
    for number in 1..=PATIENCE {
        // A queue that is full of rubbish refuses it until the receiver has been there.
        let _ = out.send(&message(number), 0);
        // At most a ring full: nobody sends meanwhile.
        for _ in 0..8 {
            match port.receive(&mut bytes, 0) {
                Ok(received) if bytes[..received.length] == message(number) => return,
                Ok(_) => {}
                Err(Refusal::NotAvailable) => break,
                Err(refusal) => panic!("{refusal}"),
            }
        }
    }
    panic!("nothing of what a source sends that behaves again is received");
}

fn a_queue_under_blows(channel: &str, ports: (&str, &str), longest: usize, rounds: &[(Vec<Blow>, bool)]) {
    let (directory, sensors, navigation) = partitions();
    let (out, port) = queue(&navigation, &sensors, ports);
    let vandal = Vandal::open(directory.path(), channel);
    for (blows, sends) in rounds {
        blows.iter().for_each(|blow| vandal.strike(blow));
        if *sends {
            let _ = out.send(&vec![1; longest], 0);
            apex::get_queuing_port_status(&navigation, out.id()).expect("created");
        }
        look_at_queuing(&sensors, port, longest);
    }
    queuing_recovers(out, port, longest);
    // From here on it is a queue like any other.
    for number in 1..=3 {
        out.send(&[number], 0).expect("room");
    }
    let mut bytes = buffer();
    for number in 1..=3 {
        let received = port.receive(&mut bytes, 0).expect("a message");
        assert_eq!(&bytes[..received.length], [number]);
    }
}

proptest! {
    #[test]
    fn readers_of_a_register_that_its_source_scribbles_over_are_safe_and_recover(rounds in rounds()) {
        let (directory, sensors, navigation) = partitions();
        let (out, port) = attitude(&sensors, &navigation);
        let vandal = Vandal::open(directory.path(), "attitude");
        for (blows, writes) in &rounds {
            blows.iter().for_each(|blow| vandal.strike(blow));
            if *writes {
                out.write(&[1; SIZE_BYTES]).expect("a source port");
            }
            look_at_sampling(&navigation, port);
        }
        sampling_recovers(out, port);
        // A process that comes later, too.
        let late = store(&directory).join("navigation").expect("a place");
        sampling_recovers(out, late.sampling_destination("ATTITUDE", HOUR_NS).expect("configured"));
    }

    #[test]
    fn receivers_of_a_ring_that_its_source_scribbles_over_are_safe_and_recover(rounds in rounds()) {
        a_queue_under_blows("command", COMMAND, SIZE_BYTES, &rounds);
    }

    #[test]
    fn so_are_those_of_a_ring_whose_messages_lie_in_its_lines(rounds in rounds()) {
        a_queue_under_blows("small", ("SMALL_OUT", "SMALL"), SMALL_BYTES, &rounds);
    }
}

#[test]
fn an_index_that_jumps_to_the_end_of_its_range_is_left_behind_and_the_last_good_copy_counted() {
    let (directory, sensors, navigation) = partitions();
    let (out, port) = attitude(&sensors, &navigation);
    let vandal = Vandal::open(directory.path(), "attitude");
    let mut bytes = buffer();
    for index in [u64::MAX, 1 << 63, 1 << 48, (1 << 47) + 1, 0] {
        out.write(&[7; 3]).expect("a source port");
        assert_eq!(port.read(&mut bytes).map(|read| read.length), Ok(3));
        vandal.set(0, index);
        let before = navigation.counters("ATTITUDE").expect("configured").last_good;
        let again = port.read(&mut bytes).map(|read| read.length);
        // The index 0 says that nothing was written, which is no reason to forget.
        assert_eq!(again, Ok(3), "index {index}");
        assert_eq!(&bytes[..3], [7; 3]);
        let after = navigation.counters("ATTITUDE").expect("configured").last_good;
        assert_eq!(after, before + 1, "index {index}");
        out.write(&[8; 5]).expect("a source port");
        assert_eq!(
            port.read(&mut bytes).map(|read| read.length),
            Ok(5),
            "index {index}"
        );
        assert_eq!(&bytes[..5], [8; 5]);
    }
}

#[test]
fn a_forged_message_from_far_ahead_is_left_behind_when_the_source_counts_again() {
    let (directory, sensors, navigation) = partitions();
    let (out, port) = attitude(&sensors, &navigation);
    let vandal = Vandal::open(directory.path(), "attitude");
    let mut bytes = buffer();
    // Multiples of the number of slots: the message lies in the first.
    for number in [1 << 20, 1 << 47, 1 << 48] {
        out.write(&[7; 3]).expect("a source port");
        vandal.set(FIRST_SLOT_WORD, number);
        vandal.set(0, number);
        let read = port
            .read(&mut bytes)
            .expect("the forged message, or the last good one");
        assert!(is_sound(&bytes, read.length, SIZE_BYTES));
        // The number of the honest messages.
        vandal.set(0, 1);
        sampling_recovers(out, port);
    }
}

#[test]
fn messages_that_a_source_has_scribbled_over_are_thrown_away_counted_and_told_once() {
    let (directory, sensors, navigation) = partitions();
    let (out, port) = queue(&navigation, &sensors, COMMAND);
    for number in 1..=3 {
        out.send(&[number; 3], 0).expect("room");
    }
    // The commit word of the first message's line, behind the 128 bytes of the writer.
    let vandal = Vandal::open(directory.path(), "command");
    vandal.set(16, 0);
    let mut bytes = buffer();
    assert_eq!(port.receive(&mut bytes, 0), Err(Refusal::NotAvailable));
    assert_eq!(sensors.counters("COMMAND").expect("configured").damaged, 3);
    out.send(&[4; 3], 0).expect("room");
    out.send(&[5; 3], 0).expect("room");
    let told = [4, 5].map(|number| {
        let received = port.receive(&mut bytes, 0).expect("a message");
        assert_eq!(&bytes[..received.length], [number; 3]);
        received.overflowed
    });
    assert_eq!(told, [true, false]);
}

#[test]
fn a_gateway_carries_on_behind_messages_that_a_source_has_scribbled_over() {
    let (directory, sensors, navigation) = partitions();
    let out = navigation
        .queuing_source("COMMAND_OUT", Discipline::Fifo)
        .expect("configured");
    let mut port_source = PortSource::open(&Arc::new(sensors), "COMMAND", 7).expect("configured");
    let mut bytes = buffer();
    let mut next = || {
        let carried = port_source.next(&mut bytes)?;
        Some((carried.sequence, bytes[0]))
    };
    for number in 1..=3 {
        out.send(&[number], 0).expect("room");
    }
    assert_eq!(next(), Some((1, 1)));
    // The commit word of the second message's line.
    let vandal = Vandal::open(directory.path(), "command");
    vandal.set(16 + 8, 0);
    assert_eq!(next(), None, "the first message is under way");
    port_source.confirm(1);
    let mut next = || {
        let carried = port_source.next(&mut bytes)?;
        Some((carried.sequence, bytes[0]))
    };
    assert_eq!(next(), None, "the second and the third are gone");
    out.send(&[4], 0).expect("room");
    assert_eq!(
        next(),
        Some((4, 4)),
        "their numbers are missing, which tells the other host"
    );
}

#[test]
fn readers_are_safe_beside_a_process_that_scribbles_all_the_time() {
    let (directory, sensors, navigation) = partitions();
    let (out, port) = attitude(&sensors, &navigation);
    let (command, queue) = queue(&navigation, &sensors, COMMAND);
    let vandals = ["attitude", "command"].map(|channel| Vandal::open(directory.path(), channel));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for vandal in &vandals {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut random = 0x9e37_79b9_7f4a_7c15_u64;
                while !is_over.load(Ordering::Relaxed) {
                    // xorshift64 (Marsaglia 2003).
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let value = if random.is_multiple_of(2) {
                        Value::Moved((random >> 32) as i64 % 70)
                    } else {
                        Value::Anything(random >> (random % 64))
                    };
                    vandal.strike(&Blow {
                        word: (random >> 8) % 200,
                        value,
                    });
                }
            });
        }
        for _ in 0..20_000 {
            out.write(&[1; SIZE_BYTES]).expect("a source port");
            look_at_sampling(&navigation, port);
            let _ = command.send(&[1; SIZE_BYTES], 0);
            look_at_queuing(&sensors, queue, SIZE_BYTES);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    sampling_recovers(out, port);
    queuing_recovers(command, queue, SIZE_BYTES);
}

#[test]
fn a_source_that_is_started_anew_finds_its_scribbled_channel_usable() {
    let directory = directory();
    let create = format!("create-sampling ATTITUDE 64 destination {HOUR_NS}");
    let mut navigation = Shell::start_after(&directory, "navigation", &create);
    let sensors = || Shell::start_after(&directory, "sensors", "create-sampling ATTITUDE_OUT 64 source 1");
    for index in [u64::MAX, 1 << 48, 3, 0] {
        let mut source = sensors();
        for _ in 0..5 {
            source.replies("write ATTITUDE_OUT 01", "NO_ERROR");
        }
        navigation.replies("read ATTITUDE", "NO_ERROR Valid 01");
        source.kill();
        let vandal = Vandal::open(directory.path(), "attitude");
        vandal.set(0, index);
        let mut source = sensors();
        source.replies("write ATTITUDE_OUT 02", "NO_ERROR");
        assert_eq!(
            navigation.say("read ATTITUDE"),
            "NO_ERROR Valid 02",
            "index {index}"
        );
        source.kill();
    }
}
