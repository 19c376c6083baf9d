//! Memory: what is taken away, moved or merged, and whether there is enough of the shared kind.

use rustix::fs::statvfs;

use super::{Capability, Finding, Group, Subject, limit, may, settings};
use crate::tree::Tree;

/// What a container has by default is too little for programs with messages of some MiB.
const SHM_BYTES_WANTED: u64 = 256 << 20;
/// Longest message that the experiments send by default.
const MESSAGE_BYTES_WANTED: u64 = 4 << 20;
/// What a message queue takes beside its messages, for each of them (mq_overview(7)).
const QUEUE_OVERHEAD_BYTES: u64 = 64;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = vec![swap(tree)];
    findings.extend(settings::check(tree, Group::Memory));
    findings.extend([shared_memory(tree), message_queues(tree)]);
    findings
}

fn subject(name: &'static str, source: impl Into<String>) -> Subject {
    Subject::new(Group::Memory, name, source)
}

fn swap(tree: &Tree) -> Finding {
    let subject = subject("swap", "/proc/swaps");
    let Some(swaps) = tree.read("proc/swaps") else {
        return subject.good("this kernel has none");
    };
    let areas: Vec<&str> = swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_ascii_whitespace().next())
        .collect();
    if areas.is_empty() {
        return subject.good("none");
    }
    subject.spoils(
        areas.join(", "),
        "memory that was not used for a while is read back from the disk: 0.1 to 10 ms",
        "swapoff -a (and out of /etc/fstab), or lock the memory: `lock_memory = true` of a lane, busway bench … --lock-memory",
    )
}

fn shared_memory(tree: &Tree) -> Finding {
    let subject = subject("shared-memory", "/dev/shm");
    let found = tree
        .has("dev/shm")
        .then(|| statvfs(tree.path("dev/shm").as_path()));
    let Some(Ok(size)) = found else {
        return subject.missing(
            "there is none",
            "iceoryx2, ports and the memory bus have no place for their messages",
            "mount -t tmpfs tmpfs /dev/shm (Docker: --shm-size=1g)",
        );
    };
    let (whole, free) = (size.f_blocks * size.f_frsize, size.f_bavail * size.f_frsize);
    let mib = |bytes: u64| bytes >> 20;
    let text = format!("{} MiB, {} of them free", mib(whole), mib(free));
    if free >= SHM_BYTES_WANTED {
        return subject.good(text);
    }
    subject.spoils(
        text,
        format!(
            "programs with large messages fail to start, or are ended by a bus error; {} MiB are enough for every experiment",
            mib(SHM_BYTES_WANTED)
        ),
        "mount -o remount,size=1g /dev/shm (Docker: --shm-size=1g), and remove what ended programs have left there",
    )
}

fn message_queues(tree: &Tree) -> Finding {
    let subject = subject("message-queues", "/proc/sys/fs/mqueue, /proc/self/limits");
    let longest: Option<u64> = tree.number("proc/sys/fs/mqueue/msgsize_max");
    let Some(longest) = longest else {
        return subject.missing(
            "this kernel has no POSIX message queues",
            "busway bench leaves them out",
            "use a kernel with CONFIG_POSIX_MQUEUE",
        );
    };
    // The kernel asks nobody with CAP_SYS_RESOURCE for msgsize_max, up to 16 MiB (HARD_MSGSIZEMAX);
    // the limit holds for all.
    let one_bytes = if may(tree, Capability::SysResource) {
        longest.max(16 << 20)
    } else {
        longest
    };
    let one_bytes = match limit(tree, "Max msgqueue size") {
        Some(Some(bytes)) => one_bytes.min(bytes.saturating_sub(QUEUE_OVERHEAD_BYTES)),
        _ => one_bytes,
    };
    let text = format!("messages up to {one_bytes} bytes");
    if one_bytes >= MESSAGE_BYTES_WANTED {
        return subject.good(text);
    }
    subject.missing(
        text,
        "busway bench sends longer messages over POSIX message queues in pieces, which costs system calls",
        format!("sysctl -w fs.mqueue.msgsize_max={MESSAGE_BYTES_WANTED}; ulimit -q unlimited"),
    )
}
