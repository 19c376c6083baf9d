//! On what machine and under which circumstances figures were taken; goes into every result file.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::hosts::find_on_path;

/// Binary of the crate `iceoryx2-integrations-zenoh-link-tunnel-cli`.
pub(crate) const TUNNEL: &str = "iox2-link-tunnel-zenoh";

/// The record. A field that cannot be found out is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Model name of the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// CPUs that this process may run on.
    pub cores: usize,
    /// Memory of the machine in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Frequency governor of CPU 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Kernel release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Whether the CPU says that it is virtual, and whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// Clock source of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
    /// Load over 1, 5 and 15 minutes before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<[f64; 3]>,
    /// Version of this program.
    pub busway: String,
    /// iceoryx2 of the programs under test.
    pub iceoryx2: String,
    /// What the tunnel that is measured beside us says of its version, if it is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zenoh_tunnel: Option<String>,
    /// How the hosts are kept apart.
    pub isolation: String,
    /// What makes the figures worth less.
    pub warnings: Vec<String>,
}

impl Environment {
    /// Looks at `/proc` and `/sys`.
    pub fn record(isolation: &str) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let load = read("/proc/loadavg").and_then(|text| {
            let mut numbers = text.split(' ').map_while(|word| word.parse().ok());
            Some([numbers.next()?, numbers.next()?, numbers.next()?])
        });
        let mut this = Self {
            cpu: cpu_field(&cpuinfo, "model name"),
            cores,
            memory_bytes: memory_bytes(),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            kernel: read("/proc/sys/kernel/osrelease"),
            hypervisor: hypervisor(&cpuinfo),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            load,
            busway: env!("CARGO_PKG_VERSION").to_owned(),
            iceoryx2: "0.10.0".to_owned(),
            zenoh_tunnel: tunnel_version(),
            isolation: isolation.to_owned(),
            warnings: Vec::new(),
        };
        this.warn();
        this
    }

    fn warn(&mut self) {
        let cores = self.cores;
        if cores < 4 {
            self.warnings.push(format!(
                "4 busy processes (2 programs, 2 gateways) share {cores} cores"
            ));
        }
        if let Some([load, ..]) = self.load
            && load > 0.5
        {
            self.warnings
                .push(format!("the machine was busy before the run (load {load})"));
        }
        if self.hypervisor.is_some() {
            self.warnings
                .push("virtual machine: neighbours may take CPU time".into());
        }
    }
}

/// The machine in a line, and a line for each warning.
impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_unknown = |what: &Option<String>| what.clone().unwrap_or_else(|| "unknown".to_owned());
        write!(
            f,
            "{}, {} cores, Linux {}, {}",
            or_unknown(&self.cpu),
            self.cores,
            or_unknown(&self.kernel),
            self.isolation
        )?;
        self.warnings
            .iter()
            .try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}

fn tunnel_version() -> Option<String> {
    let tunnel = find_on_path(OsStr::new(TUNNEL))?;
    let output = Command::new(tunnel)
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

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

fn cpu_field(cpuinfo: &str, key: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = text
        .lines()
        .next()?
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()?;
    Some(kib * 1024)
}

fn hypervisor(cpuinfo: &str) -> Option<String> {
    let flags = cpu_field(cpuinfo, "flags")?;
    flags.split(' ').any(|flag| flag == "hypervisor").then(|| {
        read("/sys/class/dmi/id/sys_vendor")
            .or_else(|| read("/sys/hypervisor/type"))
            .unwrap_or_else(|| "yes, unnamed".into())
    })
}
