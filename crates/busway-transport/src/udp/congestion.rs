//! How much may be on its way: round-trip times and a congestion window that gives way to TCP.
//!
//! The round-trip time is estimated as in RFC 6298 (with RFC 9002's granularity). The window is steered by delay, as in LEDBAT (RFC 6817): it grows while the
//! shortest round trip of a round is near the shortest of the last minutes, and shrinks when a queue stands in the way. TCP
//! fills that queue until it loses something, so it is we who make room. Loss alone is no sign of congestion as long as no queue stands
//! and it stays under [`LASTING`]: a wire that corrupts one datagram in a hundred would otherwise cost nearly
//! everything (Mathis et al. 1997: at 1 % loss a window of 12 datagrams). Loss together with a queue, or above the
//! tolerance, halves the window, as TCP does (RFC 5681).
//!
//! Pure: driven by the times and numbers that [`super::sending`] gives. Times in nanoseconds of one monotonic clock.

/// Queuing delay that is aimed at. RFC 6817 allows up to 100 ms; much less would hold for a queue what is but a lane that waits
/// for its processor.
const TARGET_NS: u64 = 25_000_000;
/// Loss is congestion where such a queue stands: a buffer that holds less than the target overflows before that is reached.
const LOSS_QUEUE_NS: u64 = 4_000_000;
/// The shortest round trip is that of the last one to two times this (RFC 6817 keeps ten minutes): a queue that TCP keeps filled must not become
/// the path's own delay.
const BASE_FOR_NS: u64 = 300_000_000_000;
/// Rounds of the least window before the shortest round trip is forgotten, so that our own queue drains and is not taken for the path
/// (LEDBAT++, 4.4).
const DRAIN_ROUNDS: u32 = 3;
/// A delay that stays the same for so many rounds of the least window is the path's: our own queue would have drained. It may be TCP's queue near its top, which rises slowly
/// (RFC 9438, 4.2): then loss is what halves the window, as it does TCP's, and the two share.
const STEADY_ROUNDS: u32 = 16;
/// Datagrams that the window begins with (RFC 6928).
const INITIAL_DATAGRAMS: u64 = 10;
/// The window is never less.
const MIN_DATAGRAMS: u64 = 2;
/// Never more, in bytes.
const MAX_WINDOW_BYTES: u64 = 64 << 20;
/// Loss that is congestion without a queue, too. Segmentation offload hands over up to 44 datagrams as one, which are lost as one: so many groups must be
/// counted that their share means something. (256 datagrams, and one group was too much: with one group in a hundred lost, a channel came to 48 %
/// of a bare pair of sockets, and to 68 % with this.)
const LASTING: Limit = Limit {
    one_in: 32,
    datagrams: 16_384,
};
/// The same where it is so much that waiting for more would be too late.
const SUDDEN: Limit = Limit {
    one_in: 4,
    datagrams: 256,
};
/// Before anything is known of the path.
const INITIAL_RTT_NS: u64 = 50_000_000;
/// The variation counts for no less than this.
const GRANULARITY_NS: u64 = 1_000_000;
/// No answer is held for lost sooner: the receiver's lane may sleep.
const MIN_TIMEOUT_NS: u64 = 10_000_000;
/// A timeout that was doubled again and again ends here.
const MAX_TIMEOUT_NS: u64 = 500_000_000;

/// Round-trip times.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed_ns: Option<u64>,
    variation_ns: u64,
    latest_ns: u64,
}

impl RoundTrip {
    /// Takes in one measurement (RFC 6298, 2).
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

    /// What has not been acked for so long, while something later was, is lost (RFC 9002, 6.1.2).
    pub(super) fn reordering_ns(&self) -> u64 {
        let longest = self.smoothed_ns.unwrap_or(INITIAL_RTT_NS).max(self.latest_ns);
        (longest + longest / 8).max(GRANULARITY_NS)
    }

    /// Silence after which the sender asks, for the n-th time (RFC 6298, 2.4 and 5.5; shorter bounds than there, since a
    /// probe costs one datagram and reduces no window).
    pub(super) fn timeout_ns(&self, attempt: u32) -> u64 {
        let smoothed = self.smoothed_ns.unwrap_or(INITIAL_RTT_NS);
        let once = (smoothed + (4 * self.variation_ns).max(GRANULARITY_NS)).max(MIN_TIMEOUT_NS);
        once.saturating_mul(1 << attempt.min(10))
            .min(MAX_TIMEOUT_NS.max(once))
    }
}

/// More than one lost in so many, of at least so many datagrams, is too much.
#[derive(Clone, Copy, Debug)]
struct Limit {
    one_in: u64,
    datagrams: u64,
}

/// Datagrams since it was judged last.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    acked: u64,
    lost: u64,
}

impl Tally {
    /// Whether too much is lost, which may be certain before all datagrams are counted; begins anew when they are.
    fn exceeds(&mut self, limit: Limit) -> bool {
        let total = self.acked + self.lost;
        let exceeds = self.lost * limit.one_in > total.max(limit.datagrams);
        if exceeds || total >= limit.datagrams {
            *self = Tally::default();
        }
        exceeds
    }
}

/// The congestion window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    window_bytes: u64,
    datagram_bytes: u64,
    /// Until the first sign of a queue the window doubles each round.
    is_starting: bool,
    /// Above this it grows no faster than TCP's would (RFC 5681): it has been too large before.
    careful_from_bytes: u64,
    /// The shortest round trips of this and the last period.
    base_ns: [u64; 2],
    period_ends_ns: u64,
    /// The packet with whose answer the round ends.
    round_ends: u64,
    round_min_ns: u64,
    round_acked_bytes: u64,
    /// Rounds of the least window with a delay like this one.
    steady_rounds: u32,
    steady_ns: u64,
    /// Rounds of the least window to come, and the window after them.
    drain_rounds: u32,
    window_after_bytes: u64,
    /// Whether the window was what held the sender back in this round (RFC 7661).
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
            period_ends_ns: 0,
            round_ends: 0,
            round_min_ns: u64::MAX,
            round_acked_bytes: 0,
            steady_rounds: 0,
            steady_ns: 0,
            drain_rounds: 0,
            window_after_bytes: 0,
            round_is_full: false,
            lasting: Tally::default(),
            sudden: Tally::default(),
            lost_in_round: false,
        }
    }

    /// Bytes that may be on their way.
    pub(super) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// The datagrams have another size from now on.
    pub(super) fn set_datagram_bytes(&mut self, bytes: u64) {
        self.datagram_bytes = bytes;
        self.window_bytes = self.window_bytes.max(MIN_DATAGRAMS * bytes);
    }

    /// The window keeps the sender from sending.
    pub(super) fn on_window_full(&mut self) {
        self.round_is_full = true;
    }

    /// A datagram was acked, so long after it left.
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

    /// So many datagrams and bytes were newly acked.
    pub(super) fn on_acked(&mut self, datagrams: u64, bytes: u64) {
        self.lasting.acked += datagrams;
        self.sudden.acked += datagrams;
        self.round_acked_bytes += bytes;
    }

    /// A datagram is held for lost.
    pub(super) fn on_lost(&mut self) {
        self.lasting.lost += 1;
        self.sudden.lost += 1;
        self.lost_in_round = true;
    }

    /// An answer was taken in, of `largest` the latest packet; the next one to be sent is `next`.
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
        // Both, each of which begins anew.
        let loses_much = self.lasting.exceeds(LASTING) | self.sudden.exceeds(SUDDEN);
        if self.drain_rounds > 0 {
            self.drain_rounds -= 1;
            if self.drain_rounds == 0 {
                self.set_window(self.window_after_bytes);
            }
        } else if loses_much || (self.lost_in_round && queuing_ns > LOSS_QUEUE_NS) {
            self.halve();
        } else if queuing_ns > TARGET_NS {
            // LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus, 4.2): in proportion to the excess, at most by half.
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

    /// Takes a longer way for what it is, before the shortest round trip of the way before is forgotten.
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

    /// Nothing was acked for long: begin anew (RFC 9002, 7.6).
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

    /// Rounds of 100 datagrams each, acked after `rtt_ns`, of which `lost` are lost.
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
    fn one_datagram_in_a_hundred_lost_without_a_queue_does_not_shrink_the_window() {
        let mut congestion = Congestion::new(DATAGRAM);
        rounds(&mut congestion, 3, 100_000, 0);
        let before = congestion.window_bytes();
        rounds(&mut congestion, 50, 100_000, 1);
        assert!(congestion.window_bytes() > before);
    }

    #[test]
    fn a_queue_shrinks_the_window_down_to_its_least() {
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
    fn a_longer_path_costs_the_window_some_rounds_only() {
        let mut congestion = Congestion::new(DATAGRAM);
        rounds(&mut congestion, 5, 1_000_000, 0);
        let longer_ns = 2 * TARGET_NS;
        rounds(&mut congestion, 12, longer_ns, 0);
        assert_eq!(congestion.window_bytes(), MIN_DATAGRAMS * DATAGRAM);
        rounds(&mut congestion, 2 * u64::from(STEADY_ROUNDS), longer_ns, 0);
        assert!(congestion.window_bytes() > 8 * DATAGRAM);
    }

    #[test]
    fn a_window_that_was_too_large_grows_by_a_datagram_a_round() {
        let mut congestion = Congestion::new(DATAGRAM);
        rounds(&mut congestion, 6, 100_000, 0);
        rounds(&mut congestion, 1, 100_000 + LOSS_QUEUE_NS * 2, 1);
        let before = congestion.window_bytes();
        rounds(&mut congestion, 20, 100_000 + LOSS_QUEUE_NS * 2, 0);
        assert_eq!(congestion.window_bytes(), before + 20 * DATAGRAM);
    }

    #[test]
    fn a_queue_of_our_own_is_never_taken_for_the_path() {
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
    fn much_loss_or_loss_with_a_queue_halves_the_window() {
        for (rtt_ns, lost, most_rounds) in [(100_000, 40, 3), (100_000 + LOSS_QUEUE_NS * 5 / 4, 1, 1)] {
            let mut congestion = Congestion::new(DATAGRAM);
            rounds(&mut congestion, 6, 100_000, 0);
            let before = congestion.window_bytes();
            rounds(&mut congestion, most_rounds, rtt_ns, lost);
            assert!(congestion.window_bytes() < before, "{lost} lost");
        }
    }

    #[test]
    fn loss_that_lasts_is_congestion_and_a_group_lost_now_and_then_is_not() {
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
    fn a_window_that_nobody_fills_does_not_grow() {
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
    fn timeouts_double_and_end_somewhere() {
        let mut round_trip = RoundTrip::default();
        round_trip.measured(10_000_000);
        let timeouts: Vec<u64> = (0..12).map(|attempt| round_trip.timeout_ns(attempt)).collect();
        assert_eq!(timeouts[0], 30_000_000, "one round trip and four variations");
        assert_eq!(timeouts[1], 60_000_000);
        assert!(timeouts.is_sorted());
        assert_eq!(timeouts[11], MAX_TIMEOUT_NS);
    }
}
