//! What the files of a machine say about it. Pure functions over a [`Tree`], used by the record of
//! the environment and by the doctor.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

use crate::tree::{Tree, cpu_list, field};

/// Where the kernel lists processors.
pub const CPUS: &str = "sys/devices/system/cpu";
/// A kernel configuration is no longer than this.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// A state in which an idle processor waits, and how long it takes to wake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    /// The driver's name of it: `POLL`, `C1`, `C6`.
    pub name: String,
    /// Time to wake in µs, as the driver knows it.
    pub exit_latency_us: u64,
    /// Whether it is switched off on every CPU.
    pub disabled: bool,
}

/// A network interface of the machine itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Driver of its device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Longest packet in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
    /// Nominal speed in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit_per_s: Option<u32>,
}

/// When the kernel lets a program be interrupted by another while it is inside a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Preemption {
    /// Nearly always: PREEMPT_RT.
    #[strum(serialize = "rt")]
    RealTime,
    /// Always but in sections that hold a lock.
    Full,
    /// As [`Self::Full`] for real-time programs, at the next tick for others.
    Lazy,
    /// At points set for it.
    Voluntary,
    /// Never.
    None,
}

impl Preemption {
    /// The kernel's word.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Online processors, by their numbers.
pub fn online(tree: &Tree) -> Vec<usize> {
    tree.read(&format!("{CPUS}/online"))
        .map(|text| cpu_list(&text))
        .unwrap_or_default()
}

/// What each online CPU has in a file of its directory, once each.
pub fn of_each_cpu(tree: &Tree, file: &str) -> Vec<String> {
    let mut values: Vec<String> = online(tree)
        .into_iter()
        .filter_map(|cpu| tree.read(&format!("{CPUS}/cpu{cpu}/{file}")))
        .collect();
    values.sort();
    values.dedup();
    values
}

/// Model name of the CPU; on Arm, which has none in `/proc/cpuinfo`, the board's.
pub fn cpu_model(tree: &Tree) -> Option<String> {
    let cpuinfo = tree.read("proc/cpuinfo")?;
    field(&cpuinfo, "model name")
        .or_else(|| field(&cpuinfo, "Model"))
        .or_else(|| tree.read("proc/device-tree/model").map(|it| it.replace('\0', "")))
}

/// Whether two threads share a core now.
pub fn smt(tree: &Tree) -> Option<bool> {
    if let Some(active) = tree.number::<u8>(&format!("{CPUS}/smt/active")) {
        return Some(active != 0);
    }
    let siblings = of_each_cpu(tree, "topology/thread_siblings_list");
    (!siblings.is_empty()).then(|| siblings.iter().any(|list| cpu_list(list).len() > 1))
}

/// Frequency governors in use.
pub fn governors(tree: &Tree) -> Vec<String> {
    of_each_cpu(tree, "cpufreq/scaling_governor")
}

/// Idle states of the processors, as the first online one lists them.
pub fn idle_states(tree: &Tree) -> Vec<IdleState> {
    let cpus = online(tree);
    let Some(first) = cpus.first() else {
        return Vec::new();
    };
    let mut states = tree.names(&format!("{CPUS}/cpu{first}/cpuidle"));
    states.sort_by_key(|name| (name.len(), name.clone()));
    let state = |state: String| {
        let of = |cpu: usize, file: &str| format!("{CPUS}/cpu{cpu}/cpuidle/{state}/{file}");
        let is_off = |cpu: &usize| tree.read(&of(*cpu, "disable")).is_some_and(|it| it.trim() != "0");
        Some(IdleState {
            name: tree.read(&of(*first, "name"))?,
            exit_latency_us: tree.number(&of(*first, "latency"))?,
            disabled: cpus.iter().all(is_off),
        })
    };
    states.into_iter().filter_map(state).collect()
}

/// The driver that makes processors idle; `none` on kernels that only halt.
pub fn idle_driver(tree: &Tree) -> Option<String> {
    tree.read(&format!("{CPUS}/cpuidle/current_driver"))
}

/// CPUs that the scheduler leaves alone (`isolcpus=`).
pub fn isolated_cpus(tree: &Tree) -> Option<String> {
    tree.read(&format!("{CPUS}/isolated"))
}

/// CPUs without a timer tick (`nohz_full=`).
pub fn nohz_full_cpus(tree: &Tree) -> Option<String> {
    // Kernels without CPUs of this kind write "(null)".
    tree.read(&format!("{CPUS}/nohz_full"))
        .filter(|it| it != "(null)")
}

/// The preemption model, and where that stands.
pub fn preemption(tree: &Tree) -> Option<(Preemption, String)> {
    let version = tree.read("proc/sys/kernel/version").unwrap_or_default();
    let built = |word| version.split(' ').any(|it| it == word);
    if tree.read("sys/kernel/realtime").as_deref() == Some("1") {
        return Some((Preemption::RealTime, "/sys/kernel/realtime".into()));
    }
    if built("PREEMPT_RT") {
        return Some((Preemption::RealTime, format!("kernel version {version:?}")));
    }
    if let Some(text) = tree.read("sys/kernel/debug/sched/preempt") {
        // The model in force stands in parentheses: "none voluntary (full) lazy".
        let word = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        if let Some(model) = word.and_then(|(word, _)| word.parse().ok()) {
            return Some((model, "/sys/kernel/debug/sched/preempt".into()));
        }
    }
    let is_dynamic = built("PREEMPT_DYNAMIC");
    if is_dynamic && let Some(word) = boot_option(tree, "preempt") {
        return Some((word.parse().ok()?, format!("boot option preempt={word}")));
    }
    if let Some((config, path)) = kernel_config(tree) {
        let options = [
            ("CONFIG_PREEMPT_RT=y", Preemption::RealTime),
            ("CONFIG_PREEMPT_NONE=y", Preemption::None),
            ("CONFIG_PREEMPT_VOLUNTARY=y", Preemption::Voluntary),
            ("CONFIG_PREEMPT_LAZY=y", Preemption::Lazy),
            ("CONFIG_PREEMPT=y", Preemption::Full),
        ];
        let set = options
            .into_iter()
            .find(|(option, _)| config.lines().any(|line| line == *option));
        if let Some((option, model)) = set {
            return Some((model, format!("{option} in {path}")));
        }
    }
    let is_full = built("PREEMPT") && !is_dynamic;
    is_full.then(|| (Preemption::Full, format!("kernel version {version:?}")))
}

/// The value of an option of the kernel's command line.
pub fn boot_option(tree: &Tree, name: &str) -> Option<String> {
    let line = tree.read("proc/cmdline")?;
    let value = line.split_ascii_whitespace().find_map(|word| {
        let (key, value) = word.split_once('=')?;
        (key == name).then_some(value)
    })?;
    Some(value.to_owned())
}

/// How the kernel was configured, and the file that says so.
pub fn kernel_config(tree: &Tree) -> Option<(String, String)> {
    if let Some(bytes) = tree.bytes("proc/config.gz") {
        let mut text = String::new();
        let mut decoder = GzDecoder::new(bytes.as_slice()).take(CONFIG_BYTES_MAX);
        if decoder.read_to_string(&mut text).is_ok() {
            return Some((text, "/proc/config.gz".into()));
        }
    }
    let release = tree.read("proc/sys/kernel/osrelease")?;
    let path = format!("boot/config-{release}");
    Some((tree.read(&path)?, format!("/{path}")))
}

/// Whose virtual machine this is.
pub fn hypervisor(tree: &Tree) -> Option<String> {
    let cpuinfo = tree.read("proc/cpuinfo").unwrap_or_default();
    let by_flag = field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|it| it == "hypervisor"));
    let by_kind = tree.read("sys/hypervisor/type");
    (by_flag || by_kind.is_some()).then(|| {
        let vendor = tree.read("sys/class/dmi/id/sys_vendor");
        vendor.or(by_kind).unwrap_or_else(|| "unnamed".into())
    })
}

/// Memory of the machine in bytes.
pub fn memory_bytes(tree: &Tree) -> Option<u64> {
    let total = field(&tree.read("proc/meminfo")?, "MemTotal")?;
    let kib: u64 = total.split(' ').next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The word in brackets: `always [madvise] never`.
pub fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// How the kernel uses transparent huge pages.
pub fn transparent_huge_pages(tree: &Tree) -> Option<String> {
    chosen(&tree.read("sys/kernel/mm/transparent_hugepage/enabled")?)
}

/// Load over 1, 5 and 15 minutes.
pub fn load(tree: &Tree) -> Option<[f64; 3]> {
    let text = tree.read("proc/loadavg")?;
    let mut numbers = text.split(' ').map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

/// Clock ticks of all CPUs since the machine's start: user, nice, system, idle, iowait, irq,
/// softirq, steal (proc_stat(5); guest time is contained in user time).
pub fn cpu_ticks(tree: &Tree) -> Option<[u64; 8]> {
    let stat = tree.read("proc/stat")?;
    let mut numbers = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_ascii_whitespace();
    let mut ticks = [0; 8];
    for field in &mut ticks {
        *field = numbers.next().unwrap_or("0").parse().ok()?;
    }
    Some(ticks)
}

/// Clock ticks of a process, by its number or `self`: user and system time of its own, user and
/// system time of its children that have ended.
pub fn process_ticks(tree: &Tree, process: &str) -> Option<[u64; 4]> {
    let stat = tree.read(&format!("proc/{process}/stat"))?;
    // proc_pid_stat(5): they are the 12th to 15th field after the name in parentheses, which may
    // hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = [0; 4];
    for field in &mut ticks {
        *field = fields.next()?.parse().ok()?;
    }
    Some(ticks)
}

/// Network interfaces with a device of their own.
pub fn interfaces(tree: &Tree) -> Vec<Interface> {
    const NET: &str = "sys/class/net";
    let names = tree.names(NET).into_iter();
    let real = names.filter(|name| tree.has(&format!("{NET}/{name}/device")));
    let interface = |name: String| Interface {
        driver: tree.link_name(&format!("{NET}/{name}/device/driver")),
        mtu_bytes: tree.number(&format!("{NET}/{name}/mtu")),
        // Interfaces that don't know say -1.
        speed_mbit_per_s: tree
            .number::<i64>(&format!("{NET}/{name}/speed"))
            .and_then(|it| u32::try_from(it).ok()),
        name,
    };
    real.map(interface).collect()
}

/// Directories in which shared libraries usually lie.
const LIBRARIES: [&str; 8] = [
    "usr/local/lib",
    "usr/lib",
    "usr/lib64",
    "lib",
    "lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/lib64",
];

/// Files of a shared library, `libNAME.so` and what follows, the longest name (which holds the
/// version) last.
pub fn library(tree: &Tree, name: &str) -> Vec<String> {
    let prefix = format!("{name}.so");
    let mut found = Vec::new();
    for directory in LIBRARIES {
        let names = tree.names(directory).into_iter();
        found.extend(
            names
                .filter(|it| {
                    it.strip_prefix(&prefix)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                })
                .map(|it| format!("/{directory}/{it}")),
        );
    }
    found.sort_by_key(String::len);
    found
}

/// Version of an installed shared library, from the name of its file.
pub fn library_version(tree: &Tree, name: &str) -> Option<String> {
    let longest = library(tree, name).pop()?;
    let (_, version) = longest.split_once(".so.")?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests;
