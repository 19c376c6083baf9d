//! Who used the processors between the beginning and the end of a run: the run itself, or others,
//! whom its figures then show.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::facts;
use crate::tree::Tree;

/// The processors during a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct During {
    /// How long it was, in s.
    pub seconds: f64,
    /// Share of all processors' time in which one was busy, in percent.
    pub busy_percent: f64,
    /// Share that programs other than those of the run used, interrupts included, in percent. Known
    /// to a tick (10 ms) of each processor.
    pub others_percent: f64,
    /// Share that the hypervisor gave to others while this machine wanted it, in percent.
    pub stolen_percent: f64,
    /// Load over 1, 5 and 15 minutes at the end; the run itself included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<[f64; 3]>,
}

/// Sums in clock ticks since the machine, and this process, began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    /// User, nice, system, interrupts.
    busy: u64,
    stolen: u64,
    all: u64,
    /// Of this process and of its children that have ended.
    own: u64,
}

/// The sums at the beginning.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    at: Instant,
    ticks: Ticks,
}

impl Begun {
    pub(super) fn now(tree: &Tree) -> Option<Self> {
        Some(Self {
            at: Instant::now(),
            ticks: ticks(tree)?,
        })
    }

    /// What happened since. Programs of the run that have not ended yet, or whose end this process
    /// has not waited for, count as others.
    pub(super) fn end(&self, tree: &Tree) -> Option<During> {
        let (then, now) = (self.ticks, ticks(tree)?);
        Some(During {
            seconds: self.at.elapsed().as_millis() as f64 / 1e3,
            load: facts::load(tree),
            ..shares(then, now)
        })
    }
}

fn shares(then: Ticks, now: Ticks) -> During {
    let since = |pick: fn(&Ticks) -> u64| pick(&now).saturating_sub(pick(&then));
    let all = since(|it| it.all).max(1) as f64;
    let percent = |ticks: u64| (ticks as f64 / all * 1000.0).round() / 10.0;
    let busy = since(|it| it.busy);
    During {
        seconds: 0.0,
        busy_percent: percent(busy),
        others_percent: percent(busy.saturating_sub(since(|it| it.own))),
        stolen_percent: percent(since(|it| it.stolen)),
        load: None,
    }
}

fn ticks(tree: &Tree) -> Option<Ticks> {
    let fields = facts::cpu_ticks(tree)?;
    let [user, nice, system, _, _, irq, softirq, stolen] = fields;
    Some(Ticks {
        busy: user + nice + system + irq + softirq,
        stolen,
        all: fields.iter().sum(),
        own: facts::process_ticks(tree, "self")?.iter().sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::testing::tree;

    fn at(cpu: &str, own: &str) -> Ticks {
        let own = format!("7 (a) b (c) R 1 1 1 0 -1 4194304 100 0 0 0 {own} 20 0 1 0 5 0 0");
        let files = [("proc/stat", cpu), ("proc/self/stat", own.as_str())];
        ticks(&tree(&files).1).unwrap()
    }

    #[test]
    fn load_of_others_is_all_load_less_our_own() {
        let then = at("cpu  100 0 50 800 50 0 0 0 0 0\n", "1 2 3 4");
        let now = at("cpu  160 10 70 860 50 5 5 40 9 9\n", "21 22 23 19");
        assert_eq!((then.own, now.own), (10, 85));
        let during = shares(then, now);
        assert_eq!(
            (during.busy_percent, during.others_percent, during.stolen_percent),
            (50.0, 12.5, 20.0)
        );
    }

    #[test]
    fn own_work_counts_as_busy_but_not_as_others() {
        let begun = Begun::now(&Tree::here()).expect("this is Linux");
        let since = Instant::now();
        while since.elapsed().as_millis() < 60 {
            std::hint::spin_loop();
        }
        let during = begun.end(&Tree::here()).unwrap();
        assert!(during.busy_percent > 0.0, "{during:?}");
        assert!(during.others_percent <= during.busy_percent, "{during:?}");
    }
}
