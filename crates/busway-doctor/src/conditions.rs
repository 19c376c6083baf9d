//! What a measured program asks of the system: a processor of its own, real-time priority, locked
//! memory, no deep idle states.
//!
//! Contract: a program applies what is [`Wanted`] to itself, in the thread that measures and before
//! it starts others. Nothing that is refused ends it: each request becomes a [`Condition`] of the
//! result that says whether it was granted, and if not, why and how to mend it. [`Granted`] is kept
//! for as long as the conditions shall hold. Called by the programs under test (`worker`); the
//! experiments turn the options ([`Args`]) into what is wanted and [`merge`] what the programs
//! report.
#![allow(unsafe_code)] // sched_setscheduler has no safe wrapper in our libraries

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Pid, Resource, getrlimit};
use rustix::thread::{CapabilitySet, CpuSet, capabilities, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// Where programs say how long waking a processor may take at most (kernel:
/// Documentation/power/pm_qos_interface.rst).
const CPU_DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// Something asked of the system for the programs under test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// `pinning`, `fifo`, `locked-memory`, `cpu-dma-latency`.
    pub name: String,
    /// What was asked for, in words: `CPU 0 and 1`, `priority 80`.
    pub asked: String,
    /// Whether all programs got it.
    pub granted: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What one program asks for. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// Which of the processors that it may use the program keeps to, counted from 0.
    pub processor: Option<usize>,
    /// The processor by the kernel's number; takes precedence. Also reaches isolated ones, which
    /// programs may not use unasked.
    pub cpu: Option<usize>,
    /// Priority under SCHED_FIFO, 1 to 99.
    pub fifo_priority: Option<u8>,
    /// Whether all memory is locked, that which is mapped later included.
    pub lock_memory: bool,
    /// Longest time in µs that waking an idle processor may take; 0 keeps processors awake.
    pub cpu_dma_latency_us: Option<u32>,
}

/// What holds only as long as this lives.
#[derive(Debug, Default)]
pub struct Granted {
    /// The kernel forgets the request when the file is closed.
    _cpu_dma_latency: Option<File>,
}

/// Why something was refused, and how to mend it.
type Refusal = String;

/// Asks for everything that is wanted, for the calling thread and those that it starts later.
pub fn apply(wanted: &Wanted) -> (Granted, Vec<Condition>) {
    let mut granted = Granted::default();
    let mut conditions = Vec::new();
    let mut note = |name: &str, asked: String, outcome: Result<(), Refusal>| {
        conditions.push(Condition {
            name: name.to_owned(),
            asked,
            granted: outcome.is_ok(),
            reason: outcome.err(),
        });
    };
    if wanted.cpu.is_some() || wanted.processor.is_some() {
        let (asked, outcome) = keep_to(wanted);
        note("pinning", asked, outcome);
    }
    if let Some(us) = wanted.cpu_dma_latency_us {
        let outcome = hold_cpu_dma_latency(us).map(|file| granted._cpu_dma_latency = Some(file));
        note("cpu-dma-latency", format!("{us} µs"), outcome);
    }
    if wanted.lock_memory {
        note("locked-memory", "all memory".to_owned(), lock_memory());
    }
    if let Some(priority) = wanted.fifo_priority {
        note("fifo", format!("priority {priority}"), become_fifo(priority));
    }
    (granted, conditions)
}

/// The conditions of a run from those of its programs: granted only if all that asked for it got
/// it.
pub fn merge(programs: Vec<Vec<Condition>>) -> Vec<Condition> {
    let mut merged: Vec<Condition> = Vec::new();
    for condition in programs.into_iter().flatten() {
        let Some(known) = merged.iter_mut().find(|it| it.name == condition.name) else {
            merged.push(condition);
            continue;
        };
        if !known.asked.split(" and ").any(|asked| asked == condition.asked) {
            known.asked = format!("{} and {}", known.asked, condition.asked);
        }
        known.granted &= condition.granted;
        match (&mut known.reason, condition.reason) {
            (Some(reasons), Some(reason)) if !reasons.split("; also: ").any(|it| it == reason) => {
                *reasons = format!("{reasons}; also: {reason}");
            }
            (none @ None, reason) => *none = reason,
            _ => {}
        }
    }
    merged
}

fn keep_to(wanted: &Wanted) -> (String, Result<(), Refusal>) {
    let allowed = match sched_getaffinity(None) {
        Ok(allowed) => allowed,
        Err(error) => {
            let refusal = format!("the processors of this program cannot be found out: {error}");
            return ("one processor".to_owned(), Err(refusal));
        }
    };
    let list: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let index = wanted.processor.unwrap_or(0);
    let Some(cpu) = wanted.cpu.or_else(|| list.get(index).copied()) else {
        let asked = format!("processor number {index} of those allowed, from 0");
        let refusal =
            format!("this program may use {list:?} only; give it more (`taskset`, cpuset of its cgroup)");
        return (asked, Err(refusal));
    };
    let mut one = CpuSet::new();
    let outcome = if cpu < CpuSet::MAX_CPU {
        one.set(cpu);
        sched_setaffinity(None, &one).map_err(io::Error::from)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    };
    let refusal = |error| {
        format!(
            "{error}: there is no such CPU, it is offline, or the cgroup's cpuset leaves it out; this program may use {list:?} \
             (`lscpu`, `systemctl set-property … AllowedCPUs=`)"
        )
    };
    (format!("CPU {cpu}"), outcome.map_err(refusal))
}

/// Keeps every thread of another process to one CPU, by the kernel's number; threads that those
/// start later stay there too.
pub fn keep_process_to(process_id: u32, cpu: usize) -> Result<(), Refusal> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(format!("there is no CPU {cpu}"));
    }
    let mut one = CpuSet::new();
    one.set(cpu);
    let threads = format!("/proc/{process_id}/task");
    let entries = std::fs::read_dir(&threads).map_err(|error| format!("{threads}: {error}"))?;
    for name in entries.flatten().map(|entry| entry.file_name()) {
        let id = name
            .to_str()
            .and_then(|name| name.parse().ok())
            .and_then(Pid::from_raw);
        match id.map(|id| sched_setaffinity(Some(id), &one)) {
            // A thread that has ended meanwhile needs no CPU.
            None | Some(Ok(()) | Err(Errno::SRCH)) => {}
            Some(Err(error)) => return Err(format!("keep process {process_id} to CPU {cpu}: {error}")),
        }
    }
    Ok(())
}

fn hold_cpu_dma_latency(us: u32) -> Result<File, Refusal> {
    let value = i32::try_from(us).unwrap_or(i32::MAX);
    let hold = || {
        let mut file = OpenOptions::new().write(true).open(CPU_DMA_LATENCY)?;
        file.write_all(&value.to_ne_bytes())?;
        Ok(file)
    };
    hold().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            format!("{CPU_DMA_LATENCY} is not there; pass it into the container, or use a kernel with CONFIG_PM and CONFIG_CPU_IDLE")
        }
        _ => format!("{CPU_DMA_LATENCY}: {error}; run as root, or give this user the right to write it (`chmod`, a udev rule)"),
    })
}

fn lock_memory() -> Result<(), Refusal> {
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).map_err(|error| {
        let limit = match getrlimit(Resource::Memlock).current {
            Some(bytes) => format!("{bytes} bytes"),
            None => "unlimited".to_owned(),
        };
        let right = right(CapabilitySet::IPC_LOCK, "CAP_IPC_LOCK");
        format!(
            "{error}: the limit RLIMIT_MEMLOCK is {limit}, and the program {right}; raise it (`ulimit -l unlimited`, \
             `memlock` in /etc/security/limits.conf) or run as root"
        )
    })
}

fn become_fifo(priority: u8) -> Result<(), Refusal> {
    if !(1..=99).contains(&priority) {
        return Err(format!("there is no priority {priority}; give one from 1 to 99"));
    }
    // SAFETY: a zeroed sched_param is a valid one on Linux; pid 0 is the calling thread; the call
    // only reads the structure.
    let failed = unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        param.sched_priority = libc::c_int::from(priority);
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) != 0
    };
    if !failed {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if may(CapabilitySet::SYS_NICE) {
        // With CONFIG_RT_GROUP_SCHED, what is left is the budget of the control group (kernel:
        // scheduler/sched-rt-group.rst).
        return Err(format!(
            "{error}: the control group of this program has no real-time time; write some to its cpu.rt_runtime_us, or boot with \
             rt_group_sched=0"
        ));
    }
    let limit = getrlimit(Resource::Rtprio)
        .current
        .map_or("unlimited".to_owned(), |it| it.to_string());
    Err(format!(
        "{error}: the limit RLIMIT_RTPRIO is {limit}, and the program has no CAP_SYS_NICE; raise it (`ulimit -r {priority}`, \
         `rtprio` in /etc/security/limits.conf) or run as root"
    ))
}

fn may(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

fn right(capability: CapabilitySet, name: &str) -> String {
    format!("has {}{name}", if may(capability) { "" } else { "no " })
}

/// Options with which every experiment can be asked for conditions.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// Keep the sending and the receiving program to these CPUs (the kernel's numbers), or to none
    /// in particular [default: CPUs of their own where there are enough]
    #[arg(long, value_name = "CPU,CPU|none", help_heading = "Conditions")]
    pub pin: Option<Pin>,
    /// Run the programs under SCHED_FIFO with this priority, 1 to 99
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99), help_heading = "Conditions")]
    pub fifo: Option<u8>,
    /// Lock the memory of the programs
    #[arg(long, help_heading = "Conditions")]
    pub lock_memory: bool,
    /// Let no processor sleep so deep that waking takes longer than this, in µs; 0 keeps all awake
    #[arg(long, value_name = "US", help_heading = "Conditions")]
    pub cpu_dma_latency: Option<u32>,
}

/// Where the two programs of an experiment run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// Where the scheduler likes.
    Nowhere,
    /// CPUs of the sending and of the receiving program, by the kernel's numbers.
    Cpus([usize; 2]),
}

impl std::str::FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        let cpus = text
            .split_once(',')
            .map(|(a, b)| (a.trim().parse(), b.trim().parse()));
        match cpus {
            Some((Ok(sending), Ok(receiving))) => Ok(Self::Cpus([sending, receiving])),
            _ => Err("give two CPU numbers such as 2,3 (sending, receiving), or none".to_owned()),
        }
    }
}

impl Args {
    /// What the sending program shall ask for (in round trips: the one that asks). `processor` is
    /// the default without `--pin`.
    pub fn sending(&self, processor: Option<usize>) -> Wanted {
        self.wanted(0, processor)
    }

    /// What the receiving program shall ask for.
    pub fn receiving(&self, processor: Option<usize>) -> Wanted {
        self.wanted(1, processor)
    }

    fn wanted(&self, side: usize, processor: Option<usize>) -> Wanted {
        let (processor, cpu) = match self.pin {
            None => (processor, None),
            Some(Pin::Nowhere) => (None, None),
            Some(Pin::Cpus(cpus)) => (None, Some(cpus[side])),
        };
        Wanted {
            processor,
            cpu,
            fifo_priority: self.fifo,
            lock_memory: self.lock_memory,
            cpu_dma_latency_us: self.cpu_dma_latency,
        }
    }
}

#[cfg(test)]
mod tests;
