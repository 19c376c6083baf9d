//! `busway bench` over gateways as a user runs it: the experiments and options of all others.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use busway_bench::record::{Row, Run};

const BUSWAY: &str = env!("CARGO_BIN_EXE_busway");

fn bench(name: &str, arguments: &str) -> Run {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new(BUSWAY)
        .arg("bench")
        .args(arguments.split(' '))
        .args(["--no-isolation", "--rounds", "1"])
        .arg("--json")
        .arg(&file)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{arguments}: {output:?}");
    Run::load(&file).expect("the file that it wrote")
}

fn row<'r>(run: &'r Run, technology: &str, mode: &str) -> &'r Row {
    let is_it = |row: &&Row| row.technology == technology && row.mode.as_deref().unwrap_or("") == mode;
    let found = run.rows.iter().find(is_it);
    found.unwrap_or_else(|| panic!("no {technology} {mode}: {:?}", run.notes))
}

#[test]
fn gateway_command_measures_every_mode_beside_its_floor() {
    let run = bench(
        "gateway.json",
        "gateway --quick --seconds 0.2 --sizes 4KiB --transports memory,bare-copy,iceoryx2-hop",
    );
    let trips = row(&run, "gateway-memory", "ping-pong");
    assert!(
        trips.rtt_ns.is_some() && trips.ratio_to_floor.is_some(),
        "{trips:?}"
    );
    assert_eq!(
        (trips.lost, trips.corrupt, trips.queue_depth),
        (0, 0, Some(2)),
        "{trips:?}"
    );
    let stream = row(&run, "gateway-memory", "lossless");
    assert!(
        stream.ratio_to_floor.is_some() && stream.bytes_per_s.is_some(),
        "{stream:?}"
    );
    assert_eq!(
        (stream.lost, stream.corrupt, stream.queue_depth),
        (0, 0, Some(256)),
        "{stream:?}"
    );
    let overwriting = row(&run, "gateway-memory", "overwriting");
    assert_eq!(
        overwriting.sent,
        overwriting.received + overwriting.lost,
        "{overwriting:?}"
    );
    let idle = row(&run, "gateway-memory", "idle");
    for row in [trips, stream, overwriting, idle] {
        for load in [&row.sender, &row.receiver] {
            let percent = load.as_ref().and_then(|load| load.gateway_percent);
            assert!(percent.is_some(), "{row:?}");
        }
    }
    assert_eq!(row(&run, "sum-of-hops-memory", "ping-pong").by_round.len(), 1);
}

#[test]
fn gateways_are_measured_by_other_experiments_and_with_a_follower() {
    let run = bench(
        "latency.json",
        "latency --seconds 0.2 -t gateway-tcp,tcp -w event -s 64 --baseline tcp",
    );
    let trips = row(&run, "gateway-tcp", "");
    assert!(
        trips.received > 0 && trips.corrupt == 0 && trips.ratio.is_some(),
        "{trips:?}"
    );
    let mut follower = Command::new(BUSWAY)
        .args(["bench", "follower", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut said = String::new();
    let output = follower.stdout.take().expect("it is a pipe");
    BufReader::new(output)
        .read_line(&mut said)
        .expect("it says where it is");
    let address = said
        .split([' ', ';'])
        .find(|word| word.contains(':'))
        .expect("an address");
    let run = bench(
        "follower.json",
        &format!("gateway --no-idle --messages 500 -w event -s 64 -t gateway-tcp --follower {address}"),
    );
    let _ = follower.kill();
    let _ = follower.wait();
    assert_eq!((run.settings.messages, run.follower.is_some()), (Some(500), true));
    let stream = row(&run, "gateway-tcp", "lossless");
    assert_eq!(
        (stream.sent, stream.received, stream.lost),
        (500, 500, 0),
        "{stream:?}"
    );
}
