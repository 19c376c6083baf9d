//! The sending ends of channels.
//!
//! Contract: an end writes into the window only inside its [`Gate`], reads only the window that this host reads, and never
//! waits. Lanes call it through [`Sender`]. Nothing here allocates after construction.

use std::sync::atomic::{Ordering, fence};

use busway_core::Window;
use busway_core::register::RegisterWriter;
use busway_core::ring::RingProducer;

use super::bell::Wake;
use super::gate::Gate;
use super::layout::{CREDIT_CLOSED_AT, CREDIT_TAKEN_COUNT_AT, CREDIT_TAKEN_SEQUENCE_AT};
use super::mapping::Mapped;
use super::outbox::Outbox;
use super::place::{SENDER_CLOSED_AT, SENDER_WANTS_AT};
use crate::channel::{ChannelError, Flushed, Refused, Sender, WaitFor};
use crate::message::{HEAD_BYTES, Kind, Message};

/// Messages under way in the ring beside a register (and without one): one that is read and one that waits.
const LATEST_UNDER_WAY: usize = 2;

/// What both kinds of sender have in common.
#[derive(Debug)]
pub struct SenderBase {
    /// The way into the window.
    pub gate: Gate,
    /// Names the landing place, see [`super::place::LandingPlace::tag`].
    pub tag: u64,
    /// The sender's line of the place, in the window that this host writes.
    pub line: Window,
    /// The channel's credit entry, in the window that this host reads.
    pub credit: Window,
    /// Wakes the receiver's lane.
    pub wake: Option<Wake>,
    /// How this host's lane waits.
    pub wait_for: WaitFor,
    /// Keep both windows mapped.
    pub mapped: [Mapped; 2],
}

/// The words through which an end speaks with the other beside the messages. Its methods that store are called inside the
/// gate.
#[derive(Debug)]
struct Shore {
    tag: u64,
    line: Window,
    credit: Window,
    wait_for: WaitFor,
    wants: bool,
    _mapped: [Mapped; 2],
}

impl Shore {
    fn new(base: SenderBase) -> (Shore, Gate, Option<Wake>) {
        let SenderBase {
            gate,
            tag,
            line,
            credit,
            wake,
            wait_for,
            mapped,
        } = base;
        let shore = Shore {
            tag,
            line,
            credit,
            wait_for,
            wants: false,
            _mapped: mapped,
        };
        // What an earlier sender left in the line is void; inside, the line is a whole entry.
        let _ = shore.line.store(SENDER_CLOSED_AT, !tag);
        let _ = shore.line.store(SENDER_WANTS_AT, 0);
        (shore, gate, wake)
    }

    fn check_open(&self) -> Result<(), ChannelError> {
        match self.credit.load(CREDIT_CLOSED_AT) {
            Ok(word) if word == self.tag => Err(ChannelError::Closed),
            _ => Ok(()),
        }
    }

    /// Asks the receiver to ring when it gives credit. Returns true if the caller must look at its credits once more.
    fn want_credit(&mut self) -> bool {
        if self.wants {
            return false;
        }
        self.wants = true;
        let _ = self.line.store(SENDER_WANTS_AT, 1);
        self.line.write_fence();
        // Partner: the fence in `receiver::Bank::settle`. Either it sees the wish, or the look at the credits that now
        // follows sees them.
        fence(Ordering::SeqCst);
        true
    }

    fn want_nothing(&mut self) {
        if self.wants {
            self.wants = false;
            let _ = self.line.store(SENDER_WANTS_AT, 0);
        }
    }

    /// Tells the receiver that nothing more will come.
    fn close(&self) {
        self.line.write_fence();
        let _ = self.line.store(SENDER_CLOSED_AT, self.tag);
        self.line.write_fence();
    }
}

fn ended() -> ChannelError {
    ChannelError::Io(std::io::Error::new(
        std::io::ErrorKind::ConnectionReset,
        "the link went down",
    ))
}

/// Sends on a channel that keeps every message.
#[derive(Debug)]
pub struct QueueSender<M: Message> {
    gate: Gate,
    shore: Shore,
    outbox: Outbox<M>,
}

impl<M: Message> QueueSender<M> {
    /// A sender of at most `depth` messages under way.
    pub fn new(base: SenderBase, ring: RingProducer<Window>, depth: u32) -> QueueSender<M> {
        let (shore, gate, wake) = Shore::new(base);
        QueueSender {
            gate,
            shore,
            outbox: Outbox::new(ring, wake, depth as usize),
        }
    }
}

impl<M: Message> Sender<M> for QueueSender<M> {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        let Some(_inside) = self.gate.enter() else {
            return Err(Refused::Failed(message, ended()));
        };
        if self.outbox.is_holding()
            && let Err(error) = self.outbox.advance()
        {
            return Err(Refused::Failed(message, error));
        }
        if !self.outbox.has_room() {
            return Err(Refused::Full(message));
        }
        // A failure of the ring shows at the next flush; the message is then in doubt like all that are outstanding.
        let _ = self.outbox.begin(message, 0);
        Ok(())
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        let Some(_inside) = self.gate.enter() else {
            return Err(ended());
        };
        self.shore.check_open()?;
        self.outbox.advance()?;
        self.outbox.publish()?;
        self.outbox.refresh();
        if self.outbox.is_holding() && self.shore.want_credit() {
            self.outbox.advance()?;
            self.outbox.publish()?;
        }
        if self.outbox.is_holding() {
            return Ok(Flushed::Waiting);
        }
        if self.outbox.has_room() {
            self.shore.want_nothing();
        }
        Ok(Flushed::Idle)
    }

    fn has_room(&mut self, _total_bytes: u64) -> bool {
        // Any length has room: what does not fit at once is held and goes in pieces. After the end a send will say so.
        let Some(_inside) = self.gate.enter() else {
            return true;
        };
        let room = self.outbox.has_room() || self.shore.want_credit() && self.outbox.has_room();
        if room && !self.outbox.is_holding() {
            self.shore.want_nothing();
        }
        room
    }

    fn outstanding(&self) -> u64 {
        self.outbox.outstanding() as u64
    }

    fn overwritten(&self) -> u64 {
        0
    }

    fn wait_for(&self) -> WaitFor {
        self.shore.wait_for
    }
}

impl<M: Message> Drop for QueueSender<M> {
    fn drop(&mut self) {
        let Some(_inside) = self.gate.enter() else { return };
        let _ = self.outbox.publish();
        self.shore.close();
        self.outbox.wake();
    }
}

/// Sends on a channel that keeps the newest message.
///
/// A message goes into the register, where the next one overwrites it. One that is too long for the register, or only announces
/// events (which must not overwrite the payload that went before), goes through the ring beside it. All carry one count,
/// by which the receiver tells which is newer.
#[derive(Debug)]
pub struct LatestSender<M: Message> {
    gate: Gate,
    shore: Shore,
    outbox: Outbox<M>,
    register: Option<RegisterWriter<Window>>,
    /// Waits for the ring; the next message replaces it.
    pending: Option<(M, u64)>,
    /// Messages taken over: the newest one's mark.
    count: u64,
    /// Mark of the last message in the register, and how many went there.
    written: u64,
    written_count: u64,
    /// What the receiver said it took from the register: mark of the last, and how many.
    taken: u64,
    taken_count: u64,
    replaced: u64,
    /// Something was written into the register since the last flush.
    fresh: bool,
}

impl<M: Message> LatestSender<M> {
    /// A sender into `register`, with `ring` beside it.
    pub fn new(
        base: SenderBase,
        ring: RingProducer<Window>,
        register: Option<RegisterWriter<Window>>,
    ) -> LatestSender<M> {
        let (shore, gate, wake) = Shore::new(base);
        LatestSender {
            gate,
            shore,
            outbox: Outbox::new(ring, wake, LATEST_UNDER_WAY),
            register,
            pending: None,
            count: 0,
            written: 0,
            written_count: 0,
            taken: 0,
            taken_count: 0,
            replaced: 0,
            fresh: false,
        }
    }

    /// Takes in what the receiver says of the register. It may say anything; it is believed as far as it is possible.
    fn refresh(&mut self) {
        let word = |at| self.shore.credit.load(at).unwrap_or_default();
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
}

impl<M: Message> Sender<M> for LatestSender<M> {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        let Some(_inside) = self.gate.enter() else {
            return Err(Refused::Failed(message, ended()));
        };
        let is_data = message.head().kind == Kind::Data;
        if let Some(register) = &mut self.register
            && is_data
        {
            let head = message.head().encode();
            let parts = [&head[..], message.user_header(), message.payload()];
            let total_bytes = HEAD_BYTES + parts[1].len() + parts[2].len();
            if total_bytes <= register.layout().max_size_bytes() {
                if register.write(&parts, self.count + 1).is_err() {
                    return Err(Refused::Full(message));
                }
                self.count += 1;
                self.written = self.count;
                self.written_count += 1;
                self.fresh = true;
                self.replaced += u64::from(self.pending.take().is_some());
                return Ok(());
            }
        }
        if !is_data {
            // Events are never replaced: they wait for room in the ring.
            let failed = self.outbox.advance().err();
            if let Some(error) = failed {
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
            self.replaced += u64::from(self.pending.replace((message, self.count)).is_some());
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        self.refresh();
        let Some(_inside) = self.gate.enter() else {
            return Err(ended());
        };
        self.shore.check_open()?;
        if std::mem::take(&mut self.fresh) {
            self.outbox.wake();
        }
        loop {
            self.outbox.advance()?;
            if !self.outbox.is_holding()
                && self.outbox.has_room()
                && let Some((message, mark)) = self.pending.take()
            {
                self.outbox.begin(message, mark)?;
            }
            self.outbox.publish()?;
            if self.pending.is_none() && !self.outbox.is_holding() {
                self.shore.want_nothing();
                return Ok(Flushed::Idle);
            }
            if !self.shore.want_credit() {
                return Ok(Flushed::Waiting);
            }
        }
    }

    fn has_room(&mut self, _total_bytes: u64) -> bool {
        true
    }

    fn outstanding(&self) -> u64 {
        self.outbox.outstanding() as u64 + u64::from(self.pending.is_some()) + self.unread()
    }

    fn overwritten(&self) -> u64 {
        let unconfirmed = self.written_count - self.taken_count;
        self.replaced + unconfirmed.saturating_sub(self.unread())
    }

    fn wait_for(&self) -> WaitFor {
        self.shore.wait_for
    }
}

impl<M: Message> Drop for LatestSender<M> {
    fn drop(&mut self) {
        let Some(_inside) = self.gate.enter() else { return };
        let _ = self.outbox.publish();
        self.shore.close();
        self.outbox.wake();
    }
}
