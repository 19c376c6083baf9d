//! The receiving ends of channels.
//!
//! Contract: an end reads its own host's memory, writes its credit entry only while it holds a
//! write guard, and never waits. Nothing here allocates after construction. Called by lanes.
//!
//! After the link went down, an end delivers the messages that arrived whole, then fails. Its
//! landing place is not reused before the end is dropped.

use busway_core::register::RegisterReader;
use busway_core::ring::RingConsumer;
use busway_core::{RemoteWrite, Window};

use super::credit_writer::CreditWriter;
use super::inbox::{Inbox, Step};
use super::{
    CREDIT_CLOSED_AT, CREDIT_TAKEN_COUNT_AT, CREDIT_TAKEN_SEQUENCE_AT, RemoteAccess, SENDER_CLOSED_AT, Waker,
    WritePermission,
};
use crate::contract::{ChannelError, HEAD_BYTES, Head, Kind, Landing, Receiver, Sink, Verdict, WaitFor};

/// Attempts to read the register within one poll.
const RETRIES: u32 = 16;

/// What both kinds of receiver have in common.
#[derive(Debug)]
pub struct ReceiverBase<A: RemoteAccess> {
    /// Names the landing place among all that this host ever made.
    pub tag: u64,
    /// Whether the far memory may be written.
    pub permission: A::WritePermission,
    /// The sender's line of the landing place, in memory of this host.
    pub line: Window,
    /// The channel's credit entry, in the sender's memory; its word for a closed receiver is clear.
    pub credit: A::Memory,
    /// Wakes this host's lane.
    pub waker: A::Waker,
    /// How this host's lane waits.
    pub wait_for: WaitFor,
    /// Polls in a row that found nothing.
    pub empty_polls: u32,
    /// Lives as long as the end.
    pub _keep: A::Keep,
}

impl<A: RemoteAccess> ReceiverBase<A> {
    /// Why nothing more will come, if that is so. To be asked *before* a last look for messages.
    fn end_reason(&self) -> Option<ChannelError> {
        // Acquire: the following poll sees all messages sent before. Partner: the fence in
        // `sender::ControlWords::close`.
        if self.line.load_acquire(SENDER_CLOSED_AT).unwrap_or_default() == self.tag {
            return Some(ChannelError::Closed);
        }
        self.permission.end_reason()
    }

    /// Whether to write the credits now, after a poll that was empty or not.
    fn should_report(&mut self, is_empty: bool) -> bool {
        self.empty_polls = if is_empty {
            self.empty_polls.saturating_add(1)
        } else {
            0
        };
        self.empty_polls >= A::CREDITS_AFTER_POLLS || self.waker.is_about_to_sleep()
    }

    /// Reports to the sender that this end is closed.
    fn close(&mut self) {
        if let Ok(_guard) = self.permission.begin_write() {
            // Fails only where the sender learns it from the bus.
            let _ = self.credit.publish(CREDIT_CLOSED_AT, self.tag);
            self.credit.fence();
            self.credit.flush();
        }
    }
}

/// Receives on a channel that keeps every message.
#[derive(Debug)]
pub struct QueueReceiver<A: RemoteAccess> {
    base: ReceiverBase<A>,
    inbox: Inbox<A>,
}

impl<A: RemoteAccess> QueueReceiver<A> {
    pub fn new(base: ReceiverBase<A>, ring: RingConsumer<CreditWriter<A>>) -> QueueReceiver<A> {
        QueueReceiver {
            base,
            inbox: Inbox::new(ring),
        }
    }
}

impl<A: RemoteAccess> Receiver for QueueReceiver<A> {
    fn poll(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<usize, ChannelError> {
        self.base.waker.poll();
        let mut delivered = 0;
        let mut over = None;
        let mut left = budget;
        while left > 0 {
            match self.inbox.step(sink, |_, _| true)? {
                Step::Delivered => {
                    delivered += 1;
                    left -= 1;
                }
                Step::Discarded => left -= 1,
                Step::Piece => {}
                Step::Later => break,
                Step::Empty if over.is_some() => {
                    self.inbox.abandon(sink);
                    break;
                }
                Step::Empty => {
                    over = self.base.end_reason();
                    if over.is_none() && !(delivered == 0 && self.base.waker.prepare_sleep(self.inbox.mark()))
                    {
                        break;
                    }
                }
            }
        }
        if self.base.should_report(delivered == 0) {
            self.inbox.flush_credits();
        }
        match over {
            // Messages are reported first; the next poll finds none and returns the error.
            Some(error) if delivered == 0 && left > 0 && !self.inbox.is_open() => Err(error),
            _ => Ok(delivered),
        }
    }

    fn acknowledge(&mut self) {
        self.inbox.flush_credits();
    }

    fn copied(&self) -> Option<u64> {
        Some(self.inbox.landed())
    }

    fn wait_for(&self) -> WaitFor {
        self.base.wait_for
    }
}

impl<A: RemoteAccess> Drop for QueueReceiver<A> {
    fn drop(&mut self) {
        self.base.close();
    }
}

/// Receives on a channel that keeps the newest message. See [`super::sender::LatestSender`].
#[derive(Debug)]
pub struct LatestReceiver<A: RemoteAccess> {
    base: ReceiverBase<A>,
    inbox: Inbox<A>,
    register: Option<RegisterReader>,
    /// Mark of the newest message delivered or thrown away.
    newest: u64,
    /// The register's sequence that was delivered or thrown away last.
    done_sequence: Option<u64>,
    /// Messages taken from the register.
    taken_count: u64,
    /// Of these, those that landed.
    delivered_from_register: u64,
    /// Whether `taken_count` and `newest` are still to be written to the sender.
    must_report: bool,
}

/// A message found in the register.
#[derive(Clone, Copy, Debug)]
struct Found {
    head: Head,
    /// The sender's count.
    mark: u64,
    /// The register's sequence.
    sequence: u64,
}

/// How an attempt to read the register ended.
enum Attempted {
    Nothing,
    Later,
    Delivered,
    Discarded,
}

impl<A: RemoteAccess> LatestReceiver<A> {
    /// A receiver from `register`, with `ring` beside it.
    pub fn new(
        base: ReceiverBase<A>,
        ring: RingConsumer<CreditWriter<A>>,
        register: Option<RegisterReader>,
    ) -> LatestReceiver<A> {
        LatestReceiver {
            base,
            inbox: Inbox::new(ring),
            register,
            newest: 0,
            done_sequence: None,
            taken_count: 0,
            delivered_from_register: 0,
            must_report: false,
        }
    }

    /// Takes messages from the ring. Returns how many were delivered, and whether the sink refused
    /// one for now.
    fn poll_ring(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<(usize, bool), ChannelError> {
        let (mut delivered, mut left, mut put_off) = (0, budget, false);
        while left > 0 {
            if !self.inbox.is_open() {
                if !self.inbox.has_entry() {
                    break;
                }
                // The register's message may have come just before this entry, an event that
                // announces it: the message first.
                match self.take_register(sink)? {
                    Attempted::Delivered => {
                        delivered += 1;
                        left -= 1;
                        continue;
                    }
                    Attempted::Later => {
                        put_off = true;
                        break;
                    }
                    Attempted::Nothing | Attempted::Discarded => {}
                }
            }
            let newest = self.newest;
            let mut seen = newest;
            let step = self.inbox.step(sink, |head, mark| {
                // An event is behind the message that it announces, and replaces none.
                if head.kind == Kind::Data {
                    seen = mark.max(newest);
                }
                head.kind == Kind::Notify || mark > newest
            })?;
            if step != Step::Later {
                self.newest = seen;
            }
            match step {
                Step::Delivered => {
                    delivered += 1;
                    left -= 1;
                }
                Step::Discarded => left -= 1,
                Step::Piece => {}
                Step::Later => {
                    put_off = true;
                    break;
                }
                Step::Empty => break,
            }
        }
        Ok((delivered, put_off))
    }

    /// [`poll_register`](Self::poll_register), with what is to be noted of it.
    fn take_register(&mut self, sink: &mut dyn Sink) -> Result<Attempted, ChannelError> {
        let attempted = self.poll_register(sink)?;
        match attempted {
            Attempted::Nothing | Attempted::Later => {}
            Attempted::Delivered => {
                self.delivered_from_register += 1;
                self.must_report = true;
            }
            Attempted::Discarded => self.must_report = true,
        }
        Ok(attempted)
    }

    /// Takes the register's message, if it is newer than what was delivered.
    fn poll_register(&mut self, sink: &mut dyn Sink) -> Result<Attempted, ChannelError> {
        let Some(register) = &mut self.register else {
            return Ok(Attempted::Nothing);
        };
        let sequence = register.peek_sequence();
        if sequence.is_none() || sequence == self.done_sequence {
            return Ok(Attempted::Nothing);
        }
        // The head first: the sink must not be asked about one that may be torn.
        let Some(mut found) = read_head(register)? else {
            return Ok(Attempted::Nothing);
        };
        if found.mark <= self.newest {
            self.done_sequence = Some(found.sequence);
            return Ok(Attempted::Nothing);
        }
        let mut verdict = sink.land(&found.head);
        for _ in 0..RETRIES {
            match verdict {
                Verdict::Land => {}
                Verdict::Later => return Ok(Attempted::Later),
                Verdict::Discard => {
                    (self.newest, self.done_sequence) = (found.mark, Some(found.sequence));
                    return Ok(Attempted::Discarded);
                }
            }
            match land(register, &found.head, sink) {
                Err(error) => {
                    sink.abandon();
                    return Err(error);
                }
                Ok(Some(newer)) if same_lengths(&found.head, &newer.head) => {
                    sink.deliver(&newer.head);
                    (self.newest, self.done_sequence) = (newer.mark, Some(newer.sequence));
                    self.taken_count += 1;
                    return Ok(Attempted::Delivered);
                }
                Ok(Some(newer)) => {
                    // A message of another length came meanwhile: it needs another place.
                    sink.abandon();
                    found = newer;
                    verdict = sink.land(&found.head);
                }
                Ok(None) => std::hint::spin_loop(),
            }
        }
        // The writer was faster each time; the next poll tries again.
        if verdict == Verdict::Land {
            sink.abandon();
        }
        Ok(Attempted::Nothing)
    }

    /// Writes to the sender how many messages were taken from the register, and the last one's
    /// mark.
    fn report(&mut self) {
        let Ok(_guard) = self.base.permission.begin_write() else {
            return;
        };
        let credit = &mut self.base.credit;
        let told = credit
            .publish(CREDIT_TAKEN_COUNT_AT, self.taken_count)
            .and_then(|()| credit.publish(CREDIT_TAKEN_SEQUENCE_AT, self.newest));
        credit.flush();
        // If the bus was busy, the next poll repeats it.
        self.must_report = told.is_err();
    }

    /// Polls register and ring once. Returns how many messages were delivered, and whether the sink
    /// refused one for now.
    fn look(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<(usize, bool), ChannelError> {
        let (mut delivered, mut put_off) = (0, false);
        // A message that the sink has begun comes first: it has one landing place.
        if !self.inbox.is_open() {
            match self.take_register(sink)? {
                Attempted::Nothing | Attempted::Discarded => {}
                Attempted::Later => put_off = true,
                Attempted::Delivered => delivered = 1,
            }
        }
        if !put_off && delivered < budget {
            let (from_ring, later) = self.poll_ring(sink, budget - delivered)?;
            delivered += from_ring;
            put_off = later;
        }
        if self.base.should_report(delivered == 0) {
            self.acknowledge();
        }
        Ok((delivered, put_off))
    }

    /// How far this end has come, see [`Waker`] on marks.
    fn mark(&self) -> u64 {
        let from_register = self
            .done_sequence
            .map_or(0, |sequence| sequence.wrapping_sub(self.base.tag));
        self.inbox.mark().wrapping_add(from_register)
    }
}

const CORRUPT_REGISTER: ChannelError = ChannelError::Corrupt("a register that breaks its protocol");

/// The head in the register, read whole.
fn read_head(register: &mut RegisterReader) -> Result<Option<Found>, ChannelError> {
    for _ in 0..RETRIES {
        let Some(mut attempt) = register.begin().map_err(|_| CORRUPT_REGISTER)? else {
            return Ok(None);
        };
        let sample = attempt.sample();
        let mut head = [0; HEAD_BYTES];
        let copied = attempt.copy(0, &mut head).is_ok();
        let head = copied.then(|| Head::decode(&head)).flatten();
        let head = head.filter(|head| head.total_bytes() == Some(sample.len_bytes as u64));
        let is_valid = attempt.validate_sense(head.is_some());
        if let (true, Some(head)) = (is_valid.map_err(|_| CORRUPT_REGISTER)?, head) {
            return Ok(Some(Found {
                head,
                mark: sample.time_ns,
                sequence: sample.sequence,
            }));
        }
    }
    Ok(None)
}

/// Copies the register's message to the landing place of one with `head`. `None`: the writer was
/// faster. If the returned head has other lengths than `head`, nothing was copied.
fn land(
    register: &mut RegisterReader,
    head: &Head,
    sink: &mut dyn Sink,
) -> Result<Option<Found>, ChannelError> {
    let Some(mut attempt) = register.begin().map_err(|_| CORRUPT_REGISTER)? else {
        return Ok(None);
    };
    let sample = attempt.sample();
    let mut newer = [0; HEAD_BYTES];
    let mut copied = attempt.copy(0, &mut newer).is_ok();
    let newer = Head::decode(&newer);
    if newer.as_ref().is_some_and(|newer| same_lengths(head, newer)) {
        let Landing { user_header, payload } = sink.landing();
        if user_header.len() as u64 != u64::from(head.user_header_bytes)
            || payload.len() as u64 != head.payload_bytes
        {
            return Err(ChannelError::Corrupt(
                "a landing place whose lengths are not those of the head",
            ));
        }
        copied = copied
            && attempt.copy(HEAD_BYTES, user_header).is_ok()
            && attempt.copy(HEAD_BYTES + user_header.len(), payload).is_ok();
    }
    let newer = newer.filter(|newer| copied && newer.total_bytes() == Some(sample.len_bytes as u64));
    let is_valid = attempt.validate_sense(newer.is_some());
    if !is_valid.map_err(|_| CORRUPT_REGISTER)? {
        return Ok(None);
    }
    Ok(newer.map(|head| Found {
        head,
        mark: sample.time_ns,
        sequence: sample.sequence,
    }))
}

fn same_lengths(a: &Head, b: &Head) -> bool {
    a.payload_bytes == b.payload_bytes && a.user_header_bytes == b.user_header_bytes
}

impl<A: RemoteAccess> Receiver for LatestReceiver<A> {
    fn poll(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<usize, ChannelError> {
        self.base.waker.poll();
        let over = self.base.end_reason();
        if budget == 0 {
            return Ok(0);
        }
        let (mut delivered, mut put_off) = self.look(sink, budget)?;
        while delivered == 0 && !put_off && over.is_none() && self.base.waker.prepare_sleep(self.mark()) {
            (delivered, put_off) = self.look(sink, budget)?;
        }
        match over {
            Some(error) if delivered == 0 && !put_off => {
                self.inbox.abandon(sink);
                Err(error)
            }
            _ => Ok(delivered),
        }
    }

    fn acknowledge(&mut self) {
        if self.must_report {
            self.report();
        }
        self.inbox.flush_credits();
    }

    fn copied(&self) -> Option<u64> {
        Some(self.delivered_from_register + self.inbox.landed())
    }

    fn wait_for(&self) -> WaitFor {
        self.base.wait_for
    }
}

impl<A: RemoteAccess> Drop for LatestReceiver<A> {
    fn drop(&mut self) {
        self.base.close();
    }
}
