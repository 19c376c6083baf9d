//! Two languages at full speed over one memory, each in its own thread with its own mapping; then
//! every role in C against a peer that writes random words to everything at all times.
//!
//! Each honest case, of which there are many, reads 20,000 messages, or a fiftieth of
//! `BUSWAY_TORTURE_READS`, which says how many each case of `busway-core` reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use busway_c::{Consumer, Language, Memory, Producer, Reader, RegisterShape, RingShape, Status, Writer};

/// The pairs in which one side is C.
const PAIRS: [(Language, Language); 9] = [
    (Language::Rust, Language::C64),
    (Language::C64, Language::Rust),
    (Language::Rust, Language::C32),
    (Language::C32, Language::Rust),
    (Language::C32, Language::C32),
    (Language::C64, Language::C32),
    (Language::C64Cached, Language::Rust),
    (Language::Rust, Language::C64Cached),
    (Language::C32Cached, Language::C32Cached),
];

fn reads() -> u64 {
    std::env::var("BUSWAY_TORTURE_READS").map_or(20_000, |reads| {
        let reads: u64 = reads.parse().expect("BUSWAY_TORTURE_READS is a number");
        reads / 50
    })
}

/// Words that all follow from the message's number: any word of another message stands out.
fn message(number: u64, len_bytes: usize) -> Vec<u8> {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..len_bytes)
        .map(|at| word.rotate_left(at as u32 / 8).to_le_bytes()[at % 8])
        .collect()
}

fn length(number: u64, max_size_bytes: usize) -> usize {
    (number.wrapping_mul(0x9e37_79b9) % (max_size_bytes as u64 + 1)) as usize
}

/// Sets a flag when dropped, on panic too, so that no thread waits for one that has failed.
struct Finish<'a>(&'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn torture_register((from, to): (Language, Language), shape: &RegisterShape) {
    let memory = shape.memory(to);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = Writer::new(from, shape, &memory);
            let mut number = shape.start;
            while !done.load(Ordering::Relaxed) {
                number = number.wrapping_add(1);
                let message = message(number, length(number, shape.max_size_bytes));
                assert_eq!(writer.write(&message, number), Status::Ok);
            }
        });
        let _finish = Finish(&done);
        let mut reader = Reader::new(to, shape, &memory);
        let mut buffer = vec![0; shape.max_size_bytes];
        let (mut last, mut accepted) = (shape.start, 0);
        while accepted < reads() {
            let (status, found) = reader.read(&mut buffer);
            match status {
                Status::Ok | Status::Unchanged => {
                    let advance = found.sequence.wrapping_sub(last);
                    assert!(advance < 1 << 40, "{last} then {}", found.sequence);
                    assert_eq!(advance == 0, status == Status::Unchanged);
                    let expected = message(found.sequence, length(found.sequence, shape.max_size_bytes));
                    assert_eq!(found.time_ns, found.sequence);
                    assert!(
                        buffer[..found.len_bytes] == expected,
                        "message {} is torn",
                        found.sequence
                    );
                    last = found.sequence;
                    accepted += 1;
                }
                Status::Contended | Status::Empty => {}
                status => panic!("{from:?} to {to:?}: {status:?}"),
            }
        }
    });
}

#[test]
fn no_read_of_a_register_between_c_and_rust_is_torn_while_its_writer_never_pauses() {
    for pair in PAIRS {
        for (max_size_bytes, has_checksum) in [(64, false), (4096, false), (64, true)] {
            // The sequence carries into its high half within the run, and soon.
            let shape = RegisterShape {
                slots: 4,
                max_size_bytes,
                has_checksum,
                start: (5 << 32) - 2000,
            };
            torture_register(pair, &shape);
        }
    }
}

#[test]
fn a_carry_into_the_high_half_of_latest_is_read_in_order_whichever_side_has_half_words() {
    for pair in PAIRS {
        for run in 0..200 {
            let shape = RegisterShape {
                slots: 3,
                max_size_bytes: 40,
                has_checksum: false,
                start: (9 << 32) - 1 - run % 8,
            };
            carry(pair, &shape);
        }
    }
}

/// Reads until a message behind the carry was accepted.
fn carry((from, to): (Language, Language), shape: &RegisterShape) {
    let memory = shape.memory(to);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = Writer::new(from, shape, &memory);
            let mut number = shape.start;
            while !done.load(Ordering::Relaxed) {
                number += 1;
                assert_eq!(writer.write(&message(number, 40), number), Status::Ok);
            }
        });
        let _finish = Finish(&done);
        let mut reader = Reader::new(to, shape, &memory);
        let (mut buffer, mut last) = ([0; 40], shape.start);
        while last < 9 << 32 {
            let (status, found) = reader.read(&mut buffer);
            if matches!(status, Status::Ok | Status::Unchanged) {
                assert!(
                    found.sequence >= last && found.sequence - last < 1 << 31,
                    "{last} then {found:?}"
                );
                assert!(
                    buffer[..] == message(found.sequence, 40),
                    "message {} is torn",
                    found.sequence
                );
                last = found.sequence;
            } else {
                assert!(
                    matches!(status, Status::Contended | Status::Empty),
                    "{from:?} to {to:?}: {status:?}"
                );
            }
        }
    });
}

fn torture_ring((from, to): (Language, Language), shape: &RingShape, count: u64) {
    let memories = shape.memories(from);
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _finish = Finish(&failed);
            let mut producer = Producer::new(from, shape, &memories);
            for number in 0..count {
                let message = message(number, length(number, shape.max_size_bytes));
                while producer.push(&message, number) != Status::Ok {
                    assert!(!failed.load(Ordering::Relaxed), "the consumer has failed");
                    thread::yield_now();
                }
            }
        });
        let finish = Finish(&failed);
        let mut consumer = Consumer::new(to, shape, &memories);
        let mut buffer = vec![0; shape.max_size_bytes];
        let mut number = 0;
        while number < count {
            let (status, found) = consumer.pop(&mut buffer);
            if status == Status::Empty {
                thread::yield_now();
                continue;
            }
            assert_eq!(
                (status, found.time_ns),
                (Status::Ok, number),
                "{from:?} to {to:?}"
            );
            let expected = message(number, length(number, shape.max_size_bytes));
            assert!(buffer[..found.len_bytes] == expected, "message {number} is torn");
            number += 1;
        }
        drop(finish);
    });
}

#[test]
fn every_message_of_a_ring_between_c_and_rust_arrives_whole_and_in_order() {
    for pair in PAIRS {
        for (data_bytes, max_size_bytes, has_checksum) in
            [(0, 40, false), (4096, 1000, false), (4096, 300, true)]
        {
            // Commit words carry after 1000 messages, data positions many times.
            let shape = RingShape {
                lines: 16,
                data_bytes,
                max_size_bytes,
                has_checksum,
                start: (3 << 31) - 1000,
            };
            torture_ring(pair, &shape, reads());
        }
    }
}

/// xorshift64*, whose numbers need only look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Writes words to `memory` until `done`: random ones, small ones, and such near `start`.
fn attack(memory: &Memory, start: u64, done: &AtomicBool) {
    let window = memory.window(true);
    let mut random = Random(0x1234_5678_9abc_def1);
    let words = memory.len_bytes() / 8;
    while !done.load(Ordering::Relaxed) {
        for _ in 0..256 {
            let at = random.next() as usize % words * 8;
            let near = start.wrapping_add(random.next() % 9);
            let word = match random.next() % 6 {
                0 => random.next(),
                1 => random.next() % 100,
                2 => near,
                3 => near << 1 | 1,
                4 => near.wrapping_mul(64),
                _ => u64::MAX,
            };
            window.store(at, word).expect("inside");
            // The first words are those that publish.
            window
                .store(random.next() as usize % 2 * 8, near)
                .expect("inside");
        }
    }
}

/// Runs `role` with a buffer of `max_size_bytes` between canaries while both memories are attacked.
fn survive(memories: &[Memory], start: u64, mut role: impl FnMut()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for memory in memories {
            scope.spawn(|| attack(memory, start, &done));
        }
        let _finish = Finish(&done);
        for _ in 0..100_000 {
            role();
        }
    });
}

const ROOM: usize = 100;

/// A buffer of [`ROOM`] bytes in the middle of bytes that must stay as they are.
fn guarded(role: impl FnOnce(&mut [u8])) {
    let mut buffer = [0xa5; 3 * ROOM];
    role(&mut buffer[ROOM..2 * ROOM]);
    assert!(buffer[..ROOM].iter().all(|byte| *byte == 0xa5));
    assert!(buffer[2 * ROOM..].iter().all(|byte| *byte == 0xa5));
}

#[test]
fn a_register_reader_in_c_survives_random_memory() {
    for (language, has_checksum) in [
        (Language::C64, false),
        (Language::C32, false),
        (Language::C32, true),
    ] {
        let shape = RegisterShape {
            slots: 5,
            max_size_bytes: ROOM,
            has_checksum,
            start: 1000,
        };
        let memories = [shape.memory(language)];
        let mut reader = Reader::new(language, &shape, &memories[0]);
        survive(&memories, shape.start, || {
            guarded(|buffer| {
                let (status, found) = reader.read(buffer);
                assert!(!matches!(status, Status::Ok | Status::Unchanged) || found.len_bytes <= ROOM);
                // With the buffer of the longest message, none is too long for it.
                assert_ne!(status, Status::BufferTooSmall);
            });
        });
    }
}

#[test]
fn a_ring_consumer_in_c_survives_random_memory() {
    for (language, has_checksum) in [
        (Language::C64, false),
        (Language::C32, false),
        (Language::C32, true),
    ] {
        let shape = RingShape {
            lines: 4,
            data_bytes: 256,
            max_size_bytes: ROOM,
            has_checksum,
            start: 1000,
        };
        let memories = shape.memories(language);
        let mut consumer = Consumer::new(language, &shape, &memories);
        survive(&memories, shape.start, || {
            guarded(|buffer| {
                let (status, found) = consumer.pop(buffer);
                assert!(status != Status::Ok || found.len_bytes <= ROOM);
                assert_ne!(status, Status::BufferTooSmall);
            });
            consumer.flush_credits();
        });
    }
}

#[test]
fn a_ring_producer_in_c_survives_random_credits() {
    for language in [Language::C64, Language::C32] {
        let shape = RingShape {
            lines: 4,
            data_bytes: 256,
            max_size_bytes: ROOM,
            has_checksum: false,
            start: 1000,
        };
        let memories = shape.memories(language);
        let mut producer = Producer::new(language, &shape, &memories);
        let mut number = 0;
        survive(&memories, shape.start, || {
            number += 1;
            let status = producer.push(&message(number, number as usize % ROOM), number);
            assert!(matches!(status, Status::Ok | Status::Full), "{status:?}");
            assert!(producer.unreleased() <= 4);
        });
    }
}

#[test]
fn a_register_writer_in_c_survives_random_memory() {
    for language in [Language::C64, Language::C32] {
        let shape = RegisterShape {
            slots: 5,
            max_size_bytes: ROOM,
            has_checksum: true,
            start: 1000,
        };
        let memories = [shape.memory(language)];
        let mut writer = Writer::new(language, &shape, &memories[0]);
        let mut number = 0;
        survive(&memories, shape.start, || {
            number += 1;
            assert_eq!(
                writer.write(&message(number, number as usize % ROOM), number),
                Status::Ok
            );
        });
    }
}
