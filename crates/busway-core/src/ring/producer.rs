//! The sending side of the queuing ring.
//!
//! Contract: one producer a ring and session. It writes the consumer's memory and reads only its
//! own, where the consumer places credits. It never waits: a full ring is a value, and what to do
//! about it is its caller's business.

use super::{
    CREDIT_BYTES, CREDIT_DATA, CREDIT_LINES, LENGTH, Layout, LayoutError, Position, commit_word, data_start,
};
use crate::checksum;
use crate::remote::{RemoteError, RemoteWrite};
use crate::window::Window;

/// Words of a line behind the commit word at most: length, time, the payload's data position.
const LINE_WORDS: usize = 3;

/// Why a message was not taken. Nothing of it will be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// No room now; the consumer makes some when it releases messages. Not a failure.
    #[error("the ring is full until its consumer releases messages")]
    Full,
    /// The message is longer than the ring takes.
    #[error(
        "a message of {len_bytes} bytes for a ring of at most {max_size_bytes}: shorten it or widen the ring"
    )]
    TooLong {
        /// Length of the message in bytes.
        len_bytes: usize,
        /// The most that the ring takes, in bytes.
        max_size_bytes: usize,
    },
    /// The memory did not take the write.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

/// What a producer has seen so far. All count from construction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProducerCounters {
    /// Messages published.
    pub messages: u64,
    /// Pushes that found no room.
    pub full: u64,
    /// Credit words that claim more than was sent, and were ignored.
    pub impossible_credits: u64,
}

/// One credit word: what the consumer has released of what was sent.
#[derive(Debug)]
struct Credit {
    /// Offset of the word in the credit window.
    offset: usize,
    /// The position released up to, as far as known and believed.
    released: u64,
    /// The word as loaded last, so that one wrong word counts once.
    seen: u64,
}

impl Credit {
    /// Loads the word and believes it if it lies between what is known and `sent`. Whether it was
    /// newly found impossible.
    #[inline]
    fn refresh(&mut self, window: &Window, sent: u64) -> bool {
        // Partner: the consumer's fence before it publishes credits. So its copies are done before
        // our next writes.
        let Ok(word) = window.load_acquire(self.offset) else {
            return false;
        };
        if word.wrapping_sub(self.released) > sent.wrapping_sub(self.released) {
            let is_news = word != self.seen;
            self.seen = word;
            return is_news;
        }
        self.released = word;
        false
    }
}

/// Sends messages into a ring in far memory.
#[derive(Debug)]
pub struct RingProducer<W> {
    pub(super) memory: W,
    layout: Layout,
    /// Local, written by the consumer.
    credit: Window,
    lines: Credit,
    data: Credit,
    /// Line position of the next message to stage.
    next_line: u64,
    /// Data position of the next payload to stage.
    next_data: u64,
    /// Line position of the first message staged and not committed.
    committed: u64,
    counters: ProducerCounters,
}

impl<W: RemoteWrite> RingProducer<W> {
    /// A producer of the session that begins at `start`: the same as the consumer's, and different
    /// from every earlier session's by more than 2^32. `credit` is local memory of [`CREDIT_BYTES`]
    /// that the consumer writes.
    ///
    /// # Errors
    /// [`LayoutError::Memory`] if one of the memories is too small for `layout`.
    pub fn new(memory: W, layout: Layout, start: u64, credit: Window) -> Result<Self, LayoutError> {
        layout.check_memory("lines and data", layout.required_bytes(), memory.len_bytes())?;
        layout.check_memory("credit window", CREDIT_BYTES, credit.len_bytes())?;
        let next_data = data_start(start);
        // What lies in the credit words now is an earlier session's, or already right.
        let stale = |offset| credit.load(offset).unwrap_or_default();
        let lines = Credit {
            offset: CREDIT_LINES,
            released: start,
            seen: stale(CREDIT_LINES),
        };
        let data = Credit {
            offset: CREDIT_DATA,
            released: next_data,
            seen: stale(CREDIT_DATA),
        };
        let counters = ProducerCounters::default();
        Ok(Self {
            memory,
            layout,
            lines,
            data,
            next_line: start,
            next_data,
            committed: start,
            credit,
            counters,
        })
    }

    /// A producer that continues at `position`, where another producer of the same session has
    /// stopped with nothing staged.
    ///
    /// For several producers that take turns under a lock and hand the position on. What the credit
    /// words say is believed if it is possible; otherwise the ring counts as full until they say
    /// something possible.
    ///
    /// # Errors
    /// [`LayoutError::Memory`] if one of the memories is too small for `layout`.
    #[inline]
    pub fn resume(
        memory: W,
        layout: Layout,
        position: Position,
        credit: Window,
    ) -> Result<Self, LayoutError> {
        let mut producer = Self::new(memory, layout, position.line, credit)?;
        producer.next_data = position.data;
        producer.lines.released = position.line.wrapping_sub(layout.lines() as u64);
        producer.data.released = position.data.wrapping_sub(layout.data_bytes() as u64);
        producer.refresh();
        Ok(producer)
    }

    /// Where the next message goes.
    #[must_use]
    pub fn position(&self) -> Position {
        Position {
            line: self.next_line,
            data: self.next_data,
        }
    }

    /// Sends the bytes of `parts`, one behind the other, as one message, with everything staged
    /// before.
    ///
    /// # Errors
    /// [`PushError`]; what was staged before stays staged then.
    #[inline]
    pub fn push(&mut self, parts: &[&[u8]], time_ns: u64) -> Result<(), PushError> {
        self.stage(parts, time_ns)?;
        self.commit()?;
        Ok(())
    }

    /// Writes a message without publishing it; [`commit`](Self::commit) publishes all that are
    /// staged.
    ///
    /// # Errors
    /// [`PushError`]; what was staged before stays staged then.
    #[inline]
    pub fn stage(&mut self, parts: &[&[u8]], time_ns: u64) -> Result<(), PushError> {
        let len_bytes = parts
            .iter()
            .fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let max_size_bytes = self.layout.max_size_bytes();
        if len_bytes > max_size_bytes {
            return Err(PushError::TooLong {
                len_bytes,
                max_size_bytes,
            });
        }
        if self.lines_in_use() >= self.layout.lines() as u64 {
            self.refresh();
            if self.lines_in_use() >= self.layout.lines() as u64 {
                return self.full();
            }
        }
        if len_bytes <= self.layout.inline_bytes() {
            let length = self.length_word(len_bytes, time_ns, None, parts);
            self.write_line([length, time_ns], parts)?;
        } else {
            let (begin, end) = self.layout.place(self.next_data, len_bytes);
            if !self.has_data_room(end) {
                self.refresh();
                if !self.has_data_room(end) {
                    return self.full();
                }
            }
            self.memory.write(self.layout.data_offset(begin), &[], parts)?;
            let length = self.length_word(len_bytes, time_ns, Some(begin), parts);
            self.write_line([length, time_ns, begin], &[])?;
            self.next_data = end;
        }
        self.next_line = self.next_line.wrapping_add(1);
        Ok(())
    }

    /// Writes the next line, with its commit word where the layout says so.
    #[inline]
    fn write_line<const WORDS: usize>(
        &mut self,
        words: [u64; WORDS],
        parts: &[&[u8]],
    ) -> Result<(), RemoteError> {
        let line = self.layout.line_offset(self.next_line);
        if !self.layout.has_commit_in_line() {
            return self.memory.write(line + LENGTH, &words, parts);
        }
        let mut header = [0; 1 + LINE_WORDS];
        header[0] = commit_word(self.next_line);
        header[1..=WORDS].copy_from_slice(&words);
        self.memory.write(line, &header[..=WORDS], parts)
    }

    /// Publishes all messages staged, with one fence.
    ///
    /// # Errors
    /// [`RemoteError`]; messages not published stay staged, so that a later call may continue.
    #[inline]
    pub fn commit(&mut self) -> Result<(), RemoteError> {
        if self.committed == self.next_line {
            return Ok(());
        }
        if self.layout.has_commit_in_line() {
            self.counters.messages += self.staged() as u64;
            self.committed = self.next_line;
            self.memory.flush();
            return Ok(());
        }
        // Lines and payload before their commit words: partner is the consumer's fence after its
        // load of the commit word.
        self.memory.fence();
        while self.committed != self.next_line {
            self.memory.publish(
                self.layout.line_offset(self.committed),
                commit_word(self.committed),
            )?;
            self.committed = self.committed.wrapping_add(1);
            self.counters.messages += 1;
        }
        self.memory.flush();
        Ok(())
    }

    /// Lines free now: how many small messages the ring takes.
    pub fn free_lines(&mut self) -> usize {
        self.refresh();
        self.layout.lines() - self.lines_in_use() as usize
    }

    /// Bytes free in the data area now. A payload takes its length rounded up to 64, and what is
    /// left before the end of the area if it does not fit there.
    pub fn free_bytes(&mut self) -> usize {
        self.refresh();
        self.layout.data_bytes() - self.next_data.wrapping_sub(self.data.released) as usize
    }

    /// Messages staged and not committed.
    #[must_use]
    pub fn staged(&self) -> usize {
        self.next_line.wrapping_sub(self.committed) as usize
    }

    /// Messages that the consumer has not released yet, by its credits; 0 if it has taken
    /// everything.
    pub fn unreleased(&mut self) -> usize {
        self.refresh();
        self.lines_in_use() as usize
    }

    /// What this producer has seen so far.
    #[must_use]
    pub fn counters(&self) -> ProducerCounters {
        self.counters
    }

    /// Where the parts of the ring lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Gives the memory back, for the next session's producer.
    #[must_use]
    pub fn into_memory(self) -> W {
        self.memory
    }

    /// The length of the next message, with its checksum where the layout has one.
    #[inline]
    fn length_word(&self, len_bytes: usize, time_ns: u64, begin: Option<u64>, parts: &[&[u8]]) -> u64 {
        if !self.layout.has_checksum() {
            return len_bytes as u64;
        }
        // A layout with checksums takes no longer messages.
        let len = len_bytes as u32;
        let mut digest = checksum::begin(self.next_line, len, time_ns);
        if let Some(begin) = begin {
            digest.update(&begin.to_ne_bytes());
        }
        parts.iter().for_each(|part| digest.update(part));
        checksum::join(len, digest.finalize())
    }

    #[inline]
    fn lines_in_use(&self) -> u64 {
        self.next_line.wrapping_sub(self.lines.released)
    }

    #[inline]
    fn has_data_room(&self, end: u64) -> bool {
        end.wrapping_sub(self.data.released) <= self.layout.data_bytes() as u64
    }

    #[cold]
    fn full(&mut self) -> Result<(), PushError> {
        self.counters.full += 1;
        Err(PushError::Full)
    }

    /// Credits can only be for what was committed, or the consumer claims to have released what it
    /// cannot have seen.
    #[inline]
    fn refresh(&mut self) {
        let impossible = self.lines.refresh(&self.credit, self.committed);
        self.counters.impossible_credits += u64::from(impossible);
        let impossible = self.data.refresh(&self.credit, self.next_data);
        self.counters.impossible_credits += u64::from(impossible);
    }
}
