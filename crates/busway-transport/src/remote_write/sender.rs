//! The sending ends of channels.
//!
//! Contract: an end writes far memory only while it holds a write guard, reads only its own host's
//! memory, and never waits. Nothing here allocates after construction. Called by lanes.

use busway_core::register::{RegisterWriter, WriteError};
use busway_core::ring::RingProducer;
use busway_core::{RemoteError, RemoteWrite, Window};

use super::outbox::Outbox;
use super::{
    CREDIT_CLOSED_AT, CREDIT_TAKEN_COUNT_AT, CREDIT_TAKEN_SEQUENCE_AT, RemoteAccess, SENDER_CLOSED_AT,
    WritePermission,
};
use crate::contract::{ChannelError, Flushed, HEAD_BYTES, Kind, Message, Refused, Sender, WaitFor};

/// Messages in flight in the ring of a sampling channel: one being read, and the next.
const LATEST_UNDER_WAY: usize = 2;

/// What both kinds of sender have in common.
#[derive(Debug)]
pub struct SenderBase<A: RemoteAccess> {
    /// Whether the far memory may be written.
    pub permission: A::WritePermission,
    /// Names the landing place among all that the receiver ever made.
    pub tag: u64,
    /// The sender's line of the landing place, [`super::ENTRY_BYTES`] long; its word for a closed
    /// sender is clear.
    pub line: A::Memory,
    /// The channel's credit entry, in memory of this host.
    pub credit: Window,
    /// Wakes the receiver's lane.
    pub waker: A::Waker,
    /// How this host's lane waits.
    pub wait_for: WaitFor,
    /// Lives as long as the end.
    pub keep: A::Keep,
}

/// The words that the two ends write for each other, apart from the messages.
#[derive(Debug)]
struct ControlWords<A: RemoteAccess> {
    tag: u64,
    line: A::Memory,
    credit: Window,
    wait_for: WaitFor,
    _keep: A::Keep,
}

impl<A: RemoteAccess> ControlWords<A> {
    fn new(base: SenderBase<A>) -> (ControlWords<A>, A::WritePermission, A::Waker) {
        let words = ControlWords {
            tag: base.tag,
            line: base.line,
            credit: base.credit,
            wait_for: base.wait_for,
            _keep: base.keep,
        };
        (words, base.permission, base.waker)
    }

    fn check_open(&self) -> Result<(), ChannelError> {
        match self.credit.load(CREDIT_CLOSED_AT) {
            Ok(word) if word == self.tag => Err(ChannelError::Closed),
            _ => Ok(()),
        }
    }

    /// Reports to the receiver that this end is closed. The caller holds a write guard.
    fn close(&mut self) {
        // All messages before it: partner is the acquire in `ReceiverBase::end_reason`.
        self.line.fence();
        // Fails only where the receiver learns it from the bus.
        let _ = self.line.publish(SENDER_CLOSED_AT, self.tag);
        self.line.fence();
        self.line.flush();
    }
}

/// Sends on a channel that keeps every message.
#[derive(Debug)]
pub struct QueueSender<M: Message, A: RemoteAccess> {
    permission: A::WritePermission,
    words: ControlWords<A>,
    outbox: Outbox<M, A>,
}

impl<M: Message, A: RemoteAccess> QueueSender<M, A> {
    /// A sender with at most `depth` messages in flight.
    pub fn new(base: SenderBase<A>, ring: RingProducer<A::Memory>, depth: u32) -> QueueSender<M, A> {
        let (words, permission, waker) = ControlWords::new(base);
        QueueSender {
            permission,
            words,
            outbox: Outbox::new(ring, waker, depth as usize),
        }
    }
}

impl<M: Message, A: RemoteAccess> Sender<M> for QueueSender<M, A> {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        let _guard = match self.permission.begin_write() {
            Ok(inside) => inside,
            Err(error) => return Err(Refused::Failed(message, error)),
        };
        if self.outbox.is_holding()
            && let Err(error) = self.outbox.advance()
        {
            return Err(Refused::Failed(message, error));
        }
        if !self.outbox.has_room() {
            return Err(Refused::Full(message));
        }
        // A failure of the ring shows at the next flush; delivery of the message is then unknown.
        let _ = self.outbox.begin(message, 0);
        Ok(())
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        let _guard = self.permission.begin_write()?;
        self.outbox.poll_waker();
        self.words.check_open()?;
        self.outbox.advance()?;
        self.outbox.publish()?;
        self.outbox.refresh();
        while self.outbox.is_waiting() {
            if !self.outbox.request_wakeup() {
                return Ok(Flushed::Waiting);
            }
            self.outbox.advance()?;
            self.outbox.publish()?;
            self.outbox.refresh();
        }
        if self.outbox.has_room() {
            self.outbox.cancel_wakeup();
        }
        Ok(Flushed::Idle)
    }

    fn has_room(&mut self, _total_bytes: u64) -> bool {
        // Any length fits: a long message is held and goes in pieces. After the link went down,
        // `send` fails.
        let Ok(_guard) = self.permission.begin_write() else {
            return true;
        };
        let mut room = self.outbox.has_room();
        while !room && self.outbox.request_wakeup() {
            room = self.outbox.has_room();
        }
        if room && !self.outbox.is_holding() {
            self.outbox.cancel_wakeup();
        }
        room
    }

    fn outstanding(&self) -> u64 {
        self.outbox.outstanding() as u64
    }

    fn overwritten(&self) -> u64 {
        0
    }

    fn copied(&self) -> Option<u64> {
        Some(self.outbox.begun())
    }

    fn wait_for(&self) -> WaitFor {
        self.words.wait_for
    }
}

impl<M: Message, A: RemoteAccess> Drop for QueueSender<M, A> {
    fn drop(&mut self) {
        let Ok(_guard) = self.permission.begin_write() else {
            return;
        };
        let _ = self.outbox.publish();
        self.words.close();
        self.outbox.wake_beside(1);
    }
}

/// Sends on a channel that keeps the newest message.
///
/// A message goes into the register, where the next one overwrites it. One that is too long for the
/// register goes through the ring. So does one that only announces events, since it must not
/// overwrite the payload before it. All carry one count, so the receiver knows which is newer.
#[derive(Debug)]
pub struct LatestSender<M: Message, A: RemoteAccess> {
    permission: A::WritePermission,
    words: ControlWords<A>,
    latest: Latest<M, A>,
}

/// What of a [`LatestSender`] changes inside the permission.
#[derive(Debug)]
struct Latest<M: Message, A: RemoteAccess> {
    outbox: Outbox<M, A>,
    register: Option<RegisterWriter<A::Memory>>,
    /// Waits for the ring, or for the bus; the next message replaces it.
    pending: Option<(M, u64)>,
    /// Messages taken over: the newest one's mark.
    count: u64,
    /// Mark of the last message in the register, and how many went there.
    written: u64,
    written_count: u64,
    /// What the receiver reported of the register: mark of the last message taken, and how many.
    taken: u64,
    taken_count: u64,
    replaced: u64,
    /// How many of `written_count` the receiver has been woken for.
    woken_count: u64,
}

impl<M: Message, A: RemoteAccess> LatestSender<M, A> {
    /// A sender into `register`, with `ring` beside it.
    pub fn new(
        base: SenderBase<A>,
        ring: RingProducer<A::Memory>,
        register: Option<RegisterWriter<A::Memory>>,
    ) -> LatestSender<M, A> {
        let (words, permission, waker) = ControlWords::new(base);
        LatestSender {
            permission,
            words,
            latest: Latest {
                outbox: Outbox::new(ring, waker, LATEST_UNDER_WAY),
                register,
                pending: None,
                count: 0,
                written: 0,
                written_count: 0,
                taken: 0,
                taken_count: 0,
                replaced: 0,
                woken_count: 0,
            },
        }
    }
}

impl<M: Message, A: RemoteAccess> Latest<M, A> {
    /// Reads what the receiver reports of the register. Impossible values are ignored.
    fn refresh(&mut self, credit: &Window) {
        let word = |at| credit.load(at).unwrap_or_default();
        let (taken, taken_count) = (word(CREDIT_TAKEN_SEQUENCE_AT), word(CREDIT_TAKEN_COUNT_AT));
        if (self.taken..=self.written).contains(&taken) {
            self.taken = taken;
        }
        if (self.taken_count..=self.written_count).contains(&taken_count) {
            self.taken_count = taken_count;
        }
        self.outbox.refresh();
    }

    fn unread(&self) -> u64 {
        u64::from(self.written > self.taken)
    }

    /// Whether the register takes `message`.
    fn fits_register(&self, message: &M) -> bool {
        let total_bytes = HEAD_BYTES + message.user_header().len() + message.payload().len();
        let is_data = message.head().kind == Kind::Data;
        let register = self.register.as_ref();
        is_data && register.is_some_and(|register| total_bytes <= register.layout().max_size_bytes())
    }

    /// Writes a message that [fits](Self::fits_register) into the register; false if the bus is
    /// busy.
    fn write_register(&mut self, message: &M, mark: u64) -> Result<bool, ChannelError> {
        let head = message.head().encode();
        let parts = [&head[..], message.user_header(), message.payload()];
        let written = self
            .register
            .as_mut()
            .map(|register| register.write(&parts, mark));
        match written {
            Some(Ok(_)) => {
                self.written = mark;
                self.written_count += 1;
                Ok(true)
            }
            Some(Err(WriteError::Remote(RemoteError::Busy))) | None => Ok(false),
            Some(Err(error)) => Err(std::io::Error::other(error).into()),
        }
    }

    /// Takes over what the bus takes later, unless a newer message comes.
    fn hold(&mut self, message: M) {
        self.replaced += u64::from(self.pending.replace((message, self.count)).is_some());
    }

    /// Hands what is pending to the register or the ring, if that has room.
    fn advance(&mut self) -> Result<(), ChannelError> {
        self.outbox.advance()?;
        if let Some((message, mark)) = self.pending.take() {
            if self.fits_register(&message) {
                if !self.write_register(&message, mark)? {
                    self.pending = Some((message, mark));
                }
            } else if !self.outbox.is_holding() && self.outbox.has_room() {
                self.outbox.begin(message, mark)?;
            } else {
                self.pending = Some((message, mark));
            }
        }
        if self.woken_count != self.written_count {
            self.woken_count = self.written_count;
            self.outbox.wake_beside(self.written_count);
        }
        self.outbox.publish()
    }

    /// Takes over `message`.
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        if self.fits_register(&message) {
            return match self.write_register(&message, self.count + 1) {
                Err(error) => Err(Refused::Failed(message, error)),
                Ok(is_written) => {
                    self.count += 1;
                    if is_written {
                        self.replaced += u64::from(self.pending.take().is_some());
                    } else {
                        self.hold(message);
                    }
                    Ok(())
                }
            };
        }
        if message.head().kind != Kind::Data {
            // Events are never replaced: they wait for room in the ring.
            if let Err(error) = self.outbox.advance() {
                return Err(Refused::Failed(message, error));
            }
            if self.pending.is_some() || self.outbox.is_holding() || !self.outbox.has_room() {
                return Err(Refused::Full(message));
            }
        }
        self.count += 1;
        if self.pending.is_none() && !self.outbox.is_holding() && self.outbox.has_room() {
            // A failure of the ring shows at the next flush.
            let _ = self.outbox.begin(message, self.count);
        } else {
            self.hold(message);
        }
        Ok(())
    }
}

impl<M: Message, A: RemoteAccess> Sender<M> for LatestSender<M, A> {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        match self.permission.begin_write() {
            Ok(_guard) => self.latest.send(message),
            Err(error) => Err(Refused::Failed(message, error)),
        }
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        let latest = &mut self.latest;
        latest.refresh(&self.words.credit);
        let _guard = self.permission.begin_write()?;
        latest.outbox.poll_waker();
        self.words.check_open()?;
        loop {
            latest.advance()?;
            if latest.pending.is_none() && !latest.outbox.is_waiting() {
                latest.outbox.cancel_wakeup();
                return Ok(Flushed::Idle);
            }
            if !latest.outbox.request_wakeup() {
                return Ok(Flushed::Waiting);
            }
        }
    }

    fn has_room(&mut self, _total_bytes: u64) -> bool {
        true
    }

    fn outstanding(&self) -> u64 {
        let latest = &self.latest;
        latest.outbox.outstanding() as u64 + u64::from(latest.pending.is_some()) + latest.unread()
    }

    fn overwritten(&self) -> u64 {
        let latest = &self.latest;
        let unacknowledged = latest.written_count - latest.taken_count;
        latest.replaced + unacknowledged.saturating_sub(latest.unread())
    }

    fn copied(&self) -> Option<u64> {
        Some(self.latest.written_count + self.latest.outbox.begun())
    }

    fn wait_for(&self) -> WaitFor {
        self.words.wait_for
    }
}

impl<M: Message, A: RemoteAccess> Drop for LatestSender<M, A> {
    fn drop(&mut self) {
        let Ok(_guard) = self.permission.begin_write() else {
            return;
        };
        let latest = &mut self.latest;
        let _ = latest.outbox.publish();
        self.words.close();
        latest.outbox.wake_beside(latest.written_count + 1);
    }
}
