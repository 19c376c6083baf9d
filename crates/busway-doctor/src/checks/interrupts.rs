//! What interrupts programs on CPUs that shall be quiet.

use super::{Finding, Group, Subject};
use crate::facts;
use crate::tree::{Tree, cpu_list};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    vec![balancer(tree), affinity(tree)]
}

fn balancer(tree: &Tree) -> Finding {
    let subject = Subject::new(Group::Interrupts, "irq-balancer", "/proc/*/comm");
    let processes = tree.names("proc").into_iter();
    let mut numbers = processes.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let running = numbers.find(|pid| tree.read(&format!("proc/{pid}/comm")).as_deref() == Some("irqbalance"));
    match running {
        None => subject.good("irqbalance does not run"),
        Some(pid) => subject.spoils(
            format!("irqbalance runs (process {pid})"),
            "it moves interrupts to other CPUs every 10 s, also to those of real-time programs; each costs them some µs",
            "systemctl disable --now irqbalance, or name the CPUs in IRQBALANCE_BANNED_CPULIST (/etc/default/irqbalance)",
        ),
    }
}

fn affinity(tree: &Tree) -> Finding {
    let subject = Subject::new(
        Group::Interrupts,
        "irq-affinity",
        "/proc/irq/*/effective_affinity_list",
    );
    let Some(isolated) = facts::isolated_cpus(tree) else {
        return subject.spoils(
            "no CPU is kept free of them",
            "a device's interrupt and what follows it (soft interrupts, network receive) take 2 to 100 µs from whatever runs",
            "isolate CPUs first (see isolated-cpus), then echo the others' mask to /proc/irq/*/smp_affinity and /proc/irq/default_smp_affinity",
        );
    };
    let quiet = cpu_list(&isolated);
    let reaches = |irq: &String| {
        let list = tree
            .read(&format!("proc/irq/{irq}/effective_affinity_list"))
            .or_else(|| tree.read(&format!("proc/irq/{irq}/smp_affinity_list")));
        list.is_some_and(|list| cpu_list(&list).iter().any(|cpu| quiet.contains(cpu)))
    };
    let intruders: Vec<String> = tree.names("proc/irq").into_iter().filter(reaches).collect();
    if intruders.is_empty() {
        return subject.good(format!("none at the isolated CPUs {isolated}"));
    }
    subject.spoils(
        format!("interrupts {} arrive at isolated CPUs ({isolated})", intruders.join(", ")),
        "each takes 2 to 100 µs from the real-time program there",
        "echo a mask without the isolated CPUs to /proc/irq/N/smp_affinity (queues of a network card: ethtool -L, or boot option \
         isolcpus=managed_irq,…)",
    )
}
