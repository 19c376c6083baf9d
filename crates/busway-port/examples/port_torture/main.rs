//! One side of the torture test, on a sampling channel for messages of up to SIZE bytes:
//!
//! - `port_torture write ROOT SIZE` writes without a pause until it is killed;
//! - `port_torture read ROOT SIZE MILLISECONDS THREADS` reads in that many threads, ends with an
//!   error if anything is wrong, and says how many reads returned a message.
//!
//! Message number n consists of n, over and over; its length changes with every message.
#![cfg(not(loom))]

use std::time::{Duration, Instant};

use busway_port::apex::Refusal;
use busway_port::{Partition, Store};
use module::module;

mod module;

const HOUR_NS: i64 = 3_600_000_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments.as_slice() {
        [_, "write", root, size] => {
            let size_bytes = number(size);
            write(&join(root, size_bytes, "source"), size_bytes);
        }
        [_, "read", root, size, milliseconds, threads] => {
            let (size_bytes, duration) = (number(size), Duration::from_millis(number(milliseconds) as u64));
            let partition = join(root, size_bytes, "sink");
            let reads: u64 = std::thread::scope(|scope| {
                let reader = || read(&partition, size_bytes, duration);
                let readers: Vec<_> = (0..number(threads)).map(|_| scope.spawn(reader)).collect();
                let joined = readers
                    .into_iter()
                    .map(|reader| reader.join().expect("nothing wrong"));
                joined.sum()
            });
            println!("{reads}");
        }
        _ => panic!("usage: port_torture write ROOT SIZE | read ROOT SIZE MILLISECONDS THREADS"),
    }
}

fn number(word: &str) -> usize {
    word.parse().expect("a number")
}

fn join(root: &str, size_bytes: usize, partition: &str) -> Partition {
    let store = Store::open(root, module(size_bytes)).expect("open the store");
    store.join(partition).expect("join the partition")
}

/// Length of message `number` in words.
fn words(number: u64, size_bytes: usize) -> usize {
    1 + (number.wrapping_mul(0x9E37_79B9) % (size_bytes as u64 / 8)) as usize
}

fn write(partition: &Partition, size_bytes: usize) {
    let port = partition.sampling_source("OUT").expect("the port");
    let mut message = vec![0; size_bytes];
    for number in 1_u64.. {
        let len_bytes = words(number, size_bytes) * 8;
        for word in message[..len_bytes].as_chunks_mut::<8>().0 {
            *word = number.to_ne_bytes();
        }
        port.write(&message[..len_bytes]).expect("write");
    }
}

/// Returns how many reads returned a message.
fn read(partition: &Partition, size_bytes: usize, duration: Duration) -> u64 {
    let port = partition.sampling_destination("IN", HOUR_NS).expect("the port");
    let mut buffer = vec![0; size_bytes];
    let (mut last, mut reads, mut different, mut none) = (0, 0_u64, 0_u64, 0_u64);
    let end = Instant::now() + duration;
    // However slow the machine is, something must have come.
    while Instant::now() < end || different <= 100 {
        let length = match port.read(&mut buffer) {
            Ok(read) => read.length,
            // Before the first message; or the writer was always faster, which the counters tell.
            Err(Refusal::NoAction | Refusal::NotAvailable) => {
                none += 1;
                assert!(
                    Instant::now() < end + Duration::from_secs(60),
                    "{none} reads without a message"
                );
                continue;
            }
            Err(refusal) => panic!("{refusal}"),
        };
        let found = buffer[..length].as_chunks::<8>().0;
        let number = u64::from_ne_bytes(found[0]);
        assert_eq!(
            found.len(),
            words(number, size_bytes),
            "message {number} has another's length"
        );
        assert!(
            found.iter().all(|word| u64::from_ne_bytes(*word) == number),
            "message {number} is torn"
        );
        assert!(number >= last, "message {number} came after {last}");
        reads += 1;
        different += u64::from(number != last);
        last = number;
    }
    reads
}
