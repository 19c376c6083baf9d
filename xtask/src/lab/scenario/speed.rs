//! Channels beside the kernel's own tools, in the same guests in the same run: bare sockets
//! (`busway bench` has them), perftest for RDMA. Only ratios mean anything: emulated times don't.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::{Value, json};

mod perftest;

use perftest::{tool_bytes_per_s, tool_figure};

use super::Stage;
use super::parts::gateway_pair;
use crate::lab::pair::Pair;
use crate::lab::preset::Preset;
use crate::lab::protocol::Job;

const LIMIT: Duration = Duration::from_secs(400);
const SIZES_BYTES: [u64; 4] = [16, 64, 1_024, 4_096];
const BULK_BYTES: u64 = 65_536;
const HALF_TRIP: &str = "half round trip, µs";
const THROUGHPUT: &str = "throughput, MB/s";
const RESULT: &str = "/tmp/result.json";
/// In front of everything that is timed. Who polls on a guest's only processor must give way to the
/// kernel at once, or it waits for what the kernel never gets to do: perftest took minutes for a
/// round trip, or did not end. Only `SCHED_IDLE` gives way always; a program that is merely nice is
/// not preempted by a thread of the kernel that has run a moment ago, and both wait for the next
/// tick of the timer, 4 ms.
pub(super) const YIELDING: [&str; 3] = ["chrt", "--idle", "0"];
pub(super) const YIELDING_PROGRAM: &str = "/usr/bin/chrt";
/// Frames of networks that carry RDMA: packets of RoCE are up to 4 KiB then, at the usual 1500
/// bytes 1 KiB.
pub(super) const JUMBO_BYTES: u32 = 9000;

/// A queuing channel, a sampling channel, and what they are compared with: their own names are
/// those of `busway bench technologies`.
struct Contest {
    queuing: &'static str,
    sampling: &'static str,
    rival: Rival,
}

enum Rival {
    /// Another technology of `busway bench`.
    Technology(&'static str),
    /// A tool of perftest, for latency and, where there is one, for throughput.
    Tool(&'static str, &'static str),
}

struct Ring {
    medium: &'static str,
    preset: Preset,
    mtu_bytes: Option<u32>,
    wait: &'static str,
    contests: &'static [Contest],
}

macro_rules! contest {
    ($bus:literal, $rival:expr) => {
        Contest {
            queuing: concat!("channel-", $bus),
            sampling: concat!("channel-sampling-", $bus),
            rival: $rival,
        }
    };
}

const SEND: Rival = Rival::Tool("ib_send_lat", "ib_send_bw");
const WRITE: Rival = Rival::Tool("ib_write_lat", "ib_write_bw");
const OVER_RDMA: &[Contest] = &[contest!("rdma-send", SEND), contest!("rdma-write", WRITE)];

const RINGS: [Ring; 3] = [
    Ring {
        medium: "sockets",
        preset: Preset::Tipc,
        mtu_bytes: None,
        wait: "event",
        contests: &[
            contest!("tcp", Rival::Technology("tcp")),
            contest!("udp", Rival::Technology("udp")),
            contest!("tipc", Rival::Technology("tipc")),
        ],
    },
    Ring {
        medium: "RoCE",
        preset: Preset::Roce,
        mtu_bytes: Some(JUMBO_BYTES),
        wait: "spin",
        contests: OVER_RDMA,
    },
    Ring {
        medium: "iWARP",
        preset: Preset::Iwarp,
        mtu_bytes: Some(JUMBO_BYTES),
        wait: "spin",
        contests: OVER_RDMA,
    },
];

#[derive(Clone, Debug, Serialize)]
struct Row {
    medium: &'static str,
    measured: &'static str,
    payload_bytes: u64,
    channel: &'static str,
    channel_figure: Figure,
    rival: &'static str,
    rival_figure: Figure,
    /// Above 1: the channel is slower.
    ratio: f64,
}

/// What was measured: a time in ns, or bytes a second; and, of round trips over a network, what
/// each cost.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figure {
    value: f64,
    /// Packets that the guest which asks sent and received.
    packets: Option<f64>,
    /// CPU time of the program that asks, and of the guest's system and interrupts, in percent; it
    /// polls, so that what is left of 100 is the kernel's.
    user_percent: Option<f64>,
    kernel_percent: Option<f64>,
}

impl Figure {
    fn of(value: f64) -> Figure {
        Figure {
            value,
            packets: None,
            user_percent: None,
            kernel_percent: None,
        }
    }
}

pub(super) fn run(stage: &Stage<'_>) -> Result<Value> {
    let mut rows = Vec::new();
    for ring in RINGS.iter().filter(|ring| ring.medium.contains(stage.only)) {
        let outcome = ring.fight(stage, &mut rows);
        stage.part(ring.medium, outcome.map(|()| Value::Null));
    }
    let table = table(&rows);
    stage.notes(format!("\n{table}"));
    Ok(json!({ "rows": rows, "markdown": table }))
}

fn known_technologies(pair: &Pair) -> Result<Vec<String>> {
    let listed = pair.guests[0].shell("busway bench technologies", LIMIT)?;
    Ok(listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}

impl Ring {
    fn fight(&self, stage: &Stage<'_>, rows: &mut Vec<Row>) -> Result<()> {
        let pair = gateway_pair(stage, &[self.preset], |plan| {
            plan.program(Path::new(YIELDING_PROGRAM));
            plan.mtu_bytes = self.mtu_bytes.unwrap_or(plan.mtu_bytes);
        })?;
        let known = known_technologies(&pair)?;
        for channel in self.contests.iter().flat_map(Contest::channels) {
            ensure!(
                known.iter().any(|name| name == channel),
                "`busway bench` has no technology {channel}"
            );
        }
        stage.says(format!("latency over {}", self.medium));
        rows.extend(self.latency(stage, &pair).context("latency")?);
        stage.says(format!("throughput over {}", self.medium));
        rows.extend(self.throughput(stage, &pair).context("throughput")?);
        Ok(())
    }

    fn latency(&self, stage: &Stage<'_>, pair: &Pair) -> Result<Vec<Row>> {
        let before = self.tools(stage, pair);
        let sizes = SIZES_BYTES.map(|size| size.to_string()).join(",");
        let all = self.names(|contest| contest.channels().to_vec());
        let result = self.bench(pair, &all, &["latency", "-s", &sizes, "--seconds", "0.5"])?;
        let after = self.tools(stage, pair);
        let mut rows = Vec::new();
        for contest in self.contests {
            for channel in contest.channels() {
                for size in SIZES_BYTES {
                    let ours = latency_of(&result, channel, size)?;
                    let (rival, theirs) = match contest.rival {
                        Rival::Technology(name) => (name, latency_of(&result, name, size)?),
                        // The machine may drift: what the tool said before and after. Where it said
                        // nothing, that has failed already.
                        Rival::Tool(name, _) => match (before.get(&(name, size)), after.get(&(name, size))) {
                            (Some(before), Some(after)) => {
                                let value = before.value.midpoint(after.value);
                                (name, Figure { value, ..*after })
                            }
                            _ => continue,
                        },
                    };
                    let ratio = ours.value / theirs.value;
                    rows.push(self.row(HALF_TRIP, size, (channel, ours), (rival, theirs), ratio));
                }
            }
        }
        Ok(rows)
    }

    fn throughput(&self, stage: &Stage<'_>, pair: &Pair) -> Result<Vec<Row>> {
        let size = BULK_BYTES.to_string();
        let queues = self.names(|contest| vec![contest.queuing]);
        let result = self.bench(pair, &queues, &["throughput", "-s", &size, "--seconds", "1"])?;
        let mut rows = Vec::new();
        for contest in self.contests {
            let ours = figure(&result, contest.queuing, BULK_BYTES, "/bytes_per_s")?;
            let (rival, theirs) = match contest.rival {
                Rival::Technology(name) => (name, figure(&result, name, BULK_BYTES, "/bytes_per_s")?),
                Rival::Tool(_, name) => match tool_bytes_per_s(pair, name) {
                    Ok(figure) => (name, figure),
                    Err(error) => {
                        drop(stage.part(format!("{name} over {}", self.medium), Err(error)));
                        continue;
                    }
                },
            };
            let (ours, theirs) = (Figure::of(ours), Figure::of(theirs));
            let ratio = theirs.value / ours.value;
            rows.push(self.row(
                THROUGHPUT,
                BULK_BYTES,
                (contest.queuing, ours),
                (rival, theirs),
                ratio,
            ));
        }
        Ok(rows)
    }

    fn row(
        &self,
        measured: &'static str,
        payload_bytes: u64,
        (channel, channel_figure): (&'static str, Figure),
        (rival, rival_figure): (&'static str, Figure),
        ratio: f64,
    ) -> Row {
        Row {
            medium: self.medium,
            measured,
            payload_bytes,
            channel,
            channel_figure,
            rival,
            rival_figure,
            ratio,
        }
    }

    fn names(&self, channels: impl Fn(&Contest) -> Vec<&'static str>) -> String {
        let mut names: Vec<&str> = Vec::new();
        for contest in self.contests {
            names.extend(channels(contest));
            if let Rival::Technology(name) = contest.rival {
                names.push(name);
            }
        }
        names.join(",")
    }

    fn tools(&self, stage: &Stage<'_>, pair: &Pair) -> BTreeMap<(&'static str, u64), Figure> {
        let mut figures = BTreeMap::new();
        for contest in self.contests {
            if let Rival::Tool(name, _) = contest.rival {
                for size in SIZES_BYTES {
                    match tool_figure(pair, name, size) {
                        Ok(figure) => drop(figures.insert((name, size), figure)),
                        Err(error) => {
                            drop(stage.part(format!("{} over {} at {size} B", name, self.medium), Err(error)))
                        }
                    }
                }
            }
        }
        figures
    }

    fn bench(&self, pair: &Pair, names: &str, words: &[&str]) -> Result<Value> {
        let mut all = words.to_vec();
        all.extend(["-t", names, "-w", self.wait, "--rounds", "2", "--pin", "none"]);
        // The tools touch no payload.
        if self.contests.iter().any(Contest::is_with_a_tool) {
            all.push("--untouched");
        }
        bench_across(pair, &YIELDING, &all, LIMIT)
    }
}

/// The result of `busway bench` with these words from one guest to the other, both started by
/// `before`.
pub(super) fn bench_across(pair: &Pair, before: &[&str], words: &[&str], limit: Duration) -> Result<Value> {
    let [a, b] = &pair.guests;
    let bench = [before, &["busway", "bench"]].concat();
    let follower = b.spawn(Job::new(&[&bench[..], &["follower"]].concat()))?;
    let across = ["--follower", &b.plan.name, "--json", RESULT];
    let all = [&bench[..], words, &across].concat();
    std::thread::sleep(Duration::from_secs(1));
    let done = a.spawn(Job::new(&all))?.wait(limit)?;
    follower.signal(2)?;
    follower.wait(limit)?;
    if done.code != 0 {
        bail!("`{}` ended with {}: {}", all.join(" "), done.code, done.error);
    }
    serde_json::from_slice(&a.read(RESULT)?).context("the result is no JSON")
}

impl Contest {
    fn channels(&self) -> [&'static str; 2] {
        [self.queuing, self.sampling]
    }

    fn is_with_a_tool(&self) -> bool {
        matches!(self.rival, Rival::Tool(..))
    }
}

fn latency_of(result: &Value, technology: &str, payload_bytes: u64) -> Result<Figure> {
    let value = figure(result, technology, payload_bytes, "/half_rtt_ns/p50")?;
    let cost = |at| figure(result, technology, payload_bytes, at).ok();
    let sum = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
    Ok(Figure {
        value,
        packets: sum(
            cost("/sender/packets_sent_per_message"),
            cost("/sender/packets_received_per_message"),
        ),
        user_percent: cost("/sender/process_user_percent"),
        kernel_percent: sum(
            cost("/sender/host_system_percent"),
            cost("/sender/host_interrupt_percent"),
        ),
    })
}

fn yielding<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&YIELDING[..], words].concat()
}

/// A figure in the row of a technology, at a JSON pointer below it.
pub(super) fn figure(result: &Value, technology: &str, payload_bytes: u64, at: &str) -> Result<f64> {
    let rows = result["rows"].as_array().context("the result has rows")?;
    let row = rows
        .iter()
        .find(|row| row["technology"] == technology && row["payload_bytes"] == payload_bytes);
    let value = row.and_then(|row| row.pointer(at)?.as_f64());
    value.with_context(|| {
        format!(
            "`busway bench` has no {at} of {technology} at {payload_bytes} B; its notes: {}",
            result["notes"]
        )
    })
}

fn table(rows: &[Row]) -> String {
    let mut table = String::from(
        "| medium | measured | payload, B | channel | | packets | user, % | kernel, % | beside | | packets | ratio |\n\
         |---|---|---:|---|---:|---:|---:|---:|---|---:|---:|---:|\n",
    );
    let optional =
        |number: Option<f64>, digits| number.map_or(String::new(), |number| format!("{number:.digits$}"));
    for row in rows {
        let (ours, theirs) = (row.channel_figure, row.rival_figure);
        let scale = if row.measured == HALF_TRIP { 1e3 } else { 1e6 };
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {:.1} | {} | {} | {} | {} | {:.1} | {} | {:.2} |",
            row.medium,
            row.measured,
            row.payload_bytes,
            row.channel,
            ours.value / scale,
            optional(ours.packets, 1),
            optional(ours.user_percent, 0),
            optional(ours.kernel_percent, 0),
            row.rival,
            theirs.value / scale,
            optional(theirs.packets, 1),
            row.ratio
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_figure_fails_with_notes_of_run() {
        let result = json!({ "rows": [{ "technology": "tcp", "payload_bytes": 64, "half_rtt_ns": { "p50": 9000 } }], "notes": ["tipc: needs TIPC"] });
        assert_eq!(figure(&result, "tcp", 64, "/half_rtt_ns/p50").unwrap(), 9000.0);
        let error = figure(&result, "tipc", 64, "/half_rtt_ns/p50")
            .unwrap_err()
            .to_string();
        assert!(error.contains("needs TIPC"), "{error}");
    }
}
