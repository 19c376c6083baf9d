//! Two partitions written with the macro of `a653rs`, each a Linux process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SYSTEM: &str = r#"
[host.local]

[[partition]]
name = "ping"
ports = [
    { name = "PING", kind = "sampling", direction = "source", max_size = 8 },
    { name = "PONG", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "60s" },
    { name = "ASK", kind = "queuing", direction = "source", max_size = 8, max_messages = 4 },
    { name = "ANSWER", kind = "queuing", direction = "destination", max_size = 8, max_messages = 4 },
]

[[partition]]
name = "pong"
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

/// Path of the example, which `cargo test` builds.
fn ping_pong() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test.parent().and_then(Path::parent).expect("a build folder");
    folder.join("examples/ping_pong")
}

#[test]
fn two_partitions_of_a653rs_ping_pong_and_the_one_that_goes_idle_ends() {
    let place = tempfile::tempdir_in("/dev/shm").expect("make a directory");
    let file = place.path().join("system.toml");
    std::fs::write(&file, SYSTEM).expect("write the system file");
    let partition = |name: &str| {
        let mut command = Command::new(ping_pong());
        command.arg(name).env("BUSWAY_SYSTEM", &file);
        command.env("BUSWAY_PARTITION", name);
        command.env("BUSWAY_STORE", place.path().join("store"));
        command.stdout(Stdio::piped());
        command
    };
    let mut pong = partition("pong").spawn().expect("start pong");
    let ping = partition("ping").output().expect("run ping");
    pong.kill().expect("end pong");
    pong.wait().expect("wait for pong");
    assert!(ping.status.success(), "{ping:?}");
    let said = String::from_utf8_lossy(&ping.stdout);
    for kind in ["sampling", "queuing"] {
        assert!(
            said.contains(&format!("100 numbers came back over {kind} ports\n")),
            "{said}"
        );
    }
}

#[test]
fn a_partition_that_the_system_does_not_have_does_not_run() {
    let output = Command::new(ping_pong())
        .arg("ping")
        .env_remove("BUSWAY_SYSTEM")
        .output()
        .expect("run ping");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("busway-apex: no system file is named"), "{said}");
}
