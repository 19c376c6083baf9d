//! The benchmark as its users start it: on two machines that know of each other only by their
//! network, and ended in the middle.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use busway_bench::hosts::{Host, Hosts};
use busway_bench::record::Run;
use busway_tests::rig::beside_the_test;
use busway_tests::skip::skipped;
use rustix::process::{Pid, Signal, kill_process};

fn busway() -> PathBuf {
    std::env::var_os("BUSWAY_BIN").map_or_else(|| beside_the_test("busway"), PathBuf::from)
}

fn bench(host: &Host, arguments: &[&str]) -> Child {
    spawn(host.command(&busway()).expect("the binary is there"), arguments)
}

fn spawn(mut command: Command, arguments: &[&str]) -> Child {
    command
        .arg("bench")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("busway starts")
}

fn end(mut child: Child) {
    let pid = Pid::from_raw(child.id() as i32).expect("a process has a number");
    let _ = kill_process(pid, Signal::INT);
    let status = child.wait().expect("it ends");
    assert!(status.success(), "Ctrl-C ends a follower cleanly: {status}");
}

fn two_machines() -> Option<(Hosts, Child)> {
    let hosts = match Hosts::isolated(&["near", "far"]) {
        Ok(hosts) => hosts,
        Err(why) => {
            skipped(&format!("isolated hosts ({why})"));
            return None;
        }
    };
    let mut follower = bench(&hosts.hosts[1], &["follower"]);
    await_follower(&mut follower);
    Some((hosts, follower))
}

fn await_follower(follower: &mut Child) -> String {
    let mut said = String::new();
    let output = follower.stdout.as_mut().expect("it is a pipe");
    BufReader::new(output)
        .read_line(&mut said)
        .expect("it says something");
    let place = said
        .strip_prefix("waiting for runs at ")
        .and_then(|rest| rest.split(';').next());
    place.unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[test]
fn two_machines_measure_several_runs_in_a_row() {
    let Some((hosts, follower)) = two_machines() else {
        return;
    };
    let there = hosts.address(1, 0).to_string();
    let near = &hosts.hosts[0];
    for experiment in ["latency", "throughput", "timeliness"] {
        let json = near.directory.join(format!("{experiment}.json"));
        let path = json.to_str().expect("made from text");
        let technologies = "tcp,udp,channel-tcp,sampling-tcp,queuing-tcp,unix";
        let arguments = [
            experiment,
            "--quick",
            "--sizes",
            "64,64KiB",
            "--follower",
            &there,
            "--technologies",
            technologies,
            "--json",
            path,
        ];
        let output = bench(near, &arguments).wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{experiment}: {said}");
        let run = Run::load(&json).expect("a whole result");
        assert!(run.follower.is_some());
        for technology in technologies.split(',').filter(|name| *name != "unix") {
            let rows: Vec<_> = run
                .rows
                .iter()
                .filter(|row| row.technology == technology)
                .collect();
            assert!(
                !rows.is_empty(),
                "{experiment} over {technology}: {:?}\n{said}",
                run.notes
            );
            for row in rows {
                assert!(row.received > 0 && row.corrupt == 0, "{row:?}");
                if experiment == "throughput" {
                    let load = row.receiver.as_ref().expect("the receiver counts too");
                    assert!(load.packets_received_per_message.is_some(), "{row:?}");
                }
            }
        }
        let notes = run.notes.join("\n");
        assert!(
            notes.contains("unix: skipped: needs both programs on one machine"),
            "{notes}"
        );
    }
    end(follower);
}

#[test]
fn stale_shared_window_does_not_affect_next_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let window = directory.path().join("window");
    let file = std::fs::File::create(&window).expect("a file");
    file.set_len(16 << 20).expect("it is as long as that");
    let window = window.to_str().expect("made from text");
    let here = || Command::new(busway());
    let mut follower = spawn(
        here(),
        &["follower", "--listen", "127.0.0.1:0", "--window", window],
    );
    let place = await_follower(&mut follower);
    let json = directory.path().join("result.json");
    let path = json.to_str().expect("made from text");
    // The later ones stay below the number of messages of the first.
    for seconds in ["1", "0.1", "0.1"] {
        let words = "latency -t sampling-memory -w spin -s 64 --rounds 1".split(' ');
        let more = [
            "--seconds",
            seconds,
            "--follower",
            &place,
            "--window",
            window,
            "--json",
            path,
        ];
        let arguments: Vec<&str> = words.chain(more).collect();
        let output = spawn(here(), &arguments).wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let run = Run::load(&json).expect("a whole result");
        let row = run.rows.first().unwrap_or_else(|| panic!("no row: {said}"));
        assert!(row.received > 0 && row.corrupt == 0, "{seconds} s: {row:?}");
    }
    end(follower);
}

fn wait_until_it_measures(run: &Child) {
    let path = format!("/proc/{}/net/dev", run.id());
    let sent_packets = || -> u64 {
        let table = std::fs::read_to_string(&path).expect("it runs");
        let interfaces = table.lines().filter_map(|line| line.split_once(':'));
        let beside_loopback = interfaces.filter(|(name, _)| name.trim() != "lo");
        let sent = beside_loopback.map(|(_, counts)| counts.split_whitespace().nth(9));
        sent.map(|packets| packets.and_then(|it| it.parse::<u64>().ok()).expect("a count"))
            .sum()
    };
    let give_up_at = Instant::now() + Duration::from_secs(15);
    while sent_packets() < 5000 {
        assert!(
            Instant::now() < give_up_at,
            "{} packets were sent",
            sent_packets()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn cut_cable_is_reported_and_long_run_continues() {
    let Some((hosts, follower)) = two_machines() else {
        return;
    };
    let near = &hosts.hosts[0];
    let json = near.directory.join("long.json");
    let there = hosts.address(1, 0).to_string();
    let path = json.to_str().expect("made from text");
    let arguments = [
        "jitter",
        "--duration",
        "20s",
        "--follower",
        &there,
        "--technologies",
        "udp",
        "--json",
        path,
    ];
    let run = bench(near, &arguments);
    wait_until_it_measures(&run);
    hosts.set_cable(0, 1, false).expect("there is a cable");
    std::thread::sleep(Duration::from_secs(3));
    hosts.set_cable(0, 1, true).expect("there is a cable");
    let output = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let run = Run::load(&json).expect("a whole result");
    let row = &run.rows[0];
    // Whether a message was under way in that moment, and so was lost, is chance: a host without a
    // route refuses to send.
    let out = row.interruptions.iter().map(|it| it.lasted_s).sum::<f64>();
    assert!(out > 0.0 && row.received > 0, "{row:?}\n{said}");
    assert!(out < run.duration_s, "it did not go on: {row:?}\n{said}");
    end(follower);
}

fn cut_run(json: &Path, time: Duration) -> (Run, u32) {
    let arguments = [
        "bench",
        "latency",
        "--no-isolation",
        "--seconds",
        "0.3",
        "--rounds",
        "100",
    ];
    let mut child = Command::new(busway())
        .args(arguments)
        .args([
            "--technologies",
            "unix,iceoryx2,queuing-memory,sampling-tcp",
            "--sizes",
            "64",
        ])
        .arg("--json")
        .arg(json)
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("busway starts");
    let pid = child.id();
    std::thread::sleep(time);
    kill_process(Pid::from_raw(pid as i32).expect("a number"), Signal::INT).expect("it runs");
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}");
    (Run::load(json).expect("a whole result"), pid)
}

#[test]
fn ctrl_c_keeps_results_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("there is room");
    let json = directory.path().join("cut.json");
    let (mut run, mut pid) = cut_run(&json, Duration::from_secs(5));
    if run.rows.is_empty() {
        // On a busy machine nothing was measured until then.
        (run, pid) = cut_run(&json, Duration::from_secs(30));
    }
    assert!(run.interrupted && !run.rows.is_empty(), "{:?}", run.notes);
    assert!(
        !is_anything_left(pid),
        "hosts, workers or gateways of {pid} are left"
    );
}

fn is_anything_left(pid: u32) -> bool {
    let of_it = format!("busway-{pid}-");
    let names = |path: &str| {
        let entries = std::fs::read_dir(Path::new(path)).expect("a directory");
        entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let is_file = |path: &PathBuf| path.to_string_lossy().contains(&of_it);
    let is_program = |path: &PathBuf| {
        std::fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&of_it))
    };
    names("/dev/shm").iter().any(is_file) || names("/proc").iter().any(is_program)
}
