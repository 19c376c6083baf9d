//! `busway bench latency`: round trips by size over every technology, in a closed or an open loop.
//!
//! The table that iceperf prints, the round-trip and CDF figures of the RDMA sampling port, and
//! Dolphin's best, average and worst with their histogram are views of its rows.

use super::loads::{blank_row, load};
use super::options::{Common, Quick, sizes_or};
use super::rounds::{Gathered, Plan, conduct};
use super::session::{Exchanged, Session};
use super::task::{Context, finish, merge_times};
use crate::BenchError;
use crate::record::{Experiment, Row, Run, Settings};
use crate::technology::SHORT_BYTES;
use crate::worker::{ExchangePart, Extent};

const SIZES_BYTES: [usize; 20] = {
    let mut sizes = [16; 20];
    sizes[0] = SHORT_BYTES;
    let mut i = 2;
    while i < sizes.len() {
        sizes[i] = sizes[i - 1] * 2;
        i += 1;
    }
    sizes
};
const SIZES_BYTES_QUICK: [usize; 4] = [16, 1 << 10, 64 << 10, 1 << 20];
const DEFAULTS: Quick = Quick {
    rounds: [3, 3],
    seconds: [0.04, 0.2],
};

/// Options of `busway bench latency`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// Send this many messages a second, whether or not the one before is answered; times then
    /// count from the intended instant of sending
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub open_loop: Option<u32>,
    /// Count exactly this many round trips in each measurement, instead of for a time
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    pub messages: Option<u64>,
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
    let (technologies, more) = common.technologies(|_| true, "");
    notes.extend(more);
    let all: &[usize] = if common.quick {
        &SIZES_BYTES_QUICK
    } else {
        &SIZES_BYTES
    };
    let seconds = args.messages.is_none().then(|| common.seconds(DEFAULTS));
    let extent = match args.messages {
        Some(messages) => Extent::Messages(messages),
        None => Extent::Seconds(common.seconds(DEFAULTS)),
    };
    let settings = Settings {
        seconds,
        messages: args.messages,
        open_loop_hz: args.open_loop.map(f64::from),
        ..common.settings(DEFAULTS)
    };
    let cores = session.environment.cores;
    let plan = Plan::over(
        Experiment::Latency,
        technologies.into_iter().map(|one| {
            let waits = common.waits(&one, cores);
            (one, waits)
        }),
        &sizes_or(&common.sizes, all),
        &[None],
        settings,
        notes,
    );
    let asks = match args.open_loop {
        Some(hz) => ExchangePart::OpenLoop(1_000_000_000 / u64::from(hz)),
        None => ExchangePart::Ping,
    };
    let run = conduct(
        &mut session,
        plan,
        |session, staged, task| {
            let parts = [asks, ExchangePart::Echo(None)];
            session.exchange(task, staged, parts, extent)
        },
        row,
    )?;
    finish(run, common)
}

pub(crate) fn row(gathered: &Gathered<Exchanged>, cores: usize) -> Row {
    let rounds = gathered.rounds.iter();
    let (trips, by_round) = merge_times(rounds.map(|round| Some(&round.as_ref()?.asking)));
    let sum = |pick: fn(&Exchanged) -> u64| gathered.found().map(pick).sum::<u64>();
    let (sent, received) = (sum(|it| it.asking.sent), sum(|it| it.asking.received));
    Row {
        sent,
        received,
        lost: sent.saturating_sub(received),
        corrupt: sum(|it| it.asking.corrupt),
        rtt_ns: trips.distribution(),
        half_rtt_ns: trips.halves(),
        sender: load(gathered, 0),
        receiver: load(gathered, 1),
        by_round,
        ..blank_row(gathered, cores)
    }
}
