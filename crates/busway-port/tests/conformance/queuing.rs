//! Queuing ports: Part 1, section 3.6.2.2.

use crate::{Bench, Process, script, until};

crate::rules! {
    create_checks_as_for_sampling_ports_and_the_number_of_messages
    send_checks_port_time_out_length_and_direction_in_this_order
    receive_checks_port_time_out_and_direction_in_this_order
    messages_arrive_in_order_and_once
    messages_of_every_length_up_to_the_maximum_arrive_in_order
    an_empty_queue_is_not_available_or_times_out
    a_full_queue_is_not_available_or_times_out_and_the_message_is_not_sent
    a_call_that_would_wait_outside_normal_mode_is_invalid_mode
    a_call_that_waits_while_its_partition_restarts_is_invalid_mode
    a_receiver_that_waits_gets_the_message_that_comes
    a_sender_that_waits_sends_when_there_is_room
    receivers_wait_in_the_order_of_arrival
    receivers_wait_by_priority_if_the_port_says_so
    who_comes_later_does_not_overtake_who_waits
    the_status_counts_messages_and_waiting_processes
    clear_empties_the_queue_and_an_empty_one_too
    clear_leaves_what_has_not_reached_the_queue
    a_message_after_an_overflow_is_delivered_with_invalid_config_once
    an_overflow_at_one_destination_costs_the_others_nothing
    clear_forgets_an_overflow
    a_channel_that_waits_takes_a_message_only_when_all_destinations_have_room
}

/// Long enough for a test to be wrong by, in ns: ten seconds.
const LONG: &str = "10000000000";

fn sender<P: Process>(process: &mut P, port: &str) {
    let create = format!("create-queuing {port} 64 3 source fifo");
    script(
        process,
        &[(&create, "NO_ERROR..."), ("set-mode normal", "NO_ERROR")],
    );
}

fn receiver<P: Process>(process: &mut P, port: &str, discipline: &str) {
    let create = format!("create-queuing {port} 64 3 destination {discipline}");
    script(
        process,
        &[(&create, "NO_ERROR..."), ("set-mode normal", "NO_ERROR")],
    );
}

/// A sender and a receiver of the channel `command`, in normal mode.
fn both<B: Bench>(bench: &B, discipline: &str) -> (B::Process, B::Process) {
    let (mut navigation, mut sensors) = (bench.process("navigation"), bench.process("sensors"));
    sender(&mut navigation, "COMMAND_OUT");
    receiver(&mut sensors, "COMMAND", discipline);
    (navigation, sensors)
}

/// Depth of the queue of the channel `command` at its destination.
const DEPTH: usize = 3;

/// How many messages the channel `command` takes while nobody receives.
fn capacity<B: Bench>() -> usize {
    DEPTH + B::HELD_BACK
}

/// Sends the messages `numbers`; message 1 is `01`.
fn send<P: Process>(sender: &mut P, numbers: impl IntoIterator<Item = usize>) {
    for number in numbers {
        script(
            sender,
            &[(&format!("send COMMAND_OUT {number:02x} 0"), "NO_ERROR")],
        );
    }
}

/// Receives the messages `numbers`, in this order, and nothing behind them.
fn receive<P: Process>(receiver: &mut P, numbers: impl IntoIterator<Item = usize>) {
    for number in numbers {
        script(
            receiver,
            &[("receive COMMAND 0", &format!("NO_ERROR {number:02x}"))],
        );
    }
    script(receiver, &[("receive COMMAND 0", "NOT_AVAILABLE")]);
}

fn create_checks_as_for_sampling_ports_and_the_number_of_messages<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    for _ in 0..2 {
        script(
            &mut sensors,
            &[
                ("create-queuing NOWHERE 64 3 destination fifo", "INVALID_CONFIG"),
                ("create-queuing ATTITUDE_OUT 64 3 source fifo", "INVALID_CONFIG"),
                ("create-queuing COMMAND 63 3 destination fifo", "INVALID_CONFIG"),
                ("create-queuing COMMAND 64 4 destination fifo", "INVALID_CONFIG"),
                ("create-queuing COMMAND 64 0 destination fifo", "INVALID_CONFIG"),
                ("create-queuing COMMAND 64 3 source fifo", "INVALID_CONFIG"),
                ("queuing-id COMMAND", "INVALID_CONFIG"),
            ],
        );
        sensors.ask("set-mode normal");
    }
    script(
        &mut sensors,
        &[
            ("create-queuing COMMAND 64 3 destination fifo", "INVALID_MODE"),
            ("set-mode cold", "NO_ERROR"),
            ("create-queuing COMMAND 64 3 destination fifo", "NO_ERROR..."),
            ("create-queuing COMMAND 1 1 source priority", "NO_ACTION"),
        ],
    );
}

fn send_checks_port_time_out_length_and_direction_in_this_order<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = both(&bench, "fifo");
    let too_long = "00".repeat(65);
    script(
        &mut navigation,
        &[
            ("send #99 01 -2", "INVALID_PARAM"),
            (&format!("send COMMAND_OUT {too_long} -2"), "INVALID_PARAM"),
            (&format!("send COMMAND_OUT {too_long} 0"), "INVALID_CONFIG"),
            ("send COMMAND_OUT - 0", "INVALID_PARAM"),
        ],
    );
    script(
        &mut sensors,
        &[
            (&format!("send COMMAND {too_long} 0"), "INVALID_CONFIG"),
            ("send COMMAND - 0", "INVALID_PARAM"),
            ("send COMMAND 01 0", "INVALID_MODE"),
            ("receive COMMAND 0", "NOT_AVAILABLE"),
        ],
    );
}

fn receive_checks_port_time_out_and_direction_in_this_order<B: Bench>() {
    let bench = B::new();
    let (mut navigation, _) = both(&bench, "fifo");
    script(
        &mut navigation,
        &[
            ("receive #99 -2", "INVALID_PARAM"),
            ("receive COMMAND_OUT -2", "INVALID_PARAM"),
            ("receive COMMAND_OUT 0", "INVALID_MODE"),
            ("clear COMMAND_OUT", "INVALID_MODE"),
            ("clear #99", "INVALID_PARAM"),
            ("queuing-status #99", "INVALID_PARAM"),
        ],
    );
}

fn messages_arrive_in_order_and_once<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = both(&bench, "fifo");
    for _ in 0..5 {
        send(&mut navigation, 1..=capacity::<B>());
        receive(&mut sensors, 1..=capacity::<B>());
    }
}

fn messages_of_every_length_up_to_the_maximum_arrive_in_order<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = both(&bench, "fifo");
    let message = |length: usize| -> String {
        (0..length)
            .map(|index| format!("{:02x}", index + length))
            .collect()
    };
    for length in 1..=63_usize {
        script(
            &mut navigation,
            &[
                (&format!("send COMMAND_OUT {} 0", message(length)), "NO_ERROR"),
                (&format!("send COMMAND_OUT {} 0", message(length + 1)), "NO_ERROR"),
            ],
        );
        script(
            &mut sensors,
            &[
                ("receive COMMAND 0", &format!("NO_ERROR {}", message(length))),
                ("receive COMMAND 0", &format!("NO_ERROR {}", message(length + 1))),
            ],
        );
    }
}

fn an_empty_queue_is_not_available_or_times_out<B: Bench>() {
    let bench = B::new();
    let (_, mut sensors) = both(&bench, "fifo");
    script(
        &mut sensors,
        &[
            ("receive COMMAND 0", "NOT_AVAILABLE"),
            ("receive COMMAND 5000000", "TIMED_OUT"),
        ],
    );
}

fn a_full_queue_is_not_available_or_times_out_and_the_message_is_not_sent<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = both(&bench, "fifo");
    send(&mut navigation, 1..=capacity::<B>());
    script(
        &mut navigation,
        &[
            ("send COMMAND_OUT aa 0", "NOT_AVAILABLE"),
            ("send COMMAND_OUT bb 5000000", "TIMED_OUT"),
        ],
    );
    receive(&mut sensors, 1..=capacity::<B>());
}

fn a_call_that_would_wait_outside_normal_mode_is_invalid_mode<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = (bench.process("navigation"), bench.process("sensors"));
    script(
        &mut navigation,
        &[("create-queuing COMMAND_OUT 64 3 source fifo", "NO_ERROR...")],
    );
    script(
        &mut sensors,
        &[("create-queuing COMMAND 64 3 destination fifo", "NO_ERROR...")],
    );
    script(
        &mut sensors,
        &[
            ("receive COMMAND 0", "NOT_AVAILABLE"),
            ("receive COMMAND -1", "INVALID_MODE"),
            ("receive COMMAND 1", "INVALID_MODE"),
        ],
    );
    send(&mut navigation, 1..=capacity::<B>());
    script(
        &mut navigation,
        &[
            ("send COMMAND_OUT aa 0", "NOT_AVAILABLE"),
            ("send COMMAND_OUT aa -1", "INVALID_MODE"),
        ],
    );
    script(&mut sensors, &[("receive COMMAND -1", "NO_ERROR 01")]);
}

fn a_call_that_waits_while_its_partition_restarts_is_invalid_mode<B: Bench>() {
    let bench = B::new();
    let (_navigation, mut sensors) = both(&bench, "fifo");
    let mut watcher = bench.process("sensors");
    sensors.begin("receive COMMAND -1");
    until(
        &mut watcher,
        "queuing-status COMMAND",
        "NO_ERROR 0 3 64 destination 1",
    );
    script(&mut watcher, &[("set-mode cold", "NO_ERROR")]);
    assert_eq!(sensors.end(), "INVALID_MODE");
}

fn a_receiver_that_waits_gets_the_message_that_comes<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = both(&bench, "fifo");
    let mut watcher = bench.process("sensors");
    for time_out in ["-1", LONG] {
        sensors.begin(&format!("receive COMMAND {time_out}"));
        until(
            &mut watcher,
            "queuing-status COMMAND",
            "NO_ERROR 0 3 64 destination 1",
        );
        script(&mut navigation, &[("send COMMAND_OUT 0a 0", "NO_ERROR")]);
        assert_eq!(sensors.end(), "NO_ERROR 0a");
        script(
            &mut watcher,
            &[("queuing-status COMMAND", "NO_ERROR 0 3 64 destination 0")],
        );
    }
}

fn a_sender_that_waits_sends_when_there_is_room<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = both(&bench, "fifo");
    let mut watcher = bench.process("navigation");
    let last = capacity::<B>() + 1;
    send(&mut navigation, 1..last);
    navigation.begin(&format!("send COMMAND_OUT {last:02x} -1"));
    until(
        &mut watcher,
        "queuing-status COMMAND_OUT",
        "NO_ERROR 3 3 64 source 1",
    );
    script(&mut sensors, &[("receive COMMAND 0", "NO_ERROR 01")]);
    assert_eq!(navigation.end(), "NO_ERROR");
    receive(&mut sensors, 2..=last);
}

/// Lets four processes of different priorities wait one after the other, and returns in which order
/// they got messages.
fn order_of_service<B: Bench>(discipline: &str) -> Vec<usize> {
    let bench = B::new();
    let (mut navigation, mut watcher) = both(&bench, discipline);
    let mut waiting = Vec::new();
    for (number, priority) in [10, 30, 20, 30].into_iter().enumerate() {
        let mut process = bench.process("sensors");
        process.ask(&format!("set-priority {priority}"));
        process.begin("receive COMMAND -1");
        let status = format!("NO_ERROR 0 3 64 destination {}", number + 1);
        until(&mut watcher, "queuing-status COMMAND", &status);
        waiting.push(process);
    }
    for (number, message) in ["01", "02", "03", "04"].into_iter().enumerate() {
        script(
            &mut navigation,
            &[(&format!("send COMMAND_OUT {message} 0"), "NO_ERROR")],
        );
        let status = format!("NO_ERROR 0 3 64 destination {}", 3 - number);
        until(&mut watcher, "queuing-status COMMAND", &status);
    }
    let mut order = vec![0; 4];
    for (number, mut process) in waiting.into_iter().enumerate() {
        let reply = process.end();
        let message: usize = reply.trim_start_matches("NO_ERROR ").parse().expect("a message");
        order[message - 1] = number;
    }
    order
}

fn receivers_wait_in_the_order_of_arrival<B: Bench>() {
    assert_eq!(order_of_service::<B>("fifo"), [0, 1, 2, 3]);
}

fn receivers_wait_by_priority_if_the_port_says_so<B: Bench>() {
    assert_eq!(order_of_service::<B>("priority"), [1, 3, 2, 0]);
}

fn who_comes_later_does_not_overtake_who_waits<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = both(&bench, "fifo");
    let mut late = bench.process("navigation");
    send(&mut navigation, 1..=capacity::<B>());
    navigation.begin("send COMMAND_OUT aa -1");
    until(
        &mut late,
        "queuing-status COMMAND_OUT",
        "NO_ERROR 3 3 64 source 1",
    );
    script(&mut late, &[("send COMMAND_OUT bb 0", "NOT_AVAILABLE")]);
    script(&mut sensors, &[("receive COMMAND 0", "NO_ERROR 01")]);
    // Either the room is not taken yet, and is another's, or it is taken.
    script(&mut late, &[("send COMMAND_OUT bb 0", "NOT_AVAILABLE")]);
    assert_eq!(navigation.end(), "NO_ERROR");
}

fn the_status_counts_messages_and_waiting_processes<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = both(&bench, "fifo");
    for number in 0..=capacity::<B>() {
        let there = number.min(DEPTH);
        // The source's status is of its own host: of the queue itself, or of what waits for the way
        // to it.
        let here = if B::HELD_BACK == 0 { there } else { number - there };
        script(
            &mut navigation,
            &[(
                "queuing-status COMMAND_OUT",
                &format!("NO_ERROR {here} 3 64 source 0"),
            )],
        );
        script(
            &mut sensors,
            &[(
                "queuing-status COMMAND",
                &format!("NO_ERROR {there} 3 64 destination 0"),
            )],
        );
        navigation.ask("send COMMAND_OUT 01 0");
    }
}

fn clear_empties_the_queue_and_an_empty_one_too<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = both(&bench, "fifo");
    for _ in 0..3 {
        send(&mut navigation, 1..=DEPTH);
        script(
            &mut sensors,
            &[
                ("clear COMMAND", "NO_ERROR"),
                ("receive COMMAND 0", "NOT_AVAILABLE"),
                ("clear COMMAND", "NO_ERROR"),
            ],
        );
    }
}

fn clear_leaves_what_has_not_reached_the_queue<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = both(&bench, "fifo");
    send(&mut navigation, 1..=capacity::<B>());
    script(&mut sensors, &[("clear COMMAND", "NO_ERROR")]);
    receive(&mut sensors, DEPTH + 1..=capacity::<B>());
}

/// The channel `alarm`: a sender at `sensors`, receivers at `navigation` and `display`.
fn alarm<B: Bench>(bench: &B) -> [B::Process; 3] {
    let mut processes = ["sensors", "navigation", "display"].map(|name| bench.process(name));
    let [sensors, navigation, display] = &mut processes;
    sender(sensors, "ALARM_OUT");
    receiver(navigation, "ALARM", "fifo");
    receiver(display, "ALARM", "fifo");
    processes
}

fn a_message_after_an_overflow_is_delivered_with_invalid_config_once<B: Bench>() {
    let bench = B::new();
    let [mut sensors, mut navigation, _display] = alarm(&bench);
    for message in 1..=5 {
        script(
            &mut sensors,
            &[(&format!("send ALARM_OUT 0{message} -1"), "NO_ERROR")],
        );
    }
    script(
        &mut navigation,
        &[
            ("receive ALARM 0", "INVALID_CONFIG 01"),
            ("receive ALARM 0", "NO_ERROR 02"),
            ("receive ALARM 0", "NO_ERROR 03"),
            ("receive ALARM 0", "NOT_AVAILABLE"),
        ],
    );
    script(&mut sensors, &[("send ALARM_OUT 06 0", "NO_ERROR")]);
    script(&mut navigation, &[("receive ALARM 0", "NO_ERROR 06")]);
}

fn an_overflow_at_one_destination_costs_the_others_nothing<B: Bench>() {
    let bench = B::new();
    let [mut sensors, mut navigation, mut display] = alarm(&bench);
    for message in 1..=5 {
        script(
            &mut sensors,
            &[(&format!("send ALARM_OUT 0{message} 0"), "NO_ERROR")],
        );
        script(
            &mut display,
            &[("receive ALARM 0", &format!("NO_ERROR 0{message}"))],
        );
    }
    script(&mut navigation, &[("receive ALARM 0", "INVALID_CONFIG 01")]);
}

fn clear_forgets_an_overflow<B: Bench>() {
    let bench = B::new();
    let [mut sensors, mut navigation, _display] = alarm(&bench);
    for _ in 0..4 {
        sensors.ask("send ALARM_OUT 01 0");
    }
    script(&mut navigation, &[("clear ALARM", "NO_ERROR")]);
    script(&mut sensors, &[("send ALARM_OUT 02 0", "NO_ERROR")]);
    script(&mut navigation, &[("receive ALARM 0", "NO_ERROR 02")]);
}

fn a_channel_that_waits_takes_a_message_only_when_all_destinations_have_room<B: Bench>() {
    let bench = B::new();
    let mut processes = ["navigation", "sensors", "display"].map(|name| bench.process(name));
    let [navigation, sensors, display] = &mut processes;
    sender(navigation, "ALL_OUT");
    receiver(sensors, "ALL", "fifo");
    receiver(display, "ALL", "fifo");
    for message in 1..=3 {
        script(navigation, &[(&format!("send ALL_OUT 0{message} 0"), "NO_ERROR")]);
        script(sensors, &[("receive ALL 0", &format!("NO_ERROR 0{message}"))]);
    }
    script(navigation, &[("send ALL_OUT 04 0", "NOT_AVAILABLE")]);
    script(sensors, &[("receive ALL 0", "NOT_AVAILABLE")]);
    script(display, &[("receive ALL 0", "NO_ERROR 01")]);
    script(navigation, &[("send ALL_OUT 04 0", "NO_ERROR")]);
    script(sensors, &[("receive ALL 0", "NO_ERROR 04")]);
}
