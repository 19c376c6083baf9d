//! Torture: each role of each protocol, in turn, against `torture_hostile`. Prints its counters;
//! the guard pages around the mappings end it on an access out of bounds.
//!
//! `torture_victim register-read|register-write|ring-consume|ring-produce PATH SIZE_BYTES ROUNDS`

use std::cell::Cell;

use busway_core::register::{LastGood, RegisterReader, RegisterWriter};
use busway_core::ring::{RingConsumer, RingProducer};

#[path = "shared/mod.rs"]
mod shared;
use shared::{START, map, map_ring, register_layout, ring_layout};

fn main() {
    shared::pin(1);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, path, size, rounds] = arguments.as_slice() else {
        panic!("usage: torture_victim ROLE PATH SIZE_BYTES ROUNDS")
    };
    let size_bytes: usize = size.parse().expect("SIZE_BYTES is a number");
    let rounds: u64 = rounds.parse().expect("ROUNDS is a number");
    let report = match role.as_str() {
        "register-read" => register_read(path, size_bytes, rounds),
        "register-write" => register_write(path, size_bytes, rounds),
        "ring-consume" => ring_consume(path, size_bytes, rounds),
        "ring-produce" => ring_produce(path, size_bytes, rounds),
        _ => panic!("unknown role {role}"),
    };
    println!("role={role} size_bytes={size_bytes} rounds={rounds} {report}");
}

/// Sessions to go on for: at least `rounds`, and further until enough was noticed (the peer may
/// still be starting), but not for ever.
fn sessions(rounds: u64, noticed: impl Fn() -> u64) -> impl Iterator<Item = u64> {
    let least = rounds / SESSION_ROUNDS;
    (0..1000 * least).take_while(move |session| *session < least || noticed() < 10)
}

/// A new session every so often: a lie that was believed may leave the rest of a session without
/// effect.
const SESSION_ROUNDS: u64 = 1000;

fn note(errors: &Cell<u64>, is_error: bool) {
    errors.set(errors.get() + u64::from(is_error));
}

fn register_read(path: &str, size_bytes: usize, rounds: u64) -> String {
    let mut layout = register_layout(size_bytes);
    let window = map(path, 0, layout.required_bytes(), false);
    let (mut accepted, errors) = (0_u64, Cell::new(0_u64));
    for session in sessions(rounds, || errors.get()) {
        layout = if session % 4 == 3 {
            layout.with_checksum()
        } else {
            register_layout(size_bytes)
        };
        let mut reader = RegisterReader::new(window.clone(), layout, START).expect("reader");
        let mut last_good = LastGood::new([vec![0; size_bytes], vec![0; size_bytes]]);
        for round in 0..SESSION_ROUNDS {
            if round % 2 == 0 {
                note(&errors, last_good.read(&mut reader).is_err());
            } else if let Ok(Some(mut attempt)) = reader.begin() {
                let mut bytes = vec![0; attempt.sample().len_bytes];
                attempt.copy(0, &mut bytes).expect("a length that was checked");
                note(&errors, attempt.validate().is_err());
            }
        }
        accepted += reader.counters().reads;
    }
    let errors = errors.get();
    assert!(errors > 0, "random memory must be noticed");
    format!("accepted={accepted} errors={errors}")
}

fn register_write(path: &str, size_bytes: usize, rounds: u64) -> String {
    let layout = register_layout(size_bytes);
    let window = map(path, 0, layout.required_bytes(), true);
    let mut writer = RegisterWriter::new(window, layout, START).expect("writer");
    let message = vec![7; size_bytes];
    for round in 0..rounds {
        writer
            .write(&[&message], round)
            .expect("a writer depends on nothing that a peer writes");
    }
    assert_eq!(writer.sequence(), START.wrapping_add(rounds));
    format!("written={rounds}")
}

fn ring_consume(path: &str, size_bytes: usize, rounds: u64) -> String {
    let plain = ring_layout(size_bytes);
    let (window, credit) = map_ring(path, &plain, false);
    let (mut accepted, errors) = (0_u64, Cell::new(0_u64));
    let mut buffer = vec![0; size_bytes];
    for session in sessions(rounds, || errors.get()) {
        let layout = if session % 4 == 3 {
            plain.with_checksum().expect("short enough")
        } else {
            plain
        };
        let mut consumer = RingConsumer::new(window.clone(), layout, START, credit.clone())
            .expect("consumer")
            .with_patience_bytes(1 << 16);
        for _ in 0..SESSION_ROUNDS {
            match consumer.peek() {
                Ok(Some(message)) => {
                    consumer
                        .copy(0, &mut buffer[..message.len_bytes])
                        .expect("a length that was checked");
                    consumer.release().expect("credits");
                    accepted += 1;
                }
                Ok(None) => {}
                Err(_) => note(&errors, true),
            }
        }
    }
    let errors = errors.get();
    assert!(errors > 0, "random memory must be noticed");
    format!("accepted={accepted} errors={errors}")
}

fn ring_produce(path: &str, size_bytes: usize, rounds: u64) -> String {
    let layout = ring_layout(size_bytes);
    let (window, credit) = map_ring(path, &layout, true);
    let (mut sent, mut full, impossible) = (0_u64, 0_u64, Cell::new(0_u64));
    let message = vec![7; size_bytes];
    for session in sessions(rounds, || impossible.get()) {
        let mut producer =
            RingProducer::new(window.clone(), layout, START, credit.clone()).expect("producer");
        for round in 0..SESSION_ROUNDS {
            let len = (round * 977 + session) as usize % (size_bytes + 1);
            let _ = producer.push(&[&message[..len]], round);
            assert!(producer.free_lines() <= layout.lines() && producer.free_bytes() <= layout.data_bytes());
        }
        let counters = producer.counters();
        sent += counters.messages;
        full += counters.full;
        impossible.set(impossible.get() + counters.impossible_credits);
    }
    let impossible = impossible.get();
    assert!(impossible > 0, "random credits must be noticed");
    format!("sent={sent} full={full} impossible_credits={impossible}")
}
