//! What channels had not been confirmed when they were given up for a better link: it is in doubt if the link turns out to be lost.
//!
//! A channel that moves leaves its last messages to the bus. Where that is broken, and nobody has noticed yet, they are gone; a link that stands for longer
//! than it bears silence has carried them. Plain state of one link, asked by `links` on the control thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::counters::{ServiceCounters, add};

/// See the module.
#[derive(Default)]
pub(super) struct Unconfirmed(Vec<Held>);

struct Held {
    messages: u64,
    counters: Arc<ServiceCounters>,
    since: Instant,
    patience: Duration,
}

impl Held {
    /// Whether it is not known yet that the link stands. Twice its patience: a host that was held up itself listens once more before it gives the peer up.
    fn is_open(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < self.patience.saturating_mul(2)
    }
}

impl Unconfirmed {
    /// So many messages of a service have left by the link, which bears silence for `patience`.
    pub(super) fn hold(
        &mut self,
        messages: u64,
        counters: &Arc<ServiceCounters>,
        patience: Duration,
        now: Instant,
    ) {
        self.0.retain(|held| held.is_open(now));
        if messages > 0 {
            self.0.push(Held {
                messages,
                counters: counters.clone(),
                since: now,
                patience,
            });
        }
    }

    /// The link is lost.
    pub(super) fn lost(&mut self, now: Instant) {
        for held in self.0.drain(..).filter(|held| held.is_open(now)) {
            add(&held.counters.in_doubt, held.messages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_by_a_link_is_in_doubt_if_that_is_lost_soon_and_never_twice() {
        let (mut unconfirmed, counters) = (Unconfirmed::default(), Arc::default());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let patience = Duration::from_secs(1);
        let in_doubt = |counters: &Arc<ServiceCounters>| counters.snapshot().in_doubt;
        unconfirmed.hold(5, &counters, patience, at(0));
        unconfirmed.hold(7, &counters, patience, at(2));
        unconfirmed.lost(at(3));
        assert_eq!(in_doubt(&counters), 7);
        unconfirmed.lost(at(3));
        unconfirmed.hold(1, &counters, patience, at(3));
        unconfirmed.lost(at(5));
        assert_eq!(in_doubt(&counters), 7);
        unconfirmed.hold(2, &counters, Duration::MAX, at(5));
        unconfirmed.lost(at(500));
        assert_eq!(in_doubt(&counters), 9);
    }
}
