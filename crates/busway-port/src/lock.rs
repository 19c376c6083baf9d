//! A lock in shared memory that survives the death of its holder.
//!
//! Contract: one word. 0 is free; otherwise it names its holder, a member of the partition, and its
//! top bit is set while a process may be asleep. A process that finds the holder dead takes the
//! lock over and learns that it did, so that it can finish or undo what was begun. The holder is
//! dead when its process is: a kill -9 at any instruction is enough. Called by the ports (one lock
//! a port, in the file of the port's partition).
//!
//! Writers: the processes of one partition. A process that writes rubbish there harms its own
//! partition only.

use crate::sync::{AtomicU64, Ordering};

/// Set while somebody may be asleep.
const CONTENDED: u64 = 1 << 31;

/// Looks before the first sleep: a section under such a lock takes about a hundred nanoseconds.
const SPINS: u32 = if cfg!(loom) { 1 } else { 200 };

/// Who takes part, and how they sleep. Implemented by the members of a partition, and by the loom
/// tests.
pub trait MemberTable {
    /// The caller's name: not 0, below 2^31, and never used again by another member.
    fn me(&self) -> u64;

    /// Whether `member`, a name found in shared memory, lives. A name that nobody can have is dead.
    fn is_alive(&self, member: u64) -> bool;

    /// Sleeps for a few milliseconds at most, or until [`wake`](Self::wake), if `word` still is
    /// `expected`.
    fn sleep(&self, word: &AtomicU64, expected: u64);

    /// Wakes one sleeper of `word`.
    fn wake(&self, word: &AtomicU64);
}

/// The lock, held. Dropping it gives it back.
pub struct Guard<'l, C: MemberTable> {
    word: &'l AtomicU64,
    members: &'l C,
    /// Whether the holder before died with the lock: its work may be half done.
    pub taken_over: bool,
}

/// Takes the lock in `word`, and sleeps if need be.
#[inline]
pub fn lock<'l, C: MemberTable>(word: &'l AtomicU64, members: &'l C) -> Guard<'l, C> {
    // Acquire: partner is the Release of the swap in `drop`, so that the holder before us is done.
    let taken_over = match word.compare_exchange(0, members.me(), Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => false,
        Err(_) => lock_contended(word, members),
    };
    Guard {
        word,
        members,
        taken_over,
    }
}

/// Returns whether the lock was taken over from a dead holder.
#[cold]
fn lock_contended<C: MemberTable>(word: &AtomicU64, members: &C) -> bool {
    for _ in 0..SPINS {
        if word.load(Ordering::Relaxed) == 0 {
            break;
        }
        core::hint::spin_loop();
    }
    // From here on others may sleep whom the holder before us has not woken: keep the mark.
    let mine = members.me() | CONTENDED;
    loop {
        let found = word.load(Ordering::Relaxed);
        if found == 0 {
            if word
                .compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return false;
            }
            continue;
        }
        if !members.is_alive(found & !CONTENDED) {
            // Only one of those who saw the same dead holder wins. What the dead wrote is visible:
            // it wrote it before it died, and we know of its death from the kernel.
            if word
                .compare_exchange(found, mine, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
            continue;
        }
        let marked = found | CONTENDED;
        if found == marked
            || word
                .compare_exchange(found, marked, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            // With a limit: a killed holder wakes no process.
            members.sleep(word, marked);
        }
    }
}

impl<C: MemberTable> Drop for Guard<'_, C> {
    #[inline]
    fn drop(&mut self) {
        // Release: partner is the Acquire of the next holder.
        if self.word.swap(0, Ordering::Release) & CONTENDED != 0 {
            self.members.wake(self.word);
        }
    }
}
