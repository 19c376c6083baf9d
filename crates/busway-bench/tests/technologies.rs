//! Every technology that this machine has, by one contract: two programs exchange messages over it,
//! and each arrives whole, in each way to wait, at several sizes, in a closed loop, in an open loop
//! and one way.
//!
//! The test binary is also the program under test, so the harness is not the standard one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use busway_bench::hosts::Hosts;
use busway_bench::processes::Worker;
use busway_bench::record::Measured;
use busway_bench::system::write_system_file;
use busway_bench::technology::{self, Description, MeetingPoint, OneWay, SHORT_BYTES, Stage, Wait};
use busway_bench::worker::{Exchange, ExchangePart, Extent, NUMBERS, Report, Role};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

/// Nothing here takes so long unless it hangs.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const ROUND_TRIPS: u64 = 200;
const STREAMED: u64 = 2_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|name| name == "bench-worker") {
        return busway_bench::worker::main(&arguments[2..]);
    }
    let mut tests = Vec::new();
    for description in technology::all() {
        // The program tests what needs gateways: `gateway_bench.rs`.
        let is_alone = matches!(description.stage, Stage::Bare | Stage::Link(_));
        if description.missing.is_some() || !is_alone {
            continue;
        }
        for wait in description.waits.clone() {
            let mut add = |what: &str, test: fn(&Description, Wait) -> Result<(), Failed>| {
                let name = format!("{}_{}_{what}", description.name, wait.word());
                let description = description.clone();
                tests.push(Trial::test(name, move || test(&description, wait)));
            };
            add("answers_every_question_in_a_closed_loop", closed_loop);
            add("answers_every_question_in_an_open_loop", open_loop);
            if description.one_way.is_some() {
                add("accounts_for_every_message_one_way", one_way);
            }
            add("outlives_a_peer_that_is_killed", killed_peer);
        }
    }
    let mut arguments = Arguments::from_args();
    // Two programs that spin want the cores for themselves, and there is one RouDi of iceoryx on a
    // host.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, tests).exit_code()
}

struct Site<'d> {
    hosts: Hosts,
    system: Option<PathBuf>,
    technology: &'d Description,
    wait: Wait,
}

impl<'d> Site<'d> {
    fn new(technology: &'d Description, wait: Wait) -> Result<Self, Failed> {
        let hosts = Hosts::domains(&["a", "b"])?;
        let system = match technology.stage {
            Stage::Link(bus) => Some(write_system_file(&hosts, bus, Some(wait))?),
            _ => None,
        };
        Ok(Self {
            hosts,
            system,
            technology,
            wait,
        })
    }
}

struct Pair {
    // In this order they end.
    asking: Worker,
    answering: Worker,
}

impl Pair {
    fn start(
        site: &Site,
        payload_bytes: usize,
        parts: [ExchangePart; 2],
        extent: Extent,
    ) -> Result<Self, Failed> {
        static MEASUREMENTS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the number must differ, nothing else.
        let number = MEASUREMENTS.fetch_add(1, Ordering::Relaxed);
        let program = std::env::current_exe()?;
        let stop = AtomicBool::new(false);
        let hosts = &site.hosts.hosts;
        let spec = |part: ExchangePart, address: SocketAddr| {
            Role::Exchange(Exchange {
                seat: None,
                technology: site.technology.name.clone(),
                place: MeetingPoint {
                    name: format!("m{number}"),
                    directory: site.hosts.shared.clone(),
                    address,
                    iceoryx2: hosts[0].iceoryx2_config.clone(),
                    system: site.system.clone(),
                    // A link has two ends; all else happens on one host.
                    host: hosts[part.side() as usize].name.clone(),
                    window: None,
                },
                part,
                payload_bytes,
                touched: true,
                overwrites: false,
                wait: site.wait,
                wanted: Default::default(),
                base: number * NUMBERS,
                extent,
            })
        };
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut answering = Worker::start(&program, &hosts[0], &spec(parts[1], any))?;
        let address = answering.ready(&stop)?.unwrap_or(any);
        let mut asking = Worker::start(&program, &hosts[0], &spec(parts[0], address))?;
        asking.ready(&stop)?;
        Ok(Self { asking, answering })
    }

    fn arrive(worker: &mut Worker) -> Result<(), Failed> {
        let arrived = |report| matches!(report, Report::Arrived).then_some(());
        Ok(worker.wait_for("the first message", TIME_LIMIT, || Ok(()), arrived)?)
    }

    fn counted(worker: &mut Worker) -> Result<Measured, Failed> {
        let counted = |report| match report {
            Report::Counted(measured) => Some(*measured),
            _ => None,
        };
        Ok(worker.wait_for("the figures", TIME_LIMIT, || Ok(()), counted)?)
    }
}

fn sizes(description: &Description, wanted: &[usize]) -> Vec<usize> {
    wanted
        .iter()
        .copied()
        .filter(|bytes| (description.least_bytes..=description.max_bytes).contains(bytes))
        .collect()
}

/// Readers of the published register can be deceived: that is what it is measured for.
fn may_be_torn(description: &Description) -> bool {
    description.name == "begin-end-flags"
}

fn closed_loop(description: &Description, wait: Wait) -> Result<(), Failed> {
    let site = Site::new(description, wait)?;
    for bytes in sizes(description, &[SHORT_BYTES, 16, 4096, 1 << 20]) {
        let parts = [ExchangePart::Ping, ExchangePart::Echo(None)];
        let mut pair = Pair::start(&site, bytes, parts, Extent::Messages(ROUND_TRIPS))?;
        Pair::arrive(&mut pair.asking)?;
        pair.asking.go();
        let measured = Pair::counted(&mut pair.asking)?;
        assert_eq!(measured.sent, ROUND_TRIPS, "{bytes} bytes: {measured:?}");
        if !may_be_torn(description) {
            assert_eq!(
                (measured.received, measured.corrupt),
                (ROUND_TRIPS, 0),
                "{bytes} bytes: {measured:?}"
            );
        }
    }
    Ok(())
}

fn open_loop(description: &Description, wait: Wait) -> Result<(), Failed> {
    let site = Site::new(description, wait)?;
    for bytes in sizes(description, &[16, 4096]) {
        let parts = [ExchangePart::OpenLoop(1_000_000), ExchangePart::Echo(None)];
        let mut pair = Pair::start(&site, bytes, parts, Extent::Messages(ROUND_TRIPS))?;
        Pair::arrive(&mut pair.asking)?;
        pair.asking.go();
        let measured = Pair::counted(&mut pair.asking)?;
        assert_eq!(
            (measured.sent, measured.received + measured.lost),
            (ROUND_TRIPS, ROUND_TRIPS),
            "{bytes} bytes: {measured:?}"
        );
        // A path that keeps only the newest message, or the published register, may lose one when a
        // program is held up.
        if description.one_way == Some(OneWay::Lossless) {
            assert_eq!(
                (measured.lost, measured.corrupt),
                (0, 0),
                "{bytes} bytes: {measured:?}"
            );
        }
    }
    Ok(())
}

fn one_way(description: &Description, wait: Wait) -> Result<(), Failed> {
    let site = Site::new(description, wait)?;
    for bytes in sizes(description, &[SHORT_BYTES, 512, 40_448]) {
        let parts = [ExchangePart::Send(None), ExchangePart::Receive];
        let mut pair = Pair::start(&site, bytes, parts, Extent::Messages(STREAMED))?;
        Pair::arrive(&mut pair.answering)?;
        pair.asking.go();
        let sent = Pair::counted(&mut pair.asking)?;
        pair.answering.finish(sent.sent);
        let received = Pair::counted(&mut pair.answering)?;
        assert_eq!(sent.sent, STREAMED, "{bytes} bytes: {sent:?}");
        assert!(received.received > 0, "{bytes} bytes: {received:?}");
        if !may_be_torn(description) {
            assert!(
                received.received <= STREAMED && received.corrupt == 0,
                "{bytes} bytes: {received:?}"
            );
        }
        if description.one_way == Some(OneWay::Lossless) {
            assert_eq!(received.received, STREAMED, "{bytes} bytes: {received:?}");
        }
    }
    Ok(())
}

/// Whichever of the two is killed in the middle, the other one ends when its parent says so, and
/// the next two find the place usable.
fn killed_peer(description: &Description, wait: Wait) -> Result<(), Failed> {
    let site = Site::new(description, wait)?;
    for kills_asking in [true, false] {
        let parts = [ExchangePart::Ping, ExchangePart::Echo(None)];
        let bytes = description.max_bytes.min(64 << 10);
        let mut pair = Pair::start(&site, bytes, parts, Extent::Seconds(60.0))?;
        Pair::arrive(&mut pair.asking)?;
        pair.asking.go();
        let (victim, other) = if kills_asking {
            (&mut pair.asking, &mut pair.answering)
        } else {
            (&mut pair.answering, &mut pair.asking)
        };
        let victim = victim
            .process()
            .and_then(|process| Pid::from_raw(process.id() as i32));
        let victim = victim.ok_or("a process has a number")?;
        kill_process(victim, Signal::KILL)?;
        other.end();
        // It ends by itself, with figures or with an error, before its parent loses patience and
        // kills it.
        let ended = other.wait_for(
            "its end",
            TIME_LIMIT,
            || Ok(()),
            |report| matches!(report, Report::Done).then_some(()),
        );
        let was_killed = ended.is_err_and(|error| error.to_string().contains("SIGKILL"));
        assert!(!was_killed, "killed the asking program: {kills_asking}");
    }
    Ok(())
}
