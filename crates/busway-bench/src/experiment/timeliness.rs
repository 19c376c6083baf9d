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
use crate::technology::{Description, SHORT_BYTES, Wait};
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
    if common.sizes.contains(&SHORT_BYTES) {
        return Err(BenchError::Option {
            option: "--sizes",
            value: SHORT_BYTES.to_string(),
            problem: "has no room for the time of sending, which this experiment needs".into(),
            mend: "give sizes of 16 bytes and more".into(),
        });
    }
    let (mut session, mut notes) = Session::open(common, context)?;
    let carries = |one: &Description| one.one_way.is_some();
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
    let waits = waits(common, &technologies, cores);
    let plan = Plan::over(
        Experiment::Timeliness,
        technologies.into_iter().zip(waits),
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

/// How the programs of each wait, so that each comparison has the same strategy on both sides. A
/// sender keeps intervals of a microsecond only by spinning; where gateways leave no core for that,
/// all are measured with adaptive programs as well.
fn waits(common: &Common, technologies: &[Description], cores: usize) -> Vec<Vec<Wait>> {
    let possible: Vec<Vec<Wait>> = technologies
        .iter()
        .map(|one| common.all_waits(one, cores))
        .collect();
    if !common.wait.is_empty() {
        return possible;
    }
    let may_spin = |waits: &[Wait]| waits.contains(&Wait::Spin);
    let all_spin = possible.iter().all(|waits| may_spin(waits));
    let of = |waits: &Vec<Wait>| match (all_spin, may_spin(waits)) {
        (true, _) => vec![Wait::Spin],
        // Whatever can be looked at without waiting suits adaptive programs too.
        (false, true) if !common.quick => vec![Wait::Spin, Wait::Adaptive],
        (false, _) => vec![Wait::Adaptive],
    };
    possible.iter().map(of).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::technology::of;

    #[test]
    fn programs_of_each_comparison_wait_alike() {
        let all = ["tcp", "sampling-memory", "sampling-tcp"].map(|name| of(name).unwrap());
        let common = Common::default();
        assert_eq!(
            waits(&common, &all, 4),
            [[Wait::Spin], [Wait::Spin], [Wait::Spin]]
        );
        assert_eq!(waits(&common, &all[..2], 2), [[Wait::Spin], [Wait::Spin]]);
        let (both, one) = (vec![Wait::Spin, Wait::Adaptive], vec![Wait::Adaptive]);
        assert_eq!(waits(&common, &all, 2), [both.clone(), both, one]);
    }
}
