//! The inbound half of a service: messages of other hosts, to the local programs.
//!
//! Called by the lane that owns it. Messages land directly in loaned samples. Their numbers show
//! losses and duplicates.
//!
//! A host may have two channels, one of them for large messages ([`super::destination`]). Each
//! keeps its own order; a head of [`Kind::After`] means that the next messages of its channel come
//! after a certain message of the other one. The channel waits until that message is delivered or
//! can't come any more: the other channel has ended, or is past it. The numbers waited for only
//! decrease from one channel's wait to the other's, so the channels can't deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use busway_transport::{ChannelError, Head, Kind, Landing, Receiver, SegmentId, Sink, Verdict, WaitFor};

use super::interface::{ChannelKey, FlowId, Report};
use crate::counters::{ServiceCounters, add};
use crate::faults;
use crate::iox::events::EventNotifier;
use crate::iox::publisher::{Backpressure, LoanedSample, SamplePublisher};

/// Most messages taken from one channel before the others of the lane get their turn.
const BUDGET: usize = 256;

/// How long an ending channel is polled after its last message.
const END_LIMIT: Duration = Duration::from_millis(500);

/// The parts of an inbound half.
pub struct InboundSetup {
    pub publisher: SamplePublisher,
    /// Keeps the publisher from waiting in vain; counts messages that full readers did not get;
    /// raises events.
    pub backpressure: Arc<Backpressure>,
    /// This gateway's session: a message that carries it is an echo.
    pub own_session: u64,
    pub counters: Arc<ServiceCounters>,
}

/// The last message number of one service from one host. It outlives channels: after a reconnection
/// it shows what was lost. Written by the lane that has the channel, reset by the control thread
/// while there is none; relaxed throughout, since the hand-over of the channel itself (a message
/// queue) orders both.
#[derive(Debug, Default)]
pub struct Continuity {
    /// Session of the origin's gateway; 0 for none.
    origin: AtomicU64,
    /// Its last message that came.
    last: AtomicU64,
}

impl Continuity {
    /// The next message starts a new count: earlier ones were not wanted.
    pub fn reset(&self) {
        self.origin.store(0, Ordering::Relaxed);
    }

    /// Whether the message of this number, or a later one, has come.
    pub(super) fn is_old(&self, head: &Head) -> bool {
        self.origin.load(Ordering::Relaxed) == head.origin
            && head.sequence <= self.last.load(Ordering::Relaxed)
    }

    /// Returns the number of messages that are missing before this one, and whether the origin's
    /// gateway is a new one.
    pub(super) fn advance(&self, head: &Head) -> (u64, bool) {
        let (origin, last) = (
            self.origin.load(Ordering::Relaxed),
            self.last.load(Ordering::Relaxed),
        );
        self.origin.store(head.origin, Ordering::Relaxed);
        self.last.store(head.sequence, Ordering::Relaxed);
        if origin == head.origin {
            (head.sequence - last - 1, false)
        } else {
            (0, origin != 0)
        }
    }
}

/// Whether messages after this head of [`Kind::After`] must wait for the message that it names:
/// that has not come, and may still come by another channel from the same host. `others_beyond`:
/// none of the others carries a message up to this number any more; `None` without another channel.
pub(super) fn must_wait(head: &Head, continuity: &Continuity, others_beyond: Option<u64>) -> bool {
    let may_come = others_beyond.is_some_and(|number| number < head.sequence);
    head.sequence != 0 && may_come && !continuity.is_old(head)
}

struct In {
    key: ChannelKey,
    receiver: Box<dyn Receiver>,
    continuity: Arc<Continuity>,
    /// Whether a gap in the numbers is a loss; a channel that keeps the latest has gaps by design.
    keeps_all: bool,
    /// The message being received.
    sample: Option<LoanedSample>,
    /// epoll reports a message; descriptors are not read without reason.
    ready: bool,
    /// The sender is gone: arrived messages are taken until the channel reports its end, at the
    /// latest until this time, which each further message postpones.
    ending_at: Option<Instant>,
    /// The sender is about to end: each message is acknowledged at once.
    acknowledges: bool,
    /// Copies counted so far, see [`Receiver::copied`].
    copied: u64,
    /// A head of [`Kind::After`] waits.
    waits: bool,
    /// The largest number that a head of [`Kind::After`] or [`Kind::Beyond`] has named: this
    /// channel carries no message up to it any more.
    beyond: u64,
    /// Whether there is another channel from the same host.
    has_other: bool,
    /// It is removed at the end of the turn.
    has_ended: bool,
}

pub struct Inbound {
    setup: InboundSetup,
    ins: Vec<In>,
    /// A fault has put private memory into our publisher's segment: nothing is sent until the
    /// publisher is replaced.
    publisher_failed: bool,
}

impl Inbound {
    pub fn new(setup: InboundSetup) -> Inbound {
        Inbound {
            setup,
            ins: Vec::new(),
            publisher_failed: false,
        }
    }

    pub fn add(
        &mut self,
        key: ChannelKey,
        receiver: Box<dyn Receiver>,
        continuity: Arc<Continuity>,
        keeps_all: bool,
    ) {
        self.ins.push(In {
            key,
            receiver,
            continuity,
            keeps_all,
            sample: None,
            ready: true,
            ending_at: None,
            acknowledges: false,
            copied: 0,
            waits: false,
            beyond: 0,
            has_other: false,
            has_ended: false,
        });
        self.find_others();
    }

    fn find_others(&mut self) {
        for at in 0..self.ins.len() {
            let has_other = self.others(at).next().is_some();
            self.ins[at].has_other = has_other;
        }
    }

    /// The other channels from the host that this one comes from.
    fn others(&self, at: usize) -> impl Iterator<Item = &In> {
        let continuity = &self.ins[at].continuity;
        let is_other =
            move |(index, other): &(usize, &In)| *index != at && Arc::ptr_eq(&other.continuity, continuity);
        self.ins
            .iter()
            .enumerate()
            .filter(is_other)
            .map(|(_, other)| other)
    }

    /// Up to which number no other channel from the same host carries a message any more.
    fn others_beyond(&self, at: usize) -> Option<u64> {
        if !self.ins[at].has_other {
            return None;
        }
        self.others(at).map(|other| other.beyond).min()
    }

    /// Acknowledges each message as soon as it is taken, from now on.
    pub fn acknowledge(&mut self, key: ChannelKey) {
        for input in self.ins.iter_mut().filter(|input| input.key == key) {
            input.acknowledges = true;
            input.receiver.acknowledge();
        }
    }

    /// Ends a source once the messages that have arrived are taken.
    pub fn end(&mut self, key: ChannelKey, now: Instant) {
        for input in self.ins.iter_mut().filter(|input| input.key == key) {
            input.ending_at = Some(now + END_LIMIT);
        }
    }

    /// Replaces the publisher, after a fault.
    pub fn replace_publisher(&mut self, publisher: SamplePublisher) {
        for input in &mut self.ins {
            input.sample = None;
        }
        self.setup.publisher = publisher;
        self.publisher_failed = false;
    }

    /// Replaces the notifier.
    pub fn set_notifier(&mut self, notifier: Option<EventNotifier>) {
        self.setup.backpressure.set_notifier(notifier);
    }

    /// Gives new subscribers the history.
    pub fn notice_subscribers(&self) {
        self.setup.publisher.meet_subscribers();
    }

    /// The channels' descriptors and doorbells.
    pub fn wait_for(&self) -> impl Iterator<Item = WaitFor> + '_ {
        self.ins.iter().map(|input| input.receiver.wait_for())
    }

    /// epoll reports one of the descriptors.
    pub fn set_ready(&mut self) {
        for input in &mut self.ins {
            input.ready = true;
        }
    }

    /// Takes messages that have arrived. `eager`: reads descriptors although epoll has reported
    /// none. Returns the number of messages taken.
    pub fn pump(&mut self, now: Instant, eager: bool, reports: &mut Vec<Report>, flow: FlowId) -> usize {
        let mut taken = 0;
        let had_failed = self.publisher_failed;
        for at in 0..self.ins.len() {
            let others_beyond = self.others_beyond(at);
            let input = &mut self.ins[at];
            let is_quiet = !input.ready && !eager && input.ending_at.is_none() && !input.waits;
            if is_quiet && matches!(input.receiver.wait_for(), WaitFor::Fd { .. }) {
                continue;
            }
            let beyond = input.beyond;
            let mut sink = FlowSink {
                setup: &self.setup,
                continuity: &input.continuity,
                keeps_all: input.keeps_all,
                sample: &mut input.sample,
                publisher_failed: &mut self.publisher_failed,
                others_beyond,
                waits: &mut input.waits,
                beyond: &mut input.beyond,
            };
            let result = input.receiver.poll(&mut sink, BUDGET);
            self.setup.backpressure.raise_events();
            let (moved, error) = match result {
                Ok(moved) => (moved, None),
                Err(error) => (0, Some(error)),
            };
            taken += moved;
            if input.acknowledges && moved > 0 {
                input.receiver.acknowledge();
            }
            // Another channel may wait for a message that this one does not carry any more.
            taken += usize::from(input.beyond > beyond);
            let copied = input.receiver.copied().unwrap_or(0);
            add(&self.setup.counters.received_copied, copied - input.copied);
            input.copied = copied;
            input.ready = moved == BUDGET;
            if moved > 0 || input.waits {
                input.ending_at = input.ending_at.map(|_| now + END_LIMIT);
            }
            let error = match error {
                None if input.ending_at.is_some_and(|at| now >= at) => Some(ChannelError::Closed),
                other => other,
            };
            if let Some(error) = error {
                input.sample = None;
                input.has_ended = true;
                let failure = (!matches!(error, ChannelError::Closed)).then(|| error.to_string());
                let key = input.key;
                reports.push(Report::ReceiverEnded { flow, key, failure });
            }
        }
        if self.publisher_failed && !had_failed {
            reports.push(Report::PublisherFailed { flow });
        }
        let channels = self.ins.len();
        self.ins.retain(|input| !input.has_ended);
        if self.ins.len() < channels {
            self.find_others();
            // Another channel may have waited for it.
            taken += 1;
        }
        taken
    }

    /// What to wait for while channels wait for another one: until that continues, a wake-up is
    /// useless.
    pub fn waiting(&self) -> impl Iterator<Item = WaitFor> + '_ {
        let waits = self.ins.iter().filter(|input| input.waits);
        waits.map(|input| input.receiver.wait_for())
    }
}

/// Gives messages loaned samples to land in, and sends those.
struct FlowSink<'a> {
    setup: &'a InboundSetup,
    continuity: &'a Continuity,
    keeps_all: bool,
    sample: &'a mut Option<LoanedSample>,
    publisher_failed: &'a mut bool,
    /// See [`must_wait`].
    others_beyond: Option<u64>,
    /// See [`In`].
    waits: &'a mut bool,
    /// See [`In`].
    beyond: &'a mut u64,
}

impl FlowSink<'_> {
    fn refuse(&self, counter: &AtomicU64, head: &Head) -> Verdict {
        add(counter, 1);
        // It is counted here, so its number must not be counted as a gap as well.
        self.continuity.advance(head);
        Verdict::Discard
    }

    /// The next messages come after the one that this head names, by whichever channel that comes.
    fn after(&mut self, head: &Head) -> Verdict {
        *self.beyond = head.sequence.max(*self.beyond);
        *self.waits = head.kind == Kind::After && must_wait(head, self.continuity, self.others_beyond);
        if *self.waits {
            Verdict::Later
        } else {
            Verdict::Discard
        }
    }
}

impl Sink for FlowSink<'_> {
    fn land(&mut self, head: &Head) -> Verdict {
        let counters = &self.setup.counters;
        if head.origin == self.setup.own_session {
            add(&counters.echoes, 1);
            return Verdict::Discard;
        }
        if matches!(head.kind, Kind::After | Kind::Beyond) {
            return self.after(head);
        }
        if head.kind == Kind::Notify {
            let is_bare = head.payload_bytes == 0 && head.user_header_bytes == 0;
            return if is_bare { Verdict::Land } else { Verdict::Discard };
        }
        if self.continuity.is_old(head) {
            // Of two channels that keep the latest, one may bring a message that the other has
            // overtaken: it was counted then.
            if self.keeps_all || self.others_beyond.is_none() {
                add(&counters.duplicates, 1);
            }
            return Verdict::Discard;
        }
        let shape = self.setup.publisher.shape();
        let elements = shape.elements(head.payload_bytes);
        let (Some(elements), true) = (elements, head.user_header_bytes == shape.user_header_bytes) else {
            return self.refuse(&counters.refused, head);
        };
        if *self.publisher_failed {
            return self.refuse(&counters.dropped_no_memory, head);
        }
        match self.setup.publisher.loan(elements) {
            Ok(sample) => *self.sample = Some(sample),
            Err(_) => return self.refuse(&counters.dropped_no_memory, head),
        }
        Verdict::Land
    }

    fn landing(&mut self) -> Landing<'_> {
        match self.sample {
            Some(sample) => {
                let (user_header, payload) = sample.parts();
                Landing { user_header, payload }
            }
            None => Landing {
                user_header: &mut [],
                payload: &mut [],
            },
        }
    }

    fn segment(&mut self) -> Option<SegmentId> {
        self.sample.as_ref().map(LoanedSample::segment)
    }

    fn deliver(&mut self, head: &Head) {
        let counters = &self.setup.counters;
        self.setup.backpressure.add_events(head.events);
        // Another channel from the same host may have brought a newer one meanwhile, and counted
        // this.
        let sample = self.sample.take().filter(|_| !self.continuity.is_old(head));
        if let Some(sample) = sample {
            let (missing, is_new_origin) = self.continuity.advance(head);
            let gap = if self.keeps_all {
                &counters.lost
            } else {
                &counters.overwritten
            };
            if missing > 0 {
                add(gap, missing);
            }
            if is_new_origin {
                add(&counters.origin_restarts, 1);
            }
            if faults::in_this_thread() {
                // The kernel had no memory behind the sample: the bytes written are lost.
                drop(sample);
                *self.publisher_failed = true;
                add(&counters.dropped_no_memory, 1);
            } else if sample.send().is_some() {
                let discarded = self.setup.backpressure.discarded.swap(0, Ordering::Relaxed);
                if discarded > 0 {
                    add(&counters.dropped_reader_full, discarded);
                }
                add(&counters.received, 1);
                add(&counters.received_bytes, head.payload_bytes);
            } else {
                add(&counters.dropped_no_memory, 1);
            }
        }
        if head.kind == Kind::Notify {
            self.setup.backpressure.raise_events();
        }
    }

    fn abandon(&mut self) {
        *self.sample = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(origin: u64, sequence: u64) -> Head {
        Head {
            sequence,
            origin,
            time_ns: 0,
            payload_bytes: 0,
            events: 0,
            user_header_bytes: 0,
            kind: Kind::Data,
        }
    }

    #[test]
    fn first_message_of_an_origin_is_no_gap() {
        let continuity = Continuity::default();
        assert_eq!(continuity.advance(&head(7, 100)), (0, false));
        assert_eq!(continuity.advance(&head(7, 101)), (0, false));
    }

    #[test]
    fn gap_is_counted_and_earlier_numbers_are_old() {
        let continuity = Continuity::default();
        continuity.advance(&head(7, 100));
        assert_eq!(continuity.advance(&head(7, 104)), (3, false));
        assert!(continuity.is_old(&head(7, 104)));
        assert!(continuity.is_old(&head(7, 1)));
        assert!(!continuity.is_old(&head(7, 105)));
        assert!(!continuity.is_old(&head(8, 1)));
    }

    #[test]
    fn new_gateway_at_the_origin_starts_a_new_count() {
        let continuity = Continuity::default();
        continuity.advance(&head(7, 100));
        assert_eq!(continuity.advance(&head(8, 1)), (0, true));
    }

    #[test]
    fn reset_starts_a_new_count() {
        let continuity = Continuity::default();
        continuity.advance(&head(7, 100));
        continuity.reset();
        assert_eq!(continuity.advance(&head(7, 500)), (0, false));
    }
}
