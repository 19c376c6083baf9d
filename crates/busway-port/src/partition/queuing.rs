//! The two ends of a queuing channel: inside one host, or between hosts that share the memory of
//! the queue.
//!
//! Contract: for each destination a ring of `busway-core`. Its producer is the holder of the source
//! port's lock, its consumer the holder of the destination port's lock. Their positions are in
//! shared memory, so that the next holder continues from there. An end never waits; [`crate::apex`]
//! waits with the words that [`QueueWriters::full_word`] and [`QueueReader::published_word`] name.
//! Called by [`crate::apex`]. What a gateway does with a queue is in [`super::carried_queue`].
//!
//! A message is in the queue from its commit word on, and out of it from the consumer's record on:
//! a process killed in between loses nothing and repeats nothing that a service had returned.
//!
//! Where the other end is on another host, both ends first agree on a session
//! ([`super::shared_queue`]).

pub(crate) mod landing;

use busway_core::ring::{CREDIT_BYTES, Position, PushError, RingConsumer, RingProducer};
use busway_core::{LINE_BYTES, Window};

use super::shared_queue::{SharedDestination, SharedSource};
use crate::config::{Clock, WhenFull};
use crate::counters::{Counter, Counting};
use crate::crash::{self, Steps};
use crate::store::layout::{OutletLayout, RECORD_BYTES, Record, port, writer};
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
    pub(super) control: Area,
    /// Lines and data, which this side writes.
    pub(super) ring: Window,
    pub(super) ring_area: Area,
    /// How many processes wait for a message; the other side writes it.
    pub(super) waiting: View,
    /// The ring's credits, which the other side writes.
    pub(super) credit: Window,
    pub(super) credit_words: View,
    pub(super) layout: OutletLayout,
    /// In memory that another host shares.
    pub(super) shared: Option<SharedSource>,
}

impl QueueWriter {
    /// Inside the host: `far` is the destination port's part of its partition's file.
    pub(crate) fn new(control: Area, ring: Area, far: &View, layout: OutletLayout) -> Self {
        let credit_words = far.part(port::CREDIT, CREDIT_BYTES);
        Self {
            control,
            ring: ring.window(),
            ring_area: ring,
            waiting: far.part(port::WAITERS, 8),
            credit: credit_words.window(),
            credit_words,
            layout,
            shared: None,
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
        let released = self.released().line;
        let sent = self.record().load().line;
        sent.wrapping_sub(released).min(self.layout.ring.lines() as u64)
    }

    /// Behind what the destination says to have received.
    pub(crate) fn released(&self) -> Position {
        if self.shared.as_ref().is_some_and(|shared| !shared.is_met()) {
            return Position::at_start(0);
        }
        // Acquire: partner is the fence before credits are written, so that the destination's
        // copies are done before anybody writes there again. Lines before data, against the order
        // in which they are written: the payload's credit is never behind.
        let word = |offset| self.credit_words.word(offset).load(Ordering::Acquire);
        let line = word(CREDIT_LINES);
        Position {
            line,
            data: word(CREDIT_DATA),
        }
    }

    fn has_room(&self) -> bool {
        self.in_queue() < self.layout.depth as u64
    }

    /// Puts a message behind the others; `false` if the ring has no room in spite of
    /// [`has_room`](Self::has_room), which only impossible credits bring about.
    fn push(&self, message: &[u8], time_ns: u64) -> bool {
        let record = self.record();
        let memory = Steps(self.ring.clone());
        let credit = match &self.shared {
            Some(shared) if !shared.is_met() => shared.no_credit(),
            _ => &self.credit,
        };
        let producer = RingProducer::resume(memory, self.layout.ring, record.load(), credit.clone());
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
        self.begin();
        let Position { line, data } = self.released();
        let (ring, stands) = (self.layout.ring, self.record().load());
        let is_possible = stands.line.wrapping_sub(line) <= ring.lines() as u64
            && stands.data.wrapping_sub(data) <= ring.data_bytes() as u64
            && is_aligned(stands.data);
        // Another host may have damaged both ends: a receiver whose own position is impossible goes
        // on where this end stands.
        if !is_possible && (is_aligned(data) || self.shared.is_some()) {
            let data = data & !(LINE_BYTES as u64 - 1);
            self.stand(Position { line, data });
        }
    }

    /// Begins a session, if the queue lies in memory that another host shares and is in none.
    fn begin(&self) {
        if let Some(shared) = &self.shared {
            shared.begin(&self.control, &self.ring_area, &self.layout.ring);
        }
    }

    /// Puts the record behind a message that a sender had committed when it died.
    fn recover(&self) {
        self.begin();
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
        // Under the port's lock, so nobody else counts. No locked instruction: the memory may be
        // shared with another machine.
        let overflows = self.control.word(writer::OVERFLOWS);
        let count = overflows.load(Ordering::Relaxed).wrapping_add(messages);
        overflows.store(count, Ordering::Relaxed);
    }

    /// Wakes a process that waits at the destination for a message.
    fn wake(&self) {
        if is_anybody_there(self.waiting.word(0)) {
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
        let word = writer.credit_words.word(CREDIT_LINES);
        Some((word, word.load(Ordering::Relaxed)))
    }

    /// Whether whoever makes room is known to wake the sender.
    pub(crate) fn is_woken(&self) -> bool {
        self.shared().all(SharedSource::is_woken)
    }

    /// Tells other hosts how many processes wait for room.
    pub(crate) fn announce(&self, waiting: u64) {
        self.shared().for_each(|shared| shared.announce(waiting));
    }

    fn shared(&self) -> impl Iterator<Item = &SharedSource> {
        self.writers.iter().filter_map(|writer| writer.shared.as_ref())
    }
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct QueueReader {
    /// The writer's words, which the other side writes.
    pub(super) control: View,
    pub(super) ring: Window,
    pub(super) _ring: View,
    /// How many processes wait for room; the other side writes it.
    pub(super) waiting: View,
    /// This port's part of its partition's file.
    pub(super) area: Area,
    /// Where the consumer stands, and the ring's credits, which this side writes.
    pub(super) consumer_words: Area,
    pub(super) credit: Window,
    pub(super) credit_words: Area,
    pub(super) layout: OutletLayout,
    /// In memory that another host shares.
    pub(super) shared: Option<SharedDestination>,
}

/// A message taken from the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) len_bytes: usize,
    /// Whether the queue has overflowed since the message before.
    pub(crate) overflowed: bool,
}

impl QueueReader {
    /// Inside the host: `far` is the source port's part of its partition's file, `area` this
    /// port's.
    pub(crate) fn new(control: View, ring: View, far: &View, area: &Area, layout: OutletLayout) -> Self {
        let credit_words = area.part(port::CREDIT, CREDIT_BYTES);
        Self {
            control,
            ring: ring.window(),
            _ring: ring,
            waiting: far.part(port::WAITERS, 8),
            area: area.clone(),
            consumer_words: area.part(port::CONSUMER, RECORD_BYTES),
            credit: credit_words.window(),
            credit_words,
            layout,
            shared: None,
        }
    }

    pub(super) fn record(&self) -> Record<'_> {
        Record {
            area: &self.consumer_words,
            offset: 0,
        }
    }

    /// The words of the credits, each with the value that says that this end has released what is
    /// before `position`. Lines before data.
    pub(super) fn credits(&self, position: Position) -> [(&AtomicU64, u64); 2] {
        [(CREDIT_LINES, position.line), (CREDIT_DATA, position.data)]
            .map(|(offset, value)| (self.credit_words.word(offset), value))
    }

    pub(super) fn consumer(&self) -> Option<RingConsumer<Window>> {
        self.consumer_at(self.record().load())
    }

    pub(super) fn consumer_at(&self, position: Position) -> Option<RingConsumer<Window>> {
        RingConsumer::resume(self.ring.clone(), self.layout.ring, position, self.credit.clone()).ok()
    }

    /// Writes the credits that a dead receiver owed; called by the process that took the lock over.
    pub(crate) fn recover(&self) {
        if self.meet()
            && let Some(mut consumer) = self.consumer()
        {
            let _ = consumer.flush_credits();
            self.wake();
        }
    }

    /// Takes the first message into `buffer`, which is as long as the longest, for the holder of
    /// the port's lock. `None` if there is none, or if the ring is damaged.
    pub(crate) fn take(&self, buffer: &mut [u8]) -> Option<Taken> {
        if !self.meet() {
            return None;
        }
        let mut consumer = self.consumer()?;
        let Ok(Some(message)) = consumer.peek() else {
            self.skip_damage();
            return None;
        };
        consumer.copy(0, buffer.get_mut(..message.len_bytes)?).ok()?;
        crash::step("copied");
        if !self.is_same() {
            return None;
        }
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
        let Some((lines, there)) = self.damage().filter(|_| self.is_same()) else {
            self.renew_credits();
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
        // Another host may have damaged this end's position too. One message ahead is possible: the
        // sender was killed between its commit and its record.
        let is_lost = self.shared.is_some()
            && !is_possible
            && here != there
            && !(lines == u64::MAX && is_aligned(here.data))
            && is_aligned(there.data);
        // A look at the ring only now: a message before the position that the sender said is there,
        // unless it is damaged.
        if is_lost && !self.has_message() {
            return Some((1, there));
        }
        (is_possible && !self.has_message()).then_some((lines, there))
    }

    /// Where the sender says to stand, if it did not move meanwhile.
    pub(super) fn sent(&self) -> Option<Position> {
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
        if !self.meet() {
            return;
        }
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

    /// Messages lost for want of room, ever, or with the end of a session.
    pub(crate) fn overflows(&self) -> u64 {
        if self.shared.as_ref().is_some_and(|shared| !shared.has_begun()) {
            return 0;
        }
        self.control.word(writer::OVERFLOWS).load(Ordering::Relaxed)
    }

    /// Whether a message waits.
    pub(crate) fn has_message(&self) -> bool {
        let has_one = |mut consumer: RingConsumer<Window>| matches!(consumer.peek(), Ok(Some(_)));
        self.meet() && self.consumer().is_some_and(has_one)
    }

    /// Messages in the queue.
    pub(crate) fn in_queue(&self) -> u64 {
        let published = self.control.word(writer::PUBLISHED).load(Ordering::Relaxed);
        let taken = match &self.shared {
            Some(shared) if !shared.has_begun() => return 0,
            Some(shared) if !shared.is_met() => 0,
            _ => self.record().load().line,
        };
        count_waiting(&self.layout, &self.ring, taken, published)
    }

    /// The word that changes when a message comes, and its value now.
    pub(crate) fn published_word(&self) -> (&AtomicU64, u64) {
        let word = self.control.word(writer::PUBLISHED);
        (word, word.load(Ordering::Relaxed))
    }

    /// Whether whoever sends is known to wake the receiver.
    pub(crate) fn is_woken(&self) -> bool {
        self.shared.as_ref().is_none_or(SharedDestination::is_woken)
    }

    /// Tells another host how many processes wait for a message.
    pub(crate) fn announce(&self, waiting: u64) {
        if let Some(shared) = &self.shared {
            shared.announce(waiting);
        }
    }

    /// Wakes a process that waits at the source for room.
    pub(super) fn wake(&self) {
        if is_anybody_there(self.waiting.word(0)) {
            sys::futex_wake(self.credit_words.word(CREDIT_LINES), i32::MAX);
        }
    }
}
