//! Channels over a PCI window beside bare exchanges in the same window, in the same guests in the
//! same run. Only ratios mean anything: emulated times don't.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::super::Stage;
use super::super::speed::figure;
use super::found::{Found, Row, Worst, histograms};
use super::joined::rings;
use crate::lab::doorbells::Doorbells;
use crate::lab::gateways::Programs;
use crate::lab::guest::{Guest, Plan, Program};
use crate::lab::kernel::Flavor;
use crate::lab::pair::{Between, Pair};
use crate::lab::preset::{WINDOW_SLOT, bind_to_vfio};
use crate::lab::protocol::Job;
use crate::lab::window::{Window, address};

const LIMIT: Duration = Duration::from_secs(240);
const WINDOW_BYTES: u64 = 64 << 20;
/// Where the window with doorbells is.
const RUNG_SLOT: u8 = 0x13;
const VECTORS: usize = 4;
const RESULT: &str = "/tmp/result.json";
/// The floor: a word each way, and no payload.
const BARE_WORD: &str = "two-lines";
/// The floor with a payload: plain copies.
const BARE_COPY: &str = "copy";
/// The floor of a stream: one copy into the mapping.
const COPY_IN: &str = "copy-in";
const SAMPLING: &str = "sampling-pci";
const QUEUING: &str = "channel-pci";
const SIZES_BYTES: [u64; 5] = [16, 64, 256, 1_024, 4_096];
const WORST_BYTES: u64 = 64;
const BULK_BYTES: u64 = 1 << 20;

struct Ring {
    flavor: Flavor,
    processors: u8,
    kernel_words: &'static str,
    conditions: &'static [&'static str],
    /// In front of the words of a busy program: where it runs.
    beside: &'static [&'static str],
    /// Whether figures by size and of throughput are taken here, too.
    is_whole: bool,
}

const RINGS: [Ring; 2] = [
    Ring {
        flavor: Flavor::Stock,
        processors: 1,
        kernel_words: "",
        conditions: &["--pin", "none"],
        beside: &[],
        is_whole: true,
    },
    Ring {
        flavor: Flavor::Rt,
        processors: 2,
        kernel_words: "isolcpus=nohz,domain,managed_irq,1 nohz_full=1 rcu_nocbs=1",
        // Below 50, at which the threads of interrupts run on such a kernel.
        conditions: &["--pin", "1,1", "--fifo", "40", "--lock-memory"],
        beside: &["taskset", "1"],
        is_whole: false,
    },
];

struct Experiment<'a> {
    /// `latency` or `throughput`.
    measured: &'a str,
    technologies: &'a [&'a str],
    sizes_bytes: &'a [u64],
    wait: &'a str,
    rounds: u32,
    seconds: f64,
    more: &'a [&'a str],
}

impl<'a> Experiment<'a> {
    /// One round of a second that polls, with messages of the length at which worst cases are
    /// looked for.
    fn of(measured: &'a str, technologies: &'a [&'a str]) -> Experiment<'a> {
        Experiment {
            measured,
            technologies,
            sizes_bytes: &[WORST_BYTES],
            wait: "spin",
            rounds: 1,
            seconds: 1.0,
            more: &[],
        }
    }

    fn words(&self) -> Vec<String> {
        let sizes: Vec<String> = self.sizes_bytes.iter().map(u64::to_string).collect();
        let mut words = vec![self.measured.to_owned()];
        for (name, value) in [
            ("-t", self.technologies.join(",")),
            ("-s", sizes.join(",")),
            ("-w", self.wait.to_owned()),
            ("--rounds", self.rounds.to_string()),
            ("--seconds", self.seconds.to_string()),
        ] {
            words.extend([name.to_owned(), value]);
        }
        words.extend(self.more.iter().map(|word| (*word).to_owned()));
        words
    }
}

pub(in super::super) fn run(stage: &Stage<'_>) -> Result<Value> {
    stage.says("builds the programs");
    let programs = Programs::build(stage.builds)?;
    let mut found = Found::default();
    for ring in RINGS
        .iter()
        .filter(|ring| ring.flavor.to_string().contains(stage.only))
    {
        let outcome = ring.measure(stage, &programs, &mut found);
        stage.part(ring.flavor, outcome.map(|()| Value::Null));
    }
    let markdown = found.markdown();
    stage.notes(format!("\n{markdown}"));
    Ok(
        json!({ "rows": found.rows, "worst": found.worst, "histograms": found.histograms, "markdown": markdown }),
    )
}

impl Ring {
    fn measure(&self, stage: &Stage<'_>, programs: &Programs, found: &mut Found) -> Result<()> {
        stage.says(format!("starts two guests, kernel {}", self.flavor));
        let (window, rung) = (Window::new(WINDOW_BYTES)?, Window::new(WINDOW_BYTES)?);
        let doorbells = Doorbells::start(&rung, 2, VECTORS)?;
        let logs = stage.logs.join(self.flavor.to_string());
        let pair = Pair::start(stage.store, &logs, &[], Between::Wire, |plan: &mut Plan| {
            plan.flavor = self.flavor;
            plan.processors = self.processors;
            plan.kernel_words = self.kernel_words.to_owned();
            programs.place(plan);
            window.place(plan, WINDOW_SLOT);
            Window::place_with_doorbells(plan, RUNG_SLOT, &doorbells, usize::from(plan.number) - 1);
        })?;
        for guest in &pair.guests {
            let enable = format!("echo 1 > /sys/bus/pci/devices/{}/enable\n", address(WINDOW_SLOT));
            // A program that polls at a real-time priority is else stopped for 50 ms of every
            // second.
            let endless = "echo -1 > /proc/sys/kernel/sched_rt_runtime_us\n";
            guest.shell(&(enable + endless + &bind_to_vfio(&[RUNG_SLOT])), LIMIT)?;
        }
        let bench = Bench {
            pair: &pair,
            ring: self,
        };
        if self.is_whole {
            stage.says("half round trips by size");
            stage.part("latency", bench.latency(found).map(|()| Value::Null));
            stage.says("throughput");
            stage.part("throughput", bench.throughput(found).map(|()| Value::Null));
        }
        for load in ["idle", "busy"] {
            stage.says(format!("worst cases, kernel {}, {load}", self.flavor));
            stage.part(
                format!("worst cases, {load}"),
                bench.worst(load, found).map(|()| Value::Null),
            );
        }
        stage.says("what a doorbell costs");
        stage.part("wake-up", bench.wake_up(found).map(|()| Value::Null));
        Ok(())
    }
}

struct Bench<'a> {
    pair: &'a Pair,
    ring: &'a Ring,
}

impl Bench<'_> {
    fn latency(&self, found: &mut Found) -> Result<()> {
        let experiment = Experiment {
            sizes_bytes: &SIZES_BYTES,
            rounds: 2,
            seconds: 0.4,
            ..Experiment::of("latency", &[BARE_WORD, BARE_COPY, SAMPLING, QUEUING])
        };
        let (result, _) = self.run(&experiment, &plain)?;
        let bare_ns = figure(&result, BARE_WORD, SIZES_BYTES[0], "/half_rtt_ns/p50")?;
        for size in SIZES_BYTES {
            let copy_ns = figure(&result, BARE_COPY, size, "/half_rtt_ns/p50")?;
            for channel in [SAMPLING, QUEUING] {
                let ns = figure(&result, channel, size, "/half_rtt_ns/p50")?;
                let measured = "half round trip, µs";
                found
                    .rows
                    .push(self.row(measured, size, (channel, ns / 1e3), (BARE_COPY, copy_ns / 1e3)));
                if size == SIZES_BYTES[0] {
                    found.rows.push(self.row(
                        measured,
                        size,
                        (channel, ns / 1e3),
                        (BARE_WORD, bare_ns / 1e3),
                    ));
                }
            }
        }
        Ok(())
    }

    fn throughput(&self, found: &mut Found) -> Result<()> {
        let experiment = Experiment {
            sizes_bytes: &[BULK_BYTES],
            rounds: 3,
            more: &["--untouched"],
            ..Experiment::of("throughput", &[COPY_IN, BARE_COPY, QUEUING])
        };
        let (result, _) = self.run(&experiment, &plain)?;
        let rate = |name| Ok::<_, anyhow::Error>(figure(&result, name, BULK_BYTES, "/bytes_per_s")? / 1e6);
        for floor in [COPY_IN, BARE_COPY] {
            found.rows.push(self.row(
                "throughput, MB/s",
                BULK_BYTES,
                (QUEUING, rate(QUEUING)?),
                (floor, rate(floor)?),
            ));
        }
        Ok(())
    }

    fn worst(&self, load: &'static str, found: &mut Found) -> Result<()> {
        let busy: Vec<Program<'_>> = match load {
            "busy" => self
                .pair
                .guests
                .iter()
                .map(|guest| {
                    let words = [self.ring.beside, &["sh", "-c", "while :; do :; done"]].concat();
                    guest.spawn(Job::new(&words))
                })
                .collect::<Result<_>>()?,
            _ => Vec::new(),
        };
        let experiment = Experiment {
            seconds: 6.0,
            more: &["--histogram"],
            ..Experiment::of("latency", &[BARE_WORD, SAMPLING, QUEUING])
        };
        let outcome = self.run(&experiment, &plain);
        for program in &busy {
            program.signal(9)?;
        }
        let (result, text) = outcome?;
        for what in [BARE_WORD, SAMPLING, QUEUING] {
            // A word has a size of its own.
            let size = if what == BARE_WORD {
                SIZES_BYTES[0]
            } else {
                WORST_BYTES
            };
            let at = |name: &str| figure(&result, what, size, &format!("/half_rtt_ns/{name}"));
            let kernel = self.ring.flavor.to_string();
            let Ok(samples) = at("samples") else {
                // Programs that poll beside busy ones, on one processor, may not get to answer at
                // all.
                let why = reason(&result, what);
                found
                    .unanswered
                    .push(format!("kernel {kernel}, {load}: {what}: {why}"));
                continue;
            };
            found.worst.push(Worst {
                kernel,
                load,
                what,
                best_us: at("min")? / 1e3,
                average_us: at("mean")? / 1e3,
                p99_9_us: at("p99_9")? / 1e3,
                worst_us: at("max")? / 1e3,
                samples: samples as u64,
            });
        }
        let name = format!("{}, {load}", self.ring.flavor);
        found.histograms.insert(name, Value::String(histograms(&text)));
        Ok(())
    }

    fn wake_up(&self, found: &mut Found) -> Result<()> {
        let half = |wait, access: &dyn Fn(&Guest) -> Vec<String>| {
            let experiment = Experiment {
                wait,
                rounds: 2,
                ..Experiment::of("latency", &[QUEUING])
            };
            let (result, _) = self.run(&experiment, access)?;
            Ok::<_, anyhow::Error>(figure(&result, QUEUING, WORST_BYTES, "/half_rtt_ns/p50")? / 1e3)
        };
        let (rung, napping) = (half("event", &with_doorbells)?, half("event", &plain)?);
        let spinning = half("spin", &plain)?;
        let measured = "half round trip, µs";
        for (beside, value) in [("naps of 50 µs, no doorbell", napping), ("polling", spinning)] {
            found.rows.push(self.row(
                measured,
                WORST_BYTES,
                ("channel-pci, woken by doorbells", rung),
                (beside, value),
            ));
        }
        Ok(())
    }

    fn row(
        &self,
        measured: &'static str,
        payload_bytes: u64,
        (what, value): (&'static str, f64),
        (beside, beside_value): (&'static str, f64),
    ) -> Row {
        Row {
            kernel: self.ring.flavor.to_string(),
            measured,
            payload_bytes,
            what,
            value,
            beside,
            beside_value,
            ratio: value / beside_value,
        }
    }

    /// Runs an experiment; its result, and what it printed. `access` gives each side's words for
    /// the window.
    fn run(
        &self,
        experiment: &Experiment<'_>,
        access: &dyn Fn(&Guest) -> Vec<String>,
    ) -> Result<(Value, String)> {
        let [a, b] = &self.pair.guests;
        let follower_words = [
            &["busway", "bench", "follower"].map(str::to_owned)[..],
            &access(b),
        ]
        .concat();
        let follower = b.spawn(Job {
            words: follower_words,
            ..Job::default()
        })?;
        let mut all = vec!["busway".to_owned(), "bench".to_owned()];
        all.extend(experiment.words());
        all.extend(self.ring.conditions.iter().map(|word| (*word).to_owned()));
        all.extend(["--follower", &b.plan.name, "--json", RESULT].map(str::to_owned));
        all.extend(access(a));
        let shown = all.join(" ");
        // It does not say on standard output that it listens.
        std::thread::sleep(Duration::from_secs(1));
        let done = a
            .spawn(Job {
                words: all,
                ..Job::default()
            })?
            .wait(LIMIT);
        follower.signal(2)?;
        let followed = follower.wait(LIMIT)?;
        let done = done.with_context(|| format!("`{shown}`; the follower: {}", followed.error))?;
        if done.code != 0 {
            bail!(
                "`{shown}` ended with {}: {}\nthe follower: {}",
                done.code,
                done.error,
                followed.error
            );
        }
        let result: Value = serde_json::from_slice(&a.read(RESULT)?).context("the result is no JSON")?;
        ensure!(
            result["rows"].as_array().is_some_and(|rows| !rows.is_empty()),
            "`{shown}` measured nothing: {}",
            result["notes"]
        );
        Ok((result, done.output))
    }
}

fn reason(result: &Value, what: &str) -> String {
    let mut notes = result["notes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    if let Some(note) = notes.find(|note| note.starts_with(what)) {
        return note.to_owned();
    }
    let mut rows = result["rows"].as_array().into_iter().flatten();
    let row = rows.find(|row| row["technology"] == what);
    row.map_or("it has no row".into(), |row| {
        format!(
            "{} sent, {} lost, {} corrupt",
            row["sent"], row["lost"], row["corrupt"]
        )
    })
}

fn plain(_: &Guest) -> Vec<String> {
    let path = format!("/sys/bus/pci/devices/{}/resource2", address(WINDOW_SLOT));
    ["--window".to_owned(), path].to_vec()
}

fn with_doorbells(guest: &Guest) -> Vec<String> {
    // The other guest is the other peer.
    let peer = u32::from(guest.plan.number == 1);
    let table = format!(
        "pci={{ device = \"{}\", resource = 2, length = {}, {} }}",
        address(RUNG_SLOT),
        WINDOW_BYTES / 2,
        rings(peer)
    );
    [plain(guest), vec!["--table".to_owned(), table]].concat()
}
