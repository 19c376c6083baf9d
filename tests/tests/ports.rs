//! ARINC 653 channels between hosts: real partitions and real gateways, over every bus.

use std::collections::BTreeSet;
use std::time::Duration;

use busway_port::apex::{Validity, get_queuing_port_status};

use busway_tests::ports::{Task, join, next_is, normal, queue_in, queue_out, read, receive, run};
use busway_tests::{Bus, Rig, eventually, on_each_and_named_bus};
use rustix::process::Signal;

on_each_and_named_bus!(
    remote_message_is_valid_until_its_source_is_killed,
    source_reaches_destinations_on_three_hosts,
    slow_receiver_gets_whole_queue_in_order,
    killed_gateways_lose_and_repeat_nothing_of_a_queue,
    sampling_port_receives_newest_message_after_gateway_restart,
    full_remote_queue_blocks_sender,
    messages_sent_during_outage_arrive_afterwards,
    synchronized_hosts_need_no_clock_estimate,
    channel_on_own_lane_arrives_whole_and_in_order,
    overflowing_channel_counts_losses_and_notifies_receiver,
);

/// A second: far more than a message takes, far less than a test waits.
const REFRESH_NS: i64 = 1_000_000_000;

/// The kernel answers for a program that is stopped.
const NO_HEARTBEAT: [&str; 1] = ["tipc"];

fn system(kind: &str, refresh: &str) -> String {
    format!(
        r#"
[[partition]]
name = "source"
host = "a"
ports = [{{ name = "OUT", {kind}, direction = "source", max_size = 8 }}]
[[partition]]
name = "sink"
host = "b"
ports = [{{ name = "IN", {kind}, direction = "destination", max_size = 8{refresh} }}]
[[channel]]
source = "source/OUT"
destinations = ["sink/IN"]
"#
    )
}

fn sampling() -> String {
    system("kind = \"sampling\"", ", refresh_period = \"1s\"")
}

fn queuing() -> String {
    system("kind = \"queuing\", max_messages = 4", "")
}

fn remote_message_is_valid_until_its_source_is_killed(bus: Bus) {
    let rig = Rig::pair_with(bus, &sampling());
    let sink = join(&rig.system, "sink");
    let port = sink.sampling_destination("IN", REFRESH_NS).expect("configured");
    normal(&sink);
    let mut source = run(&rig, 0, "source", "OUT", Task::Write);
    let valid = |after: u64| {
        move || read(port).filter(|(number, read)| *number > after && read.validity == Validity::Valid)
    };
    eventually("a valid message", valid(0));
    eventually("a hundred of them", valid(100));
    source.kill();
    let last = eventually("the message goes stale", || {
        read(port).filter(|(_, read)| read.validity == Validity::Invalid)
    });
    assert!(last.0 > 100, "the last message is still there");
    let _source = run(&rig, 0, "source", "OUT", Task::Write);
    eventually("messages are valid again", valid(0));
}

fn source_reaches_destinations_on_three_hosts(bus: Bus) {
    let more = r#"
[[partition]]
name = "source"
host = "a"
ports = [{ name = "OUT", kind = "sampling", direction = "source", max_size = 8 }]
[[partition]]
name = "near"
host = "a"
ports = [{ name = "IN", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" }]
[[partition]]
name = "far"
host = "b"
ports = [
  { name = "IN", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" },
  { name = "TOO", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" },
]
[[partition]]
name = "distant"
host = "c"
ports = [{ name = "IN", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "1s" }]
[[channel]]
source = "source/OUT"
destinations = ["near/IN", "far/IN", "far/TOO", "distant/IN"]
"#;
    let rig = Rig::running(&["a", "b", "c"], &[(0, 1, bus), (0, 2, Bus::Tcp)], more);
    let _source = run(&rig, 0, "source", "OUT", Task::Write);
    for (name, ports) in [
        ("near", vec!["IN"]),
        ("far", vec!["IN", "TOO"]),
        ("distant", vec!["IN"]),
    ] {
        let partition = join(&rig.system, name);
        for port in ports {
            let port = partition
                .sampling_destination(port, REFRESH_NS)
                .expect("configured");
            eventually(&format!("{name} reads valid messages"), || {
                read(port).filter(|(number, read)| *number > 50 && read.validity == Validity::Valid)
            });
        }
    }
}

/// Sends 1 to `count` through a queue, takes each and does `between`: none is lost or repeated.
fn queue_is_whole(rig: &mut Rig, count: u64, mut between: impl FnMut(&mut Rig, u64)) {
    let sink = join(&rig.system, "sink");
    let port = queue_in(&sink, "IN");
    normal(&sink);
    let _source = run(rig, 0, "source", "OUT", Task::Send { from: 1, to: count });
    for expected in 1..=count {
        next_is(port, expected);
        between(rig, expected);
    }
    assert_eq!(receive(port, Duration::from_millis(200)), None);
}

fn slow_receiver_gets_whole_queue_in_order(bus: Bus) {
    let mut rig = Rig::pair_with(bus, &queuing());
    queue_is_whole(&mut rig, 400, |_, _| std::thread::sleep(Duration::from_millis(1)));
}

fn killed_gateways_lose_and_repeat_nothing_of_a_queue(bus: Bus) {
    let rigs = [
        Rig::pair_with(bus, &queuing()),
        Rig::pair_moved_by_gateways(bus, &queuing()),
    ];
    for mut rig in rigs {
        queue_is_whole(&mut rig, 600, |rig, received| {
            let deaths = [(100, 0), (200, 1), (300, 0), (400, 1)];
            for (_, host) in deaths.into_iter().filter(|(at, _)| *at == received) {
                rig.gateway(host).kill();
                rig.start_gateway(host);
            }
        });
    }
}

fn sampling_port_receives_newest_message_after_gateway_restart(bus: Bus) {
    let mut rig = Rig::pair_with(bus, &sampling());
    let (source, sink) = (join(&rig.system, "source"), join(&rig.system, "sink"));
    let out = source.sampling_source("OUT").expect("configured");
    let port = sink.sampling_destination("IN", REFRESH_NS).expect("configured");
    for (value, host) in [(1_u64, 0), (2, 1), (3, 0)] {
        out.write(&value.to_le_bytes()).expect("a source port");
        eventually("the message arrives", || {
            read(port).filter(|(number, _)| *number == value)
        });
        rig.gateway(host).kill();
        // Written while nobody carries it.
        out.write(&(value + 10).to_le_bytes()).expect("a source port");
        rig.start_gateway(host);
        eventually("what was written meanwhile arrives", || {
            read(port).filter(|(number, _)| *number == value + 10)
        });
    }
}

fn full_remote_queue_blocks_sender(bus: Bus) {
    full_queue_blocks_sender(&Rig::pair_with(bus, &queuing()));
    full_queue_blocks_sender(&Rig::pair_moved_by_gateways(bus, &queuing()));
}

fn full_queue_blocks_sender(rig: &Rig) {
    // Four in the queue over there; where gateways move the messages, four here as well.
    let room = if rig.shares_queue("source/OUT") { 4 } else { 8 };
    let (source, sink) = (join(&rig.system, "source"), join(&rig.system, "sink"));
    let out = queue_out(&source, "OUT");
    let port = queue_in(&sink, "IN");
    normal(&source);
    normal(&sink);
    let mut sent = 0_u64;
    // Nobody receives.
    eventually("the queues are full", || {
        while out.send(&(sent + 1).to_le_bytes(), 0).is_ok() {
            sent += 1;
        }
        (sent >= room).then_some(())
    });
    busway_tests::holds_for(Duration::from_millis(300), "there is no room for another", || {
        out.send(&9_u64.to_le_bytes(), 0).is_err()
    });
    assert_eq!(sent, room);
    for expected in 1..=sent {
        assert_eq!(receive(port, Duration::from_secs(10)), Some((expected, false)));
    }
    eventually("there is room again", || out.send(&9_u64.to_le_bytes(), 0).ok());
}

fn messages_sent_during_outage_arrive_afterwards(bus: Bus) {
    let mut rig = Rig::pair_with(bus, &queuing());
    queue_is_whole(&mut rig, 300, |rig, received| {
        if received != 100 {
            return;
        }
        // As if the cable were cut: the gateway neither sends nor takes anything, until its peer
        // declares the link down, or for longer than that takes.
        rig.gateway(1).signal(Signal::STOP);
        if NO_HEARTBEAT.contains(&bus.name()) {
            std::thread::sleep(Duration::from_secs(2));
        } else {
            eventually("the link is down", || {
                (rig.is_up(0, bus) == Some(false)).then_some(())
            });
        }
        rig.gateway(1).signal(Signal::CONT);
    });
}

fn channel_on_own_lane_arrives_whole_and_in_order(bus: Bus) {
    let own = format!("[[lane]]\nname = \"fast\"\n{}lane = \"fast\"\n", queuing());
    queue_is_whole(&mut Rig::pair_with(bus, &own), 200, |_, _| ());
}

fn overflowing_channel_counts_losses_and_notifies_receiver(bus: Bus) {
    const COUNT: u64 = 100;
    let rig = Rig::pair_with(bus, &(queuing() + "when_full = \"overflow\"\n"));
    let (source, sink) = (join(&rig.system, "source"), join(&rig.system, "sink"));
    let out = queue_out(&source, "OUT");
    let port = queue_in(&sink, "IN");
    normal(&source);
    normal(&sink);
    for number in 1..=COUNT {
        out.send(&number.to_le_bytes(), 0).expect("nothing holds it back");
    }
    // Nobody received meanwhile, so much is lost, here or over there; what is left is in order.
    let (mut last, mut received, mut told) = (0, 0, false);
    let mut take_all = || {
        while let Some((number, lost)) = receive(port, Duration::ZERO) {
            assert!(number > last, "{number} after {last}");
            (last, received, told) = (number, received + 1, told || lost);
        }
    };
    eventually("all that was not lost here has arrived over there", || {
        take_all();
        let here = get_queuing_port_status(&source, out.id()).expect("created");
        (here.nb_message == 0).then_some(())
    });
    take_all();
    assert!(received <= 8, "{received} in two queues of four");
    // The next message that crosses reports over there what was lost here.
    out.send(&(COUNT + 1).to_le_bytes(), 0).expect("there is room");
    let (number, lost) = eventually("the next message", || receive(port, Duration::from_secs(1)));
    assert_eq!(number, COUNT + 1);
    assert!(told || lost, "the receiver is told");
    let counted = sink.counters("IN").expect("configured").overflows;
    assert_eq!(received + counted, COUNT, "every message is received or counted");
}

fn synchronized_hosts_need_no_clock_estimate(bus: Bus) {
    let mut rig = Rig::stopped(&["a", "b"], &[(0, 1, bus)], &sampling());
    let text = std::fs::read_to_string(&rig.system).expect("written by the rig");
    let text = text.replace("[[link]]", "[[link]]\nclock = \"ptp\"");
    std::fs::write(&rig.system, text).expect("the directory is ours");
    rig.start_gateways();
    let sink = join(&rig.system, "sink");
    let port = sink.sampling_destination("IN", REFRESH_NS).expect("configured");
    let mut source = run(&rig, 0, "source", "OUT", Task::Write);
    eventually("a valid message", || {
        read(port).filter(|(_, read)| read.validity == Validity::Valid)
    });
    source.kill();
    eventually("the message goes stale", || {
        read(port).filter(|(_, read)| read.validity == Validity::Invalid)
    });
}

#[test]
fn port_commands_read_running_system_without_disturbing_partitions() {
    let rig = Rig::pair_with(Bus::Memory, &sampling());
    let source = join(&rig.system, "source");
    let sink = join(&rig.system, "sink");
    let out = source.sampling_source("OUT").expect("configured");
    let port = sink.sampling_destination("IN", i64::MAX).expect("configured");
    out.write(b"attitude").expect("a source port");
    eventually("the message arrives", || read(port));
    let before = sink.counters("IN").expect("configured");
    let ask = |words: &[&str]| -> serde_json::Value {
        let mut command = std::process::Command::new(rig.binary());
        command
            .arg("port")
            .args(words)
            .args(["--json", "--system"])
            .arg(&rig.system);
        let output = command.output().expect("the busway binary");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let said = ask(&["read", "sink/IN"]);
    assert_eq!(said["message"]["hex"], "6174746974756465");
    assert_eq!(
        (&said["message"]["number"], &said["message"]["valid"]),
        (&1.into(), &true.into())
    );
    assert_eq!(ask(&["watch", "sink/IN", "--count", "1"])["created"], true);
    let all = ask(&["list"]);
    let names: BTreeSet<&str> = all
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["port"].as_str())
        .collect();
    assert_eq!(names, BTreeSet::from(["/a/source/OUT", "sink/IN", "source/OUT"]));
    assert_eq!(sink.counters("IN").expect("configured"), before);
    ask(&["write", "source/OUT", "--text", "intruder"]);
    eventually("the intruder's message arrives", || {
        (ask(&["read", "sink/IN"])["message"]["number"] == 2).then_some(())
    });
    let stats = ask(&["stats", "--host", "a"]);
    assert!(
        stats
            .as_array()
            .expect("a list")
            .iter()
            .any(|it| it["port"] == "source/OUT" && it["counters"]["writes"] == 2)
    );
}
