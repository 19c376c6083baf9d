//! `busway bench interference`: what receiving messages costs a task that has nothing to do with
//! them but shares the core.
//!
//! After Lee, Kim, Kim and Jin, "RDMA-based Sampling Port of ARINC-653", section IV-B and figure 3.
//! As there, a computing partition and a receiving partition share a core by a time table: in each
//! frame the first computes, later the second reads its port. What the figures show is therefore
//! not that the receiver runs, but what arrives while it does not: interrupts, network processing,
//! gateways. The receiving host's programs, its gateway and the processing of its packets are kept
//! on that core, the sender's on another. With `--schedule` the scheduler of `busway module run`
//! keeps the time table: either partition is frozen outside of its window. Without, a higher
//! SCHED_FIFO priority of the computing task stands in for it.
//!
//! Four ways to communicate: `none`; one-sided (ports over a bus that writes into the other host's
//! memory); two-sided (ports through gateways); bare sockets. One file for the experiment, one for
//! the arrangement of its processes. Called by the command line.

mod measure;

use busway_buses::{BUS_NAMES, is_one_sided, writes_registers};

use crate::BenchError;
use crate::conditions::Pin;
use crate::experiment::options::{Common, Quick, sizes_or};
use crate::experiment::rounds::{Gathered, Plan, conduct};
use crate::experiment::session::Session;
use crate::experiment::task::{Context, finish, merge_times};
use crate::record::{Experiment, Row, Run};
use crate::technology::{self, Description, Reach, SHORT_BYTES, Stage, Wait};
use crate::worker::steps_for;
use measure::{Arrangement, Disturbed, NONE};

const INTERVALS_US: [u64; 2] = [1000, 10_000];
const INTERVAL_US_RANGE: std::ops::RangeInclusive<u64> = 100..=1_000_000;
/// As published.
const SIZES_BYTES: [usize; 1] = [SHORT_BYTES];
/// How long the task calculates, undisturbed, in µs: a message that it meets (some µs) stands out,
/// and one in seven executions meets one of those that come each ms.
const CALCULATION_US: u64 = 100;
/// Length of a frame in µs: neither a divisor nor a multiple of the intervals, so that messages
/// meet all parts of it.
const FRAME_US: u64 = 730;
/// The same where partitions are frozen and thawed, which takes some 50 µs each.
const SCHEDULED_US: [u64; 2] = [1000, 7300];
/// The rival of the paper.
const SOCKETS: &str = "sampling-sockets";
const DEFAULTS: Quick = Quick {
    rounds: [2, 3],
    seconds: [1.5, 10.0],
};
/// Busy at once: one core sends, the other computes or receives.
const THREADS: u32 = 2;

/// Options of `busway bench interference`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// Time between two messages in µs, 100 to 1000000 [default: 1000,10000]
    #[arg(long, value_name = "US", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(INTERVAL_US_RANGE))]
    pub interval: Vec<u64>,
    /// How long the task calculates where nothing disturbs it, in µs [default: 100]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    pub calculation: Option<u64>,
    /// Length of a frame in µs, in which the task calculates once; the receiver reads at three
    /// quarters of it [default: 730]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub frame: Option<u64>,
    /// Keep both partitions in their windows by the scheduler of `busway module run` (cgroup v2):
    /// the task in the first three quarters of each frame, the receiver in the last [default frame
    /// and calculation: 7300 and 1000]
    #[arg(long)]
    pub schedule: bool,
    /// What all experiments understand.
    #[command(flatten)]
    pub common: Common,
}

/// Measures, and writes the files asked for.
///
/// # Errors
///
/// An option is wrong, hosts cannot be made or reached, or a file cannot be written.
pub fn run(args: &Args, context: Context<'_>) -> Result<Run, BenchError> {
    let [calculation_us, frame_us] = if args.schedule {
        SCHEDULED_US
    } else {
        [CALCULATION_US, FRAME_US]
    };
    let frame_us = args.frame.unwrap_or(frame_us);
    let calculation_us = args.calculation.unwrap_or(calculation_us);
    check(args, calculation_us, frame_us)?;
    let common = Common {
        baseline: args.common.baseline.clone().or(Some(NONE.to_owned())),
        ..args.common.clone()
    };
    let (mut session, mut notes) = Session::open(&common, context)?;
    let (technologies, more) = technologies(&common);
    notes.extend(more);
    let seconds = common.seconds(DEFAULTS);
    let steps = steps_for(calculation_us);
    notes.push(format!(
        "the task: {steps} steps, {calculation_us} µs undisturbed, once in each frame of {frame_us} µs; the receiver reads once in each frame, after it"
    ));
    if args.schedule {
        notes.push(format!(
            "time table: the task has the first {} µs of a frame, the receiver the rest; either is frozen outside of it",
            frame_us * 3 / 4
        ));
    }
    notes.push(kinds(&technologies));
    let intervals_us = if args.interval.is_empty() {
        INTERVALS_US.to_vec()
    } else {
        args.interval.clone()
    };
    let intervals_ns: Vec<Option<u64>> = intervals_us.iter().map(|us| Some(us * 1000)).collect();
    let plan = Plan::over(
        Experiment::Interference,
        std::iter::once((none(), vec![Wait::Event])).chain(technologies.into_iter().map(|one| {
            // How the gateways wait; the receiver never does.
            let waits = match common.wait.as_slice() {
                [] => vec![Wait::Event],
                asked => asked.to_vec(),
            };
            (one, waits)
        })),
        &sizes_or(&common.sizes, &SIZES_BYTES),
        &intervals_ns,
        common.settings(DEFAULTS),
        notes,
    );
    let mut arrangement = Arrangement::of(&mut session, steps, frame_us * 1000, seconds, args.schedule)?;
    let mut run = conduct(
        &mut session,
        plan,
        |session, staged, task| arrangement.measure(session, staged, task),
        row,
    )?;
    match arrangement.windows(&session) {
        Ok(said) => run.notes.extend(said),
        // What was measured so far counts.
        Err(BenchError::Interrupted) => {}
        Err(error) => return Err(error),
    }
    finish(run, &common)
}

fn check(args: &Args, calculation_us: u64, frame_us: u64) -> Result<(), BenchError> {
    if args.common.conditions.pin == Some(Pin::Nowhere) {
        return Err(BenchError::Option {
            option: "--pin",
            value: "none".into(),
            problem: "leaves open who shares a core".into(),
            mend: "give the CPU of the sender and the one that task and receiver share, such as 0,1".into(),
        });
    }
    if calculation_us * 2 > frame_us {
        return Err(BenchError::Option {
            option: "--calculation",
            value: calculation_us.to_string(),
            problem: format!("leaves the receiver too little of a frame of {frame_us} µs"),
            mend: "give at most half of --frame".into(),
        });
    }
    Ok(())
}

/// Those asked for; else sampling ports over every bus, and sockets.
fn technologies(common: &Common) -> (Vec<Description>, Vec<String>) {
    let by_default = |name: &str| {
        let port = name
            .strip_prefix("sampling-")
            .is_some_and(|bus| BUS_NAMES.contains(&bus));
        port || name == SOCKETS
    };
    let suits = |one: &Description| {
        one.one_way.is_some() && (!common.technologies.is_empty() || by_default(&one.name))
    };
    common.technologies(suits, "it carries no stream of messages")
}

/// The computing task alone, in the place of a technology.
fn none() -> Description {
    Description {
        waits: vec![Wait::Event],
        reach: Reach::Machine,
        one_way: None,
        least_bytes: SHORT_BYTES,
        ..Description::new(NONE, "the computing task alone")
    }
}

/// Which technology is of which kind, in the words of the paper.
fn kinds(technologies: &[Description]) -> String {
    let kind = |one: &Description| match one.stage {
        Stage::Ports { bus: None, .. } => "within a host",
        Stage::Ports {
            bus: Some(bus),
            queuing: false,
        } if is_one_sided(bus) || writes_registers(bus) => "one-sided",
        Stage::Ports { .. } | Stage::Link(_) | Stage::Gateways(_) | Stage::Tunnel => "two-sided",
        Stage::Bare if technology::of(&one.name).is_some_and(|it| it.reach == Reach::Network) => "sockets",
        Stage::Bare => "within a host",
    };
    let listed: Vec<String> = technologies
        .iter()
        .map(|one| format!("{} is {}", one.name, kind(one)))
        .collect();
    listed.join(", ")
}

fn row(gathered: &Gathered<Disturbed>, cores: usize) -> Row {
    let (times, by_round) = merge_times(
        gathered
            .rounds
            .iter()
            .map(|round| Some(&round.as_ref()?.executions)),
    );
    let sum = |pick: fn(&Disturbed) -> u64| gathered.found().map(pick).sum::<u64>();
    let (sent, received) = (sum(|it| it.sent), sum(|it| it.received));
    Row {
        sent,
        received,
        lost: sent.saturating_sub(received),
        corrupt: sum(|it| it.corrupt),
        execution_ns: times.distribution(),
        by_round,
        ..gathered.task.row(THREADS, cores, gathered.found().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(calculation: u64, pin: Option<Pin>) -> Args {
        let mut args = Args {
            calculation: Some(calculation),
            ..Args::default()
        };
        args.common.conditions.pin = pin;
        args
    }

    #[test]
    fn task_without_time_or_core_for_the_receiver_is_refused() {
        assert!(check(&args(800, None), 800, 2300).is_ok());
        let error = check(&args(1200, None), 1200, 2300).unwrap_err().to_string();
        assert!(
            error.contains("--calculation") && error.contains("2300"),
            "{error}"
        );
        let error = check(&args(800, Some(Pin::Nowhere)), 800, 2300)
            .unwrap_err()
            .to_string();
        assert!(error.contains("--pin"), "{error}");
    }

    #[test]
    fn by_default_every_kind_of_the_paper_is_measured() {
        let (technologies, _) = technologies(&Common::default());
        let said = kinds(&technologies);
        for kind in [
            "sampling-memory is one-sided",
            "sampling-tcp is two-sided",
            "sampling-sockets is sockets",
        ] {
            assert!(said.contains(kind), "{said}");
        }
    }
}
