//! What channels had not been confirmed when they were given up for a better link: it is in doubt if the link turns out to be lost.
//!
//! A channel that moves leaves its last messages to the bus. Where that is broken, and nobody has noticed yet, they are gone; a link that stands for longer
//! than it bears silence has carried them. Plain state of one link, asked by `links` on the control thread.

use std::sync::Arc;
use std::time::Instant;

use crate::counters::{ServiceCounters, add};

/// See the module.
#[derive(Default)]
pub(super) struct Unconfirmed(Vec<Held>);

struct Held {
    messages: u64,
    counters: Arc<ServiceCounters>,
    /// The link stands still: they have arrived.
    until: Instant,
}

impl Unconfirmed {
    /// So many messages of a service left by the link.
    pub(super) fn hold(
        &mut self,
        messages: u64,
        counters: &Arc<ServiceCounters>,
        until: Instant,
        now: Instant,
    ) {
        self.0.retain(|held| now < held.until);
        if messages > 0 {
            self.0.push(Held {
                messages,
                counters: counters.clone(),
                until,
            });
        }
    }

    /// The link is lost.
    pub(super) fn lost(&mut self, now: Instant) {
        for held in self.0.drain(..).filter(|held| now < held.until) {
            add(&held.counters.in_doubt, held.messages);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_left_by_a_link_is_in_doubt_if_that_is_lost_soon_and_never_twice() {
        let (mut unconfirmed, counters) = (Unconfirmed::default(), Arc::default());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let in_doubt = |counters: &Arc<ServiceCounters>| counters.snapshot().in_doubt;
        unconfirmed.hold(5, &counters, at(2), at(0));
        unconfirmed.hold(7, &counters, at(4), at(2));
        unconfirmed.lost(at(3));
        assert_eq!(in_doubt(&counters), 7);
        unconfirmed.lost(at(3));
        unconfirmed.hold(1, &counters, at(5), at(3));
        unconfirmed.lost(at(5));
        assert_eq!(in_doubt(&counters), 7);
    }
}
