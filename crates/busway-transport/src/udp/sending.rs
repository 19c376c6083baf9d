//! The sender's side of the protocol: which bytes of the stream leave in which packet, what is
//! lost, and when to ping.
//!
//! Pure: no socket, no clock, no messages. The caller passes in what was accepted, what arrived and
//! the time, and sends what [`Sending::next`] cuts. The oracle in `protocol_tests` drives it over a
//! simulated path. With [`Delivery::Reliable`] lost bytes are cut again, under new packet numbers;
//! with [`Delivery::BestEffort`] they are abandoned. Nothing here allocates after [`Sending::new`].

mod loss;
mod multicast;

use std::collections::VecDeque;
use std::ops::Range;

use super::congestion::{Congestion, RoundTrip};
use super::settings::Delivery;
use super::wire::{Ack, DATA_HEADER_BYTES};

/// Packets in flight at most; fewer than an acknowledgement can report.
const MAX_IN_FLIGHT: usize = 1000;
/// A packet is lost when one sent this much later was acknowledged (RFC 9002, 6.1.1).
const REORDERED: u64 = 3;
/// After this many pings without an answer everything in flight is declared lost.
const MAX_UNANSWERED_PINGS: u32 = 3;
/// A path that loses this many long packets in a row, while this many short ones pass, is taken to
/// drop long ones.
const LONG_LOST: u32 = 6;
const SHORT_ACKED: u32 = 3;
/// What every path carries: the minimum of IPv6 (RFC 8200, 5) less the headers of IPv6 and UDP.
pub(super) const SAFE_DATAGRAM_BYTES: usize = 1280 - 48;
const SAFE_BYTES: u64 = (SAFE_DATAGRAM_BYTES - DATA_HEADER_BYTES) as u64;
/// A packet uses at least this much of the receiver's credit. A best-effort receiver's socket
/// buffer is four times the credit and also holds the kernel's bookkeeping for each datagram: 1280
/// bytes for a short one, 2304 with network cards that use half a page for each.
const MIN_CREDIT_BYTES: u64 = 1024;
/// Upper bound of the credit that a receiver may grant.
const MAX_CREDIT_BYTES: u64 = 1 << 30;

#[derive(Clone, Copy, Debug)]
struct Sent {
    offset: u64,
    bytes: u32,
    at_ns: u64,
    is_in_flight: bool,
    /// It was sent by multicast.
    is_multicast: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) packet: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    is_retransmission: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerAction {
    Nothing,
    Ping,
}

#[derive(Debug, Default)]
pub(super) struct Sending {
    delivery: Delivery,
    next_packet: u64,
    /// The packets from `next_packet - sent.len()` on.
    sent: VecDeque<Sent>,
    retransmit: VecDeque<Range<u64>>,
    /// Offsets up to which the stream was cut, accepted, received, and granted by the receiver.
    cut: u64,
    accepted: u64,
    received: u64,
    limit: u64,
    /// Bytes never cut leave by unicast up to this offset; the rest leaves by multicast.
    unicast_limit: u64,
    taken: u64,
    largest: u64,
    /// Largest acknowledged packet by unicast and by multicast: the two may overtake each other.
    largest_of: [u64; 2],
    in_flight_bytes: u64,
    in_flight: usize,
    congestion: Congestion,
    round_trip: RoundTrip,
    /// Pings since the last acknowledgement.
    pings: u32,
    /// Pings for credit since the last acknowledgement that granted some.
    credit_pings: u32,
    /// Long packets lost, and short ones acknowledged, since a long one was acknowledged.
    long_lost: u32,
    short_acked: u32,
    /// Multicast packets lost, and unicast ones acknowledged, since a multicast one was
    /// acknowledged.
    multicast_lost: u32,
    unicast_acked: u32,
    /// When a packet last left or an acknowledgement last came.
    last_activity_ns: u64,
    /// Whether one packet may leave regardless of the window.
    may_probe: bool,
    is_ended: bool,
    /// An end was sent that is not acknowledged yet.
    awaits_end: bool,
}

/// An acknowledgement that cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidAck;

impl Sending {
    pub(super) fn new(delivery: Delivery, datagram_bytes: u64) -> Sending {
        Sending {
            delivery,
            next_packet: 1,
            sent: VecDeque::with_capacity(MAX_IN_FLIGHT),
            retransmit: VecDeque::with_capacity(MAX_IN_FLIGHT + 1),
            unicast_limit: u64::MAX,
            congestion: Congestion::new(datagram_bytes),
            ..Sending::default()
        }
    }

    pub(super) fn accept(&mut self, bytes: u64) {
        self.accepted += bytes;
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Offset up to which all bytes were cut at least once.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    /// Offset before which no byte is needed any more.
    pub(super) fn released(&self) -> u64 {
        match self.delivery {
            Delivery::Reliable => self.received,
            Delivery::BestEffort => self.cut,
        }
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.cut < self.accepted || !self.retransmit.is_empty()
    }

    /// Whether anything is in flight or lost that the receiver has not acknowledged.
    pub(super) fn is_unacknowledged(&self) -> bool {
        self.in_flight > 0 || self.received < self.cut || (self.awaits_end && !self.is_ended)
    }

    pub(super) fn has_sent_end(&self) -> bool {
        self.awaits_end
    }

    /// The receiver has taken everything and knows that the stream has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// The path carries datagrams of another size from now on.
    pub(super) fn set_datagram_bytes(&mut self, bytes: u64) {
        (self.long_lost, self.short_acked) = (0, 0);
        self.congestion.set_datagram_bytes(bytes);
    }

    /// Whether the path seems to drop long datagrams: none of them was acknowledged, while short
    /// ones were (RFC 8899, 4.3). A path that was interrupted acknowledges neither.
    pub(super) fn suspects_size(&self) -> bool {
        self.long_lost >= LONG_LOST && self.short_acked >= SHORT_ACKED
    }

    /// Cuts the next unicast packet, with at most `most_bytes` of the stream; it counts as sent.
    /// `None` if nothing may leave now.
    #[inline]
    pub(super) fn next(&mut self, most_bytes: u64, now_ns: u64) -> Option<Cut> {
        if self.sent.len() == MAX_IN_FLIGHT {
            return None;
        }
        let is_retransmission = self.is_retransmission();
        let (offset, bytes) = match self.retransmit.front() {
            Some(range) => {
                let offset = range.start.max(self.received);
                (offset, (range.end - offset).min(most_bytes))
            }
            None => {
                let end = self.accepted.min(self.unicast_limit);
                (self.cut, self.fresh_bytes(end, most_bytes))
            }
        };
        if bytes == 0 || !self.has_window(bytes) {
            return None;
        }
        self.may_probe = false;
        if is_retransmission {
            let is_done = self.retransmit.front_mut().is_some_and(|range| {
                range.start = offset + bytes;
                range.is_empty()
            });
            if is_done {
                self.retransmit.pop_front();
            }
        } else {
            self.cut += bytes;
        }
        let packet = self.record(offset, bytes, false, now_ns);
        Some(Cut {
            packet,
            offset,
            bytes,
            is_retransmission,
        })
    }

    /// Whether lost bytes are to be retransmitted, which go first.
    #[inline]
    fn is_retransmission(&mut self) -> bool {
        while self
            .retransmit
            .front()
            .is_some_and(|range| range.end <= self.received)
        {
            self.retransmit.pop_front();
        }
        !self.retransmit.is_empty()
    }

    /// Bytes of the next packet, never cut before and before `end`, that the receiver has credit
    /// for.
    #[inline]
    fn fresh_bytes(&self, end: u64, most_bytes: u64) -> u64 {
        let rest_bytes = end.saturating_sub(self.cut);
        let room_bytes = self.limit.saturating_sub(self.cut);
        if self.in_flight as u64 > self.limit.saturating_sub(self.received) / MIN_CREDIT_BYTES {
            return 0;
        }
        // No small packets because credit grows slowly (RFC 9293, 3.8.6.2).
        if room_bytes < rest_bytes.min(most_bytes) && self.in_flight > 0 {
            return 0;
        }
        rest_bytes.min(room_bytes).min(most_bytes)
    }

    #[inline]
    fn has_window(&mut self, bytes: u64) -> bool {
        let is_open = self.in_flight_bytes + bytes <= self.congestion.window_bytes() || self.may_probe;
        if !is_open {
            self.congestion.on_window_full();
        }
        is_open
    }

    /// Sends a packet without bytes, which the receiver acknowledges; returns its number and
    /// offset. `None` while too many are in flight.
    pub(super) fn ping(&mut self, is_end: bool, now_ns: u64) -> Option<(u64, u64)> {
        if self.sent.len() == MAX_IN_FLIGHT {
            return None;
        }
        self.awaits_end |= is_end;
        let offset = self.cut;
        Some((self.record(offset, 0, false, now_ns), offset))
    }

    #[inline]
    fn record(&mut self, offset: u64, bytes: u64, is_multicast: bool, now_ns: u64) -> u64 {
        self.sent.push_back(Sent {
            offset,
            bytes: bytes as u32, // a datagram's
            at_ns: now_ns,
            is_in_flight: true,
            is_multicast,
        });
        self.in_flight_bytes += bytes;
        self.in_flight += 1;
        self.last_activity_ns = now_ns;
        self.next_packet += 1;
        self.next_packet - 1
    }

    /// Undoes the last cut, whose packet did not leave. Calls must be in the opposite order of the
    /// cuts.
    pub(super) fn take_back(&mut self, cut: Cut) {
        let Some(sent) = self.sent.pop_back() else { return };
        debug_assert_eq!((sent.offset, cut.packet + 1), (cut.offset, self.next_packet));
        self.next_packet -= 1;
        self.in_flight -= 1;
        self.in_flight_bytes -= cut.bytes;
        if cut.is_retransmission {
            self.retransmit.push_front(cut.offset..cut.offset + cut.bytes);
        } else {
            self.cut = cut.offset;
        }
    }

    /// Handles an acknowledgement; `messages` is the number of messages accepted so far.
    ///
    /// # Errors
    /// It acknowledges what was never sent.
    pub(super) fn on_ack(&mut self, ack: &Ack, messages: u64, now_ns: u64) -> Result<(), InvalidAck> {
        if ack.largest >= self.next_packet
            || ack.received > self.cut
            || ack.taken > messages
            || ack.limit < ack.received
        {
            return Err(InvalidAck);
        }
        let is_news = ack.received > self.received || ack.taken > self.taken || ack.limit > self.limit;
        self.received = self.received.max(ack.received);
        self.taken = self.taken.max(ack.taken);
        self.limit = self.limit.max(ack.limit.min(ack.received + MAX_CREDIT_BYTES));
        self.is_ended |= ack.is_ended && self.awaits_end;
        let on_ack = self.acknowledge(ack, now_ns);
        if is_news {
            self.credit_pings = 0;
        }
        if is_news || on_ack > 0 {
            self.pings = 0;
            self.last_activity_ns = now_ns;
        }
        self.largest = self.largest.max(ack.largest);
        self.detect_lost(now_ns);
        self.drop_settled();
        self.congestion.update(self.largest, self.next_packet);
        Ok(())
    }
}
