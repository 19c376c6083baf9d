//! Eight readers in four processes, one writer that never pauses: nothing torn, nothing backward,
//! nothing unbounded, nothing uncounted.
//!
//! A slice of a second for each size, which every run of the tests has. `BUSWAY_TORTURE=10m` says
//! how long all slices take together: the whole torture is
//! `BUSWAY_TORTURE=10m cargo test --release -p busway-port --test torture -- --nocapture`.
#![cfg(not(loom))]

#[path = "../examples/port_torture/module.rs"]
mod module;
mod support;

use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use busway_port::observe::Observer;
use busway_port::{Counters, PortRef};
use support::{directory, example};

/// One size after the other: each is to have the machine for itself.
static TURN: Mutex<()> = Mutex::new(());

/// The most retries of a read: its first attempts, after which it returns the last good copy.
const MOST_RETRIES: u64 = 17;

/// How long a slice takes.
fn slice() -> Duration {
    match std::env::var("BUSWAY_TORTURE") {
        Ok(all) => humantime::parse_duration(&all).expect("BUSWAY_TORTURE is a time, as 10m") / 3,
        Err(_) => Duration::from_secs(1),
    }
}

#[test]
fn eight_readers_see_whole_messages_of_up_to_64_bytes_in_order() {
    torture(64);
}

#[test]
fn eight_readers_see_whole_messages_of_up_to_4_kib_in_order() {
    torture(4 << 10);
}

#[test]
fn eight_readers_see_whole_messages_of_up_to_64_kib_in_order() {
    torture(64 << 10);
}

fn torture(size_bytes: usize) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = directory();
    let size = size_bytes.to_string();
    let start = |task: &str, more: &[&str]| {
        let mut command = example("port_torture");
        command.arg(task).arg(directory.path()).arg(&size).args(more);
        command
            .stdout(Stdio::piped())
            .spawn()
            .expect("start port_torture")
    };
    let mut writer = start("write", &[]);
    let milliseconds = slice().as_millis().to_string();
    let readers: Vec<_> = (0..4).map(|_| start("read", &[&milliseconds, "2"])).collect();
    let outputs: Vec<_> = readers
        .into_iter()
        .map(|reader| reader.wait_with_output().expect("wait for a reader"))
        .collect();
    writer.kill().expect("kill the writer");
    writer.wait().expect("wait for the writer");
    let counters = counters(&directory, size_bytes);
    println!("{size_bytes} bytes: {counters:?}");
    let mut reads = 0;
    for output in outputs {
        assert!(
            output.status.success(),
            "readers saw something wrong: {counters:?}"
        );
        let text = String::from_utf8_lossy(&output.stdout);
        reads += text.trim().parse::<u64>().expect("a number of reads");
    }
    assert_eq!(
        counters.reads, reads,
        "reads are counted, last good copies included"
    );
    assert!(counters.last_good <= reads);
    assert!(
        counters.most_retries <= MOST_RETRIES,
        "a read made more attempts than it may: {counters:?}"
    );
    assert_eq!(counters.contended, 0, "reads without an answer: {counters:?}");
}

/// What the readers' port has counted.
fn counters(directory: &tempfile::TempDir, size_bytes: usize) -> Counters {
    let observer = Observer::new(directory.path(), module::module(size_bytes)).expect("a module");
    let port = observer.port(&PortRef::new("sink", "IN")).expect("it is there");
    port.expect("of the module").counters()
}
