//! Partitions written with the macro of `a653rs`, on two hosts.

use busway_tests::program::Program;
use busway_tests::rig::beside_the_test;
use busway_tests::{Bus, Rig, eventually, on_each_bus};

on_each_bus!(a653rs_partitions_exchange_messages_over_both_kinds_of_ports);

const MORE: &str = r#"
[[partition]]
name = "ping"
host = "a"
ports = [
    { name = "PING", kind = "sampling", direction = "source", max_size = 8 },
    { name = "PONG", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "60s" },
    { name = "ASK", kind = "queuing", direction = "source", max_size = 8, max_messages = 4 },
    { name = "ANSWER", kind = "queuing", direction = "destination", max_size = 8, max_messages = 4 },
]
[[partition]]
name = "pong"
host = "b"
ports = [
    { name = "PING", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "60s" },
    { name = "PONG", kind = "sampling", direction = "source", max_size = 8 },
    { name = "ASK", kind = "queuing", direction = "destination", max_size = 8, max_messages = 4 },
    { name = "ANSWER", kind = "queuing", direction = "source", max_size = 8, max_messages = 4 },
]
[[channel]]
source = "ping/PING"
destinations = ["pong/PING"]
[[channel]]
source = "pong/PONG"
destinations = ["ping/PONG"]
[[channel]]
source = "ping/ASK"
destinations = ["pong/ASK"]
[[channel]]
source = "pong/ANSWER"
destinations = ["ping/ANSWER"]
"#;

fn start(rig: &Rig, host: usize, partition: &str) -> Program {
    let place = &rig.hosts.hosts[host];
    let mut command = place
        .command(&beside_the_test("busway-test-a653rs"))
        .expect("the partitions' program");
    command.arg(partition).env("BUSWAY_SYSTEM", &rig.system);
    command
        .env("BUSWAY_PARTITION", partition)
        .env_remove("BUSWAY_STORE");
    Program::start(command, partition)
}

fn a653rs_partitions_exchange_messages_over_both_kinds_of_ports(bus: Bus) {
    let rig = Rig::pair_with(bus, MORE);
    let _pong = start(&rig, 1, "pong");
    let mut ping = start(&rig, 0, "ping");
    let status = eventually("all numbers come back", || ping.ended());
    assert!(status.success(), "{status}: {}", ping.log());
    let last = ping.last_line().expect("it says what came back");
    assert!(last.starts_with("100 numbers came back over "), "{last}");
}
