//! The receiving side of the queuing ring.
//!
//! Contract: one consumer a ring and session. It only reads the ring, which lies in its own memory,
//! and writes credits into the producer's. It never waits. A message stays in place, to be copied
//! in any pieces, until it is released.

use super::{
    CREDIT_BYTES, CREDIT_DATA, CREDIT_LINES, LENGTH, Layout, LayoutError, PAYLOAD, Position, TIME,
    commit_word, data_start,
};
use crate::LINE_BYTES;
use crate::checksum;
use crate::remote::{RemoteError, RemoteWrite};
use crate::window::{OutOfBounds, Window};

/// A message that waits in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Payload length in bytes, at most the layout's maximum.
    pub len_bytes: usize,
    /// Source time in nanoseconds of the producer's clock. Not checked: it is what the producer
    /// says.
    pub time_ns: u64,
}

/// What is wrong with a line. The producer, or another program in its place, broke the protocol;
/// the ring cannot continue without a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// The length is impossible.
    #[error(
        "message {position} claims {len_bytes} bytes in a ring of at most {max_size_bytes}: open a new session"
    )]
    Length {
        /// Line position of the message.
        position: u64,
        /// Its alleged length in bytes.
        len_bytes: u64,
        /// The most that the layout allows, in bytes.
        max_size_bytes: usize,
    },
    /// The payload is not where it must be.
    #[error(
        "message {position} claims its payload at {found}, where only {expected} is possible: open a new session"
    )]
    Data {
        /// Line position of the message.
        position: u64,
        /// Its alleged data position.
        found: u64,
        /// The data position that follows from what came before.
        expected: u64,
    },
    /// The CRC-32C does not fit the bytes, and has not for long.
    #[error(
        "message {position} has CRC-32C {found:#010x}, its bytes give {computed:#010x}, and no more came: open a new session"
    )]
    Checksum {
        /// Line position of the message.
        position: u64,
        /// What the line says.
        found: u32,
        /// What the bytes give.
        computed: u32,
    },
}

/// Bytes of one message that a consumer with checksums checks without success before it fails: some
/// seconds of polling.
const PATIENCE_BYTES: u64 = 1 << 32;

/// Why a message could not be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The line breaks the protocol.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The window is smaller than the layout, which construction excludes.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
}

/// What a consumer has seen so far. All count from construction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsumerCounters {
    /// Messages released.
    pub messages: u64,
    /// Times that a line was found to break the protocol.
    pub corrupt: u64,
    /// Times that credits were written back.
    pub credit_writes: u64,
    /// Looks at a message whose commit word was there and whose bytes did not fit its checksum yet.
    pub doubtful: u64,
}

/// The message at the front, checked.
#[derive(Debug, Clone, Copy)]
struct Front {
    message: Message,
    /// Offset of the payload in the window.
    offset: usize,
    /// Data position behind the payload; unchanged for a small message.
    data_end: u64,
}

/// Takes messages from a ring in this host's memory.
#[derive(Debug)]
pub struct RingConsumer<C> {
    window: Window,
    layout: Layout,
    /// The producer's memory, where credits go.
    credit: C,
    /// Line position of the next message.
    next_line: u64,
    /// Data position of the next payload.
    next_data: u64,
    front: Option<Front>,
    /// Positions in the last credit.
    told_lines: u64,
    told_data: u64,
    /// Credits are written back when this many lines or more than this many data bytes are owed.
    batch_lines: u64,
    batch_data_bytes: u64,
    /// Bytes that may be looked at in vain, and how many of the next message were.
    patience_bytes: u64,
    doubted_bytes: u64,
    counters: ConsumerCounters,
}

impl<C: RemoteWrite> RingConsumer<C> {
    /// A consumer of the session that begins at `start`, the same as the producer's. `credit` is
    /// the producer's memory of [`CREDIT_BYTES`].
    ///
    /// # Errors
    /// [`LayoutError::Memory`] if one of the memories is too small for `layout`.
    pub fn new(window: Window, layout: Layout, start: u64, credit: C) -> Result<Self, LayoutError> {
        layout.check_memory("lines and data", layout.required_bytes(), window.len_bytes())?;
        layout.check_memory("credit window", CREDIT_BYTES, credit.len_bytes())?;
        let data_bytes = layout.data_bytes() as u64;
        // While the longest message waits for room, at least twice its length must be free once all
        // are released: at most its own length is lost before the end of the area. So credits for
        // the rest may be owed, but no more.
        let longest = ((layout.max_size_bytes() + LINE_BYTES - 1) & !(LINE_BYTES - 1)) as u64;
        Ok(Self {
            window,
            credit,
            next_line: start,
            next_data: data_start(start),
            front: None,
            told_lines: start,
            told_data: data_start(start),
            batch_lines: (layout.lines() as u64 / 4).max(1),
            batch_data_bytes: data_bytes.saturating_sub(2 * longest).min(data_bytes / 4),
            layout,
            patience_bytes: PATIENCE_BYTES,
            doubted_bytes: 0,
            counters: ConsumerCounters::default(),
        })
    }

    /// A consumer that continues at `position`, where another consumer of the same session has
    /// stopped.
    ///
    /// For several consumers that take turns under a lock and hand the position on. The credits may
    /// be behind `position` or not: the first [`flush_credits`](Self::flush_credits) writes them.
    ///
    /// # Errors
    /// [`LayoutError::Memory`] if one of the memories is too small for `layout`.
    #[inline]
    pub fn resume(
        window: Window,
        layout: Layout,
        position: Position,
        credit: C,
    ) -> Result<Self, LayoutError> {
        let mut consumer = Self::new(window, layout, position.line, credit)?;
        consumer.next_data = position.data;
        consumer.told_lines = position.line.wrapping_sub(1);
        consumer.told_data = position.data.wrapping_sub(1);
        Ok(consumer)
    }

    /// Where the next message begins, behind all that were released.
    #[must_use]
    pub fn position(&self) -> Position {
        Position {
            line: self.next_line,
            data: self.next_data,
        }
    }

    /// Writes credits back once `lines` messages were released (a quarter of the ring by default;
    /// at most all of it): 1 makes room at once, at the price of a write across the bus for each
    /// message.
    #[must_use]
    pub fn with_credit_batch(self, lines: usize) -> Self {
        Self {
            batch_lines: lines.clamp(1, self.layout.lines()) as u64,
            ..self
        }
    }

    /// With checksums: fails on a message whose commit word has arrived after checking
    /// `patience_bytes` of its bytes without success (2^32 by default, which takes some seconds of
    /// polling).
    #[must_use]
    pub fn with_patience_bytes(self, patience_bytes: u64) -> Self {
        Self {
            patience_bytes,
            ..self
        }
    }

    /// The message at the front, if one has come. Stays the same until [`release`](Self::release).
    ///
    /// # Errors
    /// [`ReceiveError::Corrupt`]; only a new session helps.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Message>, ReceiveError> {
        if let Some(front) = &self.front {
            return Ok(Some(front.message));
        }
        let line = self.layout.line_offset(self.next_line);
        if self.window.load(line)? != commit_word(self.next_line) {
            return Ok(None);
        }
        // The commit word before the line and its payload: partner is the producer's fence before
        // the commit word.
        self.window.read_fence();
        match self.examine(line)? {
            Ok(front) => {
                self.doubted_bytes = 0;
                self.front = Some(front);
                Ok(Some(front.message))
            }
            Err((wrong, looked_at_bytes)) => self.doubt(wrong, looked_at_bytes),
        }
    }

    /// Checks the message of the line at offset `line`; returns what is wrong with it, and how many
    /// bytes the check read.
    #[inline]
    fn examine(&self, line: usize) -> Result<Result<Front, (Corrupt, usize)>, OutOfBounds> {
        let position = self.next_line;
        let word = self.window.load(line + LENGTH)?;
        let time_ns = self.window.load(line + TIME)?;
        let (length, checksum) = if self.layout.has_checksum() {
            let (length, checksum) = checksum::split(word);
            (u64::from(length), Some(checksum))
        } else {
            (word, None)
        };
        let max_size_bytes = self.layout.max_size_bytes();
        let len_bytes = match usize::try_from(length) {
            Ok(len_bytes) if len_bytes <= max_size_bytes => len_bytes,
            _ => {
                let wrong = Corrupt::Length {
                    position,
                    len_bytes: length,
                    max_size_bytes,
                };
                return Ok(Err((wrong, LINE_BYTES)));
            }
        };
        let (mut offset, mut data_end, mut begin) = (line + PAYLOAD, self.next_data, None);
        if len_bytes > self.layout.inline_bytes() {
            let (expected, end) = self.layout.place(self.next_data, len_bytes);
            let found = self.window.load(line + PAYLOAD)?;
            if found != expected {
                let wrong = Corrupt::Data {
                    position,
                    found,
                    expected,
                };
                return Ok(Err((wrong, LINE_BYTES)));
            }
            (offset, data_end, begin) = (self.layout.data_offset(expected), end, Some(expected));
        }
        let message = Message { len_bytes, time_ns };
        if let Some(found) = checksum {
            let computed = self.checksum(message, begin, offset)?;
            if computed != found {
                let wrong = Corrupt::Checksum {
                    position,
                    found,
                    computed,
                };
                return Ok(Err((wrong, LINE_BYTES + len_bytes)));
            }
        }
        Ok(Ok(Front {
            message,
            offset,
            data_end,
        }))
    }

    /// The CRC-32C of `message`, whose payload lies at `offset`, as it is now.
    fn checksum(&self, message: Message, begin: Option<u64>, offset: usize) -> Result<u32, OutOfBounds> {
        // A layout with checksums takes no longer messages.
        let len = message.len_bytes as u32;
        let mut digest = checksum::begin(self.next_line, len, message.time_ns);
        if let Some(begin) = begin {
            digest.update(&begin.to_ne_bytes());
        }
        checksum::add_window(&mut digest, &self.window, offset, message.len_bytes)?;
        Ok(digest.finalize())
    }

    /// Copies payload bytes of the front message from `offset` on.
    ///
    /// # Errors
    /// [`OutOfBounds`] if the range exceeds the message, or if no message was
    /// [`peek`](Self::peek)ed.
    #[inline]
    pub fn copy(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let len_bytes = into.len();
        let message_bytes = self.front.map_or(0, |front| front.message.len_bytes);
        match self.front {
            Some(front) if offset <= message_bytes && len_bytes <= message_bytes - offset => {
                self.window.read(front.offset + offset, into)
            }
            _ => Err(OutOfBounds {
                offset_bytes: offset,
                len_bytes,
                window_bytes: message_bytes,
            }),
        }
    }

    /// Whether the front message's commit word is still there after the message was copied. It
    /// disappears only if the memory itself does: a dead PCI link reads all ones. `false` as well
    /// if no message was [`peek`](Self::peek)ed.
    #[inline]
    #[must_use]
    pub fn stands(&self) -> bool {
        // The copies before this look. Partner: none, since nobody publishes anything by taking the
        // word away.
        self.window.read_fence();
        let found = self.window.load(self.layout.line_offset(self.next_line));
        self.front.is_some() && found == Ok(commit_word(self.next_line))
    }

    /// Done with the front message; does nothing if none was [`peek`](Self::peek)ed. Writes credits
    /// back when enough are owed.
    ///
    /// # Errors
    /// [`RemoteError`] of the credits; the message is released anyway and the credits stay owed.
    #[inline]
    pub fn release(&mut self) -> Result<(), RemoteError> {
        if !self.release_later() {
            return Ok(());
        }
        let owed_lines = self.next_line.wrapping_sub(self.told_lines);
        let owed_data_bytes = self.next_data.wrapping_sub(self.told_data);
        if owed_lines >= self.batch_lines || owed_data_bytes > self.batch_data_bytes {
            self.flush_credits()?;
        }
        Ok(())
    }

    /// Done with the front message, but its credits stay owed until
    /// [`flush_credits`](Self::flush_credits): for a consumer that records its
    /// [`position`](Self::position) first. `false` if none was [`peek`](Self::peek)ed.
    #[inline]
    pub fn release_later(&mut self) -> bool {
        let Some(front) = self.front.take() else {
            return false;
        };
        self.next_line = self.next_line.wrapping_add(1);
        self.next_data = front.data_end;
        self.counters.messages += 1;
        true
    }

    /// Writes back all credits that are owed.
    ///
    /// # Errors
    /// [`RemoteError`]; the credits stay owed.
    pub fn flush_credits(&mut self) -> Result<(), RemoteError> {
        if self.told_lines == self.next_line {
            return Ok(());
        }
        // Our copies before the credits: partner is the producer's fence after it loads them.
        self.credit.fence();
        if self.told_data != self.next_data {
            self.credit.publish(CREDIT_DATA, self.next_data)?;
            self.told_data = self.next_data;
        }
        self.credit.publish(CREDIT_LINES, self.next_line)?;
        self.told_lines = self.next_line;
        self.credit.flush();
        self.counters.credit_writes += 1;
        Ok(())
    }

    /// What this consumer has seen so far.
    #[must_use]
    pub fn counters(&self) -> ConsumerCounters {
        self.counters
    }

    /// Where the parts of the ring lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// With checksums, what is wrong may be what has not arrived yet. Bytes that once fitted their
    /// checksum stay as they are until their credit is given, so nobody need look again while they
    /// are copied.
    #[cold]
    fn doubt(&mut self, wrong: Corrupt, looked_at_bytes: usize) -> Result<Option<Message>, ReceiveError> {
        if self.layout.has_checksum() {
            self.doubted_bytes = self.doubted_bytes.saturating_add(looked_at_bytes as u64);
            if self.doubted_bytes <= self.patience_bytes {
                self.counters.doubtful += 1;
                return Ok(None);
            }
        }
        self.counters.corrupt += 1;
        Err(wrong.into())
    }
}
