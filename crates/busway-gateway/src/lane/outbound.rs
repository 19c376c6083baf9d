//! The outbound half of a service: samples of local programs, to every host that wants them.
//!
//! Called by the lane that owns the flow; never blocks. [`WhenFull`] decides what a full channel
//! does with the next sample; everything dropped is counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use busway_transport::{Head, Kind, Sender, SenderGroup, WaitFor};

use super::destination::{Destination, LargeSender};
use super::interface::{ChannelKey, Ending, FlowId, Report, WhenFull};
use crate::counters::{ServiceCounters, add};
use crate::iox::events::EventListener;
use crate::iox::sample::{CopiedSample, LocalSample, Outgoing};
use crate::iox::subscriber::{SampleSubscriber, TooManyHeld};

/// Most samples taken before the other flows of the lane get their turn.
const BUDGET: usize = 512;
/// About the most payload in bytes taken before the other flows get their turn.
const BUDGET_BYTES: usize = 2 << 20;
/// iceoryx2 itself is asked for samples this often although none seems to wait.
const LOOK: Duration = Duration::from_millis(200);
/// If a sample came before its event, every turn listens for the event for this long.
const AWAIT_EVENT: Duration = Duration::from_millis(2);
/// Where publishers wait for readers, samples for all hosts wait at most this long for the channel
/// that follows one that has moved.
const MOVE_LIMIT: Duration = Duration::from_secs(2);

/// The parts of an outbound half.
pub struct OutboundSetup {
    pub subscriber: SampleSubscriber,
    /// Samples kept for hosts that join late.
    pub history: usize,
    /// What a full channel does.
    pub when_full: WhenFull,
    /// The last number given to a sample of this service; outlives the outbound half, so that
    /// numbers never come twice.
    pub sequence: Arc<AtomicU64>,
    pub origin: u64,
    pub counters: Arc<ServiceCounters>,
}

pub struct Outbound {
    setup: OutboundSetup,
    /// Receives the events that announce samples, if the service has a companion.
    listener: Option<EventListener>,
    destinations: Vec<Destination>,
    /// The senders of all of them: a bus may send one message to several hosts at once.
    group: SenderGroup,
    history: VecDeque<(Head, Arc<CopiedSample>)>,
    /// Events received that have not been sent on.
    events: u64,
    /// Whether samples went out since the last events did.
    unannounced: bool,
    /// epoll reports the listener.
    listener_ready: bool,
    /// The last link that wanted samples is lost: samples are taken and counted, so that no
    /// publisher waits for it. Before the first channel, samples wait.
    is_lost: bool,
    /// Set while a host's channel moves and publishers wait: samples are taken again once the host
    /// has its next channel, at the latest then.
    moves_until: Option<Instant>,
    /// Publishers came or went, or a sample was left: iceoryx2 itself must be asked.
    must_look: bool,
    /// Publishers may have come whose first sample only iceoryx2 would show.
    must_meet: bool,
    /// A sample was left since the bus still needs as many as a subscriber may hold.
    holds_too_many: bool,
    /// When it must be asked in any case.
    look_at: Instant,
    last_taken: Option<Instant>,
}

impl Outbound {
    pub fn new(setup: OutboundSetup) -> Outbound {
        let history = VecDeque::with_capacity(setup.history);
        Outbound {
            setup,
            listener: None,
            destinations: Vec::new(),
            group: SenderGroup::default(),
            history,
            events: 0,
            unannounced: false,
            listener_ready: true,
            is_lost: false,
            moves_until: None,
            must_look: true,
            must_meet: true,
            holds_too_many: false,
            look_at: Instant::now(),
            last_taken: None,
        }
    }

    /// Whether a companion event service wakes the lane, so that the subscriber need not be polled
    /// often.
    pub fn is_woken(&self) -> bool {
        self.listener.is_some()
    }

    /// Replaces the listener.
    pub fn set_listener(&mut self, listener: Option<EventListener>) {
        self.listener = listener;
    }

    /// The descriptor that becomes readable when an event is raised.
    pub fn listener_fd(&self) -> Option<std::os::fd::RawFd> {
        self.listener.as_ref().map(EventListener::fd)
    }

    /// Adds a destination and sends it the history. `may_join`: every message takes this channel,
    /// so that a bus may send one message to several hosts at once.
    pub fn add(&mut self, key: ChannelKey, sender: Box<dyn Sender<Outgoing>>, may_join: bool) {
        let mut destination = Destination::new(key, sender);
        if may_join {
            destination.join(&mut self.group);
        }
        for (head, copy) in &self.history {
            destination.offer(
                Outgoing::copied(*head, copy.clone()),
                WhenFull::DropOldest,
                &self.setup.counters,
            );
        }
        self.destinations.push(destination);
        self.is_lost = false;
        self.moves_until = None;
        self.notice_publishers();
    }

    /// Adds a channel for large messages to the destination with this main channel. If that is gone
    /// meanwhile, the new channel ends.
    pub fn add_large(
        &mut self,
        main: ChannelKey,
        large: LargeSender,
        reports: &mut Vec<Report>,
        flow: FlowId,
    ) {
        let like = self.bare_head(Kind::After, 0);
        match self
            .destinations
            .iter_mut()
            .find(|destination| destination.key() == main)
        {
            Some(destination) => destination.add_large(large, &like),
            None => reports.push(Report::SenderEnded {
                flow,
                key: large.key,
                unacknowledged: 0,
                failure: None,
            }),
        }
    }

    /// Ends a destination, or its channel for large messages.
    pub fn end(&mut self, key: ChannelKey, ending: Ending, now: Instant) {
        // Also where the channel has failed already: the control thread expects its link back.
        self.is_lost |= ending == Ending::Lost;
        for destination in &mut self.destinations {
            destination.end(key, ending, self.setup.when_full, now);
        }
    }

    /// Whether messages wait for room in a channel, or may have to be sent again.
    pub fn is_blocked(&self) -> bool {
        self.destinations.iter().any(Destination::awaits_bus)
    }

    /// What to wait for until such channels can continue.
    pub fn blocked(&self) -> impl Iterator<Item = WaitFor> + '_ {
        self.destinations
            .iter()
            .filter(|destination| destination.awaits_bus())
            .flat_map(Destination::wait_for)
    }

    /// epoll reports the listener.
    pub fn set_ready(&mut self) {
        self.listener_ready = true;
    }

    /// Publishers came or went.
    pub fn notice_publishers(&mut self) {
        (self.must_look, self.must_meet) = (true, true);
    }

    /// Takes samples from the local programs and sends them. Returns how many were taken, or sent
    /// after they had waited for room.
    pub fn pump(&mut self, now: Instant, time_ns: u64, reports: &mut Vec<Report>, flow: FlowId) -> usize {
        let mut look = self.must_look || now >= self.look_at || self.setup.subscriber.has_waiting();
        // What an event announces may be a publisher's first sample, which nothing else shows.
        look |= self.take_events(look, now);
        for destination in &mut self.destinations {
            destination.retry(&self.setup.counters);
        }
        // Before samples are taken: while a failed channel and its successor are both here, a
        // sample would be counted twice.
        self.remove_ended(now, false, reports, flow);
        let (taken, emptied) = if look {
            self.take_samples(now, time_ns)
        } else {
            (0, true)
        };
        if look && emptied && std::mem::take(&mut self.must_meet) {
            self.setup.subscriber.meet_publishers();
        }
        if look {
            self.must_look = !emptied && !self.destinations.is_empty();
            self.look_at = now + LOOK;
        }
        if taken > 0 {
            self.last_taken = Some(now);
        }
        if emptied || taken > 0 {
            self.announce(emptied, time_ns);
        }
        for destination in &mut self.destinations {
            destination.flush(&self.setup.counters);
        }
        self.remove_ended(now, emptied, reports, flow);
        taken + self.use_room(now, time_ns)
    }

    /// The flush reads what the readers have taken. That makes room, and wakes the lane no more:
    /// continues with what has waited for it. Returns the number of messages.
    fn use_room(&mut self, now: Instant, time_ns: u64) -> usize {
        let mut moved = 0;
        for destination in &mut self.destinations {
            moved += usize::from(destination.retry(&self.setup.counters));
        }
        if self.holds_too_many {
            moved += self.take_samples(now, time_ns).0;
        }
        moved
    }

    /// Takes events before samples: a sample that an event announces is then among those taken.
    /// Returns whether there are events.
    fn take_events(&mut self, look: bool, now: Instant) -> bool {
        let Some(listener) = &self.listener else {
            return false;
        };
        let is_awaited = self.unannounced && self.last_taken.is_some_and(|taken| now - taken < AWAIT_EVENT);
        if self.listener_ready || look || is_awaited {
            self.events |= listener.take_events();
            self.listener_ready = false;
        }
        self.events != 0
    }

    /// Returns the number of samples taken, and whether the subscriber was left empty.
    fn take_samples(&mut self, now: Instant, time_ns: u64) -> (usize, bool) {
        let (mut taken, mut bytes) = (0, 0);
        self.holds_too_many = false;
        let awaits_channel = if self.destinations.is_empty() {
            !self.is_lost
        } else {
            self.moves_until.is_some_and(|until| now < until)
                || self.destinations.iter().any(Destination::is_moving)
        };
        if awaits_channel {
            return (0, false);
        }
        while taken < BUDGET && bytes < BUDGET_BYTES {
            if self.setup.when_full == WhenFull::Wait
                && self.destinations.iter().any(Destination::has_pending)
            {
                return (taken, false);
            }
            let (sample, overflowed) = match self.setup.subscriber.receive() {
                Ok(Some(received)) => received,
                Ok(None) => return (taken, true),
                Err(TooManyHeld) => {
                    self.holds_too_many = true;
                    return (taken, false);
                }
            };
            if overflowed > 0 {
                // They get numbers, so that receivers see a gap.
                self.setup.sequence.fetch_add(overflowed, Ordering::Relaxed);
                add(&self.setup.counters.overflowed, overflowed);
            }
            taken += 1;
            bytes += sample.payload().len();
            let events = self.earlier_events();
            self.dispatch(sample, events, time_ns);
        }
        (taken, false)
    }

    /// Where publishers wait for readers: the events raised before the sample that was just taken.
    /// It takes them along if samples before it are not announced yet. A reader that sleeps until
    /// an event has room only after these, so they must not come behind a message that waits for
    /// room. They are sent once more when all samples are.
    fn earlier_events(&mut self) -> u64 {
        let Some(listener) = &self.listener else {
            return 0;
        };
        if !self.unannounced || self.setup.when_full != WhenFull::Wait {
            return 0;
        }
        self.events |= listener.take_events();
        self.events
    }

    fn dispatch(&mut self, sample: LocalSample, events: u64, time_ns: u64) {
        // Relaxed: this lane is the only one that counts; the value is shared only over time.
        let sequence = self.setup.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let head = Head {
            sequence,
            origin: self.setup.origin,
            time_ns,
            payload_bytes: sample.payload().len() as u64,
            events,
            user_header_bytes: sample.user_header().len() as u32,
            kind: Kind::Data,
        };
        if self.setup.history > 0 {
            if self.history.len() == self.setup.history {
                self.history.pop_front();
            }
            let kept = Head { events: 0, ..head };
            self.history
                .push_back((kept, Arc::new(CopiedSample::of(&sample))));
        }
        self.unannounced = true;
        let (counters, when_full) = (&self.setup.counters, self.setup.when_full);
        match self.destinations.as_mut_slice() {
            [] => add(&counters.dropped_link_down, 1),
            [only] => only.offer(Outgoing::sample(head, sample), when_full, counters),
            several => {
                let shared = Arc::new(sample);
                for destination in several {
                    destination.offer(Outgoing::shared(head, shared.clone()), when_full, counters);
                }
            }
        }
    }

    /// Sends the events that announced samples. Events without samples stay on this host.
    ///
    /// While samples are left, the events are sent at the end of each turn, since a publisher may
    /// never leave the subscriber empty, and once more after the last sample, since it may be those
    /// that they announced. Where publishers wait, samples carry them: see
    /// [`earlier_events`](Self::earlier_events).
    fn announce(&mut self, emptied: bool, time_ns: u64) {
        let samples_carry_them = !emptied && self.setup.when_full == WhenFull::Wait;
        if self.events != 0 && self.unannounced && !samples_carry_them {
            let head = Head {
                events: self.events,
                ..self.bare_head(Kind::Notify, time_ns)
            };
            for destination in &mut self.destinations {
                destination.announce(head);
            }
            self.unannounced = !emptied;
        }
        if emptied {
            self.events = 0;
        }
    }

    /// A head without a message, with the number of the last one.
    fn bare_head(&self, kind: Kind, time_ns: u64) -> Head {
        Head {
            sequence: self.setup.sequence.load(Ordering::Relaxed), // see `dispatch`
            origin: self.setup.origin,
            time_ns,
            payload_bytes: 0,
            events: 0,
            user_header_bytes: 0,
            kind,
        }
    }

    fn remove_ended(&mut self, now: Instant, emptied: bool, reports: &mut Vec<Report>, flow: FlowId) {
        if !self.destinations.iter().any(Destination::is_ending) {
            return;
        }
        let counters = &self.setup.counters;
        let has_failed = self.destinations.iter().any(Destination::has_failed);
        let moves_until = &mut self.moves_until;
        self.destinations.retain_mut(|destination| {
            let has_moved = destination.is_moving() && !destination.has_failed();
            let is_gone = destination.remove_ended(now, emptied, counters, |ended| {
                reports.push(Report::SenderEnded {
                    flow,
                    key: ended.key,
                    unacknowledged: ended.unacknowledged,
                    failure: ended.failure,
                });
            });
            if is_gone && has_moved {
                *moves_until = Some(now + MOVE_LIMIT);
            }
            !is_gone
        });
        // Until the control thread decides, no publisher shall wait for the channel that failed.
        self.is_lost |= has_failed && self.destinations.is_empty();
    }
}
