//! Detects loss, as in RFC 9002, 6.1: a packet is lost when three later ones, or a later one and
//! enough time, have overtaken it. Silence is answered by a ping (RFC 9002, 6.2).

use super::{MAX_IN_FLIGHT, MAX_UNANSWERED_PINGS, REORDERED, SAFE_BYTES, Sending, TimerAction};
use crate::udp::settings::Delivery;
use crate::udp::wire::Ack;

impl Sending {
    /// Marks acknowledged packets; returns how many are new.
    pub(super) fn acknowledge(&mut self, ack: &Ack, now_ns: u64) -> u64 {
        let first = self.next_packet - self.sent.len() as u64;
        let (mut packets, mut bytes) = (0, 0);
        let largest = ack.largest.checked_sub(first);
        if let Some(sent) = largest.and_then(|at| self.sent.get(usize::try_from(at).ok()?)) {
            let largest = &mut self.largest_of[usize::from(sent.is_multicast)];
            *largest = ack.largest.max(*largest);
        }
        for (packet, sent) in (first..).zip(&mut self.sent) {
            if !sent.is_in_flight {
                continue;
            }
            let is_seen = ack.has_seen(packet);
            let is_received = sent.bytes > 0 && sent.offset + u64::from(sent.bytes) <= ack.received;
            if !is_seen && !is_received {
                if packet > ack.largest {
                    break;
                }
                continue;
            }
            sent.is_in_flight = false;
            self.in_flight -= 1;
            packets += 1;
            bytes += u64::from(sent.bytes);
            if is_seen {
                let largest = &mut self.largest_of[usize::from(sent.is_multicast)];
                *largest = packet.max(*largest);
                if sent.is_multicast {
                    (self.multicast_lost, self.unicast_acked) = (0, 0);
                } else if self.multicast_lost > 0 {
                    self.unicast_acked = self.unicast_acked.saturating_add(1);
                }
            }
            if sent.is_multicast {
                // Multicast says nothing of the unicast path.
            } else if u64::from(sent.bytes) > SAFE_BYTES {
                (self.long_lost, self.short_acked) = (0, 0);
            } else {
                self.short_acked = self.short_acked.saturating_add(1);
            }
            if packet == ack.largest && is_seen {
                let round_trip_ns = now_ns.saturating_sub(sent.at_ns);
                self.round_trip.measured(round_trip_ns);
                self.congestion.on_round_trip(round_trip_ns, now_ns);
            }
        }
        self.in_flight_bytes -= bytes;
        self.congestion.on_acked(packets, bytes);
        packets
    }

    /// Declares packets lost that later ones have overtaken by number or time.
    pub(super) fn detect_lost(&mut self, now_ns: u64) {
        let first = self.next_packet - self.sent.len() as u64;
        let stall_timeout_ns = self.round_trip.reordering_ns();
        let long_ns = self.round_trip.timeout_ns(0).max(stall_timeout_ns);
        for at in 0..self.sent.len() {
            let packet = first + at as u64;
            if packet >= self.largest {
                return;
            }
            let sent = &self.sent[at];
            let largest = self.largest_of[usize::from(sent.is_multicast)];
            let age_ns = now_ns.saturating_sub(sent.at_ns);
            let is_late = packet + REORDERED <= largest
                || (packet < largest && age_ns >= stall_timeout_ns)
                // Only a packet on the other path (unicast or multicast) has overtaken it.
                || age_ns >= long_ns;
            if sent.is_in_flight && is_late {
                self.declare_lost(at);
                self.congestion.on_lost();
            }
        }
    }

    fn declare_lost(&mut self, at: usize) {
        let sent = &mut self.sent[at];
        sent.is_in_flight = false;
        let (offset, end) = (sent.offset, sent.offset + u64::from(sent.bytes));
        self.in_flight -= 1;
        self.in_flight_bytes -= end - offset;
        if sent.is_multicast {
            self.multicast_lost = self.multicast_lost.saturating_add(1);
        } else if end - offset > SAFE_BYTES {
            self.long_lost = self.long_lost.saturating_add(1);
        }
        if self.delivery == Delivery::BestEffort || end <= self.received || offset == end {
            return;
        }
        let is_full = self.retransmit.len() > MAX_IN_FLIGHT;
        match self.retransmit.back_mut() {
            Some(last) if last.end == offset => last.end = end,
            // Retransmits too much rather than allocate.
            Some(last) if is_full => *last = last.start.min(offset)..last.end.max(end),
            _ => self.retransmit.push_back(offset..end),
        }
    }

    pub(super) fn drop_settled(&mut self) {
        while self.sent.front().is_some_and(|sent| !sent.is_in_flight) {
            self.sent.pop_front();
        }
    }

    /// When to call [`on_timer`](Self::on_timer); `awaits_credit` says whether the caller waits for
    /// credit.
    pub(in crate::udp) fn timer_ns(&self, awaits_credit: bool) -> Option<u64> {
        let first = self.next_packet - self.sent.len() as u64;
        let overtaken = self.sent.front().filter(|_| first < self.largest);
        let late_ns = overtaken.map(|sent| {
            let stall_timeout_ns = self.round_trip.reordering_ns();
            if first < self.largest_of[usize::from(sent.is_multicast)] {
                sent.at_ns + stall_timeout_ns
            } else {
                sent.at_ns + self.round_trip.timeout_ns(0).max(stall_timeout_ns)
            }
        });
        let silence_ends_ns = (self.is_unacknowledged() || awaits_credit).then(|| self.silence_ends_ns());
        late_ns.into_iter().chain(silence_ends_ns).min()
    }

    fn silence_ends_ns(&self) -> u64 {
        self.last_activity_ns + self.round_trip.timeout_ns(self.pings.max(self.credit_pings))
    }

    /// Handles an expired timer; `awaits_credit` as for [`timer_ns`](Self::timer_ns).
    pub(in crate::udp) fn on_timer(&mut self, awaits_credit: bool, now_ns: u64) -> TimerAction {
        self.detect_lost(now_ns);
        self.drop_settled();
        let is_unacknowledged = self.is_unacknowledged();
        if !(is_unacknowledged || awaits_credit) || now_ns < self.silence_ends_ns() {
            return TimerAction::Nothing;
        }
        self.last_activity_ns = now_ns;
        if !is_unacknowledged {
            self.credit_pings += 1;
            return TimerAction::Ping;
        }
        self.pings += 1;
        if self.pings >= MAX_UNANSWERED_PINGS || self.delivery == Delivery::BestEffort {
            for at in 0..self.sent.len() {
                if self.sent[at].is_in_flight {
                    self.declare_lost(at);
                }
            }
            self.drop_settled();
            if self.pings >= MAX_UNANSWERED_PINGS {
                self.congestion.collapse();
            }
        } else if let Some(at) = self.sent.iter().position(|sent| sent.is_in_flight) {
            // The oldest packet is sent again regardless of the window: its acknowledgement reports
            // on all the others.
            self.declare_lost(at);
            self.drop_settled();
        }
        self.may_probe = !self.retransmit.is_empty();
        TimerAction::Ping
    }
}
