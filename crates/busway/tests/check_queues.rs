//! What `busway check` says of queuing channels.

use std::path::PathBuf;
use std::process::Command;

#[test]
fn check_says_who_moves_a_queue_over_memory_and_why() {
    let check = |name: &str, buses: &str, size: u32| {
        let kind = format!("kind = \"queuing\", max_size = {size}, max_messages = 4");
        let content = format!(
            r#"
[host.a]
[host.b]
[[link]]
hosts = ["a", "b"]
buses = [{buses}]
memory = {{ path = "/dev/shm/busway-check", length = "1MiB" }}
tcp.a = {{ listen = "127.0.0.1:7400" }}
[[partition]]
name = "p"
host = "a"
ports = [{{ name = "OUT", direction = "source", {kind} }}]
[[partition]]
name = "q"
host = "b"
ports = [{{ name = "IN", direction = "destination", {kind} }}]
[[channel]]
source = "p/OUT"
destinations = ["q/IN"]
"#
        );
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, content).expect("the build's folder for temporary files can be written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_busway"));
        let output = command
            .arg("check")
            .arg(&path)
            .output()
            .expect("the program starts");
        String::from_utf8(output.stdout).expect("output is UTF-8")
    };
    for (name, buses, size, expected) in [
        (
            "shared.toml",
            "\"memory\"",
            64,
            "sent by the source's partition, in memory that both hosts share (memory), ",
        ),
        (
            "two-buses.toml",
            "\"memory\", \"tcp\"",
            64,
            "moved by the gateways (memory, since only they can move the messages to another bus), ",
        ),
        (
            "long.toml",
            "\"memory\"",
            300_000,
            "moved by the gateways (memory, for want of room in the window or of coherent memory), ",
        ),
    ] {
        let said = check(name, buses, size);
        assert!(said.contains(expected), "{expected:?} is not in\n{said}");
    }
}
