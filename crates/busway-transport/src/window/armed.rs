//! The armed word: whether a lane sleeps, so that a peer rings its doorbell only then.
//!
//! A lane that goes to sleep makes its word odd. A peer that has published something for the lane
//! reads the word, in its own host's memory, and rings only if it is odd: no system call for a lane
//! that is awake.
//!
//! # No wake-up is lost
//!
//! ```text
//! sleeper                                  peer
//!   armed = odd            (arm)             publish the message
//!   SeqCst fence                             SeqCst fence
//!   look once more for messages              look at armed; odd: ring
//!   sleep
//! ```
//!
//! One of the two fences is first in the order of all SeqCst fences; the other side's look then
//! sees the store before it. So the sleeper sees the message, or the peer sees the armed word. Each
//! arming has its own number, so one ring per channel and arming is enough. A ring after `disarm`
//! only makes the next sleep short.
//!
//! # Across a bus
//!
//! Fences order a processor's accesses, not stores in flight over PCI: both stores might still
//! travel while the other side looks. So a sleeper whose word lies behind a bus reads it back after
//! arming ([`arrive`]). That is the only read across the bus. Neither a read request nor its
//! completion passes a posted write (PCI Express Base Specification, 2.4.1). So after the read the
//! armed word has arrived, and so has every message whose sender looked at the word before that.
//!
//! Contract: one sleeper a word, any number of peers. `tests/loom.rs` includes this file.

use busway_core::{Medium, Window};

use super::sync::{Ordering, fence};

/// Waits until a store to the first word of `far` has arrived across the bus, see the module.
pub fn arrive(far: &Window) {
    if far.medium() != Medium::Coherent {
        let _ = far.load(0);
        far.read_fence();
    }
}

/// The sleeper's side: the word in the window that its host writes.
#[derive(Debug)]
pub struct Armed {
    /// One line; the first word is the number of the arming, odd while armed.
    word: Window,
    generation: u64,
}

impl Armed {
    /// Continues from `generation`, the number of the last arming (0 at first).
    pub fn new(word: Window, generation: u64) -> Armed {
        Armed { word, generation }
    }

    /// From now on peers ring. The caller looks once more for work before it sleeps. Returns the
    /// arming's number.
    pub fn arm(&mut self) -> u64 {
        // Rings taken so far belong to earlier armings. Partner: the read fence in
        // `Watch::must_ring`.
        self.word.write_fence();
        // The next odd number, also if it is odd already: that one's ring may have been taken.
        self.publish((self.generation | 1).wrapping_add((self.generation & 1) * 2));
        self.word.write_fence();
        arrive(&self.word);
        // Partner: the fence in `Watch::must_ring`, see the module's text.
        fence(Ordering::SeqCst);
        self.generation
    }

    /// From now on peers need not ring. Returns the number to continue from.
    pub fn disarm(&mut self) -> u64 {
        if self.generation & 1 == 1 {
            self.publish(self.generation.wrapping_add(1));
        }
        self.generation
    }

    fn publish(&mut self, generation: u64) {
        self.generation = generation;
        // A line has a first word; without one, peers would not ring.
        let _ = self.word.store(0, generation);
    }
}

/// A ringer's side: the same word, in the window that its host reads.
#[derive(Debug)]
pub struct Watch {
    /// Written by the sleeper.
    word: Window,
    /// The arming that was rung for last.
    rung: u64,
}

impl Watch {
    /// Watches `word`; nothing was rung for yet.
    pub fn new(word: Window) -> Watch {
        Watch { word, rung: 0 }
    }

    /// Whether to ring the sleeper. To be called after publishing what it shall see.
    #[inline]
    pub fn must_ring(&mut self) -> bool {
        // Partner: the fence in `Armed::arm`, see the module's text.
        fence(Ordering::SeqCst);
        let armed = self.word.load(0).unwrap_or_default();
        let must = armed & 1 == 1 && armed != self.rung;
        if must {
            self.rung = armed;
            // The ring comes after all that the sleeper did before it armed. Partner: the first
            // fence in `Armed::arm`.
            self.word.read_fence();
        }
        must
    }
}
