//! A process of a partition that does what it is told: one service a line on standard input, one
//! line of reply.
//!
//! `partition_shell ROOT PARTITION`, with the module and the language of `shared`. It can also be a
//! gateway: `give PORT NUMBER BYTE` gives the message of that number, a full line of that byte, as
//! if it came from another host; the reply is `given` or `old`. `land PORT NUMBER BYTE` is the same
//! by another host that writes the queue itself, and the gateway that takes the message in;
//! `land-unseen` by one that does not look.
#![cfg(not(loom))]

use std::io::{BufRead, stdin};

use std::sync::Arc;

use busway_core::ring::{CREDIT_BYTES, Position, RingProducer};
use busway_core::window::{Medium, Window};
use busway_port::carry::{Carried, PortReceiver};
use busway_port::{Clock, Partition, Store};
use busway_transport::QueueNumbers;

mod shared;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, root, name] = arguments.as_slice() else {
        panic!("usage: partition_shell ROOT PARTITION");
    };
    let store = Store::open(root.as_str(), shared::module()).expect("open the store");
    let partition = Arc::new(store.join(name).expect("join the partition"));
    println!("joined");
    for line in stdin().lock().lines() {
        let line = line.expect("read a line");
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["give", port, number, byte] => give(&partition, port, number, byte),
            ["land", port, number, byte] => land(&partition, port, number, byte, true),
            ["land-unseen", port, number, byte] => land(&partition, port, number, byte, false),
            _ => shared::script::answer(&partition, &line),
        };
        println!("{answer}");
    }
}

fn land(partition: &Arc<Partition>, port: &str, number: &str, byte: &str, is_seen: bool) -> String {
    let port_receiver = PortReceiver::open(partition, port).expect("a source port");
    let mut ring = port_receiver
        .landing_ring()
        .expect("a queue with one destination");
    let number: u64 = number.parse().expect("a number");
    let numbers = QueueNumbers {
        origin: 1,
        newest: number - 1,
        lost: 0,
    };
    ring.owner.begin(numbers).expect("nobody else writes it");
    let memory = ring.memory.window().clone();
    let credit = credits(&ring.owner.released());
    let producer = RingProducer::resume(memory, ring.layout, ring.position, credit);
    let message = [byte.parse().expect("a byte"); shared::SIZE_BYTES];
    let pushed = producer.expect("it fits").push(&[&message], 1);
    pushed.expect("it has room");
    if is_seen {
        ring.owner.take_in().expect("a message");
    }
    "landed".into()
}

/// The other host's memory, in which it is told what programs have received.
fn credits(released: &Position) -> Window {
    let words: &'static mut [u64] = Box::leak(vec![0; CREDIT_BYTES / 8].into_boxed_slice());
    [words[0], words[1]] = [released.line, released.data];
    #[allow(unsafe_code)]
    // SAFETY: leaked, aligned, and reached through the window only from here on.
    unsafe {
        Window::from_raw_parts(words.as_mut_ptr().cast(), CREDIT_BYTES, Medium::Coherent)
    }
}

fn give(partition: &Arc<Partition>, port: &str, number: &str, byte: &str) -> String {
    let port_receiver = PortReceiver::open(partition, port).expect("a source port");
    let message = [byte.parse().expect("a byte"); shared::SIZE_BYTES];
    let carried = Carried {
        len_bytes: message.len(),
        time_ns: Clock::Monotonic.now_ns(),
        sequence: number.parse().expect("a number"),
        lost: 0,
    };
    let is_given = port_receiver.deliver(&message, 1, &carried);
    if is_given { "given" } else { "old" }.into()
}
