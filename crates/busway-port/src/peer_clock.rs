//! What a host knows of another host's clock, shared with its partitions.
//!
//! Contract: the gateway measures ([`Partition::set_peer_clock`](crate::Partition::set_peer_clock)
//! of the partition that stands for the other host) and is the only writer; partitions that read
//! registers which that host writes look at it on every read, without waiting: a writer that was
//! killed half way leaves no estimate, and then the age of a message is unknown. An estimate's
//! error grows with its age, so a gateway that is gone makes messages count as ever older, never as
//! younger.

use std::sync::atomic::{Ordering, fence};

use crate::config::Clock;
use crate::store::layout::head::{PEER_CLOCK, PEER_CLOCK_BYTES};
use crate::sys::{Area, View};

/// How much two clocks drift apart at most, in parts per million: the kernel slews each by 500 at
/// most (adjtimex(2)).
const DRIFT_PPM: i64 = 1_000;
/// Looks at an estimate that is being written.
const ATTEMPTS: u32 = 100;

const VERSION: usize = PEER_CLOCK;
const OFFSET_NS: usize = PEER_CLOCK + 8;
const ERROR_NS: usize = PEER_CLOCK + 16;
const AT_NS: usize = PEER_CLOCK + 24;
const _: () = assert!(PEER_CLOCK_BYTES == 32);

/// One measurement of the offset of another host's `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerClock {
    /// The other host's clock minus ours, in ns.
    pub offset_ns: i64,
    /// How far off that was at most when it was measured, in ns.
    pub error_ns: i64,
    /// When that was, in ns of our clock.
    pub at_ns: i64,
}

impl PeerClock {
    /// How far off the offset is at most at `now_ns` of our clock.
    #[must_use]
    pub fn error_at_ns(&self, now_ns: i64) -> i64 {
        let age_ns = now_ns.saturating_sub(self.at_ns).max(0);
        self.error_ns
            .saturating_add(age_ns / 1_000_000 * DRIFT_PPM + DRIFT_PPM)
    }

    /// A stamp of the other host's clock in ours at `now_ns`, set back by the error: a message
    /// counts as older than it is, never as younger.
    #[must_use]
    pub fn to_local_ns(&self, time_ns: i64, now_ns: i64) -> i64 {
        time_ns
            .saturating_sub(self.offset_ns)
            .saturating_sub(self.error_at_ns(now_ns))
    }

    /// A stamp of our clock in the other host's at `now_ns` of ours, set back by the error.
    #[must_use]
    pub fn to_peer_ns(&self, time_ns: i64, now_ns: i64) -> i64 {
        time_ns
            .saturating_add(self.offset_ns)
            .saturating_sub(self.error_at_ns(now_ns))
    }
}

/// Writes the estimate into a partition's head. One writer at a time.
pub(crate) fn store(body: &Area, clock: PeerClock) {
    let word = |offset| body.word(offset);
    // One that was killed half way has left an odd version.
    let odd = word(VERSION).load(Ordering::Relaxed) | 1;
    word(VERSION).store(odd, Ordering::Relaxed);
    // The odd version before the values. Partner: the acquire fence in `load`.
    fence(Ordering::Release);
    word(OFFSET_NS).store(clock.offset_ns as u64, Ordering::Relaxed);
    word(ERROR_NS).store(clock.error_ns as u64, Ordering::Relaxed);
    word(AT_NS).store(clock.at_ns as u64, Ordering::Relaxed);
    // The values before the even version. Partner: the acquire load in `load`.
    word(VERSION).store(odd.wrapping_add(1), Ordering::Release);
}

/// The estimate in a partition's head, if there is one.
pub(crate) fn load(head: &View) -> Option<PeerClock> {
    let word = |offset| head.word(offset).load(Ordering::Relaxed) as i64;
    for _ in 0..ATTEMPTS {
        // Partner: the release store in `store`.
        let version = head.word(VERSION).load(Ordering::Acquire);
        if version == 0 {
            return None;
        }
        let clock = PeerClock {
            offset_ns: word(OFFSET_NS),
            error_ns: word(ERROR_NS),
            at_ns: word(AT_NS),
        };
        // The values before the second look. Partner: the release fence in `store`.
        fence(Ordering::Acquire);
        if version.is_multiple_of(2) && head.word(VERSION).load(Ordering::Relaxed) == version {
            return Some(clock);
        }
        std::hint::spin_loop();
    }
    None
}

/// How much `CLOCK_TAI` is ahead of `CLOCK_MONOTONIC` here, in ns, to within the time that reading
/// a clock takes.
#[must_use]
pub fn tai_minus_monotonic_ns() -> i64 {
    let before_ns = Clock::Monotonic.now_ns();
    let tai_ns = Clock::Tai.now_ns();
    let after_ns = Clock::Monotonic.now_ns();
    tai_ns.saturating_sub(before_ns + (after_ns - before_ns) / 2)
}
