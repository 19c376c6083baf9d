//! Named scenarios: each is one file, and one entry of [`ALL`].

mod failover;
mod faulty_wire;
mod one_sided;
mod parts;
mod pci;
mod ports;
mod preempt_rt;
mod published;
mod rdma;
mod speed;
mod tcp;
mod tipc;

use std::cell::RefCell;
use std::fmt;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use super::builds::Builds;
use super::store::Store;
use super::{host, lock};

pub struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    is_by_name_only: bool,
    /// Whether it takes times: then nothing else runs beside it.
    is_timed: bool,
    run: fn(&Stage<'_>) -> Result<Value>,
}

impl Scenario {
    const fn new(name: &'static str, about: &'static str, run: fn(&Stage<'_>) -> Result<Value>) -> Scenario {
        Scenario {
            name,
            about,
            is_by_name_only: false,
            is_timed: false,
            run,
        }
    }

    const fn by_name_only(mut self) -> Scenario {
        self.is_by_name_only = true;
        self
    }

    const fn timed(mut self) -> Scenario {
        self.is_timed = true;
        self
    }
}

/// All of them, in the order in which they run.
pub const ALL: &[Scenario] = &[
    Scenario::new("tcp", "TCP, which the others are held against: the contract of a bus, and gateways of two guests", tcp::run).by_name_only(),
    Scenario::new("tipc", "TIPC: the same", tipc::run),
    Scenario::new("roce", "RDMA over RoCE: the same, two-sided and one-sided; and a device removed under load", rdma::roce),
    Scenario::new("iwarp", "RDMA over iWARP: the same", rdma::iwarp),
    Scenario::new("pci", "PCI windows: the same, shared and a window each way, with doorbells and without; with this host; a reset, a dead link", pci::run),
    Scenario::new("preempt-rt", "a PREEMPT_RT kernel with an isolated processor: the contract and gateways over TCP", preempt_rt::run),
    Scenario::new("one-sided", "sampling ports over RDMA, RoCE and iWARP: written into the other guest's port store by the source's process or its gateway; both gateways stopped, killed, the wire cut, the process killed", one_sided::run),
    Scenario::new("failover", "TCP and another bus, TIPC, RDMA or a PCI window, in one link: either is cut under load and comes back, in both orders", failover::run),
    Scenario::new("ports", "ARINC 653 ports over each bus that most machines lack: rules of the standard, faults, fail-over between TCP and it", ports::run).by_name_only(),
    Scenario::new("faulty-wire", "a wire that cuts, delays, loses, duplicates and reorders: what arrives over each bus", faulty_wire::run).timed(),
    Scenario::new("speed", "channels beside the kernel's own tools, in the same guests: ratios of latency and throughput", speed::run).by_name_only().timed(),
    Scenario::new("sampling-port", "figures 2(a), 2(b), 3 and 4 of the RDMA sampling port over RoCE and iWARP: one-sided, two-sided, sockets", published::sampling_port).by_name_only().timed(),
    Scenario::new("tipc-published", "the TIPC evaluation's throughput, round trips and stream, and how often TIPC acknowledges", published::tipc).by_name_only().timed(),
    Scenario::new("pci-speed", "channels over a PCI window beside bare exchanges in it: latency, worst cases, throughput, wake-up; stock kernel and PREEMPT_RT", pci::speed).by_name_only().timed(),
];

pub struct Stage<'a> {
    pub store: &'a Store,
    pub builds: &'a Builds,
    pub logs: PathBuf,
    pub seed: u64,
    /// Whether the scenario was asked for by name: then it leaves nothing out, however long it
    /// takes.
    pub is_named: bool,
    bars: &'a MultiProgress,
    /// Rows of a table are left out in whose name this text does not stand.
    pub only: &'a str,
    bar: ProgressBar,
    name: &'static str,
    failures: RefCell<Vec<String>>,
}

impl Stage<'_> {
    pub fn part(&self, what: impl fmt::Display, outcome: Result<Value>) -> Value {
        outcome.unwrap_or_else(|error| {
            self.notes(format!("{what}: FAILED: {error:#}"));
            self.failures.borrow_mut().push(format!("{what}: {error:#}"));
            Value::Null
        })
    }

    pub fn says(&self, what: impl fmt::Display) {
        self.bar.set_message(format!("{}: {what}", self.name));
    }

    pub fn notes(&self, what: impl fmt::Display) {
        let after_s = self.bar.elapsed().as_secs();
        self.bars
            .suspend(|| println!("  {}: {what} (at {after_s} s)", self.name));
    }

    fn run(&self, scenario: fn(&Stage<'_>) -> Result<Value>) -> Outcome {
        if let Err(error) = host::ensure() {
            return Outcome::Skipped {
                needs: format!("{error:#}"),
            };
        }
        let ended = scenario(self);
        let mut failures = self.failures.take();
        match ended {
            Ok(details) if failures.is_empty() => return Outcome::Passed { details },
            Ok(_) => {}
            Err(error) => failures.push(format!("{error:#}")),
        }
        Outcome::Failed {
            why: failures.join("\n"),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    Passed {
        details: Value,
    },
    Failed {
        why: String,
    },
    /// It can't run here.
    Skipped {
        /// What the host lacks.
        needs: String,
    },
}

#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub scenario: &'static str,
    pub duration_s: f64,
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl fmt::Display for Line {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.scenario;
        match &self.outcome {
            Outcome::Passed { .. } => write!(to, "{name}: passed in {:.0} s", self.duration_s),
            Outcome::Failed { why } => {
                write!(to, "{name}: failed: {}", why.lines().next().unwrap_or_default())
            }
            Outcome::Skipped { needs } => write!(to, "{name}: skipped: needs {needs}"),
        }
    }
}

/// The scenarios of these names; without names those that continuous integration runs.
pub fn chosen(names: &[String]) -> Result<Vec<&'static Scenario>> {
    if names.is_empty() {
        return Ok(ALL.iter().filter(|scenario| !scenario.is_by_name_only).collect());
    }
    names
        .iter()
        .map(|name| {
            ALL.iter()
                .find(|scenario| scenario.name == name)
                .with_context(|| unknown(name))
        })
        .collect()
}

fn unknown(name: &str) -> String {
    let known: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
    format!("there is no scenario {name:?}; there are {}", known.join(", "))
}

const AT_A_TIME: usize = 2;

pub fn run(chosen: &[&'static Scenario], is_named: bool, seed: u64, only: &str) -> Result<Vec<Line>> {
    let run = Run {
        store: Store::open()?,
        builds: Builds::default(),
        bars: MultiProgress::new(),
        is_named,
        seed,
        only,
    };
    let (timed, others): (Vec<_>, Vec<_>) = chosen.iter().partition(|scenario| scenario.is_timed);
    let waiting = Mutex::new(others.into_iter());
    let mut lines: Vec<Line> = std::thread::scope(|scope| {
        let workers = [(); AT_A_TIME].map(|()| {
            scope.spawn(|| {
                let next = || lock(&waiting).next();
                std::iter::from_fn(next)
                    .map(|scenario| run.of(scenario))
                    .collect::<Vec<_>>()
            })
        });
        let of_each = workers.map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        of_each.into_iter().flatten().collect()
    });
    lines.extend(timed.into_iter().map(|scenario| run.of(scenario)));
    let place = |line: &Line| chosen.iter().position(|scenario| scenario.name == line.scenario);
    lines.sort_by_key(place);
    Ok(lines)
}

struct Run<'a> {
    store: Store,
    builds: Builds,
    bars: MultiProgress,
    is_named: bool,
    seed: u64,
    only: &'a str,
}

impl Run<'_> {
    fn of(&self, scenario: &'static Scenario) -> Line {
        let bar = self.bars.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        let stage = Stage {
            store: &self.store,
            builds: &self.builds,
            logs: self.store.path("logs").join(scenario.name),
            seed: self.seed,
            is_named: self.is_named,
            only: self.only,
            bars: &self.bars,
            bar,
            name: scenario.name,
            failures: RefCell::default(),
        };
        stage.says("begins");
        let begin = Instant::now();
        let outcome = stage.run(scenario.run);
        stage.bar.finish_and_clear();
        if let Outcome::Failed { why } = &outcome {
            self.bars.suspend(|| {
                eprintln!(
                    "{}: {why}\nlogs of its guests: {}",
                    scenario.name,
                    stage.logs.display()
                );
            });
        }
        Line {
            scenario: scenario.name,
            duration_s: begin.elapsed().as_secs_f64(),
            outcome,
        }
    }
}

pub fn judge(lines: &[Line], is_ci: bool) -> Result<()> {
    let count = |wanted: fn(&Outcome) -> bool| lines.iter().filter(|line| wanted(&line.outcome)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed { .. }));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped { .. }));
    if failed > 0 || (is_ci && skipped > 0) {
        bail!(
            "of {} scenarios {failed} failed and {skipped} could not run",
            lines.len()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(outcome: Outcome) -> Line {
        Line {
            scenario: "tipc",
            duration_s: 23.7,
            outcome,
        }
    }

    #[test]
    fn result_is_one_line_for_every_outcome() {
        let passed = line(Outcome::Passed { details: Value::Null });
        let failed = line(Outcome::Failed {
            why: "no link\nthe log: …".into(),
        });
        let skipped = line(Outcome::Skipped {
            needs: "qemu-system-x86".into(),
        });
        assert_eq!(passed.to_string(), "tipc: passed in 24 s");
        assert_eq!(failed.to_string(), "tipc: failed: no link");
        assert_eq!(skipped.to_string(), "tipc: skipped: needs qemu-system-x86");
        assert!(judge(std::slice::from_ref(&passed), true).is_ok());
        assert!(judge(&[passed, failed], false).is_err());
        assert!(judge(std::slice::from_ref(&skipped), false).is_ok());
        assert!(judge(&[skipped], true).is_err());
    }

    #[test]
    fn unknown_scenario_error_lists_scenarios() {
        let error = chosen(&["tcpi".into()]).err().unwrap().to_string();
        assert!(
            error.contains("\"tcpi\"") && error.contains("tcp, tipc"),
            "{error}"
        );
        let by_itself = chosen(&[]).unwrap();
        assert!(by_itself.iter().all(|scenario| !scenario.is_by_name_only) && by_itself.len() > 4);
    }
}
