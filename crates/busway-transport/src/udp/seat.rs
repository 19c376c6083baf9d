//! A receiver's place among those that get the same messages: where its stream lies beside theirs, and whether it hears the group.
//!
//! Messages that several receivers are due have one place in a [`Ledger`] that all of them share; a stream that takes them one after the other,
//! with none left out, has a *run* there. Two streams are in step where their next bytes have the same position. A receiver is
//! *confirmed* once it has answered a call that could only reach it by the group. Owned by [`super::near`]; pure but for a count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::lock;
use super::wire::{Answer, MAX_CALL};
use crate::contract::{Head, Message};
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
    /// It was refused the next message, or whoever offers them keeps that one from it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Kind;

    struct Plain(Head, &'static [u8]);

    impl Message for Plain {
        fn head(&self) -> &Head {
            &self.0
        }
        fn user_header(&self) -> &[u8] {
            &[]
        }
        fn payload(&self) -> &[u8] {
            self.1
        }
    }

    static BYTES: [u8; 2] = [7; 2];

    fn message(sequence: u64) -> Plain {
        let head = Head {
            sequence,
            origin: 1,
            time_ns: 0,
            payload_bytes: 1,
            events: 0,
            user_header_bytes: 0,
            kind: Kind::Data,
        };
        Plain(head, &BYTES[..1])
    }

    /// A stream that takes messages of one length.
    struct Stream(Seat, u64);

    impl Stream {
        fn new(ledger: &Arc<Mutex<Ledger>>) -> Stream {
            Stream(Seat::new(ledger.clone(), 1, 0, Arc::default()), 0)
        }

        /// Takes a message; the position of its end, and where the run began.
        fn take(&mut self, message: &Plain) -> (u64, u64) {
            self.0.place(message, self.1);
            self.1 += segment_bytes(message) as u64;
            (self.0.position(self.1), self.0.run_start())
        }
    }

    #[test]
    fn streams_that_take_the_same_messages_are_in_step() {
        let ledger = Arc::default();
        let [mut one, mut two] = [Stream::new(&ledger), Stream::new(&ledger)];
        for sequence in 1..100 {
            let message = message(sequence);
            assert_eq!(one.take(&message), two.take(&message));
            assert_eq!(one.0.run_start(), 0, "none is left out");
        }
    }

    #[test]
    fn a_stream_that_lags_is_in_the_same_run_and_one_that_misses_a_message_begins_another() {
        let ledger = Arc::default();
        let [mut one, mut two] = [Stream::new(&ledger), Stream::new(&ledger)];
        let length = segment_bytes(&message(1)) as u64;
        let ends: Vec<_> = (1..=10).map(|sequence| one.take(&message(sequence))).collect();
        for sequence in (1..=10).filter(|sequence| *sequence != 5) {
            let run_start = if sequence < 5 { 0 } else { 4 * length };
            assert_eq!(
                two.take(&message(sequence)),
                (ends[sequence as usize - 1].0, run_start)
            );
        }
    }

    #[test]
    fn what_only_looks_the_same_is_not() {
        let ledger = Arc::default();
        let [mut one, mut two] = [Stream::new(&ledger), Stream::new(&ledger)];
        let first = one.take(&message(1)).0;
        let Plain(head, _) = message(1);
        assert_ne!(
            two.take(&Plain(head, &BYTES[1..])).0,
            first,
            "its bytes lie elsewhere"
        );
        assert_ne!(two.take(&Plain(Head { events: 1, ..head }, &BYTES[..1])).0, first);
        assert_eq!(two.take(&message(1)).0, first);
    }

    #[test]
    fn a_receiver_is_invited_and_called_less_and_less_until_it_has_answered_the_last_call() {
        let mut seat = Stream::new(&Arc::default()).0;
        let mut answer = super::super::receiving::Seen::default().answer(0, 0, 0, false);
        let invited = (0..10_000).filter(|ms| seat.due(ms * 1_000_000) == Some(Overture::Invite(1)));
        assert_eq!(invited.count(), 16, "7 in the first second, then one a second");
        let now_ns = 10_000_000_000;
        answer.is_listening = true;
        assert!(!seat.hear(&answer, now_ns));
        assert_eq!(seat.due(now_ns), Some(Overture::Call(1)));
        answer.heard = 1;
        assert!(seat.hear(&answer, now_ns) && seat.is_confirmed);
        assert_eq!(seat.due(2 * now_ns), None);
        seat.desert(now_ns);
        assert!(!seat.hear(&answer, now_ns), "an answer to an earlier call");
        assert_eq!(seat.due(now_ns), None, "not at once");
        assert_eq!(seat.due(2 * now_ns), Some(Overture::Call(2)));
    }
}
