//! `busway bench gateway`: publisher, gateway, bus, gateway, subscriber, beside the same bus without us and beside what users would
//! pick instead, all in one run.
//!
//! Rounds repeat every measurement, so that a disturbance meets all alike; results are medians over rounds. Every byte of every
//! message is written by the sender and checked by the receiver, everywhere.

mod measure;
mod paths;
mod plan;
mod results;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};

use crate::BenchError;
use crate::conduct::{cpu_s, since};
use crate::environment::Environment;
use crate::experiment::{self, Budget, Context};
use crate::hosts::Hosts;
use crate::processes::{Process, Worker, go_on};
use crate::record;
use crate::views::Output;
use crate::worker::{Figures, Role, Services, Wait};
use measure::{Bench, Outcome};
use plan::{Group, Measurement, Plan};

pub(crate) use plan::size_within;
pub use plan::{Mode, SIZES_BYTES, Transport, parse_size};

const HOSTS: [&str; 2] = ["vision", "control"];
/// Services that exist while the cost of idling is measured.
const IDLE_SERVICES: usize = 100;
/// For the news of all services to have crossed before their cost is measured.
const SETTLE: Duration = Duration::from_secs(2);
/// How long idling is measured, in s; CPU time is known to 10 ms.
const IDLE_SECONDS: f64 = 10.0;
const IDLE_SECONDS_QUICK: f64 = 3.0;
const ROUNDS: u32 = 3;
const SECONDS: f64 = 1.0;
const SECONDS_QUICK: f64 = 0.2;

/// Options of `busway bench gateway`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// Message sizes [default: 64,4KiB,64KiB,1MiB,4MiB]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size)]
    pub sizes: Vec<usize>,
    /// What to measure [default: everything]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    pub transports: Vec<Transport>,
    /// Wait strategies of programs and lanes [default: adaptive,event, and spin where there is a core for each]
    #[arg(long, value_name = "STRATEGY", value_delimiter = ',', value_enum)]
    pub wait: Vec<Wait>,
    /// How often to measure everything; the result is the median [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// How long each single measurement counts, in seconds [default: 1]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// One round of short measurements without 4 MiB, for a first look
    #[arg(long)]
    pub quick: bool,
    /// Measure on one host even where namespaces are possible
    #[arg(long)]
    pub no_isolation: bool,
    /// Leave out the cost of idle gateways
    #[arg(long)]
    pub no_idle: bool,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

impl Args {
    fn seconds(&self) -> Result<f64, BenchError> {
        let seconds = self
            .seconds
            .unwrap_or(if self.quick { SECONDS_QUICK } else { SECONDS });
        check_seconds(seconds)
    }

    fn plan(&self, cores: usize) -> Plan {
        let or = |given: &[usize], all: &[usize]| {
            if given.is_empty() {
                all.to_vec()
            } else {
                given.to_vec()
            }
        };
        let sizes = or(
            &self.sizes,
            if self.quick {
                &SIZES_BYTES[..4]
            } else {
                &SIZES_BYTES
            },
        );
        let all = [
            Transport::Iceoryx2Hop,
            Transport::BareCopy,
            Transport::Memory,
            Transport::BareTcp,
            Transport::Tcp,
            Transport::ZenohTunnel,
        ];
        let transports = if self.transports.is_empty() {
            &all[..]
        } else {
            &self.transports
        };
        let waits = if self.wait.is_empty() {
            &[Wait::Adaptive, Wait::Event, Wait::Spin][..]
        } else {
            &self.wait
        };
        Plan::new(transports, &sizes, waits, cores, !self.wait.is_empty())
    }
}

/// Measures everything asked for and writes the files. Call it from a thread that lives as long as the run.
///
/// When the user stops it, the run ends with what was measured so far.
///
/// # Errors
///
/// An option is wrong, hosts cannot be made, or a file cannot be written. What goes wrong in a single measurement is a note
/// in the result.
pub fn run(args: &Args, context: Context<'_>) -> Result<record::Run, BenchError> {
    let seconds = args.seconds()?;
    args.output.check()?;
    let (begun, started) = (Instant::now(), SystemTime::now());
    let (hosts, missing) = if args.no_isolation {
        (
            Hosts::domains(&HOSTS)?,
            Some("a run without --no-isolation".to_owned()),
        )
    } else {
        Hosts::best(&HOSTS)?
    };
    let mut environment = Environment::record(hosts.isolation.describe());
    let plan = args.plan(environment.cores);
    let mut notes = plan.skipped.clone();
    notes.extend(missing.map(|what| format!("isolated hosts: skipped: needs {what}")));
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { ROUNDS });
    let mut run = Run {
        bench: Bench {
            hosts: &hosts,
            program: context.program.to_owned(),
            seconds,
            stop: context.stop,
            count: 0,
        },
        samples: Vec::new(),
        budget: Budget::new(args.quick && args.rounds.is_none() && args.seconds.is_none()),
        notes,
        bar: progress_bar(context.live, u64::from(rounds) * plan.measurements() as u64),
        idle_seconds: match (args.no_idle, args.quick) {
            (true, _) => None,
            (_, true) => Some(IDLE_SECONDS_QUICK),
            _ => Some(IDLE_SECONDS),
        },
    };
    let result = (0..rounds).try_for_each(|round| run.round(&plan, round));
    run.bar.finish_and_clear();
    let interrupted = match result {
        Ok(()) => false,
        Err(BenchError::Interrupted) => true,
        Err(error) => return Err(error),
    };
    environment.finish();
    let mut result = record::Run {
        schema: record::SCHEMA.to_owned(),
        experiment: record::Experiment::Gateway,
        command: record::command_line(),
        started_unix_s: started
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        duration_s: begun.elapsed().as_secs_f64(),
        interrupted,
        settings: record::Settings {
            rounds,
            seconds: Some(seconds),
            touched: true,
            ..record::Settings::default()
        },
        follower: None,
        conditions: Vec::new(),
        warnings: Vec::new(),
        notes: run.notes,
        baseline: None,
        rows: results::rows(&run.samples, rounds, environment.cores),
        environment,
    };
    experiment::add_last_words(&mut result);
    args.output.write(&result)?;
    Ok(result)
}

/// `seconds`, if a measurement can last so long.
pub(crate) fn check_seconds(seconds: f64) -> Result<f64, BenchError> {
    if (0.01..=3600.0).contains(&seconds) {
        return Ok(seconds);
    }
    Err(BenchError::Option {
        option: "--seconds",
        value: seconds.to_string(),
        problem: "is no possible duration".into(),
        mend: "write seconds from 0.01 to 3600".into(),
    })
}

pub(crate) fn progress_bar(live: bool, length: u64) -> ProgressBar {
    if !live {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30.cyan} {pos}/{len} {msg} (about {eta} left)");
    ProgressBar::new(length).with_style(style.expect("constant template"))
}

/// One result of one round.
struct Sample {
    measurement: Measurement,
    outcome: Outcome,
    /// For how long it was counted, in s.
    seconds: f64,
    round: u32,
}

/// A run in progress.
struct Run<'a> {
    bench: Bench<'a>,
    samples: Vec<Sample>,
    notes: Vec<String>,
    budget: Budget,
    bar: ProgressBar,
    idle_seconds: Option<f64>,
}

impl Run<'_> {
    /// Errors other than an interruption become notes, and the run goes on with the next group.
    fn round(&mut self, plan: &Plan, round: u32) -> Result<(), BenchError> {
        let mut left_out = Vec::new();
        for group in &plan.groups {
            if self.budget.is_spent() {
                left_out.push(format!("{} {}", group.transport.word(), group.wait.word()));
                continue;
            }
            let begun = self.bar.position();
            match self.group(group, round) {
                Ok(()) => {}
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => self.note(format!(
                    "{} {}: {error}",
                    group.transport.word(),
                    group.wait.word()
                )),
            }
            self.bar.set_position(begun + group.measurements.len() as u64);
        }
        if let Some(note) = self.budget.left_out(&left_out) {
            self.note(note);
        }
        Ok(())
    }

    fn group(&mut self, group: &Group, round: u32) -> Result<(), BenchError> {
        go_on(self.bench.stop)?;
        let mut gateways = self.bench.start_path(group.transport, group.wait)?;
        for measurement in &group.measurements {
            self.bar.set_message(name(measurement));
            match self.bench.measure(measurement, &mut gateways) {
                Ok(outcome) => {
                    let seconds = self.bench.seconds;
                    self.samples.push(Sample {
                        measurement: *measurement,
                        outcome,
                        seconds,
                        round,
                    });
                }
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => {
                    self.note(format!("{}: {error}", name(measurement)));
                    // A gateway that is gone ends the group; a single measurement that failed does not.
                    gateways.iter_mut().try_for_each(Process::check)?;
                }
            }
            self.bar.inc(1);
        }
        if round == 0 && group.wait != Wait::Spin && !gateways.is_empty() {
            self.idle(group, &mut gateways)?;
        }
        Ok(())
    }

    /// What gateways cost while 100 services exist on both hosts and nothing is sent.
    fn idle(&mut self, group: &Group, gateways: &mut [Process]) -> Result<(), BenchError> {
        let Some(seconds) = self.idle_seconds else {
            return Ok(());
        };
        self.bar.set_message(format!("{} idle", group.transport.word()));
        let mut workers = Vec::new();
        for (host, publish) in self.bench.hosts.hosts.iter().zip([true, false]) {
            let services = Services {
                config: host.iceoryx2_config.clone(),
                count: IDLE_SERVICES,
                publish,
            };
            let mut worker = Worker::start(&self.bench.program, host, &Role::Services(services))?;
            worker.ready(self.bench.stop)?;
            workers.push(worker);
        }
        self.pass(SETTLE, gateways)?;
        let before_s = cpu_s(gateways);
        self.pass(Duration::from_secs_f64(seconds), gateways)?;
        let outcome = Outcome {
            figures: Figures::default(),
            sent: 0,
            times: None,
            gateway_cpu_s: since(gateways, &before_s),
        };
        let measurement = Measurement {
            transport: group.transport,
            wait: group.wait,
            mode: Mode::Idle,
            payload_bytes: std::mem::size_of::<u64>(),
        };
        self.samples.push(Sample {
            measurement,
            outcome,
            seconds,
            round: 0,
        });
        Ok(())
    }

    /// Lets time pass, unless the user or a process ends it.
    fn pass(&self, time: Duration, gateways: &mut [Process]) -> Result<(), BenchError> {
        let end = std::time::Instant::now() + time;
        while let Some(rest) = end.checked_duration_since(std::time::Instant::now()) {
            go_on(self.bench.stop)?;
            gateways.iter_mut().try_for_each(Process::check)?;
            std::thread::sleep(rest.min(Duration::from_millis(50)));
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
    format!(
        "{} {} {} {} B",
        measurement.transport.word(),
        measurement.mode.word(),
        measurement.wait.word(),
        measurement.payload_bytes
    )
}
