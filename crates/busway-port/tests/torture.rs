//! Eight readers in four processes, one writer that never pauses: nothing torn, nothing backward, nothing unbounded.
//!
//! `BUSWAY_TORTURE_SECONDS` sets how long (default 3).
#![cfg(not(loom))]

mod support;

use std::process::Stdio;

use support::{directory, example, store};

#[test]
fn eight_readers_of_a_writer_that_never_pauses_see_whole_messages_in_order() {
    let seconds: u64 = std::env::var("BUSWAY_TORTURE_SECONDS").map_or(3, |seconds| {
        seconds.parse().expect("BUSWAY_TORTURE_SECONDS is a number")
    });
    let directory = directory();
    let root = directory.path();
    let watcher = store(&directory).join("navigation").expect("join");
    let mut writer = example("port_torture")
        .arg("write")
        .arg(root)
        .spawn()
        .expect("start the writer");
    let milliseconds = (seconds * 1000).to_string();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            example("port_torture")
                .args([
                    "read".as_ref(),
                    root.as_os_str(),
                    milliseconds.as_ref(),
                    "2".as_ref(),
                ])
                .stdout(Stdio::null())
                .spawn()
                .expect("start a reader")
        })
        .collect();
    let failed = readers
        .into_iter()
        .map(|mut reader| reader.wait().expect("wait for a reader"))
        .filter(|status| !status.success())
        .count();
    writer.kill().expect("kill the writer");
    writer.wait().expect("wait for the writer");
    let counters = watcher.counters("LARGE").expect("counters");
    println!("{counters:?}");
    assert_eq!(failed, 0, "readers saw something wrong: {counters:?}");
    assert!(
        counters.most_retries <= 17,
        "a read made more attempts than it may: {counters:?}"
    );
    assert_eq!(counters.contended, 0, "reads without an answer: {counters:?}");
}
