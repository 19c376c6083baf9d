//! How a time stamp gets from one host's clock to another's.
//!
//! Contract: stores of ports stamp messages with `CLOCK_MONOTONIC` of their host. What crosses is,
//! on a link whose hosts follow one clock (`ptp`), `CLOCK_TAI`; else (`estimated`) the sender's
//! `CLOCK_MONOTONIC`, and the receiver knows the offset of the two clocks to within an error. It
//! sets the stamp back by that error: a message counts as older than it is rather than as younger,
//! so no stale message passes for a valid one. The control thread measures ([`Estimator`]), lanes
//! convert ([`Wire`], which neither lock nor wait for long).
//!
//! The estimate is that of NTP (RFC 5905, section 8): with the times of asking, hearing, answering
//! and being answered, `offset = ((heard - asked) + (answered - got)) / 2`. Its error is at most
//! half of the time under way. Of the last measurements the one with the smallest error counts; an
//! error grows with its age, since clocks drift.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

use busway_port::Clock as HostClock;
use busway_port::peer_clock::{PeerClock, tai_minus_monotonic_ns};
use busway_system::Clock;

/// Measurements that the best is chosen of.
const KEPT: usize = 16;
/// Errors above this, an hour, are no measurement: the peer answers nonsense.
const MOST_ERROR_NS: i64 = 3_600_000_000_000;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> i64 {
    HostClock::Monotonic.now_ns()
}

/// From the four times of a question and its answer: `asked` and `got` by our clock, `heard` and
/// `answered` by the peer's, which may be any number. `None` if they are impossible.
pub fn measured(asked_ns: i64, heard_ns: i64, answered_ns: i64, got_ns: i64) -> Option<PeerClock> {
    let there = i128::from(heard_ns) - i128::from(asked_ns);
    let back = i128::from(answered_ns) - i128::from(got_ns);
    let error = (there - back + 1) / 2;
    let waited = i128::from(answered_ns) - i128::from(heard_ns);
    let is_possible = waited >= 0 && (0..=i128::from(MOST_ERROR_NS)).contains(&error);
    is_possible.then_some(PeerClock {
        offset_ns: i64::try_from((there + back) / 2).ok()?,
        error_ns: error as i64,
        at_ns: got_ns,
    })
}

/// Measures one peer's clock. Control thread only.
#[derive(Debug, Default)]
pub struct Estimator {
    kept: Vec<PeerClock>,
    shared: Arc<SharedOffset>,
}

impl Estimator {
    /// What lanes look at.
    pub fn shared(&self) -> Arc<SharedOffset> {
        self.shared.clone()
    }

    /// The best measurement at `now_ns`.
    pub fn best(&self, now_ns: i64) -> Option<PeerClock> {
        self.kept
            .iter()
            .copied()
            .min_by_key(|offset| offset.error_at_ns(now_ns))
    }

    /// Takes a measurement in.
    pub fn add(&mut self, offset: PeerClock) {
        if self.kept.len() == KEPT {
            self.kept.remove(0);
        }
        self.kept.push(offset);
        if let Some(best) = self.best(offset.at_ns) {
            self.shared.set(best);
        }
    }

    /// The peer may be another one now, or have restarted. Lanes that have the old estimate keep
    /// it.
    pub fn reset(&mut self) {
        *self = Estimator::default();
    }
}

/// The estimate, from the control thread to the lanes. Readers repeat while it is being written.
#[derive(Debug, Default)]
pub struct SharedOffset {
    /// Odd while the others are written.
    version: AtomicU64,
    offset_ns: AtomicI64,
    error_ns: AtomicI64,
    at_ns: AtomicI64,
}

impl SharedOffset {
    /// One writer: the control thread.
    fn set(&self, offset: PeerClock) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // The odd version before the values. Partner: the acquire fence in `get`.
        fence(Ordering::Release);
        self.offset_ns.store(offset.offset_ns, Ordering::Relaxed);
        self.error_ns.store(offset.error_ns, Ordering::Relaxed);
        self.at_ns.store(offset.at_ns, Ordering::Relaxed);
        // The values before the even version. Partner: the acquire load in `get`.
        self.version.store(version + 2, Ordering::Release);
    }

    /// Whether there is an estimate.
    pub fn is_set(&self) -> bool {
        // Acquire: partner is the release store in `set`.
        self.version.load(Ordering::Acquire) != 0
    }

    /// The estimate.
    pub fn get(&self) -> PeerClock {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let offset = PeerClock {
                offset_ns: self.offset_ns.load(Ordering::Relaxed),
                error_ns: self.error_ns.load(Ordering::Relaxed),
                at_ns: self.at_ns.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return offset;
            }
            std::hint::spin_loop();
        }
    }
}

/// The clock of stamps that cross a link.
#[derive(Clone, Debug)]
pub enum Wire {
    /// `CLOCK_TAI` of both hosts.
    Tai,
    /// `CLOCK_MONOTONIC` of the sender, whose offset is estimated.
    Estimated(Arc<SharedOffset>),
    /// `CLOCK_MONOTONIC` of the receiver, to whose host the sender writes by itself; the sender
    /// estimates the offset.
    Receivers(Arc<SharedOffset>),
}

impl Wire {
    /// For a link with this clock.
    pub fn new(clock: Clock, estimator: &Estimator) -> Wire {
        match clock {
            Clock::Ptp => Wire::Tai,
            Clock::Estimated => Wire::Estimated(estimator.shared()),
        }
    }

    /// For a link with this clock, to a register that programs of the receiving host read.
    pub fn to_peer(clock: Clock, estimator: &Estimator) -> Wire {
        match clock {
            Clock::Ptp => Wire::Tai,
            Clock::Estimated => Wire::Receivers(estimator.shared()),
        }
    }

    /// Whether stamps can leave: not before the first estimate that they need.
    pub fn is_known(&self) -> bool {
        match self {
            Wire::Receivers(shared) => shared.is_set(),
            Wire::Tai | Wire::Estimated(_) => true,
        }
    }

    /// Whether stamps leave in the same clock as over `other`.
    pub fn leaves_like(&self, other: &Wire) -> bool {
        match (self, other) {
            (Wire::Receivers(own), Wire::Receivers(other)) => Arc::ptr_eq(own, other),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// A stamp of this host's `CLOCK_MONOTONIC`, as it crosses.
    pub fn leaving(&self, time_ns: i64) -> u64 {
        match self {
            Wire::Tai => time_ns.saturating_add(tai_minus_monotonic_ns()) as u64,
            Wire::Estimated(_) => time_ns as u64,
            Wire::Receivers(shared) => shared.get().to_peer_ns(time_ns, monotonic_ns()) as u64,
        }
    }

    /// A stamp that crossed, which a peer wrote, in this host's `CLOCK_MONOTONIC`: never younger
    /// than the message, nor of the future.
    pub fn arrived(&self, time_ns: u64) -> i64 {
        let time_ns = time_ns as i64;
        let now_ns = monotonic_ns();
        let local_ns = match self {
            Wire::Tai => time_ns.saturating_sub(tai_minus_monotonic_ns()),
            Wire::Estimated(shared) => shared.get().to_local_ns(time_ns, now_ns),
            Wire::Receivers(_) => time_ns,
        };
        local_ns.min(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn with_equal_delays_the_offset_is_exact() {
        // The peer is 1000 ahead; 10 there, 5 to answer, 10 back.
        let offset = measured(100, 1110, 1115, 125).expect("possible");
        assert_eq!((offset.offset_ns, offset.error_ns), (1000, 10));
    }

    proptest! {
        #[test]
        fn the_true_offset_is_within_the_error(
            ahead in -1_000_000_i64..1_000_000, there in 0_i64..100_000, stay in 0_i64..1_000, back in 0_i64..100_000
        ) {
            let asked = 5_000_000;
            let heard = asked + there + ahead;
            let got = asked + there + stay + back;
            let offset = measured(asked, heard, heard + stay, got).expect("possible");
            prop_assert!((offset.offset_ns - ahead).abs() <= offset.error_ns);
        }

        #[test]
        fn a_peer_may_say_anything(asked: i64, heard: i64, answered: i64, got: i64, now: i64, stamp: u64) {
            let mut estimator = Estimator::default();
            if let Some(offset) = measured(asked, heard, answered, got) {
                prop_assert!(offset.error_ns >= 0);
                prop_assert!(offset.error_at_ns(now) >= offset.error_ns);
                estimator.add(offset);
            }
            prop_assert!(Wire::Estimated(estimator.shared()).arrived(stamp) <= monotonic_ns());
            prop_assert!(Wire::Tai.arrived(stamp) <= monotonic_ns());
        }
    }

    #[test]
    fn the_measurement_with_the_smallest_error_counts_until_it_is_too_old() {
        let mut estimator = Estimator::default();
        let at = |error_ns, at_ns| PeerClock {
            offset_ns: error_ns,
            error_ns,
            at_ns,
        };
        estimator.add(at(10_000, 0));
        estimator.add(at(50_000, 1_000_000));
        assert_eq!(estimator.best(1_000_000), Some(at(10_000, 0)));
        estimator.add(at(50_000, 1_000_000_000));
        assert_eq!(estimator.best(1_000_000_000), Some(at(50_000, 1_000_000_000)));
        assert_eq!(estimator.shared().get(), at(50_000, 1_000_000_000));
    }

    #[test]
    fn a_stamp_that_crosses_and_comes_back_is_older_by_no_more_than_the_error() {
        let now_ns = monotonic_ns();
        let stamp = Wire::Tai.leaving(now_ns);
        let back_ns = Wire::Tai.arrived(stamp);
        assert!((now_ns - back_ns).abs() < 1_000_000_000, "{now_ns} {back_ns}");
        let mut estimator = Estimator::default();
        estimator.add(measured(now_ns, now_ns + 5, now_ns + 5, now_ns + 10).expect("possible"));
        let wire = Wire::Estimated(estimator.shared());
        let back_ns = wire.arrived(wire.leaving(now_ns));
        assert!(back_ns <= now_ns);
    }
}
