//! One side of the torture test: `port_torture write ROOT` writes without a pause until it is killed, `port_torture read ROOT
//! MILLISECONDS THREADS` reads in that many threads and says what it saw.
//!
//! Message number n consists of n, over and over; its length changes with every message.
#![cfg(not(loom))]

use std::time::{Duration, Instant};

use busway_port::apex::Refusal;
use busway_port::{Partition, Store};

mod shared;

const HOUR_NS: i64 = 3_600_000_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments.as_slice() {
        [_, "write", root] => write(&join(root, "sensors")),
        [_, "read", root, milliseconds, threads] => {
            let duration = Duration::from_millis(milliseconds.parse().expect("milliseconds"));
            let partition = join(root, "navigation");
            std::thread::scope(|scope| {
                for _ in 0..threads.parse().expect("a number of threads") {
                    scope.spawn(|| read(&partition, duration));
                }
            });
            println!("{:?}", partition.counters("LARGE").expect("counters"));
        }
        _ => panic!("usage: port_torture write ROOT | read ROOT MILLISECONDS THREADS"),
    }
}

fn join(root: &str, partition: &str) -> Partition {
    let store = Store::open(root, shared::module()).expect("open the store");
    store.join(partition).expect("join the partition")
}

fn write(partition: &Partition) {
    let port = partition.sampling_source("LARGE_OUT").expect("the port");
    let mut message = [0; shared::LARGE_BYTES];
    for number in 1_u64.. {
        let words = 1 + (number.wrapping_mul(0x9E37_79B9) % (shared::LARGE_BYTES as u64 / 8)) as usize;
        for word in message[..words * 8].as_chunks_mut::<8>().0 {
            *word = number.to_ne_bytes();
        }
        port.write(&message[..words * 8]).expect("write");
    }
}

fn read(partition: &Partition, duration: Duration) {
    let port = partition
        .sampling_destination("LARGE", HOUR_NS)
        .expect("the port");
    let mut buffer = [0; shared::LARGE_BYTES];
    let (mut last, mut different, mut none) = (0, 0_u64, 0_u64);
    let end = Instant::now() + duration;
    while Instant::now() < end {
        let length = match port.read(&mut buffer) {
            Ok(read) => read.length,
            // Before the first message; or the writer was always faster, which the counters tell.
            Err(Refusal::NoAction | Refusal::NotAvailable) => {
                none += 1;
                continue;
            }
            Err(refusal) => panic!("{refusal}"),
        };
        let words = buffer[..length].as_chunks::<8>().0;
        let number = u64::from_ne_bytes(words[0]);
        let expected = 1 + (number.wrapping_mul(0x9E37_79B9) % (shared::LARGE_BYTES as u64 / 8)) as usize;
        assert_eq!(
            words.len(),
            expected,
            "message {number} has another message's length"
        );
        assert!(
            words.iter().all(|word| u64::from_ne_bytes(*word) == number),
            "message {number} is torn"
        );
        assert!(number >= last, "message {number} came after {last}");
        different += u64::from(number != last);
        last = number;
    }
    assert!(
        different > 100,
        "only {different} messages came, and {none} reads without one"
    );
}
