//! Lets the control thread end a conversation although lanes are working in the windows.
//!
//! Contract: each channel end has a [`Gate`] and passes it for the time in which it writes into a window. When a
//! conversation ends, its gates close; once [`Conversation::is_quiet`], no end of it will ever write again, and the
//! control thread may tell the peer to use the memory anew. A lane pays one locked instruction on a line of its own.
//! Called by the channel ends (lanes) and by the link (control thread).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A flag on a cache line of its own (two, since lines are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicBool);

/// One conversation with a peer: from link up to link down.
#[derive(Debug, Default)]
pub struct Conversation {
    /// Set once by the control thread.
    ended: Line,
    /// One flag an end: it is inside now. Written by that end's lane only. Locked when channels open and when the link goes
    /// down, never on the data path.
    inside: Mutex<Vec<Arc<Line>>>,
}

impl Conversation {
    /// A new gate for a channel end.
    pub fn gate(self: &Arc<Self>) -> Gate {
        let inside = Arc::new(Line::default());
        let mut all = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|flag| Arc::strong_count(flag) > 1);
        all.push(Arc::clone(&inside));
        Gate {
            conversation: Arc::clone(self),
            inside,
        }
    }

    /// Closes all gates: whoever is inside may finish, nobody enters any more.
    pub fn end(&self) {
        // Partner: `Gate::enter`. Both are SeqCst, so either the lane sees the end, or `is_quiet` sees the lane.
        self.ended.0.store(true, Ordering::SeqCst);
    }

    /// Whether no end is inside. After [`end`](Self::end) it stays so.
    pub fn is_quiet(&self) -> bool {
        let all = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        // Acquire (part of SeqCst); partner: the Release in `Inside::drop`. All writes of the lane come before.
        all.iter().all(|flag| !flag.0.load(Ordering::SeqCst))
    }

    /// Whether the conversation has ended.
    pub fn has_ended(&self) -> bool {
        // Partner: `end`. Only a hint: who must not write passes the gate.
        self.ended.0.load(Ordering::Relaxed)
    }
}

/// The way of one channel end into the windows.
#[derive(Debug)]
pub struct Gate {
    conversation: Arc<Conversation>,
    inside: Arc<Line>,
}

/// Proof that the conversation lasts; it can't be declared quiet before this is dropped.
#[derive(Debug)]
pub struct Inside<'a>(&'a Line);

impl Gate {
    /// Enters, unless the conversation has ended.
    #[inline]
    pub fn enter(&self) -> Option<Inside<'_>> {
        // Partner: `Conversation::end` and `is_quiet`, see there. A swap, since a store would need a fence after it.
        self.inside.0.swap(true, Ordering::SeqCst);
        let inside = Inside(&self.inside);
        (!self.conversation.ended.0.load(Ordering::SeqCst)).then_some(inside)
    }

    /// Whether the conversation has ended.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.conversation.has_ended()
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        // Partner: the load in `Conversation::is_quiet`.
        self.0.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn nobody_enters_after_the_end() {
        let conversation = Arc::new(Conversation::default());
        let gate = conversation.gate();
        assert!(gate.enter().is_some());
        conversation.end();
        assert!(gate.enter().is_none());
        assert!(conversation.is_quiet());
    }

    #[test]
    fn a_conversation_is_not_quiet_while_an_end_is_inside() {
        let conversation = Arc::new(Conversation::default());
        let gate = conversation.gate();
        let inside = gate.enter().expect("not ended");
        conversation.end();
        assert!(!conversation.is_quiet());
        drop(inside);
        assert!(conversation.is_quiet());
    }

    #[test]
    fn no_write_follows_once_it_is_quiet() {
        for _ in 0..200 {
            let conversation = Arc::new(Conversation::default());
            let gate = conversation.gate();
            let writes = Arc::new(AtomicU64::new(0));
            let lane = std::thread::spawn({
                let writes = Arc::clone(&writes);
                move || {
                    while let Some(_inside) = gate.enter() {
                        writes.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            std::thread::yield_now();
            conversation.end();
            while !conversation.is_quiet() {
                std::hint::spin_loop();
            }
            let at_quiet = writes.load(Ordering::Relaxed);
            lane.join().expect("the lane ends");
            assert_eq!(writes.load(Ordering::Relaxed), at_quiet);
        }
    }
}
