//! Who waits at a queuing port, and whose turn it is.
//!
//! Contract: a table in the file of the port's partition, changed only under the port's lock. The
//! other side of the channel reads `waiting`, and nothing else, without the lock. Called by the
//! queuing ports.
//!
//! ```text
//! word 0            waiting     places taken; read by the other side to know whether anybody is to be woken
//! word 1            tickets     counts up with every arrival; orders a FIFO
//! word 8 + 4 i      member      who waits at place i: a member's name, or 0
//! word 9 + 4 i      priority    i64, larger is sooner
//! word 10 + 4 i     ticket      as drawn on arrival
//! ```

use crate::lock::MemberTable;
use crate::sync::{AtomicU64, Ordering, fence};

/// Places of the table. Who finds none free tries again later.
pub const PLACES: usize = if cfg!(loom) { 2 } else { 64 };

/// Length of the table in words.
pub const WAITER_WORDS: usize = PLACE + PLACES * PLACE_WORDS;

const WAITING: usize = 0;
const TICKETS: usize = 1;
const PLACE: usize = 8;
const PLACE_WORDS: usize = 4;
const MEMBER: usize = 0;
const PRIORITY: usize = 1;
const TICKET: usize = 2;

/// Shared words by index.
pub trait Words {
    /// Word number `index`.
    fn word(&self, index: usize) -> &AtomicU64;
}

/// The table of one port. All methods but [`waiting`](Self::waiting) are for the holder of the
/// port's lock, which orders them: so every access is relaxed.
pub struct Waiters<'w, W: Words>(pub &'w W);

impl<W: Words> Waiters<'_, W> {
    /// How many wait, dead ones included.
    pub fn waiting(&self) -> u64 {
        self.load(WAITING)
    }

    /// Takes a place for the caller; `None` if none is free. At a port whose discipline is FIFO
    /// every caller has the same `priority`.
    pub fn arrive(&self, members: &impl MemberTable, priority: i64) -> Option<usize> {
        let place = (0..PLACES).find(|place| self.load(at(*place, MEMBER)) == 0)?;
        let ticket = self.load(TICKETS).wrapping_add(1);
        self.store(TICKETS, ticket);
        self.store(at(place, PRIORITY), priority as u64);
        self.store(at(place, TICKET), ticket);
        self.store(at(place, MEMBER), members.me());
        self.recount();
        Some(place)
    }

    /// Gives `place` up.
    pub fn leave(&self, place: usize) {
        self.store(at(place, MEMBER), 0);
        self.recount();
    }

    /// The place whose turn it is: the highest priority, then the earliest arrival. `None` if
    /// nobody waits.
    pub fn first(&self) -> Option<usize> {
        let key = |place: usize| {
            let priority = self.load(at(place, PRIORITY)) as i64;
            (core::cmp::Reverse(priority), self.load(at(place, TICKET)))
        };
        (0..PLACES)
            .filter(|place| self.load(at(*place, MEMBER)) != 0)
            .min_by_key(|place| key(*place))
    }

    /// As [`first`](Self::first), after giving up the places of the dead in front of it.
    pub fn first_alive(&self, members: &impl MemberTable) -> Option<usize> {
        loop {
            let place = self.first()?;
            if members.is_alive(self.load(at(place, MEMBER))) {
                return Some(place);
            }
            self.leave(place);
        }
    }

    /// Forgets everybody.
    pub fn clear(&self) {
        for place in 0..PLACES {
            self.store(at(place, MEMBER), 0);
        }
        self.recount();
    }

    /// Counts from the beginning, so that a process killed between two stores leaves no wrong
    /// number behind the next change.
    fn recount(&self) {
        let taken = (0..PLACES).filter(|place| self.load(at(*place, MEMBER)) != 0);
        self.store(WAITING, taken.count() as u64);
    }

    fn load(&self, index: usize) -> u64 {
        self.0.word(index).load(Ordering::Relaxed)
    }

    fn store(&self, index: usize, value: u64) {
        self.0.word(index).store(value, Ordering::Relaxed);
    }
}

/// Orders the caller's arrival in its table before its last look at what it waits for. Then it may
/// sleep.
///
/// Partner: [`is_anybody_there`]. Of the two sides, at least one sees what the other stored.
pub fn before_last_look() {
    fence(Ordering::SeqCst);
}

/// Whether anybody waits in the other side's table, whose first word is `waiting`, asked after what
/// they wait for was stored.
///
/// Partner: [`before_last_look`].
pub fn is_anybody_there(waiting: &AtomicU64) -> bool {
    fence(Ordering::SeqCst);
    waiting.load(Ordering::Relaxed) != 0
}

fn at(place: usize, field: usize) -> usize {
    PLACE + place * PLACE_WORDS + field
}
