//! The iceoryx2 Python wheel, in processes of its own, unchanged, on one host or on both.
//!
//! Needs a Python with `iceoryx2` 0.10.0: the one that `BUSWAY_PYTHON` names, or `python3`.

use std::path::{Path, PathBuf};
use std::process::Command;

use busway_bench::hosts::find_on_path;
use busway_tests::program::Program;
use busway_tests::skip::skipped;
use busway_tests::{Bus, Rig, arrives, eventually, on_each_bus, publisher, subscriber, subscribers_become};
use iceoryx2::prelude::*;
use iceoryx2::service::ipc::Service;

const COUNT: u64 = 60;
const LENGTHS: [usize; 6] = [1, 0, 17, 4096, 100_000, 3];

/// As `python/program.py` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, ZeroCopySend)]
#[type_name("Stamp")]
#[repr(C)]
struct Stamp {
    number: u64,
    colour: u64,
}

/// As `python/program.py` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, ZeroCopySend)]
#[type_name("Reading")]
#[repr(C)]
struct Reading {
    number: u64,
    values: [f32; 5],
    valid: bool,
}

impl Reading {
    fn new(number: u64) -> Reading {
        Reading {
            number,
            values: std::array::from_fn(|i| number as f32 / 4.0 + i as f32),
            valid: number.is_multiple_of(2),
        }
    }

    fn slice(number: u64) -> Vec<Reading> {
        (0..number % 8).map(|i| Reading::new(number + i)).collect()
    }
}

fn python() -> Option<PathBuf> {
    let asked = std::env::var_os("BUSWAY_PYTHON").unwrap_or_else(|| "python3".into());
    let path = if Path::new(&asked).is_absolute() {
        Some(PathBuf::from(asked))
    } else {
        find_on_path(&asked)
    };
    let has_wheel = |python: &PathBuf| {
        let question = "import importlib.metadata as m, sys; sys.exit(m.version('iceoryx2') != '0.10.0')";
        Command::new(python)
            .args(["-c", question])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    let found = path.filter(has_wheel);
    if found.is_none() {
        skipped("the iceoryx2 0.10.0 Python wheel (pip install iceoryx2==0.10.0)");
    }
    found
}

fn run(rig: &Rig, python: &Path, host: usize, role: &str, kind: &str, service: &str) -> Program {
    let place = &rig.hosts.hosts[host];
    // By its own path: a virtual environment finds its packages beside it.
    let mut command = place.command(Path::new("/bin/sh")).expect("a shell");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/program.py");
    command.args(["-c", "exec \"$@\"", "sh"]).arg(python).arg(script);
    command.args([role, kind, service, &COUNT.to_string()]);
    Program::start(command, &format!("Python {role} on {}", place.name))
}

fn says(program: &mut Program, what: &str) {
    eventually(&format!("the Python program says {what:?}"), || {
        let said = program.last_line().is_some_and(|line| line == what);
        assert!(said || program.ended().is_none(), "it ended: {}", program.log());
        said.then_some(())
    });
}

fn content(number: u64) -> Vec<u8> {
    (0..LENGTHS[number as usize % LENGTHS.len()])
        .map(|i| ((i as u64 * 7 + number) % 256) as u8)
        .collect()
}

fn python_to_python_on_two_hosts(bus: Bus) {
    let Some(python) = python() else { return };
    let rig = Rig::pair(bus);
    for (from, to) in [(0, 1), (1, 0)] {
        for kind in ["number", "slice", "stamped", "reading", "readings"] {
            let service = format!("python/{kind}/{from}");
            let mut subscriber = run(&rig, &python, to, "subscribe", kind, &service);
            says(&mut subscriber, "ready");
            let mut publisher = run(&rig, &python, from, "publish", kind, &service);
            says(&mut publisher, &format!("done {COUNT}"));
            says(&mut subscriber, &format!("done {COUNT}"));
            assert!(publisher.finish().success() && subscriber.finish().success());
        }
    }
}

macro_rules! stamped {
    ($node:expr) => {
        $node
            .service_builder(&"stamped".try_into().expect("a name"))
            .publish_subscribe::<[u8]>()
            .user_header::<Stamp>()
            .enable_safe_overflow(false)
            .subscriber_max_buffer_size(8)
            .open_or_create()
            .expect("the same settings")
    };
}

fn python_to_rust(bus: Bus) {
    let Some(python) = python() else { return };
    let rig = Rig::pair(bus);
    let node: Node<Service> = rig.node(1);
    let service = stamped!(node);
    let subscriber = subscriber!(service);
    let mut publisher = run(&rig, &python, 0, "publish", "stamped", "stamped");
    for number in 0..COUNT {
        let sample = arrives!(subscriber);
        assert_eq!(
            *sample.user_header(),
            Stamp {
                number,
                colour: number ^ 0xFF
            }
        );
        assert!(*sample == *content(number), "message {number} arrived changed");
    }
    assert!(publisher.finish().success());
}

fn rust_to_python(bus: Bus) {
    let Some(python) = python() else { return };
    let rig = Rig::pair(bus);
    let mut program = run(&rig, &python, 1, "subscribe", "stamped", "stamped");
    says(&mut program, "ready");
    let node: Node<Service> = rig.node(0);
    let service = stamped!(node);
    let publisher = publisher!(service, initial_max_slice_len(100_000));
    subscribers_become!(service, 1);
    for number in 0..COUNT {
        let content = content(number);
        let mut sample = publisher.loan_slice_uninit(content.len()).expect("a loan");
        *sample.user_header_mut() = Stamp {
            number,
            colour: number ^ 0xFF,
        };
        sample.write_from_slice(&content).send().expect("sent");
    }
    says(&mut program, &format!("done {COUNT}"));
}

fn structs_with_default_settings_from_python_to_rust(bus: Bus) {
    let Some(python) = python() else { return };
    let rig = Rig::pair(bus);
    let node: Node<Service> = rig.node(1);
    let service = node.service_builder(&"reading".try_into().expect("a name"));
    let service = service
        .publish_subscribe::<Reading>()
        .open_or_create()
        .expect("default");
    let subscriber = subscriber!(service);
    let mut publisher = run(&rig, &python, 0, "publish", "reading", "reading");
    let mut last = 0;
    for _ in 0..COUNT {
        let reading = arrives!(subscriber);
        assert!(reading.number > last, "{} came after {last}", reading.number);
        last = reading.number;
        assert_eq!(*reading, Reading::new(last));
    }
    assert!(publisher.finish().success());
}

fn slices_of_structs_with_default_settings_from_python_to_rust(bus: Bus) {
    let Some(python) = python() else { return };
    let rig = Rig::pair(bus);
    let node: Node<Service> = rig.node(1);
    let service = node.service_builder(&"readings".try_into().expect("a name"));
    let service = service
        .publish_subscribe::<[Reading]>()
        .open_or_create()
        .expect("default");
    let subscriber = subscriber!(service);
    let mut publisher = run(&rig, &python, 0, "publish", "readings", "readings");
    let (mut last, mut received) = (0, 0);
    while received < COUNT {
        let sample = arrives!(subscriber);
        // Each eighth is empty and says nothing of its number.
        let Some(first) = sample.first() else { continue };
        assert!(first.number > last, "{} came after {last}", first.number);
        (last, received) = (first.number, received + 1);
        assert_eq!(*sample, Reading::slice(last));
    }
    assert!(publisher.finish().success());
}

fn structs_with_default_settings_from_rust_to_python(bus: Bus) {
    let Some(python) = python() else { return };
    let rig = Rig::pair(bus);
    let node: Node<Service> = rig.node(0);
    let one = node.service_builder(&"reading".try_into().expect("a name"));
    let one = one
        .publish_subscribe::<Reading>()
        .open_or_create()
        .expect("default");
    let one = publisher!(one);
    let many = node.service_builder(&"readings".try_into().expect("a name"));
    let many = many
        .publish_subscribe::<[Reading]>()
        .open_or_create()
        .expect("default");
    let many = publisher!(many, initial_max_slice_len(7));
    let mut programs = ["reading", "readings"].map(|kind| run(&rig, &python, 1, "subscribe", kind, kind));
    let mut number = 0;
    let done = format!("done {COUNT}");
    // With safe overflow Python loses what it is too slow for: as much is published as it takes.
    eventually("the Python programs have what they want", || {
        number += 1;
        one.send_copy(Reading::new(number)).expect("sent");
        let content = Reading::slice(number);
        let sample = many.loan_slice_uninit(content.len()).expect("a loan");
        sample.write_from_slice(&content).send().expect("sent");
        for program in &mut programs {
            let said = program.last_line();
            assert!(program.ended().is_none(), "{said:?}: {}", program.log());
        }
        let all = programs
            .iter()
            .all(|program| program.last_line().as_ref() == Some(&done));
        all.then_some(())
    });
    for mut program in programs {
        assert!(program.finish().success());
    }
}

on_each_bus!(
    python_to_python_on_two_hosts,
    python_to_rust,
    rust_to_python,
    structs_with_default_settings_from_python_to_rust,
    slices_of_structs_with_default_settings_from_python_to_rust,
    structs_with_default_settings_from_rust_to_python,
);
