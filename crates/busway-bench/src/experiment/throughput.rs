//! `busway bench throughput` and `busway bench stream`: one direction, as fast as it goes by size,
//! or at a constant rate.
//!
//! After "TIPC evaluation" (`throughput`: test case 1, sizes 512·n bytes up to 40,448, 10,000 sends
//! each; `stream`: test case 3, 256 KiB every 80 ms), with the CPU load of both sides and the
//! packets on the interface.

use super::loads::{blank_row, load, percent};
use super::options::{Common, Quick, sizes_or};
use super::rounds::{Gathered, Plan, conduct};
use super::session::{Exchanged, Session};
use super::task::{Context, finish, merge_times};
use crate::BenchError;
use crate::record::{Experiment, Measured, Row, Run, Settings, median};
use crate::technology::Wait;
use crate::worker::{ExchangePart, Extent};

/// The step between sizes, and the last of them, as published.
const STEP_BYTES: usize = 512;
const LAST_STEP_BYTES: usize = 40_448;
/// Powers of two from here on.
const FIRST_POWER_BYTES: usize = 64 << 10;
const LAST_POWER_BYTES: usize = 4 << 20;
const MESSAGES: u64 = 10_000;
const SIZES_BYTES_QUICK: [usize; 5] = [512, 4 << 10, 40_448, 256 << 10, 1 << 20];
const DEFAULTS: Quick = Quick {
    rounds: [2, 3],
    seconds: [0.05, 0.0],
};

/// A stream of 25 Mbit/s, as published.
const STREAM_BYTES: usize = 256 << 10;
const STREAM_INTERVAL_US: u64 = 80_000;
const STREAM_DEFAULTS: Quick = Quick {
    rounds: [1, 3],
    seconds: [1.0, 5.0],
};

/// A sender keeps its pace if the median of its intervals is at most this much longer than asked.
const KEPT: f64 = 1.1;

const LEAST_LOAD_FIRST: [Wait; 3] = [Wait::Event, Wait::Adaptive, Wait::Spin];

/// Options of `busway bench throughput`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// Send this many messages of each size [default: 10000, unless --seconds says how long]
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    pub messages: Option<u64>,
    /// What all experiments understand.
    #[command(flatten)]
    pub common: Common,
}

/// Options of `busway bench stream`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct StreamArgs {
    /// Time between two messages in µs [default: 80000]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub interval: Option<u64>,
    /// What all experiments understand.
    #[command(flatten)]
    pub common: Common,
}

/// Measures throughput, and writes the files asked for.
///
/// # Errors
///
/// An option is wrong, hosts cannot be made or reached, or a file cannot be written.
pub fn run(args: &Args, context: Context<'_>) -> Result<Run, BenchError> {
    let common = &args.common;
    let is_timed = common.seconds.is_some() || (common.quick && args.messages.is_none());
    let extent = if is_timed {
        Extent::Seconds(common.seconds(DEFAULTS))
    } else {
        Extent::Messages(args.messages.unwrap_or(MESSAGES))
    };
    let all = if common.quick {
        SIZES_BYTES_QUICK.to_vec()
    } else {
        published_sizes()
    };
    let sizes = sizes_or(&common.sizes, &all);
    one_way(
        Experiment::Throughput,
        common,
        context,
        &sizes,
        None,
        extent,
        common.rounds(DEFAULTS),
    )
}

/// Measures what a stream at a constant rate costs, and writes the files asked for.
///
/// # Errors
///
/// As [`run`].
pub fn run_stream(args: &StreamArgs, context: Context<'_>) -> Result<Run, BenchError> {
    let common = &args.common;
    let interval_ns = args.interval.unwrap_or(STREAM_INTERVAL_US) * 1000;
    one_way(
        Experiment::Stream,
        common,
        context,
        &sizes_or(&common.sizes, &[STREAM_BYTES]),
        Some(interval_ns),
        Extent::Seconds(common.seconds(STREAM_DEFAULTS)),
        common.rounds(STREAM_DEFAULTS),
    )
}

fn published_sizes() -> Vec<usize> {
    let steps = (STEP_BYTES..=LAST_STEP_BYTES).step_by(STEP_BYTES);
    let powers = std::iter::successors(Some(FIRST_POWER_BYTES), |bytes| Some(bytes * 2));
    steps
        .chain(powers.take_while(|bytes| *bytes <= LAST_POWER_BYTES))
        .collect()
}

fn one_way(
    experiment: Experiment,
    common: &Common,
    context: Context<'_>,
    sizes: &[usize],
    interval_ns: Option<u64>,
    extent: Extent,
    rounds: u32,
) -> Result<Run, BenchError> {
    let (mut session, mut notes) = Session::open(common, context)?;
    let carries = |one: &crate::technology::Description| one.one_way.is_some();
    let (technologies, more) = common.technologies(carries, "it carries no stream of messages");
    notes.extend(more);
    let (seconds, messages) = match extent {
        Extent::Seconds(seconds) => (Some(seconds), None),
        Extent::Messages(messages) => (None, Some(messages)),
    };
    let settings = Settings {
        rounds,
        seconds,
        messages,
        touched: !common.untouched,
        open_loop_hz: None,
    };
    let cores = session.environment.cores;
    let plan = Plan::over(
        experiment,
        technologies.into_iter().map(|one| {
            // Not yet cut down to the first by --quick, which may spin.
            let mut waits = common.all_waits(&one, cores);
            if common.wait.is_empty() {
                // A receiver of a slow stream that waits by spinning costs a core at every rate.
                if experiment == Experiment::Stream {
                    waits.sort_by_key(|wait| LEAST_LOAD_FIRST.iter().position(|it| it == wait));
                }
                waits.truncate(1);
            }
            (one, waits)
        }),
        sizes,
        &[interval_ns],
        settings,
        notes,
    );
    let run = conduct(
        &mut session,
        plan,
        |session, staged, task| {
            let parts = [ExchangePart::Send(interval_ns), ExchangePart::Receive];
            session.exchange(task, staged, parts, extent)
        },
        |gathered, cores| row(gathered, cores, experiment),
    )?;
    finish(run, common)
}

pub(crate) fn row(gathered: &Gathered<Exchanged>, cores: usize, experiment: Experiment) -> Row {
    let task = &gathered.task;
    let sum = |pick: fn(&Exchanged) -> u64| gathered.found().map(pick).sum::<u64>();
    let sent = sum(|it| it.asking.sent);
    let received = sum(|it| it.answering.as_ref().map_or(0, |it| it.received));
    let corrupt = sum(|it| it.answering.as_ref().map_or(0, |it| it.corrupt));
    let rates: Vec<Option<f64>> = gathered
        .rounds
        .iter()
        .map(|round| round.as_ref().and_then(messages_per_s))
        .collect();
    let median_rate = median(&rates.iter().flatten().copied().collect::<Vec<_>>());
    let (sender, receiver) = (load(gathered, 0), load(gathered, 1));
    let bytes = task.payload_bytes as f64;
    let by_round = match experiment {
        Experiment::Throughput => rates.iter().map(|rate| rate.map(|rate| rate * bytes)).collect(),
        _ => gathered
            .rounds
            .iter()
            .map(|round| Some(cpu_percent(round.as_ref()?)))
            .collect(),
    };
    let times = |pick: fn(&Exchanged) -> Option<&Measured>| {
        merge_times(gathered.rounds.iter().map(|round| pick(round.as_ref()?)))
            .0
            .distribution()
    };
    let transmitted_ns = times(|it| Some(&it.asking)).filter(|_| task.interval_ns.is_some());
    let is_late = |asked_ns: u64| {
        let sent_ns = transmitted_ns.as_ref().map_or(0, |times| times.p50);
        sent_ns as f64 > asked_ns as f64 * KEPT
    };
    Row {
        sent,
        received,
        lost: sent.saturating_sub(received),
        corrupt,
        off_pace: task.interval_ns.is_some_and(is_late),
        transmitted_interval_ns: transmitted_ns.clone(),
        observed_interval_ns: times(|it| it.answering.as_ref()),
        bytes_per_s: median_rate.map(|rate| rate * bytes),
        messages_per_s: median_rate,
        sender,
        receiver,
        by_round,
        ..blank_row(gathered, cores)
    }
}

/// Messages a second, as the slower end saw it: what was queued before the receiver's first look
/// would let few large messages look faster than they are, and what is queued at the end would let
/// the sender.
fn messages_per_s(found: &Exchanged) -> Option<f64> {
    let answered = found.answering.as_ref()?;
    let rate = |measured: &Measured, messages: u64| {
        let span_ns = measured.last_ns.checked_sub(measured.first_ns)?;
        (span_ns > 0).then(|| messages as f64 * 1e9 / span_ns as f64)
    };
    let received = rate(answered, answered.received.saturating_sub(1))?;
    Some(received.min(rate(&found.asking, found.asking.sent)?))
}

fn cpu_percent(found: &Exchanged) -> f64 {
    let program = |measured: &Measured| {
        let used = &measured.usage;
        percent(used.user_s + used.system_s, used.span_s)
    };
    let gateways = percent(found.gateways_s.iter().sum(), found.asking.usage.span_s);
    program(&found.asking) + found.answering.as_ref().map_or(0.0, program) + gateways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_those_of_the_published_evaluation_and_then_powers_of_two() {
        let sizes = published_sizes();
        assert_eq!(sizes[..3], [512, 1024, 1536]);
        assert!(sizes.contains(&40_448));
        assert_eq!(sizes.last(), Some(&(4 << 20)));
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
