//! What a sender knows of its receiver and the group: whether the group reaches the receiver, and
//! how far its stream is beside the streams of the others.
//!
//! Each message that several streams carry has one position in a [`CommonStream`]. While a stream
//! takes those messages one after the other, without omitting one, its offsets and the positions
//! differ by a constant: that part of the stream is a *run*. Two streams can share a datagram where
//! their next bytes have the same position. A membership is *active* once the receiver has returned
//! a probe, which reaches it over the group only. Pure but for a counter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::contract::{Head, Message};
use crate::stream::segment_bytes;
use crate::udp::lock::lock;
use crate::udp::wire::{Ack, MAX_PROBE};

/// Messages whose position is known: a stream that lags behind by more begins a new run.
const RECENT: usize = 16;
/// First pause between two invitations or probes.
const FIRST_PAUSE_NS: u64 = 10_000_000;
/// The pause doubles up to this.
const LONGEST_PAUSE_NS: u64 = 1_000_000_000;
/// Pause after the group failed; it doubles with each failure, up to the longest.
const SUSPENSION_NS: u64 = 1_000_000_000;
const LONGEST_SUSPENSION_NS: u64 = 64_000_000_000;

/// Two messages with the same identity have the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    head: Head,
    /// Address and length of the user header and of the payload.
    user_header: (usize, usize),
    payload: (usize, usize),
}

impl Identity {
    fn of(message: &impl Message) -> Identity {
        // The address of an empty slice means nothing.
        let location = |bytes: &[u8]| match bytes.len() {
            0 => (0, 0),
            len => (bytes.as_ptr().addr(), len),
        };
        Identity {
            head: *message.head(),
            user_header: location(message.user_header()),
            payload: location(message.payload()),
        }
    }
}

/// The positions of the last messages that any stream of the group has taken.
#[derive(Debug, Default)]
pub struct CommonStream {
    end: u64,
    recent: [Option<(Identity, u64)>; RECENT],
    next: usize,
}

impl CommonStream {
    /// The position of a message: a new one unless the message is among the recent ones.
    fn position(&mut self, message: &impl Message) -> u64 {
        let identity = Identity::of(message);
        let mut recent = self.recent.iter().flatten();
        if let Some((_, position)) = recent.find(|(recent, _)| *recent == identity) {
            return *position;
        }
        let position = self.end;
        self.end += segment_bytes(message) as u64;
        self.recent[self.next] = Some((identity, position));
        self.next = (self.next + 1) % RECENT;
        position
    }
}

/// What the sender transmits next to learn whether the group reaches the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Unicast: join the group on this port.
    Invite(u16),
    /// Multicast: return this number.
    Probe(u8),
}

#[derive(Debug)]
pub struct Membership {
    common: Arc<Mutex<CommonStream>>,
    port: u16,
    /// Offset in the stream where the run began; position less offset from there on.
    run_start: u64,
    shift: u64,
    /// The stream could not take the message that the others get next.
    pub awaits_message: bool,
    /// Datagrams of the group reach the receiver.
    pub is_active: bool,
    /// Since when the others have waited for this receiver's window.
    pub stalled_since_ns: Option<u64>,
    has_joined: bool,
    /// The number that the receiver has to return.
    probe: u8,
    request_at_ns: u64,
    pause_ns: u64,
    suspension_ns: u64,
    /// Counts the receivers that the group did not reach; the link reads it.
    failures: Arc<AtomicU64>,
}

impl Membership {
    /// For a stream whose end is `offset`.
    pub fn new(common: Arc<Mutex<CommonStream>>, port: u16, offset: u64, failures: Arc<AtomicU64>) -> Self {
        let shift = lock(&common).end.wrapping_sub(offset);
        Membership {
            shift,
            common,
            port,
            run_start: offset,
            awaits_message: false,
            is_active: false,
            stalled_since_ns: None,
            has_joined: false,
            probe: 1,
            request_at_ns: 0,
            pause_ns: FIRST_PAUSE_NS,
            suspension_ns: SUSPENSION_NS,
            failures,
        }
    }

    /// The stream takes a message at this offset.
    pub fn take(&mut self, message: &impl Message, offset: u64) {
        self.awaits_message = false;
        let shift = lock(&self.common).position(message).wrapping_sub(offset);
        if shift != self.shift {
            (self.shift, self.run_start) = (shift, offset);
        }
    }

    pub fn run_start(&self) -> u64 {
        self.run_start
    }

    pub fn position(&self, offset: u64) -> u64 {
        offset.wrapping_add(self.shift)
    }

    /// Reads what an acknowledgement says of the group. Returns whether it activates the
    /// membership.
    pub fn on_ack(&mut self, ack: &Ack, now_ns: u64) -> bool {
        if ack.has_joined && !self.has_joined {
            (self.request_at_ns, self.pause_ns) = (now_ns, FIRST_PAUSE_NS);
        }
        self.has_joined = ack.has_joined;
        let activates = !self.is_active && ack.probe == self.probe;
        self.is_active |= activates;
        activates
    }

    pub fn request(&mut self, now_ns: u64) -> Option<Request> {
        if self.is_active || now_ns < self.request_at_ns {
            return None;
        }
        self.request_at_ns = now_ns + self.pause_ns;
        self.pause_ns = (2 * self.pause_ns).min(LONGEST_PAUSE_NS);
        Some(if self.has_joined {
            Request::Probe(self.probe)
        } else {
            Request::Invite(self.port)
        })
    }

    /// The group does not reach the receiver: only a later probe activates the membership again.
    pub fn suspend(&mut self, now_ns: u64) {
        // Relaxed: a counter by itself, read by the link.
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.is_active = false;
        self.probe = self.probe % MAX_PROBE + 1;
        self.request_at_ns = now_ns + self.suspension_ns;
        self.suspension_ns = (2 * self.suspension_ns).min(LONGEST_SUSPENSION_NS);
        self.pause_ns = LONGEST_PAUSE_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Kind;
    use crate::udp::receiving::ReceivedPackets;

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

    struct Stream(Membership, u64);

    impl Stream {
        fn new(common: &Arc<Mutex<CommonStream>>) -> Stream {
            Stream(Membership::new(common.clone(), 1, 0, Arc::default()), 0)
        }

        /// Takes a message; the position of its end, and where the run began.
        fn take(&mut self, message: &Plain) -> (u64, u64) {
            self.0.take(message, self.1);
            self.1 += segment_bytes(message) as u64;
            (self.0.position(self.1), self.0.run_start())
        }
    }

    #[test]
    fn streams_with_the_same_messages_have_the_same_positions() {
        let common = Arc::default();
        let [mut one, mut two] = [Stream::new(&common), Stream::new(&common)];
        for sequence in 1..100 {
            let message = message(sequence);
            assert_eq!(one.take(&message), two.take(&message));
            assert_eq!(one.0.run_start(), 0, "none is left out");
        }
    }

    #[test]
    fn lag_keeps_the_run_and_an_omitted_message_begins_another() {
        let common = Arc::default();
        let [mut one, mut two] = [Stream::new(&common), Stream::new(&common)];
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
    fn equal_bytes_elsewhere_are_another_message() {
        let common = Arc::default();
        let [mut one, mut two] = [Stream::new(&common), Stream::new(&common)];
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
    fn receiver_is_invited_and_probed_with_growing_pauses_until_it_returns_the_last_probe() {
        let mut member = Stream::new(&Arc::default()).0;
        let mut ack = ReceivedPackets::default().ack(0, 0, 0, false);
        let invited = (0..10_000).filter(|ms| member.request(ms * 1_000_000) == Some(Request::Invite(1)));
        assert_eq!(invited.count(), 16, "7 in the first second, then one a second");
        let now_ns = 10_000_000_000;
        ack.has_joined = true;
        assert!(!member.on_ack(&ack, now_ns));
        assert_eq!(member.request(now_ns), Some(Request::Probe(1)));
        ack.probe = 1;
        assert!(member.on_ack(&ack, now_ns) && member.is_active);
        assert_eq!(member.request(2 * now_ns), None);
        member.suspend(now_ns);
        assert!(!member.on_ack(&ack, now_ns), "an answer to an earlier probe");
        assert_eq!(member.request(now_ns), None, "not at once");
        assert_eq!(member.request(2 * now_ns), Some(Request::Probe(2)));
    }
}
