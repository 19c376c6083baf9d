//! `busway bench all`: every experiment after the other, each with its result and its page in one
//! directory.
//!
//! A result that the directory holds already is not measured again, so that a run that was stopped
//! continues.
//!
//! The times are such that a machine of two cores is done in about a quarter of an hour; each
//! experiment by itself, with its own defaults, looks longer.

use std::path::{Path, PathBuf};

use super::options::Common;
use super::task::Context;
use super::{calls, gateway, interference, jitter, latency, self_test, throughput, timeliness};
use crate::record::Run;
use crate::views::Output;
use crate::{BenchError, conditions};

/// How often each experiment measures everything; round trips, and those that take long by
/// themselves.
const ROUNDS: u32 = 3;
const FEW_ROUNDS: u32 = 2;
const ROUND_TRIP_SECONDS: f64 = 0.06;
const ONE_WAY_SECONDS: f64 = 0.05;
const STREAM_SECONDS: f64 = 2.0;
const JITTER_SECONDS: f64 = 30.0;
const INTERFERENCE_SECONDS: f64 = 4.0;
const GATEWAY_SECONDS: f64 = 0.15;

/// Round trips as iceperf measures them, over what it measures.
const UNTOUCHED: &str = "latency-untouched";
const LOCAL: [&str; 4] = ["mq", "unix", "iceoryx1", "iceoryx2"];

/// What is swept over all 86 sizes of `throughput`: what crosses hosts, and its floor.
const STREAMS: [&str; 12] = [
    "copy",
    "udp",
    "udp-batch",
    "tcp",
    "tcp-batch",
    "tipc",
    "tipc-stream",
    "channel-tipc",
    "channel-memory",
    "channel-tcp",
    "queuing-memory",
    "queuing-tcp",
];

/// As published: round trips of iceperf, and over what the RDMA sampling port was compared with.
const PUBLISHED_ROUND_TRIPS: u64 = 100_000;
const PUBLISHED_SIZES_BYTES: [usize; 10] = [4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const ICEPERF_SIZES_BYTES: [usize; 13] = {
    let mut sizes = [1024; 13];
    let mut i = 1;
    while i < sizes.len() {
        sizes[i] = sizes[i - 1] * 2;
        i += 1;
    }
    sizes
};

/// Options of `busway bench all`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Directory for results and pages: NAME.json and NAME.html; made if it is not there. What it
    /// holds already is not measured again
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// The other machine, where `busway bench follower` runs; then only what reaches over a network
    #[arg(long, value_name = "HOST[:PORT]")]
    pub follower: Option<String>,
    /// Measure on one host even where namespaces are possible
    #[arg(long)]
    pub no_isolation: bool,
    /// Every experiment in under a minute
    #[arg(short, long)]
    pub quick: bool,
    /// Measure what was published, with the published counts: 100,000 round trips, 10,000 sends,
    /// 256 KiB each 80 ms. Takes hours
    #[arg(long, conflicts_with = "quick")]
    pub published: bool,
    /// What the programs shall have of the system.
    #[command(flatten)]
    pub conditions: conditions::Args,
}

/// Measures everything of which the directory has no whole result yet. `begin` is called for each
/// experiment before it begins, with its number and how many there are; the runs come back as they
/// went to the files. When the user stops, those so far.
///
/// # Errors
///
/// The directory cannot be made, or as each experiment.
pub fn run(
    args: &Args,
    context: Context<'_>,
    mut begin: impl FnMut(&str, usize, usize),
) -> Result<Vec<Run>, BenchError> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .map_err(BenchError::io(format!("make directory {}", directory.display())))?;
    let mut names = vec!["latency", "throughput", "stream", "timeliness", "jitter"];
    if args.follower.is_none() {
        names.extend([UNTOUCHED, "interference", "gateway", "calls", "self-test"]);
    }
    let mut runs = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let before = Run::load(&directory.join(format!("{name}.json")));
        if let Some(whole) = before.ok().filter(|run| !run.interrupted) {
            runs.push(whole);
            continue;
        }
        begin(name, index + 1, names.len());
        let run = one(name, args, context)?;
        let interrupted = run.interrupted;
        runs.push(run);
        if interrupted {
            break;
        }
    }
    Ok(runs)
}

fn one(name: &str, args: &Args, context: Context<'_>) -> Result<Run, BenchError> {
    let common = |seconds: Option<f64>, rounds: Option<u32>| Common {
        seconds: seconds.filter(|_| !args.quick),
        rounds: rounds.filter(|_| !args.quick),
        follower: args.follower.clone(),
        no_isolation: args.no_isolation,
        quick: args.quick,
        conditions: args.conditions.clone(),
        output: output(&args.directory, name),
        ..Common::default()
    };
    let beside_tcp = |common: Common| Common {
        baseline: Some("tcp".into()),
        ..common
    };
    let round_trips = |common: Common| {
        let messages = args.published.then_some(PUBLISHED_ROUND_TRIPS);
        let common = Common {
            seconds: common.seconds.filter(|_| !args.published),
            rounds: common
                .rounds
                .map(|rounds| if args.published { 1 } else { rounds }),
            ..common
        };
        let open_loop = None;
        latency::run(
            &latency::Args {
                common,
                open_loop,
                messages,
            },
            context,
        )
    };
    let published_sizes = |sizes: &[usize]| {
        if args.published {
            sizes.to_vec()
        } else {
            Vec::new()
        }
    };
    match name {
        "latency" => round_trips(Common {
            technologies: if args.published {
                published_ports()
            } else {
                Vec::new()
            },
            sizes: published_sizes(&PUBLISHED_SIZES_BYTES),
            ..beside_tcp(common(Some(ROUND_TRIP_SECONDS), Some(ROUNDS)))
        }),
        UNTOUCHED => round_trips(Common {
            technologies: LOCAL.map(str::to_owned).to_vec(),
            untouched: true,
            sizes: published_sizes(&ICEPERF_SIZES_BYTES),
            ..common(Some(ROUND_TRIP_SECONDS), Some(FEW_ROUNDS))
        }),
        "throughput" => {
            // By default throughput has the published number of sends.
            let seconds = (!args.published).then_some(ONE_WAY_SECONDS);
            let common = Common {
                technologies: STREAMS.map(str::to_owned).to_vec(),
                ..common(seconds, Some(1))
            };
            let messages = None;
            throughput::run(&throughput::Args { messages, common }, context)
        }
        "stream" => {
            let (common, interval) = (beside_tcp(common(Some(STREAM_SECONDS), Some(1))), None);
            throughput::run_stream(&throughput::StreamArgs { interval, common }, context)
        }
        "timeliness" => {
            let (common, intervals) = (common(Some(ROUND_TRIP_SECONDS), Some(FEW_ROUNDS)), Vec::new());
            timeliness::run(&timeliness::Args { intervals, common }, context)
        }
        "jitter" => {
            let args = jitter::Args {
                common: common(Some(JITTER_SECONDS), None),
                ..jitter::Args::default()
            };
            jitter::run(&args, context)
        }
        "interference" => {
            let args = interference::Args {
                common: common(Some(INTERFERENCE_SECONDS), Some(FEW_ROUNDS)),
                ..interference::Args::default()
            };
            interference::run(&args, context)
        }
        "gateway" => {
            let args = gateway::Args {
                common: common(Some(GATEWAY_SECONDS), Some(FEW_ROUNDS)),
                no_idle: true,
                ..gateway::Args::default()
            };
            gateway::run(&args, context)
        }
        "calls" => {
            let common = common(None, None);
            calls::run(&calls::Args { common }, context)
        }
        _ => {
            let common = common(None, None);
            self_test::run(&self_test::Args { common }, context)
        }
    }
}

/// Round trips of the paper: ports over every bus, and their rivals.
fn published_ports() -> Vec<String> {
    let ports = busway_buses::BUS_NAMES
        .iter()
        .map(|bus| format!("sampling-{bus}"));
    let rivals = ["sampling-sockets", "tcp", "tipc"].map(str::to_owned);
    ports.chain(rivals).collect()
}

fn output(directory: &Path, name: &str) -> Output {
    let file = |suffix: &str| Some(directory.join(format!("{name}.{suffix}")));
    Output {
        json: file("json"),
        report: file("html"),
        ..Output::default()
    }
}
