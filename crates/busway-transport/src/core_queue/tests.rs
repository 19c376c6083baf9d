//! Both ends in one process, over two mappings of one file, as a gateway and a core would see it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use busway_core::ring::{CREDIT_BYTES, Layout};
use tempfile::TempDir;

use super::*;
use crate::contract::Access;
use crate::contract::{HEAD_BYTES, Head, Kind, Landing, Message, Receiver, Refused, Sender, Sink, Verdict};
use crate::window::medium::Medium;
use crate::window::region::WindowRegion;

const KEY_OF_IT: u64 = 77;
const PART_BYTES: usize = 8192;

struct Bytes(Head, Vec<u8>);

impl Message for Bytes {
    fn head(&self) -> &Head {
        &self.0
    }
    fn user_header(&self) -> &[u8] {
        &[]
    }
    fn payload(&self) -> &[u8] {
        &self.1
    }
}

fn message(number: u8, len_bytes: usize) -> Bytes {
    let head = Head {
        sequence: 1,
        origin: 1,
        time_ns: u64::from(number),
        payload_bytes: len_bytes as u64,
        events: 0,
        user_header_bytes: 0,
        kind: Kind::Data,
    };
    Bytes(head, vec![number; len_bytes])
}

/// Takes what comes, up to a bound, as a queue would.
#[derive(Default)]
struct Queue {
    taken: Vec<(Head, Vec<u8>)>,
    room: usize,
    landing: Vec<u8>,
}

impl Queue {
    fn with_room(room: usize) -> Queue {
        Queue {
            room,
            ..Queue::default()
        }
    }

    fn numbers(&self) -> Vec<u8> {
        self.taken.iter().map(|(_, bytes)| bytes[0]).collect()
    }
}

impl Sink for Queue {
    fn land(&mut self, head: &Head) -> Verdict {
        if self.taken.len() == self.room {
            return Verdict::Later;
        }
        self.landing = vec![0; head.payload_bytes as usize];
        Verdict::Land
    }
    fn landing(&mut self) -> Landing<'_> {
        Landing {
            user_header: &mut [],
            payload: &mut self.landing,
        }
    }
    fn deliver(&mut self, head: &Head) {
        self.taken.push((*head, std::mem::take(&mut self.landing)));
    }
    fn abandon(&mut self) {}
}

/// A file with the source's part and, behind it, the destination's.
struct Memory {
    directory: TempDir,
}

impl Memory {
    fn new() -> Memory {
        Memory {
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    fn part(&self, number: usize, access: Access) -> Part {
        let place = WindowRegion {
            source: crate::window::source::Source::File(self.directory.path().join("window")),
            offset: (number * PART_BYTES) as u64,
            length: PART_BYTES as u64,
            file_length: 2 * PART_BYTES as u64,
            medium: Medium::Coherent,
        };
        Part {
            place: place.for_ports(access),
            offset_bytes: 0,
            len_bytes: PART_BYTES,
        }
    }

    fn ends(&self, is_source: bool) -> Ends {
        let (own, other) = if is_source { (0, 1) } else { (1, 0) };
        let (own, other) = (self.part(own, Access::Writes), self.part(other, Access::Reads));
        Ends::open(&own, &other, KEY_OF_IT).expect("mapped")
    }

    fn source(&self, session: u64) -> Source {
        Source::new(self.ends(true), layout(), session, Arc::default()).expect("long enough")
    }

    fn destination(&self, session: u64, is_fresh: bool) -> Destination {
        let tally = Arc::default();
        Destination::new(self.ends(false), layout(), session, is_fresh, tally).expect("long enough")
    }
}

fn layout() -> Layout {
    Layout::new(8, 2048, 256).expect("possible")
}

/// Sends as many of `numbers` as there is room for.
fn send(source: &mut Source, numbers: impl IntoIterator<Item = u8>) -> usize {
    let mut sent = 0;
    for number in numbers {
        if !Sender::<Bytes>::has_room(source, HEAD_BYTES as u64) {
            break;
        }
        match source.send(message(number, 1 + usize::from(number))) {
            Ok(()) => sent += 1,
            Err(Refused::Full(_)) => break,
            Err(_) => panic!("message {number} was refused"),
        }
    }
    Sender::<Bytes>::flush(source).expect("the memory is there");
    sent
}

fn take(destination: &mut Destination, room: usize) -> Queue {
    let mut queue = Queue::with_room(room);
    destination.poll(&mut queue, 64).expect("a right ring");
    queue
}

#[test]
fn every_message_arrives_in_order_whichever_end_comes_first() {
    let memory = Memory::new();
    let mut source = memory.source(1);
    assert_eq!(send(&mut source, [1]), 0, "nobody listens yet");
    let mut destination = memory.destination(2, false);
    take(&mut destination, 0);
    let (mut sent, mut received) = (0, Vec::new());
    while received.len() < 200 {
        sent += send(&mut source, sent as u8..200) as u32;
        received.extend(take(&mut destination, 3).numbers());
    }
    assert_eq!(received, (0..200).collect::<Vec<u8>>());
}

#[test]
fn a_full_ring_takes_nothing_until_the_destination_has_taken_something() {
    let memory = Memory::new();
    let (mut source, mut destination) = (memory.source(1), memory.destination(2, false));
    take(&mut destination, 0);
    assert_eq!(send(&mut source, 0..20), 8);
    assert_eq!(send(&mut source, [99]), 0);
    assert_eq!(take(&mut destination, 20).numbers(), (0..8).collect::<Vec<u8>>());
    assert_eq!(send(&mut source, [8]), 1);
}

#[test]
fn what_a_source_left_in_the_ring_arrives_before_what_the_next_one_sends() {
    let memory = Memory::new();
    let (mut source, mut destination) = (memory.source(1), memory.destination(2, false));
    take(&mut destination, 0);
    assert_eq!(send(&mut source, [1, 2, 3]), 3);
    let mut next = memory.source(5);
    assert_eq!(send(&mut next, [4]), 0, "it was not met yet");
    assert_eq!(take(&mut destination, 2).numbers(), [1, 2]);
    assert_eq!(take(&mut destination, 2).numbers(), [3]);
    assert_eq!(send(&mut next, [4]), 1);
    assert_eq!(take(&mut destination, 2).numbers(), [4]);
    assert_eq!(next.tally.lost(), 0);
}

#[test]
fn a_source_counts_what_lay_in_the_ring_when_the_destination_started_anew() {
    let memory = Memory::new();
    let (mut source, mut destination) = (memory.source(1), memory.destination(2, true));
    take(&mut destination, 0);
    assert_eq!(send(&mut source, 1..=5), 5);
    assert_eq!(take(&mut destination, 2).numbers(), [1, 2]);
    assert!(Sender::<Bytes>::has_room(&mut source, 0), "credits have come");
    let mut next = memory.destination(3, true);
    take(&mut next, 9);
    assert_eq!(send(&mut source, [6]), 1);
    assert_eq!(take(&mut next, 9).numbers(), [6]);
    assert_eq!(source.tally.lost(), 3);
    assert_eq!(source.tally.meetings(), 2);
}

#[test]
fn a_destination_that_goes_on_takes_what_waits_and_repeats_only_what_can_be_told() {
    let memory = Memory::new();
    let (mut source, mut destination) = (memory.source(1), memory.destination(2, false));
    take(&mut destination, 0);
    assert_eq!(send(&mut source, 1..=6), 6);
    let before = take(&mut destination, 3);
    drop(destination);
    let mut next = memory.destination(9, false);
    let after = take(&mut next, 9);
    let last = before.taken.last().expect("three").0;
    let fresh: Vec<u8> = after
        .taken
        .iter()
        .filter(|(head, _)| head.origin != last.origin || head.sequence > last.sequence)
        .map(|(_, bytes)| bytes[0])
        .collect();
    assert_eq!(fresh, [4, 5, 6]);
    assert_eq!(send(&mut source, [7]), 1, "the source noticed nothing");
    assert_eq!((take(&mut next, 9).numbers(), source.tally.lost()), (vec![7], 0));
}

#[test]
fn another_channels_memory_is_not_taken_for_this_one() {
    let memory = Memory::new();
    let other = Ends {
        key: KEY_OF_IT + 1,
        ..memory.ends(true)
    };
    let mut source = Source::new(other, layout(), 1, Arc::default()).expect("long enough");
    let mut destination = memory.destination(2, false);
    take(&mut destination, 9);
    assert_eq!(send(&mut source, [1]), 0);
}

#[test]
fn memory_that_a_core_fills_with_anything_gives_an_error_or_nothing() {
    let memory = Memory::new();
    let mut destination = memory.destination(2, false);
    let ends = memory.ends(true);
    let core = &ends.own;
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..500 {
        for at in (END_BYTES..END_BYTES + layout().required_bytes()).step_by(8) {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            core.store(at, word >> (word & 63)).expect("inside");
        }
        core.store(KEY, KEY_OF_IT).expect("inside");
        core.store(SESSION, word).expect("inside");
        // A right commit word, with whatever else there is.
        let at = start(word, 2);
        let line = END_BYTES + (at as usize & 7) * 64;
        core.store(line, at << 1 | 1).expect("inside");
        let mut queue = Queue::with_room(9);
        let _ = destination.poll(&mut queue, 64);
        let _ = destination.poll(&mut queue, 64);
        assert!(queue.taken.iter().all(|(_, bytes)| bytes.len() <= 256));
    }
}

#[test]
fn a_core_that_answers_is_up_and_one_that_is_silent_has_stopped() {
    let memory = Memory::new();
    let _source = memory.source(1);
    let mut watch = Watch::new(memory.ends(true), Duration::from_millis(800));
    let begin = Instant::now();
    let at = |ms| begin + Duration::from_millis(ms);
    let mut look = |ms| watch.look(at(ms)).expect("inside");
    assert_eq!(look(0), State::Absent);
    let mut destination = memory.destination(2, true);
    assert_eq!(look(100), State::Waiting);
    for ms in (200..2000).step_by(100) {
        take(&mut destination, 1);
        assert_eq!(look(ms), State::Up, "at {ms} ms");
    }
    let silent: Vec<State> = (2000..=2700).step_by(100).map(&mut look).collect();
    assert_eq!(silent.last(), Some(&State::Stopped), "within the timeout");
    take(&mut destination, 1);
    assert_eq!(look(2800), State::Up, "it goes on");
}

#[test]
fn a_window_that_is_too_short_is_refused() {
    let memory = Memory::new();
    let cut = |ends: Ends| Ends {
        own: ends.own.sub(0, END_BYTES + CREDIT_BYTES - 8).expect("inside"),
        ..ends
    };
    let source = Source::new(cut(memory.ends(true)), layout(), 1, Arc::default());
    let destination = Destination::new(cut(memory.ends(false)), layout(), 1, true, Arc::default());
    assert!(source.is_err() && destination.is_err());
}
