//! Offsets of the peers' clocks: which peers to ask, and where the estimates go.
//!
//! Contract: a link has an estimator if a channel that arrives over it needs the offset of the two
//! hosts' clocks. Lanes get theirs with the channel; partitions of this host that read what another
//! host writes straight into its memory find it in the file of the partition that stands for that
//! host. Called by [`super`] and [`super::ports`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use busway_port::Partition;
use busway_port::peer_clock::PeerClock;

use super::links::Links;
use crate::clock::{Estimator, monotonic_ns};
use crate::protocol::ControlMessage;

/// Peers are asked this often, and when a link comes up.
const ASK: Duration = Duration::from_secs(1);

/// See the module.
pub struct Clocks {
    /// By link; only where an offset is needed.
    estimators: HashMap<usize, Estimator>,
    /// By link: partitions that stand for hosts which write straight into this host's memory.
    writers: Vec<(usize, Arc<Partition>)>,
    ask_at: Instant,
}

impl Clocks {
    /// No peer is asked.
    pub fn new() -> Clocks {
        Clocks {
            estimators: HashMap::new(),
            writers: Vec::new(),
            ask_at: Instant::now(),
        }
    }

    /// Estimates the offset of a link from now on.
    pub fn need(&mut self, link: usize) {
        self.estimators.entry(link).or_default();
    }

    /// As [`need`](Self::need), and writes it to the file of `partition`.
    pub fn need_for(&mut self, link: usize, partition: &Arc<Partition>) {
        self.need(link);
        let mut writers = self.writers.iter();
        if !writers.any(|(of, known)| *of == link && Arc::ptr_eq(known, partition)) {
            self.writers.push((link, partition.clone()));
        }
    }

    /// Whether no peer is asked.
    pub fn is_empty(&self) -> bool {
        self.estimators.is_empty()
    }

    /// What is known over a link, if anybody needs it.
    pub fn of(&self, link: usize) -> Option<&Estimator> {
        self.estimators.get(&link)
    }

    /// A usable link came up: its peer may be another process than before.
    pub fn link_up(&mut self, index: usize, links: &mut Links) {
        if let Some(estimator) = self.estimators.get_mut(&index) {
            estimator.reset();
            ask(index, links);
        }
    }

    /// Asks the peers of usable links when it is time.
    pub fn tick(&mut self, now: Instant, links: &mut Links, is_usable: impl Fn(usize) -> bool) {
        if now >= self.ask_at {
            self.ask_at = now + ASK;
            for &index in self.estimators.keys().filter(|index| is_usable(**index)) {
                ask(index, links);
            }
        }
    }

    /// Takes a measurement in. Returns whether anybody needed it.
    pub fn take(&mut self, index: usize, measured: Option<PeerClock>) -> bool {
        let (Some(estimator), Some(measured)) = (self.estimators.get_mut(&index), measured) else {
            return false;
        };
        estimator.add(measured);
        if let Some(best) = estimator.best(monotonic_ns()) {
            for (_, writer) in self.writers.iter().filter(|(link, _)| *link == index) {
                writer.set_peer_clock(best);
            }
        }
        true
    }
}

fn ask(index: usize, links: &mut Links) {
    let asked_ns = monotonic_ns();
    links.send(index, &ControlMessage::AskTime { asked_ns });
}
