//! Modules that are impossible, each with the message that says so.
#![cfg(not(loom))]

mod support;

use busway_port::{Direction, Module, PortKind, PortRef, Store};
use support::{directory, shared};

/// What is said about the shared module after `change`.
fn refusal(change: impl FnOnce(&mut Module)) -> String {
    let mut module = shared::module();
    change(&mut module);
    let error = module.validate().expect_err("impossible").to_string();
    let directory = directory();
    let opened = Store::open(directory.path(), module)
        .expect_err("impossible")
        .to_string();
    assert_eq!(opened, error, "a store says the same");
    let files = std::fs::read_dir(directory.path()).expect("list").count();
    assert_eq!(files, 0, "and makes nothing");
    error
}

#[test]
fn the_shared_module_is_possible() {
    assert_eq!(shared::module().validate(), Ok(()));
}

#[test]
fn names_have_1_to_32_bytes_none_of_them_zero() {
    for name in ["", "a\0b", "abcdefghijklmnopqrstuvwxyz0123456"] {
        let said = [
            refusal(|module| module.partitions[0].name = name.into()),
            refusal(|module| module.partitions[0].ports[0].name = name.into()),
            refusal(|module| module.channels[0].name = name.into()),
        ];
        for (what, said) in ["partition", "port", "channel"].iter().zip(said) {
            let expected = format!(
                "{what} name {name:?} has {} bytes: use 1 to 32, none of them zero",
                name.len()
            );
            assert_eq!(said, expected);
        }
    }
    let mut module = shared::module();
    module.channels[0].name = "abcdefghijklmnopqrstuvwxyz012345".into();
    assert_eq!(module.validate(), Ok(()));
}

#[test]
fn names_are_unique() {
    assert_eq!(
        refusal(|module| module.partitions[1].name = "sensors".into()),
        "partition sensors exists twice: give one of them another name"
    );
    assert_eq!(
        refusal(|module| module.partitions[0].ports[1].name = "ATTITUDE_OUT".into()),
        "port sensors/ATTITUDE_OUT exists twice: give one of them another name"
    );
    assert_eq!(
        refusal(|module| module.channels[1].name = "attitude".into()),
        "channel attitude exists twice: give one of them another name"
    );
}

#[test]
fn sizes_and_counts_have_ranges() {
    assert_eq!(
        refusal(|module| module.partitions[0].ports[0].max_size_bytes = 0),
        "the longest message in bytes of sensors/ATTITUDE_OUT is 0: use 1 to 2147483647"
    );
    assert_eq!(
        refusal(|module| module.partitions[0].ports[3].kind = PortKind::queuing(0)),
        "the number of messages of sensors/COMMAND is 0: use 1 to 1048576"
    );
    assert_eq!(
        refusal(|module| module.channels[0].slots = 2),
        "slots of attitude is 2: use 3 to 4096"
    );
}

#[test]
fn a_channel_joins_ports_that_exist_and_fit() {
    assert_eq!(
        refusal(|module| module.channels[0].source = PortRef::new("sensors", "NOWHERE")),
        "channel attitude names port sensors/NOWHERE, which does not exist: correct the name or add the port"
    );
    assert_eq!(
        refusal(|module| module.partitions[0].ports[0].direction = Direction::Destination),
        "channel attitude uses port sensors/ATTITUDE_OUT as source, but its direction is destination: correct one of them"
    );
    assert_eq!(
        refusal(|module| module.partitions[1].ports[0].kind = PortKind::queuing(1)),
        "channel attitude joins the sampling port sensors/ATTITUDE_OUT with the queuing port navigation/ATTITUDE: make them alike"
    );
    assert_eq!(
        refusal(|module| module.partitions[1].ports[0].max_size_bytes = 65),
        "channel attitude joins sensors/ATTITUDE_OUT for messages of 64 bytes with navigation/ATTITUDE for 65: make them equal"
    );
    assert_eq!(
        refusal(|module| module.channels[0].destinations.clear()),
        "channel attitude has no destination: name one"
    );
    assert_eq!(
        refusal(|module| {
            let again = module.channels[0].destinations[0].clone();
            module.channels[0].destinations.push(again);
        }),
        "port navigation/ATTITUDE is used by channel attitude and by channel attitude: a port has one channel"
    );
}

#[test]
fn joining_an_unknown_partition_names_those_that_there_are() {
    let directory = directory();
    let error = support::store(&directory).join("engine").expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "the module has no partition engine; it has sensors, navigation, display"
    );
}

#[test]
fn a_partition_has_no_more_processes_than_places() {
    let directory = directory();
    let store = support::store(&directory);
    let mut members: Vec<_> = (0..64).map(|_| store.join("display").expect("a place")).collect();
    let error = store.join("display").expect_err("full").to_string();
    assert_eq!(
        error,
        "partition display has 64 processes, the most that it can have: end one of them first"
    );
    members.pop();
    store.join("display").expect("the place of the one that ended");
}
