//! What programs of this user may do, and how much of the CPUs they get.

use rustix::fs::{Access, access};

use super::{Capability, Finding, Group, Subject, limit, may};
use crate::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    [
        Some(memlock(tree)),
        Some(priority(tree)),
        real_time_budget(tree),
        quota(tree),
        Some(dma_latency(tree)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn subject(name: &'static str, source: impl Into<String>) -> Subject {
    Subject::new(Group::Rights, name, source)
}

fn memlock(tree: &Tree) -> Finding {
    let subject = subject("memlock-limit", "/proc/self/limits, Max locked memory");
    if may(tree, Capability::IpcLock) {
        return subject.good("no limit (CAP_IPC_LOCK)");
    }
    match limit(tree, "Max locked memory") {
        Some(None) => subject.good("unlimited"),
        Some(Some(bytes)) => subject.spoils(
            format!("{} KiB", bytes >> 10),
            "memory cannot be locked: page faults of some µs, to ms where there is swap; RDMA memory cannot be registered",
            "ulimit -l unlimited; for good: `@realtime - memlock unlimited` in /etc/security/limits.conf, LimitMEMLOCK=infinity in a systemd unit",
        ),
        None => subject.unknown("no /proc/self/limits", "unknown whether memory can be locked", "mount /proc"),
    }
}

fn priority(tree: &Tree) -> Finding {
    let subject = subject("priority-limit", "/proc/self/limits, Max realtime priority");
    if may(tree, Capability::SysNice) {
        return subject.good("any real-time priority (CAP_SYS_NICE)");
    }
    match limit(tree, "Max realtime priority") {
        Some(None) => subject.good("any real-time priority"),
        Some(Some(highest)) if highest > 0 => subject.good(format!("real-time priorities to {highest}")),
        Some(_) => subject.spoils(
            "no real-time priority",
            "programs and lanes take turns with every other program of the machine: a message waits for a time slice, 1 to 4 ms",
            "ulimit -r 95; for good: `@realtime - rtprio 95` in /etc/security/limits.conf, LimitRTPRIO=95 in a systemd unit; or CAP_SYS_NICE",
        ),
        None => subject.unknown("no /proc/self/limits", "unknown which priorities are allowed", "mount /proc"),
    }
}

/// The directory of this program's control group for `controller`: version 1, or (without a
/// controller) version 2.
fn control_group(tree: &Tree, controller: &str) -> Option<String> {
    let groups = tree.read("proc/self/cgroup")?;
    let path = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers
            .split(',')
            .any(|it| it == controller)
            .then(|| path.trim_end_matches('/').to_owned())
    })?;
    let mount = if controller.is_empty() {
        String::new()
    } else {
        format!("/{controller}")
    };
    Some(format!("sys/fs/cgroup{mount}{path}"))
}

/// With CONFIG_RT_GROUP_SCHED a group without budget gets no real-time priority at all (kernel:
/// scheduler/sched-rt-group.rst).
fn real_time_budget(tree: &Tree) -> Option<Finding> {
    let file = format!("{}/cpu.rt_runtime_us", control_group(tree, "cpu")?);
    let budget: i64 = tree.number(&file)?;
    let subject = subject("real-time-budget", format!("/{file}"));
    Some(if budget == 0 {
        subject.spoils(
            "0 µs",
            "programs of this control group get no real-time priority",
            format!("echo 950000 > /{file} (in each group above first), or boot option rt_group_sched=0"),
        )
    } else {
        subject.good(format!("{budget} µs"))
    })
}

fn quota(tree: &Tree) -> Option<Finding> {
    let of_first = control_group(tree, "cpu").and_then(|group| {
        let file = format!("{group}/cpu.cfs_quota_us");
        let quota: i64 = tree.number(&file)?;
        let period: i64 = tree.number(&format!("{group}/cpu.cfs_period_us"))?;
        Some((file, (quota > 0).then_some((quota, period))))
    });
    let of_second = || {
        let file = format!("{}/cpu.max", control_group(tree, "")?);
        let text = tree.read(&file)?;
        let (quota, period) = text.split_once(' ')?;
        Some((file, quota.parse().ok().zip(period.parse().ok())))
    };
    let (file, quota) = of_first.or_else(of_second)?;
    let subject = subject("cpu-quota", format!("/{file}"));
    Some(match quota {
        None => subject.good("none"),
        Some((quota, period)) => subject.spoils(
            format!("{quota} of each {period} µs"),
            format!("programs that have used it up stand still until the period of {} ms is over", period / 1000),
            format!("lift it (echo max > /{file}, or -1 where that is cpu.cfs_quota_us; Kubernetes: no CPU limit), and set CPUs apart by cpuset instead"),
        ),
    })
}

fn dma_latency(tree: &Tree) -> Finding {
    let subject = subject("cpu-dma-latency", "/dev/cpu_dma_latency");
    if !tree.has("dev/cpu_dma_latency") {
        return subject.missing(
            "there is no such device",
            "no program can keep CPUs from deep idle states",
            "pass /dev/cpu_dma_latency into the container; see idle-states for other ways",
        );
    }
    if access(tree.path("dev/cpu_dma_latency").as_path(), Access::WRITE_OK).is_ok() {
        return subject.good("this user may write it");
    }
    subject.spoils(
        "this user may not write it",
        "programs of this user cannot keep CPUs from deep idle states",
        "a udev rule (KERNEL==\"cpu_dma_latency\", GROUP=\"realtime\", MODE=\"0660\"), or run as root",
    )
}
