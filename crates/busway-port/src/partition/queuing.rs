//! The two ends of a queuing channel inside one host.
//!
//! Contract: for each destination a ring of `busway-core`. Its producer is the holder of the source
//! port's lock, its consumer the holder of the destination port's lock. Their positions are in
//! shared memory, so that the next holder continues from there. An end never waits; [`crate::apex`]
//! waits with the words that [`QueueWriters::full_word`] and [`QueueReader::published_word`] name.
//! Called by [`crate::apex`].
//!
//! A message is in the queue from its commit word on, and out of it from the consumer's record on:
//! a process killed in between loses nothing and repeats nothing that a service had returned.

pub(crate) mod landing;

use busway_core::ring::{Position, PushError, RingConsumer, RingProducer};
use busway_core::{LINE_BYTES, Window};

use crate::config::{Clock, WhenFull};
use crate::counters::{Counter, Counting};
use crate::crash::{self, Steps};
use crate::store::layout::{OutletLayout, Record, port, writer};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::{self, Area, View};
use crate::waiters::is_anybody_there;

/// Offset of the lines' credit in the credit words (`busway_core::ring`).
const CREDIT_LINES: usize = 0;

/// Offset of the payloads' credit beside it.
const CREDIT_DATA: usize = 8;

/// Looks for the credit of a payload whose line has credit: far more than a store takes to become
/// visible.
const CREDIT_SPINS: u32 = 1000;

/// Messages are compared in pieces of this length.
const PIECE_BYTES: usize = 1024;

/// The sending end: one writer a destination.
#[derive(Debug)]
pub(crate) struct QueueWriters {
    writers: Vec<QueueWriter>,
    when_full: WhenFull,
    clock: Clock,
}

/// The way to one destination.
#[derive(Debug)]
pub(crate) struct QueueWriter {
    /// The writer's words, which this side writes.
    control: Area,
    /// Lines and data, which this side writes.
    ring: Window,
    _ring: Area,
    /// The destination port's part of its partition's file, which the other side writes.
    far: View,
    credit: Window,
    layout: OutletLayout,
}

impl QueueWriter {
    pub(crate) fn new(control: Area, ring: Area, far: View, layout: OutletLayout) -> Self {
        Self {
            control,
            ring: ring.window(),
            _ring: ring,
            credit: far.part(port::CREDIT, busway_core::ring::CREDIT_BYTES).window(),
            far,
            layout,
        }
    }

    fn record(&self) -> Record<'_> {
        Record {
            area: &self.control,
            offset: writer::PRODUCER,
        }
    }

    /// Messages sent and not yet received. What the other side says is believed as far as it is
    /// possible.
    fn in_queue(&self) -> u64 {
        let released = self.far.word(port::CREDIT + CREDIT_LINES).load(Ordering::Relaxed);
        let sent = self.record().load().line;
        sent.wrapping_sub(released).min(self.layout.ring.lines() as u64)
    }

    fn has_room(&self) -> bool {
        self.in_queue() < self.layout.depth as u64
    }

    /// Puts a message behind the others; `false` if the ring has no room in spite of
    /// [`has_room`](Self::has_room), which only impossible credits bring about.
    fn push(&self, message: &[u8], time_ns: u64) -> bool {
        let record = self.record();
        let memory = Steps(self.ring.clone());
        let producer = RingProducer::resume(memory, self.layout.ring, record.load(), self.credit.clone());
        let Ok(mut producer) = producer else {
            return false;
        };
        // Room in lines is room for the payload too, but its credit may become visible a moment
        // later.
        for _ in 0..CREDIT_SPINS {
            match producer.push(&[message], time_ns) {
                Ok(()) => {
                    crash::step("committed");
                    self.stand(producer.position());
                    return true;
                }
                Err(PushError::Full) => core::hint::spin_loop(),
                Err(_) => return false,
            }
        }
        false
    }

    /// Records that the producer stands at `position`.
    fn stand(&self, position: Position) {
        self.record().store(position);
        crash::step("recorded");
        // Before the look at who waits, which `is_anybody_there` orders.
        self.control
            .word(writer::PUBLISHED)
            .store(position.line, Ordering::Relaxed);
    }

    /// Continues at the destination's position, if the record is one that its credits make
    /// impossible: then a process of this partition has damaged the channel, or the destination its
    /// credits, and without this no message would ever pass again.
    fn settle(&self) {
        let credit = |offset| self.far.word(port::CREDIT + offset).load(Ordering::Acquire);
        // Lines before data, against the order in which they are written: the payload's credit is
        // never behind.
        let line = credit(CREDIT_LINES);
        let data = credit(CREDIT_DATA);
        let (ring, stands) = (self.layout.ring, self.record().load());
        let is_possible = stands.line.wrapping_sub(line) <= ring.lines() as u64
            && stands.data.wrapping_sub(data) <= ring.data_bytes() as u64
            && is_aligned(stands.data);
        if !is_possible && is_aligned(data) {
            self.stand(Position { line, data });
        }
    }

    /// Puts the record behind a message that a sender had committed when it died.
    fn recover(&self) {
        let position = self.record().load();
        // Reads the ring as the consumer would. It writes no credits, so the window that it is
        // given for them does not matter.
        let consumer = RingConsumer::resume(self.ring.clone(), self.layout.ring, position, self.ring.clone());
        if let Ok(mut consumer) = consumer
            && let Ok(Some(_)) = consumer.peek()
        {
            consumer.release_later();
            self.stand(consumer.position());
        } else {
            self.stand(position);
        }
    }

    fn overflow(&self, messages: u64) {
        self.control
            .word(writer::OVERFLOWS)
            .fetch_add(messages, Ordering::Relaxed);
    }

    /// Wakes a process that waits at the destination for a message.
    fn wake(&self) {
        if is_anybody_there(self.far.word(port::WAITERS)) {
            sys::futex_wake(self.control.word(writer::PUBLISHED), i32::MAX);
        }
    }
}

/// Messages that wait in a queue from line `first` on, of which the sender says to have sent those
/// before line `published`. That word may be behind the messages: a sender was killed before it
/// wrote it, or another host has written the messages itself.
pub(crate) fn count_waiting(layout: &OutletLayout, ring: &Window, first: u64, published: u64) -> u64 {
    let depth = layout.depth as u64;
    let mut waiting = published.wrapping_sub(first);
    if waiting > depth {
        waiting = 0;
    }
    while waiting < depth && layout.ring.is_committed(ring, first.wrapping_add(waiting)) {
        waiting += 1;
    }
    waiting
}

/// Whether a payload can begin at `data`.
fn is_aligned(data: u64) -> bool {
    data.is_multiple_of(LINE_BYTES as u64)
}

impl QueueWriters {
    pub(crate) fn new(writers: Vec<QueueWriter>, when_full: WhenFull, clock: Clock) -> Self {
        Self {
            writers,
            when_full,
            clock,
        }
    }

    /// What happens to a message for a full queue.
    pub(crate) fn when_full(&self) -> WhenFull {
        self.when_full
    }

    /// Finishes what a dead sender has begun; called by the process that took the lock over.
    pub(crate) fn recover(&self) {
        for writer in &self.writers {
            writer.recover();
            writer.wake();
        }
    }

    /// Puts the ends right that are impossible. For the holder of the port's lock, before it asks
    /// for room.
    pub(crate) fn settle(&self) {
        self.writers.iter().for_each(QueueWriter::settle);
    }

    /// Whether a message would be taken now.
    pub(crate) fn has_room(&self) -> bool {
        self.when_full == WhenFull::Overflow || self.writers.iter().all(QueueWriter::has_room)
    }

    /// Sends `message` to every destination that has room, for the holder of the port's lock, who
    /// has asked [`has_room`](Self::has_room). Returns how many destinations had none.
    pub(crate) fn send(&self, message: &[u8]) -> u64 {
        self.send_at(message, self.clock.now_ns())
    }

    /// As [`send`](Self::send), with the source time `time_ns` of this channel's clock.
    pub(crate) fn send_at(&self, message: &[u8], time_ns: i64) -> u64 {
        let time_ns = time_ns as u64;
        let mut overflows = 0;
        for writer in &self.writers {
            if !(writer.has_room() && writer.push(message, time_ns)) {
                writer.overflow(1);
                overflows += 1;
            }
        }
        crash::step("sent");
        self.writers.iter().for_each(QueueWriter::wake);
        overflows
    }

    /// Reports to every destination that `messages` were lost before they came here. Under the
    /// lock.
    pub(crate) fn note_lost(&self, messages: u64) {
        for writer in &self.writers {
            writer.overflow(messages);
        }
    }

    /// Messages that the first destination was ever sent. Under the port's lock.
    pub(crate) fn sent_to_first(&self) -> u64 {
        self.writers
            .first()
            .map_or(0, |writer| writer.record().load().line)
    }

    /// Messages in the fullest queue.
    pub(crate) fn in_queue(&self) -> u64 {
        self.writers
            .iter()
            .map(QueueWriter::in_queue)
            .max()
            .unwrap_or_default()
    }

    /// The word that changes when a full queue gets room, and its value now; any queue that is full
    /// will do, since the sender needs room in all.
    pub(crate) fn full_word(&self) -> Option<(&AtomicU64, u64)> {
        let writer = self
            .writers
            .iter()
            .find(|writer| !writer.has_room())
            .or(self.writers.first())?;
        let word = writer.far.word(port::CREDIT + CREDIT_LINES);
        Some((word, word.load(Ordering::Relaxed)))
    }
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct QueueReader {
    /// The writer's words, which the other side writes.
    control: View,
    ring: Window,
    _ring: View,
    /// The source port's part of its partition's file, which the other side writes.
    far: View,
    /// This port's part of its partition's file.
    area: Area,
    credit: Window,
    layout: OutletLayout,
}

/// A message taken from the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) len_bytes: usize,
    /// Whether the queue has overflowed since the message before.
    pub(crate) overflowed: bool,
}

impl QueueReader {
    pub(crate) fn new(control: View, ring: View, far: View, area: &Area, layout: OutletLayout) -> Self {
        Self {
            control,
            ring: ring.window(),
            _ring: ring,
            far,
            credit: area.part(port::CREDIT, busway_core::ring::CREDIT_BYTES).window(),
            area: area.clone(),
            layout,
        }
    }

    fn record(&self) -> Record<'_> {
        Record {
            area: &self.area,
            offset: port::CONSUMER,
        }
    }

    fn consumer(&self) -> Option<RingConsumer<Window>> {
        self.consumer_at(self.record().load())
    }

    fn consumer_at(&self, position: Position) -> Option<RingConsumer<Window>> {
        RingConsumer::resume(self.ring.clone(), self.layout.ring, position, self.credit.clone()).ok()
    }

    /// Writes the credits that a dead receiver owed; called by the process that took the lock over.
    pub(crate) fn recover(&self) {
        if let Some(mut consumer) = self.consumer() {
            let _ = consumer.flush_credits();
            self.wake();
        }
    }

    /// Takes the first message into `buffer`, which is as long as the longest, for the holder of
    /// the port's lock. `None` if there is none, or if the ring is damaged.
    pub(crate) fn take(&self, buffer: &mut [u8]) -> Option<Taken> {
        let mut consumer = self.consumer()?;
        let Ok(Some(message)) = consumer.peek() else {
            self.skip_damage();
            return None;
        };
        consumer.copy(0, buffer.get_mut(..message.len_bytes)?).ok()?;
        crash::step("copied");
        consumer.release_later();
        self.record().store(consumer.position());
        crash::step("taken");
        // The window is this partition's own memory and long enough.
        let _ = consumer.flush_credits();
        crash::step("credited");
        self.wake();
        Some(Taken {
            len_bytes: message.len_bytes,
            overflowed: self.tell_overflows(),
        })
    }

    /// Discards what no receiver can take, if the queue [`is_damaged`](Self::is_damaged); for the
    /// holder of the port's lock. The next message reports it as an overflow.
    pub(crate) fn skip_damage(&self) {
        let Some((lines, there)) = self.damage() else {
            return;
        };
        self.record().store(there);
        if let Some(mut consumer) = self.consumer() {
            let _ = consumer.flush_credits();
        }
        Counting(&self.area).add(Counter::Damaged, lines);
        let told = self.overflows().wrapping_sub(1);
        self.area
            .word(port::OVERFLOWS_TOLD)
            .store(told, Ordering::Relaxed);
        self.wake();
    }

    /// Whether the sender says to have sent messages, and the first of them is not there: only a
    /// sender that has scribbled over the ring leaves that.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damage().is_some()
    }

    /// How many messages are not there, and where those behind them begin.
    fn damage(&self) -> Option<(u64, Position)> {
        let (here, there) = (self.record().load(), self.sent()?);
        let lines = there.line.wrapping_sub(here.line);
        let is_possible = (1..=self.layout.ring.lines() as u64).contains(&lines)
            && there.data.wrapping_sub(here.data) <= self.layout.ring.data_bytes() as u64
            && is_aligned(there.data);
        // A look at the ring only now: a message before the position that the sender said is there,
        // unless it is damaged.
        (is_possible && !self.has_message()).then_some((lines, there))
    }

    /// Where the sender says to stand, if it did not move meanwhile.
    fn sent(&self) -> Option<Position> {
        // Acquire: partner is the Release in `Record::store`, which stands behind the commit words.
        // So a message before this position is there.
        let word = |offset| {
            self.control
                .word(writer::PRODUCER + offset)
                .load(Ordering::Acquire)
        };
        let turn = word(0);
        let copy = 8 + 16 * (turn & 1) as usize;
        let position = Position {
            line: word(copy),
            data: word(copy + 8),
        };
        (word(0) == turn).then_some(position)
    }

    /// Empties the queue, for the holder of the port's lock.
    pub(crate) fn clear(&self) {
        let Some(mut consumer) = self.consumer() else {
            return;
        };
        // At most one ring full, however fast the sender is.
        for _ in 0..self.layout.ring.lines() {
            if !matches!(consumer.peek(), Ok(Some(_))) {
                break;
            }
            consumer.release_later();
        }
        self.record().store(consumer.position());
        let _ = consumer.flush_credits();
        self.skip_damage();
        self.tell_overflows();
        self.wake();
    }

    /// Copies the message at `position`, or the first one, into `buffer`, which is as long as the
    /// longest, and leaves it in the queue. Returns its length in bytes, its source time in ns and
    /// the position behind it; `None` if there is none, or if the ring is damaged.
    pub(crate) fn look(
        &self,
        position: Option<Position>,
        buffer: &mut [u8],
    ) -> Option<(usize, i64, Position)> {
        let mut consumer = self.consumer_at(self.position_or(position))?;
        let message = consumer.peek().ok()??;
        consumer.copy(0, buffer.get_mut(..message.len_bytes)?).ok()?;
        consumer.release_later();
        Some((message.len_bytes, message.time_ns as i64, consumer.position()))
    }

    /// The position behind the message at `position`, or the first one, if it is `message` of
    /// `time_ns`.
    pub(crate) fn look_like(
        &self,
        position: Option<Position>,
        message: &[u8],
        time_ns: i64,
    ) -> Option<Position> {
        let mut consumer = self.consumer_at(self.position_or(position))?;
        let next = consumer.peek().ok()??;
        if next.len_bytes != message.len() || next.time_ns as i64 != time_ns {
            return None;
        }
        let mut piece = [0; PIECE_BYTES];
        for (index, part) in message.chunks(PIECE_BYTES).enumerate() {
            let piece = &mut piece[..part.len()];
            consumer.copy(index * PIECE_BYTES, piece).ok()?;
            if piece != part {
                return None;
            }
        }
        consumer.release_later();
        Some(consumer.position())
    }

    fn position_or(&self, position: Option<Position>) -> Position {
        position.unwrap_or_else(|| self.record().load())
    }

    /// Number of the message behind `position`, or of the first one, whether it is there or not.
    pub(crate) fn number_at(&self, position: Option<Position>) -> u64 {
        self.position_or(position).line.wrapping_add(1)
    }

    /// Takes `messages` out of the queue that were [`look`](Self::look)ed at, for the holder of the
    /// port's lock.
    pub(crate) fn skip(&self, messages: u64) {
        let Some(mut consumer) = self.consumer() else {
            return;
        };
        for _ in 0..messages {
            if !matches!(consumer.peek(), Ok(Some(_))) {
                break;
            }
            consumer.release_later();
        }
        self.record().store(consumer.position());
        let _ = consumer.flush_credits();
        self.wake();
    }

    /// Where the first message stands. Its line counts the messages taken so far.
    pub(crate) fn position(&self) -> Position {
        self.record().load()
    }

    /// Whether there were overflows that no receiver knew of; from now on one does.
    fn tell_overflows(&self) -> bool {
        let overflows = self.overflows();
        let told = self.area.word(port::OVERFLOWS_TOLD);
        let is_news = told.load(Ordering::Relaxed) != overflows;
        if is_news {
            told.store(overflows, Ordering::Relaxed);
        }
        is_news
    }

    /// Messages lost for want of room, ever.
    pub(crate) fn overflows(&self) -> u64 {
        self.control.word(writer::OVERFLOWS).load(Ordering::Relaxed)
    }

    /// Whether a message waits.
    pub(crate) fn has_message(&self) -> bool {
        self.consumer()
            .is_some_and(|mut consumer| matches!(consumer.peek(), Ok(Some(_))))
    }

    /// Messages in the queue.
    pub(crate) fn in_queue(&self) -> u64 {
        let published = self.control.word(writer::PUBLISHED).load(Ordering::Relaxed);
        count_waiting(&self.layout, &self.ring, self.record().load().line, published)
    }

    /// The word that changes when a message comes, and its value now.
    pub(crate) fn published_word(&self) -> (&AtomicU64, u64) {
        let word = self.control.word(writer::PUBLISHED);
        (word, word.load(Ordering::Relaxed))
    }

    /// Wakes a process that waits at the source for room.
    fn wake(&self) {
        if is_anybody_there(self.far.word(port::WAITERS)) {
            sys::futex_wake(self.area.word(port::CREDIT + CREDIT_LINES), i32::MAX);
        }
    }
}
