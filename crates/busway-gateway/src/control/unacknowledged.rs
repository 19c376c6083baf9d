//! Messages of channels that moved to another link before their receipt was acknowledged.
//!
//! A channel that moves leaves its last messages to its bus. If the bus is broken and nobody has
//! noticed yet, they are lost: UDP's datagrams may be dropped while the conversation by which the
//! move is agreed on stands. A link that stands for twice its silence timeout has delivered them;
//! if it fails earlier, their delivery is unknown. Plain state of one link, used by
//! [`super::link`].

use std::time::{Duration, Instant};

use crate::lane::FlowId;

/// See the module.
#[derive(Debug, Default)]
pub struct Unacknowledged(Vec<Held>);

#[derive(Debug)]
struct Held {
    flow: FlowId,
    messages: u64,
    since: Instant,
    silence_timeout: Duration,
}

impl Held {
    /// Whether the link may still turn out to have failed. Twice the timeout: a host that was held
    /// up itself listens once more before it declares the peer lost.
    fn is_open(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < self.silence_timeout.saturating_mul(2)
    }
}

impl Unacknowledged {
    /// A channel of `flow` ended with so many messages unacknowledged.
    pub fn hold(&mut self, flow: FlowId, messages: u64, silence_timeout: Duration, now: Instant) {
        self.0.retain(|held| held.is_open(now));
        if messages > 0 {
            self.0.push(Held {
                flow,
                messages,
                since: now,
                silence_timeout,
            });
        }
    }

    /// The link failed: returns the messages of each flow whose delivery is unknown.
    pub fn link_failed(&mut self, now: Instant) -> Vec<(FlowId, u64)> {
        let open = self.0.drain(..).filter(|held| held.is_open(now));
        open.map(|held| (held.flow, held.messages)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivery_is_unknown_only_if_the_link_fails_within_twice_its_timeout() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let flow = FlowId::Service(0);
        let second = Duration::from_secs(1);
        let mut unacknowledged = Unacknowledged::default();
        unacknowledged.hold(flow, 5, second, at(0));
        unacknowledged.hold(flow, 7, second, at(2));
        assert_eq!(unacknowledged.link_failed(at(3)), [(flow, 7)]);
        assert_eq!(unacknowledged.link_failed(at(3)), []);
        unacknowledged.hold(flow, 1, second, at(3));
        assert_eq!(unacknowledged.link_failed(at(5)), []);
        unacknowledged.hold(flow, 2, Duration::MAX, at(5));
        assert_eq!(unacknowledged.link_failed(at(500)), [(flow, 2)]);
    }
}
