//! `busway bench interference` as a user runs it: real gateways, a real task on the receiver's
//! core.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use busway_bench::BenchError;
use busway_bench::hosts::Hosts;
use busway_bench::record::{Condition, Run};

const BUSWAY: &str = env!("CARGO_BIN_EXE_busway");

fn interference(name: &str, arguments: &[&str]) -> (Run, Output) {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new(BUSWAY)
        .args([
            "bench",
            "interference",
            "--rounds",
            "2",
            "--seconds",
            "0.2",
            "--interval",
            "1000",
        ])
        .args(arguments)
        .arg("--json")
        .arg(&file)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    (Run::load(&file).expect("the file that it wrote"), output)
}

fn condition<'r>(run: &'r Run, name: &str) -> &'r Condition {
    let found = run.conditions.iter().find(|condition| condition.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", run.conditions))
}

#[test]
fn interference_measures_every_kind_of_communication_and_none() {
    let (run, output) = interference("interference.json", &[]);
    assert_eq!(run.baseline.as_deref(), Some("none"));
    for technology in ["none", "sampling-memory", "sampling-tcp", "sampling-sockets"] {
        let row = run.rows.iter().find(|row| row.technology == technology);
        let row = row.unwrap_or_else(|| panic!("no {technology}; notes: {:?}", run.notes));
        let times = row.execution_ns.as_ref().expect("execution times");
        assert!(times.samples > 10 && times.min > 0, "{row:?}");
        assert!(
            times.recorder().is_some(),
            "the CDF is made from the histogram: {row:?}"
        );
        assert_eq!(row.by_round.iter().flatten().count(), 2, "{row:?}");
        assert!(row.ratio.is_some(), "{row:?}");
        assert_eq!((row.interval_ns, row.corrupt), (Some(1_000_000), 0), "{row:?}");
        assert_eq!(row.received > 0, technology != "none", "{row:?}");
        assert!(row.received <= row.sent, "{row:?}");
    }
    let table = String::from_utf8_lossy(&output.stdout);
    for kind in [
        "sampling-memory is one-sided",
        "sampling-tcp is two-sided",
        "sampling-sockets is sockets",
    ] {
        assert!(table.contains(kind), "{table}");
    }
    for name in ["pinning", "fifo", "network-steering"] {
        let condition = condition(&run, name);
        assert_ne!(condition.granted, condition.reason.is_some(), "{condition:?}");
    }
}

#[test]
fn hosts_in_one_network_are_not_steered_and_result_notes_it() {
    let (run, _) = interference("no-isolation.json", &["--technologies", "tcp", "--no-isolation"]);
    let steering = condition(&run, "network-steering");
    let reason = steering.reason.as_deref().unwrap_or_default();
    assert!(
        !steering.granted && reason.contains("share one network"),
        "{steering:?}"
    );
}

#[test]
fn interference_without_common_core_is_refused() {
    let output = Command::new(BUSWAY)
        .args(["bench", "interference", "--pin", "none"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--pin") && said.contains("such as 0,1"), "{said}");
}

#[test]
fn packets_of_host_are_steered_to_requested_cpu() {
    let hosts = match Hosts::isolated(&["a", "b"]) {
        Ok(hosts) => hosts,
        Err(BenchError::Needs(what)) => return eprintln!("skipped: needs {what}"),
        Err(error) => panic!("{error}"),
    };
    let host = &hosts.hosts[0];
    let mut steer = host.command(Path::new(BUSWAY)).unwrap();
    let output = steer.args(["bench-worker", r#"{"steer":0}"#]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if said.contains("CONFIG_RPS") {
        return eprintln!("skipped: needs CONFIG_RPS");
    }
    assert!(output.status.success(), "{said}");
    let mut look = host.command(Path::new("/bin/sh")).unwrap();
    let script = "mkdir /tmp/look && mount -t sysfs sysfs /tmp/look && cat /tmp/look/class/net/to-host-1/queues/rx-0/rps_cpus";
    let output = look.args(["-c", script]).output().unwrap();
    let mask = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = mask.trim().split(',').collect();
    let (last, before) = words.split_last().unwrap();
    assert_eq!(u32::from_str_radix(last, 16), Ok(1), "{output:?}");
    assert!(
        before.iter().all(|word| u32::from_str_radix(word, 16) == Ok(0)),
        "{mask}"
    );
}
