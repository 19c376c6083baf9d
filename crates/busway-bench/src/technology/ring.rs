//! A bare shared window: a file that two processes map, with a ring of slots of one size. Plain
//! copies in and out: what the memory bus cannot be faster than. Both sides are this program, so
//! the window is trusted, which the real bus never does.
//!
//! Layout: line 0 `head` (messages written; sender), line 1 `tail` (messages taken; receiver), line
//! 2 `bell` and line 3 `sleeping` for the receiver's wake-up, lines 4 and 5 the same for the
//! sender's; slots from byte 4096.
#![allow(unsafe_code)] // the mapping is raw memory

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use memmap2::MmapRaw;
use rustix::thread::futex;

use super::shared::map_file;
use super::wait::Wait;
use crate::control::WorkerResult;
use crate::window::SharedWindow;

const DATA_OFFSET_BYTES: usize = 4096;
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);
const LINE_BYTES: usize = 64;
const HEAD: usize = 0;
const TAIL: usize = 1;
/// The slots together are no longer than this, unless four messages are.
const SLOTS_BYTES_MAX: usize = 1 << 20;

/// Slots of a ring for messages of this size, 4 to 1024.
pub(crate) fn slots_for(payload_bytes: usize) -> usize {
    (SLOTS_BYTES_MAX / payload_bytes).clamp(4, 1024)
}

pub(crate) struct Ring {
    map: MmapRaw,
    slots: u64,
    words: usize,
    /// `head` for a sender, `tail` for a receiver: this side's own count.
    mine: u64,
    theirs: u64,
}

impl Ring {
    /// Maps `path`, a ring of `slots` messages; with `create` makes it first, all zero.
    pub(crate) fn open(path: &Path, payload_bytes: usize, slots: usize, create: bool) -> WorkerResult<Self> {
        let map = map_file(path, DATA_OFFSET_BYTES + slots * payload_bytes, create)?;
        Ok(Self::of(map, payload_bytes, slots))
    }

    /// The same in a window that is there already: `at_bytes` in its half for bare memory; with
    /// `create` clears the counts.
    pub(crate) fn open_in(
        window: &SharedWindow,
        at_bytes: usize,
        payload_bytes: usize,
        slots: usize,
        create: bool,
    ) -> WorkerResult<Self> {
        let map = window.map(at_bytes, Self::bytes(payload_bytes, slots))?;
        let ring = Self::of(map, payload_bytes, slots);
        if create {
            // Relaxed: the other program is started only after this one has said that it is ready.
            for line in [HEAD, TAIL] {
                ring.count(line).store(0, Ordering::Relaxed);
            }
        }
        Ok(ring)
    }

    pub(crate) fn bytes(payload_bytes: usize, slots: usize) -> usize {
        (DATA_OFFSET_BYTES + slots * payload_bytes).next_multiple_of(DATA_OFFSET_BYTES)
    }

    fn of(map: MmapRaw, payload_bytes: usize, slots: usize) -> Self {
        Self {
            map,
            slots: slots as u64,
            words: payload_bytes / 8,
            mine: 0,
            theirs: 0,
        }
    }

    fn count(&self, line: usize) -> &AtomicU64 {
        // SAFETY: the mapping is page aligned, at least 4096 bytes long and lives as long as
        // `self`; all processes access these words as atomics only.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(line * LINE_BYTES).cast()) }
    }

    fn word(&self, line: usize) -> &AtomicU32 {
        // SAFETY: as in `count`.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(line * LINE_BYTES).cast()) }
    }

    fn slot(&self, n: u64) -> *mut u64 {
        let offset_bytes = DATA_OFFSET_BYTES + (n % self.slots) as usize * self.words * 8;
        // SAFETY: `n % slots` is a slot of the file, which `open` has made long enough.
        unsafe { self.map.as_mut_ptr().add(offset_bytes).cast() }
    }

    pub(crate) fn try_send(&mut self, message: &[u64], wait: Wait) -> bool {
        if self.mine - self.theirs == self.slots {
            // Acquire: partner of the receiver's release of `tail`; its reads of the slot are over.
            self.theirs = self.count(TAIL).load(Ordering::Acquire);
            if self.mine - self.theirs == self.slots {
                return false;
            }
        }
        // SAFETY: the slot is `words` long and free: the receiver's `tail` has passed it, and it
        // reads only below `head`.
        unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), self.slot(self.mine), self.words) };
        self.mine += 1;
        self.publish(HEAD, wait);
        true
    }

    /// Copies the next message out, or as much of its beginning as `message` holds; false when
    /// there is none.
    pub(crate) fn try_receive(&mut self, message: &mut [u64], wait: Wait) -> bool {
        if self.mine == self.theirs {
            // Acquire: partner of the sender's release of `head`; the slot below it is written.
            self.theirs = self.count(HEAD).load(Ordering::Acquire);
            if self.mine == self.theirs {
                return false;
            }
        }
        let words = self.words.min(message.len());
        // SAFETY: the slot is at least `words` long and full: the sender's `head` has passed it,
        // and it writes only above `tail`.
        unsafe { std::ptr::copy_nonoverlapping(self.slot(self.mine), message.as_mut_ptr(), words) };
        self.mine += 1;
        self.publish(TAIL, wait);
        true
    }

    /// Stores this side's count in `line` and rings the other side's bell if it sleeps.
    fn publish(&self, line: usize, wait: Wait) {
        if wait != Wait::Event {
            // Release: partner of the other side's acquire of this count.
            self.count(line).store(self.mine, Ordering::Release);
            return;
        }
        // SeqCst: with the two accesses in `sleep_until_changed` either this side sees that the
        // other sleeps, or the other sees the new count.
        self.count(line).store(self.mine, Ordering::SeqCst);
        if self.word(3 + 2 * line).load(Ordering::SeqCst) != 0 {
            self.word(2 + 2 * line).fetch_add(1, Ordering::Release);
            let _ = futex::wake(self.word(2 + 2 * line), futex::Flags::empty(), 1);
        }
    }

    pub(crate) fn sleep_until_message(&self, at_most: Duration) {
        self.sleep_until_changed(HEAD, at_most);
    }

    /// Blocks a sender until there may be room, for 0.1 s at most.
    pub(crate) fn sleep_until_room(&self) {
        self.sleep_until_changed(TAIL, LONGEST_SLEEP);
    }

    fn sleep_until_changed(&self, line: usize, at_most: Duration) {
        let sleeping = self.word(3 + 2 * line);
        sleeping.store(1, Ordering::SeqCst);
        // Acquire: partner of the increment in `publish`; an increment after this makes the futex
        // call return at once.
        let bell = self.word(2 + 2 * line).load(Ordering::Acquire);
        if self.count(line).load(Ordering::SeqCst) == self.theirs {
            let timeout = futex::Timespec {
                tv_sec: at_most.as_secs() as i64,
                tv_nsec: at_most.subsec_nanos().into(),
            };
            let _ = futex::wait(
                self.word(2 + 2 * line),
                futex::Flags::empty(),
                bell,
                Some(&timeout),
            );
        }
        sleeping.store(0, Ordering::Relaxed);
    }
}
