//! `busway bench timeliness`: at which intervals messages are seen that were sent at given ones.
//!
//! After Lee, Kim, Kim and Jin, "RDMA-based Sampling Port of ARINC-653", section IV-C and figure 4:
//! intervals from 1 µs to 1 ms, 16-byte and 4096-byte messages.

use super::options::{Common, Quick, sizes_or};
use super::rounds::{Gathered, Plan, conduct};
use super::session::{Exchanged, Session};
use super::task::{Context, finish, merge_times};
use super::throughput;
use crate::BenchError;
use crate::record::{Experiment, Row, Run};
use crate::technology::Wait;
use crate::worker::{ExchangePart, Extent};

const INTERVALS_US: [u64; 10] = [1, 2, 3, 5, 10, 25, 50, 100, 300, 1000];
const INTERVALS_US_QUICK: [u64; 4] = [1, 10, 100, 1000];
const MAX_INTERVAL_US: u64 = 1_000_000;
const SIZES_BYTES: [usize; 2] = [16, 4096];
const DEFAULTS: Quick = Quick {
    rounds: [1, 3],
    seconds: [0.05, 0.3],
};

/// Options of `busway bench timeliness`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// Transmission intervals in µs, 1 to 1000000 [default: 1,2,3,5,10,25,50,100,300,1000]
    #[arg(long, value_name = "US", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=MAX_INTERVAL_US))]
    pub intervals: Vec<u64>,
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
    let common = &args.common;
    let (mut session, mut notes) = Session::open(common, context)?;
    let carries = |one: &crate::technology::Description| one.one_way.is_some();
    let (technologies, more) = common.technologies(carries, "it carries no stream of messages");
    notes.extend(more);
    let mut intervals_us = args.intervals.clone();
    if intervals_us.is_empty() {
        let all: &[u64] = if common.quick {
            &INTERVALS_US_QUICK
        } else {
            &INTERVALS_US
        };
        intervals_us = all.to_vec();
    }
    intervals_us.sort_unstable();
    intervals_us.dedup();
    let intervals_ns: Vec<Option<u64>> = intervals_us.iter().map(|us| Some(us * 1000)).collect();
    let seconds = common.seconds(DEFAULTS);
    let cores = session.environment.cores;
    let plan = Plan::over(
        Experiment::Timeliness,
        technologies.into_iter().map(|one| {
            // A sender keeps intervals of a microsecond only by spinning.
            let mut waits = common.waits(&one, cores);
            if common.wait.is_empty() && waits.contains(&Wait::Spin) {
                waits = vec![Wait::Spin];
            }
            (one, waits)
        }),
        &sizes_or(&common.sizes, &SIZES_BYTES),
        &intervals_ns,
        common.settings(DEFAULTS),
        notes,
    );
    let run = conduct(
        &mut session,
        plan,
        |session, staged, task| {
            let parts = [ExchangePart::Send(task.interval_ns), ExchangePart::Receive];
            session.exchange(task, staged, parts, Extent::Seconds(seconds))
        },
        row,
    )?;
    finish(run, common)
}

fn row(gathered: &Gathered<Exchanged>, cores: usize) -> Row {
    let answered = |round: &Option<Exchanged>| {
        merge_times(std::iter::once(
            round.as_ref().and_then(|it| it.answering.as_ref()),
        ))
        .1[0]
    };
    Row {
        by_round: gathered.rounds.iter().map(answered).collect(),
        ..throughput::row(gathered, cores, Experiment::Timeliness)
    }
}
