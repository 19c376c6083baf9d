//! Channels beside the kernel's own tools, in the same guests in the same run: bare sockets (`busway bench` has them), perftest for RDMA. Only ratios mean
//! anything: emulated times don't.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use super::Stage;
use super::parts::gateway_pair;
use crate::lab::guest::Program;
use crate::lab::pair::Pair;
use crate::lab::preset::Preset;
use crate::lab::protocol::Job;

const LIMIT: Duration = Duration::from_secs(400);
/// A run of a tool takes a second or a few.
const TOOL_LIMIT: Duration = Duration::from_secs(30);
const SIZES_BYTES: [u64; 4] = [16, 64, 1_024, 4_096];
const BULK_BYTES: u64 = 65_536;
const RESULT: &str = "/tmp/result.json";
/// In front of everything that is timed. Who polls on a guest's only processor must give way to the kernel at once, or it waits for what the kernel never
/// gets to do: perftest took minutes for a round trip, or did not end.
const YIELDING: [&str; 3] = ["nice", "-n", "19"];

/// A channel and what it is compared with: its own name is that of `busway bench technologies`.
struct Contest {
    channel: &'static str,
    rival: Rival,
}

enum Rival {
    /// Another technology of `busway bench`.
    Technology(&'static str),
    /// A tool of perftest, for latency and, where there is one, for throughput.
    Tool(&'static str, &'static str),
}

/// What is compared on guests with one set of devices, waiting in one way.
struct Ring {
    medium: &'static str,
    preset: Preset,
    wait: &'static str,
    contests: &'static [Contest],
}

const SEND: Rival = Rival::Tool("ib_send_lat", "ib_send_bw");
const WRITE: Rival = Rival::Tool("ib_write_lat", "ib_write_bw");
const OVER_RDMA: &[Contest] = &[
    Contest {
        channel: "channel-rdma-send",
        rival: SEND,
    },
    Contest {
        channel: "channel-rdma-write",
        rival: WRITE,
    },
];

const RINGS: [Ring; 3] = [
    Ring {
        medium: "sockets",
        preset: Preset::Tipc,
        wait: "event",
        contests: &[
            Contest {
                channel: "channel-tcp",
                rival: Rival::Technology("tcp"),
            },
            Contest {
                channel: "channel-udp",
                rival: Rival::Technology("udp"),
            },
            Contest {
                channel: "channel-tipc",
                rival: Rival::Technology("tipc"),
            },
        ],
    },
    Ring {
        medium: "RoCE",
        preset: Preset::Roce,
        wait: "spin",
        contests: OVER_RDMA,
    },
    Ring {
        medium: "iWARP",
        preset: Preset::Iwarp,
        wait: "spin",
        contests: OVER_RDMA,
    },
];

/// One figure beside another.
#[derive(Clone, Debug, Serialize)]
struct Row {
    medium: &'static str,
    measured: &'static str,
    payload_bytes: u64,
    channel: &'static str,
    channel_value: f64,
    rival: &'static str,
    rival_value: f64,
    /// Above 1: the channel is slower.
    ratio: f64,
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
            plan.program(Path::new("/usr/bin/nice"));
        })?;
        let known = known_technologies(&pair)?;
        for contest in self.contests {
            let channel = contest.channel;
            ensure!(
                known.iter().any(|name| name == channel),
                "`busway bench` has no technology {channel}"
            );
        }
        stage.says(format!("latency over {}", self.medium));
        rows.extend(self.latency(stage, &pair).context("latency")?);
        stage.says(format!("throughput over {}", self.medium));
        rows.extend(self.throughput(&pair).context("throughput")?);
        Ok(())
    }

    /// Median half round trips, ns.
    fn latency(&self, stage: &Stage<'_>, pair: &Pair) -> Result<Vec<Row>> {
        let before = self.tools(stage, pair);
        let sizes = SIZES_BYTES.map(|size| size.to_string()).join(",");
        let result = self.bench(pair, &["latency", "-s", &sizes, "--seconds", "0.5"])?;
        let after = self.tools(stage, pair);
        let mut rows = Vec::new();
        for contest in self.contests {
            for size in SIZES_BYTES {
                let ours = figure(&result, contest.channel, size, "/half_rtt_ns/p50")?;
                let (rival, theirs) = match contest.rival {
                    Rival::Technology(name) => (name, figure(&result, name, size, "/half_rtt_ns/p50")?),
                    // The machine may drift: what the tool said before and after. Where it said nothing, that has failed already.
                    Rival::Tool(name, _) => match (before.get(&(name, size)), after.get(&(name, size))) {
                        (Some(before), Some(after)) => (name, before.midpoint(*after)),
                        _ => continue,
                    },
                };
                rows.push(self.row(
                    "half round trip, µs",
                    size,
                    contest.channel,
                    ours / 1e3,
                    rival,
                    theirs / 1e3,
                    ours / theirs,
                ));
            }
        }
        Ok(rows)
    }

    /// Bytes a second, one way.
    fn throughput(&self, pair: &Pair) -> Result<Vec<Row>> {
        let size = BULK_BYTES.to_string();
        let result = self.bench(pair, &["throughput", "-s", &size, "--seconds", "1"])?;
        let mut rows = Vec::new();
        for contest in self.contests {
            let ours = figure(&result, contest.channel, BULK_BYTES, "/bytes_per_s")?;
            let (rival, theirs) = match contest.rival {
                Rival::Technology(name) => (name, figure(&result, name, BULK_BYTES, "/bytes_per_s")?),
                Rival::Tool(_, name) => (name, tool_bytes_per_s(pair, name)?),
            };
            rows.push(self.row(
                "throughput, MB/s",
                BULK_BYTES,
                contest.channel,
                ours / 1e6,
                rival,
                theirs / 1e6,
                theirs / ours,
            ));
        }
        Ok(rows)
    }

    #[allow(clippy::too_many_arguments)] // Named by the fields that they become.
    fn row(
        &self,
        measured: &'static str,
        payload_bytes: u64,
        channel: &'static str,
        channel_value: f64,
        rival: &'static str,
        rival_value: f64,
        ratio: f64,
    ) -> Row {
        Row {
            medium: self.medium,
            measured,
            payload_bytes,
            channel,
            channel_value,
            rival,
            rival_value,
            ratio,
        }
    }

    /// The figures of each tool of latency at each size.
    fn tools(&self, stage: &Stage<'_>, pair: &Pair) -> BTreeMap<(&'static str, u64), f64> {
        let mut figures = BTreeMap::new();
        for contest in self.contests {
            if let Rival::Tool(name, _) = contest.rival {
                for size in SIZES_BYTES {
                    match tool_ns(pair, name, size) {
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

    /// Runs an experiment of `busway bench` between the guests over all technologies of this ring.
    fn bench(&self, pair: &Pair, words: &[&str]) -> Result<Value> {
        let [a, b] = &pair.guests;
        let follower = b.spawn(Job::new(&yielding(&["busway", "bench", "follower"])))?;
        let mut technologies: Vec<&str> = Vec::new();
        for contest in self.contests {
            technologies.push(contest.channel);
            if let Rival::Technology(name) = contest.rival {
                technologies.push(name);
            }
        }
        let names = technologies.join(",");
        let mut all = yielding(&["busway", "bench", words[0], "-t", &names, "-w", self.wait]);
        all.extend([
            "--rounds",
            "2",
            "--pin",
            "none",
            "--follower",
            &b.plan.name,
            "--json",
            RESULT,
        ]);
        all.extend(&words[1..]);
        std::thread::sleep(Duration::from_secs(1));
        let done = a.spawn(Job::new(&all))?.wait(LIMIT)?;
        follower.signal(2)?;
        follower.wait(LIMIT)?;
        if done.code != 0 {
            bail!("`{}` ended with {}: {}", all.join(" "), done.code, done.error);
        }
        serde_json::from_slice(&a.read(RESULT)?).context("the result is no JSON")
    }
}

/// Half a round trip as a tool of perftest measures it: its column of typical times, which is the median.
fn tool_ns(pair: &Pair, tool: &str, size_bytes: u64) -> Result<f64> {
    let said = perftest(
        pair,
        &[tool, "-R", "-F", "-n", "300", "-s", &size_bytes.to_string()],
    )?;
    Ok(column(&said, size_bytes, "t_typical[usec]")? * 1e3)
}

fn tool_bytes_per_s(pair: &Pair, tool: &str) -> Result<f64> {
    let said = perftest(
        pair,
        &[tool, "-R", "-F", "-n", "500", "-s", &BULK_BYTES.to_string()],
    )?;
    // perftest's MB are 2^20 bytes.
    Ok(column(&said, BULK_BYTES, "BW average[MB/sec]")? * 1_048_576.0)
}

/// Runs a tool of perftest on both guests; what the one that connects said.
fn perftest(pair: &Pair, words: &[&str]) -> Result<String> {
    let [a, b] = &pair.guests;
    let mut connecting = yielding(words);
    let server = b.spawn(Job::new(&connecting))?;
    let address = b.plan.address();
    connecting.push(&address);
    let mut last = String::new();
    for _ in 0..10 {
        // The server does not say when it listens.
        std::thread::sleep(Duration::from_millis(500));
        let client = a.spawn(Job::new(&connecting))?;
        let Ok(done) = client.wait(TOOL_LIMIT) else {
            let said = end(&client)?;
            bail!(
                "`{}` does not end: {said}; the other side: {}",
                connecting.join(" "),
                end(&server)?
            );
        };
        if done.code == 0 {
            server.wait(LIMIT)?;
            return Ok(done.output);
        }
        last = format!("{}{}", done.output, done.error);
        if server.has_ended() {
            break;
        }
    }
    let server_said = end(&server)?;
    bail!(
        "`{}` fails: {last}; the other side: {server_said}",
        connecting.join(" ")
    )
}

fn yielding<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&YIELDING[..], words].concat()
}

fn end(program: &Program<'_>) -> Result<String> {
    program.signal(9)?;
    let done = program.wait(LIMIT)?;
    Ok(format!("{}{}", done.output, done.error))
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

/// A column of the line for a size, by the table's header, whose columns begin with `#` or are two spaces apart.
fn column(said: &str, size_bytes: u64, name: &str) -> Result<f64> {
    let header = said
        .lines()
        .rev()
        .find(|line| line.trim_start().starts_with("#bytes"))
        .context("perftest printed no table")?;
    let at = names(header)
        .iter()
        .position(|column| column == name)
        .with_context(|| format!("perftest has no {name}: {header}"))?;
    let size = size_bytes.to_string();
    let line = said
        .lines()
        .find(|line| line.split_whitespace().next() == Some(&size))
        .context("perftest printed no figures")?;
    let value = line
        .split_whitespace()
        .nth(at)
        .with_context(|| format!("{line:?} is short"))?;
    value.parse().with_context(|| format!("{value:?} is no number"))
}

/// The columns that a header of perftest names: words, where a unit in brackets ends each that has one.
fn names(header: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in header.split_whitespace() {
        match names.last_mut() {
            // `BW average[MB/sec]`, `BW peak[MB/sec]`.
            Some(last) if last == "BW" => *last = format!("{last} {word}"),
            _ => names.push(word.to_owned()),
        }
    }
    names
}

fn table(rows: &[Row]) -> String {
    let mut table = String::from(
        "| medium | measured | payload, B | channel | | beside | | ratio |\n|---|---|---:|---|---:|---|---:|---:|\n",
    );
    for row in rows {
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {:.1} | {} | {:.1} | {:.2} |",
            row.medium,
            row.measured,
            row.payload_bytes,
            row.channel,
            row.channel_value,
            row.rival,
            row.rival_value,
            row.ratio
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_perftest_are_found_by_their_names() {
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n 64      1000          200.0          900.5        261.25           270.1\n";
        assert_eq!(column(latency, 64, "t_typical[usec]").unwrap(), 261.25);
        let bandwidth = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      500             99.0               88.5   \t\t   0.0012\n";
        assert_eq!(column(bandwidth, 65536, "BW average[MB/sec]").unwrap(), 88.5);
        assert!(column(bandwidth, 64, "BW average[MB/sec]").is_err());
        assert!(column("", 64, "t_avg[usec]").is_err());
    }

    #[test]
    fn a_figure_that_is_missing_is_an_error_with_the_notes_of_the_run() {
        let result = json!({ "rows": [{ "technology": "tcp", "payload_bytes": 64, "half_rtt_ns": { "p50": 9000 } }], "notes": ["tipc: needs TIPC"] });
        assert_eq!(figure(&result, "tcp", 64, "/half_rtt_ns/p50").unwrap(), 9000.0);
        let error = figure(&result, "tipc", 64, "/half_rtt_ns/p50")
            .unwrap_err()
            .to_string();
        assert!(error.contains("needs TIPC"), "{error}");
    }
}
