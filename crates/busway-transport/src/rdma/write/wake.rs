//! Who sleeps and who must be rung, where a word takes its time to the other side.
//!
//! An end that is about to sleep writes a *wish*, a request to be woken, into the other end's
//! memory. The other end checks for a wish, in its own memory, after it has published something,
//! and rings: it sends an empty SEND, for which a RECV is posted. Over a bus the wish may arrive
//! after that check, and a message may be published after the sleeper's last poll, so two fences
//! are not enough. Therefore the sleeper reads back, behind its wish on the same queue pair, how
//! far the other end has published:
//!
//! ```text
//! sleeper S                                        publisher P
//!   looks, finds nothing beyond `seen`               posts the WRITEs of a message
//!   posts WRITE want = n      -> P's memory          stores mark, in its own memory
//!   posts READ mark           <- P's memory          SeqCst fence
//!   sleeps; the completion of the READ wakes it      loads want; a new one: posts SEND
//!   mark == seen: sleeps on; else looks again, and
//!   reads mark again if it finds nothing
//! ```
//!
//! # No wake-up is lost
//!
//! P's device places the wish before it reads the mark (InfiniBand Architecture, ordering of RDMA
//! READ behind WRITE; RFC 5040, section 5.5), and P stores the mark before it loads the wish, with
//! the fence between. So either the READ returns the new mark, or P sees the wish and rings. The
//! SEND follows the message on the queue pair: when its RECV completes, the message is there. No
//! program of P's host takes part in the READ, so it does not disturb an idle publisher.
//!
//! # A RECV is always posted
//!
//! P rings at most once for a wish, and S writes a new wish only after the SEND for the last one
//! has arrived and its RECV is posted again. So at most one SEND is under way; iWARP breaks a
//! connection for one SEND too many.
//!
//! # The one that was connected to speaks second
//!
//! Over iWARP the side that accepted a connection must send nothing before something of the other
//! side has arrived (RFC 5044, section 7.1); else `siw` breaks the connection, if that arrives
//! together with the answer to the opening. So the sender, which connects, rings once without a
//! wish, and the receiver begins as if it had written one.
//!
//! Contract: one [`WakeState`] a pipe, on a lane. A peer that writes what it likes into the words
//! makes needless rings and looks, or is not woken: its own affair.

use std::sync::Arc;

use busway_core::Window;

use crate::rdma::lane::Lane;
use crate::remote_write::{ENTRY_BYTES, SENDER_AWAITS_CREDIT_AT};

/// Word of a wake-up line: the number of the other end's wish, 0 at first. The other end writes it.
pub(super) const WANT_AT: usize = SENDER_AWAITS_CREDIT_AT;
/// Word of a bell line: up to where this end has published. Written by this end, read by the
/// other's READ.
pub(super) const MARK_AT: usize = 16;
/// Word of a bell line: where the READ of the other's mark lands. Written by this end's device.
pub(super) const READ_AT: usize = 24;
const _: () = assert!(READ_AT + 8 <= ENTRY_BYTES);

/// The sleeper's side of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sleeper {
    /// Number of the last wish, and whether the SEND for it has arrived.
    wish: u64,
    is_rung: bool,
    /// A READ is under way; what this end had seen when it was posted.
    reading: Option<u64>,
    /// A SEND has arrived since: the READ does not concern the next wish.
    is_stale: bool,
    /// The wish was placed before the other end published more: the other end will ring.
    is_sure: bool,
}

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper {
            wish: 0,
            is_rung: true,
            reading: None,
            is_stale: false,
            is_sure: false,
        }
    }

    /// A ring comes unasked, before which nothing may be written.
    fn greeted() -> Sleeper {
        Sleeper {
            is_rung: false,
            is_sure: true,
            ..Sleeper::new()
        }
    }

    /// The wish to write before reading the mark.
    pub(super) fn next_wish(&self) -> Option<u64> {
        let is_due = self.is_rung && self.reading.is_none();
        is_due.then(|| self.wish.wrapping_add(1).max(1))
    }

    /// The wish was posted.
    pub(super) fn wished(&mut self, wish: u64) {
        self.wish = wish;
        self.is_rung = false;
    }

    /// Whether to read the mark, behind the wish. At most one READ is under way.
    pub(super) fn must_read(&self) -> bool {
        !self.is_rung && !self.is_sure && self.reading.is_none()
    }

    /// The READ goes out; this end has seen everything up to `seen`.
    pub(super) fn reading(&mut self, seen: u64) {
        self.reading = Some(seen);
        self.is_stale = false;
    }

    /// The READ has come back; whether this end must look again.
    fn read(&mut self, mark: u64) -> bool {
        let seen = self.reading.take();
        self.is_sure = !self.is_stale && seen == Some(mark);
        !self.is_sure
    }

    /// The SEND for the wish has arrived.
    fn rung(&mut self) {
        self.is_rung = true;
        self.is_sure = false;
        self.is_stale = true;
    }
}

/// The publisher's side of the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ringer {
    /// The last wish that was rung for.
    rung_for: u64,
}

impl Ringer {
    /// Whether to ring after publishing, for the wish `want` that is there (0: none).
    pub(super) fn must_ring(&self, want: u64) -> bool {
        want != 0 && want != self.rung_for
    }

    pub(super) fn rings(&mut self, want: u64) {
        self.rung_for = want;
    }
}

/// One end's part of the bell.
#[derive(Debug)]
pub struct WakeState {
    /// This end's bell line.
    pub(super) line: Window,
    /// Offsets of the bell lines in the own and in the far memory.
    pub(super) own_at: usize,
    pub(super) far_at: usize,
    /// Knows when the lane is about to sleep.
    pub(super) lane: Arc<Lane>,
    pub(super) sleeper: Sleeper,
    pub(super) ringer: Ringer,
}

impl WakeState {
    /// For the bell line `line`, at `own_at` in the own memory, with the other's at `far_at` in the
    /// far memory. `mark` is where this end begins to publish.
    pub fn new(line: Window, own_at: usize, far_at: usize, mark: u64, lane: Arc<Lane>) -> WakeState {
        // Inside: a bell line is a whole entry.
        let _ = line.store(MARK_AT, mark);
        WakeState {
            line,
            own_at,
            far_at,
            lane,
            sleeper: Sleeper::new(),
            ringer: Ringer::default(),
        }
    }

    /// The other end [greets](super::pipe::Pipe::greet) before this one writes anything.
    pub fn greeted(mut self) -> WakeState {
        self.sleeper = Sleeper::greeted();
        self
    }

    /// Whether the other end has [greeted](super::pipe::Pipe::greet).
    pub(super) fn is_greeted(&self) -> bool {
        self.sleeper.is_rung || self.sleeper.wish != 0
    }

    /// The SEND for the wish has arrived.
    pub(super) fn rung(&mut self) {
        self.sleeper.rung();
    }

    /// The READ has come back; whether this end must look again.
    pub(super) fn read(&mut self) -> bool {
        // Acquire: the device wrote the word before it made the completion.
        let mark = self.line.load_acquire(READ_AT).unwrap_or_default();
        self.sleeper.read(mark)
    }

    /// A word of the far memory that may be written at any time, and what it holds already.
    pub(super) fn harmless_word(&self) -> (usize, u64) {
        (self.far_at + WANT_AT, self.sleeper.wish)
    }
}

#[cfg(test)]
#[path = "wake_tests.rs"]
mod tests;
