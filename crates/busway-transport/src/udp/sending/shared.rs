//! What of a stream leaves together with other streams: packets that several receivers get at once, each with a number of its own.
//!
//! Pure, as all of [`super`]; called by [`crate::udp::circle`] and [`crate::udp::near`].

use super::{Cut, MAX_ON_WAY, Sending};

/// A group that lost so many packets in a row, while so many were answered that left by themselves, carries nothing now.
const SHARED_LOST: u32 = 16;
const APART_ANSWERED: u32 = 3;
/// Others wait no longer for a receiver that has no room.
const MAX_PATIENCE_NS: u64 = 10_000_000;
impl Sending {
    /// From now on what was never cut leaves by itself only up to this offset.
    pub(in crate::udp) fn hold_at(&mut self, offset: u64) {
        self.hold_at = offset;
    }

    /// Bytes that [`next_shared`](Self::next_shared) may cut now: never what leaves again, nor before that has left.
    pub(in crate::udp) fn allowance(&mut self, most_bytes: u64) -> u64 {
        if self.sent.len() == MAX_ON_WAY || self.is_again() {
            return 0;
        }
        let bytes = self.fresh_bytes(self.accepted, most_bytes);
        if bytes > 0 && self.has_window(bytes) {
            bytes
        } else {
            0
        }
    }

    /// Cuts a packet that leaves to several receivers at once; it counts as sent. At most the [allowance](Self::allowance).
    pub(in crate::udp) fn next_shared(&mut self, bytes: u64, now_ns: u64) -> Cut {
        let offset = self.cut;
        self.may_probe = false;
        self.cut += bytes;
        let packet = self.note(offset, bytes, true, now_ns);
        Cut {
            packet,
            offset,
            bytes,
            is_again: false,
        }
    }

    /// Whether shared packets seem to get lost altogether, though the receiver is there: as where a switch forgets who is in a group.
    pub(in crate::udp) fn suspects_group(&self) -> bool {
        self.shared_lost >= SHARED_LOST && self.apart_answered >= APART_ANSWERED
    }

    /// Forgets the suspicion.
    pub(in crate::udp) fn trust_group(&mut self) {
        (self.shared_lost, self.apart_answered) = (0, 0);
    }

    /// How long others may wait for this one's window: an answer that is on its way comes sooner.
    pub(in crate::udp) fn patience_ns(&self) -> u64 {
        self.round_trip.reordering_ns().min(MAX_PATIENCE_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Due;
    use super::*;
    use crate::udp::receiving::Seen;
    use crate::udp::settings::Delivery;

    const MS: u64 = 1_000_000;

    /// A sender whose receiver has room, with so many bytes that wait.
    fn waiting(bytes: u64) -> Sending {
        let mut near = Sending::new(Delivery::Reliable, 1000);
        near.answered(&Seen::default().answer(0, 1 << 20, 0, false), 0, 0)
            .expect("the first answer is good");
        near.accept(bytes);
        near.hold_at(0);
        near
    }

    /// Hears that these packets have come, of which the bytes up to `received` are all there.
    fn hear(near: &mut Sending, packets: impl IntoIterator<Item = u64>, received: u64, now_ns: u64) {
        let mut seen = Seen::default();
        packets.into_iter().for_each(|packet| seen.note(packet));
        let answer = seen.answer(received, 1 << 20, 0, false);
        near.answered(&answer, 0, now_ns)
            .expect("true answers are possible");
    }

    #[test]
    fn what_is_held_leaves_with_others_only_and_what_is_lost_by_itself() {
        let mut near = waiting(9000);
        assert_eq!(near.next(1000, 1), None, "it is held");
        let packets: Vec<u64> = (0..5).map(|_| near.next_shared(1000, 1).packet).collect();
        assert_eq!(packets, [1, 2, 3, 4, 5]);
        hear(&mut near, [2, 3, 4, 5], 0, MS);
        assert_eq!(near.allowance(1000), 0, "what was lost goes first");
        let again = near.next(1000, MS).expect("the lost bytes");
        assert_eq!((again.offset, again.bytes, again.packet), (0, 1000, 6));
        assert_eq!((near.next(1000, MS), near.allowance(1000)), (None, 1000));
        near.hold_at(6000);
        assert_eq!(
            near.next(5000, MS).map(|cut| (cut.offset, cut.bytes)),
            Some((5000, 1000))
        );
    }

    #[test]
    fn what_goes_two_ways_may_overtake_but_not_for_long() {
        let mut near = waiting(10_000);
        near.hold_at(1000);
        let alone = near.next(1000, 0).expect("it may leave");
        let shared: Vec<u64> = (0..4).map(|_| near.next_shared(1000, 0).packet).collect();
        hear(&mut near, shared.iter().copied(), 0, MS);
        assert!(!near.is_again(), "the one that left by itself is on its way");
        hear(&mut near, [alone.packet].into_iter().chain(shared), 5000, 2 * MS);
        let last = near.next_shared(1000, 2 * MS);
        let (ping, _) = near.ping(false, 2 * MS).expect("there is room");
        hear(&mut near, [ping], 5000, 3 * MS);
        assert!(!near.is_again());
        let due_ns = near.due_ns(true).expect("something is on its way");
        assert_eq!(near.due(true, due_ns), Due::Nothing);
        assert_eq!(near.next(1000, due_ns).map(|cut| cut.offset), Some(last.offset));
    }

    #[test]
    fn a_group_is_suspected_when_only_what_leaves_alone_arrives() {
        let mut near = waiting(100_000);
        for _ in 0..SHARED_LOST {
            near.next_shared(500, 0);
        }
        assert!(!near.suspects_group());
        let mut now_ns = 0;
        for _ in 0..APART_ANSWERED + 2 {
            now_ns += 1000 * MS;
            let (ping, _) = near.ping(false, now_ns).expect("there is room");
            hear(&mut near, [ping], 0, now_ns + MS);
        }
        assert!(near.suspects_group());
        near.trust_group();
        assert!(!near.suspects_group());
    }

    #[test]
    fn a_path_that_is_cut_both_ways_says_nothing_of_the_group() {
        let mut near = waiting(100_000);
        let first = near.next_shared(500, 0).packet;
        hear(&mut near, [first], 500, MS);
        for _ in 0..2 * SHARED_LOST {
            near.next_shared(500, MS);
        }
        let mut now_ns = MS;
        for _ in 0..5 {
            now_ns += 1000 * MS;
            assert_eq!(near.due(true, now_ns), Due::Ping);
            let _ = near.ping(false, now_ns);
        }
        assert!(near.is_again() && !near.suspects_group());
    }
}
