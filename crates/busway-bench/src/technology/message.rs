//! What is in a message: its number, a time, and a pattern that depends on both, so that a lost,
//! repeated, torn or altered message is seen.
//!
//! A row of words in native byte order: word 0 the number, word 1 the time, and from word 2 on a
//! run of values that begins at a mix of both. Filling and checking are loops without branches that
//! the compiler turns into vector instructions, so that they do not hide what is measured.
//!
//! A message of [`SHORT_BYTES`] has room for the end of the number only: [`Message::widened`] tells
//! the whole one from what came before it.

use std::mem::MaybeUninit;

/// Shortest message in bytes: number and time.
pub const MIN_MESSAGE_BYTES: usize = 16;

/// The only size below [`MIN_MESSAGE_BYTES`], in bytes: that of the published sensor values.
pub const SHORT_BYTES: usize = 4;

/// Numbers of one measurement: from a multiple of this, and fewer than this.
pub const NUMBERS: u64 = 1 << 40;

/// Bits of a number that a short message carries, without its two marks; of these, the lower ones
/// count messages, the rest tells measurements apart.
const SHORT_BITS: u32 = 30;
const SHORT_COUNT_BITS: u32 = 24;
/// The marks of a number, its two highest bits.
const MARKS: u64 = 3 << 62;

/// Set in the number of a message that only tests whether the path stands; it is not counted.
pub(crate) const PROBE: u64 = 1 << 63;

const HEADER_WORDS: usize = 2;
const WORD_BYTES: usize = 8;

/// A message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub number: u64,
    /// When it was sent, in ns, or anything else of which the receiver knows.
    pub time_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub message: Message,
    /// Whether every byte belongs to this message. Of a payload that nobody touches only the header
    /// is known.
    pub intact: bool,
}

impl Message {
    /// A message of which only the number matters: the time repeats it, so that two of the shortest
    /// messages are told apart when mixed.
    pub fn numbered(number: u64) -> Self {
        Self {
            number,
            time_ns: number,
        }
    }

    /// Writes the header and, if `touched`, every other byte. `bytes` is [`SHORT_BYTES`] long, or a
    /// multiple of 8 of at least [`MIN_MESSAGE_BYTES`].
    #[inline]
    pub fn fill(self, bytes: &mut [u8], touched: bool) {
        if let Ok(short) = <&mut [u8; SHORT_BYTES]>::try_from(&mut *bytes) {
            *short = self.shortened().to_ne_bytes();
            return;
        }
        let (words, _) = bytes.as_chunks_mut::<WORD_BYTES>();
        self.fill_words(words, touched, |word, value| *word = value.to_ne_bytes());
    }

    /// The same for memory that holds nothing yet: afterwards every byte is initialised. Untouched
    /// payloads are zero where the caller has made them so.
    #[inline]
    pub fn fill_uninit(self, bytes: &mut [MaybeUninit<u8>], touched: bool) {
        let (words, _) = bytes.as_chunks_mut::<WORD_BYTES>();
        self.fill_words(words, touched, |word, value| {
            *word = value.to_ne_bytes().map(MaybeUninit::new);
        });
    }

    #[inline]
    fn fill_words<W>(self, words: &mut [W], touched: bool, put: impl Fn(&mut W, u64)) {
        put(&mut words[0], self.number);
        put(&mut words[1], self.time_ns);
        if touched {
            let base = self.base();
            for (i, word) in words[HEADER_WORDS..].iter_mut().enumerate() {
                put(word, base.wrapping_add(i as u64));
            }
        }
    }

    /// The marks, the end of the measurement's number, and the end of the message's own.
    fn shortened(self) -> u32 {
        let measurement = self.number / NUMBERS % (1 << (SHORT_BITS - SHORT_COUNT_BITS));
        let count = self.number % (1 << SHORT_COUNT_BITS);
        (self.number >> 62 << SHORT_BITS | measurement << SHORT_COUNT_BITS | count) as u32
    }

    /// The whole number of a short message of the measurement that begins at `base`, the nearest
    /// one to `near`; `None` of another measurement.
    pub(crate) fn widened(self, base: u64, near: u64) -> Option<u64> {
        let is_ours = Self::numbered(base).shortened() >> SHORT_COUNT_BITS
            == (self.number & !MARKS) as u32 >> SHORT_COUNT_BITS;
        let span = 1 << SHORT_COUNT_BITS;
        let near = near & !MARKS;
        let ahead = (self.number % span).wrapping_sub(near % span) % span;
        let number = if ahead < span / 2 {
            near + ahead
        } else {
            (near + ahead).wrapping_sub(span)
        };
        is_ours.then_some(number | self.number & MARKS)
    }

    /// Reads the header and, if `touched`, every other byte; of [`SHORT_BYTES`], what they hold of
    /// the number. `None` of fewer than [`MIN_MESSAGE_BYTES`] otherwise.
    #[inline]
    pub fn read(bytes: &[u8], touched: bool) -> Option<Received> {
        if let Ok(short) = <[u8; SHORT_BYTES]>::try_from(bytes) {
            let word = u64::from(u32::from_ne_bytes(short));
            let marks = word >> SHORT_BITS << 62;
            let number = marks | (word % (1 << SHORT_BITS));
            return Some(Received {
                message: Self::numbered(number),
                intact: true,
            });
        }
        let (words, _) = bytes.as_chunks::<WORD_BYTES>();
        let (head, body) = words.split_at_checked(HEADER_WORDS)?;
        let message = Self {
            number: u64::from_ne_bytes(head[0]),
            time_ns: u64::from_ne_bytes(head[1]),
        };
        let mut difference = 0;
        if touched {
            let base = message.base();
            for (i, word) in body.iter().enumerate() {
                difference |= u64::from_ne_bytes(*word) ^ base.wrapping_add(i as u64);
            }
        }
        Some(Received {
            message,
            intact: difference == 0,
        })
    }

    /// A well mixed word, so that two messages share no run of the pattern (the finaliser of
    /// SplitMix64).
    fn base(self) -> u64 {
        let mut x = (self.number ^ self.time_ns.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: Message = Message {
        number: 41,
        time_ns: 5,
    };

    #[test]
    fn a_message_is_read_back_as_it_was_filled() {
        for bytes in [16, 24, 64, 4096] {
            let mut buffer = vec![0; bytes];
            MESSAGE.fill(&mut buffer, true);
            let expected = Received {
                message: MESSAGE,
                intact: true,
            };
            assert_eq!(Message::read(&buffer, true), Some(expected));
        }
        assert_eq!(Message::read(&[0; 15], true), None);
    }

    #[test]
    fn each_changed_byte_of_a_touched_message_is_noticed() {
        let mut buffer = vec![0; 64];
        MESSAGE.fill(&mut buffer, true);
        for at in 0..64 {
            buffer[at] ^= 1;
            assert!(!Message::read(&buffer, true).unwrap().intact, "byte {at}");
            buffer[at] ^= 1;
        }
    }

    #[test]
    fn number_of_a_short_message_is_found_again_from_the_one_before() {
        let base = 77 * NUMBERS;
        let sent = |number| {
            let mut bytes = [0; SHORT_BYTES];
            Message::numbered(number).fill(&mut bytes, true);
            Message::read(&bytes, true).unwrap().message
        };
        let span = 1 << SHORT_COUNT_BITS;
        for (number, near) in [
            (base, base),
            (base + 5, base + 2),
            (base + 3 * span - 1, base + 3 * span + 1),
            (base + 3 * span, base + 3 * span - 1),
            (base | PROBE, base),
            ((base + 9) | PROBE, base + 8),
        ] {
            assert_eq!(
                sent(number).widened(base, near),
                Some(number),
                "{number:x} {near:x}"
            );
        }
        assert_eq!(
            sent(base + NUMBERS).widened(base, base),
            None,
            "of another measurement"
        );
    }

    #[test]
    fn untouched_leaves_all_but_the_header_alone() {
        let mut buffer = vec![9; 64];
        MESSAGE.fill(&mut buffer, false);
        assert!(buffer[16..].iter().all(|byte| *byte == 9));
        assert!(Message::read(&buffer, false).unwrap().intact);
    }
}
