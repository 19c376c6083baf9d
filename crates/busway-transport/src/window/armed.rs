//! Who sleeps and who must be rung: the word through which a lane and its peers agree on that.
//!
//! A lane that goes to sleep makes its word odd; whoever has published something for it looks at that word, in memory of its
//! own, and rings only if it is odd, so that nobody makes a system call for a lane that is awake.
//!
//! # No wake-up is lost
//!
//! ```text
//! sleeper                                  ringer
//!   armed = odd            (arm)             publish the message
//!   SeqCst fence                             SeqCst fence
//!   look once more for messages              look at armed; odd: ring
//!   sleep
//! ```
//!
//! Whichever fence comes first in the one order of all SeqCst fences, the other side's look sees the store before it:
//! either the sleeper sees the message, or the ringer sees the armed word. Each arming has a number of its own, so one ring per
//! channel and arming is enough. A ring that comes late (after `disarm`) only makes the next sleep short.
//!
//! # Across a bus
//!
//! Fences order what a processor does, not what is on its way over PCI: each side's store might still travel while the other looks.
//! So a sleeper whose word lies behind a bus reads it back after arming ([`arrive`]), the only read across the bus that there is, before a sleep.
//! By PCI's ordering rules (PCI Express Base Specification, 2.4.1: neither a read request nor its completion passes a posted write) the
//! armed word has then arrived, and so has every message whose sender has looked at that word before it did.
//!
//! Contract: one sleeper a word, any number of ringers; no other shared state. `tests/loom.rs` checks this very file. Called by
//! [`super::bell`].

use busway_core::{Medium, Window};

use super::sync::{Ordering, fence};

/// Waits until what was stored into the first word of `far` has arrived, where a bus lies between: see the module's text.
pub fn arrive(far: &Window) {
    if far.medium() != Medium::Coherent {
        let _ = far.load(0);
        far.read_fence();
    }
}

/// The sleeper's side: a word in the window that its host writes.
#[derive(Debug)]
pub struct Armed {
    /// One line; the first word is the number of the arming, odd while armed.
    word: Window,
    generation: u64,
}

impl Armed {
    /// Goes on from `generation`, the number of the last arming (0 at first).
    pub fn new(word: Window, generation: u64) -> Armed {
        Armed { word, generation }
    }

    /// From now on ringers ring. The caller looks once more for work before it sleeps. Returns the arming's number.
    pub fn arm(&mut self) -> u64 {
        // Rings that were taken before count for earlier armings. Partner: the read fence in `Watch::must_ring`.
        self.word.write_fence();
        // The next odd number, also if it is odd already: the ring for that one may have been taken.
        self.publish((self.generation | 1).wrapping_add((self.generation & 1) * 2));
        self.word.write_fence();
        arrive(&self.word);
        // Partner: the fence in `Watch::must_ring`, see the module's text.
        fence(Ordering::SeqCst);
        self.generation
    }

    /// From now on nobody need ring. Returns the number to go on from.
    pub fn disarm(&mut self) -> u64 {
        if self.generation & 1 == 1 {
            self.publish(self.generation.wrapping_add(1));
        }
        self.generation
    }

    fn publish(&mut self, generation: u64) {
        self.generation = generation;
        // A line has a first word; a window without one would only mean that nobody rings.
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

    /// Whether the sleeper must be rung. To be asked after what it shall see was published.
    #[inline]
    pub fn must_ring(&mut self) -> bool {
        // Partner: the fence in `Armed::arm`, see the module's text.
        fence(Ordering::SeqCst);
        let armed = self.word.load(0).unwrap_or_default();
        let must = armed & 1 == 1 && armed != self.rung;
        if must {
            self.rung = armed;
            // The ring that follows comes after what the sleeper did before it armed. Partner: the first fence in `Armed::arm`.
            self.word.read_fence();
        }
        must
    }
}
