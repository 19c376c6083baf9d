//! The two ends of a sampling channel.
//!
//! Contract: the writing end is used under its port's lock; the reading end takes no lock that it
//! would wait for, makes no system call and does not allocate. The register lies in the host's
//! store, or, for messages from another host, where that host's partitions write it
//! ([`super::far`]). Called by [`crate::apex`].

use std::sync::atomic::{AtomicU64, Ordering};

use busway_core::Window;
use busway_core::register::{
    Corrupt, Layout, ReadError, ReadOutcome, RegisterReader, RegisterWriter, Sample,
};
use busway_transport::contract::PortMemory;

use super::far::{FarOrigin, FarWriter, Origin, is_since};
use crate::config::Clock;
use crate::counters::{Counter, Counting};
use crate::crash::{self, Steps};
use crate::own_writer::{FarEnds, Source};
use crate::sys::{Area, View};
use crate::try_cell::{Taken, TryCell};

/// Sequence before the first message. A store's files are new for each session, so it need not
/// differ.
pub(crate) const START: u64 = 0;

/// How far a sequence may be ahead of its session's; further, it is of another session.
const MAX_ADVANCE: u64 = 1 << 48;

/// Rounds of a read, each of 17 attempts, before it fails without a last good copy.
const ROUNDS: u32 = 64;

/// No register has this many messages, and readers accept a number up to twice that for one of
/// their session: a larger one was not counted.
const MOST_MESSAGES: u64 = 1 << 47;

/// Bytes that a reader finds wrong in a row before it takes a register with checksums for damaged:
/// what a device places out of order is whole within a few looks.
const PATIENCE_BYTES: u64 = 4096;

/// How far a writer that finds an impossible number continues behind the last that it knows: more
/// than other processes of the partition, which it does not know of, can have written and not
/// counted.
const SAFE_DISTANCE: u64 = 4096;

/// The writing end.
#[derive(Debug)]
pub(crate) struct Register {
    window: Window,
    /// Keeps the memory behind `window`.
    area: Area,
    layout: Layout,
    clock: Clock,
    /// The same channel's registers in other hosts' memory.
    copies: Vec<FarWriter>,
    /// Those in other hosts' stores that this partition may write itself.
    far_ends: Option<FarEnds>,
    /// The highest sequence that this process knows to be written; only grows. Under the port's
    /// lock.
    known: AtomicU64,
}

impl Register {
    /// The writing end of the register in `area`, to which `written` messages were written at
    /// least.
    pub(crate) fn new(
        area: Area,
        layout: Layout,
        clock: Clock,
        copies: Vec<FarWriter>,
        written: u64,
    ) -> Self {
        Self {
            window: area.window(),
            area,
            layout,
            clock,
            copies,
            far_ends: None,
            known: AtomicU64::new(START + written.min(MOST_MESSAGES)),
        }
    }

    /// Writes `message`, for the holder of the port's lock. `false` if the memory did not take it,
    /// which a layout of the right size excludes.
    #[inline]
    pub(crate) fn write(&self, message: &[u8]) -> bool {
        self.write_at(message, self.clock.now_ns())
    }

    /// As [`write`](Self::write), with the source time `time_ns` of this channel's clock.
    #[inline]
    pub(crate) fn write_at(&self, message: &[u8], time_ns: i64) -> bool {
        let Some((latest, _)) = self.possible_latest() else {
            return false;
        };
        let memory = Steps(self.window.clone());
        let Ok(mut writer) = RegisterWriter::resume(memory, self.layout, START, latest) else {
            return false;
        };
        crash::step("resumed");
        // Without a destination at home the register only counts.
        let kept = if self.layout.max_size_bytes() == 0 {
            &[]
        } else {
            message
        };
        let written = writer.write(&[kept], time_ns as u64);
        if let Ok(sequence) = written {
            self.known.store(sequence, Ordering::Relaxed);
        }
        let mut is_written = written.is_ok();
        for copy in &self.copies {
            is_written &= copy.write(message, time_ns, latest);
        }
        if let (Some(far_ends), Ok(sequence)) = (&self.far_ends, written) {
            far_ends.write(message, time_ns, sequence);
        }
        is_written
    }

    /// Adds registers that this partition writes with queue pairs of its own.
    pub(crate) fn with_far_ends(self, far_ends: Option<FarEnds>) -> Self {
        Self { far_ends, ..self }
    }

    /// Registers that this partition may write with queue pairs of its own.
    pub(crate) fn far_ends(&self) -> Option<&FarEnds> {
        self.far_ends.as_ref()
    }

    /// The register for a worker that offers its messages to other hosts.
    pub(crate) fn source(&self) -> Source {
        Source::new(self.area.clone(), self.layout)
    }

    /// Sequence of the newest message, and whether the register said so itself. An impossible one
    /// is replaced in the register. For the holder of the port's lock.
    #[inline]
    fn possible_latest(&self) -> Option<(u64, bool)> {
        let latest = self.layout.latest(&self.window).ok()?;
        let known = self.known.load(Ordering::Relaxed);
        if (known..=START + MOST_MESSAGES).contains(&latest) {
            return Some((latest, true));
        }
        // A process of this partition, or another host, has scribbled over the register: no reader
        // would take a number behind an impossible one.
        let latest = known + SAFE_DISTANCE;
        // Readers count on the index to be one behind before a slot is written.
        let mut memory = Steps(self.window.clone());
        self.layout.prepare(&mut memory, latest).ok()?;
        Some((latest, false))
    }

    /// The register for another writer that takes over: its memory and shape. For the holder of
    /// the port's lock.
    pub(crate) fn hand_over(&self) -> (PortMemory, Layout) {
        let len_bytes = self.layout.required_bytes();
        let area = self.area.part(0, len_bytes);
        (PortMemory::new(area.window(), area), self.layout)
    }

    /// Takes over from another writer: sequence of the newest message, and of the newest one that
    /// is whole; the second is `None` if the other writer broke the protocol. For the holder of the
    /// port's lock.
    pub(crate) fn take_over(&self) -> Option<(u64, Option<u64>)> {
        let (latest, is_possible) = self.possible_latest()?;
        self.known.store(latest, Ordering::Relaxed);
        if latest == START || !is_possible {
            return Some((latest, is_possible.then_some(latest)));
        }
        let is_whole = peek(&self.window, self.layout, START).is_some_and(|found| found.sequence == latest);
        // Bytes of the newest one never arrived; its source sends it again.
        Some((latest, Some(if is_whole { latest } else { latest - 1 })))
    }

    /// Sequence of the newest message, as the register says.
    pub(crate) fn newest_sequence(&self) -> Option<u64> {
        self.layout.latest(&self.window).ok()
    }

    /// Source time of the latest message in ns, if there is one.
    pub(crate) fn latest_time_ns(&self) -> Option<i64> {
        peek(&self.window, self.layout, START).map(|sample| sample.time_ns as i64)
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Latest {
    window: Window,
    /// Keeps the memory behind `window`, if it is the store's.
    _view: Option<View>,
    layout: Layout,
    origin: Origin,
    local: TryCell<Local>,
    /// Newest number that a thread of this process has read while another had `local`. A last good
    /// copy that is older would go back in time.
    newest: AtomicU64,
}

/// What one thread of the process has at a time; the others do without.
#[derive(Debug)]
struct Local {
    reader: RegisterReader,
    /// The session that `reader` reads.
    session: u64,
    /// The index when it was found to have gone back.
    gone_back_to: Option<u64>,
    /// The last good copy.
    buffer: Box<[u8]>,
    delivered: Option<Delivered>,
    /// The same message as the register has it, while it counts from `session` on without a break:
    /// if the index still names it, the copy is as good as the slot, and needs no second look.
    copied: Option<Sample>,
}

/// A message that a read has delivered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivered {
    pub(crate) len_bytes: usize,
    /// Source time in ns of the clock of [`Latest::clock`].
    pub(crate) time_ns: i64,
    /// Its number, see [`Origin::number`].
    pub(crate) sequence: u64,
}

/// Why a read delivered nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// Nothing was ever written.
    Empty,
    /// The writer was faster than every attempt, and there was no message before that could be
    /// returned again.
    Contended,
}

impl Latest {
    /// Reads the register in the host's store.
    pub(crate) fn new(view: View, layout: Layout, clock: Clock) -> Self {
        Self::over(view.window(), Some(view), layout, Origin::Store(clock))
    }

    /// Reads a register that another host's partitions write.
    pub(crate) fn from_afar(window: Window, layout: Layout, origin: FarOrigin) -> Self {
        Self::over(window, None, layout, Origin::Far(origin))
    }

    fn over(window: Window, view: Option<View>, layout: Layout, origin: Origin) -> Self {
        let local = Local {
            reader: reader(&window, layout, START),
            session: START,
            gone_back_to: None,
            buffer: vec![0; layout.max_size_bytes()].into_boxed_slice(),
            delivered: None,
            copied: None,
        };
        Self {
            window,
            _view: view,
            layout,
            origin,
            local: TryCell::new(local),
            newest: AtomicU64::new(START),
        }
    }

    #[inline]
    pub(crate) fn clock(&self) -> Clock {
        self.origin.clock()
    }

    /// Number of the message that a read would deliver now; `None` before the first.
    #[inline]
    pub(crate) fn newest_sequence(&self) -> Option<u64> {
        let session = self.origin.session(&self.window)?;
        let latest = self.layout.peek_latest(&self.window, session).ok()?;
        let is_of_session = latest.wrapping_sub(session).wrapping_sub(1) < MAX_ADVANCE;
        is_of_session.then(|| self.origin.number(session, latest))
    }

    /// What a read would deliver now, without its payload.
    pub(crate) fn peek(&self) -> Option<Delivered> {
        let session = self.origin.session(&self.window)?;
        peek(&self.window, self.layout, session).map(|sample| self.delivered(session, sample))
    }

    #[inline]
    fn delivered(&self, session: u64, sample: Sample) -> Delivered {
        Delivered {
            len_bytes: sample.len_bytes,
            time_ns: self.origin.time_ns(&self.window, sample),
            sequence: self.origin.number(session, sample.sequence),
        }
    }

    /// Copies the latest message into `buffer`, which is as long as the longest message.
    ///
    /// Bounded: at most [`ROUNDS`] times 17 attempts, the first 17 of which decide wherever a good
    /// copy is at hand.
    #[inline]
    pub(crate) fn read(
        &self,
        buffer: &mut [u8],
        counting: &Counting<'_>,
        place: usize,
    ) -> Result<Delivered, Nothing> {
        let local = self.local.try_take();
        if let Some(local) = &local
            && let Some((session, sample)) = self.still_latest(local)
        {
            buffer[..sample.len_bytes].copy_from_slice(&local.buffer[..sample.len_bytes]);
            counting.bump_reads(place);
            return Ok(self.delivered(session, sample));
        }
        self.read_slot(local, buffer, counting, place)
    }

    /// The message of the copy and its session, if the register still has it.
    #[inline]
    fn still_latest(&self, local: &Local) -> Option<(u64, Sample)> {
        let sample = local.copied?;
        let session = self.origin.session(&self.window)?;
        let is_same = session == local.session && self.layout.latest(&self.window) == Ok(sample.sequence);
        is_same.then_some((session, sample))
    }

    /// As [`read`](Self::read), from the register.
    fn read_slot(
        &self,
        mut local: Option<Taken<'_, Local>>,
        buffer: &mut [u8],
        counting: &Counting<'_>,
        place: usize,
    ) -> Result<Delivered, Nothing> {
        for _ in 0..ROUNDS {
            let result = match local.take().or_else(|| self.local.try_take()) {
                Some(mut local) => {
                    let result = self.read_with(&mut local, buffer, counting);
                    if result.is_ok() {
                        counting.bump_reads(place);
                    }
                    result
                }
                None => self.read_beside(buffer, counting),
            };
            if result != Err(Nothing::Contended) {
                return result;
            }
        }
        if self.layout.has_checksum() && self.has_read_nothing() {
            // What the index names never arrived whole, and nothing before it did.
            return Err(Nothing::Empty);
        }
        counting.add(Counter::Contended, 1);
        Err(Nothing::Contended)
    }

    /// Whether no thread of this process has read a message.
    fn has_read_nothing(&self) -> bool {
        let local = self.local.try_take();
        local.is_some_and(|local| local.delivered.is_none()) && self.newest.load(Ordering::Relaxed) == START
    }

    #[inline]
    fn read_with(
        &self,
        local: &mut Local,
        buffer: &mut [u8],
        counting: &Counting<'_>,
    ) -> Result<Delivered, Nothing> {
        let Some(session) = self.origin.session(&self.window) else {
            return self.last_good(local, buffer, counting, Nothing::Empty);
        };
        if session != local.session {
            // The other host has restarted, and counts again from the beginning.
            local.reader = reader(&self.window, self.layout, session);
            local.session = session;
            local.copied = None;
        }
        let before = local.reader.counters().retries;
        match local.reader.read(buffer) {
            Ok(ReadOutcome::New(sample)) => {
                let delivered = self.delivered(session, sample);
                local.buffer[..sample.len_bytes].copy_from_slice(&buffer[..sample.len_bytes]);
                local.delivered = Some(delivered);
                local.copied = Some(sample);
                count_retries(&local.reader, before, counting);
                Ok(delivered)
            }
            Ok(ReadOutcome::Unchanged(sample)) => {
                count_retries(&local.reader, before, counting);
                Ok(self.delivered(session, sample))
            }
            Ok(ReadOutcome::Empty) => self.last_good(local, buffer, counting, Nothing::Empty),
            Err(ReadError::Corrupt(Corrupt::Backwards { latest, .. })) => {
                self.follow_back(local, latest);
                self.last_good(local, buffer, counting, Nothing::Contended)
            }
            // A register that breaks the protocol, too, has had a last good message.
            Ok(ReadOutcome::Contended | ReadOutcome::LastGood(_)) | Err(_) => {
                count_retries(&local.reader, before, counting);
                self.last_good(local, buffer, counting, Nothing::Contended)
            }
        }
    }

    /// Starts again with the next read, if a source that took its index back continues from there:
    /// then what was read before was forged. A source that counts never takes it back.
    #[cold]
    fn follow_back(&self, local: &mut Local, latest: u64) {
        match local.gone_back_to.take() {
            Some(before) if before != latest => {
                local.reader = reader(&self.window, self.layout, local.session);
                local.copied = None;
                self.newest.store(START, Ordering::Relaxed);
            }
            _ => local.gone_back_to = Some(latest),
        }
    }

    /// Delivers the last good copy, if no other thread has read a newer message.
    #[cold]
    fn last_good(
        &self,
        local: &Local,
        buffer: &mut [u8],
        counting: &Counting<'_>,
        otherwise: Nothing,
    ) -> Result<Delivered, Nothing> {
        let newest = self.newest.load(Ordering::Relaxed);
        let usable = |last: &Delivered| newest == START || is_since(last.sequence, newest);
        let last = local.delivered.filter(usable).ok_or(otherwise)?;
        buffer[..last.len_bytes].copy_from_slice(&local.buffer[..last.len_bytes]);
        counting.add(Counter::LastGood, 1);
        Ok(last)
    }

    /// A read while another thread of this process has `local`.
    #[cold]
    fn read_beside(&self, buffer: &mut [u8], counting: &Counting<'_>) -> Result<Delivered, Nothing> {
        let session = self.origin.session(&self.window).ok_or(Nothing::Empty)?;
        let mut reader = reader(&self.window, self.layout, session);
        let outcome = reader.read(buffer);
        count_retries(&reader, 0, counting);
        match outcome {
            Ok(ReadOutcome::New(sample) | ReadOutcome::Unchanged(sample)) => {
                let delivered = self.delivered(session, sample);
                self.raise_newest(delivered.sequence);
                counting.add(Counter::Reads, 1);
                Ok(delivered)
            }
            Ok(ReadOutcome::Empty) => Err(Nothing::Empty),
            _ => Err(Nothing::Contended),
        }
    }

    /// Notes that a message was read, unless a later one of its session was.
    fn raise_newest(&self, number: u64) {
        let later = |newest: u64| (!is_since(newest, number)).then_some(number);
        // Relaxed: the word orders nothing. An error says that nothing had to be changed.
        let _ = self
            .newest
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }
}

impl PartialEq for Delivered {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

#[inline]
fn count_retries(reader: &RegisterReader, before: u64, counting: &Counting<'_>) {
    let retries = reader.counters().retries - before;
    if retries != 0 {
        counting.add(Counter::Retries, retries);
        counting.raise(Counter::MostRetries, retries);
    }
}

fn reader(window: &Window, layout: Layout, session: u64) -> RegisterReader {
    let reader = RegisterReader::new(window.clone(), layout, session)
        .expect("the memory was made, or checked, to be as long as this layout");
    let patience_bytes = if layout.has_checksum() { PATIENCE_BYTES } else { 0 };
    reader.with_patience_bytes(patience_bytes)
}

/// The header of the latest message; `None` before the first, or if the writer overtakes every
/// attempt.
fn peek(window: &Window, layout: Layout, session: u64) -> Option<Sample> {
    let mut reader = reader(window, layout, session);
    let mut chunk = [0; 256];
    for _ in 0..ROUNDS * 17 {
        let mut attempt = reader.begin().ok()??;
        let sample = attempt.sample();
        // The checksum is of all bytes.
        let mut copied_bytes = if layout.has_checksum() {
            0
        } else {
            sample.len_bytes
        };
        while copied_bytes < sample.len_bytes {
            let piece = &mut chunk[..(sample.len_bytes - copied_bytes).min(256)];
            attempt.copy(copied_bytes, piece).ok()?;
            copied_bytes += piece.len();
        }
        if attempt.validate().ok()? {
            return Some(sample);
        }
    }
    None
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
