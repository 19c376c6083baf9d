//! What a port has seen, in shared memory, so that it outlives the processes and anybody may look.
//!
//! Contract: one word a counter, in the file of the port's partition; the processes of the
//! partition add, nobody resets. Called by the ports.

use crate::store::layout::MAX_MEMBERS;
use crate::store::layout::port::{COUNTERS, DAMAGED, READS};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::Area;

/// Which counter. Its number is its place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Counter {
    Writes,
    Reads,
    Retries,
    MostRetries,
    LastGood,
    Stale,
    Overwritten,
    Overflows,
    Contended,
    TakenOver,
    /// Has a place of its own.
    Damaged,
}

/// What a port has seen since its store was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Messages written or sent.
    pub writes: u64,
    /// Messages read or received.
    pub reads: u64,
    /// Attempts to read that the writer has overtaken.
    pub retries: u64,
    /// The most attempts of one read that were overtaken.
    pub most_retries: u64,
    /// Reads that ran out of retries and returned the last good copy.
    pub last_good: u64,
    /// Reads that returned a message older than the refresh period.
    pub stale: u64,
    /// Messages of a sampling channel that were overwritten before this port had delivered them.
    pub overwritten: u64,
    /// Messages that this port's queue had no room for (at a destination), or that any destination
    /// had no room for (at a source).
    pub overflows: u64,
    /// Reads that ran out of retries and had no last good copy.
    pub contended: u64,
    /// Times that the port's lock was taken over from a process that had died with it.
    pub taken_over: u64,
    /// Messages of a queue that the receiver threw away, since the sender's partition had scribbled
    /// over them.
    pub damaged: u64,
}

/// The counters of one port.
#[derive(Debug)]
pub(crate) struct Counting<'a>(pub(crate) &'a Area);

/// Adds one to `word` for its only writer.
#[inline]
fn bump(word: &AtomicU64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

impl Counting<'_> {
    /// Adds `count`. Relaxed: a counter orders nothing.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        self.0.word(offset(counter)).fetch_add(count, Ordering::Relaxed);
    }

    /// Adds one for the holder of the port's lock, who is alone with the counters that only such a
    /// holder raises.
    #[inline]
    pub(crate) fn bump(&self, counter: Counter) {
        bump(self.0.word(offset(counter)));
    }

    /// Counts a read by a thread that is alone in its process with this port; `place` is its
    /// process's.
    #[inline]
    pub(crate) fn bump_reads(&self, place: usize) {
        bump(self.0.word(READS + place * 8));
    }

    /// Raises the counter to `value` if it is lower.
    pub(crate) fn raise(&self, counter: Counter, value: u64) {
        self.0.word(offset(counter)).fetch_max(value, Ordering::Relaxed);
    }

    pub(crate) fn load(&self) -> Counters {
        Counters::load(|offset| self.0.word(offset).load(Ordering::Relaxed))
    }
}

impl Counters {
    /// From the words of a port, by their offset in it.
    pub(crate) fn load(word: impl Fn(usize) -> u64) -> Self {
        let load = |counter| word(offset(counter));
        let by_place = |place: usize| word(READS + place * 8);
        Self {
            writes: load(Counter::Writes),
            reads: load(Counter::Reads) + (0..MAX_MEMBERS).map(by_place).sum::<u64>(),
            retries: load(Counter::Retries),
            most_retries: load(Counter::MostRetries),
            last_good: load(Counter::LastGood),
            stale: load(Counter::Stale),
            overwritten: load(Counter::Overwritten),
            overflows: load(Counter::Overflows),
            contended: load(Counter::Contended),
            taken_over: load(Counter::TakenOver),
            damaged: load(Counter::Damaged),
        }
    }
}

#[inline]
fn offset(counter: Counter) -> usize {
    match counter {
        Counter::Damaged => DAMAGED,
        _ => COUNTERS + counter as usize * 8,
    }
}
