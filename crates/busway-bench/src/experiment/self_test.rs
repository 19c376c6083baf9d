//! `busway bench self-test`: the instrument measures a path whose delay, jitter and loss it knows,
//! and says whether it found them.
//!
//! The path is the plain copy through shared memory; the answering program holds each message, or
//! loses it, as commanded. What the path takes without that is measured in the same rounds. The
//! last case is that of coordinated omission: a path that stands still is charged by an open loop
//! with all that it kept waiting.

use super::latency;
use super::options::{Common, Quick};
use super::rounds::{Group, Plan, conduct};
use super::session::Session;
use super::task::{Context, Task, finish};
use crate::BenchError;
use crate::record::{Distribution, Experiment, Run, Verdict};
use crate::technology;
use crate::technology::Wait;
use crate::worker::{ExchangePart, Extent, Injected};

const TECHNOLOGY: &str = "copy";
const SIZE_BYTES: usize = 64;
const DEFAULTS: Quick = Quick {
    rounds: [1, 3],
    seconds: [1.0, 2.0],
};
const INTERVAL_NS: u64 = 100_000;
/// How far a quantile may be off: this share of what is expected, and what a scheduler may add.
const TOLERANCE_SHARE: f64 = 0.05;
const TOLERANCE_NS: f64 = 10_000.0;

const DELAY: Injected = Injected {
    delay_ns: 300_000,
    jitter_ns: 0,
    lose_every: 0,
    stall_ns: 0,
    stall_every: 0,
};
const JITTER: Injected = Injected {
    delay_ns: 100_000,
    jitter_ns: 1_000_000,
    ..DELAY
};
const LOSS: Injected = Injected {
    delay_ns: 0,
    lose_every: 10,
    ..DELAY
};
/// A fifth of all messages meets a path that stands still.
const STALL: Injected = Injected {
    delay_ns: 0,
    stall_ns: 20_000_000,
    stall_every: 1000,
    ..DELAY
};

/// Cases by name; the first is the path as it is.
const CASES: [(&str, Injected); 5] = [
    ("nothing", Injected { delay_ns: 0, ..DELAY }),
    ("delay", DELAY),
    ("jitter", JITTER),
    ("loss", LOSS),
    ("stall", STALL),
];

/// Options of `busway bench self-test`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// What all experiments understand.
    #[command(flatten)]
    pub common: Common,
}

/// Measures, compares with what is known, and writes the files asked for.
///
/// # Errors
///
/// An option is wrong, hosts cannot be made, or a file cannot be written. What was not found as it
/// was injected is in the rows' verdicts.
pub fn run(args: &Args, context: Context<'_>) -> Result<Run, BenchError> {
    let common = &args.common;
    let (mut session, notes) = Session::open(common, context)?;
    let technology = technology::of(TECHNOLOGY).expect("registered");
    let seconds = common.seconds(DEFAULTS);
    let tasks = CASES.map(|(name, _)| Task {
        interval_ns: is_open(name).then_some(INTERVAL_NS),
        mode: Some(name),
        ..Task::new(&technology, Wait::Spin, SIZE_BYTES)
    });
    let plan = Plan {
        experiment: Experiment::SelfTest,
        groups: vec![Group {
            technology,
            wait: Wait::Spin,
            tasks: tasks.to_vec(),
        }],
        settings: common.settings(DEFAULTS),
        notes,
    };
    let mut run = conduct(
        &mut session,
        plan,
        |session, staged, task| {
            let asks = task
                .interval_ns
                .map_or(ExchangePart::Ping, ExchangePart::OpenLoop);
            let parts = [asks, ExchangePart::Echo(Some(injected(task)))];
            session.exchange(task, staged, parts, Extent::Seconds(seconds))
        },
        latency::row,
    )?;
    judge(&mut run);
    finish(run, common)
}

/// Whether everything was found as it was injected.
pub fn has_passed(run: &Run) -> bool {
    let verdicts: Vec<&Verdict> = run.rows.iter().flat_map(|row| &row.verdicts).collect();
    !verdicts.is_empty() && verdicts.iter().all(|verdict| verdict.passed)
}

/// Losses and standstills show in an open loop; a closed one would wait for each answer that can't
/// come.
fn is_open(case: &str) -> bool {
    matches!(case, "loss" | "stall")
}

fn injected(task: &Task) -> Injected {
    let case = CASES.iter().find(|(name, _)| Some(*name) == task.mode);
    case.map(|(_, injected)| *injected).unwrap_or_default()
}

fn judge(run: &mut Run) {
    let trips_of = |run: &Run, case: &str| {
        let row = run.rows.iter().find(|row| row.mode.as_deref() == Some(case));
        row.and_then(|row| row.rtt_ns.clone())
    };
    let Some(base) = trips_of(run, CASES[0].0) else {
        return;
    };
    for row in &mut run.rows {
        let case = row.mode.clone().unwrap_or_default();
        let trips = row.rtt_ns.clone().unwrap_or_default();
        let mut verdicts = vec![near("corrupt", 0.0, row.corrupt as f64, 0.0)];
        verdicts.extend(match case.as_str() {
            "delay" => times(&trips, &base, [DELAY.delay_ns; 3]),
            "jitter" => {
                // Eleven equal steps: the sixth is the median, the tenth holds the 90th percentile.
                let step = |n: u64| JITTER.delay_ns + JITTER.jitter_ns * n / (Injected::JITTER_STEPS - 1);
                times(&trips, &base, [step(0), step(5), step(9)])
            }
            "stall" => {
                // Messages behind a standstill wait evenly long: of the fifth that waits, one half
                // waits more than half of it.
                let half_ns = STALL.stall_ns / 2;
                let tolerance_ns = half_ns as f64 * 0.1;
                vec![near("rtt_ns.p90", half_ns as f64, trips.p90 as f64, tolerance_ns)]
            }
            _ => Vec::new(),
        });
        let lost = if case == "loss" {
            row.sent / LOSS.lose_every
        } else {
            0
        };
        let tolerance = if case == "loss" {
            f64::from(row.rounds)
        } else {
            0.0
        };
        verdicts.push(near("lost", lost as f64, row.lost as f64, tolerance));
        row.verdicts = verdicts;
    }
}

/// Least, median and 90th percentile, each with what the path takes by itself.
fn times(trips: &Distribution, base: &Distribution, expected_ns: [u64; 3]) -> Vec<Verdict> {
    let [min, p50, p90] = expected_ns.map(|ns| ns as f64);
    let within = |ns: f64| ns * TOLERANCE_SHARE + TOLERANCE_NS;
    vec![
        near("rtt_ns.min", min + base.min as f64, trips.min as f64, within(min)),
        near("rtt_ns.p50", p50 + base.p50 as f64, trips.p50 as f64, within(p50)),
        near("rtt_ns.p90", p90 + base.p50 as f64, trips.p90 as f64, within(p90)),
    ]
}

fn near(figure: &str, expected: f64, measured: f64, tolerance: f64) -> Verdict {
    Verdict {
        figure: figure.to_owned(),
        expected,
        measured,
        tolerance,
        passed: (measured - expected).abs() <= tolerance,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trips(min: u64, p50: u64, p90: u64) -> Distribution {
        Distribution {
            min,
            p50,
            p90,
            ..Distribution::default()
        }
    }

    #[test]
    fn a_delay_that_is_missed_fails_and_one_that_is_found_passes() {
        let base = trips(500, 600, 900);
        let expected = [DELAY.delay_ns; 3];
        let right = times(&trips(300_500, 300_700, 301_000), &base, expected);
        assert!(right.iter().all(|verdict| verdict.passed), "{right:?}");
        let wrong = times(&trips(500, 600, 900), &base, expected);
        assert!(wrong.iter().all(|verdict| !verdict.passed), "{wrong:?}");
    }
}
