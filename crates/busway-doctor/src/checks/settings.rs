//! Switches of the kernel that should be off: one file each, all judged alike.

use super::{Finding, Group, Subject};
use crate::facts::chosen;
use crate::tree::Tree;

/// A file with a number that should be 0, or with a word that should be another.
struct Setting {
    group: Group,
    name: &'static str,
    file: &'static str,
    /// The value that spoils latency; every number but 0 where this is empty.
    spoils: &'static str,
    costs: &'static str,
    /// `@` is the file.
    mend: &'static str,
}

const SETTINGS: [Setting; 5] = [
    Setting {
        group: Group::Kernel,
        name: "watchdog",
        file: "proc/sys/kernel/watchdog",
        spoils: "",
        costs: "the kernel looks on every CPU whether it hangs, by a thread of highest priority every 4 s and, \
                where it can, by non-maskable interrupts",
        mend: "sysctl -w kernel.watchdog=0",
    },
    Setting {
        group: Group::Kernel,
        name: "numa-balancing",
        file: "proc/sys/kernel/numa_balancing",
        spoils: "",
        costs: "the kernel takes pages away to see who touches them: page faults of some µs at random",
        mend: "sysctl -w kernel.numa_balancing=0",
    },
    Setting {
        group: Group::Kernel,
        name: "autogroup",
        file: "proc/sys/kernel/sched_autogroup_enabled",
        spoils: "",
        costs: "programs of one terminal share one portion of the CPU, whatever their niceness",
        mend: "sysctl -w kernel.sched_autogroup_enabled=0",
    },
    Setting {
        group: Group::Memory,
        name: "transparent-huge-pages",
        file: "sys/kernel/mm/transparent_hugepage/enabled",
        spoils: "always",
        costs: "the kernel clears 2 MiB at a touch (some 100 µs), and moves pages of running programs to make room",
        mend: "echo madvise > /@; for good: boot option transparent_hugepage=madvise",
    },
    Setting {
        group: Group::Memory,
        name: "same-page-merging",
        file: "sys/kernel/mm/ksm/run",
        spoils: "1",
        costs: "the kernel merges equal pages; writing one of them costs a page fault and a copy, some µs",
        mend: "echo 2 > /@",
    },
];

/// Those of a group that this kernel has.
pub(super) fn check(tree: &Tree, group: Group) -> impl Iterator<Item = Finding> {
    let of_group = SETTINGS.iter().filter(move |it| it.group == group);
    of_group.filter_map(move |it| {
        let text = tree.read(it.file)?;
        let is_word = text.contains('[');
        let value = chosen(&text).unwrap_or(text);
        let subject = Subject::new(group, it.name, format!("/{}", it.file));
        let spoils = match it.spoils {
            "" => value != "0",
            word => value == word,
        };
        Some(match (spoils, is_word) {
            (false, false) => subject.good("off"),
            (false, true) => subject.good(value),
            (true, false) => subject.spoils(format!("on ({value})"), it.costs, it.mend.replace('@', it.file)),
            (true, true) => subject.spoils(value, it.costs, it.mend.replace('@', it.file)),
        })
    })
}
