//! The modes of a partition, as far as ports depend on them: Part 1, section 3.2.

use crate::{Bench, script};

crate::rules! {
    a_partition_begins_in_cold_start_and_becomes_normal_once
    a_warm_start_out_of_a_cold_start_is_invalid_mode
    a_restart_of_the_partition_forgets_creation_and_keeps_messages
    nothing_is_created_in_idle_mode
}

fn a_partition_begins_in_cold_start_and_becomes_normal_once<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    script(
        &mut sensors,
        &[
            ("partition-status", "NO_ERROR 1 ColdStart false"),
            ("set-mode normal", "NO_ERROR"),
            ("partition-status", "NO_ERROR 1 Normal false"),
            ("set-mode normal", "NO_ACTION"),
        ],
    );
}

fn a_warm_start_out_of_a_cold_start_is_invalid_mode<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    script(
        &mut sensors,
        &[
            ("set-mode warm", "INVALID_MODE"),
            ("set-mode normal", "NO_ERROR"),
            ("set-mode warm", "NO_ERROR"),
            ("partition-status", "NO_ERROR 1 WarmStart true"),
        ],
    );
}

fn a_restart_of_the_partition_forgets_creation_and_keeps_messages<B: Bench>() {
    let bench = B::new();
    let (mut navigation, mut sensors) = (bench.process("navigation"), bench.process("sensors"));
    let create = "create-queuing COMMAND 64 3 destination fifo";
    script(
        &mut navigation,
        &[("create-queuing COMMAND_OUT 64 3 source fifo", "NO_ERROR...")],
    );
    script(&mut sensors, &[(create, "NO_ERROR...")]);
    script(
        &mut navigation,
        &[
            ("send COMMAND_OUT 01 0", "NO_ERROR"),
            ("send COMMAND_OUT 02 0", "NO_ERROR"),
        ],
    );
    script(
        &mut sensors,
        &[
            ("receive COMMAND 0", "NO_ERROR 01"),
            ("set-mode normal", "NO_ERROR"),
            ("set-mode cold", "NO_ERROR"),
            ("queuing-id COMMAND", "INVALID_CONFIG"),
            (create, "NO_ERROR..."),
            ("receive COMMAND 0", "NO_ERROR 02"),
        ],
    );
}

fn nothing_is_created_in_idle_mode<B: Bench>() {
    let bench = B::new();
    let mut sensors = bench.process("sensors");
    script(
        &mut sensors,
        &[
            ("set-mode idle", "NO_ERROR"),
            ("create-sampling ATTITUDE_OUT 64 source 1", "INVALID_MODE"),
            ("create-queuing COMMAND 64 3 destination fifo", "INVALID_MODE"),
        ],
    );
}
