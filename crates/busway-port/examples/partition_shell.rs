//! A process of a partition that does what it is told: one service a line on standard input, one line of reply.
//!
//! `partition_shell ROOT PARTITION`, with the module and the language of `shared`.
#![cfg(not(loom))]

use std::io::{BufRead, stdin};

use busway_port::Store;

mod shared;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, root, name] = arguments.as_slice() else {
        panic!("usage: partition_shell ROOT PARTITION");
    };
    let store = Store::open(root.as_str(), shared::module()).expect("open the store");
    let partition = store.join(name).expect("join the partition");
    println!("joined");
    for line in stdin().lock().lines() {
        println!(
            "{}",
            shared::script::answer(&partition, &line.expect("read a line"))
        );
    }
}
