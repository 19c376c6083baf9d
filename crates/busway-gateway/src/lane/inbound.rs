//! The inbound half of a flow: messages of other hosts, to the local programs.
//!
//! Called by the lane that owns it. Messages land directly in loaned samples. Numbers tell what was lost and what came twice.
//!
//! A host may have two channels, one of them for what is large ([`super::out`]). Each keeps its own order; a head of [`Kind::After`] says that what follows it comes
//! after a message of the other one. It is kept waiting until that message has been delivered, or will not come any more: the other channel has ended, or has got
//! beyond it. Numbers that are waited for only ever go down from one channel's wait to the other's, so they can't wait for each other for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use busway_transport::{ChannelError, Head, Kind, Landing, Receiver, SegmentId, Sink, Verdict, WaitFor};

use super::{ChannelKey, FlowId, Report, ReportKind};
use crate::counters::{ServiceCounters, add};
use crate::faults;
use crate::iox::companion::Voice;
use crate::iox::ports::{Inlet, Patience, Place};

/// Messages taken from one channel before the others of the lane get their turn.
const BUDGET: usize = 256;

/// How long an ending channel that says nothing is listened to.
const END_LIMIT: Duration = Duration::from_millis(500);

/// What an inbound half is made of.
pub struct InboundSetup {
    /// Our publisher.
    pub inlet: Inlet,
    /// Keeps the publisher from waiting in vain; counts what full readers did not get.
    pub patience: Arc<Patience>,
    /// This gateway's session: what carries it is an echo.
    pub own_session: u64,
    /// Where to count.
    pub counters: Arc<ServiceCounters>,
}

/// Where the numbering of one service from one host stands. Outlives channels: after a reconnection it tells what was lost.
/// Written by the lane that has the channel, reset by the control thread while there is none; relaxed throughout, since the hand-over of the
/// channel itself (a message queue) orders both.
#[derive(Debug, Default)]
pub struct Continuity {
    /// Session of the origin's gateway; 0 for none.
    origin: AtomicU64,
    /// Its last message that came.
    last: AtomicU64,
}

impl Continuity {
    /// The next message begins anew: what came to pass before was not wanted.
    pub fn reset(&self) {
        self.origin.store(0, Ordering::Relaxed);
    }

    /// Whether the message of this number, or a later one, has come.
    pub(super) fn is_old(&self, head: &Head) -> bool {
        self.origin.load(Ordering::Relaxed) == head.origin
            && head.sequence <= self.last.load(Ordering::Relaxed)
    }

    /// Returns the number of messages that are missing before this one, and whether the origin's gateway is a new one.
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

/// Whether what follows this head of [`Kind::After`] must wait for the message that it names: that has not come, and may still do so by another channel from the same
/// host. `others_beyond`: messages up to this number do not come by all of them any more; `None` without another channel.
pub(super) fn must_wait(head: &Head, continuity: &Continuity, others_beyond: Option<u64>) -> bool {
    let may_come = others_beyond.is_some_and(|number| number < head.sequence);
    head.sequence != 0 && may_come && !continuity.is_old(head)
}

struct In {
    key: ChannelKey,
    receiver: Box<dyn Receiver>,
    continuity: Arc<Continuity>,
    /// Whether a gap is a loss, or what a channel that keeps the latest is for.
    keeps_all: bool,
    /// The message being received.
    place: Option<Place>,
    /// epoll has said that there is something; descriptors are not read without reason.
    ready: bool,
    /// The sender is gone: what has arrived is taken until the channel says that it has ended, at the latest until then (put off by
    /// each message that still comes).
    ending_at: Option<Instant>,
    /// The sender is about to end: it is told at once of all that was taken.
    confirms: bool,
    /// What the receiver has counted of copies, see [`Receiver::copied`].
    copied: u64,
    /// A head of [`Kind::After`] is kept waiting.
    waits: bool,
    /// The largest number that a head of [`Kind::After`] or [`Kind::Beyond`] has named: messages up to it do not come by this channel any more, since what follows comes after them.
    beyond: u64,
    /// Whether there is another channel from the same host.
    has_other: bool,
}

/// See the module.
pub struct Inbound {
    setup: InboundSetup,
    /// Raises the events that announced the samples at home, where the service has a companion here.
    voice: Option<Voice>,
    ins: Vec<In>,
    /// A fault has put private memory into our publisher's segment: nothing is sent until the inlet is replaced.
    spoilt: bool,
}

impl Inbound {
    /// Without sources yet.
    pub fn new(setup: InboundSetup) -> Inbound {
        Inbound {
            setup,
            voice: None,
            ins: Vec::new(),
            spoilt: false,
        }
    }

    /// Adds a source.
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
            place: None,
            ready: true,
            ending_at: None,
            confirms: false,
            copied: 0,
            waits: false,
            beyond: 0,
            has_other: false,
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

    /// Up to which number nothing comes by any of the other channels from the same host.
    fn others_beyond(&self, at: usize) -> Option<u64> {
        if !self.ins[at].has_other {
            return None;
        }
        self.others(at).map(|other| other.beyond).min()
    }

    /// From now on tells the sender of each message as soon as it is taken.
    pub fn confirm(&mut self, key: ChannelKey) {
        for input in self.ins.iter_mut().filter(|input| input.key == key) {
            input.confirms = true;
            input.receiver.confirm();
        }
    }

    /// Ends a source after what has arrived is taken.
    pub fn end(&mut self, key: ChannelKey, now: Instant) {
        for input in self.ins.iter_mut().filter(|input| input.key == key) {
            input.ending_at = Some(now + END_LIMIT);
        }
    }

    /// Replaces the publisher, after a fault.
    pub fn set_inlet(&mut self, inlet: Inlet) {
        for input in &mut self.ins {
            input.place = None;
        }
        self.setup.inlet = inlet;
        self.spoilt = false;
    }

    /// Replaces the voice (a companion came or went).
    pub fn set_voice(&mut self, voice: Option<Voice>) {
        self.voice = voice;
    }

    /// Gives subscribers that have just come the history.
    pub fn meet_subscribers(&self) {
        self.setup.inlet.meet_subscribers();
    }

    /// The channels' descriptors and doorbells.
    pub fn wait_for(&self) -> impl Iterator<Item = WaitFor> + '_ {
        self.ins.iter().map(|input| input.receiver.wait_for())
    }

    /// epoll has said that one of the descriptors is readable.
    pub fn set_ready(&mut self) {
        for input in &mut self.ins {
            input.ready = true;
        }
    }

    /// Takes what has arrived. `eager` reads descriptors even though epoll has said nothing. Returns the number of messages taken.
    pub fn pump(&mut self, now: Instant, eager: bool, reports: &mut Vec<Report>, flow: FlowId) -> usize {
        let mut taken = 0;
        let mut ended = false;
        let was_spoilt = self.spoilt;
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
                voice: self.voice.as_ref(),
                continuity: &input.continuity,
                keeps_all: input.keeps_all,
                place: &mut input.place,
                spoilt: &mut self.spoilt,
                others_beyond,
                waits: &mut input.waits,
                beyond: &mut input.beyond,
            };
            let result = input.receiver.poll(&mut sink, BUDGET);
            let (moved, error) = match result {
                Ok(moved) => (moved, None),
                Err(error) => (0, Some(error)),
            };
            taken += moved;
            if input.confirms && moved > 0 {
                input.receiver.confirm();
            }
            // Another one may go on that waits for what does not come by this one any more.
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
                input.place = None;
                let reason = (!matches!(error, ChannelError::Closed)).then(|| error.to_string());
                reports.push(Report {
                    flow,
                    key: input.key,
                    kind: ReportKind::ReceiverEnded,
                    reason,
                });
                ended = true;
            }
        }
        if self.spoilt && !was_spoilt {
            let key = ChannelKey {
                link: usize::MAX,
                channel: 0,
            };
            reports.push(Report {
                flow,
                key,
                kind: ReportKind::InletSpoilt,
                reason: None,
            });
        }
        if ended {
            self.ins.retain(|input| {
                !reports
                    .iter()
                    .any(|report| report.key == input.key && report.flow == flow)
            });
            self.find_others();
            // Another one may have waited for it.
            taken += 1;
        }
        taken
    }

    /// The descriptors of channels that are kept waiting by another one: what arrives there wakes nobody to any purpose.
    pub fn kept_waiting(&self) -> impl Iterator<Item = WaitFor> + '_ {
        let waits = self.ins.iter().filter(|input| input.waits);
        waits.map(|input| input.receiver.wait_for())
    }
}

/// Gives messages their place in loaned samples, and sends them.
struct FlowSink<'a> {
    setup: &'a InboundSetup,
    voice: Option<&'a Voice>,
    continuity: &'a Continuity,
    keeps_all: bool,
    place: &'a mut Option<Place>,
    spoilt: &'a mut bool,
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
        // Its number is used up: it is counted here and must not be counted as a gap as well.
        self.continuity.advance(head);
        Verdict::Discard
    }

    /// What follows comes after the message that this head names, by whatever channel that comes.
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
            // Of two channels that keep the latest, one may bring what the other has got beyond: counted when that came.
            if self.keeps_all || self.others_beyond.is_none() {
                add(&counters.duplicates, 1);
            }
            return Verdict::Discard;
        }
        let shape = self.setup.inlet.shape();
        let elements = shape.elements(head.payload_bytes);
        let (Some(elements), true) = (elements, head.user_header_bytes == shape.user_header_bytes) else {
            return self.refuse(&counters.refused, head);
        };
        if *self.spoilt {
            return self.refuse(&counters.dropped_no_memory, head);
        }
        match self.setup.inlet.loan(elements) {
            Ok(place) => *self.place = Some(place),
            Err(_) => return self.refuse(&counters.dropped_no_memory, head),
        }
        Verdict::Land
    }

    fn landing(&mut self) -> Landing<'_> {
        match self.place {
            Some(place) => {
                let (user_header, payload) = place.parts();
                Landing { user_header, payload }
            }
            None => Landing {
                user_header: &mut [],
                payload: &mut [],
            },
        }
    }

    fn segment(&mut self) -> Option<SegmentId> {
        self.place.as_ref().map(Place::segment)
    }

    fn deliver(&mut self, head: &Head) {
        let counters = &self.setup.counters;
        // While it was landing another channel from the same host may have brought a newer one, with which it was counted.
        let place = self.place.take().filter(|_| !self.continuity.is_old(head));
        if let Some(place) = place {
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
                // The kernel had no memory behind the sample: what was written is nowhere.
                drop(place);
                *self.spoilt = true;
                add(&counters.dropped_no_memory, 1);
            } else if place.send().is_some() {
                let discarded = self.setup.patience.discarded.swap(0, Ordering::Relaxed);
                if discarded > 0 {
                    add(&counters.dropped_reader_full, discarded);
                }
                add(&counters.received, 1);
                add(&counters.received_bytes, head.payload_bytes);
            } else {
                add(&counters.dropped_no_memory, 1);
            }
        }
        if head.events != 0
            && let Some(voice) = self.voice
        {
            voice.raise(head.events);
        }
    }

    fn abandon(&mut self) {
        *self.place = None;
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
    fn the_first_message_of_an_origin_is_no_gap() {
        let continuity = Continuity::default();
        assert_eq!(continuity.advance(&head(7, 100)), (0, false));
        assert_eq!(continuity.advance(&head(7, 101)), (0, false));
    }

    #[test]
    fn what_is_missing_is_counted_and_what_came_before_is_old() {
        let continuity = Continuity::default();
        continuity.advance(&head(7, 100));
        assert_eq!(continuity.advance(&head(7, 104)), (3, false));
        assert!(continuity.is_old(&head(7, 104)));
        assert!(continuity.is_old(&head(7, 1)));
        assert!(!continuity.is_old(&head(7, 105)));
        assert!(!continuity.is_old(&head(8, 1)));
    }

    #[test]
    fn a_new_gateway_at_the_origin_begins_anew_and_is_noticed() {
        let continuity = Continuity::default();
        continuity.advance(&head(7, 100));
        assert_eq!(continuity.advance(&head(8, 1)), (0, true));
    }

    #[test]
    fn after_a_reset_nothing_is_missing() {
        let continuity = Continuity::default();
        continuity.advance(&head(7, 100));
        continuity.reset();
        assert_eq!(continuity.advance(&head(7, 500)), (0, false));
    }
}
