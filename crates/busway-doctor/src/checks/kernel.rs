//! The kernel and its scheduler.

use super::{Finding, Group, Subject, settings};
use crate::facts::{self, Preemption};
use crate::tree::Tree;

/// Sleeps are as short as asked for, within this.
const SLACK_GOOD_NS: u64 = 1000;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = vec![preemption(tree), throttling(tree)];
    findings.extend(settings::check(tree, Group::Kernel));
    findings.push(timer_slack(tree));
    findings
}

fn subject(name: &'static str, source: impl Into<String>) -> Subject {
    Subject::new(Group::Kernel, name, source)
}

fn preemption(tree: &Tree) -> Finding {
    let version = tree.read("proc/sys/kernel/version").unwrap_or_default();
    let Some((model, source)) = facts::preemption(tree) else {
        return subject("preemption", "/proc/sys/kernel/version").unknown(
            format!("the kernel does not say ({version})"),
            "without PREEMPT_RT a system call, interrupt or driver may hold up a real-time program for hundreds of µs",
            "mount debugfs and look at /sys/kernel/debug/sched/preempt, or install a kernel with PREEMPT_RT",
        );
    };
    let subject = subject("preemption", source);
    let costs = match model {
        Preemption::RealTime => return subject.good("PREEMPT_RT"),
        Preemption::Full | Preemption::Lazy => {
            "interrupts, soft interrupts and sections with locks hold up real-time programs, for up to some hundred µs"
        }
        Preemption::Voluntary | Preemption::None => {
            "system calls of other programs, interrupts and soft interrupts hold up real-time programs, for up to some ms"
        }
    };
    let at_once = if version.contains("PREEMPT_DYNAMIC") && !matches!(model, Preemption::Full) {
        "; at once: boot option preempt=full, or echo full > /sys/kernel/debug/sched/preempt"
    } else {
        ""
    };
    subject.spoils(
        format!("{}, not PREEMPT_RT", model.word()),
        costs,
        format!(
            "install a kernel with CONFIG_PREEMPT_RT (Debian: linux-image-rt-amd64; Ubuntu: linux-image-realtime; in the mainline \
             kernel since 6.12){at_once}"
        ),
    )
}

/// kernel: scheduler/sched-rt-group.rst; from 6.12 on the same share is kept for other programs by
/// a deadline server.
fn throttling(tree: &Tree) -> Finding {
    const RUNTIME: &str = "proc/sys/kernel/sched_rt_runtime_us";
    let subject = subject("rt-throttling", format!("/{RUNTIME}"));
    let runtime: Option<i64> = tree.number(RUNTIME);
    let period: i64 = tree
        .number("proc/sys/kernel/sched_rt_period_us")
        .unwrap_or(1_000_000);
    match runtime {
        None => subject.unknown(
            "the kernel does not say",
            "unknown whether real-time programs are stopped after a while",
            "mount /proc",
        ),
        Some(runtime) if runtime < 0 || runtime >= period => {
            subject.good("real-time programs may use a CPU all the time")
        }
        Some(runtime) => subject.spoils(
            format!("real-time programs may use {runtime} of {period} µs"),
            format!(
                "a real-time program that spins is stopped for up to {} ms each {} ms when others want its CPU",
                (period - runtime) / 1000,
                period / 1000
            ),
            "sysctl -w kernel.sched_rt_runtime_us=-1 (kernel 6.12 and later also: echo 0 > /sys/kernel/debug/sched/fair_server/cpuN/runtime); \
             leave other programs a CPU of their own then",
        ),
    }
}

fn timer_slack(tree: &Tree) -> Finding {
    let subject = subject("timer-slack", "/proc/self/timerslack_ns");
    match tree.number::<u64>("proc/self/timerslack_ns") {
        None => subject.unknown(
            "the kernel does not say",
            "unknown how late sleeps end",
            "mount /proc",
        ),
        Some(ns) if ns <= SLACK_GOOD_NS => subject.good(format!("{ns} ns")),
        Some(ns) => subject.spoils(
            format!("{ns} ns"),
            format!(
                "programs without real-time priority wake up to {} µs later than they asked for (gateway lanes ask for 1 ns themselves)",
                ns / 1000
            ),
            "prctl(PR_SET_TIMERSLACK, 1) in the program, TimerSlackNSec=1 in its systemd unit, or SCHED_FIFO",
        ),
    }
}
