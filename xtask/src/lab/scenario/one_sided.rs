//! Sampling ports over RDMA that no software at the receiving host touches. One channel is written
//! by the source's own process: a partition of the other guest reads its messages while both
//! gateways are stopped. Another one, of a host whose system file keeps the device from
//! partitions, is written by the source's gateway. Either gateway is killed, the wire is cut, which
//! moves both to TCP, and the source's process is killed. No message may be taken twice.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use super::Stage;
use super::failover::hosts::Hosts;
use crate::lab::builds::Set;
use crate::lab::gateways::{Gateways, Programs, system_file, with_logs};
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
/// What is under way arrives within this.
const SETTLED: Duration = Duration::from_secs(2);
const STOPPED: Duration = Duration::from_secs(5);
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
[[partition]]
name = "back-source"
host = "b"
ports = [{ name = "OUT", kind = "sampling", direction = "source", max_size = 8 }]
[[partition]]
name = "back-sink"
host = "a"
ports = [{ name = "IN", kind = "sampling", direction = "destination", max_size = 8, refresh_period = "3s" }]
[[channel]]
name = "back"
source = "back-source/OUT"
destinations = ["back-sink/IN"]
"#;
/// Host b's table of the bus, without and with the key that makes its gateway write.
const TABLE: &str = "listen = \"10.77.0.2:7400\" }";
const FORBIDDEN: &str = "listen = \"10.77.0.2:7400\", partition_writes = false }";

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
    let system = system_file(&[BUS, TCP], &more).replace(TABLE, FORBIDDEN);
    ensure!(
        system.contains(FORBIDDEN),
        "host b's table is another one:\n{system}"
    );
    let mut gateways = Gateways::start_with(hosts.pair.both(), &[BUS, TCP], &system)?;
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
    goes_over(gateways, BUS)?;
    let idle = Busy::both([a, b])?;
    sleep(SHORT);
    let idle = [idle[0].end()?, idle[1].end()?];
    let mut lab = Channel::start((a, "source"), (b, "sink"))?;
    let back = Channel::start((b, "back-source"), (a, "back-sink"))?;
    let both = [&lab, &back];
    arrives(&both, "at first")?;
    written_by(gateways, [0, 1])?;

    stage.says(format!("{shown}: processor time"));
    back.source.stop()?;
    let load = load(stage, [a, b], &lab.sink)?;
    back.source.go_on()?;
    judge_load(stage, shown, &load, &idle)?;

    stage.says(format!("{shown}: both gateways are stopped"));
    let arrived = while_stopped(gateways, &[0, 1], &lab)?;
    written_by(gateways, [0, 1])?;
    stage.says(format!("{shown}: the gateway of a is stopped"));
    let back_arrived = while_stopped(gateways, &[0], &back)?;
    stage.notes(format!(
        "{shown}: {arrived} messages of the source's own process arrived, all valid, while both gateways were stopped for {} s; \
         {back_arrived} that a gateway writes while the receiving one was",
        STOPPED.as_secs()
    ));
    for host in [1, 0] {
        stage.says(format!("{shown}: a gateway is killed"));
        gateways.restart(host)?;
        goes_over(gateways, BUS)?;
        arrives(&both, "after a gateway was killed and started again")?;
        written_by(gateways, [0, 1])?;
    }
    stage.says(format!("{shown}: the wire is cut"));
    let relay = hosts.relay(0)?;
    relay.set(Faults::CUT);
    let moved = goes_over(gateways, TCP).and_then(|()| arrives(&both, "over TCP"));
    relay.set(Faults::NONE);
    moved?;
    goes_over(gateways, BUS)?;
    arrives(&both, "after the wire was mended")?;
    written_by(gateways, [0, 1])?;
    let seen = lab.sink.seen()?;
    stage.says(format!("{shown}: the source's process is killed"));
    lab.source.kill()?;
    // The sink has taken the last message before the next source's numbers begin anew.
    sleep(SETTLED);
    lab.sink.end()?;
    lab = Channel::start((a, "source"), (b, "sink"))?;
    goes_over(gateways, BUS)?;
    arrives(&[&lab, &back], "after the source's process was killed")?;
    written_by(gateways, [0, 1])?;
    stage.notes(format!(
        "{shown}: either gateway was killed, the wire was cut and mended, the source's process was killed: messages went on, \
         none twice"
    ));
    for channel in [&lab, &back] {
        channel.source.end()?;
        channel.sink.end()?;
    }
    Ok(json!({
        "bus": shown,
        "messages": load.messages,
        "duration_s": load.duration.as_secs_f64(),
        "gateways": load.gateways,
        "idle_gateways": idle,
        "reader": load.reader,
        "writer": load.writer,
        "arrived_while_both_stopped": arrived,
        "arrived_from_gateway_while_stopped": back_arrived,
        "seen": seen,
    }))
}

/// Reports what the gateways used while messages went by.
fn judge_load(stage: &Stage<'_>, shown: &str, load: &Load, idle: &[Used; 2]) -> Result<()> {
    stage.notes(format!(
        "{shown}: {} messages in {:.0} s; writer {:.0} times/s, {:.1} ms/s, reader {:.0} times/s, {:.1} ms/s",
        load.messages,
        load.duration.as_secs_f64(),
        load.writer.times_per_s,
        load.writer.ms_per_s,
        load.reader.times_per_s,
        load.reader.ms_per_s
    ));
    for (host, (used, idle)) in ["a", "b"].into_iter().zip(load.gateways.iter().zip(idle)) {
        stage.notes(format!(
            "{shown}: gateway of {host} ran {:.0} times/s, {:.1} ms/s (without messages {:.0} times/s, {:.1} ms/s)",
            used.times_per_s, used.ms_per_s, idle.times_per_s, idle.ms_per_s
        ));
        // The kernel's soft RDMA works on the account of whichever program it interrupts, so the
        // time says little; a gateway that took part would run for each message.
        let more = (used.times_per_s - idle.times_per_s) * load.duration.as_secs_f64();
        ensure!(
            more < load.messages as f64 / 4.0,
            "the gateway of {host} ran {more:.0} times more often for {} messages",
            load.messages
        );
    }
    Ok(())
}

/// A channel's two programs.
struct Channel<'a> {
    source: Partition<'a>,
    sink: Partition<'a>,
}

impl<'a> Channel<'a> {
    fn start((from, source): (&'a Guest, &str), (to, sink): (&'a Guest, &str)) -> Result<Channel<'a>> {
        let watch = json!({ "Watch": { "refresh_period_ns": REFRESH_PERIOD_NS, "gap_us": 300 } });
        let write = json!({ "WriteEvery": { "gap_us": 200 } });
        // First: a reader without a good copy may meet a writer that has just left messages out.
        let sink = Partition(partition(to, sink, "IN", &watch)?);
        sink.seen()?;
        let source = Partition(partition(from, source, "OUT", &write)?);
        source.written()?;
        Ok(Channel { source, sink })
    }
}

/// Waits until the status file of host a says that the source's process writes, and that of b that
/// its gateway does, and why.
fn written_by(gateways: &Gateways<'_>, hosts: [usize; 2]) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    for (host, (channel, writer)) in hosts.into_iter().zip([("lab", "partition"), ("back", "gateway")]) {
        loop {
            let port = ports(gateways, host)?
                .into_iter()
                .find(|port| port["channel"] == channel);
            let is_right = |port: &Value| {
                port["writer"] == writer && port["writer_reason"].is_null() == (writer == "partition")
            };
            if port
                .as_ref()
                .is_some_and(|port| port["open"] == true && is_right(port))
            {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "channel {channel} is not written by the {writer}: {port:?}"
            );
            sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// What a status file says of the channels of ports.
fn ports(gateways: &Gateways<'_>, host: usize) -> Result<Vec<Value>> {
    let status = gateways.status(host)?;
    Ok(status["ports"].as_array().cloned().unwrap_or_default())
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

    fn stop(&self) -> Result<()> {
        self.0.signal(19)
    }

    fn go_on(&self) -> Result<()> {
        self.0.signal(18)
    }

    fn kill(&self) -> Result<()> {
        self.0.signal(9)?;
        self.0.wait(LIMIT).map(drop)
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
fn arrives(channels: &[&Channel<'_>], when: &str) -> Result<()> {
    for Channel { source, sink } in channels {
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
    }
    Ok(())
}

/// Stops gateways longer than a message stays valid; messages of the channel go on arriving and are
/// valid throughout. Returns how many.
fn while_stopped(gateways: &Gateways<'_>, hosts: &[usize], channel: &Channel<'_>) -> Result<u64> {
    let before = channel.sink.seen()?;
    for host in hosts {
        gateways.running[*host].signal(19)?;
    }
    sleep(STOPPED);
    let outcome = arrives(&[channel], "while a gateway is stopped").and_then(|()| channel.sink.seen());
    for host in hosts {
        gateways.running[*host].signal(18)?;
    }
    let after = outcome?;
    ensure!(
        count(&after, "stale") == count(&before, "stale"),
        "messages were not valid while a gateway was stopped: {before}, then {after}"
    );
    gateways.linked()?;
    goes_over(gateways, BUS)?;
    arrives(&[channel], "after the gateway went on")?;
    Ok(count(&after, "new") - count(&before, "new"))
}

/// Waits until both status files say that the channels are open over `bus`.
fn goes_over(gateways: &Gateways<'_>, bus: &str) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    for host in [1, 0] {
        loop {
            let ports = ports(gateways, host);
            let is_there = |port: &Value| port["bus"] == bus && port["open"] == true;
            if ports
                .as_ref()
                .is_ok_and(|ports| ports.len() == 2 && ports.iter().all(is_there))
            {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "the channels do not go over {bus}: {ports:?}"
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
    /// Of the gateways of both guests.
    fn both(guests: [&'a Guest; 2]) -> Result<[Busy<'a>; 2]> {
        let [a, b] = guests;
        Ok([Busy::begin(a, "busway")?, Busy::begin(b, "busway")?])
    }

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
    gateways: [Used; 2],
    writer: Used,
    reader: Used,
}

/// What the programs of both hosts use while messages of one channel arrive, at most
/// [`MOST_MESSAGES`].
fn load(stage: &Stage<'_>, guests: [&Guest; 2], sink: &Partition<'_>) -> Result<Load> {
    let longest = if stage.is_named { LONG } else { SHORT };
    let first = count(&sink.seen()?, "new");
    let begun = Instant::now();
    let gateways = Busy::both(guests)?;
    let [writer, reader] = guests.map(|guest| Busy::begin(guest, PORTS_PROGRAM));
    let (writer, reader) = (writer?, reader?);
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
        gateways: [gateways[0].end()?, gateways[1].end()?],
        writer: writer.end()?,
        reader: reader.end()?,
    })
}
