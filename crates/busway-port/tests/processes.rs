//! Partitions as processes: what lies in the store is the same for all of them, and outlives each
//! of them.
#![cfg(not(loom))]

mod support;

use busway_port::{Module, Store, StoreError};
use support::{Shell, directory, shared, store};

const HOUR_NS: &str = "3600000000000";

fn create_source(shell: &mut Shell) {
    assert!(
        shell
            .say("create-sampling ATTITUDE_OUT 64 source 1")
            .starts_with("NO_ERROR")
    );
}

fn create_destination(shell: &mut Shell) {
    let reply = shell.say(&format!("create-sampling ATTITUDE 64 destination {HOUR_NS}"));
    assert!(reply.starts_with("NO_ERROR"), "{reply}");
}

#[test]
fn what_one_process_writes_every_destination_reads_whichever_started_first() {
    let directory = directory();
    let mut display = Shell::start(&directory, "display");
    create_destination(&mut display);
    display.replies("read ATTITUDE", "NO_ACTION");
    let mut sensors = Shell::start(&directory, "sensors");
    create_source(&mut sensors);
    sensors.replies("write ATTITUDE_OUT 0102030405", "NO_ERROR");
    let mut navigation = Shell::start(&directory, "navigation");
    create_destination(&mut navigation);
    for shell in [&mut display, &mut navigation] {
        shell.replies("read ATTITUDE", "NO_ERROR Valid 0102030405");
    }
}

#[test]
fn a_partition_that_was_killed_gets_its_ports_back_with_their_messages() {
    let directory = directory();
    let mut sensors = Shell::start(&directory, "sensors");
    create_source(&mut sensors);
    sensors.say("write ATTITUDE_OUT aa");
    sensors.kill();
    let mut navigation = Shell::start(&directory, "navigation");
    create_destination(&mut navigation);
    assert_eq!(
        navigation.say("read ATTITUDE"),
        "NO_ERROR Valid aa",
        "the source is dead, its message is not"
    );
    navigation.kill();
    let mut navigation = Shell::start(&directory, "navigation");
    assert_eq!(
        navigation.say("sampling-id ATTITUDE"),
        "INVALID_CONFIG",
        "a new incarnation has created nothing"
    );
    assert_eq!(
        navigation.say("partition-status"),
        "NO_ERROR 2 ColdStart true",
        "cold start after a restart"
    );
    create_destination(&mut navigation);
    assert_eq!(
        navigation.say("read-updated ATTITUDE"),
        "NO_ACTION ConsumedMessage -",
        "the message was consumed before the restart"
    );
    let mut sensors = Shell::start(&directory, "sensors");
    create_source(&mut sensors);
    sensors.say("write ATTITUDE_OUT bb");
    navigation.replies("read-updated ATTITUDE", "NO_ERROR NewMessage bb");
}

#[test]
fn processes_of_a_partition_share_its_ports_its_mode_and_what_is_consumed() {
    let directory = directory();
    let mut one = Shell::start(&directory, "navigation");
    create_destination(&mut one);
    let mut other = Shell::start(&directory, "navigation");
    other.replies("sampling-id ATTITUDE", "NO_ERROR 1");
    other.replies(
        format!("create-sampling ATTITUDE 64 destination {HOUR_NS}"),
        "NO_ACTION",
    );
    one.replies("set-mode normal", "NO_ERROR");
    other.replies("partition-status", "NO_ERROR 2 Normal false");
    let mut sensors = Shell::start(&directory, "sensors");
    create_source(&mut sensors);
    sensors.say("write ATTITUDE_OUT 77");
    one.replies("read-updated ATTITUDE", "NO_ERROR NewMessage 77");
    other.replies("read-updated ATTITUDE", "NO_ACTION ConsumedMessage -");
    one.kill();
    assert_eq!(
        other.say("sampling-id ATTITUDE"),
        "NO_ERROR 1",
        "the incarnation lives on"
    );
}

#[test]
fn several_processes_may_write_one_source_port() {
    let directory = directory();
    let mut one = Shell::start(&directory, "sensors");
    create_source(&mut one);
    let mut other = Shell::start(&directory, "sensors");
    let mut navigation = Shell::start(&directory, "navigation");
    create_destination(&mut navigation);
    for round in 0..20_u8 {
        let writer = if round % 3 == 0 { &mut one } else { &mut other };
        writer.replies(format!("write ATTITUDE_OUT {round:02x}"), "NO_ERROR");
        navigation.replies("read ATTITUDE", format!("NO_ERROR Valid {round:02x}"));
    }
}

#[test]
fn another_configuration_is_refused_and_both_are_named() {
    let directory = directory();
    let first = store(&directory);
    let mut module: Module = first.module().clone();
    module.channels[0].slots += 1;
    let error = Store::open(directory.path(), module).expect_err("other slots");
    let StoreError::Different { found, wanted, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(
        (found.as_str(), wanted.as_str()),
        ("slots 4", "slots 5"),
        "{error}"
    );
    assert!(error.to_string().contains("channel-attitude"), "{error}");
}

#[test]
fn a_file_that_is_none_of_a_store_is_refused() {
    let directory = directory();
    for (content, says) in [
        (b"short".to_vec(), "too short"),
        (vec![7; 4096], "no file of a store"),
        ([b"buswport".as_slice(), &[9; 4088]].concat(), "layout version"),
    ] {
        std::fs::write(directory.path().join("channel-attitude"), content).expect("write");
        let error = Store::open(directory.path(), shared::module()).expect_err("foreign");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn of_many_processes_that_make_the_store_at_once_all_get_the_same() {
    let directory = directory();
    let mut shells: Vec<Shell> = std::thread::scope(|scope| {
        let starts: Vec<_> = ["sensors", "navigation", "display", "navigation", "display"]
            .map(|name| scope.spawn(|| Shell::start(&directory, name)))
            .into_iter()
            .collect();
        starts
            .into_iter()
            .map(|start| start.join().expect("started"))
            .collect()
    });
    create_source(&mut shells[0]);
    shells[0].say("write ATTITUDE_OUT 2a");
    create_destination(&mut shells[1]);
    assert_eq!(shells[1].say("read ATTITUDE"), "NO_ERROR Valid 2a");
    assert_eq!(
        shells[3].say("read ATTITUDE"),
        "NO_ERROR Valid 2a",
        "two processes, one partition"
    );
    let left = std::fs::read_dir(directory.path()).expect("list").count();
    assert_eq!(left, 3 + 6, "no temporary file is left");
}
