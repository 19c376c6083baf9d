//! Round-trip times and the congestion window, which gives way to TCP.
//!
//! The round-trip time is estimated as in RFC 6298, with the granularity of RFC 9002. The window
//! follows delay, as in LEDBAT (RFC 6817): it grows while the round trips are near the shortest of
//! the last minutes, and shrinks when a queue delays them. TCP fills that queue until it loses
//! something, so this sender must yield.
//!
//! Loss without a queue is not taken for congestion while it stays under [`LASTING`]: a wire that
//! corrupts one datagram in a hundred would otherwise cost nearly all throughput (Mathis et al.
//! 1997: a window of 12 datagrams at 1 % loss). Loss with a queue, or more loss, halves the window,
//! as in TCP (RFC 5681).
//!
//! Pure: [`super::sending`] passes times and numbers in. Times are nanoseconds of one monotonic
//! clock.

/// Target of the queuing delay. RFC 6817 allows at most 100 ms; a much shorter target would take a
/// lane that waits for its processor for a queue.
const TARGET_NS: u64 = 25_000_000;
/// With at least this queuing delay, loss is congestion: a small buffer overflows before its delay
/// reaches the target.
const LOSS_QUEUE_NS: u64 = 4_000_000;
/// The base delay is the shortest round trip of the last one to two such periods (RFC 6817: ten
/// minutes). Without an end, a queue that TCP keeps filled would become part of it.
const BASE_FOR_NS: u64 = 300_000_000_000;
/// Rounds with the minimal window at the end of a period. They drain our own queue, so that it does
/// not become part of the base delay (LEDBAT++, 4.4).
const DRAIN_ROUNDS: u32 = 3;
/// After this many rounds of the minimal window with the same delay, the path itself is taken to be
/// longer: our own queue would have drained. It may be TCP's queue near its top, which rises slowly
/// (RFC 9438, 4.2): then loss halves the window, as it halves TCP's.
const STEADY_ROUNDS: u32 = 16;
/// Initial window in datagrams (RFC 6928).
const INITIAL_DATAGRAMS: u64 = 10;
const MIN_DATAGRAMS: u64 = 2;
const MAX_WINDOW_BYTES: u64 = 64 << 20;
/// Loss above this is congestion even without a queue. With offload the network loses up to 44
/// datagrams at once, so the share is taken of many. (At 256 datagrams, a channel that lost one
/// buffer in a hundred reached 48 % of a bare pair of sockets; with this limit it reaches 68 %.)
const LASTING: Limit = Limit {
    one_in: 32,
    datagrams: 16_384,
};
/// The same for heavy loss, which must not wait for that many datagrams.
const SUDDEN: Limit = Limit {
    one_in: 4,
    datagrams: 256,
};
/// Assumed before the first measurement.
const INITIAL_RTT_NS: u64 = 50_000_000;
/// Lower bound of the variation in timeouts.
const GRANULARITY_NS: u64 = 1_000_000;
/// Shortest timeout: the receiver's lane may sleep.
const MIN_TIMEOUT_NS: u64 = 10_000_000;
/// Longest timeout, however often it doubles.
const MAX_TIMEOUT_NS: u64 = 500_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed_ns: Option<u64>,
    variation_ns: u64,
    latest_ns: u64,
}

impl RoundTrip {
    /// Adds one measurement (RFC 6298, 2).
    pub(super) fn measured(&mut self, ns: u64) {
        self.latest_ns = ns;
        match &mut self.smoothed_ns {
            None => {
                self.smoothed_ns = Some(ns);
                self.variation_ns = ns / 2;
            }
            Some(smoothed) => {
                self.variation_ns = (3 * self.variation_ns + smoothed.abs_diff(ns)) / 4;
                *smoothed = (7 * *smoothed + ns) / 8;
            }
        }
    }

    /// Age at which an unacknowledged packet is lost if a later one was acknowledged (RFC 9002,
    /// 6.1.2).
    pub(super) fn reordering_ns(&self) -> u64 {
        let longest = self.smoothed_ns.unwrap_or(INITIAL_RTT_NS).max(self.latest_ns);
        (longest + longest / 8).max(GRANULARITY_NS)
    }

    /// Silence after which the sender pings for the n-th time (RFC 6298, 2.4 and 5.5). The bounds
    /// are shorter than there, since a ping is one datagram and shrinks no window.
    pub(super) fn timeout_ns(&self, attempt: u32) -> u64 {
        let smoothed = self.smoothed_ns.unwrap_or(INITIAL_RTT_NS);
        let once = (smoothed + (4 * self.variation_ns).max(GRANULARITY_NS)).max(MIN_TIMEOUT_NS);
        once.saturating_mul(1 << attempt.min(10))
            .min(MAX_TIMEOUT_NS.max(once))
    }
}

/// A limit: more than one lost in `one_in`, counted over at least `datagrams`.
#[derive(Clone, Copy, Debug)]
struct Limit {
    one_in: u64,
    datagrams: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    acked: u64,
    lost: u64,
}

impl Tally {
    /// Whether loss exceeds the limit; that may be certain before all datagrams are counted. The
    /// count starts again when they are.
    fn exceeds(&mut self, limit: Limit) -> bool {
        let total = self.acked + self.lost;
        let exceeds = self.lost * limit.one_in > total.max(limit.datagrams);
        if exceeds || total >= limit.datagrams {
            *self = Tally::default();
        }
        exceeds
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Congestion {
    window_bytes: u64,
    datagram_bytes: u64,
    /// Slow start: until the first sign of a queue the window doubles each round.
    is_starting: bool,
    /// From this window on it grows by one datagram a round (RFC 5681).
    careful_from_bytes: u64,
    /// The shortest round trip of this period and of the last.
    base_ns: [u64; 2],
    period_ends_ns: u64,
    /// The round ends when this packet is acknowledged.
    round_ends: u64,
    round_min_ns: u64,
    round_acked_bytes: u64,
    /// Rounds with the minimal window and about the delay `steady_ns`.
    steady_rounds: u32,
    steady_ns: u64,
    /// Rounds of draining that are left, and the window after them.
    drain_rounds: u32,
    window_after_bytes: u64,
    /// Whether the window limited the sender in this round (RFC 7661).
    round_is_full: bool,
    lasting: Tally,
    sudden: Tally,
    lost_in_round: bool,
}

impl Congestion {
    pub(super) fn new(datagram_bytes: u64) -> Congestion {
        Congestion {
            window_bytes: INITIAL_DATAGRAMS * datagram_bytes,
            datagram_bytes,
            is_starting: true,
            careful_from_bytes: u64::MAX,
            base_ns: [u64::MAX; 2],
            round_min_ns: u64::MAX,
            ..Congestion::default()
        }
    }

    pub(super) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    pub(super) fn set_datagram_bytes(&mut self, bytes: u64) {
        self.datagram_bytes = bytes;
        self.window_bytes = self.window_bytes.max(MIN_DATAGRAMS * bytes);
    }

    /// The window has kept the sender from sending.
    pub(super) fn on_window_full(&mut self) {
        self.round_is_full = true;
    }

    /// A datagram was acknowledged after a round trip of `ns`.
    pub(super) fn on_round_trip(&mut self, ns: u64, now_ns: u64) {
        if now_ns >= self.period_ends_ns {
            if self.period_ends_ns > 0 {
                self.drain_rounds = DRAIN_ROUNDS;
                self.window_after_bytes = self.window_bytes;
                self.set_window(0);
            }
            self.base_ns = [u64::MAX, self.base_ns[0]];
            self.period_ends_ns = now_ns + BASE_FOR_NS;
        }
        self.base_ns[0] = self.base_ns[0].min(ns);
        self.round_min_ns = self.round_min_ns.min(ns);
    }

    /// Datagrams and bytes that were newly acknowledged.
    pub(super) fn on_acked(&mut self, datagrams: u64, bytes: u64) {
        self.lasting.acked += datagrams;
        self.sudden.acked += datagrams;
        self.round_acked_bytes += bytes;
    }

    pub(super) fn on_lost(&mut self) {
        self.lasting.lost += 1;
        self.sudden.lost += 1;
        self.lost_in_round = true;
    }

    /// An acknowledgement up to packet `largest` was handled; the next packet sent is `next`.
    pub(super) fn update(&mut self, largest: u64, next: u64) {
        if largest < self.round_ends {
            return;
        }
        self.detect_new_path();
        let base_ns = self.base_ns[0].min(self.base_ns[1]);
        let queuing_ns = match self.round_min_ns {
            u64::MAX => 0,
            shortest => shortest.saturating_sub(base_ns),
        };
        // Not `||`: both counts must be updated.
        let loses_much = self.lasting.exceeds(LASTING) | self.sudden.exceeds(SUDDEN);
        if self.drain_rounds > 0 {
            self.drain_rounds -= 1;
            if self.drain_rounds == 0 {
                self.set_window(self.window_after_bytes);
            }
        } else if loses_much || (self.lost_in_round && queuing_ns > LOSS_QUEUE_NS) {
            self.halve();
        } else if queuing_ns > TARGET_NS {
            // LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus, 4.2): in proportion to the excess, at
            // most by half.
            self.is_starting = false;
            let excess_ns = (queuing_ns - TARGET_NS).min(TARGET_NS);
            self.set_window(self.window_bytes - self.window_bytes / 2 * excess_ns / TARGET_NS);
        } else if self.round_is_full {
            self.is_starting &= queuing_ns < TARGET_NS / 2;
            let more = if self.is_starting {
                self.round_acked_bytes
            } else if self.window_bytes >= self.careful_from_bytes {
                self.datagram_bytes
            } else {
                // One datagram a round, or 1/64 of a large window, whose rounds are long.
                self.datagram_bytes.max(self.window_bytes / 64)
            };
            self.set_window(self.window_bytes + more);
        }
        self.round_ends = next;
        self.round_min_ns = u64::MAX;
        self.round_acked_bytes = 0;
        self.round_is_full = false;
        self.lost_in_round = false;
    }

    /// Notices that the path has become longer before the base delay of the old one expires.
    fn detect_new_path(&mut self) {
        let shortest_ns = self.round_min_ns;
        if shortest_ns == u64::MAX {
            return;
        }
        let is_least = self.window_bytes <= MIN_DATAGRAMS * self.datagram_bytes;
        let is_like = shortest_ns.abs_diff(self.steady_ns) <= self.steady_ns / 4;
        if !is_least || self.drain_rounds > 0 || !is_like {
            (self.steady_rounds, self.steady_ns) = (0, shortest_ns);
            return;
        }
        self.steady_rounds += 1;
        if self.steady_rounds == STEADY_ROUNDS {
            self.steady_rounds = 0;
            self.base_ns = [shortest_ns, u64::MAX];
        }
    }

    fn halve(&mut self) {
        self.is_starting = false;
        self.set_window(self.window_bytes / 2);
        self.careful_from_bytes = self.window_bytes;
    }

    /// Nothing was acknowledged for long: starts again (RFC 9002, 7.6).
    pub(super) fn collapse(&mut self) {
        self.is_starting = true;
        self.set_window(0);
    }

    fn set_window(&mut self, bytes: u64) {
        self.window_bytes = bytes.clamp(
            MIN_DATAGRAMS * self.datagram_bytes,
            MAX_WINDOW_BYTES.max(MIN_DATAGRAMS * self.datagram_bytes),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: u64 = 1000;

    /// Rounds of 100 datagrams each with this round trip, `lost` of them lost.
    fn rounds(congestion: &mut Congestion, count: u64, rtt_ns: u64, lost: u64) {
        for _ in 0..count {
            congestion.on_window_full();
            // The clock goes by the packet numbers here.
            congestion.on_round_trip(rtt_ns, congestion.round_ends * TARGET_NS / 100);
            congestion.on_acked(100 - lost, (100 - lost) * DATAGRAM);
            (0..lost).for_each(|_| congestion.on_lost());
            let next = congestion.round_ends + 100;
            congestion.update(congestion.round_ends, next);
        }
    }

    #[test]
    fn one_percent_loss_without_queue_keeps_the_window() {
        let mut congestion = Congestion::new(DATAGRAM);
        rounds(&mut congestion, 3, 100_000, 0);
        let before = congestion.window_bytes();
        rounds(&mut congestion, 50, 100_000, 1);
        assert!(congestion.window_bytes() > before);
    }

    #[test]
    fn lasting_queue_shrinks_window_to_minimum() {
        let mut congestion = Congestion::new(DATAGRAM);
        rounds(&mut congestion, 5, 100_000, 0);
        let before = congestion.window_bytes();
        rounds(&mut congestion, 1, 100_000 + 2 * TARGET_NS, 0);
        assert!(congestion.window_bytes() <= before / 2 + 1);
        // TCP's rises and falls.
        for round in 0..40 {
            rounds(&mut congestion, 1, 100_000 + (2 + round % 2) * TARGET_NS, 0);
        }
        assert_eq!(congestion.window_bytes(), MIN_DATAGRAMS * DATAGRAM);
    }

    #[test]
    fn longer_path_shrinks_window_for_some_rounds_only() {
        let mut congestion = Congestion::new(DATAGRAM);
        rounds(&mut congestion, 5, 1_000_000, 0);
        let longer_ns = 2 * TARGET_NS;
        rounds(&mut congestion, 12, longer_ns, 0);
        assert_eq!(congestion.window_bytes(), MIN_DATAGRAMS * DATAGRAM);
        rounds(&mut congestion, 2 * u64::from(STEADY_ROUNDS), longer_ns, 0);
        assert!(congestion.window_bytes() > 8 * DATAGRAM);
    }

    #[test]
    fn window_after_loss_grows_by_one_datagram_a_round() {
        let mut congestion = Congestion::new(DATAGRAM);
        rounds(&mut congestion, 6, 100_000, 0);
        rounds(&mut congestion, 1, 100_000 + LOSS_QUEUE_NS * 2, 1);
        let before = congestion.window_bytes();
        rounds(&mut congestion, 20, 100_000 + LOSS_QUEUE_NS * 2, 0);
        assert_eq!(congestion.window_bytes(), before + 20 * DATAGRAM);
    }

    #[test]
    fn own_queue_never_becomes_base_delay() {
        let mut congestion = Congestion::new(DATAGRAM);
        rounds(&mut congestion, 5, 100_000, 0);
        // A path whose round trip is what lies in its buffer, at one datagram a millisecond.
        let mut longest_ns = 0;
        for round in 0..2 * BASE_FOR_NS / TARGET_NS * 3 {
            let rtt_ns = 100_000 + congestion.window_bytes() / DATAGRAM * 1_000_000;
            rounds(&mut congestion, 1, rtt_ns, 0);
            if round > 100 {
                longest_ns = longest_ns.max(rtt_ns);
            }
        }
        assert!(longest_ns < 2 * TARGET_NS, "{longest_ns} ns");
    }

    #[test]
    fn heavy_loss_or_loss_with_queue_halves_window() {
        for (rtt_ns, lost, most_rounds) in [(100_000, 40, 3), (100_000 + LOSS_QUEUE_NS * 5 / 4, 1, 1)] {
            let mut congestion = Congestion::new(DATAGRAM);
            rounds(&mut congestion, 6, 100_000, 0);
            let before = congestion.window_bytes();
            rounds(&mut congestion, most_rounds, rtt_ns, lost);
            assert!(congestion.window_bytes() < before, "{lost} lost");
        }
    }

    #[test]
    fn lasting_loss_is_congestion_and_a_lost_buffer_is_not() {
        let mut congestion = Congestion::new(DATAGRAM);
        rounds(&mut congestion, 200, 100_000, 5);
        assert!(!congestion.is_starting, "5 % of 20000");
        let mut congestion = Congestion::new(DATAGRAM);
        for _ in 0..20 {
            rounds(&mut congestion, 43, 100_000, 0);
            rounds(&mut congestion, 1, 100_000, 44);
        }
        assert!(congestion.is_starting, "1 %, in groups");
    }

    #[test]
    fn unused_window_does_not_grow() {
        let mut congestion = Congestion::new(DATAGRAM);
        let before = congestion.window_bytes();
        for round in 0..100 {
            congestion.on_round_trip(100_000, 0);
            congestion.on_acked(1, DATAGRAM);
            congestion.update(round, round + 1);
        }
        assert_eq!(congestion.window_bytes(), before);
    }

    #[test]
    fn timeouts_double_up_to_a_bound() {
        let mut round_trip = RoundTrip::default();
        round_trip.measured(10_000_000);
        let timeouts: Vec<u64> = (0..12).map(|attempt| round_trip.timeout_ns(attempt)).collect();
        assert_eq!(timeouts[0], 30_000_000, "one round trip and four variations");
        assert_eq!(timeouts[1], 60_000_000);
        assert!(timeouts.is_sorted());
        assert_eq!(timeouts[11], MAX_TIMEOUT_NS);
    }
}
