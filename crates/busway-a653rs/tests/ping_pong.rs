//! Two partitions written with the macro of `a653rs`, each a Linux process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SYSTEM: &str = r#"
[host.local]

[[partition]]
name = "ping"
ports = [
    { name = "PING", kind = "sampling", direction = "source", max_size = 8 },
    { name = "PONG", kind = "queuing", direction = "destination", max_size = 8, max_messages = 4 },
]

[[partition]]
name = "pong"
ports = [
    { name = "PING", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "60s" },
    { name = "PONG", kind = "queuing", direction = "source", max_size = 8, max_messages = 4 },
]

[[channel]]
source = "ping/PING"
destinations = ["pong/PING"]

[[channel]]
source = "pong/PONG"
destinations = ["ping/PONG"]
"#;

/// Path of an example of this crate, which `cargo test` builds.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test.parent().and_then(Path::parent).expect("a build folder");
    folder.join("examples").join(name)
}

#[test]
fn two_partitions_of_a653rs_ping_pong_and_the_one_that_goes_idle_ends() {
    let place = tempfile::tempdir_in("/dev/shm").expect("make a directory");
    let file = place.path().join("system.toml");
    std::fs::write(&file, SYSTEM).expect("write the system file");
    let partition = |name: &str| {
        let mut command = Command::new(example(name));
        command.env("BUSWAY_SYSTEM", &file).env("BUSWAY_PARTITION", name);
        command.env("BUSWAY_STORE", place.path().join("store"));
        command.stdout(Stdio::piped());
        command
    };
    let mut pong = partition("pong").spawn().expect("start pong");
    let ping = partition("ping").output().expect("run ping");
    pong.kill().expect("end pong");
    pong.wait().expect("wait for pong");
    assert!(ping.status.success(), "{ping:?}");
    assert_eq!(String::from_utf8_lossy(&ping.stdout), "100 numbers came back\n");
}

#[test]
fn a_partition_that_the_system_does_not_have_does_not_run() {
    let output = Command::new(example("ping"))
        .env_remove("BUSWAY_SYSTEM")
        .output()
        .expect("run ping");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("busway-apex: no system file is named"), "{said}");
}
