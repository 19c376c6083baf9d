//! Sampling ports over RDMA that no software at the receiving host touches: what a partition writes
//! on one guest, a partition reads on the other while that host's gateway is stopped, after either
//! gateway was killed, and over TCP while the RDMA wire is cut. No message may be taken twice.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use super::Stage;
use super::failover::hosts::Hosts;
use crate::lab::builds::Set;
use crate::lab::gateways::{Gateways, Programs, with_logs};
use crate::lab::guest::{Guest, Program};
use crate::lab::preset::Preset;
use crate::lab::protocol::Job;
use crate::lab::wire::Faults;

const LIMIT: Duration = Duration::from_secs(120);
const BUS: &str = "rdma-write";
const TCP: &str = "tcp";
const PORTS_PROGRAM: &str = "busway-test-ports";
/// Several times what the guests may be paused for, and less than what a gateway is stopped for.
const REFRESH_PERIOD_NS: i64 = 3_000_000_000;
const STOPPED: Duration = Duration::from_secs(6);
/// For the processor time, unless the scenario was asked for by name.
const SHORT: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);
const MOST_MESSAGES: u64 = 100_000;

const PORTS: &str = r#"
[[partition]]
name = "source"
host = "a"
ports = [{ name = "OUT", kind = "sampling", direction = "source", max_size = 8 }]
[[partition]]
name = "sink"
host = "b"
ports = [{ name = "IN", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "3s" }]
[[channel]]
name = "lab"
source = "source/OUT"
destinations = ["sink/IN"]
"#;

pub(super) fn run(stage: &Stage<'_>) -> Result<Value> {
    stage.says("builds the programs");
    let programs = Programs::build(stage.builds)?;
    let ports_program = stage.builds.program(Set::Programs, PORTS_PROGRAM)?;
    let mut results = Vec::new();
    for preset in [Preset::Roce, Preset::Iwarp] {
        let shown = preset.shown(BUS);
        if !shown.contains(stage.only) {
            continue;
        }
        stage.says(format!("{shown}: starts two guests"));
        let hosts = Hosts::start_with(stage, &programs, preset, |plan| {
            plan.program(&ports_program);
        })?;
        results.push(stage.part(&shown, over(stage, &hosts, &shown)));
    }
    Ok(Value::Array(results))
}

fn over(stage: &Stage<'_>, hosts: &Hosts, shown: &str) -> Result<Value> {
    let more = Hosts::lines(BUS) + PORTS;
    let mut gateways = Gateways::start(hosts.pair.both(), &[BUS, TCP], &more)?;
    let outcome = session(stage, hosts, shown, &mut gateways);
    let result = with_logs(outcome, &gateways)?;
    gateways.finish()?;
    Ok(result)
}

fn session<'a>(
    stage: &Stage<'_>,
    hosts: &'a Hosts,
    shown: &str,
    gateways: &mut Gateways<'a>,
) -> Result<Value> {
    let [a, b] = hosts.pair.both();
    let watch = json!({ "Watch": { "refresh_period_ns": REFRESH_PERIOD_NS, "gap_us": 300 } });
    let sink = Partition(partition(b, "sink", "IN", &watch)?);
    goes_over(gateways, BUS)?;
    let idle = Busy::begin(b, "busway")?;
    sleep(SHORT);
    let idle = idle.end()?;
    let write = json!({ "WriteEvery": { "gap_us": 200 } });
    let source = Partition(partition(a, "source", "OUT", &write)?);
    arrives(&source, &sink, "at first")?;

    stage.says(format!("{shown}: processor time"));
    let load = load(stage, b, &sink)?;
    stage.notes(format!(
        "{shown}: {} messages in {:.0} s; receiving host: its gateway ran {:.0} times/s, {:.1} ms/s (without messages {:.0} \
         times/s, {:.1} ms/s), its reader {:.0} times/s, {:.1} ms/s",
        load.messages,
        load.duration.as_secs_f64(),
        load.gateway.times_per_s,
        load.gateway.ms_per_s,
        idle.times_per_s,
        idle.ms_per_s,
        load.reader.times_per_s,
        load.reader.ms_per_s
    ));
    // The kernel's soft RDMA works on the account of whichever program it interrupts, so the time
    // says little; a gateway that took part would run for each message.
    let more = (load.gateway.times_per_s - idle.times_per_s) * load.duration.as_secs_f64();
    ensure!(
        more < load.messages as f64 / 4.0,
        "the receiving gateway ran {more:.0} times more often for {} messages",
        load.messages
    );

    stage.says(format!("{shown}: the receiving gateway is stopped"));
    let arrived = while_stopped(gateways, 1, &source, &sink)?;
    stage.notes(format!(
        "{shown}: {arrived} messages arrived, all valid, while the receiving gateway was stopped for {} s",
        STOPPED.as_secs()
    ));
    for host in [1, 0] {
        stage.says(format!("{shown}: a gateway is killed"));
        gateways.restart(host)?;
        goes_over(gateways, BUS)?;
        arrives(&source, &sink, "after a gateway was killed and started again")?;
    }
    stage.says(format!("{shown}: the wire is cut"));
    let relay = hosts.relay(0)?;
    relay.set(Faults::CUT);
    let moved = goes_over(gateways, TCP).and_then(|()| arrives(&source, &sink, "over TCP"));
    relay.set(Faults::NONE);
    moved?;
    goes_over(gateways, BUS)?;
    arrives(&source, &sink, "after the wire was mended")?;
    stage.notes(format!(
        "{shown}: either gateway was killed, the wire was cut and mended: messages went on, none twice"
    ));
    let seen = sink.seen()?;
    source.end()?;
    sink.end()?;
    Ok(json!({
        "bus": shown,
        "messages": load.messages,
        "duration_s": load.duration.as_secs_f64(),
        "gateway": load.gateway,
        "idle_gateway": idle,
        "reader": load.reader,
        "arrived_while_stopped": arrived,
        "seen": seen,
    }))
}

/// A partition's program of the end-to-end tests.
struct Partition<'a>(Program<'a>);

fn partition<'a>(guest: &'a Guest, partition: &str, port: &str, task: &Value) -> Result<Program<'a>> {
    let work = json!({ "system": "system.toml", "partition": partition, "port": port, "task": task });
    guest.spawn(Job::new(&[PORTS_PROGRAM, &work.to_string()]))
}

impl Partition<'_> {
    /// The number written last.
    fn written(&self) -> Result<u64> {
        self.0.until("the source reports", LIMIT, |output| {
            let whole = output.rsplit_once('\n')?.0;
            whole.lines().next_back()?.parse().ok()
        })
    }

    /// What the sink has seen so far.
    fn seen(&self) -> Result<Value> {
        self.0.until("the sink reports", LIMIT, newest)
    }

    fn end(&self) -> Result<()> {
        self.0.end_input()?;
        let done = self.0.wait(LIMIT)?;
        ensure!(
            done.code == 0,
            "a partition ended with {}: {}",
            done.code,
            done.error
        );
        Ok(())
    }
}

fn newest(output: &str) -> Option<Value> {
    let whole = output.rsplit_once('\n')?.0;
    serde_json::from_str(whole.lines().next_back()?).ok()
}

fn count(seen: &Value, what: &str) -> u64 {
    seen[what].as_u64().unwrap_or(0)
}

/// Messages that are written from now on arrive, and none came twice.
fn arrives(source: &Partition<'_>, sink: &Partition<'_>, when: &str) -> Result<()> {
    let target = source.written()? + 50;
    let seen = sink
        .0
        .until(&format!("messages arrive {when}"), LIMIT, |output| {
            newest(output).filter(|seen| count(seen, "last") > target)
        })
        .with_context(|| format!("{when}: {:?}", newest(&sink.0.output_so_far())))?;
    ensure!(
        count(&seen, "repeated") == 0,
        "messages were taken twice {when}: {seen}"
    );
    Ok(())
}

/// Stops a gateway until its peer has noticed, and longer than a message stays valid; messages go
/// on arriving and are valid throughout. Returns how many.
fn while_stopped(
    gateways: &Gateways<'_>,
    host: usize,
    source: &Partition<'_>,
    sink: &Partition<'_>,
) -> Result<u64> {
    let before = sink.seen()?;
    gateways.running[host].signal(19)?;
    let outcome = gateways
        .down(1 - host)
        .and_then(|_| {
            sleep(STOPPED);
            arrives(source, sink, "while a gateway is stopped")
        })
        .and_then(|()| sink.seen());
    gateways.running[host].signal(18)?;
    let after = outcome?;
    ensure!(
        count(&after, "stale") == count(&before, "stale"),
        "messages were not valid while a gateway was stopped: {before}, then {after}"
    );
    gateways.linked()?;
    goes_over(gateways, BUS)?;
    arrives(source, sink, "after the gateway went on")?;
    Ok(count(&after, "new") - count(&before, "new"))
}

/// Waits until both status files say that the channel is open over `bus`.
fn goes_over(gateways: &Gateways<'_>, bus: &str) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    for host in [1, 0] {
        loop {
            let port = gateways.status(host).map(|status| status["ports"][0].clone());
            let is_there = |port: &Value| port["bus"] == bus && port["open"] == true;
            if port.as_ref().is_ok_and(is_there) {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "the channel does not go over {bus}: {port:?}"
            );
            sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// What programs of one name used, a second.
#[derive(Clone, Copy, Debug, Serialize)]
struct Used {
    ms_per_s: f64,
    /// How often their threads were put on a processor.
    times_per_s: f64,
}

/// Measures that.
struct Busy<'a> {
    guest: &'a Guest,
    program: &'a str,
    begun: Instant,
    before: [u64; 2],
}

impl<'a> Busy<'a> {
    fn begin(guest: &'a Guest, program: &'a str) -> Result<Busy<'a>> {
        Ok(Busy {
            guest,
            program,
            begun: Instant::now(),
            before: used(guest, program)?,
        })
    }

    fn end(&self) -> Result<Used> {
        let after = used(self.guest, self.program)?;
        let per_s = |at: usize| (after[at] - self.before[at]) as f64 / self.begun.elapsed().as_secs_f64();
        Ok(Used {
            ms_per_s: per_s(0) / 1e6,
            times_per_s: per_s(1),
        })
    }
}

/// Nanoseconds on a processor, and how often (`/proc/PID/task/TID/schedstat`).
fn used(guest: &Guest, program: &str) -> Result<[u64; 2]> {
    let line = format!("for pid in $(pidof {program}); do cat /proc/$pid/task/*/schedstat; done");
    let text = guest.shell(&line, LIMIT)?;
    let words = |line: &str| -> Option<[u64; 2]> {
        let mut words = line.split(' ').map(str::parse::<u64>);
        let on_processor_ns = words.next()?.ok()?;
        Some([on_processor_ns, words.nth(1)?.ok()?])
    };
    let all = text.lines().filter_map(words);
    Ok(all.fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]))
}

struct Load {
    messages: u64,
    duration: Duration,
    gateway: Used,
    reader: Used,
}

/// What the receiving host's programs use while messages arrive, at most [`MOST_MESSAGES`].
fn load(stage: &Stage<'_>, guest: &Guest, sink: &Partition<'_>) -> Result<Load> {
    let longest = if stage.is_named { LONG } else { SHORT };
    let first = count(&sink.seen()?, "new");
    let begun = Instant::now();
    let (gateway, reader) = (Busy::begin(guest, "busway")?, Busy::begin(guest, PORTS_PROGRAM)?);
    let messages = loop {
        sleep(Duration::from_millis(500));
        let messages = count(&sink.seen()?, "new") - first;
        if messages >= MOST_MESSAGES || begun.elapsed() >= longest {
            break messages;
        }
    };
    Ok(Load {
        messages,
        duration: begun.elapsed(),
        gateway: gateway.end()?,
        reader: reader.end()?,
    })
}
