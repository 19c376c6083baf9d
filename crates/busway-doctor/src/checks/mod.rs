//! `busway doctor`: what on this host will spoil real-time latency, what it lacks for buses, and
//! how to mend each.
//!
//! Contract: every check is a function over the files of a [`Tree`]; only what a system call alone
//! can tell comes in as [`Probes`]. Nothing is changed, and nothing fails: a fact that no file
//! tells is [`State::Unknown`]. One file for each group of checks.

mod buses;
mod interrupts;
mod kernel;
mod memory;
mod processors;
mod rights;
mod settings;

use serde::{Deserialize, Serialize};

use crate::facts;
use crate::tree::{Tree, field};

/// What [`Diagnosis::schema`] says of the JSON that this version writes.
pub const SCHEMA: &str = "busway-doctor/1";

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As it should be.
    Good,
    /// It makes some messages late.
    Spoils,
    /// A bus or a technology cannot be used.
    Missing,
    /// It cannot be found out.
    Unknown,
}

impl State {
    /// The word used in results.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// What belongs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// The CPUs.
    Processors,
    /// The kernel and its scheduler.
    Kernel,
    /// What interrupts programs.
    Interrupts,
    /// Memory and what lies in it.
    Memory,
    /// What programs of this user may do.
    Rights,
    /// What buses and technologies need.
    Buses,
}

impl Group {
    /// The word used in results.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it belongs to.
    pub group: Group,
    /// Stable name, such as `idle-states`.
    pub name: String,
    /// How it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// Where.
    pub source: String,
    /// What it costs; absent where nothing is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<String>,
    /// How to mend it; absent where nothing is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// All findings of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// [`SCHEMA`].
    pub schema: String,
    /// Model of the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Kernel release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Everything that was looked at, group by group.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// How many findings are in this state.
    pub fn count(&self, state: State) -> usize {
        self.findings.iter().filter(|it| it.state == state).count()
    }
}

/// What only system calls can show.
#[derive(Clone, Debug, Default)]
pub struct Probes {
    /// Whether a TIPC socket can be made; if not, what the system says. None: not tried.
    pub tipc: Option<Result<(), String>>,
}

impl Probes {
    /// Tries here. What is made is closed again.
    pub fn here() -> Self {
        Self {
            tipc: Some(buses::try_tipc()),
        }
    }
}

/// Looks at this machine.
pub fn examine() -> Diagnosis {
    diagnose(&Tree::here(), &Probes::here())
}

/// Looks at the machine that a tree describes.
pub fn diagnose(tree: &Tree, probes: &Probes) -> Diagnosis {
    let mut findings = processors::check(tree);
    findings.extend(kernel::check(tree));
    findings.extend(interrupts::check(tree));
    findings.extend(memory::check(tree));
    findings.extend(rights::check(tree));
    findings.extend(buses::check(tree, probes));
    Diagnosis {
        schema: SCHEMA.to_owned(),
        cpu: facts::cpu_model(tree),
        kernel: tree.read("proc/sys/kernel/osrelease"),
        findings,
    }
}

struct Subject {
    group: Group,
    name: &'static str,
    source: String,
}

impl Subject {
    fn new(group: Group, name: &'static str, source: impl Into<String>) -> Self {
        Self {
            group,
            name,
            source: source.into(),
        }
    }

    fn good(self, found: impl Into<String>) -> Finding {
        Finding {
            group: self.group,
            name: self.name.to_owned(),
            state: State::Good,
            found: found.into(),
            source: self.source,
            costs: None,
            mend: None,
        }
    }

    fn spoils(self, found: impl Into<String>, costs: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding {
            state: State::Spoils,
            costs: Some(costs.into()),
            mend: Some(mend.into()),
            ..self.good(found)
        }
    }

    fn missing(self, found: impl Into<String>, costs: impl Into<String>, mend: impl Into<String>) -> Finding {
        let state = State::Missing;
        Finding {
            state,
            ..self.spoils(found, costs, mend)
        }
    }

    fn unknown(self, found: impl Into<String>, costs: impl Into<String>, mend: impl Into<String>) -> Finding {
        let state = State::Unknown;
        Finding {
            state,
            ..self.spoils(found, costs, mend)
        }
    }
}

/// The kernel's numbers of capabilities (`linux/capability.h`).
#[derive(Clone, Copy)]
enum Capability {
    IpcLock = 14,
    SysAdmin = 21,
    SysNice = 23,
    SysResource = 24,
}

fn may(tree: &Tree, capability: Capability) -> bool {
    let effective = tree
        .read("proc/self/status")
        .and_then(|status| field(&status, "CapEff"))
        .and_then(|text| u64::from_str_radix(&text, 16).ok());
    effective.is_some_and(|bits| bits & (1 << capability as u32) != 0)
}

/// The soft limit called `name` in `/proc/self/limits`: outer `None`, it does not stand there;
/// inner `None`, unlimited.
#[expect(clippy::option_option, reason = "unlimited is not unknown")]
fn limit(tree: &Tree, name: &str) -> Option<Option<u64>> {
    let limits = tree.read("proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let soft = line.split_ascii_whitespace().next()?;
    if soft == "unlimited" {
        return Some(None);
    }
    soft.parse().ok().map(Some)
}

#[cfg(test)]
mod tests;
