//! `busway bench calls`: what a write and a read of a sampling port cost with nobody else at the
//! channel.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::options::{Common, Quick, sizes_or};
use super::rounds::{Gathered, Plan, conduct};
use super::session::Session;
use super::task::{Context, finish};
use crate::BenchError;
use crate::processes::go_on;
use crate::record::{Calls, Experiment, Row, Run, median};
use crate::technology::{Side, Stage, Wait};
use crate::worker::{PortCalls, Report, Role};

const SIZES_BYTES: [usize; 4] = [16, 64, 1 << 10, 4 << 10];
const DEFAULTS: Quick = Quick {
    rounds: [2, 5],
    seconds: [0.15, 0.6],
};
/// Beyond the time of the measurement.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Options of `busway bench calls`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// What all experiments understand.
    #[command(flatten)]
    pub common: Common,
}

/// Measures, and writes the files asked for.
///
/// # Errors
///
/// An option is wrong, hosts cannot be made, or a file cannot be written.
pub fn run(args: &Args, context: Context<'_>) -> Result<Run, BenchError> {
    let common = &args.common;
    let (mut session, mut notes) = Session::open(common, context)?;
    let is_local_port = |one: &crate::technology::Description| {
        let local = Stage::Ports {
            bus: None,
            queuing: false,
        };
        one.stage == local
    };
    let (technologies, more) =
        common.technologies(is_local_port, "calls are those of sampling ports on one host");
    notes.extend(more);
    let seconds = common.seconds(DEFAULTS);
    let plan = Plan::over(
        Experiment::Calls,
        technologies.into_iter().map(|one| (one, vec![Wait::Spin])),
        &sizes_or(&common.sizes, &SIZES_BYTES),
        &[None],
        common.settings(DEFAULTS),
        notes,
    );
    let run = conduct(
        &mut session,
        plan,
        |session, staged, task| {
            session.count += 1;
            let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let spec = PortCalls {
                place: session.place(task, staged, Side::Asks, nowhere),
                payload_bytes: task.payload_bytes,
                seconds,
            };
            let [site, _] = session.sites(task.technology.reach);
            let mut worker = site.worker(&Role::PortCalls(spec))?;
            let timeout = Duration::from_secs_f64(seconds) + TIMEOUT;
            let stop = session.context.stop;
            worker.wait_for(
                "the cost of a call",
                timeout,
                || go_on(stop),
                |report| match report {
                    Report::Calls(calls) => Some(calls),
                    _ => None,
                },
            )
        },
        row,
    )?;
    finish(run, common)
}

fn row(gathered: &Gathered<Calls>, cores: usize) -> Row {
    let column = |pick: fn(&Calls) -> f64| {
        let values: Vec<f64> = gathered.found().map(pick).collect();
        median(&values).unwrap_or(0.0)
    };
    let both = |calls: &Calls| calls.write_and_read_ns;
    Row {
        calls: Some(Calls {
            write_ns: column(|calls| calls.write_ns),
            read_ns: column(|calls| calls.read_ns),
            write_and_read_ns: column(both),
            clock_ns: column(|calls| calls.clock_ns),
        }),
        by_round: gathered
            .rounds
            .iter()
            .map(|round| round.as_ref().map(both))
            .collect(),
        ..gathered.task.row(1, cores, gathered.found().count())
    }
}
