//! The processes of a partition, and who of them lives.
//!
//! Contract: a process has a *place*, and holds the kernel's lock on one byte of the partition's
//! file for it (an open file description lock, on a byte far behind the file's end). The kernel
//! gives that lock back when the process is gone, however it went, so no process identifier can be
//! mistaken for another's, and containers with process identifiers of their own may share a
//! partition. A place is used again with the next *generation*; both together are the member's name
//! in locks and waiting tables. Called by the partition.
//!
//! A child that is forked without exec shares its parent's place, and must not use the partition
//! after the parent's end.

use std::fs::File;
use std::io;

use super::JoinError;
use crate::lock::MemberTable;
use crate::store::layout::{MAX_MEMBERS, head};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::{self, Area};

/// Where the byte locks begin: far behind any data.
const PLACES_BYTE: u64 = 1 << 40;
/// Held while joining, and while the mode changes.
const JOIN_BYTE: u64 = PLACES_BYTE + MAX_MEMBERS as u64;

/// A member's name: its place from 1 in the low 8 bits, its generation above.
const PLACE_BITS: u32 = 8;
const GENERATION_MASK: u64 = (1 << 23) - 1;

/// The longest sleep for a lock, in nanoseconds: nobody wakes a sleeper when the lock's holder is
/// killed.
const SLEEP_NS: i64 = 2_000_000;

/// This process among the processes of its partition.
#[derive(Debug)]
pub(crate) struct Members {
    file: File,
    generations: Area,
    /// This process's name.
    me: u64,
}

impl Members {
    /// Takes a place. `begin` is called, before anybody else can join, with the number of a new
    /// incarnation if nobody lives.
    pub(crate) fn join(
        file: File,
        body: &Area,
        partition: &str,
        begin: impl FnOnce(u64),
    ) -> Result<Self, JoinError> {
        let generations = body.part(head::GENERATIONS, MAX_MEMBERS * 8);
        let fail = |source| JoinError::Lock {
            name: partition.into(),
            source,
        };
        sys::lock_byte(&file, JOIN_BYTE).map_err(fail)?;
        let (mut free, mut living) = (None, 0);
        for place in 0..MAX_MEMBERS {
            if sys::is_byte_locked(&file, PLACES_BYTE + place as u64).map_err(fail)? {
                living += 1;
            } else {
                free = free.or(Some(place));
            }
        }
        let full = || JoinError::Full {
            name: partition.into(),
            members: living,
        };
        let place = free.ok_or_else(full)?;
        let generation = generations
            .word(place * 8)
            .load(Ordering::Relaxed)
            .wrapping_add(1);
        generations.word(place * 8).store(generation, Ordering::Relaxed);
        if !sys::try_lock_byte(&file, PLACES_BYTE + place as u64).map_err(fail)? {
            return Err(full());
        }
        if living == 0 {
            begin(body.word(head::INCARNATION).load(Ordering::Relaxed) + 1);
        }
        sys::unlock_byte(&file, JOIN_BYTE).map_err(fail)?;
        Ok(Self {
            file,
            generations,
            me: name(place, generation),
        })
    }

    /// This process's place, below [`MAX_MEMBERS`].
    #[inline]
    pub(crate) fn place(&self) -> usize {
        (self.me & ((1 << PLACE_BITS) - 1)) as usize - 1
    }

    /// Runs `change` while nobody joins and no other process of the partition is in here.
    ///
    /// Threads of this process are not kept apart from each other: what they change is words.
    pub(crate) fn alone(&self, change: impl FnOnce()) -> io::Result<()> {
        Self::apart(&self.file, change)
    }

    /// As [`alone`](Self::alone), for who is no member: `file` is the partition's.
    pub(crate) fn apart(file: &File, change: impl FnOnce()) -> io::Result<()> {
        sys::lock_byte(file, JOIN_BYTE)?;
        change();
        sys::unlock_byte(file, JOIN_BYTE)
    }
}

fn name(place: usize, generation: u64) -> u64 {
    (generation & GENERATION_MASK) << PLACE_BITS | (place as u64 + 1)
}

impl MemberTable for Members {
    #[inline]
    fn me(&self) -> u64 {
        self.me
    }

    fn is_alive(&self, member: u64) -> bool {
        if member == self.me {
            return true;
        }
        let place = (member & ((1 << PLACE_BITS) - 1)) as usize;
        let Some(place) = place.checked_sub(1).filter(|place| *place < MAX_MEMBERS) else {
            return false;
        };
        let is_current = || {
            let generation = self.generations.word(place * 8).load(Ordering::Relaxed);
            name(place, generation) == member
        };
        // The place may pass to a new process between the two checks; the generation shows that at
        // the caller's next try. If the kernel can't decide, no process is declared dead.
        is_current()
            && sys::is_byte_locked(&self.file, PLACES_BYTE + place as u64).unwrap_or(true)
            && is_current()
    }

    fn sleep(&self, word: &AtomicU64, expected: u64) {
        sys::futex_wait(
            word,
            expected,
            crate::config::Clock::Monotonic.now_ns() + SLEEP_NS,
        );
    }

    fn wake(&self, word: &AtomicU64) {
        sys::futex_wake(word, 1);
    }
}
