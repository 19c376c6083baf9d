//! Published experiments, repeated between two guests with `busway bench`: the RDMA sampling port's
//! figures over RoCE and iWARP, and the TIPC evaluation's three measurements.
//!
//! Results are those of `busway bench --json`, whole. Emulated times mean nothing by themselves;
//! only ratios within a result do.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::Stage;
use super::parts::gateway_pair;
use super::speed::{JUMBO_BYTES, YIELDING, YIELDING_PROGRAM, bench_across};
use crate::lab::pair::Pair;
use crate::lab::preset::Preset;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1500);
const SHORT: Duration = Duration::from_secs(60);

/// One-sided, two-sided, and the rival: the three of the paper.
const PORTS: &str = "sampling-rdma-write,sampling-rdma-send,sampling-sockets";
/// A guest has one processor, so no program may spin beside a gateway.
const WAIT: &str = "adaptive";

/// Figures of "RDMA-based Sampling Port of ARINC-653". A time in them is a hundredth to a tenth of
/// what emulation takes, so intervals begin later and the computing task is longer.
const FIGURES: [(&str, &[&str]); 4] = [
    (
        "figures 2a and 2b",
        &[
            "latency",
            "-s",
            "4,16,64,256,1KiB,4KiB",
            "--messages",
            "500",
            "--rounds",
            "2",
        ],
    ),
    (
        "figure 3",
        &[
            "interference",
            "-s",
            "4",
            "--interval",
            "1000,10000",
            "--calculation",
            "1000",
            "--frame",
            "7300",
            "--seconds",
            "4",
            "--rounds",
            "2",
        ],
    ),
    (
        // Freezing a partition takes a millisecond here, and some 50 µs on a processor.
        "figure 3 on a time table",
        &[
            "interference",
            "--schedule",
            "-s",
            "4",
            "--interval",
            "1000,10000",
            "--calculation",
            "4000",
            "--frame",
            "29300",
            "--seconds",
            "6",
            "--rounds",
            "2",
        ],
    ),
    (
        "figure 4",
        &[
            "timeliness",
            "-s",
            "16,4KiB",
            "--intervals",
            "100,300,1000,3000,10000",
            "--seconds",
            "2",
            "--rounds",
            "2",
        ],
    ),
];

pub(super) fn sampling_port(stage: &Stage<'_>) -> Result<Value> {
    let mut results = Map::new();
    for (medium, preset) in [("RoCE", Preset::Roce), ("iWARP", Preset::Iwarp)] {
        if !medium.contains(stage.only) {
            continue;
        }
        let outcome = figures(stage, medium, preset);
        results.insert(medium.to_owned(), stage.part(medium, outcome));
    }
    Ok(Value::Object(results))
}

fn figures(stage: &Stage<'_>, medium: &str, preset: Preset) -> Result<Value> {
    let pair = gateway_pair(stage, &[preset], |plan| {
        plan.program(Path::new(YIELDING_PROGRAM));
        plan.mtu_bytes = JUMBO_BYTES;
    })?;
    let mut results = Map::new();
    for (figure, words) in FIGURES {
        stage.says(format!("{figure} over {medium}"));
        let is_shared_core = words[0] == "interference";
        let mut all = words.to_vec();
        all.extend(["-t", PORTS]);
        // The task and the receiver of figure 3 have priorities and a processor of their own.
        let before: &[&str] = if is_shared_core { &[] } else { &YIELDING };
        if !is_shared_core {
            all.extend(["-w", WAIT, "--pin", "none"]);
        }
        let outcome = bench_across(&pair, before, &all, LIMIT);
        results.insert(
            figure.to_owned(),
            stage.part(format!("{figure} over {medium}"), outcome),
        );
    }
    Ok(Value::Object(results))
}

/// The measurements of "TIPC evaluation": the published sizes around the drop, 10,000 sends each;
/// and 256 KiB each 80 ms, over sockets of bytes, since no message of TIPC is so long.
const TIPC: [(&str, &[&str]); 3] = [
    (
        "throughput",
        &[
            "throughput",
            "-t",
            "tcp,tcp-batch,tipc,tipc-batch,channel-tcp,channel-tipc",
            "-s",
            "64,512,1KiB,1536,2560,3072,4KiB,40448",
            "--messages",
            "10000",
            "--rounds",
            "1",
        ],
    ),
    (
        "latency",
        &[
            "latency",
            "-t",
            "tcp,tipc,channel-tcp,channel-tipc",
            "-s",
            "64,512,1480,4KiB,16KiB",
            "--messages",
            "500",
            "--rounds",
            "2",
        ],
    ),
    (
        "stream",
        &[
            "stream",
            "-t",
            "tcp,tipc-stream,channel-tcp,channel-tipc",
            "-s",
            "256KiB",
            "--interval",
            "80000",
            "--seconds",
            "8",
            "--rounds",
            "2",
        ],
    ),
];

pub(super) fn tipc(stage: &Stage<'_>) -> Result<Value> {
    let pair = gateway_pair(stage, &[Preset::Tipc], |_| ())?;
    let mut results = Map::new();
    for (name, words) in TIPC {
        stage.says(name);
        let mut all = words.to_vec();
        all.extend(["-w", "event", "--pin", "none"]);
        let outcome = bench_across(&pair, &[], &all, LIMIT);
        results.insert(name.to_owned(), stage.part(name, outcome));
    }
    stage.says("acknowledgements");
    results.insert(
        "acknowledgements".into(),
        stage.part("acknowledgements", acknowledgements(&pair)),
    );
    Ok(Value::Object(results))
}

/// What the kernel says of its links before and after the published 10,000 sends of 4 KiB: TIPC has
/// no setting of how often it acknowledges, but counts it.
fn acknowledgements(pair: &Pair) -> Result<Value> {
    let statistics = || pair.guests[1].shell("tipc link statistics show; tipc link list", SHORT);
    let before = statistics().context("statistics of the link")?;
    let words = [
        "throughput",
        "-t",
        "tipc",
        "-s",
        "4KiB",
        "--messages",
        "10000",
        "--rounds",
        "1",
        "-w",
        "event",
    ];
    let result = bench_across(pair, &[], &[&words[..], &["--pin", "none"]].concat(), LIMIT)?;
    Ok(json!({ "receiver_before": before, "receiver_after": statistics()?, "result": result }))
}
