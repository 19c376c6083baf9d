//! The queuing ring: every message, in order, bounded. One producer, one consumer.
//!
//! # Memory
//!
//! Lines and data lie in the *consumer's* memory; only the producer stores to them.
//!
//! ```text
//! line i at line_bytes * i, i = position % lines; line_bytes is 64, or for wide lines a multiple of it
//!    + 0    commit      u64, (position << 1) | 1 of the message, written after everything else; by its low bit it never
//!                       equals zeroed memory, by its position never an earlier lap or session
//!    + 8    length      u64, payload length in bytes, 0 ..= max_size_bytes; with checksums its high half is a CRC-32C
//!    + 16   time_ns     u64, source time, whatever clock the producer's caller uses
//!    + 24   payload     if length <= line_bytes - 24: the bytes; else one word: the payload's data position in bytes
//! data behind the lines payloads that do not fit their line, each contiguous and on a 64-byte boundary; what does not fit
//!                       before the end begins at the start again
//! ```
//!
//! The two credit words lie in the *producer's* memory; only the consumer stores to them:
//!
//! ```text
//! offset 0   lines       u64, line position behind the last message released
//! offset 8   data        u64, data position in bytes behind the last payload released
//! ```
//!
//! Positions run freely and wrap at 2^64. Line positions begin at `start`, data positions at
//! `64 * start`. `start` separates sessions; it must differ from session to session by more than
//! 2^32 (a random `u64` will do), so that what an earlier session left in lines and credits is
//! never taken for this one's. [`Layout::prepare_credits`] sets the credit words right from the
//! beginning; without it, zeroed ones would be a lie to a session that begins just before the wrap.
//!
//! The CRC-32C covers the message's position, length and time, its data position if it has one, and
//! its payload.
//!
//! # Protocol
//!
//! The producer writes payload and line, fences, and stores the commit word; a batch shares one
//! fence. The consumer waits for the commit word that it expects, checks length and data position
//! (which it can compute itself), copies, and writes credits back in batches. Each side polls its
//! own memory only.
//!
//! Where writes may become visible in another order than they were made (two RDMA WRITEs over
//! iWARP: RFC 5040, section 5.5), the commit word only announces the message, and the checksum
//! shows that it is complete: a consumer that finds a wrong checksum checks again at the next poll.
//! So there the commit word need not be a write of its own. It may go with its line
//! ([`Layout::with_commit_in_line`]), and in a ring with wide enough lines a message is one write.
//! Credits need no such help, since each is one word and an older one is ignored.

mod consumer;
mod producer;

pub use consumer::{ConsumerCounters, Corrupt, Message, ReceiveError, RingConsumer};
pub use producer::{ProducerCounters, PushError, RingProducer};

use crate::remote::{RemoteError, RemoteWrite};
use crate::window::Window;
use crate::{LINE_BYTES, WORD_BYTES, round_up};

/// The longest payload in bytes that travels in a line of the usual width.
pub const INLINE_BYTES: usize = LINE_BYTES - PAYLOAD;

/// Bytes of a line before its payload.
pub const LINE_HEAD_BYTES: usize = PAYLOAD;

/// Bytes of memory that the two credit words take, rounded up to a line so that nothing else shares
/// it.
pub const CREDIT_BYTES: usize = LINE_BYTES;

/// Offsets within a line.
pub(crate) const LENGTH: usize = WORD_BYTES;
pub(crate) const TIME: usize = 2 * WORD_BYTES;
pub(crate) const PAYLOAD: usize = 3 * WORD_BYTES;

/// Offsets of the credit words.
pub(crate) const CREDIT_LINES: usize = 0;
pub(crate) const CREDIT_DATA: usize = WORD_BYTES;

/// Why a [`Layout`] is impossible, or does not fit the memory given for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Lines are no power of two, or too few or many.
    #[error("a ring of {lines} lines: use a power of two from 2 to 2^31")]
    Lines {
        /// The number asked for.
        lines: usize,
    },
    /// Lines are no multiple of 64 bytes, or too wide.
    #[error("ring lines of {line_bytes} bytes: use a multiple of 64, at most 2^20")]
    LineBytes {
        /// The width asked for, in bytes.
        line_bytes: usize,
    },
    /// The data area is no power of two or too small.
    #[error(
        "a data area of {data_bytes} bytes for messages of {max_size_bytes}: use a power of two of at least {least_bytes}"
    )]
    Data {
        /// The size asked for, in bytes.
        data_bytes: usize,
        /// The longest message in bytes.
        max_size_bytes: usize,
        /// The least that would do, in bytes.
        least_bytes: usize,
    },
    /// A message longer than the address space, or a checked length, allows.
    #[error("messages of {max_size_bytes} bytes do not fit the address space, or not 32 bits with checksums")]
    Size {
        /// The size asked for, in bytes.
        max_size_bytes: usize,
    },
    /// The memory is smaller than the layout.
    #[error(
        "the ring's {part} needs {required_bytes} bytes and the memory has {available_bytes}: give it more"
    )]
    Memory {
        /// Which part: the lines with their data, or the credits.
        part: &'static str,
        /// What the layout needs, in bytes.
        required_bytes: usize,
        /// What is there, in bytes.
        available_bytes: usize,
    },
}

/// How far one side of a ring has come: what the next to take its turn has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line position of the next message.
    pub line: u64,
    /// Data position in bytes of the next payload that does not fit its line.
    pub data: u64,
}

impl Position {
    /// The beginning of the session `start`.
    #[must_use]
    pub fn at_start(start: u64) -> Self {
        Self {
            line: start,
            data: data_start(start),
        }
    }
}

/// Where the parts of a ring lie; the same on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// A power of two.
    lines: usize,
    /// A multiple of [`LINE_BYTES`].
    line_bytes: usize,
    /// A power of two, or 0 if every message fits its line.
    data_bytes: usize,
    max_size_bytes: usize,
    required_bytes: usize,
    checksum: bool,
    commit_in_line: bool,
}

impl Layout {
    /// A ring of `lines` (a power of two, 2 ..= 2^31) for messages of up to `max_size_bytes` bytes,
    /// with a data area of `data_bytes`: 0 if `max_size_bytes <= 40`, else a power of two of at
    /// least twice the longest message rounded up to 64.
    ///
    /// # Errors
    /// [`LayoutError::Lines`], [`LayoutError::Data`], [`LayoutError::Size`].
    pub fn new(lines: usize, data_bytes: usize, max_size_bytes: usize) -> Result<Self, LayoutError> {
        Self::with_wide_lines(lines, LINE_BYTES, data_bytes, max_size_bytes)
    }

    /// As [`new`](Self::new), with lines of `line_bytes` bytes (a multiple of 64, at most 2^20), in
    /// which payloads of up to 24 bytes less travel: for a bus where each write is dear, so that a
    /// message is one beside the commit word.
    ///
    /// # Errors
    /// [`LayoutError::Lines`], [`LayoutError::LineBytes`], [`LayoutError::Data`],
    /// [`LayoutError::Size`].
    pub fn with_wide_lines(
        lines: usize,
        line_bytes: usize,
        data_bytes: usize,
        max_size_bytes: usize,
    ) -> Result<Self, LayoutError> {
        if !lines.is_power_of_two() || !(2..=1 << 31).contains(&lines) {
            return Err(LayoutError::Lines { lines });
        }
        if !line_bytes.is_multiple_of(LINE_BYTES) || !(LINE_BYTES..=1 << 20).contains(&line_bytes) {
            return Err(LayoutError::LineBytes { line_bytes });
        }
        let too_long = LayoutError::Size { max_size_bytes };
        let least_bytes = if max_size_bytes > line_bytes - PAYLOAD {
            round_up(max_size_bytes, LINE_BYTES)
                .and_then(|padded| padded.checked_mul(2))
                .ok_or(too_long)?
        } else {
            0
        };
        if data_bytes < least_bytes
            || !(data_bytes == 0 || data_bytes.is_power_of_two() && data_bytes >= LINE_BYTES)
        {
            return Err(LayoutError::Data {
                data_bytes,
                max_size_bytes,
                least_bytes,
            });
        }
        let required_bytes = lines
            .checked_mul(line_bytes)
            .and_then(|all| all.checked_add(data_bytes))
            .ok_or(too_long)?;
        Ok(Self {
            lines,
            line_bytes,
            data_bytes,
            max_size_bytes,
            required_bytes,
            checksum: false,
            commit_in_line: false,
        })
    }

    /// Adds a CRC-32C to every message, for buses that may place its bytes after its commit word.
    ///
    /// # Errors
    /// [`LayoutError::Size`] if a message may be longer than a `u32` can say.
    pub fn with_checksum(self) -> Result<Self, LayoutError> {
        let max_size_bytes = self.max_size_bytes;
        u32::try_from(max_size_bytes).map_err(|_| LayoutError::Size { max_size_bytes })?;
        Ok(Self {
            checksum: true,
            ..self
        })
    }

    /// Lets the producer of a ring with checksums write commit words with their lines, one write
    /// fewer each: a message that is staged may be seen before [`RingProducer::commit`], which
    /// makes sure of it. The consumer needs nothing for that; without checksums it does nothing.
    #[must_use]
    pub fn with_commit_in_line(self) -> Self {
        Self {
            commit_in_line: self.checksum,
            ..self
        }
    }

    /// Whether commit words are written with their lines.
    pub(crate) fn has_commit_in_line(&self) -> bool {
        self.commit_in_line
    }

    /// Whether messages carry a CRC-32C.
    #[must_use]
    pub fn has_checksum(&self) -> bool {
        self.checksum
    }

    /// A ring that surely holds `depth` messages of `max_size_bytes` bytes.
    ///
    /// Credits come back in batches, so a consumer that does not flush them may still owe up to a
    /// quarter.
    ///
    /// # Errors
    /// [`LayoutError::Lines`], [`LayoutError::Size`].
    pub fn for_messages(depth: usize, max_size_bytes: usize) -> Result<Self, LayoutError> {
        let too_long = LayoutError::Size { max_size_bytes };
        let lines = depth
            .max(2)
            .checked_next_power_of_two()
            .ok_or(LayoutError::Lines { lines: depth })?;
        let data_bytes = if max_size_bytes > INLINE_BYTES {
            // One more than `depth`, since what does not fit before the end of the area leaves a
            // gap there.
            let padded = round_up(max_size_bytes, LINE_BYTES).ok_or(too_long)?;
            let all = depth
                .max(1)
                .checked_add(1)
                .and_then(|count| count.checked_mul(padded))
                .ok_or(too_long)?;
            all.checked_next_power_of_two().ok_or(too_long)?
        } else {
            0
        };
        Self::new(lines, data_bytes, max_size_bytes)
    }

    /// Width of a line in bytes.
    #[must_use]
    pub fn line_bytes(&self) -> usize {
        self.line_bytes
    }

    /// Number of lines, a power of two: the most messages under way.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// The longest payload in bytes that travels in its line.
    #[must_use]
    #[inline]
    pub fn inline_bytes(&self) -> usize {
        self.line_bytes - PAYLOAD
    }

    /// Size of the data area in bytes, 0 or a power of two.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Longest message in bytes.
    #[must_use]
    pub fn max_size_bytes(&self) -> usize {
        self.max_size_bytes
    }

    /// Bytes that lines and data take in the consumer's memory. The credits take [`CREDIT_BYTES`]
    /// in the producer's.
    #[must_use]
    pub fn required_bytes(&self) -> usize {
        self.required_bytes
    }

    /// Sets the credit words so that nothing of the session that begins at `start` is released. For
    /// the owner of that memory, the producer's host, before it gives them to the consumer.
    ///
    /// # Errors
    /// [`RemoteError`] of the memory.
    pub fn prepare_credits(&self, credit: &mut impl RemoteWrite, start: u64) -> Result<(), RemoteError> {
        credit.publish(CREDIT_LINES, start)?;
        credit.publish(CREDIT_DATA, data_start(start))?;
        credit.flush();
        Ok(())
    }

    /// Whether the commit word of the message at line `position` is there: the message is, too, if
    /// the memory shows writes in order; else its checksum must be asked.
    #[must_use]
    #[inline]
    pub fn is_committed(&self, ring: &Window, position: u64) -> bool {
        ring.load(self.line_offset(position)) == Ok(commit_word(position))
    }

    /// Takes back the commit words of line `position` and of all that may follow it, for the owner
    /// of the memory, while nobody else writes it: writes that became visible in another order may
    /// have left messages behind one that is missing. A consumer has not passed a missing message.
    /// Returns how many it took back.
    pub fn erase_from(&self, ring: &Window, position: u64) -> u64 {
        let mut erased = 0;
        for ahead in 0..self.lines as u64 {
            let line = position.wrapping_add(ahead);
            if self.is_committed(ring, line) {
                // Inside: the line was just read. No commit word is even.
                let _ = ring.store(self.line_offset(line), 0);
                erased += 1;
            }
        }
        erased
    }

    #[inline]
    pub(crate) fn line_offset(&self, position: u64) -> usize {
        (position as usize & (self.lines - 1)) * self.line_bytes
    }

    #[inline]
    pub(crate) fn data_offset(&self, position: u64) -> usize {
        self.lines * self.line_bytes + (position as usize & self.data_bytes.wrapping_sub(1))
    }

    /// Where a payload of `len_bytes` (more than fit a line, at most `max_size_bytes`) begins and
    /// ends if `next` is the first free data position: at `next`, or at the start of the area if it
    /// would cross the end.
    #[inline]
    pub(crate) fn place(&self, next: u64, len_bytes: usize) -> (u64, u64) {
        let padded = ((len_bytes + LINE_BYTES - 1) & !(LINE_BYTES - 1)) as u64;
        let to_end = self.data_bytes as u64 - (next & (self.data_bytes as u64).wrapping_sub(1));
        let begin = if padded > to_end {
            next.wrapping_add(to_end)
        } else {
            next
        };
        (begin, begin.wrapping_add(padded))
    }

    pub(crate) fn check_memory(
        &self,
        part: &'static str,
        required_bytes: usize,
        available_bytes: usize,
    ) -> Result<(), LayoutError> {
        if available_bytes < required_bytes {
            return Err(LayoutError::Memory {
                part,
                required_bytes,
                available_bytes,
            });
        }
        Ok(())
    }
}

/// The commit word of the message at `position`.
#[inline]
pub(crate) fn commit_word(position: u64) -> u64 {
    position << 1 | 1
}

/// The data position that belongs to the line position `start`.
pub(crate) fn data_start(start: u64) -> u64 {
    start.wrapping_mul(LINE_BYTES as u64)
}

#[cfg(all(test, not(loom)))]
mod tests;
