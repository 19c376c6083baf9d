//! One destination of a flow: the channels to one host, and what waits for room in them.
//!
//! Most hosts have one channel. Where the link names other buses for what is large there may be a second one, and each message takes one of the two by its
//! length. A channel keeps its own order; for the order across both, a head of [`Kind::After`] goes first where the messages change over from one channel to the
//! other: it names the last message that went by the other, and the receiver waits for that ([`super::inbound`]). A second channel begins with a head of [`Kind::Beyond`]: what
//! the receiver may still wait for of an earlier one, that was lost, does not come by this one. Called by [`super::outbound`].

#![expect(
    clippy::result_large_err,
    reason = "a refused message comes back whole, as `Sender::send` gives it"
)]

use std::time::{Duration, Instant};

use busway_transport::{ChannelError, Company, Flushed, Head, Kind, Message, Refused, Sender, WaitFor};

use super::outbound::WhenFull;
use super::{ChannelKey, Ending};
use crate::counters::{ServiceCounters, add};
use crate::iox::ports::Outgoing;

/// A second channel to a host, for what is large.
pub struct LargeOut {
    /// Names it.
    pub key: ChannelKey,
    /// Payload in bytes from which on a message takes it.
    pub from_bytes: u64,
    /// Whether the order is kept across both channels. A service that keeps the latest does without: the newest number wins, whichever way it came.
    pub in_order: bool,
    /// Its end.
    pub sender: Box<dyn Sender<Outgoing>>,
}

/// How long a channel that ends may still drain, where publishers do not wait for readers.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// A reader that takes no message for so long is waited for no longer once the bus has everything.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// A channel that is given up.
pub(super) struct Ended {
    pub(super) key: ChannelKey,
    /// Why, if it has failed.
    pub(super) reason: Option<String>,
    /// See [`ReportKind::SenderEnded`](super::ReportKind::SenderEnded).
    pub(super) unconfirmed: u64,
}

/// One channel.
struct Leg {
    key: ChannelKey,
    sender: Box<dyn Sender<Outgoing>>,
    /// Number of the last message that it has accepted; 0 for none.
    last: u64,
    /// Something was accepted that the bus has not taken yet.
    waiting: bool,
    /// Something was given to the sender since the last flush.
    touched: bool,
    /// Set when it shall end once everything is sent.
    drain: Option<Drain>,
    failed: Option<ChannelError>,
    /// What the sender has counted of copies, see [`Sender::copied`].
    copied: u64,
}

/// How a channel ends that is to send what it has.
#[derive(Clone, Copy)]
struct Drain {
    /// At the latest then. `None` where publishers wait for readers, as long as those take: until all is confirmed.
    until: Option<Instant>,
    /// What programs publish does not go by it any more.
    is_move: bool,
    /// Messages that were not confirmed when that was last asked, and since when so many.
    unconfirmed: u64,
    since: Instant,
}

/// The large channel of a destination.
struct Large {
    leg: Leg,
    from_bytes: u64,
    in_order: bool,
}

/// See the module.
pub(super) struct Out {
    main: Leg,
    large: Option<Large>,
    /// Number of the last message that took a large channel, this or an earlier one; 0 for none.
    last_large: u64,
    /// Set while the last message took the large channel and the next one is to follow it by the main one: that last one's number.
    follows_large: Option<u64>,
    /// Refused by a full channel; goes first when there is room.
    pending: Option<Outgoing>,
}

impl Leg {
    fn new(key: ChannelKey, sender: Box<dyn Sender<Outgoing>>) -> Leg {
        Leg {
            key,
            sender,
            last: 0,
            waiting: false,
            touched: false,
            drain: None,
            failed: None,
            copied: 0,
        }
    }

    fn is_ending(&self) -> bool {
        self.failed.is_some() || self.drain.is_some()
    }

    fn awaits_bus(&self) -> bool {
        // One that ends waits for confirmations.
        self.waiting || self.sender.needs_flush() || self.drain.is_some()
    }

    fn send(&mut self, message: Outgoing) -> Result<(), Refused<Outgoing>> {
        let head = *message.head();
        self.touched = true;
        self.sender.send(message)?;
        if head.kind == Kind::Data {
            self.last = head.sequence;
        }
        Ok(())
    }

    /// Says something of the message of this number. `like` has the origin, and the time.
    fn mark(&mut self, kind: Kind, sequence: u64, like: &Head) -> Result<(), Refused<Outgoing>> {
        self.send(Outgoing::events(Head {
            sequence,
            payload_bytes: 0,
            events: 0,
            user_header_bytes: 0,
            kind,
            ..*like
        }))
    }

    fn flush(&mut self, has_pending: bool) {
        if self.failed.is_some() || !(self.touched || self.awaits_bus() || has_pending) {
            return;
        }
        self.touched = false;
        match self.sender.flush() {
            Ok(flushed) => self.waiting = flushed == Flushed::Waiting,
            Err(error) => self.failed = Some(error),
        }
    }

    fn end(&mut self, ending: Ending, when_full: WhenFull, now: Instant) {
        let waits = when_full == WhenFull::Wait;
        let (until, is_move) = match ending {
            Ending::Now => (Some(now), false),
            Ending::Drained | Ending::Moved if !waits => (Some(now + DRAIN_LIMIT), false),
            Ending::Drained => (None, false),
            Ending::Moved => (None, true),
            Ending::Lost | Ending::Replaced => {
                self.failed = Some(ChannelError::Closed);
                return;
            }
        };
        self.drain = Some(Drain {
            until,
            is_move,
            unconfirmed: 0,
            since: now,
        });
    }

    /// Whether nothing is left to wait for of a channel that has handed everything to its bus.
    fn is_settled(&mut self, now: Instant) -> bool {
        let unconfirmed = self.sender.outstanding();
        let Some(drain) = &mut self.drain else {
            return false;
        };
        if unconfirmed != drain.unconfirmed {
            (drain.unconfirmed, drain.since) = (unconfirmed, now);
        }
        // A bus that loses things may have to send some again; the others have them.
        let has_all = !self.sender.needs_flush() && now - drain.since >= SILENCE_LIMIT;
        unconfirmed == 0 || has_all
    }

    /// Whether what it is to carry before it ends is all there.
    fn is_moving(&self) -> bool {
        self.drain.is_some_and(|drain| drain.is_move)
    }

    /// Whether it is to be given up now, where `idle` says that nothing waits for it. Counts what is in doubt.
    fn has_ended(&mut self, now: Instant, idle: bool, counters: &ServiceCounters) -> Option<Ended> {
        let ended = self.drain.is_some_and(|drain| match drain.until {
            Some(until) => idle || now >= until,
            None => idle && self.is_settled(now),
        });
        let failed = self.failed.take();
        if failed.is_none() && !ended {
            return None;
        }
        let mut unconfirmed = self.sender.outstanding();
        if failed.is_some() {
            add(&counters.in_doubt, std::mem::take(&mut unconfirmed));
        }
        Some(Ended {
            key: self.key,
            reason: failed.map(|error| error.to_string()),
            unconfirmed,
        })
    }

    fn count_copied(&mut self, counters: &ServiceCounters) {
        let copied = self.sender.copied().unwrap_or(0);
        add(&counters.sent_copied, copied - self.copied);
        self.copied = copied;
    }
}

impl Out {
    pub(super) fn new(key: ChannelKey, sender: Box<dyn Sender<Outgoing>>) -> Out {
        Out {
            main: Leg::new(key, sender),
            large: None,
            last_large: 0,
            follows_large: None,
            pending: None,
        }
    }

    /// What it is due may leave together with what the others of the company are due.
    pub(super) fn join(&mut self, company: &mut Company<Outgoing>) {
        self.main.sender.join(company);
    }

    /// The main channel.
    pub(super) fn key(&self) -> ChannelKey {
        self.main.key
    }

    /// From now on what is large takes this channel. `like` is a head of this service, of which origin and time are used.
    pub(super) fn add_large(&mut self, large: LargeOut, like: &Head) {
        let mut leg = Leg::new(large.key, large.sender);
        let number = self.main.last.max(self.last_large);
        if large.in_order && leg.mark(Kind::Beyond, number, like).is_err() {
            leg.failed = Some(ChannelError::Corrupt("a new channel took nothing"));
        }
        self.large = Some(Large {
            leg,
            from_bytes: large.from_bytes,
            in_order: large.in_order,
        });
    }

    /// Ends the channel of this name, if it is one of its own.
    pub(super) fn end(&mut self, key: ChannelKey, ending: Ending, when_full: WhenFull, now: Instant) {
        for leg in self.legs_mut().filter(|leg| leg.key == key) {
            leg.end(ending, when_full, now);
        }
    }

    /// Whether its main channel takes no more, since another one is to follow.
    pub(super) fn is_moving(&self) -> bool {
        self.main.is_moving()
    }

    fn legs(&self) -> impl Iterator<Item = &Leg> {
        std::iter::once(&self.main).chain(self.large.as_ref().map(|large| &large.leg))
    }

    fn legs_mut(&mut self) -> impl Iterator<Item = &mut Leg> {
        std::iter::once(&mut self.main).chain(self.large.as_mut().map(|large| &mut large.leg))
    }

    /// Whether one of its channels is about to end.
    pub(super) fn is_ending(&self) -> bool {
        self.legs().any(Leg::is_ending)
    }

    /// Whether its main channel has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.main.failed.is_some()
    }

    /// Whether a message waits here for room.
    pub(super) fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether the bus has to do something before this side can go on, or can forget what it has sent.
    pub(super) fn awaits_bus(&self) -> bool {
        self.pending.is_some() || self.legs().any(Leg::awaits_bus)
    }

    /// How to learn that it can go on.
    pub(super) fn wait_for(&self) -> impl Iterator<Item = WaitFor> + '_ {
        self.legs().map(|leg| leg.sender.wait_for())
    }

    /// Sends a message; what a full channel does with it follows the rule.
    pub(super) fn offer(&mut self, message: Outgoing, when_full: WhenFull, counters: &ServiceCounters) {
        if self.main.failed.is_some() {
            add(&counters.dropped_link_down, 1);
            return;
        }
        self.retry(counters);
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

    /// Sends what waits here, if there is room now.
    pub(super) fn retry(&mut self, counters: &ServiceCounters) {
        if let Some(message) = self.pending.take() {
            self.pending = self.try_send(message, counters);
        }
    }

    /// Gives the message back if the channel is full.
    fn try_send(&mut self, message: Outgoing, counters: &ServiceCounters) -> Option<Outgoing> {
        let bytes = message.payload().len() as u64;
        match self.send(message) {
            Ok(()) => {
                add(&counters.sent, 1);
                add(&counters.sent_bytes, bytes);
            }
            Err(Refused::Full(message)) => return Some(message),
            Err(Refused::TooLong { .. }) => add(&counters.refused, 1),
            Err(Refused::Failed(_, error)) => {
                add(&counters.dropped_link_down, 1);
                self.main.failed = Some(error);
            }
        }
        None
    }

    /// Sends a message by the channel for its length.
    fn send(&mut self, message: Outgoing) -> Result<(), Refused<Outgoing>> {
        let bytes = message.head().payload_bytes;
        let takes_large = |large: &&mut Large| bytes >= large.from_bytes && !large.leg.is_ending();
        if let Some(large) = self.large.as_mut().filter(takes_large) {
            match large.send(message, self.main.last) {
                Ok(()) => {
                    self.last_large = large.leg.last;
                    self.follows_large = large.in_order.then_some(self.last_large);
                    return Ok(());
                }
                // The main channel takes what the large one can't any more.
                Err(Refused::Failed(message, error)) => {
                    large.leg.failed = Some(error);
                    return self.send_by_main(message);
                }
                other => return other,
            }
        }
        self.send_by_main(message)
    }

    fn send_by_main(&mut self, message: Outgoing) -> Result<(), Refused<Outgoing>> {
        if let Some(last) = self.follows_large {
            if let Err(refused) = self.main.mark(Kind::After, last, message.head()) {
                return Err(instead_of(refused, message));
            }
            self.follows_large = None;
        }
        self.main.send(message)
    }

    /// Announces samples that went before by these events.
    pub(super) fn announce(&mut self, mut head: Head) {
        if self.main.failed.is_some() {
            return;
        }
        // A sample that still waits takes the events along.
        if let Some(pending) = &mut self.pending {
            pending.head.events |= head.events;
            return;
        }
        head.sequence = head.sequence.max(1);
        match self.send_by_main(Outgoing::events(head)) {
            Ok(()) | Err(Refused::TooLong { .. }) => {}
            Err(Refused::Full(message)) => self.pending = Some(message),
            Err(Refused::Failed(_, error)) => self.main.failed = Some(error),
        }
    }

    /// Moves what waits in its channels.
    pub(super) fn flush(&mut self, counters: &ServiceCounters) {
        let has_pending = self.pending.is_some();
        for leg in self.legs_mut() {
            leg.flush(has_pending);
            leg.count_copied(counters);
        }
    }

    /// Gives up what has ended, first the large channel, and says so to `ended`; without its main channel there is nothing left and it returns true. `emptied`:
    /// no program's sample waits to be taken.
    pub(super) fn remove_ended(
        &mut self,
        now: Instant,
        emptied: bool,
        counters: &ServiceCounters,
        mut ended: impl FnMut(Ended),
    ) -> bool {
        let is_idle = self.pending.is_none() && self.legs().all(|leg| !leg.waiting);
        if let Some(large) = &mut self.large {
            let idle = !large.leg.waiting;
            if let Some(end) = large.leg.has_ended(now, idle, counters) {
                self.large = None;
                ended(end);
            }
        }
        let emptied = emptied || self.main.is_moving();
        let Some(end) = self.main.has_ended(now, emptied && is_idle, counters) else {
            return false;
        };
        if let Some(large) = self.large.take() {
            let mut unconfirmed = large.leg.sender.outstanding();
            if end.reason.is_some() {
                add(&counters.in_doubt, std::mem::take(&mut unconfirmed));
            }
            ended(Ended {
                key: large.leg.key,
                reason: None,
                unconfirmed,
            });
        }
        if self.pending.take().is_some() {
            add(&counters.dropped_link_down, 1);
        }
        ended(end);
        true
    }
}

impl Large {
    /// `main_last`: number of the last message that took the main channel.
    fn send(&mut self, message: Outgoing, main_last: u64) -> Result<(), Refused<Outgoing>> {
        let is_change = main_last > self.leg.last;
        if self.in_order
            && is_change
            && let Err(refused) = self.leg.mark(Kind::After, main_last, message.head())
        {
            return Err(instead_of(refused, message));
        }
        self.leg.send(message)
    }
}

/// What became of the head that was to go before `message`, said of that one.
fn instead_of(refused: Refused<Outgoing>, message: Outgoing) -> Refused<Outgoing> {
    match refused {
        Refused::Full(_) => Refused::Full(message),
        Refused::TooLong { limit_bytes, .. } => Refused::TooLong { message, limit_bytes },
        Refused::Failed(_, error) => Refused::Failed(message, error),
    }
}

#[cfg(test)]
#[path = "out_tests.rs"]
mod tests;
