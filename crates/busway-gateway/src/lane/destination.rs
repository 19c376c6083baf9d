//! One destination of a service: the channels to one host, and the message that waits for room in
//! them.
//!
//! Most hosts have one channel. If the link names other buses for large messages there may be a
//! second one, and each message takes one of the two by its length. A channel keeps its own order.
//! For the order across both, a head of [`Kind::After`] is sent wherever the messages change over
//! to the other channel: it names the last message that took the former one, and the receiver waits
//! for that ([`super::inbound`]). A second channel starts with a head of [`Kind::Beyond`]: a
//! receiver that still waits for a message of an earlier second channel need not wait for this one.
//! Called by [`super::outbound`].

#![expect(
    clippy::result_large_err,
    reason = "a refused message comes back whole, as `Sender::send` gives it"
)]

use std::time::{Duration, Instant};

use busway_transport::{ChannelError, Flushed, Head, Kind, Message, Refused, Sender, SenderGroup, WaitFor};

use super::interface::{ChannelKey, Ending, WhenFull};
use crate::counters::{ServiceCounters, add};
use crate::iox::sample::Outgoing;

/// A second channel to a host, for large messages.
pub struct LargeSender {
    pub key: ChannelKey,
    /// Payload in bytes from which on a message takes it.
    pub from_bytes: u64,
    /// Whether the order is kept across both channels. Not so for a service that keeps the latest:
    /// its newest number wins, by whichever channel it came.
    pub in_order: bool,
    pub sender: Box<dyn Sender<Outgoing>>,
}

/// How long an ending channel may still send, where publishers do not wait for readers.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// Once the bus has everything, a channel ends if its reader takes no message for this long.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// A channel that has ended.
pub(super) struct Ended {
    pub(super) key: ChannelKey,
    /// Why, if it has failed.
    pub(super) failure: Option<String>,
    /// See [`Report::SenderEnded`](super::interface::Report::SenderEnded).
    pub(super) unacknowledged: u64,
}

/// One channel.
struct ChannelSender {
    key: ChannelKey,
    sender: Box<dyn Sender<Outgoing>>,
    /// Number of the last message that it has accepted; 0 for none.
    last: u64,
    /// The bus has not taken everything yet that was accepted.
    waiting: bool,
    /// The sender was given a message since the last flush.
    touched: bool,
    /// Set when it ends once everything is sent.
    drain: Option<Drain>,
    failed: Option<ChannelError>,
    /// Copies counted so far, see [`Sender::copied`].
    copied: u64,
}

/// How a channel ends that first sends its messages.
#[derive(Clone, Copy)]
struct Drain {
    /// At the latest then. `None` where publishers wait for readers: until all messages are
    /// acknowledged.
    until: Option<Instant>,
    /// Messages that programs publish from now on take another channel.
    is_move: bool,
    /// Unacknowledged messages at the last look, and since when there are that many.
    unacknowledged: u64,
    since: Instant,
}

/// The large-message channel of a destination.
struct Large {
    channel: ChannelSender,
    from_bytes: u64,
    in_order: bool,
}

pub(super) struct Destination {
    main: ChannelSender,
    large: Option<Large>,
    /// Number of the last message that took a large-message channel, this or an earlier one; 0 for
    /// none.
    last_large: u64,
    /// Set while the last message took the large-message channel and the next one on the main
    /// channel must follow it: the number of that last message.
    follows_large: Option<u64>,
    /// Refused by a full channel; sent first when there is room.
    pending: Option<Outgoing>,
}

impl ChannelSender {
    fn new(key: ChannelKey, sender: Box<dyn Sender<Outgoing>>) -> ChannelSender {
        ChannelSender {
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

    /// Sends a head of this kind about the message of this number. `like` has the origin and the
    /// time.
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
            unacknowledged: 0,
            since: now,
        });
    }

    /// Whether an ending channel, whose bus has everything, need not wait for its reader any more.
    fn is_settled(&mut self, now: Instant) -> bool {
        let unacknowledged = self.sender.outstanding();
        let Some(drain) = &mut self.drain else {
            return false;
        };
        if unacknowledged != drain.unacknowledged {
            (drain.unacknowledged, drain.since) = (unacknowledged, now);
        }
        // A bus that loses messages may have to send some again; all others have delivered them.
        let has_all = !self.sender.needs_flush() && now - drain.since >= SILENCE_LIMIT;
        unacknowledged == 0 || has_all
    }

    /// Whether it takes no more messages, since another channel will.
    fn is_moving(&self) -> bool {
        self.drain.is_some_and(|drain| drain.is_move)
    }

    /// Whether it ends now. `idle`: no message waits for it. If it has failed, the delivery of
    /// unacknowledged messages is unknown: counts them.
    fn has_ended(&mut self, now: Instant, idle: bool, counters: &ServiceCounters) -> Option<Ended> {
        let ended = self.drain.is_some_and(|drain| match drain.until {
            Some(until) => idle || now >= until,
            None => idle && self.is_settled(now),
        });
        let failed = self.failed.take();
        if failed.is_none() && !ended {
            return None;
        }
        let mut unacknowledged = self.sender.outstanding();
        if failed.is_some() {
            add(&counters.in_doubt, std::mem::take(&mut unacknowledged));
        }
        Some(Ended {
            key: self.key,
            failure: failed.map(|error| error.to_string()),
            unacknowledged,
        })
    }

    fn count_copied(&mut self, counters: &ServiceCounters) {
        let copied = self.sender.copied().unwrap_or(0);
        add(&counters.sent_copied, copied - self.copied);
        self.copied = copied;
    }
}

impl Destination {
    pub(super) fn new(key: ChannelKey, sender: Box<dyn Sender<Outgoing>>) -> Destination {
        Destination {
            main: ChannelSender::new(key, sender),
            large: None,
            last_large: 0,
            follows_large: None,
            pending: None,
        }
    }

    /// The bus may send a message that several members are given at once.
    pub(super) fn join(&mut self, group: &mut SenderGroup) {
        self.main.sender.join(group);
    }

    /// The main channel.
    pub(super) fn key(&self) -> ChannelKey {
        self.main.key
    }

    /// Large messages take this channel from now on. `like` has this service's origin and the time.
    pub(super) fn add_large(&mut self, large: LargeSender, like: &Head) {
        let mut channel = ChannelSender::new(large.key, large.sender);
        let number = self.main.last.max(self.last_large);
        if large.in_order && channel.mark(Kind::Beyond, number, like).is_err() {
            channel.failed = Some(ChannelError::Corrupt("a new channel took nothing"));
        }
        self.large = Some(Large {
            channel,
            from_bytes: large.from_bytes,
            in_order: large.in_order,
        });
    }

    /// Ends this channel, if it is one of its own.
    pub(super) fn end(&mut self, key: ChannelKey, ending: Ending, when_full: WhenFull, now: Instant) {
        for channel in self.channels_mut().filter(|channel| channel.key == key) {
            channel.end(ending, when_full, now);
        }
    }

    /// Whether its main channel takes no more messages, since another one will.
    pub(super) fn is_moving(&self) -> bool {
        self.main.is_moving()
    }

    fn channels(&self) -> impl Iterator<Item = &ChannelSender> {
        std::iter::once(&self.main).chain(self.large.as_ref().map(|large| &large.channel))
    }

    fn channels_mut(&mut self) -> impl Iterator<Item = &mut ChannelSender> {
        std::iter::once(&mut self.main).chain(self.large.as_mut().map(|large| &mut large.channel))
    }

    /// Whether one of its channels is ending.
    pub(super) fn is_ending(&self) -> bool {
        self.channels().any(ChannelSender::is_ending)
    }

    /// Whether its main channel has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.main.failed.is_some()
    }

    /// Whether a message waits here for room.
    pub(super) fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether it waits for the bus: for room, or until messages need not be sent again.
    pub(super) fn awaits_bus(&self) -> bool {
        self.pending.is_some() || self.channels().any(ChannelSender::awaits_bus)
    }

    /// What to wait for until it can continue.
    pub(super) fn wait_for(&self) -> impl Iterator<Item = WaitFor> + '_ {
        self.channels().map(|channel| channel.sender.wait_for())
    }

    /// Sends a message; `when_full` applies if the channel is full.
    pub(super) fn offer(&mut self, mut message: Outgoing, when_full: WhenFull, counters: &ServiceCounters) {
        if self.main.failed.is_some() {
            add(&counters.dropped_link_down, 1);
            return;
        }
        // Events that still wait go with the message.
        if let Some(events) = self.pending.take_if(|pending| pending.head.kind == Kind::Notify) {
            message.head.events |= events.head.events;
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
                if let Some(older) = self.pending.replace(message) {
                    add(&counters.dropped_full, 1);
                    self.add_pending_events(older.head.events);
                }
            }
        }
    }

    /// Sends the message that waits here, if there is room now. Returns whether it waits no more.
    pub(super) fn retry(&mut self, counters: &ServiceCounters) -> bool {
        let Some(message) = self.pending.take() else {
            return false;
        };
        self.pending = self.try_send(message, counters);
        self.pending.is_none()
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
        let takes_large = |large: &&mut Large| bytes >= large.from_bytes && !large.channel.is_ending();
        if let Some(large) = self.large.as_mut().filter(takes_large) {
            match large.send(message, self.main.last) {
                Ok(()) => {
                    self.last_large = large.channel.last;
                    self.follows_large = large.in_order.then_some(self.last_large);
                    return Ok(());
                }
                // The main channel takes it instead.
                Err(Refused::Failed(message, error)) => {
                    large.channel.failed = Some(error);
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

    /// Returns whether a message waits that carries them now.
    fn add_pending_events(&mut self, events: u64) -> bool {
        let Some(pending) = &mut self.pending else {
            return false;
        };
        pending.head.events |= events;
        true
    }

    /// Sends events that announce earlier samples.
    pub(super) fn announce(&mut self, mut head: Head) {
        if self.main.failed.is_some() {
            return;
        }
        // A sample that still waits carries the events.
        if self.add_pending_events(head.events) {
            return;
        }
        head.sequence = head.sequence.max(1);
        match self.send_by_main(Outgoing::events(head)) {
            Ok(()) | Err(Refused::TooLong { .. }) => {}
            Err(Refused::Full(message)) => self.pending = Some(message),
            Err(Refused::Failed(_, error)) => self.main.failed = Some(error),
        }
    }

    /// Has its channels send.
    pub(super) fn flush(&mut self, counters: &ServiceCounters) {
        let has_pending = self.pending.is_some();
        for channel in self.channels_mut() {
            channel.flush(has_pending);
            channel.count_copied(counters);
        }
    }

    /// Removes channels that have ended, first the large-message channel, and passes them to
    /// `ended`. Returns whether the main channel is among them: the destination is then gone.
    /// `emptied`: no program's sample waits to be taken.
    pub(super) fn remove_ended(
        &mut self,
        now: Instant,
        emptied: bool,
        counters: &ServiceCounters,
        mut ended: impl FnMut(Ended),
    ) -> bool {
        let is_idle = self.pending.is_none() && self.channels().all(|channel| !channel.waiting);
        if let Some(large) = &mut self.large {
            let idle = !large.channel.waiting;
            if let Some(end) = large.channel.has_ended(now, idle, counters) {
                self.large = None;
                ended(end);
            }
        }
        let emptied = emptied || self.main.is_moving();
        let Some(end) = self.main.has_ended(now, emptied && is_idle, counters) else {
            return false;
        };
        if let Some(large) = self.large.take() {
            let mut unacknowledged = large.channel.sender.outstanding();
            if end.failure.is_some() {
                add(&counters.in_doubt, std::mem::take(&mut unacknowledged));
            }
            ended(Ended {
                key: large.channel.key,
                failure: None,
                unacknowledged,
            });
        }
        let lost = self.pending.take();
        if lost.is_some_and(|message| message.head.kind == Kind::Data) {
            add(&counters.dropped_link_down, 1);
        }
        ended(end);
        true
    }
}

impl Large {
    /// `main_last`: number of the last message that took the main channel.
    fn send(&mut self, message: Outgoing, main_last: u64) -> Result<(), Refused<Outgoing>> {
        let is_change = main_last > self.channel.last;
        if self.in_order
            && is_change
            && let Err(refused) = self.channel.mark(Kind::After, main_last, message.head())
        {
            return Err(instead_of(refused, message));
        }
        self.channel.send(message)
    }
}

/// `refused` was a head that had to precede `message`: the same refusal, of that message.
fn instead_of(refused: Refused<Outgoing>, message: Outgoing) -> Refused<Outgoing> {
    match refused {
        Refused::Full(_) => Refused::Full(message),
        Refused::TooLong { limit_bytes, .. } => Refused::TooLong { message, limit_bytes },
        Refused::Failed(_, error) => Refused::Failed(message, error),
    }
}

#[cfg(test)]
#[path = "destination_tests.rs"]
mod tests;
