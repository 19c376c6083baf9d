//! `busway bench ports`: ARINC 653 sampling ports inside one host and over every bus, beside what no exchange can be faster than,
//! beside sockets, and beside the published RDMA sampling port's register, all in one run.
//!
//! Rounds repeat every measurement, so that a disturbance meets all alike; results are medians over rounds. All media are
//! polled by the same loop (`worker::exchange`).

mod measure;
mod plan;
mod report;
mod results;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::ProgressBar;

use crate::BenchError;
use crate::environment::Environment;
use crate::gateway::{check_seconds, progress_bar, size_within, write_json};
use crate::hosts::Hosts;
use crate::processes::{Process, go_on};
use crate::worker::{MIN_MESSAGE_BYTES, Wait};
use measure::{Bench, Outcome};
use plan::{Group, Measurement, Wishes};

pub use plan::{INTERVALS_US, Medium, Part, Polling, SIZES_BYTES};
pub use results::{Intervals, Report, Row};

const HOSTS: [&str; 2] = ["vision", "control"];
const ROUNDS: u32 = 3;
const SECONDS: f64 = 0.5;
const SECONDS_QUICK: f64 = 0.1;
/// Largest message in bytes.
const MAX_SIZE_BYTES: usize = 1 << 20;
/// Longest transmission interval in µs.
const MAX_INTERVAL_US: u64 = 1_000_000;

/// Options of `busway bench ports`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Write all results to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// What to measure [default: everything]
    #[arg(long, value_name = "PART", value_delimiter = ',', value_enum)]
    pub parts: Vec<Part>,
    /// Sizes of ping-pong messages [default: 16,64,1KiB,4KiB]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size)]
    pub sizes: Vec<usize>,
    /// What to exchange messages over: ports of one host (local) or of two (each bus), or what they are compared with [default: everything]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = media())]
    pub over: Vec<Medium>,
    /// How programs with ports wait [default: both]
    #[arg(long, value_name = "STRATEGY", value_delimiter = ',', value_enum)]
    pub wait: Vec<Polling>,
    /// Transmission intervals in µs, 1 to 1000000 [default: 1,2,3,5,10,30,100,300,1000]
    #[arg(long, value_name = "US", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=MAX_INTERVAL_US))]
    pub intervals: Vec<u64>,
    /// How often to measure everything; the result is the median [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// How long each single measurement counts, in seconds [default: 0.5]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// One round of short measurements, for a first look
    #[arg(long)]
    pub quick: bool,
    /// Measure on one host even where namespaces are possible
    #[arg(long)]
    pub no_isolation: bool,
}

/// Every medium by its name, those of the buses that this program was built with included.
fn media() -> impl TypedValueParser<Value = Medium> {
    let words = Medium::all().into_iter().map(Medium::word);
    PossibleValuesParser::new(words)
        .map(|word| Medium::of(&word).expect("one of the possible words, each of which is a medium's"))
}

fn parse_size(text: &str) -> Result<usize, BenchError> {
    size_within(text, MIN_MESSAGE_BYTES, MAX_SIZE_BYTES)
}

impl Args {
    fn wishes(&self) -> Wishes {
        let mut waits: Vec<Wait> = self.wait.iter().map(|polling| (*polling).into()).collect();
        if waits.is_empty() {
            waits = vec![Wait::Spin, Wait::Adaptive];
        }
        Wishes {
            parts: or(&self.parts, &[Part::PingPong, Part::Interval, Part::Costs]),
            media: or(&self.over, &Medium::all()),
            waits,
            sizes: or(&self.sizes, &SIZES_BYTES),
            intervals_us: or(&self.intervals, &INTERVALS_US),
        }
    }
}

/// What was given, in its order and once each; `all` if nothing was.
fn or<T: Copy + PartialEq>(given: &[T], all: &[T]) -> Vec<T> {
    let mut chosen = Vec::new();
    for value in if given.is_empty() { all } else { given } {
        if !chosen.contains(value) {
            chosen.push(*value);
        }
    }
    chosen
}

/// Measures everything asked for and writes the JSON file. `program` is the `busway` binary, for gateways and workers; `live` shows
/// progress on a terminal. Call it from a thread that lives as long as the run.
///
/// When `stop` is set the run ends with what was measured so far.
///
/// # Errors
///
/// An option is wrong, hosts cannot be made, or the file cannot be written. What goes wrong in a single measurement is a note
/// in the report.
pub fn run(args: &Args, program: &Path, live: bool, stop: &AtomicBool) -> Result<Report, BenchError> {
    let seconds = args
        .seconds
        .unwrap_or(if args.quick { SECONDS_QUICK } else { SECONDS });
    let seconds = check_seconds(seconds)?;
    let wishes = args.wishes();
    let groups = wishes.groups();
    if groups.is_empty() {
        return Err(BenchError::Option {
            option: "--parts",
            value: wishes.parts.iter().map(|part| format!("{part:?}")).collect(),
            problem: "has nothing to do with what --over asks for".into(),
            mend: "intervals and costs are those of ports: add `local` or a bus".into(),
        });
    }
    let (hosts, missing) = if args.no_isolation {
        let missing = "a run without --no-isolation".to_owned();
        (Hosts::domains(&HOSTS)?, Some(missing))
    } else {
        Hosts::best(&HOSTS)?
    };
    let environment = Environment::record(hosts.isolation.describe());
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { ROUNDS });
    let measurements: usize = groups.iter().map(|group| group.measurements.len()).sum();
    let mut run = Run {
        bench: Bench {
            hosts: &hosts,
            program: program.to_owned(),
            seconds,
            cores: environment.cores,
            sizes: wishes.port_sizes(),
            stop,
            count: 0,
        },
        samples: Vec::new(),
        notes: Vec::from_iter(missing.map(|what| format!("isolated hosts: skipped: needs {what}"))),
        bar: progress_bar(live, u64::from(rounds) * measurements as u64),
    };
    let result = (0..rounds).try_for_each(|_| run.round(&groups));
    run.bar.finish_and_clear();
    match result {
        Ok(()) => {}
        Err(BenchError::Interrupted) => run.notes.push("interrupted: these are the results so far".into()),
        Err(error) => return Err(error),
    }
    let report = Report::new(environment, &run.samples, run.notes, seconds);
    if let Some(path) = &args.json {
        write_json(&report, path)?;
    }
    Ok(report)
}

/// One result of one round.
struct Sample {
    measurement: Measurement,
    outcome: Outcome,
}

/// A run in progress.
struct Run<'a> {
    bench: Bench<'a>,
    samples: Vec<Sample>,
    notes: Vec<String>,
    bar: ProgressBar,
}

impl Run<'_> {
    /// Errors other than an interruption become notes, and the run goes on with the next group.
    fn round(&mut self, groups: &[Group]) -> Result<(), BenchError> {
        for group in groups {
            let begun = self.bar.position();
            match self.group(group) {
                Ok(()) => {}
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => {
                    self.note(format!("{} {}: {error}", group.medium.word(), group.wait.word()));
                }
            }
            self.bar.set_position(begun + group.measurements.len() as u64);
        }
        Ok(())
    }

    fn group(&mut self, group: &Group) -> Result<(), BenchError> {
        go_on(self.bench.stop)?;
        let mut path = self.bench.start_path(group)?;
        for measurement in &group.measurements {
            self.bar.set_message(name(measurement));
            match self.bench.measure(measurement, &mut path) {
                Ok(outcome) => self.samples.push(Sample {
                    measurement: *measurement,
                    outcome,
                }),
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => {
                    self.note(format!("{}: {error}", name(measurement)));
                    // A gateway that is gone ends the group; a single measurement that failed does not.
                    path.gateways.iter_mut().try_for_each(Process::check)?;
                }
            }
            self.bar.inc(1);
        }
        Ok(())
    }

    fn note(&mut self, note: String) {
        self.bar.suspend(|| tracing::warn!("{note}"));
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

fn name(measurement: &Measurement) -> String {
    let what = match measurement.part {
        Part::PingPong => "ping-pong".to_owned(),
        Part::Interval => format!("every {} µs", measurement.interval_us),
        Part::Costs => "cost of calls".to_owned(),
    };
    format!(
        "{} {what} {} {} B",
        measurement.medium.word(),
        measurement.wait.word(),
        measurement.payload_bytes
    )
}
