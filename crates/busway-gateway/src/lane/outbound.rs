//! The outbound half of a flow: samples of local programs, out to every host that wants them.
//!
//! Called by the lane that owns the flow; never blocks. What a full channel does with the next sample follows the rule of the
//! service ([`WhenFull`]); everything dropped is counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use busway_transport::{Company, Head, Kind, Sender, WaitFor};

use super::out::{LargeOut, Out};
use super::{ChannelKey, Ending, FlowId, Report, ReportKind};
use crate::counters::{ServiceCounters, add};
use crate::iox::companion::Ear;
use crate::iox::ports::{Copied, LocalSample, Outgoing, Outlet, TooManyHeld};

/// Samples taken in one go before the other flows of the lane get their turn.
const BUDGET: usize = 512;
/// Payload taken in one go, in bytes.
const BUDGET_BYTES: usize = 2 << 20;
/// iceoryx2 itself is asked for samples this often even though nothing seems to wait.
const LOOK: Duration = Duration::from_millis(200);
/// A sample's event is listened for this long at every turn, if the sample was faster.
const AWAIT_EVENT: Duration = Duration::from_millis(2);
/// Where publishers wait for readers, samples for all hosts wait so long at most for the channel that follows one that has moved.
const MOVE_LIMIT: Duration = Duration::from_secs(2);

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
    /// Set while a host's channel moves and publishers wait: samples are taken again once it has its next channel, or then.
    moves_until: Option<Instant>,
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
            moves_until: None,
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

    /// Adds a destination and gives it the history. `may_join`: every message takes this channel, so that what several hosts are due may leave once.
    pub fn add(&mut self, key: ChannelKey, sender: Box<dyn Sender<Outgoing>>, may_join: bool) {
        let mut out = Out::new(key, sender);
        if may_join {
            out.join(&mut self.company);
        }
        for (head, copy) in &self.history {
            out.offer(
                Outgoing::copied(*head, copy.clone()),
                WhenFull::DropOldest,
                &self.setup.counters,
            );
        }
        self.outs.push(out);
        self.is_lost = false;
        self.moves_until = None;
        self.must_look = true;
    }

    /// Adds a channel for what is large to the destination whose main channel this is. Where that is gone meanwhile, the new one has ended.
    pub fn add_large(&mut self, main: ChannelKey, large: LargeOut, reports: &mut Vec<Report>, flow: FlowId) {
        let like = self.bare_head(Kind::After, 0);
        match self.outs.iter_mut().find(|out| out.key() == main) {
            Some(out) => out.add_large(large, &like),
            None => reports.push(Report {
                flow,
                key: large.key,
                kind: ReportKind::SenderEnded { unconfirmed: 0 },
                reason: None,
            }),
        }
    }

    /// Ends a destination, or its channel for what is large.
    pub fn end(&mut self, key: ChannelKey, ending: Ending, now: Instant) {
        // Also where the channel has failed already: the control thread expects its link back.
        self.is_lost |= ending == Ending::Lost;
        for out in &mut self.outs {
            out.end(key, ending, self.setup.when_full, now);
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
            .flat_map(Out::wait_for)
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
            self.drain_outlet(now, time_ns)
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
            out.flush(&self.setup.counters);
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
    fn drain_outlet(&mut self, now: Instant, time_ns: u64) -> (usize, bool) {
        let (mut taken, mut bytes) = (0, 0);
        let awaits_channel = if self.outs.is_empty() {
            !self.is_lost
        } else {
            self.moves_until.is_some_and(|until| now < until) || self.outs.iter().any(Out::is_moving)
        };
        if awaits_channel {
            return (0, false);
        }
        while taken < BUDGET && bytes < BUDGET_BYTES {
            if self.setup.when_full == WhenFull::Wait && self.outs.iter().any(Out::has_pending) {
                return (taken, false);
            }
            let (sample, overflowed) = match self.setup.outlet.receive() {
                Ok(Some(received)) => received,
                Ok(None) => return (taken, true),
                Err(TooManyHeld) => return (taken, false),
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
            events: self.events,
            ..self.bare_head(Kind::Notify, time_ns)
        };
        self.events = 0;
        self.unannounced = false;
        for out in &mut self.outs {
            out.announce(head);
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
        if !self.outs.iter().any(Out::is_ending) {
            return;
        }
        let counters = &self.setup.counters;
        let has_failed = self.outs.iter().any(Out::has_failed);
        let moves_until = &mut self.moves_until;
        self.outs.retain_mut(|out| {
            let has_moved = out.is_moving() && !out.has_failed();
            let is_gone = out.remove_ended(now, emptied, counters, |ended| {
                reports.push(Report {
                    flow,
                    key: ended.key,
                    kind: ReportKind::SenderEnded {
                        unconfirmed: ended.unconfirmed,
                    },
                    reason: ended.reason,
                });
            });
            if is_gone && has_moved {
                *moves_until = Some(now + MOVE_LIMIT);
            }
            !is_gone
        });
        // Until the control thread has decided, nobody shall wait for the channel that failed.
        self.is_lost |= has_failed && self.outs.is_empty();
    }
}
