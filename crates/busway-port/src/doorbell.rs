//! Wakes a gateway that sleeps while it has nothing to carry.
//!
//! A gateway's port has a *doorbell*: a word in the port's part of its partition's file, odd while
//! the gateway sleeps, and a FIFO in the store's directory that the gateway waits for with `epoll`.
//! A process that has done something for which the gateway may wait (it has written or sent a
//! message, or made room in a queue) reads the word, and writes a byte into the FIFO only if it is
//! odd. The word has a cache line of its own, so while the gateway is awake that costs a fence and
//! a load. Ports of channels that stay on the host have no doorbell.
//!
//! # No wake-up is lost
//!
//! ```text
//! gateway                                  partition
//!   word = odd             (arm)             publish the message, or the room
//!   SeqCst fence                             SeqCst fence                     (after_publishing)
//!   look once more                           look at word; odd: ring          (is_due)
//!   sleep
//! ```
//!
//! Whichever fence comes first in the one order of all SeqCst fences, the other side's look sees
//! the store before it. Each arming has a number of its own, so a process rings once an arming,
//! however much it writes. `tests/loom.rs` checks this file. A process that is killed between
//! publishing and ringing wakes nobody: the gateway looks by itself now and then.
//!
//! A FIFO and not an eventfd or a socket: it has a name, needs no conversation and survives the
//! restart of either side (decision 002). The side that rings opens it for reading as well, so that
//! no ring raises SIGPIPE, whatever a program does with that signal.
//!
//! Contract: one sleeper a word, any number of ringers. Nothing here waits. Called by the services
//! of [`crate::apex`] (ringing), by [`crate::carry`] (sleeping) and by the store (making).

use crate::sync::{AtomicU64, Ordering, fence};

/// From now on ringers ring. The caller looks once more for work before it sleeps.
pub fn arm(word: &AtomicU64) {
    // Release: rings that were taken before count for earlier armings. Partner: the Acquire fence
    // in `is_due`.
    fence(Ordering::Release);
    // The next odd number, also if it is odd already: the ring for that one may have been taken.
    let last = word.load(Ordering::Relaxed);
    word.store(last.wrapping_add(1 + (last & 1)), Ordering::Relaxed);
    // Partner: the fence in `after_publishing`, see the module's text.
    fence(Ordering::SeqCst);
}

/// From now on nobody need ring.
pub fn disarm(word: &AtomicU64) {
    let last = word.load(Ordering::Relaxed);
    if last & 1 == 1 {
        word.store(last.wrapping_add(1), Ordering::Relaxed);
    }
}

/// Orders what was published before the looks at who sleeps. Partner: the SeqCst fence in [`arm`].
#[inline]
pub fn after_publishing() {
    fence(Ordering::SeqCst);
}

/// Whether the sleeper of `word` must be rung, to be asked after [`after_publishing`]. `rung` is
/// the arming for which this process rang last.
#[inline]
pub fn is_due(word: &AtomicU64, rung: &AtomicU64) -> bool {
    let armed = word.load(Ordering::Relaxed);
    // Threads that race for `rung` ring once too often at worst: it never holds an arming for which
    // nobody is about to ring.
    if armed & 1 == 0 || rung.load(Ordering::Relaxed) == armed {
        return false;
    }
    rung.store(armed, Ordering::Relaxed);
    // Acquire: the ring comes after what the sleeper did before it armed. Partner: the Release
    // fence in `arm`.
    fence(Ordering::Acquire);
    true
}

#[cfg(not(loom))]
mod fifo;
#[cfg(not(loom))]
pub use fifo::Doorbell;
#[cfg(not(loom))]
pub(crate) use fifo::{Ringer, Ringers, make};
