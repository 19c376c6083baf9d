//! The two ends of a sampling channel inside one host.
//!
//! Contract: the writing end is used under its port's lock; the reading end takes no lock that it would wait for, makes no
//! system call and does not allocate. Called by [`crate::apex`].

use std::sync::atomic::{AtomicU64, Ordering};

use busway_core::Window;
use busway_core::register::{Layout, ReadOutcome, RegisterReader, RegisterWriter, Sample};

use crate::config::Clock;
use crate::counters::{Counter, Counting};
use crate::crash::{self, Steps};
use crate::sys::{Area, View};
use crate::try_cell::TryCell;

/// Sequence before the first message. A store's files are made anew for each session, so it need not differ.
const START: u64 = 0;

/// Rounds of a read, each of 17 attempts, before it gives up without a last good copy.
const ROUNDS: u32 = 64;

/// The writing end.
#[derive(Debug)]
pub(crate) struct Register {
    window: Window,
    /// Keeps the memory behind `window`.
    _area: Area,
    layout: Layout,
    clock: Clock,
}

impl Register {
    pub(crate) fn new(area: Area, layout: Layout, clock: Clock) -> Self {
        Self {
            window: area.window(),
            _area: area,
            layout,
            clock,
        }
    }

    /// Writes `message`, for the holder of the port's lock. `false` if the memory did not take it, which a layout of the
    /// right size excludes.
    #[inline]
    pub(crate) fn write(&self, message: &[u8]) -> bool {
        self.write_at(message, self.clock.now_ns())
    }

    /// As [`write`](Self::write), with the source time `time_ns` of this channel's clock.
    #[inline]
    pub(crate) fn write_at(&self, message: &[u8], time_ns: i64) -> bool {
        let Ok(latest) = self.layout.latest(&self.window) else {
            return false;
        };
        let memory = Steps(self.window.clone());
        let Ok(mut writer) = RegisterWriter::resume(memory, self.layout, START, latest) else {
            return false;
        };
        crash::step("resumed");
        writer.write(&[message], time_ns as u64).is_ok()
    }

    /// Source time of the latest message in ns, if there is one.
    pub(crate) fn latest_time_ns(&self) -> Option<i64> {
        peek(&self.window, self.layout).map(|sample| sample.time_ns as i64)
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Latest {
    window: Window,
    /// Keeps the memory behind `window`.
    _view: View,
    layout: Layout,
    clock: Clock,
    local: TryCell<Local>,
    /// Newest sequence that a thread of this process has read while another had `local`. A last good copy that is older would
    /// go back in time.
    newest: AtomicU64,
}

/// What one thread of the process has at a time; the others do without.
#[derive(Debug)]
struct Local {
    reader: RegisterReader,
    /// The last good copy.
    buffer: Box<[u8]>,
    sample: Option<Sample>,
}

/// A message that a read has delivered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivered {
    pub(crate) len_bytes: usize,
    pub(crate) time_ns: i64,
    pub(crate) sequence: u64,
}

/// Why a read delivered nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// Nothing was ever written.
    Empty,
    /// The writer was faster than every attempt, and there was no message before that could be returned again.
    Contended,
}

impl Latest {
    pub(crate) fn new(view: View, layout: Layout, clock: Clock) -> Self {
        let window = view.window();
        let local = Local {
            reader: reader(&window, layout),
            buffer: vec![0; layout.max_size_bytes()].into_boxed_slice(),
            sample: None,
        };
        Self {
            window,
            _view: view,
            layout,
            clock,
            local: TryCell::new(local),
            newest: AtomicU64::new(START),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Sequence of the message that a read would deliver now; `None` before the first.
    #[inline]
    pub(crate) fn newest_sequence(&self) -> Option<u64> {
        let latest = self.layout.peek_latest(&self.window, START).ok()?;
        (latest != START).then_some(latest)
    }

    /// What a read would deliver now, without its payload.
    pub(crate) fn peek(&self) -> Option<Sample> {
        peek(&self.window, self.layout)
    }

    /// Copies the latest message into `buffer`, which is as long as the longest message.
    ///
    /// Bounded: at most [`ROUNDS`] times 17 attempts, the first 17 of which decide wherever a good copy is at hand.
    #[inline]
    pub(crate) fn read(
        &self,
        buffer: &mut [u8],
        counting: &Counting<'_>,
        place: usize,
    ) -> Result<Delivered, Nothing> {
        for _ in 0..ROUNDS {
            let result = match self.local.try_take() {
                Some(mut local) => {
                    let result = local.read(buffer, self.newest.load(Ordering::Relaxed), counting);
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
        counting.add(Counter::Contended, 1);
        Err(Nothing::Contended)
    }

    /// A read while another thread of this process has `local`.
    #[cold]
    fn read_beside(&self, buffer: &mut [u8], counting: &Counting<'_>) -> Result<Delivered, Nothing> {
        let mut reader = reader(&self.window, self.layout);
        let outcome = reader.read(buffer);
        count_retries(&reader, 0, counting);
        match outcome {
            Ok(ReadOutcome::New(sample) | ReadOutcome::Unchanged(sample)) => {
                self.newest.fetch_max(sample.sequence, Ordering::Relaxed);
                counting.add(Counter::Reads, 1);
                Ok(sample.into())
            }
            Ok(ReadOutcome::Empty) => Err(Nothing::Empty),
            _ => Err(Nothing::Contended),
        }
    }
}

impl Local {
    #[inline]
    fn read(
        &mut self,
        buffer: &mut [u8],
        newest: u64,
        counting: &Counting<'_>,
    ) -> Result<Delivered, Nothing> {
        let before = self.reader.counters().retries;
        match self.reader.read(buffer) {
            Ok(ReadOutcome::New(sample)) => {
                self.buffer[..sample.len_bytes].copy_from_slice(&buffer[..sample.len_bytes]);
                self.sample = Some(sample);
                count_retries(&self.reader, before, counting);
                Ok(sample.into())
            }
            Ok(ReadOutcome::Unchanged(sample)) => {
                count_retries(&self.reader, before, counting);
                Ok(sample.into())
            }
            Ok(ReadOutcome::Empty) => Err(Nothing::Empty),
            // A register that breaks the protocol, too, has had a last good message.
            Ok(ReadOutcome::Contended | ReadOutcome::LastGood(_)) | Err(_) => {
                count_retries(&self.reader, before, counting);
                let sample = self.sample.filter(|sample| sample.sequence >= newest);
                let sample = sample.ok_or(Nothing::Contended)?;
                buffer[..sample.len_bytes].copy_from_slice(&self.buffer[..sample.len_bytes]);
                counting.add(Counter::LastGood, 1);
                Ok(sample.into())
            }
        }
    }
}

impl From<Sample> for Delivered {
    fn from(sample: Sample) -> Self {
        Self {
            len_bytes: sample.len_bytes,
            time_ns: sample.time_ns as i64,
            sequence: sample.sequence,
        }
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

fn reader(window: &Window, layout: Layout) -> RegisterReader {
    RegisterReader::new(window.clone(), layout, START)
        .expect("the file was made, or checked, to be as long as this layout")
}

/// The header of the latest message; `None` before the first, or if the writer overtakes every attempt.
fn peek(window: &Window, layout: Layout) -> Option<Sample> {
    let mut reader = reader(window, layout);
    for _ in 0..ROUNDS * 17 {
        let attempt = reader.begin().ok()??;
        let sample = attempt.sample();
        if attempt.validate().ok()? {
            return Some(sample);
        }
    }
    None
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
