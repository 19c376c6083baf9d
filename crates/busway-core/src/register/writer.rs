//! The writing side of the sampling register.
//!
//! Contract: one writer a register and session. It never reads the register and never waits. Called
//! by the source of a sampling channel.

use super::{LATEST, Layout, LayoutError};
use crate::checksum;
use crate::remote::{RemoteError, RemoteWrite};

/// Why a message was not written. The register then still holds the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The message is longer than the register's slots.
    #[error(
        "a message of {len_bytes} bytes for a register of at most {max_size_bytes}: shorten it or widen the register"
    )]
    TooLong {
        /// Length of the message in bytes.
        len_bytes: usize,
        /// The most that the register takes, in bytes.
        max_size_bytes: usize,
    },
    /// The memory did not take the write.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

/// Writes messages into a register in far memory.
#[derive(Debug)]
pub struct RegisterWriter<W> {
    memory: W,
    layout: Layout,
    /// Sequence of the message published last; `start` before the first.
    sequence: u64,
    /// Slot of the next message.
    slot: usize,
}

impl<W: RemoteWrite> RegisterWriter<W> {
    /// A writer whose first message gets the sequence `start + 1`.
    ///
    /// `start` is the session's, the same as the readers', and differs from every earlier session's
    /// by more than 2^48.
    ///
    /// # Errors
    /// [`LayoutError::Memory`] if `memory` is too small for `layout`.
    pub fn new(memory: W, layout: Layout, start: u64) -> Result<Self, LayoutError> {
        layout.check_memory(memory.len_bytes())?;
        Ok(Self {
            memory,
            layout,
            sequence: start,
            slot: 1,
        })
    }

    /// A writer that continues behind `latest`, the register's newest message, where another writer
    /// of the session that began at `start` has stopped, in order or at any step of a write.
    ///
    /// For several writers that take turns under a lock, in memory that they may read. `latest` is
    /// what [`RegisterReader::peek_sequence`](super::RegisterReader::peek_sequence) says, or
    /// `start` if it says `None`.
    ///
    /// # Errors
    /// [`LayoutError::Memory`] if `memory` is too small for `layout`.
    #[inline]
    pub fn resume(mut memory: W, layout: Layout, start: u64, latest: u64) -> Result<Self, LayoutError> {
        layout.check_memory(memory.len_bytes())?;
        // The index that the other writer stored, and that its caller loaded, before our next
        // payload: partner is the reader's fence before its second load of `latest`. The other
        // writer's own fence does not order our stores.
        memory.fence();
        Ok(Self {
            memory,
            layout,
            sequence: latest,
            slot: layout.slot_behind(latest, start),
        })
    }

    /// Writes the bytes of `parts`, one behind the other, as the latest message, and returns its
    /// sequence.
    ///
    /// # Errors
    /// [`WriteError`]; the sequence is not used up then.
    #[inline]
    pub fn write(&mut self, parts: &[&[u8]], time_ns: u64) -> Result<u64, WriteError> {
        let len_bytes = parts
            .iter()
            .fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let max_size_bytes = self.layout.max_size_bytes();
        let len = match u32::try_from(len_bytes) {
            Ok(len) if len_bytes <= max_size_bytes => len,
            _ => {
                return Err(WriteError::TooLong {
                    len_bytes,
                    max_size_bytes,
                });
            }
        };
        let sequence = self.sequence.wrapping_add(1);
        let checksum = if self.layout.has_checksum() {
            digest_of(sequence, len, time_ns, parts)
        } else {
            0
        };
        let header = [sequence, checksum::join(len, checksum), time_ns];
        self.memory
            .write(self.layout.slot_offset(self.slot), &header, parts)?;
        // The payload before its index: partner is the reader's fence after its first load of
        // `latest`.
        self.memory.fence();
        if !self.layout.has_index_in_slots() {
            self.memory.publish(LATEST, sequence)?;
        }
        // The index before the next payload: partner is the reader's fence before its second load
        // of `latest`.
        self.memory.fence();
        self.memory.flush();
        self.sequence = sequence;
        self.slot = self.layout.next_slot(self.slot);
        Ok(sequence)
    }

    /// Sequence of the message written last; `start` before the first.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Where the parts of the register lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Gives the memory back, for the next session's writer.
    #[must_use]
    pub fn into_memory(self) -> W {
        self.memory
    }
}

fn digest_of(sequence: u64, len_bytes: u32, time_ns: u64, parts: &[&[u8]]) -> u32 {
    let mut digest = checksum::begin(sequence, len_bytes, time_ns);
    for part in parts {
        digest.update(part);
    }
    digest.finalize()
}
