//! The receiver's side of the protocol: what has arrived, what is missing, and what to answer.
//!
//! Pure, as [`super::sending`]; driven by [`super::receiver`] and by the oracle in `protocol_tests`. Nothing here allocates after
//! the constructors. All numbers were written by a peer: sums were checked by [`super::wire::decode`].

use super::wire::{Answer, SEEN_WORDS};

/// Runs that lie beyond a gap, at most; what would be one more counts as not arrived.
const MAX_RUNS: usize = 512;

/// The packets that have arrived, as far back as an answer tells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    largest: u64,
    bits: [u64; SEEN_WORDS],
}

impl Seen {
    /// A packet has arrived.
    pub(super) fn note(&mut self, packet: u64) {
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

    /// What to answer, with what else there is to say.
    pub(super) fn answer(&self, received: u64, limit: u64, taken: u64, is_ended: bool) -> Answer {
        Answer {
            is_ended,
            is_listening: false,
            heard: 0,
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
pub(super) enum Placed {
    /// The bytes from this one on are what is due.
    Due(usize),
    /// They have arrived before.
    Old,
    /// They come after a gap: keep them.
    Early,
    /// There is no room for them.
    NoRoom,
}

/// Which bytes of the stream have arrived.
#[derive(Debug)]
pub(super) struct Gaps {
    /// All bytes before were used.
    used: u64,
    /// Bytes from `used` on that may be kept.
    window_bytes: u64,
    /// What is kept: ascending, apart from each other.
    runs: Vec<(u64, u64)>,
}

impl Gaps {
    pub(super) fn new(window_bytes: u64) -> Gaps {
        Gaps {
            used: 0,
            window_bytes,
            runs: Vec::with_capacity(MAX_RUNS),
        }
    }

    /// All bytes before were used.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// All bytes before have arrived.
    pub(super) fn received(&self) -> u64 {
        match self.runs.first() {
            Some((start, end)) if *start <= self.used => *end,
            _ => self.used,
        }
    }

    /// The sender may send up to here.
    pub(super) fn limit(&self) -> u64 {
        self.used + self.window_bytes
    }

    /// What to do with bytes that have arrived.
    pub(super) fn place(&self, offset: u64, bytes: u64) -> Placed {
        let end = offset + bytes;
        if end <= self.received() {
            Placed::Old
        } else if end > self.limit() {
            Placed::NoRoom
        } else if offset <= self.used {
            usize::try_from(self.used - offset).map_or(Placed::Old, Placed::Due)
        } else {
            Placed::Early
        }
    }

    /// Bytes are kept: they lie within the window. False if that is one run too many.
    pub(super) fn keep(&mut self, offset: u64, end: u64) -> bool {
        debug_assert!(self.used <= offset && end <= self.limit());
        let first = self.runs.partition_point(|run| run.1 < offset);
        let after = self.runs.partition_point(|run| run.0 <= end);
        if first == after {
            if self.runs.len() == MAX_RUNS {
                return false;
            }
            self.runs.insert(first, (offset, end));
            return true;
        }
        let joined = (self.runs[first].0.min(offset), self.runs[after - 1].1.max(end));
        self.runs[first] = joined;
        self.runs.drain(first + 1..after);
        true
    }

    /// So many bytes more were used.
    pub(super) fn use_bytes(&mut self, bytes: u64) {
        self.used += bytes;
        let done = self.runs.partition_point(|run| run.1 <= self.used);
        self.runs.drain(..done);
        if let Some(first) = self.runs.first_mut() {
            first.0 = first.0.max(self.used);
        }
    }

    /// Bytes that are kept and due now.
    pub(super) fn due(&self) -> u64 {
        self.received() - self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_remembered_however_they_come() {
        let mut seen = Seen::default();
        let packets = [1, 3, 2, 130, 64, 65, 129, 700, 1100, 90, 1099, 90_000, 89_999];
        for (at, packet) in packets.into_iter().enumerate() {
            seen.note(packet);
            let answer = seen.answer(0, 0, 0, false);
            for packet in 0..2000u64 {
                let is_known = packets[..=at].contains(&packet) && answer.largest - packet < 1024;
                assert_eq!(answer.has_seen(packet), is_known, "packet {packet} after {at}");
            }
        }
    }

    #[test]
    fn gaps_are_what_has_not_come() {
        let mut gaps = Gaps::new(100);
        assert_eq!(gaps.place(0, 10), Placed::Due(0));
        gaps.use_bytes(10);
        assert_eq!(gaps.place(0, 10), Placed::Old);
        assert_eq!(gaps.place(5, 10), Placed::Due(5));
        assert_eq!(gaps.place(20, 10), Placed::Early);
        assert!(gaps.keep(20, 30) && gaps.keep(40, 50) && gaps.keep(25, 45));
        assert_eq!((gaps.due(), gaps.received()), (0, 10));
        assert_eq!(gaps.place(100, 11), Placed::NoRoom);
        assert!(gaps.keep(10, 20));
        assert_eq!((gaps.due(), gaps.received()), (40, 50));
        gaps.use_bytes(25);
        assert_eq!((gaps.due(), gaps.limit()), (15, 135));
    }

    #[test]
    fn one_gap_too_many_counts_as_not_arrived() {
        let mut gaps = Gaps::new(1 << 20);
        let kept = (1..1000u64).filter(|at| gaps.keep(at * 10, at * 10 + 5)).count();
        assert_eq!(kept, MAX_RUNS);
        assert!(gaps.keep(15, 20), "what closes one is welcome");
    }
}
