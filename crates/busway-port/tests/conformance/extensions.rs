//! Sampling port extensions: Part 2.

use crate::sampling::{destination, source};
use crate::{Bench, HOUR_NS, Process, script, until};

crate::rules! {
    the_extensions_know_no_identifier_that_was_not_created
    the_extensions_read_no_source_port
    the_extensions_find_a_port_without_a_channel_empty
    read_updated_returns_each_message_once_a_destination
    a_plain_read_consumes_too
    consumed_is_known_to_all_processes_of_the_partition
    read_conditional_returns_what_is_younger_than_the_reference
    read_conditional_of_an_empty_port_has_no_time_stamp
    read_conditional_checks_direction_before_reference
    the_current_status_shows_age_and_consumption
}

fn both<B: Bench>(bench: &B) -> (B::Process, B::Process) {
    let (mut sensors, mut navigation) = (bench.process("sensors"), bench.process("navigation"));
    source(&mut sensors);
    destination(&mut navigation);
    (sensors, navigation)
}

fn the_extensions_know_no_identifier_that_was_not_created<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    // 1 is ATTITUDE_OUT's, which is configured and not created.
    for id in ["1", "0", "-1", "99", "2147483647", "-2147483648"] {
        script(
            &mut sensors,
            &[
                (&format!("read-updated #{id}"), "INVALID_PARAM"),
                (&format!("read-conditional #{id} -5"), "INVALID_PARAM"),
                (&format!("current-status #{id}"), "INVALID_PARAM"),
            ],
        );
    }
}

fn the_extensions_read_no_source_port<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    source(&mut sensors);
    script(
        &mut sensors,
        &[
            ("read-updated ATTITUDE_OUT", "INVALID_MODE"),
            ("read-conditional ATTITUDE_OUT 0", "INVALID_MODE"),
        ],
    );
}

fn the_extensions_find_a_port_without_a_channel_empty<B: Bench>() {
    let bench = B::new();
    let mut navigation = bench.process("navigation");
    script(
        &mut navigation,
        &[
            ("create-sampling LOOSE 64 destination 1", "NO_ERROR..."),
            ("read-updated LOOSE", "NO_ACTION EmptyPort -"),
            ("read-conditional LOOSE 0", "NO_ACTION 0 -"),
        ],
    );
}

fn read_updated_returns_each_message_once_a_destination<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = both(&bench);
    let mut display = bench.process("display");
    destination(&mut display);
    script(
        &mut navigation,
        &[("read-updated ATTITUDE", "NO_ACTION EmptyPort -")],
    );
    for message in ["01", "02"] {
        script(
            &mut sensors,
            &[(&format!("write ATTITUDE_OUT {message}"), "NO_ERROR")],
        );
        for process in [&mut navigation, &mut display] {
            script(
                process,
                &[
                    ("read-updated ATTITUDE", &format!("NO_ERROR NewMessage {message}")),
                    ("read-updated ATTITUDE", "NO_ACTION ConsumedMessage -"),
                ],
            );
        }
    }
}

fn a_plain_read_consumes_too<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = both(&bench);
    script(&mut sensors, &[("write ATTITUDE_OUT 01", "NO_ERROR")]);
    script(
        &mut navigation,
        &[
            ("read ATTITUDE", "NO_ERROR Valid 01"),
            ("read-updated ATTITUDE", "NO_ACTION ConsumedMessage -"),
            ("read ATTITUDE", "NO_ERROR Valid 01"),
        ],
    );
}

fn consumed_is_known_to_all_processes_of_the_partition<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = both(&bench);
    let mut second = bench.process("navigation");
    script(&mut sensors, &[("write ATTITUDE_OUT 01", "NO_ERROR")]);
    script(
        &mut second,
        &[("read-updated ATTITUDE", "NO_ERROR NewMessage 01")],
    );
    script(
        &mut navigation,
        &[("read-updated ATTITUDE", "NO_ACTION ConsumedMessage -")],
    );
}

fn read_conditional_returns_what_is_younger_than_the_reference<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = both(&bench);
    let time = |reply: String| -> i64 {
        let stamp = reply.split(' ').nth(1).expect("a time");
        stamp.parse().expect("a number")
    };
    let before = time(navigation.ask("time"));
    script(&mut sensors, &[("write ATTITUDE_OUT 01", "NO_ERROR")]);
    let after = time(navigation.ask("time"));
    let before = before - B::STAMP_ERROR_NS;
    let reply = navigation.ask(&format!("read-conditional ATTITUDE {}", before - 1));
    assert!(reply.starts_with("NO_ERROR") && reply.ends_with(" 01"), "{reply}");
    let stamp = time(reply);
    assert!((before..=after).contains(&stamp), "{before} {stamp} {after}");
    script(
        &mut navigation,
        &[
            (
                &format!("read-conditional ATTITUDE {stamp}"),
                &format!("NO_ACTION {stamp} -"),
            ),
            (
                &format!("read-conditional ATTITUDE {}", stamp - 1),
                &format!("NO_ERROR {stamp} 01"),
            ),
        ],
    );
}

fn read_conditional_of_an_empty_port_has_no_time_stamp<B: Bench>() {
    let bench = B::new();
    let (_, mut navigation) = both(&bench);
    script(
        &mut navigation,
        &[("read-conditional ATTITUDE 0", "NO_ACTION 0 -")],
    );
}

fn read_conditional_checks_direction_before_reference<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = both(&bench);
    script(
        &mut sensors,
        &[("read-conditional ATTITUDE_OUT -1", "INVALID_MODE")],
    );
    script(
        &mut navigation,
        &[("read-conditional ATTITUDE -1", "INVALID_PARAM")],
    );
}

fn the_current_status_shows_age_and_consumption<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = both(&bench);
    let mut display = bench.process("display");
    script(
        &mut display,
        &[("create-sampling ATTITUDE 64 destination 1000000", "NO_ERROR...")],
    );
    let head = format!("NO_ERROR {HOUR_NS}");
    let empty = format!("{head} 0 64 destination Stale EmptyPort");
    script(&mut navigation, &[("current-status ATTITUDE", &empty)]);
    script(&mut sensors, &[("write ATTITUDE_OUT 01", "NO_ERROR")]);
    let reply = navigation.ask("current-status ATTITUDE");
    assert!(
        reply.starts_with(&head) && reply.ends_with(" 64 destination Fresh NewMessage"),
        "{reply}"
    );
    let stamp = reply.split(' ').nth(2).expect("a time");
    script(
        &mut navigation,
        &[
            ("read ATTITUDE", "NO_ERROR Valid 01"),
            (
                "current-status ATTITUDE",
                &format!("{head} {stamp} 64 destination Fresh ConsumedMessage"),
            ),
        ],
    );
    let stale = format!("NO_ERROR 1000000 {stamp} 64 destination Stale NewMessage");
    until(&mut display, "current-status ATTITUDE", &stale);
}
