//! The queuing discipline of a port: the program's, unless the configuration gives one.
#![cfg(not(loom))]

use busway_port::apex::{Refusal, create_queuing_port};
use busway_port::system::module_of;
use busway_port::{Direction, Discipline, Store};
use busway_system::System;

const TEXT: &str = r#"
[host.a]
[[partition]]
name = "source"
ports = [{ name = "Q", kind = "queuing", direction = "source", max_size = 8, max_messages = 2 }]
[[partition]]
name = "sink"
ports = [{ name = "Q", kind = "queuing", direction = "destination", max_size = 8, max_messages = 2, discipline = "priority" }]
[[channel]]
source = "source/Q"
destinations = ["sink/Q"]
"#;

#[test]
fn a_port_is_created_with_the_discipline_of_the_file_only() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let system = System::parse(TEXT, "system.toml".as_ref()).expect("right");
    let store = Store::open(directory.path(), module_of(&system, "a")).expect("a store");
    let sink = store.join("sink").expect("a place");
    let create = |discipline| create_queuing_port(&sink, "Q", 8, 2, Direction::Destination, discipline);
    assert_eq!(create(Discipline::Fifo), Err(Refusal::InvalidConfig));
    assert!(create(Discipline::Priority).is_ok());
}

#[test]
fn a_port_without_a_discipline_in_the_file_takes_the_programs() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let system = System::parse(TEXT, "system.toml".as_ref()).expect("right");
    let store = Store::open(directory.path(), module_of(&system, "a")).expect("a store");
    let source = store.join("source").expect("a place");
    assert!(create_queuing_port(&source, "Q", 8, 2, Direction::Source, Discipline::Priority).is_ok());
}
