//! The sampling register: the latest message only.
//!
//! # Memory
//!
//! The register lies in the *receiver's* memory; the writer writes it from afar and nobody else
//! ever stores to it.
//!
//! ```text
//! offset 0     latest           sequence of the newest complete message (u64), written after its slot
//! offset 128   slot 0 .. N-1    each a multiple of 64 bytes:
//!    + 0       sequence         u64, of the message that the slot holds
//!    + 8       length, CRC      low half: payload length in bytes, 0 ..= max_size_bytes; high half: CRC-32C or 0
//!    + 16      time_ns          u64, source time, whatever clock the writer's caller uses
//!    + 24      payload          up to max_size_bytes bytes, the last word filled up with zeros
//! ```
//!
//! A message of up to 40 bytes and its header are one cache line. All words are in the byte order
//! of the hosts, which the hello compares.
//!
//! # Protocol
//!
//! Message `start + k` goes to slot `k % N`. The writer writes the slot, fences, stores `latest`,
//! and fences again before the next slot. The reader loads `latest`, copies that slot, fences, and
//! loads `latest` again: it accepts if that advanced by at most `N - 2`.
//!
//! Why that suffices: the slot of message `s` is written again only for `s + N`, and the writer
//! fenced between storing `latest = s + N - 1` and the first word of `s + N`. A reader that copied
//! any such word therefore sees `latest` at `s + N - 1` or beyond after its fence, which is an
//! advance of more than `N - 2`.
//!
//! Where each write is dear and messages carry checksums, the index may be left out
//! ([`Layout::with_index_in_slots`]): a message is one write then. The reader takes the newest
//! sequence that any slot names, and the CRC-32C, which covers the sequence, says whether all of
//! that message is there, and whether the slot was written again while it was copied.
//!
//! `start` separates sessions: a reader must not take what an earlier session left for a message of
//! this one. The owner of the memory ensures that with [`Layout::prepare`] before it gives the
//! register to the writer. `start` should also differ by more than 2^48 from session to session (a
//! random `u64` does), so that readers detect and reject a writer of the old session that is still
//! running.

mod reader;
mod writer;

pub use reader::{Attempt, Corrupt, Counters, LastGood, ReadError, ReadOutcome, RegisterReader, Sample};
pub use writer::{RegisterWriter, WriteError};

use crate::remote::{RemoteError, RemoteWrite};
use crate::window::{OutOfBounds, Window};
use crate::{LINE_BYTES, WORD_BYTES, round_up};

/// Offset of the word that publishes.
pub(crate) const LATEST: usize = 0;
/// Offset of slot 0: two lines on, since CPUs fetch lines in pairs.
pub(crate) const SLOTS: usize = 2 * LINE_BYTES;
/// Words before the payload of a slot.
pub(crate) const HEADER_WORDS: usize = 3;
/// Bytes before the payload of a slot.
pub(crate) const HEADER_BYTES: usize = HEADER_WORDS * WORD_BYTES;

/// Why a [`Layout`] is impossible, or does not fit the memory given for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Too few slots: with fewer than 3, a reader could only accept when the writer stands still.
    #[error("a register of {slots} slots: use 3 or more, at most 4096")]
    Slots {
        /// The number asked for.
        slots: usize,
    },
    /// A message longer than a `u32` can say, or an address space too small.
    #[error(
        "a register for messages of {max_size_bytes} bytes: use at most {} bytes and less than the address space",
        u32::MAX
    )]
    Size {
        /// The size asked for, in bytes.
        max_size_bytes: usize,
    },
    /// The memory is smaller than the layout.
    #[error("the register needs {required_bytes} bytes and the memory has {available_bytes}: give it more")]
    Memory {
        /// What the layout needs, in bytes.
        required_bytes: usize,
        /// What is there, in bytes.
        available_bytes: usize,
    },
}

/// Where the parts of a register lie; the same on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    slots: usize,
    max_size_bytes: usize,
    /// Distance of slots in bytes, a multiple of 64.
    stride_bytes: usize,
    required_bytes: usize,
    checksum: bool,
    index_in_slots: bool,
}

impl Layout {
    /// A register of `slots` (3 ..= 4096) slots for messages of up to `max_size_bytes` bytes.
    ///
    /// Three slots keep a reader from ever reading torn data. With more, it retries less: a retry
    /// needs `slots - 1` writes while one read copies.
    ///
    /// # Errors
    /// [`LayoutError::Slots`], [`LayoutError::Size`].
    pub fn new(slots: usize, max_size_bytes: usize) -> Result<Self, LayoutError> {
        if !(3..=4096).contains(&slots) {
            return Err(LayoutError::Slots { slots });
        }
        let too_large = LayoutError::Size { max_size_bytes };
        u32::try_from(max_size_bytes).map_err(|_| too_large)?;
        let stride_bytes = max_size_bytes
            .checked_add(HEADER_BYTES)
            .and_then(|sum| round_up(sum, LINE_BYTES))
            .ok_or(too_large)?;
        let required_bytes = stride_bytes
            .checked_mul(slots)
            .and_then(|all| all.checked_add(SLOTS))
            .ok_or(too_large)?;
        Ok(Self {
            slots,
            max_size_bytes,
            stride_bytes,
            required_bytes,
            checksum: false,
            index_in_slots: false,
        })
    }

    /// Adds a CRC-32C over length, time, sequence and payload to every message, for buses that may
    /// flip bits, and for such that may place the payload after its index (see
    /// [`RegisterReader::with_patience_bytes`]).
    #[must_use]
    pub fn with_checksum(self) -> Self {
        Self {
            checksum: true,
            ..self
        }
    }

    /// Leaves `latest` out of a register with checksums, for both sides alike; without checksums it
    /// does nothing. The reader looks at every slot instead, and needs
    /// [patience](RegisterReader::with_patience_bytes). A register without `latest` is for one
    /// writer and readers that read through [`RegisterReader`]: [`latest`](Self::latest) and
    /// [`peek_latest`](Self::peek_latest) know nothing of it.
    #[must_use]
    pub fn with_index_in_slots(self) -> Self {
        Self {
            index_in_slots: self.checksum,
            ..self
        }
    }

    /// Whether the slots alone say which message is the newest.
    #[inline]
    pub(crate) fn has_index_in_slots(&self) -> bool {
        self.index_in_slots
    }

    /// Whether messages carry a CRC-32C.
    #[must_use]
    pub fn has_checksum(&self) -> bool {
        self.checksum
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Longest message in bytes.
    #[must_use]
    pub fn max_size_bytes(&self) -> usize {
        self.max_size_bytes
    }

    /// Bytes of memory that the register needs, a multiple of 64.
    #[must_use]
    pub fn required_bytes(&self) -> usize {
        self.required_bytes
    }

    /// Marks the register as empty for the session that begins at `start`. For the owner of the
    /// memory, before it gives the register to the writer.
    ///
    /// # Errors
    /// [`RemoteError`] of the memory.
    pub fn prepare(&self, memory: &mut impl RemoteWrite, start: u64) -> Result<(), RemoteError> {
        memory.publish(LATEST, start)?;
        if self.index_in_slots {
            for slot in 0..self.slots {
                memory.publish(self.slot_offset(slot), start)?;
            }
        }
        memory.flush();
        Ok(())
    }

    /// Sequence of the newest complete message in `window`; the session's `start` before the first.
    /// For a writer that may read the register's memory and takes over from another
    /// ([`RegisterWriter::resume`]).
    ///
    /// # Errors
    /// [`OutOfBounds`] if `window` is no register.
    #[inline]
    pub fn latest(&self, window: &Window) -> Result<u64, OutOfBounds> {
        window.load_acquire(LATEST)
    }

    /// As [`latest`](Self::latest), for a reader that waits without a [`RegisterReader`] of its
    /// own: it brings the slot of the next message near meanwhile. `start` is the session's. Count
    /// on nothing but the number: the message is to be read.
    ///
    /// # Errors
    /// [`OutOfBounds`] if `window` is no register.
    #[inline]
    pub fn peek_latest(&self, window: &Window, start: u64) -> Result<u64, OutOfBounds> {
        let latest = window.load(LATEST)?;
        window.prefetch(self.slot_offset(self.slot_behind(latest, start)));
        Ok(latest)
    }

    /// The slot of the message behind `latest`.
    #[inline]
    pub(crate) fn slot_behind(&self, latest: u64, start: u64) -> usize {
        let number = latest.wrapping_sub(start).wrapping_add(1);
        // A division of 32 bits is a few nanoseconds faster, and as good for the first four
        // thousand million messages.
        match u32::try_from(number) {
            Ok(number) => (number % self.slots as u32) as usize,
            Err(_) => (number % self.slots as u64) as usize,
        }
    }

    pub(crate) fn slot_offset(&self, slot: usize) -> usize {
        SLOTS + slot * self.stride_bytes
    }

    /// The slot behind `slot`.
    pub(crate) fn next_slot(&self, slot: usize) -> usize {
        if slot + 1 == self.slots { 0 } else { slot + 1 }
    }

    pub(crate) fn check_memory(&self, available_bytes: usize) -> Result<(), LayoutError> {
        if available_bytes < self.required_bytes {
            return Err(LayoutError::Memory {
                required_bytes: self.required_bytes,
                available_bytes,
            });
        }
        Ok(())
    }
}

/// Turns an impossible access error into the layout error that it would have been at construction.
pub(crate) fn too_small(layout: &Layout, error: OutOfBounds) -> LayoutError {
    LayoutError::Memory {
        required_bytes: layout.required_bytes,
        available_bytes: error.window_bytes,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
