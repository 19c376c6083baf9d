//! Torture: the reading side, in a process of its own, with a read-only mapping of what it only
//! reads.
//!
//! `torture_read register|register-varied|ring PATH SIZE_BYTES READS`
//!
//! Checks every byte of every accepted message; prints counts as `name=value` words. Only a read
//! that accepted a message, new or unchanged, counts towards READS: both copy all bytes.

use std::time::Instant;

use busway_core::register::{ReadOutcome, RegisterReader};
use busway_core::ring::RingConsumer;

#[path = "shared/mod.rs"]
mod shared;
use shared::{Pattern, START, map, map_ring, register_layout, ring_layout, time_of, wait};

fn main() {
    shared::pin(1);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, path, size, reads] = arguments.as_slice() else {
        panic!("usage: torture_read ROLE PATH SIZE_BYTES READS")
    };
    let size_bytes: usize = size.parse().expect("SIZE_BYTES is a number");
    let reads: u64 = reads.parse().expect("READS is a number");
    let pattern = Pattern::new(size_bytes);
    let begin = Instant::now();
    let report = match role.as_str() {
        "register" | "register-varied" => {
            read_register(path, size_bytes, &pattern, role == "register-varied", reads)
        }
        "ring" => read_ring(path, size_bytes, &pattern, reads),
        _ => panic!("unknown role {role}"),
    };
    println!(
        "role={role} size_bytes={size_bytes} {report} seconds={:.1}",
        begin.elapsed().as_secs_f64()
    );
}

fn read_register(path: &str, size_bytes: usize, pattern: &Pattern, varied: bool, reads: u64) -> String {
    let layout = register_layout(size_bytes);
    let window = map(path, 0, layout.required_bytes(), false);
    let mut reader = RegisterReader::new(window, layout, START).expect("reader");
    let mut buffer = vec![0; size_bytes];
    let (mut new, mut unchanged, mut torn, mut back) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut last = START;
    // At least a hundredth shall be new, or the writer had not run beside us and the reads would
    // prove little.
    while new + unchanged < reads || new < reads / 100 {
        let sample = match reader.read(&mut buffer).expect("an honest writer never corrupts") {
            ReadOutcome::New(sample) => {
                new += 1;
                sample
            }
            ReadOutcome::Unchanged(sample) => {
                unchanged += 1;
                sample
            }
            _ => continue,
        };
        let expected = pattern.message(sample.sequence, varied);
        let whole = buffer[..sample.len_bytes] == *expected && sample.time_ns == time_of(sample.sequence);
        torn += u64::from(!whole);
        back += u64::from(sample.sequence.wrapping_sub(last) > 1 << 60);
        last = sample.sequence;
    }
    let counters = reader.counters();
    let written = last.wrapping_sub(START);
    assert_eq!(
        (torn, back),
        (0, 0),
        "torn and back in time, of {} reads",
        new + unchanged
    );
    format!(
        "reads={} new={new} unchanged={unchanged} torn={torn} back_in_time={back} retries={} max_retries={} contended={} written={written}",
        new + unchanged,
        counters.retries,
        counters.max_retries,
        counters.contended
    )
}

fn read_ring(path: &str, size_bytes: usize, pattern: &Pattern, reads: u64) -> String {
    let layout = ring_layout(size_bytes);
    let (window, credit) = map_ring(path, &layout, false);
    let mut consumer = RingConsumer::new(window, layout, START, credit).expect("consumer");
    let mut buffer = vec![0; size_bytes];
    let (mut wrong, mut bytes) = (0_u64, 0_u64);
    for number in 0..reads {
        let mut spins = 0;
        let message = loop {
            match consumer.peek().expect("an honest producer never corrupts") {
                Some(message) => break message,
                None => wait(&mut spins),
            }
        };
        let into = &mut buffer[..message.len_bytes];
        consumer.copy(0, into).expect("within the message");
        let whole = *into == *pattern.message(number, true) && message.time_ns == time_of(number);
        wrong += u64::from(!whole);
        bytes += message.len_bytes as u64;
        consumer.release().expect("credits");
    }
    assert_eq!(wrong, 0, "messages lost, out of order or torn, of {reads}");
    format!(
        "reads={reads} wrong={wrong} bytes={bytes} credit_writes={}",
        consumer.counters().credit_writes
    )
}
