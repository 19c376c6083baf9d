//! What the programs under test put into a message: a header and a pattern that depends on the sequence number, so that a
//! lost, repeated, torn or altered message is seen.
//!
//! A payload is a row of `u64` words: word 0 the sequence number, word 1 the send time, word 2 both mixed (so that the header
//! is checked as well), and then `base(sequence) + i`. Filling and checking are loops without branches that the compiler turns
//! into vector instructions, so that they do not hide what is measured.

use std::mem::MaybeUninit;

/// Words before the pattern.
const HEADER_WORDS: usize = 3;
/// Shortest payload that can carry the header, in bytes.
pub const MIN_PAYLOAD_BYTES: usize = HEADER_WORDS * 8;
/// Set in the sequence number of messages that only test whether the path stands; they are not counted.
pub const PROBE: u64 = 1 << 63;

/// What a message says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Counted from 0 by the publisher; with [`PROBE`] set, a message that is not counted.
    pub sequence: u64,
    /// `CLOCK_MONOTONIC` of the publisher just before sending, in ns; 0 where the latency is not measured.
    pub sent_ns: u64,
}

impl Header {
    /// Whether the message only tests the path.
    pub fn is_probe(self) -> bool {
        self.sequence & PROBE != 0
    }
}

/// Writes every word of `words`, which holds at least [`MIN_PAYLOAD_BYTES`].
pub fn fill(words: &mut [u64], header: Header) {
    fill_with(words, header, |word, value| *word = value);
}

/// The same for memory that holds nothing yet; afterwards every word is initialised.
pub fn fill_uninit(words: &mut [MaybeUninit<u64>], header: Header) {
    fill_with(words, header, |word, value| {
        word.write(value);
    });
}

#[inline]
fn fill_with<T>(words: &mut [T], header: Header, put: impl Fn(&mut T, u64)) {
    let base = base(header.sequence);
    put(&mut words[0], header.sequence);
    put(&mut words[1], header.sent_ns);
    put(&mut words[2], base ^ header.sent_ns);
    for (i, word) in words[HEADER_WORDS..].iter_mut().enumerate() {
        put(word, base.wrapping_add(i as u64));
    }
}

/// Reads every word; `None` if any differs from what [`fill`] wrote for this sequence number.
pub fn check(words: &[u64]) -> Option<Header> {
    let (head, body) = words.split_at_checked(HEADER_WORDS)?;
    let header = Header {
        sequence: head[0],
        sent_ns: head[1],
    };
    let base = base(header.sequence);
    let mut difference = head[2] ^ base ^ header.sent_ns;
    for (i, word) in body.iter().enumerate() {
        difference |= word ^ base.wrapping_add(i as u64);
    }
    (difference == 0).then_some(header)
}

/// A well mixed word, so that two sequence numbers share no run of the pattern (the finaliser of SplitMix64).
fn base(sequence: u64) -> u64 {
    let mut x = sequence.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `CLOCK_MONOTONIC` in ns: the same clock for all processes of one machine, in every namespace used here.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_back_as_it_was_filled() {
        for n in [3, 8, 512] {
            let mut words = vec![0; n];
            let header = Header {
                sequence: 7,
                sent_ns: 123,
            };
            fill(&mut words, header);
            assert_eq!(check(&words), Some(header));
        }
    }

    #[test]
    fn each_changed_byte_is_noticed() {
        let mut words = vec![0; 8];
        fill(
            &mut words,
            Header {
                sequence: 41,
                sent_ns: 5,
            },
        );
        for byte in 0..64 {
            words[byte / 8] ^= 1 << (byte % 8 * 8);
            assert_eq!(check(&words), None, "byte {byte}");
            words[byte / 8] ^= 1 << (byte % 8 * 8);
        }
    }

    #[test]
    fn a_message_put_together_from_two_is_noticed() {
        let (mut old, mut new) = (vec![0; 64], vec![0; 64]);
        fill(
            &mut old,
            Header {
                sequence: 1,
                sent_ns: 0,
            },
        );
        fill(
            &mut new,
            Header {
                sequence: 2,
                sent_ns: 0,
            },
        );
        new[40..].copy_from_slice(&old[40..]);
        assert_eq!(check(&new), None);
    }

    #[test]
    fn a_message_too_short_for_its_header_is_no_message() {
        assert_eq!(check(&[1, 2]), None);
    }
}
