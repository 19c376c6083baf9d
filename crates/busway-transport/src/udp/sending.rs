//! The sender's side of the protocol: which bytes of the stream leave in which packet, what is lost, and when to ask.
//!
//! Pure: no socket, no clock, no messages. [`super::sender`] tells it what was accepted, what arrived and what time it is, and sends what
//! [`Sending::next`] cuts; the oracle in `protocol_tests` drives it through a simulated path. Loss is detected as in RFC 9002, 6.1: by
//! three later packets, or by time. With [`Delivery::Reliable`] lost bytes are cut anew, under new packet numbers; with
//! [`Delivery::BestEffort`] they are given up. Silence is answered by a ping in either case (RFC 9002, 6.2). Nothing here allocates
//! after [`Sending::new`].

mod shared;

use std::collections::VecDeque;
use std::ops::Range;

use super::congestion::{Congestion, RoundTrip};
use super::settings::Delivery;
use super::wire::{Answer, RUN_BYTES};

/// Packets on their way at most; fewer than an answer tells of.
const MAX_ON_WAY: usize = 1000;
/// A packet is lost when one sent so many later was answered (RFC 9002, 6.1.1).
const REORDERED: u64 = 3;
/// After so many pings without an answer everything on its way is held for lost.
const HOPELESS: u32 = 3;
/// A path that lost so many long packets in a row, and carried so many short ones meanwhile, is not trusted with long ones.
const LONG_LOST: u32 = 6;
const SHORT_ANSWERED: u32 = 3;
/// What every path carries: the least of IPv6 (RFC 8200, 5) less the heads of IPv6 and UDP.
pub(super) const SAFE_DATAGRAM_BYTES: usize = 1280 - 48;
/// Bytes of the stream in such a datagram.
const SAFE_BYTES: u64 = (SAFE_DATAGRAM_BYTES - RUN_BYTES) as u64;
/// A packet takes at least so much of the room that the receiver gives. Its socket's buffer, four times that room where nothing is sent twice, holds
/// the system's bookkeeping of each datagram besides: 1280 bytes for a short one, 2304 with network cards that spend a page's half on each.
const LEAST_ROOM_BYTES: u64 = 1024;
/// The receiver may give room for so many bytes at most; what is more counts as this.
const MAX_ROOM_BYTES: u64 = 1 << 30;

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    offset: u64,
    bytes: u32,
    at_ns: u64,
    is_on_way: bool,
    /// It left to several receivers at once.
    is_shared: bool,
}

/// What leaves next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) packet: u64,
    /// Bytes of the stream.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    is_again: bool,
}

/// What a look at the clock has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// The receiver is to be asked.
    Ping,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sending {
    delivery: Delivery,
    /// Of the packet that leaves next.
    next_packet: u64,
    /// Packets from `next_packet - sent.len()` on.
    sent: VecDeque<Sent>,
    /// What was lost and leaves again.
    again: VecDeque<Range<u64>>,
    /// Ends of the stream as far as it was cut, accepted, confirmed, and has room at the receiver.
    cut: u64,
    accepted: u64,
    received: u64,
    limit: u64,
    /// What was never cut leaves up to here by itself; beyond, only with others.
    hold_at: u64,
    /// Messages that the far end's sink has taken.
    taken: u64,
    largest: u64,
    /// The same of the packets that left by themselves, and of the shared ones: the two may overtake each other.
    largest_of: [u64; 2],
    on_way_bytes: u64,
    on_way: usize,
    congestion: Congestion,
    round_trip: RoundTrip,
    /// Pings since the last answer.
    attempt: u32,
    /// Pings for credit alone since the last answer that gave some.
    asked: u32,
    /// Of long packets lost, and of short ones answered, since a long one was.
    long_lost: u32,
    short_answered: u32,
    /// Of shared packets lost, and of others answered, since a shared one was.
    shared_lost: u32,
    apart_answered: u32,
    /// When something last left, or an answer came.
    stirred_ns: u64,
    /// Whether a packet that overtakes the rules of the window may leave.
    may_probe: bool,
    is_ended: bool,
    /// An end was sent, which is to be answered.
    awaits_end: bool,
}

/// An answer that can't be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Impossible;

impl Sending {
    pub(super) fn new(delivery: Delivery, datagram_bytes: u64) -> Sending {
        Sending {
            delivery,
            next_packet: 1,
            sent: VecDeque::with_capacity(MAX_ON_WAY),
            again: VecDeque::with_capacity(MAX_ON_WAY + 1),
            cut: 0,
            accepted: 0,
            received: 0,
            limit: 0,
            hold_at: u64::MAX,
            taken: 0,
            largest: 0,
            largest_of: [0; 2],
            on_way_bytes: 0,
            on_way: 0,
            congestion: Congestion::new(datagram_bytes),
            round_trip: RoundTrip::default(),
            attempt: 0,
            asked: 0,
            long_lost: 0,
            short_answered: 0,
            shared_lost: 0,
            apart_answered: 0,
            stirred_ns: 0,
            may_probe: false,
            is_ended: false,
            awaits_end: false,
        }
    }

    /// The stream is so many bytes longer.
    pub(super) fn accept(&mut self, bytes: u64) {
        self.accepted += bytes;
    }

    /// End of the stream as far as it was accepted.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// End of what was cut at least once.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    /// What is needed no more: all bytes before.
    pub(super) fn released(&self) -> u64 {
        match self.delivery {
            Delivery::Reliable => self.received,
            Delivery::BestEffort => self.cut,
        }
    }

    /// Messages that the far end's sink has taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether bytes wait to be cut.
    pub(super) fn is_waiting(&self) -> bool {
        self.cut < self.accepted || !self.again.is_empty()
    }

    /// Whether something is on its way, or lost, of which the receiver has said nothing.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.on_way > 0 || self.received < self.cut || (self.awaits_end && !self.is_ended)
    }

    /// Whether an end was sent.
    pub(super) fn is_asked_to_end(&self) -> bool {
        self.awaits_end
    }

    /// The receiver has taken everything, and knows that the stream has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// The path carries datagrams of another size from now on.
    pub(super) fn set_datagram_bytes(&mut self, bytes: u64) {
        (self.long_lost, self.short_answered) = (0, 0);
        self.congestion.set_datagram_bytes(bytes);
    }

    /// Whether the path seems to swallow long datagrams: of those none was answered, while short ones were (RFC 8899, 4.3). A path that
    /// was cut for a while answers none of either.
    pub(super) fn suspects_size(&self) -> bool {
        self.long_lost >= LONG_LOST && self.short_answered >= SHORT_ANSWERED
    }

    /// Cuts the next packet of at most so many bytes of the stream; it counts as sent. `None` if nothing may leave now.
    #[inline]
    pub(super) fn next(&mut self, most_bytes: u64, now_ns: u64) -> Option<Cut> {
        if self.sent.len() == MAX_ON_WAY {
            return None;
        }
        let is_again = self.is_again();
        let (offset, bytes) = match self.again.front() {
            Some(range) => {
                let offset = range.start.max(self.received);
                (offset, (range.end - offset).min(most_bytes))
            }
            None => {
                let end = self.accepted.min(self.hold_at);
                (self.cut, self.fresh_bytes(end, most_bytes))
            }
        };
        if bytes == 0 || !self.has_window(bytes) {
            return None;
        }
        self.may_probe = false;
        if is_again {
            let is_done = self.again.front_mut().is_some_and(|range| {
                range.start = offset + bytes;
                range.is_empty()
            });
            if is_done {
                self.again.pop_front();
            }
        } else {
            self.cut += bytes;
        }
        let packet = self.note(offset, bytes, false, now_ns);
        Some(Cut {
            packet,
            offset,
            bytes,
            is_again,
        })
    }

    /// Whether something leaves again, before anything else.
    #[inline]
    fn is_again(&mut self) -> bool {
        while self.again.front().is_some_and(|range| range.end <= self.received) {
            self.again.pop_front();
        }
        !self.again.is_empty()
    }

    /// Bytes of a packet that the receiver has room for, of those never cut that lie before `end`.
    #[inline]
    fn fresh_bytes(&self, end: u64, most_bytes: u64) -> u64 {
        let rest_bytes = end.saturating_sub(self.cut);
        let room_bytes = self.limit.saturating_sub(self.cut);
        if self.on_way as u64 > self.limit.saturating_sub(self.received) / LEAST_ROOM_BYTES {
            return 0;
        }
        // No crumbs because of a window that opens slowly (RFC 9293, 3.8.6.2).
        if room_bytes < rest_bytes.min(most_bytes) && self.on_way > 0 {
            return 0;
        }
        rest_bytes.min(room_bytes).min(most_bytes)
    }

    #[inline]
    fn has_window(&mut self, bytes: u64) -> bool {
        let is_open = self.on_way_bytes + bytes <= self.congestion.window_bytes() || self.may_probe;
        if !is_open {
            self.congestion.is_full();
        }
        is_open
    }

    /// A packet without bytes leaves, which asks for an answer; returns its number and offset. `None` while too many are on their way.
    pub(super) fn ping(&mut self, is_end: bool, now_ns: u64) -> Option<(u64, u64)> {
        if self.sent.len() == MAX_ON_WAY {
            return None;
        }
        self.awaits_end |= is_end;
        let offset = self.cut;
        Some((self.note(offset, 0, false, now_ns), offset))
    }

    #[inline]
    fn note(&mut self, offset: u64, bytes: u64, is_shared: bool, now_ns: u64) -> u64 {
        self.sent.push_back(Sent {
            offset,
            bytes: bytes as u32, // a datagram's
            at_ns: now_ns,
            is_on_way: true,
            is_shared,
        });
        self.on_way_bytes += bytes;
        self.on_way += 1;
        self.stirred_ns = now_ns;
        self.next_packet += 1;
        self.next_packet - 1
    }

    /// The packet cut last did not leave after all. Only in the opposite order of [`next`](Self::next).
    pub(super) fn take_back(&mut self, cut: Cut) {
        let Some(sent) = self.sent.pop_back() else { return };
        debug_assert_eq!((sent.offset, cut.packet + 1), (cut.offset, self.next_packet));
        self.next_packet -= 1;
        self.on_way -= 1;
        self.on_way_bytes -= cut.bytes;
        if cut.is_again {
            self.again.push_front(cut.offset..cut.offset + cut.bytes);
        } else {
            self.cut = cut.offset;
        }
    }

    /// Takes in what the receiver says of `messages` accepted messages.
    ///
    /// # Errors
    /// It speaks of what was never sent.
    pub(super) fn answered(&mut self, answer: &Answer, messages: u64, now_ns: u64) -> Result<(), Impossible> {
        if answer.largest >= self.next_packet
            || answer.received > self.cut
            || answer.taken > messages
            || answer.limit < answer.received
        {
            return Err(Impossible);
        }
        let told_new =
            answer.received > self.received || answer.taken > self.taken || answer.limit > self.limit;
        self.received = self.received.max(answer.received);
        self.taken = self.taken.max(answer.taken);
        self.limit = self.limit.max(answer.limit.min(answer.received + MAX_ROOM_BYTES));
        self.is_ended |= answer.is_ended && self.awaits_end;
        let answered = self.settle(answer, now_ns);
        if told_new {
            self.asked = 0;
        }
        if told_new || answered > 0 {
            self.attempt = 0;
            self.stirred_ns = now_ns;
        }
        self.largest = self.largest.max(answer.largest);
        self.find_lost(now_ns);
        self.forget_settled();
        self.congestion.judge(self.largest, self.next_packet);
        Ok(())
    }

    /// Takes answered packets off the way; returns how many those were.
    fn settle(&mut self, answer: &Answer, now_ns: u64) -> u64 {
        let first = self.next_packet - self.sent.len() as u64;
        let (mut datagrams, mut bytes) = (0, 0);
        let largest = answer.largest.checked_sub(first);
        if let Some(sent) = largest.and_then(|at| self.sent.get(usize::try_from(at).ok()?)) {
            let largest = &mut self.largest_of[usize::from(sent.is_shared)];
            *largest = answer.largest.max(*largest);
        }
        for (packet, sent) in (first..).zip(&mut self.sent) {
            if !sent.is_on_way {
                continue;
            }
            let is_seen = answer.has_seen(packet);
            let is_received = sent.bytes > 0 && sent.offset + u64::from(sent.bytes) <= answer.received;
            if !is_seen && !is_received {
                if packet > answer.largest {
                    break;
                }
                continue;
            }
            sent.is_on_way = false;
            self.on_way -= 1;
            datagrams += 1;
            bytes += u64::from(sent.bytes);
            if is_seen {
                let largest = &mut self.largest_of[usize::from(sent.is_shared)];
                *largest = packet.max(*largest);
                if sent.is_shared {
                    (self.shared_lost, self.apart_answered) = (0, 0);
                } else if self.shared_lost > 0 {
                    self.apart_answered = self.apart_answered.saturating_add(1);
                }
            }
            if sent.is_shared {
                // It says nothing of what leaves by itself.
            } else if u64::from(sent.bytes) > SAFE_BYTES {
                (self.long_lost, self.short_answered) = (0, 0);
            } else {
                self.short_answered = self.short_answered.saturating_add(1);
            }
            if packet == answer.largest && is_seen {
                let round_trip_ns = now_ns.saturating_sub(sent.at_ns);
                self.round_trip.measured(round_trip_ns);
                self.congestion.measured(round_trip_ns, now_ns);
            }
        }
        self.on_way_bytes -= bytes;
        self.congestion.answered(datagrams, bytes);
        datagrams
    }

    /// Holds packets for lost that later ones have overtaken by number or time.
    fn find_lost(&mut self, now_ns: u64) {
        let first = self.next_packet - self.sent.len() as u64;
        let patience_ns = self.round_trip.reordering_ns();
        let long_ns = self.round_trip.timeout_ns(0).max(patience_ns);
        for at in 0..self.sent.len() {
            let packet = first + at as u64;
            if packet >= self.largest {
                return;
            }
            let sent = &self.sent[at];
            let largest = self.largest_of[usize::from(sent.is_shared)];
            let age_ns = now_ns.saturating_sub(sent.at_ns);
            let is_late = packet + REORDERED <= largest
                || (packet < largest && age_ns >= patience_ns)
                // Only what went another way has overtaken it.
                || age_ns >= long_ns;
            if sent.is_on_way && is_late {
                self.lose(at);
                self.congestion.lost();
            }
        }
    }

    fn lose(&mut self, at: usize) {
        let sent = &mut self.sent[at];
        sent.is_on_way = false;
        let (offset, end) = (sent.offset, sent.offset + u64::from(sent.bytes));
        self.on_way -= 1;
        self.on_way_bytes -= end - offset;
        if sent.is_shared {
            self.shared_lost = self.shared_lost.saturating_add(1);
        } else if end - offset > SAFE_BYTES {
            self.long_lost = self.long_lost.saturating_add(1);
        }
        if self.delivery == Delivery::BestEffort || end <= self.received || offset == end {
            return;
        }
        let is_full = self.again.len() > MAX_ON_WAY;
        match self.again.back_mut() {
            Some(last) if last.end == offset => last.end = end,
            // Rather too much again than an allocation.
            Some(last) if is_full => *last = last.start.min(offset)..last.end.max(end),
            _ => self.again.push_back(offset..end),
        }
    }

    fn forget_settled(&mut self) {
        while self.sent.front().is_some_and(|sent| !sent.is_on_way) {
            self.sent.pop_front();
        }
    }

    /// When [`due`](Self::due) must be called; `wants` says whether the caller waits for credit.
    pub(super) fn due_ns(&self, wants: bool) -> Option<u64> {
        let first = self.next_packet - self.sent.len() as u64;
        let overtaken = self.sent.front().filter(|_| first < self.largest);
        let late_ns = overtaken.map(|sent| {
            let patience_ns = self.round_trip.reordering_ns();
            if first < self.largest_of[usize::from(sent.is_shared)] {
                sent.at_ns + patience_ns
            } else {
                sent.at_ns + self.round_trip.timeout_ns(0).max(patience_ns)
            }
        });
        let silent_ns = (self.is_unconfirmed() || wants).then(|| self.silent_ns());
        late_ns.into_iter().chain(silent_ns).min()
    }

    fn silent_ns(&self) -> u64 {
        self.stirred_ns + self.round_trip.timeout_ns(self.attempt.max(self.asked))
    }

    /// Looks at the clock; `wants` as for [`due_ns`](Self::due_ns).
    pub(super) fn due(&mut self, wants: bool, now_ns: u64) -> Due {
        self.find_lost(now_ns);
        self.forget_settled();
        let is_unconfirmed = self.is_unconfirmed();
        if !(is_unconfirmed || wants) || now_ns < self.silent_ns() {
            return Due::Nothing;
        }
        self.stirred_ns = now_ns;
        if !is_unconfirmed {
            self.asked += 1;
            return Due::Ping;
        }
        self.attempt += 1;
        if self.attempt >= HOPELESS || self.delivery == Delivery::BestEffort {
            for at in 0..self.sent.len() {
                if self.sent[at].is_on_way {
                    self.lose(at);
                }
            }
            self.forget_settled();
            if self.attempt >= HOPELESS {
                self.congestion.collapse();
            }
        } else if let Some(at) = self.sent.iter().position(|sent| sent.is_on_way) {
            // The oldest goes again, whatever the window says: its answer tells of all the others.
            self.lose(at);
            self.forget_settled();
        }
        self.may_probe = !self.again.is_empty();
        Due::Ping
    }
}
