//! Sampling ports: Part 1, section 3.6.2.1.

use crate::{Bench, HOUR_NS, Process, script, until};

crate::rules! {
    create_returns_an_identifier_by_which_the_name_is_found
    create_of_an_unknown_name_is_invalid_config_in_every_mode
    create_again_is_no_action_even_with_other_parameters_and_in_normal_mode
    create_with_another_size_or_direction_or_no_period_is_invalid_config_before_the_mode_is_looked_at
    create_in_normal_mode_is_invalid_mode
    a_queuing_port_is_no_sampling_port
    an_identifier_that_was_not_created_is_invalid_param_everywhere
    write_checks_the_length_before_the_direction
    read_of_a_source_port_is_invalid_mode
    read_of_an_empty_port_is_no_action_and_leaves_it_invalid
    read_returns_the_latest_message_again_and_again
    a_message_older_than_the_refresh_period_is_returned_and_invalid
    the_refresh_period_is_that_of_each_destination
    all_destinations_of_a_channel_get_the_message_the_own_partition_included
    messages_of_every_length_up_to_the_maximum_arrive
    a_port_without_a_channel_takes_messages_and_stays_empty
}

pub(crate) fn source<P: Process>(process: &mut P) {
    script(
        process,
        &[("create-sampling ATTITUDE_OUT 64 source 1", "NO_ERROR...")],
    );
}

pub(crate) fn destination<P: Process>(process: &mut P) {
    let create = format!("create-sampling ATTITUDE 64 destination {HOUR_NS}");
    script(process, &[(&create, "NO_ERROR...")]);
}

fn create_returns_an_identifier_by_which_the_name_is_found<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    script(&mut sensors, &[("sampling-id ATTITUDE_OUT", "INVALID_CONFIG")]);
    let created = sensors.ask("create-sampling ATTITUDE_OUT 64 source 1");
    script(&mut sensors, &[("sampling-id ATTITUDE_OUT", &created)]);
    let id = created.strip_prefix("NO_ERROR ").expect("created");
    script(
        &mut sensors,
        &[
            (&format!("write #{id} 01"), "NO_ERROR"),
            ("sampling-status ATTITUDE_OUT", "NO_ERROR 1 64 source Invalid"),
        ],
    );
}

fn create_of_an_unknown_name_is_invalid_config_in_every_mode<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    script(
        &mut sensors,
        &[
            ("create-sampling NOWHERE 64 source 1", "INVALID_CONFIG"),
            ("set-mode normal", "NO_ERROR"),
            ("create-sampling NOWHERE 64 source 1", "INVALID_CONFIG"),
        ],
    );
}

fn create_again_is_no_action_even_with_other_parameters_and_in_normal_mode<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    source(&mut sensors);
    script(
        &mut sensors,
        &[
            ("create-sampling ATTITUDE_OUT 64 source 1", "NO_ACTION"),
            ("create-sampling ATTITUDE_OUT 1 destination 0", "NO_ACTION"),
            ("set-mode normal", "NO_ERROR"),
            ("create-sampling ATTITUDE_OUT 64 source 1", "NO_ACTION"),
        ],
    );
}

fn create_with_another_size_or_direction_or_no_period_is_invalid_config_before_the_mode_is_looked_at<
    B: Bench,
>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    for _ in 0..2 {
        script(
            &mut sensors,
            &[
                ("create-sampling ATTITUDE_OUT 63 source 1", "INVALID_CONFIG"),
                ("create-sampling ATTITUDE_OUT 0 source 1", "INVALID_CONFIG"),
                ("create-sampling ATTITUDE_OUT 64 destination 1", "INVALID_CONFIG"),
                ("create-sampling ATTITUDE_OUT 64 source 0", "INVALID_CONFIG"),
                ("create-sampling ATTITUDE_OUT 64 source -1", "INVALID_CONFIG"),
            ],
        );
        sensors.ask("set-mode normal");
    }
}

fn create_in_normal_mode_is_invalid_mode<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    script(
        &mut sensors,
        &[
            ("set-mode normal", "NO_ERROR"),
            ("create-sampling ATTITUDE_OUT 64 source 1", "INVALID_MODE"),
            ("sampling-id ATTITUDE_OUT", "INVALID_CONFIG"),
        ],
    );
}

fn a_queuing_port_is_no_sampling_port<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    let created = sensors.ask("create-queuing ALARM_OUT 64 3 source fifo");
    let id = created.strip_prefix("NO_ERROR ").expect("created");
    script(
        &mut sensors,
        &[
            ("create-sampling ALARM_OUT 64 source 1", "INVALID_CONFIG"),
            ("sampling-id ALARM_OUT", "INVALID_CONFIG"),
            (&format!("write #{id} 01"), "INVALID_PARAM"),
        ],
    );
}

fn an_identifier_that_was_not_created_is_invalid_param_everywhere<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    // 1 is ATTITUDE_OUT's, which is configured and not created.
    for id in ["1", "0", "-1", "99", "2147483647", "-2147483648"] {
        script(
            &mut sensors,
            &[
                (&format!("write #{id} -"), "INVALID_PARAM"),
                (&format!("read #{id}"), "INVALID_PARAM"),
                (&format!("sampling-status #{id}"), "INVALID_PARAM"),
            ],
        );
    }
}

fn write_checks_the_length_before_the_direction<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    source(&mut sensors);
    let mut navigation = bench.process("navigation");
    destination(&mut navigation);
    let too_long = "00".repeat(65);
    script(
        &mut sensors,
        &[
            (&format!("write ATTITUDE_OUT {too_long}"), "INVALID_CONFIG"),
            ("write ATTITUDE_OUT -", "INVALID_PARAM"),
        ],
    );
    script(
        &mut navigation,
        &[
            (&format!("write ATTITUDE {too_long}"), "INVALID_CONFIG"),
            ("write ATTITUDE -", "INVALID_PARAM"),
            ("write ATTITUDE 01", "INVALID_MODE"),
            ("read ATTITUDE", "NO_ACTION"),
        ],
    );
}

fn read_of_a_source_port_is_invalid_mode<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    source(&mut sensors);
    script(&mut sensors, &[("read ATTITUDE_OUT", "INVALID_MODE")]);
}

fn read_of_an_empty_port_is_no_action_and_leaves_it_invalid<B: Bench>() {
    let bench = B::new();
    let mut navigation = bench.process("navigation");
    destination(&mut navigation);
    let status = format!("NO_ERROR {HOUR_NS} 64 destination Invalid");
    script(
        &mut navigation,
        &[
            ("read ATTITUDE", "NO_ACTION"),
            ("sampling-status ATTITUDE", &status),
        ],
    );
}

fn read_returns_the_latest_message_again_and_again<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = (bench.process("sensors"), bench.process("navigation"));
    source(&mut sensors);
    destination(&mut navigation);
    let status = format!("NO_ERROR {HOUR_NS} 64 destination Valid");
    for message in ["01", "0203", "ff"] {
        script(&mut sensors, &[("write ATTITUDE_OUT 77", "NO_ERROR")]);
        script(
            &mut sensors,
            &[(&format!("write ATTITUDE_OUT {message}"), "NO_ERROR")],
        );
        let expected = format!("NO_ERROR Valid {message}");
        script(
            &mut navigation,
            &[
                ("read ATTITUDE", expected.as_str()),
                ("read ATTITUDE", expected.as_str()),
                ("sampling-status ATTITUDE", status.as_str()),
            ],
        );
    }
}

fn a_message_older_than_the_refresh_period_is_returned_and_invalid<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = (bench.process("sensors"), bench.process("navigation"));
    source(&mut sensors);
    script(
        &mut navigation,
        &[("create-sampling ATTITUDE 64 destination 1000000", "NO_ERROR...")],
    );
    script(&mut sensors, &[("write ATTITUDE_OUT 05", "NO_ERROR")]);
    until(&mut navigation, "read ATTITUDE", "NO_ERROR Invalid 05");
    script(
        &mut navigation,
        &[
            (
                "sampling-status ATTITUDE",
                "NO_ERROR 1000000 64 destination Invalid",
            ),
            ("read ATTITUDE", "NO_ERROR Invalid 05"),
        ],
    );
}

fn the_refresh_period_is_that_of_each_destination<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = (bench.process("sensors"), bench.process("navigation"));
    let mut display = bench.process("display");
    source(&mut sensors);
    destination(&mut navigation);
    script(
        &mut display,
        &[("create-sampling ATTITUDE 64 destination 1", "NO_ERROR...")],
    );
    script(&mut sensors, &[("write ATTITUDE_OUT 06", "NO_ERROR")]);
    script(&mut display, &[("read ATTITUDE", "NO_ERROR Invalid 06")]);
    script(&mut navigation, &[("read ATTITUDE", "NO_ERROR Valid 06")]);
}

fn all_destinations_of_a_channel_get_the_message_the_own_partition_included<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = (bench.process("sensors"), bench.process("navigation"));
    let mut display = bench.process("display");
    source(&mut sensors);
    destination(&mut navigation);
    destination(&mut display);
    let create = format!("create-sampling ATTITUDE_BACK 64 destination {HOUR_NS}");
    script(
        &mut sensors,
        &[
            (&create, "NO_ERROR..."),
            ("write ATTITUDE_OUT 0708", "NO_ERROR"),
            ("read ATTITUDE_BACK", "NO_ERROR Valid 0708"),
        ],
    );
    for process in [&mut navigation, &mut display] {
        script(process, &[("read ATTITUDE", "NO_ERROR Valid 0708")]);
    }
}

fn messages_of_every_length_up_to_the_maximum_arrive<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = (bench.process("sensors"), bench.process("navigation"));
    source(&mut sensors);
    destination(&mut navigation);
    for length in 1..=64_usize {
        let message: String = (0..length)
            .map(|index| format!("{:02x}", index * 3 + length))
            .collect();
        script(
            &mut sensors,
            &[(&format!("write ATTITUDE_OUT {message}"), "NO_ERROR")],
        );
        script(
            &mut navigation,
            &[("read ATTITUDE", &format!("NO_ERROR Valid {message}"))],
        );
    }
}

fn a_port_without_a_channel_takes_messages_and_stays_empty<B: Bench>() {
    let bench = B::new();
    let (mut sensors, mut navigation) = (bench.process("sensors"), bench.process("navigation"));
    script(
        &mut sensors,
        &[
            ("create-sampling LOOSE_OUT 64 source 1", "NO_ERROR..."),
            ("write LOOSE_OUT 01", "NO_ERROR"),
        ],
    );
    script(
        &mut navigation,
        &[
            ("create-sampling LOOSE 64 destination 1", "NO_ERROR..."),
            ("read LOOSE", "NO_ACTION"),
            ("create-queuing LOOSE_QUEUE 64 3 destination fifo", "NO_ERROR..."),
            ("receive LOOSE_QUEUE 0", "NOT_AVAILABLE"),
        ],
    );
}
