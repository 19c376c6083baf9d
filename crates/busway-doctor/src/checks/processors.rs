//! The CPUs: how many, whether they share cores, how they sleep, who else uses them, and the clock.

use super::{Finding, Group, Subject};
use crate::environment::SLOW_WAKING_US;
use crate::facts::{self, CPUS};
use crate::tree::{Tree, cpu_list, field};

/// Two programs and a gateway each, on one machine.
const CORES_WANTED: usize = 4;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    vec![
        cores(tree),
        smt(tree),
        governor(tree),
        idle_states(tree),
        isolated(tree),
        tick(tree),
        hypervisor(tree),
        clock_source(tree),
    ]
}

fn subject(name: &'static str, source: impl Into<String>) -> Subject {
    Subject::new(Group::Processors, name, source)
}

fn cores(tree: &Tree) -> Finding {
    let subject = subject("cores", "/proc/self/status, Cpus_allowed_list");
    let allowed = tree
        .read("proc/self/status")
        .and_then(|status| field(&status, "Cpus_allowed_list"));
    let Some(allowed) = allowed else {
        return subject.unknown(
            "no list of CPUs",
            "unknown whether every busy thread has a CPU",
            "mount /proc",
        );
    };
    let count = cpu_list(&allowed).len();
    let found = format!("{count} CPUs for this program ({allowed})");
    if count >= CORES_WANTED {
        return subject.good(found);
    }
    subject.spoils(
        found,
        "busy threads (two programs, a gateway lane each) take turns: a message waits for a time slice, 1 to 4 ms",
        "use a machine with 4 or more cores, widen the cpuset of the program (`taskset`, cgroup), and let programs wait with `adaptive` or `event`, not `spin`",
    )
}

fn smt(tree: &Tree) -> Finding {
    let subject = subject("smt", format!("/{CPUS}/smt/active"));
    match facts::smt(tree) {
        Some(false) => subject.good("one thread on each core"),
        Some(true) => subject.spoils(
            "two threads share a core",
            "whatever runs on the other thread takes execution units and cache: programs run up to twice as long, at times of its choosing",
            "echo off > /sys/devices/system/cpu/smt/control (until the next boot), boot option nosmt, or keep the sibling of each real-time CPU idle",
        ),
        None => subject.unknown(
            "the kernel does not say",
            "unknown whether another thread shares the core",
            "look at `lscpu`, \"Thread(s) per core\"",
        ),
    }
}

fn governor(tree: &Tree) -> Finding {
    let subject = subject("governor", format!("/{CPUS}/cpu*/cpufreq/scaling_governor"));
    let governors = facts::governors(tree);
    match governors.as_slice() {
        [] => subject.unknown(
            "no frequency control in this kernel or virtual machine",
            "firmware or hypervisor may lower the frequency of a CPU that was idle; the first message after a pause is slower",
            "choose the performance profile in the firmware, or on the host of the virtual machine",
        ),
        [one] if one == "performance" => subject.good("performance"),
        several => subject.spoils(
            several.join(", "),
            "a CPU that was idle starts slowly: tens of µs to some ms until it has its full frequency",
            "cpupower frequency-set -g performance (or write `performance` to each scaling_governor)",
        ),
    }
}

fn idle_states(tree: &Tree) -> Finding {
    let subject = subject("idle-states", format!("/{CPUS}/cpu*/cpuidle/state*"));
    let states = facts::idle_states(tree);
    let enabled: Vec<_> = states.iter().filter(|state| !state.disabled).collect();
    let listed: Vec<String> = enabled
        .iter()
        .map(|state| format!("{} {} µs", state.name, state.exit_latency_us))
        .collect();
    let Some(deepest) = enabled.iter().max_by_key(|state| state.exit_latency_us) else {
        if facts::boot_option(tree, "idle").as_deref() == Some("poll") {
            return subject.good("idle CPUs poll (idle=poll)");
        }
        return subject.unknown(
            "no idle driver: idle CPUs halt",
            "a halted virtual CPU is given back to the hypervisor, which takes some µs to tens of µs to bring it back",
            "let programs wait with `spin`; on the host: cpuidle_haltpoll or `-overcommit cpu-pm=on`; boot option idle=poll",
        );
    };
    if deepest.exit_latency_us <= SLOW_WAKING_US {
        return subject.good(listed.join(", "));
    }
    subject.spoils(
        listed.join(", "),
        format!(
            "a message that finds its CPU asleep is up to {} µs late",
            deepest.exit_latency_us
        ),
        format!(
            "cpupower idle-set -D {SLOW_WAKING_US}; for one measurement: busway bench … --cpu-dma-latency 0; for good: boot option \
             intel_idle.max_cstate=1 or processor.max_cstate=1"
        ),
    )
}

fn isolated(tree: &Tree) -> Finding {
    let subject = subject("isolated-cpus", format!("/{CPUS}/isolated"));
    if let Some(cpus) = facts::isolated_cpus(tree) {
        return subject.good(format!("CPU {cpus}"));
    }
    let count = facts::online(tree).len();
    let mend = if count < 3 {
        format!("with {count} CPUs none can be spared; use a machine with more")
    } else {
        let last = count - 1;
        format!(
            "boot option isolcpus=managed_irq,domain,{last} (and nohz_full={last} rcu_nocbs={last}), or a control group with \
             cpuset.cpus.partition=isolated; then keep lanes (`cpu = {last}` in the system file) and programs there"
        )
    };
    subject.spoils(
        "none",
        "any other program may take the CPU: up to a time slice of 1 to 4 ms, and cold caches after it",
        mend,
    )
}

fn tick(tree: &Tree) -> Finding {
    let subject = subject("timer-tick", format!("/{CPUS}/nohz_full"));
    if let Some(cpus) = facts::nohz_full_cpus(tree) {
        return subject.good(format!("no tick on CPU {cpus} while one program runs there"));
    }
    let config = facts::kernel_config(tree)
        .map(|(text, _)| text)
        .unwrap_or_default();
    let hz = config
        .lines()
        .find_map(|line| line.strip_prefix("CONFIG_HZ="))
        .map_or("100 to 1000".to_owned(), str::to_owned);
    let mend = if config.contains("# CONFIG_NO_HZ_FULL is not set") {
        "use a kernel with CONFIG_NO_HZ_FULL, and the boot option nohz_full= with the isolated CPUs"
    } else {
        "boot option nohz_full= with the isolated CPUs"
    };
    subject.spoils(
        "a tick on every CPU",
        format!("{hz} times a second a busy program stands still for about 1 to 5 µs"),
        mend,
    )
}

fn hypervisor(tree: &Tree) -> Finding {
    let subject = subject("hypervisor", "/proc/cpuinfo, flag hypervisor");
    if !tree.has("proc/cpuinfo") {
        return subject.unknown("no /proc/cpuinfo", "unknown whose the CPUs are", "mount /proc");
    }
    let Some(whose) = facts::hypervisor(tree) else {
        return subject.good("none: the machine is bare");
    };
    subject.spoils(
        format!("virtual machine ({whose}){}", stolen(tree)),
        "the hypervisor may take a CPU at any time, for milliseconds; no setting in here prevents it",
        "run on the bare machine; else give each virtual CPU a core of its own on the host (vCPU pinning, no overcommitment)",
    )
}

fn stolen(tree: &Tree) -> String {
    facts::cpu_ticks(tree).map_or(String::new(), |ticks| {
        let percent = ticks[7] as f64 * 100.0 / ticks.iter().sum::<u64>().max(1) as f64;
        format!(", {percent:.1} % of the CPU time since its start given to others")
    })
}

fn clock_source(tree: &Tree) -> Finding {
    const DIRECTORY: &str = "sys/devices/system/clocksource/clocksource0";
    let subject = subject("clock-source", format!("/{DIRECTORY}/current_clocksource"));
    let Some(current) = tree.read(&format!("{DIRECTORY}/current_clocksource")) else {
        return subject.unknown(
            "the kernel does not say",
            "unknown what reading the clock costs",
            "mount /sys",
        );
    };
    match current.as_str() {
        "tsc" | "arch_sys_counter" | "riscv_clocksource" => subject.good(current),
        _ => {
            let available = tree
                .read(&format!("{DIRECTORY}/available_clocksource"))
                .unwrap_or_default();
            let mend = if available.split_ascii_whitespace().any(|it| it == "tsc") {
                format!(
                    "echo tsc > /{DIRECTORY}/current_clocksource; for good: boot option clocksource=tsc tsc=reliable"
                )
            } else {
                "find out from `dmesg | grep -i tsc` why the kernel gave up the TSC (often the firmware)"
                    .to_owned()
            };
            subject.spoils(
                format!("{current} (available: {available})"),
                "each reading of the clock costs 2 to 50 times as much (hpet and acpi_pm: a system call and about 1 µs), in every message that has a time stamp",
                mend,
            )
        }
    }
}
