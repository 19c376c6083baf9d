//! Processes killed at every step of what they do.
#![cfg(not(loom))]

mod support;

use support::{Shell, directory};
use tempfile::TempDir;

const HOUR_NS: &str = "3600000000000";

/// Every step of a sampling write, and whether the message counts as written if the writer dies
/// there.
const WRITE_STEPS: [(&str, bool); 8] = [
    ("locked", false),
    ("resumed", false),
    ("half-written", false),
    ("written", false),
    ("before-publish", false),
    ("published", true),
    ("before-unlock", true),
    ("unlocked", true),
];

/// Every step of a send, likewise. The steps of a payload beside the line come first, as `@2` does
/// for the line.
const SEND_STEPS: [(&str, bool); 10] = [
    ("half-written", false),
    ("half-written@2", false),
    ("written", false),
    ("written@2", false),
    ("before-publish", false),
    ("published", true),
    ("committed", true),
    ("record-half-written", true),
    ("recorded", true),
    ("sent", true),
];

/// Every step of a receive, and whether the message counts as received if the receiver dies there.
const RECEIVE_STEPS: [(&str, bool); 4] = [
    ("copied", false),
    ("record-half-written", false),
    ("taken", true),
    ("credited", true),
];

fn message(byte: u8, length: usize) -> String {
    format!("{byte:02x}").repeat(length)
}

/// One more process of `partition`, which kills itself at `step` of `command`.
#[track_caller]
fn dies(directory: &TempDir, partition: &str, step: &str, command: &str) {
    dies_at_last(directory, partition, step, &[command]);
}

/// The same after other commands, which it survives.
#[track_caller]
fn dies_at_last(directory: &TempDir, partition: &str, step: &str, commands: &[&str]) {
    let mut dying = Shell::start_with(directory, partition, Some(step));
    let (last, before) = commands.split_last().expect("a command");
    for command in before {
        assert!(dying.say(command).starts_with("NO_ERROR"), "{command}");
    }
    assert_eq!(dying.ask(last), None, "{step} is no step of `{last}`");
    assert!(!dying.wait().success());
}

fn sampling(directory: &TempDir) -> (Shell, Shell) {
    let sensors = Shell::start_after(directory, "sensors", "create-sampling ATTITUDE_OUT 64 source 1");
    let create = format!("create-sampling ATTITUDE 64 destination {HOUR_NS}");
    (sensors, Shell::start_after(directory, "navigation", &create))
}

#[test]
fn a_writer_killed_at_any_step_leaves_the_message_before_or_its_own_and_the_next_writer_goes_on() {
    for (step, counts) in WRITE_STEPS {
        eprintln!("killed at {step}");
        let directory = directory();
        let (mut sensors, mut navigation) = sampling(&directory);
        // Several rounds, so that every slot of the register is hit.
        for round in 0..5_u8 {
            let [before, torn, after] =
                [3 * round + 1, 3 * round + 2, 3 * round + 3].map(|byte| message(byte, 64));
            sensors.replies(format!("write ATTITUDE_OUT {before}"), "NO_ERROR");
            dies(&directory, "sensors", step, &format!("write ATTITUDE_OUT {torn}"));
            let expected = if counts { &torn } else { &before };
            navigation.replies("read ATTITUDE", format!("NO_ERROR Valid {expected}"));
            sensors.replies(format!("write ATTITUDE_OUT {after}"), "NO_ERROR");
            navigation.replies("read ATTITUDE", format!("NO_ERROR Valid {after}"));
        }
    }
}

#[test]
fn a_writer_killed_as_the_only_process_of_its_partition_leaves_a_port_that_its_successor_can_write() {
    for (step, _) in WRITE_STEPS {
        eprintln!("killed at {step}");
        let directory = directory();
        let create = "create-sampling ATTITUDE_OUT 64 source 1";
        dies_at_last(&directory, "sensors", step, &[create, "write ATTITUDE_OUT 01"]);
        let (mut sensors, mut navigation) = sampling(&directory);
        sensors.replies("write ATTITUDE_OUT 02", "NO_ERROR");
        navigation.replies("read ATTITUDE", "NO_ERROR Valid 02");
    }
}

#[test]
fn a_reader_killed_at_any_time_is_missed_by_nobody() {
    let directory = directory();
    let (mut sensors, mut navigation) = sampling(&directory);
    for byte in 0..10_u8 {
        let mut dying = Shell::start(&directory, "navigation");
        dying.tell("read ATTITUDE");
        sensors.replies(format!("write ATTITUDE_OUT {byte:02x}"), "NO_ERROR");
        dying.kill();
        navigation.replies("read ATTITUDE", format!("NO_ERROR Valid {byte:02x}"));
    }
}

fn queuing(directory: &TempDir) -> (Shell, Shell) {
    let normal = |partition, create| {
        let mut shell = Shell::start_after(directory, partition, create);
        shell.replies("set-mode normal", "NO_ERROR");
        shell
    };
    let navigation = normal("navigation", "create-queuing COMMAND_OUT 64 3 source fifo");
    (
        navigation,
        normal("sensors", "create-queuing COMMAND 64 3 destination fifo"),
    )
}

#[test]
fn a_gateway_killed_at_any_step_gives_a_message_that_is_repeated_exactly_once() {
    for (step, counts) in SEND_STEPS.into_iter().chain([("given", true)]) {
        eprintln!("killed at {step}");
        let directory = directory();
        let (_navigation, mut sensors) = queuing(&directory);
        for number in (1..=9_u8).step_by(2) {
            let give = format!("give COMMAND_OUT {number} {number}");
            dies(&directory, "navigation", step, &give);
            let mut next = Shell::start(&directory, "navigation");
            let answer = if counts { "old" } else { "given" };
            assert_eq!(next.say(&give), answer, "{step}");
            let behind = number + 1;
            next.replies(format!("give COMMAND_OUT {behind} {behind}"), "given");
            for expected in [number, behind] {
                sensors.replies("receive COMMAND 0", format!("NO_ERROR {}", message(expected, 64)));
            }
            sensors.replies("receive COMMAND 0", "NOT_AVAILABLE");
        }
    }
}

/// Every step of a gateway whose queue another host writes: when it begins, and when it takes a
/// message in; and whether the message counts that was to come.
const LANDING_STEPS: [(&str, bool); 4] = [
    ("ring-noted", false),
    ("record-half-written", true),
    ("recorded", true),
    ("taken-in", true),
];

#[test]
fn gateway_killed_at_any_step_while_another_host_writes_the_queue_loses_and_repeats_nothing() {
    for (step, counts) in LANDING_STEPS {
        eprintln!("killed at {step}");
        let directory = directory();
        let (_navigation, mut sensors) = queuing(&directory);
        for number in (1..=9_u8).step_by(2) {
            let land = format!("land COMMAND_OUT {number} {number}");
            dies(&directory, "navigation", step, &land);
            assert_given_once(&directory, &mut sensors, number, counts);
        }
    }
}

#[test]
fn gateway_killed_at_any_step_while_it_counts_what_another_host_wrote_counts_it_once() {
    for step in ["record-half-written", "recorded", "taken-in", "ring-counted"] {
        eprintln!("killed at {step}");
        let directory = directory();
        let (_navigation, mut sensors) = queuing(&directory);
        for number in (1..=9_u8).step_by(2) {
            let mut shell = Shell::start(&directory, "navigation");
            shell.replies(format!("land-unseen COMMAND_OUT {number} {number}"), "landed");
            shell.kill();
            let give = format!("give COMMAND_OUT {number} {number}");
            dies(&directory, "navigation", step, &give);
            assert_given_once(&directory, &mut sensors, number, true);
        }
    }
}

/// The message of this number, which counts already or not, and the next one come in order, once.
#[track_caller]
fn assert_given_once(directory: &TempDir, sensors: &mut Shell, number: u8, counts: bool) {
    let mut next = Shell::start(directory, "navigation");
    let answer = if counts { "old" } else { "given" };
    next.replies(format!("give COMMAND_OUT {number} {number}"), answer);
    let behind = number + 1;
    next.replies(format!("give COMMAND_OUT {behind} {behind}"), "given");
    for expected in [number, behind] {
        sensors.replies("receive COMMAND 0", format!("NO_ERROR {}", message(expected, 64)));
    }
    sensors.replies("receive COMMAND 0", "NOT_AVAILABLE");
}

#[test]
fn a_sender_killed_at_any_step_has_sent_its_message_once_or_not_at_all() {
    for (step, counts) in SEND_STEPS {
        eprintln!("killed at {step}");
        let directory = directory();
        let (mut navigation, mut sensors) = queuing(&directory);
        for round in 0..5_u8 {
            let [before, torn, after] =
                [3 * round + 1, 3 * round + 2, 3 * round + 3].map(|byte| message(byte, 64));
            navigation.replies(format!("send COMMAND_OUT {before} 0"), "NO_ERROR");
            dies(
                &directory,
                "navigation",
                step,
                &format!("send COMMAND_OUT {torn} 0"),
            );
            navigation.replies(format!("send COMMAND_OUT {after} 0"), "NO_ERROR");
            let expected = if counts {
                vec![before, torn, after]
            } else {
                vec![before, after]
            };
            for message in expected {
                sensors.replies("receive COMMAND 0", format!("NO_ERROR {message}"));
            }
            sensors.replies("receive COMMAND 0", "NOT_AVAILABLE");
        }
    }
}

#[test]
fn what_the_only_process_of_a_partition_leaves_undone_the_next_incarnation_finishes() {
    for (step, counts) in SEND_STEPS {
        eprintln!("killed at {step}");
        let directory = directory();
        let create = "create-queuing COMMAND_OUT 64 3 source fifo";
        let [torn, after] = [1, 2].map(|byte| message(byte, 64));
        let send = format!("send COMMAND_OUT {torn} 0");
        dies_at_last(&directory, "navigation", step, &[create, &send]);
        let (mut navigation, mut sensors) = queuing(&directory);
        if counts {
            // Taken before the next sender comes, so that its message would be lost if it went to
            // the same line.
            sensors.replies("receive COMMAND 0", format!("NO_ERROR {torn}"));
        }
        navigation.replies(format!("send COMMAND_OUT {after} 0"), "NO_ERROR");
        sensors.replies("receive COMMAND 0", format!("NO_ERROR {after}"));
        sensors.replies("receive COMMAND 0", "NOT_AVAILABLE");
    }
    for (step, counts) in RECEIVE_STEPS {
        eprintln!("killed at {step}");
        let directory = directory();
        let (mut navigation, sensors) = queuing(&directory);
        sensors.kill();
        for message in ["01", "02"] {
            navigation.replies(format!("send COMMAND_OUT {message} 0"), "NO_ERROR");
        }
        let create = "create-queuing COMMAND 64 3 destination fifo";
        dies_at_last(&directory, "sensors", step, &[create, "receive COMMAND 0"]);
        let mut sensors = Shell::start_after(&directory, "sensors", create);
        let expected = if counts { "02" } else { "01" };
        sensors.replies("receive COMMAND 0", format!("NO_ERROR {expected}"));
    }
}

#[test]
fn a_receiver_that_waits_gets_the_message_of_a_sender_that_died_before_it_could_wake_anybody() {
    for (step, counts) in SEND_STEPS {
        eprintln!("killed at {step}");
        let directory = directory();
        let (mut navigation, mut sensors) = queuing(&directory);
        sensors.tell("receive COMMAND -1");
        let mut dying = Shell::start_with(&directory, "navigation", Some(step));
        assert_eq!(
            dying.ask("send COMMAND_OUT 01 0").is_some(),
            step.ends_with("@2"),
            "{step}"
        );
        dying.kill();
        if !counts && !step.ends_with("@2") {
            navigation.replies("send COMMAND_OUT 01 0", "NO_ERROR");
        }
        assert_eq!(sensors.reply().as_deref(), Some("NO_ERROR 01"), "{step}");
    }
}

#[test]
fn a_receiver_killed_at_any_step_has_received_its_message_or_leaves_it_to_the_next() {
    for (step, counts) in RECEIVE_STEPS {
        eprintln!("killed at {step}");
        let directory = directory();
        let (mut navigation, mut sensors) = queuing(&directory);
        for round in 0..5_u8 {
            let [first, second] = [2 * round + 1, 2 * round + 2].map(|byte| message(byte, 64));
            for message in [&first, &second] {
                navigation.replies(format!("send COMMAND_OUT {message} 0"), "NO_ERROR");
            }
            dies(&directory, "sensors", step, "receive COMMAND 0");
            let expected = if counts { vec![second] } else { vec![first, second] };
            for message in expected {
                sensors.replies("receive COMMAND 0", format!("NO_ERROR {message}"));
            }
            sensors.replies("receive COMMAND 0", "NOT_AVAILABLE");
        }
        // All room is there again, whoever was to give it back.
        for _ in 0..3 {
            navigation.replies("send COMMAND_OUT 01 0", "NO_ERROR");
        }
    }
}

#[test]
fn a_sender_that_waits_gets_the_room_that_a_receiver_made_before_it_died() {
    for (step, _) in RECEIVE_STEPS {
        eprintln!("killed at {step}");
        let directory = directory();
        let (mut navigation, mut sensors) = queuing(&directory);
        for _ in 0..3 {
            navigation.say("send COMMAND_OUT 01 0");
        }
        navigation.tell("send COMMAND_OUT 02 -1");
        dies(&directory, "sensors", step, "receive COMMAND 0");
        // The next receiver finishes what the dead one began: at the latest now there is room.
        sensors.replies("receive COMMAND 0", "NO_ERROR 01");
        assert_eq!(navigation.reply().as_deref(), Some("NO_ERROR"), "{step}");
    }
}

#[test]
fn the_turn_of_a_waiting_process_that_is_killed_passes_to_the_next() {
    let directory = directory();
    let (mut navigation, mut sensors) = queuing(&directory);
    let mut watcher = Shell::start(&directory, "sensors");
    dies(&directory, "sensors", "waiting", "receive COMMAND -1");
    let dying = {
        let mut dying = Shell::start(&directory, "sensors");
        dying.tell("receive COMMAND -1");
        dying
    };
    while !watcher.say("queuing-status COMMAND").ends_with(" 1") {}
    sensors.tell("receive COMMAND -1");
    while !watcher.say("queuing-status COMMAND").ends_with(" 2") {}
    dying.kill();
    navigation.replies("send COMMAND_OUT 0c 0", "NO_ERROR");
    assert_eq!(sensors.reply().as_deref(), Some("NO_ERROR 0c"));
}
