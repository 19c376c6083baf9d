//! A receiver's place among those that get the same messages: where its stream lies beside theirs, and whether it hears the group.
//!
//! Messages that several receivers are due have one place in a [`Ledger`] that all of them share; a stream that takes them one after the other,
//! with none left out, has a *run* there. Two streams are in step where their next bytes have the same position. A receiver is
//! *confirmed* once it has answered a call that could only reach it by the group. Owned by [`super::near`]; pure but for a count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::lock;
use super::wire::{Answer, MAX_CALL};
use crate::message::{Head, Message};
use crate::stream::segment_bytes;

/// Messages of which the ledger knows the place: a stream may lag so far behind and still be in the run.
const KNOWN: usize = 16;
/// Between two invitations or calls, at first.
const FIRST_PAUSE_NS: u64 = 10_000_000;
/// The pause doubles up to this.
const LONGEST_PAUSE_NS: u64 = 1_000_000_000;
/// After the group was given up: it doubles each time, up to the longest.
const DESERTED_PAUSE_NS: u64 = 1_000_000_000;
const LONGEST_DESERTED_NS: u64 = 64_000_000_000;

/// What makes two messages the same bytes: their heads, and where the rest lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    head: Head,
    user_header: (usize, usize),
    payload: (usize, usize),
}

impl Identity {
    fn of(message: &impl Message) -> Identity {
        // Nothing is the same wherever it lies.
        let place = |bytes: &[u8]| match bytes.len() {
            0 => (0, 0),
            len => (bytes.as_ptr().addr(), len),
        };
        Identity {
            head: *message.head(),
            user_header: place(message.user_header()),
            payload: place(message.payload()),
        }
    }
}

/// Where the last messages lie that any of the streams took.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    end: u64,
    known: [Option<(Identity, u64)>; KNOWN],
    next: usize,
}

impl Ledger {
    /// The position of a message: that of the same one before, or a new one.
    fn place(&mut self, message: &impl Message) -> u64 {
        let identity = Identity::of(message);
        let mut known = self.known.iter().flatten();
        if let Some((_, position)) = known.find(|(known, _)| *known == identity) {
            return *position;
        }
        let position = self.end;
        self.end += segment_bytes(message) as u64;
        self.known[self.next] = Some((identity, position));
        self.next = (self.next + 1) % KNOWN;
        position
    }
}

/// What a receiver is to be sent so that it hears the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overture {
    /// The group's port.
    Invite(u16),
    /// A call's number.
    Call(u8),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Seat {
    ledger: Arc<Mutex<Ledger>>,
    port: u16,
    /// Position less offset, of the run that began at this offset of the stream.
    shift: u64,
    run_start: u64,
    /// It was refused the last message.
    pub(super) is_starved: bool,
    /// It hears the group.
    pub(super) is_confirmed: bool,
    /// Since when others wait for it.
    pub(super) stalled_ns: Option<u64>,
    is_listening: bool,
    /// The call that is to be answered.
    call: u8,
    next_ns: u64,
    pause_ns: u64,
    deserted_pause_ns: u64,
    /// Counts receivers for whom the group was given up.
    deserted: Arc<AtomicU64>,
}

impl Seat {
    /// `offset`: the end of the stream.
    pub(super) fn new(ledger: Arc<Mutex<Ledger>>, port: u16, offset: u64, deserted: Arc<AtomicU64>) -> Seat {
        let shift = lock(&ledger).end.wrapping_sub(offset);
        Seat {
            shift,
            ledger,
            port,
            run_start: offset,
            is_starved: false,
            is_confirmed: false,
            stalled_ns: None,
            is_listening: false,
            call: 1,
            next_ns: 0,
            pause_ns: FIRST_PAUSE_NS,
            deserted_pause_ns: DESERTED_PAUSE_NS,
            deserted,
        }
    }

    /// A message is taken into the stream at this offset.
    pub(super) fn place(&mut self, message: &impl Message, offset: u64) {
        self.is_starved = false;
        let shift = lock(&self.ledger).place(message).wrapping_sub(offset);
        if shift != self.shift {
            (self.shift, self.run_start) = (shift, offset);
        }
    }

    /// Where the run begins in the stream.
    pub(super) fn run_start(&self) -> u64 {
        self.run_start
    }

    /// The position of an offset in the run.
    pub(super) fn position(&self, offset: u64) -> u64 {
        offset.wrapping_add(self.shift)
    }

    /// Takes in what an answer says of the group; whether it is the one that confirms.
    pub(super) fn hear(&mut self, answer: &Answer, now_ns: u64) -> bool {
        if answer.is_listening && !self.is_listening {
            (self.next_ns, self.pause_ns) = (now_ns, FIRST_PAUSE_NS);
        }
        self.is_listening = answer.is_listening;
        let confirms = !self.is_confirmed && answer.heard == self.call;
        self.is_confirmed |= confirms;
        confirms
    }

    /// What is to be sent now.
    pub(super) fn due(&mut self, now_ns: u64) -> Option<Overture> {
        if self.is_confirmed || now_ns < self.next_ns {
            return None;
        }
        self.next_ns = now_ns + self.pause_ns;
        self.pause_ns = (2 * self.pause_ns).min(LONGEST_PAUSE_NS);
        Some(if self.is_listening {
            Overture::Call(self.call)
        } else {
            Overture::Invite(self.port)
        })
    }

    /// The group carries nothing to this receiver: a later call must be answered first.
    pub(super) fn desert(&mut self, now_ns: u64) {
        // Relaxed: a count by itself, read by the link.
        self.deserted.fetch_add(1, Ordering::Relaxed);
        self.is_confirmed = false;
        self.call = self.call % MAX_CALL + 1;
        self.next_ns = now_ns + self.deserted_pause_ns;
        self.deserted_pause_ns = (2 * self.deserted_pause_ns).min(LONGEST_DESERTED_NS);
        self.pause_ns = LONGEST_PAUSE_NS;
    }
}
