//! What the gateway counts: every message that could not be delivered is in one of these.
//!
//! Lanes add, the control thread reads and reports. All accesses are relaxed: each counter stands
//! alone and is only summed up.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! counters {
    ($(#[$of:meta])* $counters:ident, $snapshot:ident: $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$of])*
        #[derive(Debug, Default)]
        pub struct $counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        /// The values at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $snapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $counters {
            /// The values now.
            pub fn snapshot(&self) -> $snapshot {
                $snapshot { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Counters of one service.
    ServiceCounters, Snapshot:
    /// Samples of local programs handed to a bus, once for each destination host.
    sent,
    /// Their payload in bytes.
    sent_bytes,
    /// Of `sent`, those whose payload the gateway copied on its way to the bus; only RDMA buses
    /// count.
    sent_copied,
    /// Messages from other hosts given to local programs.
    received,
    /// Their payload in bytes.
    received_bytes,
    /// Of `received`, those whose payload the gateway copied on its way from the bus; only RDMA
    /// buses count.
    received_copied,
    /// Lost: gaps in the numbers of messages from other hosts, seen here, the receiving side, on
    /// channels that keep all.
    lost,
    /// Replaced by newer ones on the way, as `keep = "latest"` asks; seen here, the receiving side.
    overwritten,
    /// Replaced by newer samples in our subscriber's queue before they were taken, as the service's
    /// safe overflow allows any subscriber to lose them; the receiving side counts them among
    /// `lost` as well.
    overflowed,
    /// Not sent because the channel was full and the rule drops; the receiving side counts them
    /// among `lost` as well.
    dropped_full,
    /// Not sent because the link was down; the receiving side counts them among `lost` as well, if
    /// it survives.
    dropped_link_down,
    /// Handed to a bus that then failed, receipt unconfirmed: some of them may have arrived.
    in_doubt,
    /// Not given to local programs for want of shared memory.
    dropped_no_memory,
    /// Not given to a full local reader (services without safe overflow whose rule says not to
    /// wait).
    dropped_reader_full,
    /// Too long for the channel, or of a length that no message of this service has.
    refused,
    /// Came twice (after a reconnection), thrown away.
    duplicates,
    /// Came from ourselves, thrown away.
    echoes,
    /// Times that the origin's gateway was replaced by a new one: what programs published in
    /// between is not counted anywhere.
    origin_restarts,
}

counters! {
    /// Counters of one channel of ports between this host and another. What its queues had no room
    /// for is counted by the ports.
    PortCounters, PortSnapshot:
    /// Messages handed to a bus; one that is sent again after an outage counts again.
    sent,
    /// Their length in bytes.
    sent_bytes,
    /// Messages from the other host given to the destinations here.
    received,
    /// Their length in bytes.
    received_bytes,
    /// Messages that came again after an outage, thrown away.
    duplicates,
    /// Of a length that the channel does not have.
    refused,
    /// Messages, or room in a queue, that the lane found when a sleep timed out, since no doorbell
    /// had rung: nearly none, except where a process was killed before it could ring.
    unrung,
    /// Messages in the ring to a core when the core restarted, as far as its credits show: they are
    /// lost.
    lost,
    /// Times that the channel was opened; towards or from a core, new sessions of the core.
    opened,
}

impl Snapshot {
    /// All that did not arrive, as far as this side knows: what is worth a line in the log.
    pub fn losses(&self) -> u64 {
        self.lost
            + self.overflowed
            + self.dropped_full
            + self.dropped_link_down
            + self.in_doubt
            + self.dropped_no_memory
            + self.dropped_reader_full
            + self.refused
    }
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_shows_what_was_added_and_sums_up_losses_without_duplicates() {
        let counters = ServiceCounters::default();
        add(&counters.lost, 2);
        add(&counters.refused, 3);
        add(&counters.duplicates, 7);
        assert_eq!(counters.snapshot().losses(), 5);
        assert_eq!(counters.snapshot().duplicates, 7);
    }
}
