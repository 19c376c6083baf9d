//! Packets of a stream that leave by multicast, each with its own number in each stream.

use super::{Cut, MAX_IN_FLIGHT, Sending};

/// A group that loses this many packets in a row, while this many unicast ones are acknowledged, is
/// taken to reach nobody.
const MULTICAST_LOST: u32 = 16;
const UNICAST_ACKED: u32 = 3;
/// Longest time that other receivers wait for one without credit.
const MAX_STALL_NS: u64 = 10_000_000;
impl Sending {
    /// From now on bytes never cut leave by unicast only before this offset.
    pub(in crate::udp) fn set_unicast_limit(&mut self, offset: u64) {
        self.unicast_limit = offset;
    }

    /// Bytes that [`next_multicast`](Self::next_multicast) may cut now; 0 while lost bytes wait for
    /// their retransmission.
    pub(in crate::udp) fn multicast_allowance(&mut self, most_bytes: u64) -> u64 {
        if self.sent.len() == MAX_IN_FLIGHT || self.is_retransmission() {
            return 0;
        }
        let bytes = self.fresh_bytes(self.accepted, most_bytes);
        if bytes > 0 && self.has_window(bytes) {
            bytes
        } else {
            0
        }
    }

    /// Cuts a packet for multicast, at most as long as the [allowance](Self::multicast_allowance);
    /// it counts as sent.
    pub(in crate::udp) fn next_multicast(&mut self, bytes: u64, now_ns: u64) -> Cut {
        let offset = self.cut;
        self.may_probe = false;
        self.cut += bytes;
        let packet = self.record(offset, bytes, true, now_ns);
        Cut {
            packet,
            offset,
            bytes,
            is_retransmission: false,
        }
    }

    /// Whether multicast seems not to reach the receiver while unicast does, for example because a
    /// switch has forgotten who has joined.
    pub(in crate::udp) fn suspects_multicast(&self) -> bool {
        self.multicast_lost >= MULTICAST_LOST && self.unicast_acked >= UNICAST_ACKED
    }

    pub(in crate::udp) fn trust_multicast(&mut self) {
        (self.multicast_lost, self.unicast_acked) = (0, 0);
    }

    /// How long others wait for this receiver's credit: an acknowledgement that is on its way comes
    /// sooner.
    pub(in crate::udp) fn stall_timeout_ns(&self) -> u64 {
        self.round_trip.reordering_ns().min(MAX_STALL_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TimerAction;
    use super::*;
    use crate::udp::receiving::ReceivedPackets;
    use crate::udp::settings::Delivery;

    const MS: u64 = 1_000_000;

    /// A sender with this many bytes to send, whose receiver has granted credit.
    fn waiting(bytes: u64) -> Sending {
        let mut sender = Sending::new(Delivery::Reliable, 1000);
        sender
            .on_ack(&ReceivedPackets::default().ack(0, 1 << 20, 0, false), 0, 0)
            .expect("the first answer is good");
        sender.accept(bytes);
        sender.set_unicast_limit(0);
        sender
    }

    /// Handles the acknowledgement of these packets, of which the bytes up to `received` are
    /// complete.
    fn receive(sender: &mut Sending, packets: impl IntoIterator<Item = u64>, received: u64, now_ns: u64) {
        let mut seen = ReceivedPackets::default();
        packets.into_iter().for_each(|packet| seen.insert(packet));
        let ack = seen.ack(received, 1 << 20, 0, false);
        sender.on_ack(&ack, 0, now_ns).expect("true answers are possible");
    }

    #[test]
    fn first_transmissions_are_multicast_and_retransmissions_unicast() {
        let mut sender = waiting(9000);
        assert_eq!(sender.next(1000, 1), None, "it is held");
        let packets: Vec<u64> = (0..5).map(|_| sender.next_multicast(1000, 1).packet).collect();
        assert_eq!(packets, [1, 2, 3, 4, 5]);
        receive(&mut sender, [2, 3, 4, 5], 0, MS);
        assert_eq!(sender.multicast_allowance(1000), 0, "what was lost goes first");
        let retransmit = sender.next(1000, MS).expect("the lost bytes");
        assert_eq!(
            (retransmit.offset, retransmit.bytes, retransmit.packet),
            (0, 1000, 6)
        );
        assert_eq!(
            (sender.next(1000, MS), sender.multicast_allowance(1000)),
            (None, 1000)
        );
        sender.set_unicast_limit(6000);
        assert_eq!(
            sender.next(5000, MS).map(|cut| (cut.offset, cut.bytes)),
            Some((5000, 1000))
        );
    }

    #[test]
    fn packet_overtaken_on_the_other_path_is_lost_after_a_timeout() {
        let mut sender = waiting(10_000);
        sender.set_unicast_limit(1000);
        let alone = sender.next(1000, 0).expect("it may leave");
        let shared: Vec<u64> = (0..4).map(|_| sender.next_multicast(1000, 0).packet).collect();
        receive(&mut sender, shared.iter().copied(), 0, MS);
        assert!(
            !sender.is_retransmission(),
            "the one that left by itself is on its way"
        );
        receive(
            &mut sender,
            [alone.packet].into_iter().chain(shared),
            5000,
            2 * MS,
        );
        let last = sender.next_multicast(1000, 2 * MS);
        let (ping, _) = sender.ping(false, 2 * MS).expect("there is room");
        receive(&mut sender, [ping], 5000, 3 * MS);
        assert!(!sender.is_retransmission());
        let timer_ns = sender.timer_ns(true).expect("something is on its way");
        assert_eq!(sender.on_timer(true, timer_ns), TimerAction::Nothing);
        assert_eq!(
            sender.next(1000, timer_ns).map(|cut| cut.offset),
            Some(last.offset)
        );
    }

    #[test]
    fn group_is_suspected_when_only_unicast_arrives() {
        let mut sender = waiting(100_000);
        for _ in 0..MULTICAST_LOST {
            sender.next_multicast(500, 0);
        }
        assert!(!sender.suspects_multicast());
        let mut now_ns = 0;
        for _ in 0..UNICAST_ACKED + 2 {
            now_ns += 1000 * MS;
            let (ping, _) = sender.ping(false, now_ns).expect("there is room");
            receive(&mut sender, [ping], 0, now_ns + MS);
        }
        assert!(sender.suspects_multicast());
        sender.trust_multicast();
        assert!(!sender.suspects_multicast());
    }

    #[test]
    fn interrupted_path_does_not_suspect_the_group() {
        let mut sender = waiting(100_000);
        let first = sender.next_multicast(500, 0).packet;
        receive(&mut sender, [first], 500, MS);
        for _ in 0..2 * MULTICAST_LOST {
            sender.next_multicast(500, MS);
        }
        let mut now_ns = MS;
        for _ in 0..5 {
            now_ns += 1000 * MS;
            assert_eq!(sender.on_timer(true, now_ns), TimerAction::Ping);
            let _ = sender.ping(false, now_ns);
        }
        assert!(sender.is_retransmission() && !sender.suspects_multicast());
    }
}
