//! `busway demo` as a user runs it: real gateways, real programs, both buses.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

fn start(bus: &str, seconds: u32) -> Child {
    Command::new(env!("CARGO_BIN_EXE_busway"))
        .args(["demo", "--json", "--bus", bus, "--seconds", &seconds.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the demonstration starts")
}

/// The demonstration's files in shared memory carry its process id.
fn left_behind(id: u32) -> Vec<String> {
    let names = std::fs::read_dir("/dev/shm").expect("/dev/shm").flatten();
    names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&format!("busway-{id}-")) || name.starts_with(&format!("bw{id}-")))
        .collect()
}

fn children(id: u32) -> Vec<(i32, String)> {
    let list = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    list.split_ascii_whitespace()
        .map(|child| {
            let words = std::fs::read(Path::new("/proc").join(child).join("cmdline")).unwrap_or_default();
            (
                child.parse().expect("a process id"),
                String::from_utf8_lossy(&words).replace('\0', " "),
            )
        })
        .collect()
}

/// Waits until the demonstration has a child whose command line contains `what`.
fn child(id: u32, what: &str) -> i32 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some((child, _)) = children(id).into_iter().find(|(_, words)| words.contains(what)) {
            return child;
        }
        assert!(
            Instant::now() < deadline,
            "no child with {what}: {:?}",
            children(id)
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(id: i32, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &id.to_string()])
        .status()
        .expect("kill runs");
    assert!(status.success());
}

fn carries_both_streams(bus: &str) {
    let demo = start(bus, 1);
    let id = demo.id();
    let Output {
        status,
        stdout,
        stderr,
    } = demo.wait_with_output().expect("it ends");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let report: Value = serde_json::from_slice(&stdout).expect("exactly one JSON object");
    assert_eq!(report["bus"], bus);
    assert_eq!(report["gateways"].as_array().map(Vec::len), Some(2));
    let sizes: Vec<u64> = report["streams"]
        .as_array()
        .expect("streams")
        .iter()
        .map(|stream| {
            let count = |name: &str| {
                stream[name]
                    .as_u64()
                    .unwrap_or_else(|| panic!("{name} in {stream}"))
            };
            assert!(count("received") > 0, "{stream}");
            assert_eq!(count("received") + count("lost"), count("sent"), "{stream}");
            assert_eq!((count("corrupt"), count("out_of_order")), (0, 0), "{stream}");
            assert!(stream["latency_ns"]["p99_9"].as_u64() >= stream["latency_ns"]["p50"].as_u64());
            count("payload_bytes")
        })
        .collect();
    assert_eq!(sizes, [64, 1 << 20]);
    assert_eq!(left_behind(id), Vec::<String>::new());
}

#[test]
fn memory_carries_both_streams_whole_and_leaves_nothing_behind() {
    carries_both_streams("memory");
}

#[test]
fn tcp_carries_both_streams_whole_and_leaves_nothing_behind() {
    carries_both_streams("tcp");
}

#[test]
fn ctrl_c_ends_demo_children_and_removes_files() {
    let demo = start("memory", 60);
    let id = demo.id();
    child(id, "publish");
    let running = children(id);
    signal(id as i32, "-INT");
    let output = demo.wait_with_output().expect("it ends");
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for (child, words) in running {
        assert!(
            !Path::new("/proc").join(child.to_string()).exists(),
            "still there: {words}"
        );
    }
    assert_eq!(left_behind(id), Vec::<String>::new());
}

#[test]
fn dead_gateway_ends_demo_with_its_name() {
    let demo = start("tcp", 60);
    let id = demo.id();
    signal(child(id, "--host control"), "-KILL");
    let output = demo.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("gateway control ended early"), "{stderr}");
    assert_eq!(left_behind(id), Vec::<String>::new());
}
