//! Queuing channels between two hosts over memory that both share: the source's process sends, and
//! wakes the receiver; no gateway runs.
//!
//! Both hosts are stores on this machine, joined by a window that is a file, as two processors with
//! a shared memory would be.
#![cfg(not(loom))]

mod support;

use std::process::Command;

use busway_port::apex::{INFINITE, OperatingMode, Refusal, get_queuing_port_status, set_partition_mode};
use busway_port::system::{crossings_of, module_of, root_of};
use busway_port::{Discipline, Partition, QueuingDestination, QueuingSource, Store, StoreError};
use busway_system::{Carrier, System};
use support::two_hosts::{TwoHosts as Hosts, join};

/// Most messages in the queue of every port.
const DEPTH: u8 = 3;

impl Hosts {
    fn new() -> Self {
        Self::with_destinations(r#"["far/IN"]"#, "")
    }

    /// `channel` goes into the channel's table.
    fn with_destinations(destinations: &str, channel: &str) -> Self {
        let port = |name: &str, direction: &str| {
            format!(
                "{{ name = \"{name}\", kind = \"queuing\", direction = \"{direction}\", max_size = 64, max_messages = {DEPTH} }}"
            )
        };
        let [out, input, too] = [("OUT", "source"), ("IN", "destination"), ("TOO", "destination")]
            .map(|(name, way)| port(name, way));
        let rest = format!(
            r#"
[[partition]]
name = "source"
host = "a"
ports = [{out}]
[[partition]]
name = "near"
host = "a"
ports = [{input}]
[[partition]]
name = "far"
host = "b"
ports = [{input}, {too}]
[[channel]]
name = "q"
source = "source/OUT"
destinations = {destinations}
{channel}
"#
        );
        Self::joined_by("1MiB", &rest)
    }

    /// A process of a partition that does one thing, and kills itself at `step` of it.
    #[track_caller]
    fn kill(&self, task: &str, step: &str) {
        let killed = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "the_process_that_is_killed"])
            .env("BUSWAY_TEST_SYSTEM", &self.text)
            .env("BUSWAY_TEST_TASK", task)
            .env("BUSWAY_PORT_CRASH", step)
            .output()
            .expect("started");
        assert_eq!(killed.status.code(), None, "{step} is no step of {task}");
    }
}

fn out(partition: &Partition) -> QueuingSource<'_> {
    let port = partition.queuing_source("OUT", Discipline::Fifo);
    port.expect("configured")
}

fn input<'p>(partition: &'p Partition, name: &str) -> QueuingDestination<'p> {
    let port = partition.queuing_destination(name, Discipline::Fifo);
    port.expect("configured")
}

/// Longer than a line of a ring.
fn message(number: u8) -> [u8; 50] {
    [number; 50]
}

fn send(port: QueuingSource<'_>, number: u8) {
    port.send(&message(number), 0).expect("room");
}

/// The number of the next message, and whether messages were lost before it; `None` without one.
#[track_caller]
fn receive(port: QueuingDestination<'_>) -> Option<(u8, bool)> {
    receive_within(port, 0)
}

#[track_caller]
fn receive_within(port: QueuingDestination<'_>, time_out: i64) -> Option<(u8, bool)> {
    let mut buffer = [0; 64];
    match port.receive(&mut buffer, time_out) {
        Ok(received) => {
            assert_eq!(&buffer[..received.length], message(buffer[0]));
            Some((buffer[0], received.overflowed))
        }
        Err(Refusal::NotAvailable | Refusal::TimedOut) => None,
        Err(refusal) => panic!("{refusal}"),
    }
}

#[test]
fn messages_arrive_in_order_without_a_gateway() {
    let hosts = Hosts::new();
    let (source, far) = (hosts.join("a", "source"), hosts.join("b", "far"));
    let (out, port) = (out(&source), input(&far, "IN"));
    assert_eq!(receive(port), None);
    for round in 0..40 {
        for number in 0..DEPTH {
            send(out, 3 * round + number);
        }
        assert_eq!(out.send(&message(0), 0), Err(Refusal::NotAvailable), "it is full");
        for number in 0..DEPTH {
            assert_eq!(receive(port), Some((3 * round + number, false)));
        }
        assert_eq!(receive(port), None);
    }
}

#[test]
fn source_sends_before_anything_runs_on_the_other_host() {
    let hosts = Hosts::new();
    let source = hosts.join("a", "source");
    (1..=DEPTH).for_each(|number| send(out(&source), number));
    assert_eq!(out(&source).send(&message(0), 0), Err(Refusal::NotAvailable));
    let far = hosts.join("b", "far");
    for number in 1..=DEPTH {
        assert_eq!(receive(input(&far, "IN")), Some((number, false)));
    }
    send(out(&source), 9);
    assert_eq!(receive(input(&far, "IN")), Some((9, false)));
}

#[test]
fn waiting_receiver_is_woken_by_the_sender_of_the_other_host() {
    let hosts = Hosts::new();
    let (source, far) = (hosts.join("a", "source"), hosts.join("b", "far"));
    let (out, port) = (out(&source), input(&far, "IN"));
    set_partition_mode(&far, OperatingMode::Normal).expect("it was starting");
    std::thread::scope(|threads| {
        let receiver = threads.spawn(|| {
            let numbers = (0..200).map(|_| receive_within(port, INFINITE));
            numbers.collect::<Vec<_>>()
        });
        for number in 0..200_u8 {
            let is_waiting = || {
                let status = get_queuing_port_status(&far, port.id()).expect("created");
                status.nb_message == 0 && status.waiting_processes > 0
            };
            while !is_waiting() {
                std::thread::yield_now();
            }
            send(out, number);
        }
        let received = receiver.join().expect("received");
        let expected = (0..200).map(|number| Some((number, false)));
        assert_eq!(received, expected.collect::<Vec<_>>());
    });
}

#[test]
fn waiting_sender_is_woken_by_the_receiver_of_the_other_host() {
    let hosts = Hosts::new();
    let (source, far) = (hosts.join("a", "source"), hosts.join("b", "far"));
    let (out, port) = (out(&source), input(&far, "IN"));
    set_partition_mode(&source, OperatingMode::Normal).expect("it was starting");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for number in 0..200_u8 {
                out.send(&message(number), INFINITE).expect("sent");
            }
        });
        for number in 0..200_u8 {
            let status = || get_queuing_port_status(&source, out.id()).expect("created");
            // The last few find room.
            while number < 200 - 1 - DEPTH && status().waiting_processes == 0 {
                std::thread::yield_now();
            }
            let received = std::iter::repeat_with(|| receive(port)).find_map(|received| received);
            assert_eq!(received, Some((number, false)));
        }
    });
}

#[test]
fn restarted_receiving_host_loses_and_repeats_nothing() {
    let hosts = Hosts::new();
    let source = hosts.join("a", "source");
    let mut far = hosts.join("b", "far");
    for number in 0..20 {
        send(out(&source), 2 * number);
        send(out(&source), 2 * number + 1);
        assert_eq!(receive(input(&far, "IN")), Some((2 * number, false)));
        drop(far);
        hosts.lose("b");
        far = hosts.join("b", "far");
        assert_eq!(receive(input(&far, "IN")), Some((2 * number + 1, false)));
        assert_eq!(receive(input(&far, "IN")), None);
    }
}

#[test]
fn restarted_source_host_reports_its_unreceived_messages_as_overflow() {
    let hosts = Hosts::new();
    let far = hosts.join("b", "far");
    let port = input(&far, "IN");
    for round in 0..5 {
        let source = hosts.join("a", "source");
        send(out(&source), 1);
        assert_eq!(receive(port), Some((1, round > 0)));
        (2..=3).for_each(|number| send(out(&source), number));
        drop(source);
        hosts.lose("a");
    }
    let source = hosts.join("a", "source");
    send(out(&source), 4);
    assert_eq!(far.counters("IN").expect("a port").overflows, 2);
    assert_eq!(receive(port), Some((4, true)));
    send(out(&source), 5);
    assert_eq!(receive(port), Some((5, false)));
}

#[test]
fn restarted_source_host_whose_messages_were_received_reports_nothing() {
    let hosts = Hosts::new();
    let far = hosts.join("b", "far");
    for number in 0..5 {
        let source = hosts.join("a", "source");
        send(out(&source), number);
        assert_eq!(receive(input(&far, "IN")), Some((number, false)));
        drop(source);
        hosts.lose("a");
    }
}

#[test]
fn reset_memory_is_reported_as_overflow_and_the_queue_goes_on() {
    for byte in [0, 0xff, 0x55] {
        let hosts = Hosts::new();
        let (source, far) = (hosts.join("a", "source"), hosts.join("b", "far"));
        let (out, port) = (out(&source), input(&far, "IN"));
        for number in 0..5 {
            send(out, number);
            assert_eq!(receive(port), Some((number, number > 0)), "filled with {byte}");
            send(out, 9);
            hosts.fill_window(byte);
            assert_eq!(receive(port), None, "filled with {byte}");
        }
    }
}

#[test]
fn memory_of_another_configuration_holds_no_message() {
    let hosts = Hosts::new();
    let source = hosts.join("a", "source");
    send(out(&source), 1);
    let text = hosts.text.replace("max_messages = 3", "max_messages = 4");
    let other = System::parse(&text, "system.toml".as_ref()).expect("right");
    drop(source);
    hosts.lose("a");
    let far = join(&other, "b", "far");
    let port = input(&far, "IN");
    assert_eq!(receive(port), None);
    assert_eq!(far.counters("IN").expect("a port").overflows, 0);
    send(out(&join(&other, "a", "source")), 2);
    assert_eq!(receive(port), Some((2, false)));
}

#[test]
fn each_destination_of_several_overflows_on_its_own() {
    let hosts = Hosts::with_destinations(r#"["far/IN", "near/IN", "far/TOO"]"#, "");
    let (source, near, far) = (
        hosts.join("a", "source"),
        hosts.join("a", "near"),
        hosts.join("b", "far"),
    );
    let ports = [input(&near, "IN"), input(&far, "IN"), input(&far, "TOO")];
    for number in 1..=DEPTH + 1 {
        send(out(&source), number);
        assert_eq!(receive(ports[1]), Some((number, false)));
    }
    send(out(&source), 7);
    assert_eq!(receive(ports[1]), Some((7, false)));
    for (port, partition, name) in [(ports[0], &near, "IN"), (ports[2], &far, "TOO")] {
        assert_eq!(partition.counters(name).expect("a port").overflows, 2);
        assert_eq!(receive(port), Some((1, true)));
        assert_eq!(receive(port), Some((2, false)));
    }
    assert_eq!(source.counters("OUT").expect("a port").overflows, 4);
}

#[test]
fn sender_waits_for_each_of_several_destinations_where_the_channel_says_so() {
    let hosts = Hosts::with_destinations(r#"["far/IN", "near/IN", "far/TOO"]"#, "when_full = \"wait\"");
    let (source, near, far) = (
        hosts.join("a", "source"),
        hosts.join("a", "near"),
        hosts.join("b", "far"),
    );
    let ports = [input(&near, "IN"), input(&far, "IN"), input(&far, "TOO")];
    (1..=DEPTH).for_each(|number| send(out(&source), number));
    for port in ports {
        assert_eq!(out(&source).send(&message(4), 0), Err(Refusal::NotAvailable));
        assert_eq!(receive(port), Some((1, false)));
    }
    send(out(&source), 4);
}

#[test]
fn cleared_queue_is_empty_and_has_room() {
    let hosts = Hosts::new();
    let (source, far) = (hosts.join("a", "source"), hosts.join("b", "far"));
    let port = input(&far, "IN");
    port.clear().expect("a destination");
    (1..=DEPTH).for_each(|number| send(out(&source), number));
    port.clear().expect("a destination");
    assert_eq!(receive(port), None);
    (4..4 + DEPTH).for_each(|number| send(out(&source), number));
    assert_eq!(receive(port), Some((4, false)));
}

#[test]
fn both_hosts_see_the_same_queue_from_outside() {
    let hosts = Hosts::new();
    let (source, far) = (hosts.join("a", "source"), hosts.join("b", "far"));
    let observed = [
        hosts.observed("a", "source", "OUT"),
        hosts.observed("b", "far", "IN"),
    ];
    let seen = || {
        observed.each_ref().map(|port| {
            let first = port.message().map(|message| (message.bytes[0], message.number));
            (port.in_queue(), first)
        })
    };
    assert_eq!(seen(), [(Some(0), None); 2]);
    send(out(&source), 1);
    send(out(&source), 2);
    assert_eq!(seen(), [(Some(2), Some((1, 1))); 2]);
    let nb = |partition: &Partition, id| {
        get_queuing_port_status(partition, id)
            .expect("created")
            .nb_message
    };
    let (source_id, far_id) = (out(&source).id(), input(&far, "IN").id());
    assert_eq!((nb(&source, source_id), nb(&far, far_id)), (2, 2));
    assert_eq!(receive(input(&far, "IN")), Some((1, false)));
    assert_eq!(seen(), [(Some(1), Some((2, 2))); 2]);
    assert_eq!((nb(&source, source_id), nb(&far, far_id)), (1, 1));
}

#[test]
fn gateways_move_a_queue_that_has_another_bus() {
    let hosts = Hosts::new();
    let carriers = |text: &str| {
        let system = System::parse(text, "system.toml".as_ref()).expect("right");
        let all = ["a", "b"].map(|host| crossings_of(&system, host)[0].carrier);
        assert_eq!(all[0], all[1]);
        all[0]
    };
    assert_eq!(carriers(&hosts.text), Carrier::Partition);
    let two = hosts.text.replace(
        "buses = [\"memory\"]",
        "buses = [\"memory\", \"tcp\"]\ntcp.a = { listen = \"127.0.0.1:7400\" }",
    );
    assert_eq!(carriers(&two), Carrier::Gateways);
    let named = two.replace("name = \"q\"", "name = \"q\"\nbuses = [\"memory\"]");
    assert_eq!(carriers(&named), Carrier::Partition);
    let small = hosts.text.replace("max_size = 64", "max_size = 400000");
    assert_eq!(carriers(&small), Carrier::Gateways);
    let device = hosts
        .text
        .replace("length = \"1MiB\"", "length = \"1MiB\", medium = \"device\"");
    assert_eq!(carriers(&device), Carrier::Gateways);
}

/// Not a test of its own: the process that [`Hosts::kill`] starts and has killed.
#[test]
fn the_process_that_is_killed() {
    let (Ok(text), Ok(task)) = (
        std::env::var("BUSWAY_TEST_SYSTEM"),
        std::env::var("BUSWAY_TEST_TASK"),
    ) else {
        return;
    };
    let system = System::parse(&text, "system.toml".as_ref()).expect("right");
    if task == "send" {
        send(out(&join(&system, "a", "source")), 99);
    } else {
        receive(input(&join(&system, "b", "far"), "IN"));
    }
}

/// Steps of a send, and whether the message counts as sent if the sender dies there.
const SEND_STEPS: [(&str, bool); 9] = [
    ("half-written", false),
    ("half-written@2", false),
    ("written@2", false),
    ("before-publish", false),
    ("published", true),
    ("committed", true),
    ("record-half-written", true),
    ("recorded", true),
    ("sent", true),
];

#[test]
fn sender_killed_at_any_step_leaves_a_queue_that_its_successor_uses() {
    for (step, counts) in SEND_STEPS {
        let hosts = Hosts::new();
        let (source, far) = (hosts.join("a", "source"), hosts.join("b", "far"));
        let (out, port) = (out(&source), input(&far, "IN"));
        for round in 0..6 {
            send(out, round);
            hosts.kill("send", step);
            assert_eq!(receive(port), Some((round, false)), "{step}");
            if round % 2 == 0 {
                // The receiver comes before the next sender.
                assert_eq!(receive(port), counts.then_some((99, false)), "{step}");
                send(out, 50);
            } else {
                send(out, 50);
                if counts {
                    assert_eq!(receive(port), Some((99, false)), "{step}");
                }
            }
            assert_eq!(receive(port), Some((50, false)), "{step}");
            assert_eq!(receive(port), None, "{step}");
        }
    }
}

#[test]
fn receiver_killed_at_any_step_loses_and_repeats_nothing_that_a_service_returned() {
    let steps = [
        ("copied", false),
        ("record-half-written", false),
        ("taken", true),
        ("credited", true),
    ];
    for (step, counts) in steps {
        let hosts = Hosts::new();
        let (source, far) = (hosts.join("a", "source"), hosts.join("b", "far"));
        let (out, port) = (out(&source), input(&far, "IN"));
        // The session is met before.
        send(out, 7);
        assert_eq!(receive(port), Some((7, false)));
        for round in 0..6 {
            (0..DEPTH).for_each(|number| send(out, number));
            hosts.kill("receive", step);
            let first = u8::from(counts);
            for number in first..DEPTH {
                assert_eq!(receive(port), Some((number, false)), "{step}, {round}");
            }
            assert_eq!(receive(port), None, "{step}");
        }
    }
}

#[test]
fn source_killed_while_it_begins_a_session_leaves_one_to_its_successor() {
    for step in [
        "session-counted",
        "session-ended",
        "session-prepared",
        "session-drawn",
    ] {
        let hosts = Hosts::new();
        let far = hosts.join("b", "far");
        let port = input(&far, "IN");
        hosts.kill("send", step);
        assert_eq!(receive(port), None, "{step}");
        let source = hosts.join("a", "source");
        (1..=DEPTH).for_each(|number| send(out(&source), number));
        assert_eq!(receive(port), Some((1, false)), "{step}");
        drop(source);
        // Two messages are lost with the store, and reported once.
        hosts.lose("a");
        hosts.kill("send", step);
        if step != "session-counted" {
            // The session before has ended.
            assert_eq!(receive(port), None, "{step}");
        }
        let source = hosts.join("a", "source");
        send(out(&source), 4);
        assert_eq!(receive(port), Some((4, true)), "{step}");
        assert_eq!(far.counters("IN").expect("a port").overflows, 2);
        send(out(&source), 5);
        assert_eq!(receive(port), Some((5, false)), "{step}");
    }
}

#[test]
fn destination_killed_while_it_meets_a_session_leaves_it_to_its_successor() {
    for step in ["session-left", "session-half-met", "session-met"] {
        let hosts = Hosts::new();
        for round in 0..3 {
            let source = hosts.join("a", "source");
            (1..=DEPTH).for_each(|number| send(out(&source), number));
            hosts.kill("receive", step);
            assert_eq!(out(&source).send(&message(0), 0), Err(Refusal::NotAvailable));
            let far = hosts.join("b", "far");
            for number in 1..=DEPTH {
                assert_eq!(
                    receive(input(&far, "IN")),
                    Some((number, false)),
                    "{step}, {round}"
                );
            }
            send(out(&source), 4);
            assert_eq!(receive(input(&far, "IN")), Some((4, false)), "{step}");
            drop(source);
            hosts.lose("a");
        }
    }
}

#[test]
fn store_of_another_place_in_the_memory_is_refused() {
    let hosts = Hosts::new();
    drop(hosts.join("a", "source"));
    let text = hosts.text.replace("length = \"1MiB\"", "length = \"2MiB\"");
    let other = System::parse(&text, "system.toml".as_ref()).expect("right");
    let error = Store::open(root_of(&other, "a"), module_of(&other, "a")).expect_err("another place");
    assert!(matches!(error, StoreError::Different { .. }), "{error}");
}
