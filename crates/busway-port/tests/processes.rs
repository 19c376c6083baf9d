//! Partitions as processes: what lies in the store is the same for all of them, and outlives each of them.
#![cfg(not(loom))]

mod support;

use busway_port::{Module, Store, StoreError};
use support::{Shell, directory, shared, store};

const HOUR_NS: &str = "3600000000000";

fn create_source(shell: &mut Shell) -> String {
    let reply = shell.say("create-sampling ATTITUDE_OUT 64 source 1");
    reply.strip_prefix("ok ").expect("created").to_owned()
}

fn create_destination(shell: &mut Shell) -> String {
    let reply = shell.say(&format!("create-sampling ATTITUDE 64 destination {HOUR_NS}"));
    reply.strip_prefix("ok ").expect("created").to_owned()
}

#[test]
fn what_one_process_writes_every_destination_reads_whichever_started_first() {
    let directory = directory();
    let mut display = Shell::start(&directory, "display");
    let at_display = create_destination(&mut display);
    assert_eq!(display.say(&format!("read {at_display}")), "NoAction");
    let mut sensors = Shell::start(&directory, "sensors");
    let out = create_source(&mut sensors);
    assert_eq!(sensors.say(&format!("write {out} 0102030405")), "ok");
    let mut navigation = Shell::start(&directory, "navigation");
    let at_navigation = create_destination(&mut navigation);
    for (shell, id) in [(&mut display, at_display), (&mut navigation, at_navigation)] {
        assert_eq!(shell.say(&format!("read {id}")), "ok 1 0102030405");
    }
}

#[test]
fn a_partition_that_was_killed_gets_its_ports_back_with_their_messages() {
    let directory = directory();
    let mut sensors = Shell::start(&directory, "sensors");
    let out = create_source(&mut sensors);
    sensors.say(&format!("write {out} aa"));
    sensors.kill();
    let mut navigation = Shell::start(&directory, "navigation");
    let id = create_destination(&mut navigation);
    assert_eq!(
        navigation.say(&format!("read {id}")),
        "ok 1 aa",
        "the source is dead, its message is not"
    );
    navigation.kill();
    let mut navigation = Shell::start(&directory, "navigation");
    assert_eq!(
        navigation.say("sampling-id ATTITUDE"),
        "InvalidConfig",
        "a new incarnation has created nothing"
    );
    assert_eq!(
        navigation.say("partition-status"),
        "ok 2 1 1",
        "cold start after a restart"
    );
    let id = create_destination(&mut navigation);
    assert_eq!(
        navigation.say(&format!("read-updated {id}")),
        "ok 1 -",
        "the message was consumed before the restart"
    );
    let mut sensors = Shell::start(&directory, "sensors");
    let out = create_source(&mut sensors);
    sensors.say(&format!("write {out} bb"));
    assert_eq!(navigation.say(&format!("read-updated {id}")), "ok 2 bb");
}

#[test]
fn processes_of_a_partition_share_its_ports_its_mode_and_what_is_consumed() {
    let directory = directory();
    let mut one = Shell::start(&directory, "navigation");
    let id = create_destination(&mut one);
    let mut other = Shell::start(&directory, "navigation");
    assert_eq!(other.say("sampling-id ATTITUDE"), format!("ok {id}"));
    assert_eq!(
        other.say(&format!("create-sampling ATTITUDE 64 destination {HOUR_NS}")),
        "NoAction"
    );
    assert_eq!(one.say("set-mode normal"), "ok");
    assert_eq!(other.say("partition-status"), "ok 2 3 0");
    let mut sensors = Shell::start(&directory, "sensors");
    let out = create_source(&mut sensors);
    sensors.say(&format!("write {out} 77"));
    assert_eq!(one.say(&format!("read-updated {id}")), "ok 2 77");
    assert_eq!(other.say(&format!("read-updated {id}")), "ok 1 -");
    one.kill();
    assert_eq!(
        other.say("sampling-id ATTITUDE"),
        format!("ok {id}"),
        "the incarnation lives on"
    );
}

#[test]
fn several_processes_may_write_one_source_port() {
    let directory = directory();
    let mut one = Shell::start(&directory, "sensors");
    let id = create_source(&mut one);
    let mut other = Shell::start(&directory, "sensors");
    let mut navigation = Shell::start(&directory, "navigation");
    let read = create_destination(&mut navigation);
    for round in 0..20_u8 {
        let writer = if round % 3 == 0 { &mut one } else { &mut other };
        assert_eq!(writer.say(&format!("write {id} {round:02x}")), "ok");
        assert_eq!(
            navigation.say(&format!("read {read}")),
            format!("ok 1 {round:02x}")
        );
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
    let out = create_source(&mut shells[0]);
    shells[0].say(&format!("write {out} 2a"));
    let id = create_destination(&mut shells[1]);
    assert_eq!(shells[1].say(&format!("read {id}")), "ok 1 2a");
    assert_eq!(
        shells[3].say(&format!("read {id}")),
        "ok 1 2a",
        "two processes, one partition"
    );
    let left = std::fs::read_dir(directory.path()).expect("list").count();
    assert_eq!(left, 3 + 6, "no temporary file is left");
}
