//! The reading side of the sampling register.
//!
//! Contract: any number of readers, none of which stores to the register, so a read-only mapping is
//! enough. A read is bounded, never torn, never goes back in time. Called by the destination of a
//! sampling channel.

use super::{HEADER_BYTES, LATEST, Layout, LayoutError, too_small};
use crate::WORD_BYTES;
use crate::checksum::{self, Digest};
use crate::window::{OutOfBounds, Window};

/// How far `latest` may be ahead of what a reader knows. A larger distance is a step back, or
/// another session's memory.
const MAX_ADVANCE: u64 = 1 << 48;

/// Retries of one read by default.
const RETRIES: u32 = 16;

/// What a reader knows of a message beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Sequence number: `start + 1` for the first message of the session, and one more for each.
    pub sequence: u64,
    /// Payload length in bytes, at most the layout's maximum.
    pub len_bytes: usize,
    /// Source time in nanoseconds of the writer's clock. Not checked: it is what the writer says.
    pub time_ns: u64,
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// A message that this reader had not seen, now in the buffer.
    New(Sample),
    /// The same message as last time, in the buffer (again).
    Unchanged(Sample),
    /// The writer was faster than every retry; the message of an earlier read is still there. Only
    /// from [`LastGood`].
    LastGood(Sample),
    /// The writer was faster than every retry; what the buffer holds is not a message.
    Contended,
    /// Nothing was written in this session yet.
    Empty,
}

/// What is wrong with the register's memory. The writer, or somebody who writes in its place, broke
/// the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// `latest` went back.
    #[error(
        "the register's latest sequence went from {last} back to {latest}: was its writer restarted in this session?"
    )]
    Backwards {
        /// Sequence accepted last.
        last: u64,
        /// What `latest` says.
        latest: u64,
    },
    /// The slot holds another sequence than `latest` says.
    #[error(
        "the register's latest sequence is {latest}, its slot holds {found}: its writer breaks the protocol"
    )]
    Sequence {
        /// What `latest` says.
        latest: u64,
        /// What the slot says.
        found: u64,
    },
    /// The length is impossible.
    #[error("message {sequence} claims {len_bytes} bytes in a register of at most {max_size_bytes}")]
    Length {
        /// Sequence of the message.
        sequence: u64,
        /// Its alleged length in bytes.
        len_bytes: usize,
        /// The most that the layout allows, in bytes.
        max_size_bytes: usize,
    },
    /// The reader's caller can make nothing of the bytes.
    #[error("message {sequence} makes no sense: its writer breaks the protocol")]
    Senseless {
        /// Sequence of the message.
        sequence: u64,
    },
    /// The CRC-32C does not fit the bytes.
    #[error(
        "message {sequence} has CRC-32C {found:#010x}, its bytes give {computed:#010x}: bits were changed under way"
    )]
    Checksum {
        /// Sequence of the message.
        sequence: u64,
        /// What the slot says.
        found: u32,
        /// What the bytes give.
        computed: u32,
    },
}

/// Why a read failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The memory breaks the protocol.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The message is longer than the caller's buffer.
    #[error(
        "a message of {len_bytes} bytes for a buffer of {buffer_bytes}: enlarge it to the register's maximum"
    )]
    BufferTooSmall {
        /// Length of the message in bytes.
        len_bytes: usize,
        /// Length of the buffer in bytes.
        buffer_bytes: usize,
    },
    /// The caller copied from outside the message.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
}

/// What a reader has seen so far. All count from construction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages accepted, new or not.
    pub reads: u64,
    /// Attempts abandoned because the writer overtook them.
    pub retries: u64,
    /// The most retries that one read needed.
    pub max_retries: u32,
    /// Reads that ran out of retries.
    pub contended: u64,
    /// Times that `latest` was found behind what was accepted before.
    pub stale: u64,
    /// Other violations of the protocol: sequence, length, checksum.
    pub corrupt: u64,
    /// Such violations, and steps back of `latest`, that a reader with patience took for bytes that
    /// had not arrived yet.
    pub doubtful: u64,
}

/// Reads the latest message from a register in this host's memory.
#[derive(Debug)]
pub struct RegisterReader {
    window: Window,
    layout: Layout,
    /// Sequence before the first message of this session.
    start: u64,
    /// Sequence accepted last and its slot; `start` and slot 0 before the first.
    last: (u64, usize),
    max_retries: u32,
    /// Bytes that may be found wrong in a row before the register counts as corrupt, and how many
    /// were.
    patience_bytes: u64,
    doubted_bytes: u64,
    counters: Counters,
}

impl RegisterReader {
    /// A reader of the session that begins at `start`.
    ///
    /// # Errors
    /// [`LayoutError::Memory`] if `window` is too small for `layout`.
    pub fn new(window: Window, layout: Layout, start: u64) -> Result<Self, LayoutError> {
        layout.check_memory(window.len_bytes())?;
        let window = window
            .sub(0, layout.required_bytes())
            .map_err(|error| too_small(&layout, error))?;
        Ok(Self {
            window,
            layout,
            start,
            last: (start, 0),
            max_retries: RETRIES,
            patience_bytes: 0,
            doubted_bytes: 0,
            counters: Counters::default(),
        })
    }

    /// Abandons a read after `retries` retries (16 by default).
    #[must_use]
    pub fn with_retries(self, retries: u32) -> Self {
        Self {
            max_retries: retries,
            ..self
        }
    }

    /// For media that may make `latest` visible before the slot that it names (two RDMA WRITEs over
    /// iWARP, RFC 5040 section 5.5): what does not fit together is looked at again as if the writer
    /// had been faster, and counted in [`Counters::doubtful`], until `patience_bytes` bytes were
    /// looked at in vain in a row. 0 by default. The layout should have
    /// [checksums](Layout::with_checksum), or a message of old and new bytes fits together too.
    #[must_use]
    pub fn with_patience_bytes(self, patience_bytes: u64) -> Self {
        Self {
            patience_bytes,
            ..self
        }
    }

    /// Copies the latest message into `buffer`, which is best as long as the layout's longest
    /// message.
    ///
    /// Copies an unchanged message again; ask [`peek_sequence`](Self::peek_sequence) first to save
    /// that. On [`ReadOutcome::Contended`] and on errors the buffer's bytes are unspecified;
    /// [`LastGood`] keeps a good copy.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`], [`ReadError::BufferTooSmall`].
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, ReadError> {
        for retries in 0..=self.max_retries {
            let seen = self.last.0;
            let Some(mut attempt) = self.begin()? else {
                return Ok(ReadOutcome::Empty);
            };
            let sample = attempt.sample();
            let target = buffer.get_mut(..sample.len_bytes);
            let fits = target.is_some();
            if let Some(target) = target {
                attempt.copy(0, target)?;
            }
            if attempt.judge(fits, true)? {
                self.counters.max_retries = self.counters.max_retries.max(retries);
                if !fits {
                    return Err(ReadError::BufferTooSmall {
                        len_bytes: sample.len_bytes,
                        buffer_bytes: buffer.len(),
                    });
                }
                let unchanged = sample.sequence == seen;
                return Ok(if unchanged {
                    ReadOutcome::Unchanged(sample)
                } else {
                    ReadOutcome::New(sample)
                });
            }
            core::hint::spin_loop();
        }
        self.counters.max_retries = self.max_retries;
        self.counters.contended += 1;
        Ok(ReadOutcome::Contended)
    }

    /// Begins a read in two phases: copy from the [`Attempt`], then check with
    /// [`Attempt::validate`] whether the copy is valid. `None` if nothing was written in this
    /// session yet, or if `latest` has gone back and the reader has patience.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`].
    #[inline]
    pub fn begin(&mut self) -> Result<Option<Attempt<'_>>, ReadError> {
        let latest = self.latest()?;
        let Some(slot) = self.slot_of(latest)? else {
            return Ok(None);
        };
        let offset = self.layout.slot_offset(slot);
        let found = self.window.load(offset)?;
        let length = self.window.load(offset + WORD_BYTES)?;
        let time_ns = self.window.load(offset + 2 * WORD_BYTES)?;
        let (length, checksum) = checksum::split(length);
        let max_size_bytes = self.layout.max_size_bytes();
        let len_bytes = length as usize;
        let doubt = if found != latest {
            Some(Corrupt::Sequence { latest, found })
        } else if len_bytes > max_size_bytes {
            Some(Corrupt::Length {
                sequence: latest,
                len_bytes,
                max_size_bytes,
            })
        } else {
            None
        };
        let len_bytes = if doubt.is_some() { 0 } else { len_bytes };
        let digest = self
            .layout
            .has_checksum()
            .then(|| checksum::begin(latest, length, time_ns));
        let sample = Sample {
            sequence: latest,
            len_bytes,
            time_ns,
        };
        Ok(Some(Attempt {
            reader: self,
            sample,
            slot,
            doubt,
            checksum,
            digest,
            digested_bytes: 0,
        }))
    }

    /// Sequence of the message that a read would find now, or `None` before the first. Counts
    /// nothing and copies nothing.
    ///
    /// The cheapest way to wait for a message: it brings the next slot near meanwhile.
    #[must_use]
    pub fn peek_sequence(&self) -> Option<u64> {
        // A new message is two lines, `latest` and its slot. Fetched at once they cost less than
        // one after the other (measured: a round trip of 540 ns instead of 660, where a bare one of
        // two lines takes 400).
        self.window
            .prefetch(self.layout.slot_offset(self.layout.next_slot(self.last.1)));
        let latest = if self.layout.has_index_in_slots() {
            self.latest().ok()?
        } else {
            self.window.load(LATEST).ok()?
        };
        let advance = latest.wrapping_sub(self.start);
        (latest != self.start && (self.last.0 != self.start || advance <= MAX_ADVANCE)).then_some(latest)
    }

    /// Sequence of the message accepted last; `start` before the first.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.last.0
    }

    /// What this reader has seen so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Where the parts of the register lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The sequence of the newest message, as the register says.
    #[inline]
    fn latest(&self) -> Result<u64, OutOfBounds> {
        if self.layout.has_index_in_slots() {
            return self.latest_in_slots();
        }
        self.window.load_acquire(LATEST)
    }

    /// The newest sequence that a slot names, if it is newer than the one accepted last, else that
    /// one. What it names there in vain is found by the checksum.
    fn latest_in_slots(&self) -> Result<u64, OutOfBounds> {
        let last = self.last.0;
        let mut most = 0;
        for slot in 0..self.layout.slots() {
            let sequence = self.window.load_acquire(self.layout.slot_offset(slot))?;
            let advance = sequence.wrapping_sub(last);
            if advance <= MAX_ADVANCE {
                most = advance.max(most);
            }
        }
        Ok(last.wrapping_add(most))
    }

    /// The slot of `latest`, which came from outside; `None` if there is no message of this
    /// session.
    #[inline]
    fn slot_of(&mut self, latest: u64) -> Result<Option<usize>, Corrupt> {
        let (last, last_slot) = self.last;
        let advance = latest.wrapping_sub(last);
        if advance <= MAX_ADVANCE {
            if latest == self.start {
                return Ok(None);
            }
            let slots = self.layout.slots() as u64;
            // Saves the division in the usual case.
            let ahead = if advance < slots {
                advance as usize
            } else {
                (advance % slots) as usize
            };
            let slot = last_slot + ahead;
            return Ok(Some(if slot >= self.layout.slots() {
                slot - self.layout.slots()
            } else {
                slot
            }));
        }
        if last == self.start {
            return Ok(None);
        }
        self.counters.stale += 1;
        if self.may_doubt(WORD_BYTES) {
            return Ok(None);
        }
        Err(Corrupt::Backwards { last, latest })
    }

    /// Whether `len_bytes` bytes that do not fit together may be bytes that have not arrived yet.
    #[cold]
    fn may_doubt(&mut self, len_bytes: usize) -> bool {
        self.doubted_bytes = self.doubted_bytes.saturating_add(len_bytes as u64);
        let may = self.doubted_bytes <= self.patience_bytes;
        self.counters.doubtful += u64::from(may);
        may
    }
}

/// A read in progress. Dropping it gives the read up.
pub struct Attempt<'r> {
    reader: &'r mut RegisterReader,
    sample: Sample,
    slot: usize,
    /// What is wrong with the header, unless the writer has overtaken this attempt.
    doubt: Option<Corrupt>,
    /// What the slot says.
    checksum: u32,
    /// Of the bytes copied so far, if the layout has checksums.
    digest: Option<Digest>,
    /// How many bytes from the start on went into `digest`.
    digested_bytes: usize,
}

impl Attempt<'_> {
    /// What the slot says of the message; not to be believed before [`validate`](Self::validate),
    /// but `len_bytes` never exceeds the layout's maximum.
    #[must_use]
    pub fn sample(&self) -> Sample {
        self.sample
    }

    /// Copies payload bytes from `offset` on. The bytes count for nothing before
    /// [`validate`](Self::validate).
    ///
    /// # Errors
    /// [`OutOfBounds`] if the range exceeds the message.
    #[inline]
    pub fn copy(&mut self, offset: usize, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let len_bytes = into.len();
        if offset > self.sample.len_bytes || len_bytes > self.sample.len_bytes - offset {
            return Err(OutOfBounds {
                offset_bytes: offset,
                len_bytes,
                window_bytes: self.sample.len_bytes,
            });
        }
        self.reader.window.read(
            self.reader.layout.slot_offset(self.slot) + HEADER_BYTES + offset,
            into,
        )?;
        if let Some(digest) = &mut self.digest
            && offset == self.digested_bytes
        {
            digest.update(into);
            self.digested_bytes += len_bytes;
        }
        Ok(())
    }

    /// Whether everything copied belongs to one complete message. If so the reader has accepted it;
    /// if not, the writer was faster: forget the bytes and begin again.
    ///
    /// The CRC-32C is checked if the copies went through the whole payload from its start on
    /// without gaps.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`].
    #[inline]
    pub fn validate(self) -> Result<bool, ReadError> {
        self.judge(true, true)
    }

    /// As [`validate`](Self::validate), for a caller who has found whether what was copied
    /// `makes_sense`. What doesn't, although the writer has not overtaken the copies, has not
    /// arrived yet or is corrupt, as with a checksum that does not fit.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`], at once without [patience](RegisterReader::with_patience_bytes).
    #[inline]
    pub fn validate_sense(self, makes_sense: bool) -> Result<bool, ReadError> {
        self.judge(true, makes_sense)
    }

    /// As [`validate_sense`](Self::validate_sense), but marks the message as read only if `accept`.
    #[inline]
    fn judge(self, accept: bool, makes_sense: bool) -> Result<bool, ReadError> {
        let Self {
            reader,
            sample,
            slot,
            doubt,
            checksum,
            digest,
            digested_bytes,
        } = self;
        // All copies before the load: partner is the writer's fence between `latest` and the next
        // slot.
        reader.window.read_fence();
        let latest = reader.latest()?;
        if latest.wrapping_sub(sample.sequence) > reader.layout.slots() as u64 - 2 {
            reader.counters.retries += 1;
            return Ok(false);
        }
        let wrong = match (doubt, digest) {
            (None, Some(digest)) if digested_bytes == sample.len_bytes => {
                let computed = digest.finalize();
                let sequence = sample.sequence;
                (computed != checksum).then_some(Corrupt::Checksum {
                    sequence,
                    found: checksum,
                    computed,
                })
            }
            (doubt, _) => doubt,
        };
        let wrong = wrong.or((!makes_sense).then_some(Corrupt::Senseless {
            sequence: sample.sequence,
        }));
        if let Some(wrong) = wrong {
            if reader.may_doubt(HEADER_BYTES + sample.len_bytes) {
                return Ok(false);
            }
            reader.counters.corrupt += 1;
            return Err(wrong.into());
        }
        reader.doubted_bytes = 0;
        if accept {
            reader.counters.reads += 1;
            reader.last = (sample.sequence, slot);
        }
        Ok(true)
    }
}

/// Two buffers in turn, so that the last good message survives a read that fails.
#[derive(Debug, Clone)]
pub struct LastGood<S> {
    buffers: [S; 2],
    /// Which buffer holds `sample`.
    current: usize,
    sample: Option<Sample>,
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> LastGood<S> {
    /// Uses two buffers, each as long as the layout's longest message.
    #[must_use]
    pub fn new(buffers: [S; 2]) -> Self {
        Self {
            buffers,
            current: 0,
            sample: None,
        }
    }

    /// Reads through `reader`; an unchanged message is not copied again.
    ///
    /// # Errors
    /// As [`RegisterReader::read`]; the last good message stays.
    pub fn read(&mut self, reader: &mut RegisterReader) -> Result<ReadOutcome, ReadError> {
        if let Some(sample) = self.sample
            && reader.peek_sequence() == Some(sample.sequence)
        {
            return Ok(ReadOutcome::Unchanged(sample));
        }
        let spare = 1 - self.current;
        let outcome = reader.read(self.buffers[spare].as_mut())?;
        match (outcome, self.sample) {
            (ReadOutcome::New(sample) | ReadOutcome::Unchanged(sample), _) => {
                self.current = spare;
                self.sample = Some(sample);
                Ok(outcome)
            }
            (ReadOutcome::Contended, Some(sample)) => Ok(ReadOutcome::LastGood(sample)),
            _ => Ok(outcome),
        }
    }

    /// The last good message, if there was one.
    #[must_use]
    pub fn message(&self) -> Option<(Sample, &[u8])> {
        let sample = self.sample?;
        Some((
            sample,
            self.buffers[self.current].as_ref().get(..sample.len_bytes)?,
        ))
    }
}
