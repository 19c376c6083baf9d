//! The outbound half of a flow: samples of local programs, out to every host that wants them.
//!
//! Called by the lane that owns the flow; never blocks. What a full channel does with the next sample follows the rule of the
//! service ([`WhenFull`]); everything dropped is counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use busway_transport::{ChannelError, Company, Flushed, Head, Kind, Message, Refused, Sender, WaitFor};

use super::{ChannelKey, Ending, FlowId, Report, ReportKind};
use crate::counters::{ServiceCounters, add};
use crate::iox::companion::Ear;
use crate::iox::ports::{Copied, LocalSample, Outgoing, Outlet};

/// Samples taken in one go before the other flows of the lane get their turn.
const BUDGET: usize = 512;
/// Payload taken in one go, in bytes.
const BUDGET_BYTES: usize = 2 << 20;
/// iceoryx2 itself is asked for samples this often even though nothing seems to wait.
const LOOK: Duration = Duration::from_millis(200);
/// A sample's event is listened for this long at every turn, if the sample was faster.
const AWAIT_EVENT: Duration = Duration::from_millis(2);
/// How long a channel that ends may still drain what programs published before.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// What happens to a sample when the channel to a host is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits, and so, through the service's own buffer, does the publisher.
    Wait,
    /// The oldest sample that waits here is dropped.
    DropOldest,
    /// It is dropped.
    DropNewest,
}

/// What an outbound half is made of.
pub struct OutboundSetup {
    /// Our subscriber.
    pub outlet: Outlet,
    /// Samples kept for hosts that join late.
    pub history: usize,
    /// What a full channel does.
    pub when_full: WhenFull,
    /// The last number given to a sample of this service; outlives the outbound half, so that numbers never come twice.
    pub sequence: Arc<AtomicU64>,
    /// This gateway's session.
    pub origin: u64,
    /// Where to count.
    pub counters: Arc<ServiceCounters>,
}

struct Out {
    key: ChannelKey,
    sender: Box<dyn Sender<Outgoing>>,
    /// Refused by a full channel; goes first when there is room.
    pending: Option<Outgoing>,
    /// Something was accepted that the bus has not taken yet.
    waiting: bool,
    /// Something was given to the sender since the last flush.
    touched: bool,
    /// Set when the channel shall end once everything is sent, at the latest then.
    drain_until: Option<Instant>,
    failed: Option<ChannelError>,
    /// What the sender has counted of copies, see [`Sender::copied`].
    copied: u64,
}

/// See the module.
pub struct Outbound {
    setup: OutboundSetup,
    /// Hears the events that announce samples, where the service has a companion.
    ear: Option<Ear>,
    outs: Vec<Out>,
    /// The senders of all of them: what several are due may leave once.
    company: Company<Outgoing>,
    history: VecDeque<(Head, Arc<Copied>)>,
    /// Events heard that have not been sent on.
    events: u64,
    /// Whether samples went out since the last events did.
    unannounced: bool,
    /// epoll has said that the ear hears something.
    ear_ready: bool,
    /// The last link that wanted samples is lost: they are taken and counted, so that nobody waits for it. Without that, samples wait for
    /// the first channel.
    is_lost: bool,
    /// Publishers came or went, or a sample was left behind: iceoryx2 itself must be asked.
    must_look: bool,
    /// When it must be asked in any case.
    look_at: Instant,
    last_taken: Option<Instant>,
}

impl Outbound {
    /// Without destinations yet.
    pub fn new(setup: OutboundSetup) -> Outbound {
        let history = VecDeque::with_capacity(setup.history);
        Outbound {
            setup,
            ear: None,
            outs: Vec::new(),
            company: Company::default(),
            history,
            events: 0,
            unannounced: false,
            ear_ready: true,
            is_lost: false,
            must_look: true,
            look_at: Instant::now(),
            last_taken: None,
        }
    }

    /// Whether a companion event service wakes us, so that the outlet need not be polled often.
    pub fn is_woken(&self) -> bool {
        self.ear.is_some()
    }

    /// Replaces the ear (notifiers came or went).
    pub fn set_ear(&mut self, ear: Option<Ear>) {
        self.ear = ear;
    }

    /// The descriptor that becomes readable when an event is raised.
    pub fn ear_fd(&self) -> Option<std::os::fd::RawFd> {
        self.ear.as_ref().map(Ear::fd)
    }

    /// Adds a destination and gives it the history.
    pub fn add(&mut self, key: ChannelKey, mut sender: Box<dyn Sender<Outgoing>>) {
        sender.join(&mut self.company);
        let mut out = Out {
            key,
            sender,
            pending: None,
            waiting: false,
            touched: false,
            drain_until: None,
            failed: None,
            copied: 0,
        };
        for (head, copy) in &self.history {
            out.offer(
                Outgoing::copied(*head, copy.clone()),
                WhenFull::DropOldest,
                &self.setup.counters,
            );
        }
        self.outs.push(out);
        self.is_lost = false;
        self.must_look = true;
    }

    /// Ends a destination.
    pub fn end(&mut self, key: ChannelKey, ending: Ending, now: Instant) {
        // Also where the channel has failed already: the control thread expects its link back.
        self.is_lost |= ending == Ending::Lost;
        for out in self.outs.iter_mut().filter(|out| out.key == key) {
            match ending {
                Ending::Now => out.drain_until = Some(now),
                Ending::Drained => out.drain_until = Some(now + DRAIN_LIMIT),
                Ending::Lost | Ending::Replaced => out.failed = Some(ChannelError::Closed),
            }
        }
    }

    /// Whether any channel holds something back, or may have to send something again.
    pub fn is_blocked(&self) -> bool {
        self.outs.iter().any(Out::awaits_bus)
    }

    /// How to learn that such channels can go on.
    pub fn blocked(&self) -> impl Iterator<Item = WaitFor> + '_ {
        self.outs
            .iter()
            .filter(|out| out.awaits_bus())
            .map(|out| out.sender.wait_for())
    }

    /// epoll has said that the ear hears something.
    pub fn set_ready(&mut self) {
        self.ear_ready = true;
    }

    /// Publishers came or went.
    pub fn meet_publishers(&mut self) {
        self.must_look = true;
    }

    /// Takes samples from the local programs and sends them. Returns how many were taken.
    pub fn pump(&mut self, now: Instant, time_ns: u64, reports: &mut Vec<Report>, flow: FlowId) -> usize {
        let mut look = self.must_look || now >= self.look_at || self.setup.outlet.has_waiting();
        // What an event announces may be a publisher's first sample, which nothing else shows.
        look |= self.hear(look, now);
        for out in &mut self.outs {
            out.retry(&self.setup.counters);
        }
        // Before samples are taken: a channel that took the place of a failed one must not be counted for twice.
        self.remove_ended(now, false, reports, flow);
        let (taken, emptied) = if look {
            self.drain_outlet(time_ns)
        } else {
            (0, true)
        };
        if look {
            self.must_look = !emptied && !self.outs.is_empty();
            self.look_at = now + LOOK;
        }
        if taken > 0 {
            self.last_taken = Some(now);
        }
        if emptied {
            self.announce(time_ns);
        }
        for out in &mut self.outs {
            out.flush();
            let copied = out.sender.copied().unwrap_or(0);
            add(&self.setup.counters.sent_copied, copied - out.copied);
            out.copied = copied;
        }
        self.remove_ended(now, emptied, reports, flow);
        taken
    }

    /// Hears before samples are taken: whatever an event announced is then among them. Returns whether there are events.
    fn hear(&mut self, look: bool, now: Instant) -> bool {
        let Some(ear) = &self.ear else {
            return false;
        };
        let is_awaited = self.unannounced && self.last_taken.is_some_and(|taken| now - taken < AWAIT_EVENT);
        if self.ear_ready || look || is_awaited {
            self.events |= ear.hear();
            self.ear_ready = false;
        }
        self.events != 0
    }

    /// Returns the number of samples taken, and whether the outlet was left empty.
    fn drain_outlet(&mut self, time_ns: u64) -> (usize, bool) {
        let (mut taken, mut bytes) = (0, 0);
        if self.outs.is_empty() && !self.is_lost {
            return (0, false);
        }
        while taken < BUDGET && bytes < BUDGET_BYTES {
            if self.setup.when_full == WhenFull::Wait && self.outs.iter().any(|out| out.pending.is_some()) {
                return (taken, false);
            }
            let Some((sample, overflowed)) = self.setup.outlet.receive() else {
                return (taken, true);
            };
            if overflowed > 0 {
                // They get numbers, so that the far side misses them.
                self.setup.sequence.fetch_add(overflowed, Ordering::Relaxed);
                add(&self.setup.counters.overflowed, overflowed);
            }
            taken += 1;
            bytes += sample.payload().len();
            self.dispatch(sample, time_ns);
        }
        (taken, false)
    }

    fn dispatch(&mut self, sample: LocalSample, time_ns: u64) {
        // Relaxed: this lane is the only one that counts; the value is shared only over time.
        let sequence = self.setup.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let head = Head {
            sequence,
            origin: self.setup.origin,
            time_ns,
            payload_bytes: sample.payload().len() as u64,
            events: 0,
            user_header_bytes: sample.user_header().len() as u32,
            kind: Kind::Data,
        };
        if self.setup.history > 0 {
            if self.history.len() == self.setup.history {
                self.history.pop_front();
            }
            self.history.push_back((head, Arc::new(Copied::of(&sample))));
        }
        self.unannounced = true;
        let (counters, when_full) = (&self.setup.counters, self.setup.when_full);
        match self.outs.as_mut_slice() {
            [] => add(&counters.dropped_link_down, 1),
            [out] => out.offer(Outgoing::sample(head, sample), when_full, counters),
            outs => {
                let shared = Arc::new(sample);
                for out in outs {
                    out.offer(Outgoing::shared(head, shared.clone()), when_full, counters);
                }
            }
        }
    }

    /// Sends the events that announced samples, once all of those samples are on their way. Events without samples are the programs' own
    /// business at home and stay there.
    fn announce(&mut self, time_ns: u64) {
        if self.events == 0 || !self.unannounced {
            self.events = 0;
            return;
        }
        let head = Head {
            sequence: self.setup.sequence.load(Ordering::Relaxed), // see `dispatch`
            origin: self.setup.origin,
            time_ns,
            payload_bytes: 0,
            events: self.events,
            user_header_bytes: 0,
            kind: Kind::Notify,
        };
        self.events = 0;
        self.unannounced = false;
        for out in &mut self.outs {
            out.announce(head);
        }
    }

    fn remove_ended(&mut self, now: Instant, emptied: bool, reports: &mut Vec<Report>, flow: FlowId) {
        let is_ending = |out: &Out| out.failed.is_some() || out.drain_until.is_some();
        if !self.outs.iter().any(is_ending) {
            return;
        }
        let counters = &self.setup.counters;
        let has_failed = self.outs.iter().any(|out| out.failed.is_some());
        self.outs.retain_mut(|out| {
            let failed = out.failed.take();
            let idle = emptied && !out.waiting && out.pending.is_none();
            let ended = out.drain_until.is_some_and(|until| idle || now >= until);
            if failed.is_none() && !ended {
                return true;
            }
            if failed.is_some() {
                add(&counters.in_doubt, out.sender.outstanding());
            }
            if out.pending.take().is_some() {
                add(&counters.dropped_link_down, 1);
            }
            let reason = failed.map(|error| error.to_string());
            reports.push(Report {
                flow,
                key: out.key,
                kind: ReportKind::SenderEnded,
                reason,
            });
            false
        });
        // Until the control thread has decided, nobody shall wait for the channel that failed.
        self.is_lost |= has_failed && self.outs.is_empty();
    }
}

impl Out {
    /// Whether the bus has to do something before this side can go on, or can forget what it has sent.
    fn awaits_bus(&self) -> bool {
        self.waiting || self.pending.is_some() || self.sender.needs_flush()
    }

    fn offer(&mut self, message: Outgoing, when_full: WhenFull, counters: &ServiceCounters) {
        if self.failed.is_some() {
            add(&counters.dropped_link_down, 1);
            return;
        }
        if self.pending.is_some() {
            self.retry(counters);
        }
        if self.pending.is_some() {
            return self.keep(message, when_full, counters);
        }
        if let Some(message) = self.try_send(message, counters) {
            self.keep(message, when_full, counters);
        }
    }

    fn keep(&mut self, message: Outgoing, when_full: WhenFull, counters: &ServiceCounters) {
        match when_full {
            WhenFull::DropNewest => add(&counters.dropped_full, 1),
            WhenFull::Wait | WhenFull::DropOldest => {
                if self.pending.replace(message).is_some() {
                    add(&counters.dropped_full, 1);
                }
            }
        }
    }

    fn retry(&mut self, counters: &ServiceCounters) {
        if let Some(message) = self.pending.take() {
            self.pending = self.try_send(message, counters);
        }
    }

    /// Gives the message back if the channel is full.
    fn try_send(&mut self, message: Outgoing, counters: &ServiceCounters) -> Option<Outgoing> {
        let bytes = message.payload().len() as u64;
        self.touched = true;
        match self.sender.send(message) {
            Ok(()) => {
                add(&counters.sent, 1);
                add(&counters.sent_bytes, bytes);
            }
            Err(Refused::Full(message)) => return Some(message),
            Err(Refused::TooLong { .. }) => add(&counters.refused, 1),
            Err(Refused::Failed(_, error)) => {
                add(&counters.dropped_link_down, 1);
                self.failed = Some(error);
            }
        }
        None
    }

    fn announce(&mut self, mut head: Head) {
        if self.failed.is_some() {
            return;
        }
        // A sample that still waits takes the events along.
        if let Some(pending) = &mut self.pending {
            pending.head.events |= head.events;
            return;
        }
        head.sequence = head.sequence.max(1);
        self.touched = true;
        match self.sender.send(Outgoing::events(head)) {
            Ok(()) | Err(Refused::TooLong { .. }) => {}
            Err(Refused::Full(message)) => self.pending = Some(message),
            Err(Refused::Failed(_, error)) => self.failed = Some(error),
        }
    }

    fn flush(&mut self) {
        if self.failed.is_some() || !(self.touched || self.awaits_bus()) {
            return;
        }
        self.touched = false;
        match self.sender.flush() {
            Ok(flushed) => self.waiting = flushed == Flushed::Waiting,
            Err(error) => self.failed = Some(error),
        }
    }
}
