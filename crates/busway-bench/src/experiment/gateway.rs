//! `busway bench gateway`: iceoryx2 program to iceoryx2 program through two gateways over every
//! bus, beside the bare bus and the Zenoh tunnel: round trips, lossless and overwriting streams,
//! and the cost of idling, in one run.

use std::time::{Duration, Instant};

use super::floors::{HOP, LOSSLESS, LOSSY, PING_PONG, TUNNEL};
use super::options::{Common, Quick, sizes_or};
use super::rounds::{Gathered, Group, Plan, conduct};
use super::session::{Exchanged, Session, look};
use super::staged::Staged;
use super::task::{Context, Task, finish};
use super::{floors, latency, throughput};
use crate::BenchError;
use crate::record::{Experiment, Measured, Row, Run, Settings, Used};
use crate::technology::{
    self, DEFAULT_QUEUE_DEPTH, Description, OneWay, Reach, Stage, Wait, floors_of, queue_depth, ring,
};
use crate::worker::{ExchangePart, Extent, Role, Services};

const SIZES_BYTES: [usize; 6] = [64, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const DEFAULTS: Quick = Quick {
    rounds: [1, 3],
    seconds: [0.2, 1.0],
};
const IDLE_SERVICES: usize = 100;
const IDLE_BYTES: usize = size_of::<u64>();
/// The announcements of all services have crossed after this time.
const SETTLE: Duration = Duration::from_secs(2);
/// How long idling is measured, in s; CPU time is known to 10 ms. The first is for `--quick`.
const IDLE_SECONDS: [f64; 2] = [3.0, 10.0];
/// Ways to wait, by how much they are like an ordinary program. `--quick` takes the first.
const WAITS: [Wait; 3] = [Wait::Event, Wait::Adaptive, Wait::Spin];

const OVERWRITING: &str = "overwriting";
const IDLE: &str = "idle";

/// Options of `busway bench gateway`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// What to measure, by bus or by the names of --technologies: memory is gateway-memory,
    /// bare-copy is copy, bare-tcp is tcp, iceoryx2-hop is iceoryx2
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_transport)]
    pub transports: Vec<String>,
    /// Leave out the cost of idle gateways
    #[arg(long)]
    pub no_idle: bool,
    /// Send this many messages in each stream and round trip test, instead of for a time
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    pub messages: Option<u64>,
    /// What all experiments understand.
    #[command(flatten)]
    pub common: Common,
}

fn parse_transport(text: &str) -> Result<String, BenchError> {
    let gateway = format!("gateway-{text}");
    let name = match text {
        "bare-copy" => "copy",
        "bare-tcp" => "tcp",
        "iceoryx2-hop" => HOP,
        _ if technology::of(&gateway).is_some() => &gateway,
        other => other,
    };
    super::options::parse_technology(name)
}

/// Measures everything asked for, and writes the files. When the user stops it, the run ends with
/// what was measured so far.
///
/// # Errors
///
/// An option is wrong, hosts cannot be made, or a file cannot be written. What goes wrong in a
/// single measurement is a note in the result.
pub fn run(args: &Args, context: Context<'_>) -> Result<Run, BenchError> {
    let mut common = args.common.clone();
    common.technologies.extend(args.transports.iter().cloned());
    if common.technologies.is_empty() {
        common.technologies = set();
    }
    let (mut session, mut notes) = Session::open(&common, context)?;
    let (mut technologies, more) = common.technologies(|_| true, "");
    notes.extend(more);
    technologies.sort_by_key(|one| common.technologies.iter().position(|name| *name == one.name));
    let cores = session.environment.cores;
    let extent = args
        .messages
        .map_or(Extent::Seconds(common.seconds(DEFAULTS)), Extent::Messages);
    let settings = Settings {
        seconds: args.messages.is_none().then(|| common.seconds(DEFAULTS)),
        messages: args.messages,
        ..common.settings(DEFAULTS)
    };
    let sizes = &SIZES_BYTES[..SIZES_BYTES.len() - usize::from(common.quick)];
    let sizes = sizes_or(&common.sizes, sizes);
    let plan = Plan {
        experiment: Experiment::Gateway,
        groups: groups(args, &common, &technologies, &sizes, cores, &mut notes),
        settings,
        notes,
    };
    let idle_seconds = IDLE_SECONDS[usize::from(!common.quick)];
    let mut run = conduct(
        &mut session,
        plan,
        |session, staged, task| match task.mode {
            Some(IDLE) => idle(session, staged, idle_seconds),
            Some(PING_PONG) => {
                let parts = [ExchangePart::Ping, ExchangePart::Echo(None)];
                session.exchange(task, staged, parts, extent)
            }
            _ => {
                let parts = [ExchangePart::Send(None), ExchangePart::Receive];
                session.exchange(task, staged, parts, extent)
            }
        },
        row,
    )?;
    floors::add(&mut run.rows);
    finish(run, &common)
}

fn set() -> Vec<String> {
    let mut names = vec![HOP.to_owned()];
    for one in technology::all() {
        let Stage::Gateways(bus) = one.stage else {
            continue;
        };
        let floors = floors_of(bus).into_iter().map(|floor| floor.name);
        let new: Vec<String> = floors.filter(|name| !names.contains(name)).collect();
        names.extend(new);
        names.push(one.name);
    }
    names.push(TUNNEL.to_owned());
    names
}

/// The tasks of a round. Round trips are measured with every way to wait, streams with one:
/// adaptive where possible.
fn groups(
    args: &Args,
    common: &Common,
    technologies: &[Description],
    sizes: &[usize],
    cores: usize,
    notes: &mut Vec<String>,
) -> Vec<Group> {
    let mut groups = Vec::new();
    for one in technologies {
        let possible = common.all_waits(one, cores);
        let mut waits = WAITS.to_vec();
        waits.retain(|wait| possible.contains(wait));
        waits.truncate(if common.quick && common.wait.is_empty() {
            1
        } else {
            waits.len()
        });
        if waits.is_empty() {
            notes.push(format!(
                "{}: left out: its programs cannot wait as asked",
                one.name
            ));
        }
        let may_spin = common.wait.is_empty() || common.wait.contains(&Wait::Spin);
        if may_spin && one.waits.contains(&Wait::Spin) && !possible.contains(&Wait::Spin) {
            notes.push(format!(
                "{} spin: skipped: needs a core for each program and gateway, here are {cores} (--wait spin measures it anyway)",
                one.name
            ));
        }
        let stream_wait = waits.iter().copied().find(|wait| *wait == Wait::Adaptive);
        let stream_wait = stream_wait.or(waits.first().copied());
        for &wait in &waits {
            let task = |mode, payload_bytes| Task {
                mode: Some(mode),
                overwrites: matches!(mode, PING_PONG | OVERWRITING),
                once: mode == IDLE,
                ..Task::new(one, wait, payload_bytes)
            };
            let fitting = one.fitting(sizes).into_iter();
            let mut tasks: Vec<Task> = fitting
                .flat_map(|bytes| modes(one).into_iter().map(move |mode| (mode, bytes)))
                .filter(|(mode, _)| *mode == PING_PONG || Some(wait) == stream_wait)
                .map(|(mode, bytes)| task(mode, bytes))
                .collect();
            if one.has_gateways() && wait != Wait::Spin && !args.no_idle {
                tasks.push(task(IDLE, IDLE_BYTES));
            }
            groups.push(Group {
                technology: one.clone(),
                wait,
                tasks,
            });
        }
    }
    groups
}

fn modes(one: &Description) -> Vec<&'static str> {
    let is_iceoryx2 = one.name == HOP || one.has_gateways();
    let mut modes = vec![PING_PONG];
    modes.extend(match one.one_way {
        Some(OneWay::Lossless) => Some(LOSSLESS),
        Some(OneWay::Lossy) => Some(LOSSY),
        Some(OneWay::Sampling) | None => None,
    });
    modes.extend(is_iceoryx2.then_some(OVERWRITING));
    modes
}

fn idle(session: &mut Session<'_>, staged: &mut Staged, seconds: f64) -> Result<Exchanged, BenchError> {
    let stop = session.context.stop;
    let sites = session.sites(Reach::Machine);
    let mut workers = Vec::new();
    for (site, publish) in sites.iter().zip([true, false]) {
        let services = Services {
            config: site.host().iceoryx2_config.clone(),
            count: IDLE_SERVICES,
            publish,
        };
        let mut worker = site.worker(&Role::Services(services))?;
        worker.ready(stop)?;
        workers.push(worker);
    }
    let [publishing, subscribing] = &mut workers[..] else {
        unreachable!("there are two sites")
    };
    let mut pass = |time: Duration, staged: &mut Staged| {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            look(stop, staged, publishing)?;
            subscribing.check()?;
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        Ok::<(), BenchError>(())
    };
    pass(SETTLE, staged)?;
    let before_s = staged.cpu_s();
    pass(Duration::from_secs_f64(seconds), staged)?;
    let nothing = Measured {
        usage: Used {
            span_s: seconds,
            ..Used::default()
        },
        ..Measured::default()
    };
    Ok(Exchanged {
        asking: nothing.clone(),
        answering: Some(nothing),
        gateways_s: staged.cpu_since(&before_s),
        threads: 0,
    })
}

fn row(gathered: &Gathered<Exchanged>, cores: usize) -> Row {
    let task = &gathered.task;
    let row = match task.mode {
        Some(PING_PONG) => latency::row(gathered, cores),
        Some(IDLE) => throughput::row(gathered, cores, Experiment::Stream),
        _ => throughput::row(gathered, cores, Experiment::Throughput),
    };
    Row {
        queue_depth: queue(task).map(|depth| depth as u64),
        ..row
    }
}

fn queue(task: &Task) -> Option<usize> {
    let mode = task.mode.filter(|mode| *mode != IDLE)?;
    let is_iceoryx2 = task.technology.name == HOP || task.technology.has_gateways();
    match mode {
        LOSSLESS if is_iceoryx2 => Some(queue_depth(task.payload_bytes)),
        LOSSLESS if task.technology.name == "copy" => Some(ring::slots_for(task.payload_bytes)),
        _ => is_iceoryx2.then_some(DEFAULT_QUEUE_DEPTH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(waits: &[Wait], cores: usize) -> (Vec<Group>, Vec<String>) {
        let common = Common {
            wait: waits.to_vec(),
            ..Common::default()
        };
        let technologies = [technology::of("gateway-tcp").unwrap()];
        let mut notes = Vec::new();
        let sizes = [64, 4096];
        let groups = groups(
            &Args::default(),
            &common,
            &technologies,
            &sizes,
            cores,
            &mut notes,
        );
        (groups, notes)
    }

    #[test]
    fn gateway_of_every_bus_is_measured_behind_its_floor() {
        let names = set();
        let at = |name: &str| names.iter().position(|it| it == name).expect(name);
        assert!(at("copy") < at("gateway-memory") && at("tcp") < at("gateway-tcp"));
        assert!(at("tcp-batch") < at("gateway-tcp") && at("udp-batch") < at("gateway-udp"));
        for bus in busway_buses::BUS_NAMES {
            at(&format!("gateway-{bus}"));
        }
    }

    #[test]
    fn transport_is_a_bus_or_a_technology() {
        for (word, name) in [
            ("memory", "gateway-memory"),
            ("tcp", "gateway-tcp"),
            ("bare-tcp", "tcp"),
            ("bare-copy", "copy"),
            ("iceoryx2-hop", "iceoryx2"),
            ("zenoh-tunnel", "zenoh-tunnel"),
            ("gateway-udp", "gateway-udp"),
        ] {
            assert_eq!(parse_transport(word).unwrap(), name);
        }
        assert!(parse_transport("pigeons").is_err());
    }

    #[test]
    fn gateways_spin_only_where_each_has_a_core_unless_asked_to() {
        let spins = |waits: &[Wait], cores| {
            let (groups, notes) = planned(waits, cores);
            let spins = groups.iter().any(|group| group.wait == Wait::Spin);
            assert_eq!(spins, notes.is_empty(), "{notes:?}");
            spins
        };
        assert!(!spins(&[], 2));
        assert!(spins(&[], 4));
        assert!(spins(&[Wait::Spin], 2));
    }

    #[test]
    fn streams_are_measured_once_and_round_trips_with_every_wait_strategy() {
        let (groups, _) = planned(&[Wait::Event, Wait::Adaptive], 4);
        let all: Vec<&Task> = groups.iter().flat_map(|group| &group.tasks).collect();
        let count = |mode| all.iter().filter(|task| task.mode == Some(mode)).count();
        assert_eq!([PING_PONG, LOSSLESS, OVERWRITING, IDLE].map(count), [4, 2, 2, 2]);
        let is_adaptive = |task: &&Task| task.wait == Wait::Adaptive;
        let mut streams = all.iter().filter(|task| task.mode == Some(LOSSLESS));
        assert!(streams.all(is_adaptive));
    }
}
