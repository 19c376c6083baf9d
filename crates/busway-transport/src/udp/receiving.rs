//! The receiver's side of the protocol: what has arrived, what is missing, and what to acknowledge.
//!
//! Pure, like [`super::sending`]. Nothing here allocates after the constructors. A peer wrote all
//! numbers; [`super::wire::decode`] has checked that their sums do not overflow.

use super::wire::{Ack, SEEN_WORDS};

/// Ranges beyond a gap at most; bytes that would begin another one count as not arrived.
const MAX_RANGES: usize = 512;

/// The packets that have arrived, as far back as an acknowledgement reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceivedPackets {
    largest: u64,
    bits: [u64; SEEN_WORDS],
}

impl ReceivedPackets {
    pub(super) fn insert(&mut self, packet: u64) {
        if packet > self.largest {
            self.shift(packet - self.largest);
            self.largest = packet;
        }
        let age = self.largest - packet;
        if let Some(word) = usize::try_from(age / 64)
            .ok()
            .and_then(|at| self.bits.get_mut(at))
        {
            *word |= 1 << (age % 64);
        }
    }

    fn shift(&mut self, by: u64) {
        let words = usize::try_from(by / 64).unwrap_or(SEEN_WORDS).min(SEEN_WORDS);
        let bits = by % 64;
        for at in (0..SEEN_WORDS).rev() {
            let from = |back: usize| at.checked_sub(words + back).map_or(0, |source| self.bits[source]);
            let carried = if bits == 0 { 0 } else { from(1) >> (64 - bits) };
            self.bits[at] = from(0) << bits | carried;
        }
    }

    pub(super) fn ack(&self, received: u64, limit: u64, taken: u64, is_ended: bool) -> Ack {
        Ack {
            is_ended,
            has_joined: false,
            probe: 0,
            largest: self.largest,
            received,
            limit,
            taken,
            seen: self.bits,
        }
    }
}

/// What to do with bytes of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// The bytes from this index on come next in the stream.
    Next(usize),
    Old,
    /// They come after a gap: keep them.
    Early,
    NoRoom,
}

/// Which bytes of the stream have arrived.
#[derive(Debug)]
pub(super) struct Assembler {
    /// All bytes before were consumed.
    consumed: u64,
    /// Bytes from `consumed` on that may be kept.
    window_bytes: u64,
    /// Ranges kept beyond `consumed`: ascending, with gaps between them.
    ranges: Vec<(u64, u64)>,
}

impl Assembler {
    pub(super) fn new(window_bytes: u64) -> Assembler {
        Assembler {
            consumed: 0,
            window_bytes,
            ranges: Vec::with_capacity(MAX_RANGES),
        }
    }

    /// All bytes before were consumed.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// All bytes before have arrived.
    pub(super) fn received(&self) -> u64 {
        match self.ranges.first() {
            Some((start, end)) if *start <= self.consumed => *end,
            _ => self.consumed,
        }
    }

    /// The sender may send up to here.
    pub(super) fn limit(&self) -> u64 {
        self.consumed + self.window_bytes
    }

    /// What to do with bytes that have arrived.
    pub(super) fn classify(&self, offset: u64, bytes: u64) -> Placement {
        let end = offset + bytes;
        if end <= self.received() {
            Placement::Old
        } else if end > self.limit() {
            Placement::NoRoom
        } else if offset <= self.consumed {
            usize::try_from(self.consumed - offset).map_or(Placement::Old, Placement::Next)
        } else {
            Placement::Early
        }
    }

    /// Notes that bytes within the window are kept. False if that would make one range too many.
    pub(super) fn keep(&mut self, offset: u64, end: u64) -> bool {
        debug_assert!(self.consumed <= offset && end <= self.limit());
        let first = self.ranges.partition_point(|range| range.1 < offset);
        let after = self.ranges.partition_point(|range| range.0 <= end);
        if first == after {
            if self.ranges.len() == MAX_RANGES {
                return false;
            }
            self.ranges.insert(first, (offset, end));
            return true;
        }
        let joined = (
            self.ranges[first].0.min(offset),
            self.ranges[after - 1].1.max(end),
        );
        self.ranges[first] = joined;
        self.ranges.drain(first + 1..after);
        true
    }

    pub(super) fn consume(&mut self, bytes: u64) {
        self.consumed += bytes;
        let done = self.ranges.partition_point(|range| range.1 <= self.consumed);
        self.ranges.drain(..done);
        if let Some(first) = self.ranges.first_mut() {
            first.0 = first.0.max(self.consumed);
        }
    }

    /// Bytes kept that come next in the stream.
    pub(super) fn ready_bytes(&self) -> u64 {
        self.received() - self.consumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_in_any_order_are_recorded() {
        let mut received = ReceivedPackets::default();
        let packets = [1, 3, 2, 130, 64, 65, 129, 700, 1100, 90, 1099, 90_000, 89_999];
        for (at, packet) in packets.into_iter().enumerate() {
            received.insert(packet);
            let ack = received.ack(0, 0, 0, false);
            for packet in 0..2000u64 {
                let is_known = packets[..=at].contains(&packet) && ack.largest - packet < 1024;
                assert_eq!(ack.has_seen(packet), is_known, "packet {packet} after {at}");
            }
        }
    }

    #[test]
    fn assembler_classifies_bytes_around_gaps() {
        let mut assembler = Assembler::new(100);
        assert_eq!(assembler.classify(0, 10), Placement::Next(0));
        assembler.consume(10);
        assert_eq!(assembler.classify(0, 10), Placement::Old);
        assert_eq!(assembler.classify(5, 10), Placement::Next(5));
        assert_eq!(assembler.classify(20, 10), Placement::Early);
        assert!(assembler.keep(20, 30) && assembler.keep(40, 50) && assembler.keep(25, 45));
        assert_eq!((assembler.ready_bytes(), assembler.received()), (0, 10));
        assert_eq!(assembler.classify(100, 11), Placement::NoRoom);
        assert!(assembler.keep(10, 20));
        assert_eq!((assembler.ready_bytes(), assembler.received()), (40, 50));
        assembler.consume(25);
        assert_eq!((assembler.ready_bytes(), assembler.limit()), (15, 135));
    }

    #[test]
    fn range_beyond_the_limit_counts_as_not_arrived() {
        let mut assembler = Assembler::new(1 << 20);
        let kept = (1..1000u64)
            .filter(|at| assembler.keep(at * 10, at * 10 + 5))
            .count();
        assert_eq!(kept, MAX_RANGES);
        assert!(assembler.keep(15, 20), "what closes one is welcome");
    }
}
