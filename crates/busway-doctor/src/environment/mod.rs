//! On what machine and under which circumstances figures were taken; goes into every result.
//!
//! Contract: [`Environment::record`] looks before a run and measures the clock,
//! [`Environment::finish`] looks again after it, when the programs of the run have ended. What
//! cannot be found out is absent. Called by every experiment; read by the views.

pub mod clock;

pub mod load;

use std::fmt;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::facts::{self, IdleState, Interface};
use crate::tree::Tree;
use clock::Clock;
use load::{Begun, During};

/// Binary of the crate `iceoryx2-integrations-zenoh-link-tunnel-cli`.
pub const TUNNEL: &str = "iox2-link-tunnel-zenoh";
/// C binding of iceoryx 2.
const ICEORYX: &str = "libiceoryx_binding_c";
/// A machine with a greater load per minute was busy before the run.
const BUSY_LOAD: f64 = 0.5;
/// Others that used more of the processors than this during the run have disturbed it, in percent.
const DISTURBING_PERCENT: f64 = 5.0;
/// The same for a hypervisor.
const STEALING_PERCENT: f64 = 0.5;
/// Waking from an idle state that takes longer than this is seen in any figure, in µs.
pub(crate) const SLOW_WAKING_US: u64 = 10;

/// The record. A field that cannot be found out is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Model name of the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// CPUs that this process may run on.
    pub cores: usize,
    /// CPUs of the machine that are online.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_online: Option<usize>,
    /// Whether two threads share a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smt: Option<bool>,
    /// Memory of the machine in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Frequency governors of the CPUs; absent where the frequency is not ours to choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Driver that makes CPUs idle; `none` where they only halt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_driver: Option<String>,
    /// Its states.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub idle_states: Vec<IdleState>,
    /// CPUs that the scheduler leaves alone, as the kernel lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated_cpus: Option<String>,
    /// CPUs without a timer tick, as the kernel lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nohz_full_cpus: Option<String>,
    /// Kernel release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Kernel version: how it was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_version: Option<String>,
    /// Preemption model: `rt`, `full`, `lazy`, `voluntary`, `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<String>,
    /// Whether the CPU says that it is virtual, and whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// Clock source of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
    /// The clock as measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// Transparent huge pages: `always`, `madvise`, `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transparent_huge_pages: Option<String>,
    /// Network interfaces of the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Load over 1, 5 and 15 minutes before the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<[f64; 3]>,
    /// The processors during the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub during: Option<During>,
    /// Version of this program.
    pub busway: String,
    /// iceoryx2 of the programs under test.
    pub iceoryx2: String,
    /// Version of iceoryx, the C++ one, if its C binding is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iceoryx: Option<String>,
    /// What the tunnel that is measured beside us says of its version, if it is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zenoh_tunnel: Option<String>,
    /// How the hosts are kept apart.
    pub isolation: String,
    /// What makes the figures worth less.
    pub warnings: Vec<String>,
    #[serde(skip)]
    beginning: Beginning,
}

/// The sums at the beginning of a run. No part of the record: two records are the same whenever
/// they were begun.
#[derive(Clone, Debug, Default)]
struct Beginning(Option<Begun>);

impl PartialEq for Beginning {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Environment {
    /// Looks at this machine. `isolation` says how the hosts of the run are kept apart.
    pub fn record(isolation: &str) -> Self {
        let tree = Tree::here();
        let mut this = Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            clock: Some(clock::measure()),
            zenoh_tunnel: tunnel_version(),
            isolation: isolation.to_owned(),
            ..Self::of(&tree)
        };
        this.warn();
        this.beginning = Beginning(Begun::now(&tree));
        this
    }

    /// What the files of a machine say.
    fn of(tree: &Tree) -> Self {
        let governors = facts::governors(tree);
        Self {
            cpu: facts::cpu_model(tree),
            cores_online: Some(facts::online(tree).len()).filter(|count| *count > 0),
            smt: facts::smt(tree),
            memory_bytes: facts::memory_bytes(tree),
            governor: (!governors.is_empty()).then(|| governors.join(", ")),
            idle_driver: facts::idle_driver(tree),
            idle_states: facts::idle_states(tree),
            isolated_cpus: facts::isolated_cpus(tree),
            nohz_full_cpus: facts::nohz_full_cpus(tree),
            kernel: tree.read("proc/sys/kernel/osrelease"),
            kernel_version: tree.read("proc/sys/kernel/version"),
            preemption: facts::preemption(tree).map(|(model, _)| model.word().to_owned()),
            hypervisor: facts::hypervisor(tree),
            clock_source: tree.read("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            transparent_huge_pages: facts::transparent_huge_pages(tree),
            interfaces: facts::interfaces(tree),
            load: facts::load(tree),
            busway: env!("CARGO_PKG_VERSION").to_owned(),
            iceoryx2: "0.10.0".to_owned(),
            iceoryx: facts::library_version(tree, ICEORYX),
            ..Self::default()
        }
    }

    /// Looks at who used the processors since [`record`](Self::record), and warns if it was not the
    /// run. The first call counts; of a record that was read from a file none does.
    pub fn finish(&mut self) {
        let Some(begun) = self.beginning.0.take() else {
            return;
        };
        self.during = begun.end(&Tree::here());
        self.warn_of_disturbance();
    }

    fn warn(&mut self) {
        if let Some([load, ..]) = self.load
            && load > BUSY_LOAD
        {
            self.warnings
                .push(format!("the machine was busy before the run (load {load})"));
        }
        if self.hypervisor.is_some() {
            self.warnings
                .push("virtual machine: neighbours may take CPU time".into());
        }
        let slow = self.governor.as_deref().filter(|it| *it != "performance");
        if let Some(governor) = slow {
            self.warnings.push(format!(
                "the CPU frequency varies (governor {governor}, not performance)"
            ));
        }
        let deep = self.idle_states.iter().filter(|it| !it.disabled);
        if let Some(deepest) = deep.max_by_key(|it| it.exit_latency_us)
            && deepest.exit_latency_us > SLOW_WAKING_US
        {
            let (name, us) = (&deepest.name, deepest.exit_latency_us);
            self.warnings.push(format!(
                "idle CPUs take up to {us} µs to wake (idle state {name})"
            ));
        }
        let clock_source = self.clock_source.as_deref().unwrap_or_default();
        if matches!(
            clock_source,
            "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "xen"
        ) {
            self.warnings.push(format!(
                "reading the clock needs a system call (clock source {clock_source})"
            ));
        }
    }

    fn warn_of_disturbance(&mut self) {
        let Some(during) = &self.during else {
            return;
        };
        if during.others_percent > DISTURBING_PERCENT {
            self.warnings.push(format!(
                "others used {:.1} % of the processors during the run",
                during.others_percent
            ));
        }
        if during.stolen_percent > STEALING_PERCENT {
            self.warnings.push(format!(
                "the hypervisor took {:.1} % of the processors' time during the run",
                during.stolen_percent
            ));
        }
    }
}

/// The machine in a line, and a line for each warning.
impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_unknown = |what: &Option<String>| what.clone().unwrap_or_else(|| "unknown".to_owned());
        write!(
            f,
            "{}, {} cores, Linux {}",
            or_unknown(&self.cpu),
            self.cores,
            or_unknown(&self.kernel)
        )?;
        if let Some(preemption) = &self.preemption {
            write!(f, " (preemption {preemption})")?;
        }
        if let Some(clock) = &self.clock {
            let source = or_unknown(&self.clock_source);
            write!(f, ", clock {source} read in {:.0} ns", clock.read_ns)?;
        }
        write!(f, ", {}", self.isolation)?;
        self.warnings
            .iter()
            .try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}

fn tunnel_version() -> Option<String> {
    let output = Command::new(TUNNEL)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .last()
        .map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests;
