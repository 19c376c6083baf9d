//! Machines as their files describe them: one captured, a laptop as it comes, and a machine made
//! ready.

use super::*;
use crate::tree::testing::tree;

// A file a line: its path and its text, in which `\n` and `\t` are line ends and tabs.

/// A shared virtual machine with two cores, as it was found.
const CAPTURED: &str = r"
proc/cpuinfo processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\nflags\t\t: fpu tsc ht constant_tsc nonstop_tsc hypervisor arat
proc/sys/kernel/osrelease 6.18.44
proc/sys/kernel/version #1 SMP PREEMPT_DYNAMIC @0
boot/config-6.18.44 CONFIG_PREEMPT_NONE=y\n# CONFIG_NO_HZ_FULL is not set\nCONFIG_HZ=250\n# CONFIG_TIPC is not set\n# CONFIG_INFINIBAND is not set
proc/cmdline console=ttyS0 quiet mitigations=auto
proc/stat cpu  4637887 359283 458386 1898321 7011 0 19596 80791 0 0
proc/swaps Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
proc/self/status Name:\tcat\nCapEff:\t000001fffeffffff\nCpus_allowed_list:\t0-1
proc/self/limits Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         8388608              8388608              bytes     \nMax msgqueue size         819200               819200               bytes     \nMax realtime priority     0                    0
proc/self/cgroup 2:cpuacct:/\n1:cpu:/\n0::/
proc/self/timerslack_ns 50000
proc/sys/kernel/sched_rt_runtime_us 950000
proc/sys/kernel/sched_rt_period_us 1000000
proc/sys/kernel/watchdog 1
proc/sys/kernel/numa_balancing 0
proc/sys/fs/mqueue/msgsize_max 8192
proc/net/protocols protocol  size sockets\nTCP       2304      1\nUNIX      1152      0
sys/fs/cgroup/cpu/cpu.rt_runtime_us 950000
sys/fs/cgroup/cpu/cpu.cfs_quota_us -1
sys/fs/cgroup/cpu/cpu.cfs_period_us 100000
sys/devices/system/cpu/online 0-1
sys/devices/system/cpu/isolated
sys/devices/system/cpu/smt/active 0
sys/devices/system/cpu/cpuidle/current_driver none
sys/devices/system/clocksource/clocksource0/current_clocksource tsc
sys/kernel/mm/transparent_hugepage/enabled always [madvise] never
dev/shm/a
usr/lib/x86_64-linux-gnu/libiceoryx_binding_c.so.2.0.3
usr/sbin/ip
";

/// A machine as a laptop or a desktop comes: nothing is set, an ordinary user.
const LAPTOP: &str = r"
proc/cpuinfo model name\t: 12th Gen Intel(R) Core(TM) i7-1260P\nflags\t\t: fpu tsc constant_tsc nonstop_tsc
proc/sys/kernel/osrelease 6.8.0-45-generic
proc/sys/kernel/version #45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024
sys/kernel/debug/sched/preempt none (voluntary) full
proc/swaps Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/swap.img file 8388604 0 -2
proc/self/status CapEff:\t0000000000000000\nCpus_allowed_list:\t0-15
proc/self/limits Max locked memory         8388608              8388608              bytes     \nMax realtime priority     0                    0                    \nMax msgqueue size         819200               819200               bytes
proc/self/cgroup 0::/user.slice
sys/fs/cgroup/user.slice/cpu.max 50000 100000
proc/sys/kernel/sched_rt_runtime_us 950000
proc/sys/kernel/sched_autogroup_enabled 1
proc/sys/kernel/numa_balancing 1
proc/sys/fs/mqueue/msgsize_max 8192
proc/713/comm irqbalance
sys/devices/system/cpu/online 0-15
sys/devices/system/cpu/smt/active 1
sys/devices/system/cpu/cpu0/cpufreq/scaling_governor powersave
sys/devices/system/cpu/cpu0/cpuidle/state0/name POLL
sys/devices/system/cpu/cpu0/cpuidle/state0/latency 0
sys/devices/system/cpu/cpu0/cpuidle/state0/disable 0
sys/devices/system/cpu/cpu0/cpuidle/state3/name C10
sys/devices/system/cpu/cpu0/cpuidle/state3/latency 230
sys/devices/system/cpu/cpu0/cpuidle/state3/disable 0
sys/devices/system/clocksource/clocksource0/current_clocksource hpet
sys/devices/system/clocksource/clocksource0/available_clocksource tsc hpet acpi_pm
sys/kernel/mm/transparent_hugepage/enabled [always] madvise never
sys/kernel/mm/ksm/run 1
";

/// A machine made ready: PREEMPT_RT, two isolated CPUs, no idle states, all rights.
const READY: &str = r"
proc/cpuinfo model name\t: Some CPU\nflags\t\t: fpu tsc
proc/sys/kernel/osrelease 6.12.9-rt
proc/sys/kernel/version #1 SMP PREEMPT_RT Debian 6.12.9-1
sys/kernel/realtime 1
proc/self/status CapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-7
proc/self/limits Max msgqueue size         unlimited            unlimited            bytes
proc/self/cgroup 0::/
proc/self/timerslack_ns 1
proc/sys/kernel/sched_rt_runtime_us -1
proc/sys/kernel/watchdog 0
proc/sys/fs/mqueue/msgsize_max 8192
proc/irq/24/effective_affinity_list 0
proc/swaps Filename Type Size Used Priority
sys/devices/system/cpu/online 0-7
sys/devices/system/cpu/isolated 6-7
sys/devices/system/cpu/nohz_full 6-7
sys/devices/system/cpu/smt/active 0
sys/devices/system/cpu/cpu0/cpufreq/scaling_governor performance
sys/devices/system/cpu/cpu0/cpuidle/state1/name C1
sys/devices/system/cpu/cpu0/cpuidle/state1/latency 2
sys/devices/system/cpu/cpu0/cpuidle/state1/disable 0
sys/devices/system/clocksource/clocksource0/current_clocksource tsc
sys/kernel/mm/transparent_hugepage/enabled always madvise [never]
sys/class/infiniband/mlx5_0/node_type 1: CA
sys/class/infiniband_verbs/abi_version 6
sys/class/misc/rdma_cm/abi_version 4
usr/lib/libibverbs.so.1
usr/lib/librdmacm.so.1
usr/lib/libiceoryx_binding_c.so.2.0.3
usr/sbin/ip
dev/shm/a
dev/cpu_dma_latency
";

fn diagnosis(machine: &str, tipc: Option<Result<(), String>>) -> Diagnosis {
    let files = machine.lines().filter(|line| !line.is_empty()).map(|line| {
        let (path, text) = line.split_once(' ').unwrap_or((line, ""));
        (path, text.replace(r"\n", "\n").replace(r"\t", "\t"))
    });
    let (_directory, tree) = tree(&files.collect::<Vec<_>>());
    diagnose(&tree, &Probes { tipc })
}

fn names(diagnosis: &Diagnosis, state: State) -> Vec<&str> {
    let of_state = diagnosis.findings.iter().filter(|it| it.state == state);
    of_state.map(|it| it.name.as_str()).collect()
}

fn finding<'a>(diagnosis: &'a Diagnosis, name: &str) -> &'a Finding {
    diagnosis.findings.iter().find(|it| it.name == name).unwrap()
}

#[test]
fn captured_virtual_machine_has_these_findings() {
    let diagnosis = diagnosis(CAPTURED, Some(Err("not supported".into())));
    let spoils = [
        "cores",
        "isolated-cpus",
        "timer-tick",
        "hypervisor",
        "preemption",
        "rt-throttling",
        "watchdog",
        "timer-slack",
        "irq-affinity",
    ];
    assert_eq!(names(&diagnosis, State::Spoils), spoils);
    let missing = [
        "message-queues",
        "cpu-dma-latency",
        "rdma-kernel",
        "rdma-libraries",
        "rdma-devices",
        "tipc",
    ];
    assert_eq!(names(&diagnosis, State::Missing), missing);
    assert_eq!(names(&diagnosis, State::Unknown), ["governor", "idle-states"]);
    let parts = [
        ("cores", "2 CPUs for this program (0-1)"),
        ("hypervisor", "1.1 % of the CPU time"),
        ("preemption", "none, not PREEMPT_RT"),
        ("message-queues", "messages up to 8192 bytes"),
        ("iceoryx-2", "version 2.0.3"),
    ];
    for (name, part) in parts {
        let found = &finding(&diagnosis, name).found;
        assert!(found.contains(part), "{name}: {found}");
    }
    let mends = [
        ("isolated-cpus", "none can be spared"),
        ("timer-tick", "use a kernel with CONFIG_NO_HZ_FULL"),
        ("preemption", "preempt=full"),
        ("tipc", "built without CONFIG_TIPC"),
        ("rdma-kernel", "built without CONFIG_INFINIBAND"),
    ];
    for (name, part) in mends {
        let mend = finding(&diagnosis, name).mend.as_deref().unwrap();
        assert!(mend.contains(part), "{name}: {mend}");
    }
}

#[test]
fn untuned_laptop_has_these_findings() {
    let diagnosis = diagnosis(LAPTOP, None);
    let spoils = [
        "smt",
        "governor",
        "idle-states",
        "isolated-cpus",
        "timer-tick",
        "clock-source",
        "preemption",
        "rt-throttling",
        "numa-balancing",
        "autogroup",
        "irq-balancer",
        "irq-affinity",
        "swap",
        "transparent-huge-pages",
        "same-page-merging",
        "memlock-limit",
        "priority-limit",
        "cpu-quota",
    ];
    assert_eq!(names(&diagnosis, State::Spoils), spoils);
    let parts = [
        ("idle-states", "POLL 0 µs, C10 230 µs"),
        ("governor", "powersave"),
        ("preemption", "voluntary"),
        ("irq-balancer", "process 713"),
        ("swap", "/swap.img"),
        ("memlock-limit", "8192 KiB"),
        ("cpu-quota", "50000 of each 100000 µs"),
    ];
    for (name, part) in parts {
        let found = &finding(&diagnosis, name).found;
        assert!(found.contains(part), "{name}: {found}");
    }
    let clock = finding(&diagnosis, "clock-source").mend.as_deref().unwrap();
    assert!(clock.contains("echo tsc >"), "{clock}");
}

#[test]
fn tuned_machine_has_only_good_findings() {
    let diagnosis = diagnosis(READY, Some(Ok(())));
    for state in [State::Spoils, State::Missing, State::Unknown] {
        assert!(names(&diagnosis, state).is_empty(), "{:#?}", diagnosis.findings);
    }
}

#[test]
fn control_group_without_real_time_budget_is_reported_even_with_priority() {
    let diagnosis = diagnosis(&format!("{CAPTURED}sys/fs/cgroup/cpu/cpu.rt_runtime_us 0"), None);
    assert_eq!(finding(&diagnosis, "real-time-budget").state, State::Spoils);
    assert_eq!(finding(&diagnosis, "priority-limit").state, State::Good);
}

#[test]
fn interrupt_at_isolated_cpu_is_named() {
    let diagnosis = diagnosis(&format!("{READY}proc/irq/24/effective_affinity_list 5-6"), None);
    let finding = finding(&diagnosis, "irq-affinity");
    assert_eq!(finding.state, State::Spoils);
    assert!(finding.found.contains("interrupts 24 arrive"), "{finding:?}");
}

#[test]
fn machine_without_files_is_unknown_and_no_failure() {
    let diagnosis = diagnosis("", None);
    assert_eq!(finding(&diagnosis, "preemption").state, State::Unknown);
    assert_eq!(finding(&diagnosis, "cores").state, State::Unknown);
    assert!(diagnosis.cpu.is_none());
}

#[test]
fn every_bad_finding_has_source_cost_and_mend() {
    let diagnoses = [
        diagnosis(CAPTURED, None),
        diagnosis(LAPTOP, None),
        diagnosis(READY, None),
        diagnosis("", None),
        examine(),
    ];
    for finding in diagnoses.iter().flat_map(|it| &it.findings) {
        assert!(
            !finding.found.is_empty() && !finding.source.is_empty(),
            "{finding:?}"
        );
        let is_good = finding.state == State::Good;
        assert_eq!(finding.costs.is_none(), is_good, "{finding:?}");
        assert_eq!(finding.mend.is_none(), is_good, "{finding:?}");
    }
}

#[test]
fn finding_names_are_unique_and_diagnosis_survives_json() {
    let here = examine();
    let mut all: Vec<&str> = here.findings.iter().map(|it| it.name.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), here.findings.len());
    let text = serde_json::to_string(&here).unwrap();
    assert_eq!(serde_json::from_str::<Diagnosis>(&text).unwrap(), here);
}
