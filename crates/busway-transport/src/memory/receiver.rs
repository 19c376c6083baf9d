//! The receiving ends of channels.
//!
//! Contract: an end reads the window that this host reads, writes its credit entry only inside its [`Gate`], and never
//! waits. Lanes call it through [`Receiver`]. Nothing here allocates after construction.
//!
//! After the link went down an end delivers what had arrived whole, then fails: its landing place is not used anew before
//! the end is dropped (see [`super::landings`]).

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use busway_core::register::RegisterReader;
use busway_core::ring::RingConsumer;
use busway_core::{RemoteError, RemoteWrite, Window};

use super::bell::Wake;
use super::gate::Gate;
use super::inbox::{Inbox, Step};
use super::landings::Lease;
use super::layout::{CREDIT_CLOSED_AT, CREDIT_TAKEN_COUNT_AT, CREDIT_TAKEN_SEQUENCE_AT};
use super::mapping::Mapped;
use super::place::{SENDER_CLOSED_AT, SENDER_WANTS_AT};
use crate::channel::{ChannelError, Landing, Receiver, Sink, Verdict, WaitFor};
use crate::message::{HEAD_BYTES, Head, Kind};

/// How often a read of the register is tried anew within one poll.
const RETRIES: u32 = 16;

/// Where credits go: the channel's entry in the window that this host writes, behind the gate.
#[derive(Debug)]
pub struct Bank {
    gate: Gate,
    /// The credit entry.
    credit: Window,
    /// The sender's line, in the window that this host reads.
    line: Window,
    /// Wakes the sender's lane.
    wake: Option<Wake>,
}

impl Bank {
    fn store(&self, at: usize, word: u64) {
        if let Some(_inside) = self.gate.enter() {
            let _ = self.credit.store(at, word);
        }
    }

    /// Wakes the sender if it waits for the credits that were just published.
    fn settle(&mut self) {
        let Some(wake) = &mut self.wake else { return };
        // Partner: the fence in `sender::Shore::want_credit`.
        fence(Ordering::SeqCst);
        if self.line.load(SENDER_WANTS_AT).unwrap_or_default() != 0 {
            wake.wake();
        }
    }
}

impl RemoteWrite for Bank {
    fn len_bytes(&self) -> usize {
        self.credit.len_bytes()
    }

    fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError> {
        let _inside = self.gate.enter().ok_or(RemoteError::Disconnected)?;
        Ok(self.credit.write(offset, header, parts)?)
    }

    fn fence(&mut self) {
        self.credit.write_fence();
    }

    fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        let _inside = self.gate.enter().ok_or(RemoteError::Disconnected)?;
        Ok(self.credit.store(offset, word)?)
    }

    fn flush(&mut self) {
        RemoteWrite::flush(&mut self.credit);
        self.settle();
    }
}

/// What both kinds of receiver have in common.
#[derive(Debug)]
pub struct ReceiverBase {
    /// Names the landing place, see [`super::place::LandingPlace::tag`].
    pub tag: u64,
    /// The way to the credit entry, for closing it.
    pub gate: Gate,
    /// The sender's line of the place, in the window that this host reads.
    pub line: Window,
    /// The channel's credit entry, in the window that this host writes.
    pub credit: Window,
    /// How this host's lane waits.
    pub wait_for: WaitFor,
    /// Keeps the landing place from being used anew.
    pub _lease: Arc<Lease>,
    /// Keep both windows mapped.
    pub _mapped: [Mapped; 2],
}

impl ReceiverBase {
    /// Where the ring's credits go. `gate` is one for this alone.
    pub fn bank(&self, gate: Gate, wake: Option<Wake>) -> Bank {
        Bank {
            gate,
            credit: self.credit.clone(),
            line: self.line.clone(),
            wake,
        }
    }

    /// Why nothing more will come, if that is so. To be asked *before* a last look for messages.
    fn over(&self) -> Option<ChannelError> {
        if self.gate.has_ended() {
            let kind = std::io::ErrorKind::ConnectionReset;
            return Some(ChannelError::Io(std::io::Error::new(kind, "the link went down")));
        }
        // Acquire: the look that follows sees all that was sent before. Partner: the fence in `sender::Shore::close`.
        let closed = self.line.load_acquire(SENDER_CLOSED_AT).unwrap_or_default() == self.tag;
        closed.then_some(ChannelError::Closed)
    }

    /// Tells the sender that nobody listens any more.
    fn close(&self) {
        if let Some(_inside) = self.gate.enter() {
            let _ = self.credit.store(CREDIT_CLOSED_AT, self.tag);
            self.credit.write_fence();
        }
    }
}

/// Receives on a channel that keeps every message.
#[derive(Debug)]
pub struct QueueReceiver {
    base: ReceiverBase,
    inbox: Inbox,
}

impl QueueReceiver {
    /// A receiver from `ring`.
    pub fn new(base: ReceiverBase, ring: RingConsumer<Bank>) -> QueueReceiver {
        QueueReceiver {
            base,
            inbox: Inbox::new(ring),
        }
    }
}

impl Receiver for QueueReceiver {
    fn poll(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<usize, ChannelError> {
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
                    over = self.base.over();
                    if over.is_none() {
                        break;
                    }
                }
            }
        }
        self.inbox.settle();
        match over {
            // What was delivered is reported first; the next poll finds nothing and says why.
            Some(error) if delivered == 0 && left > 0 && !self.inbox.is_open() => Err(error),
            _ => Ok(delivered),
        }
    }

    fn wait_for(&self) -> WaitFor {
        self.base.wait_for
    }
}

impl Drop for QueueReceiver {
    fn drop(&mut self) {
        self.base.close();
    }
}

/// Receives on a channel that keeps the newest message. See [`super::sender::LatestSender`].
#[derive(Debug)]
pub struct LatestReceiver {
    base: ReceiverBase,
    inbox: Inbox,
    /// For the words that tell the sender what was taken.
    bank: Bank,
    register: Option<RegisterReader>,
    /// Mark of the newest message delivered or thrown away.
    newest: u64,
    /// The register's sequence that was delivered or thrown away last.
    done_sequence: Option<u64>,
    /// Messages taken from the register.
    taken_count: u64,
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

impl LatestReceiver {
    /// A receiver from `register`, with `ring` beside it.
    pub fn new(
        base: ReceiverBase,
        ring: RingConsumer<Bank>,
        bank: Bank,
        register: Option<RegisterReader>,
    ) -> LatestReceiver {
        LatestReceiver {
            base,
            inbox: Inbox::new(ring),
            bank,
            register,
            newest: 0,
            done_sequence: None,
            taken_count: 0,
        }
    }

    /// Takes what is in the ring; returns how many were delivered, and whether the sink put one off.
    fn poll_ring(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<(usize, bool), ChannelError> {
        let (mut delivered, mut left, mut put_off) = (0, budget, false);
        while left > 0 {
            let newest = self.newest;
            let mut seen = newest;
            let step = self.inbox.step(sink, |head, mark| {
                seen = mark.max(newest);
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
        self.inbox.settle();
        Ok((delivered, put_off))
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

    /// Tells the sender how far this end has come.
    fn tell(&mut self) {
        self.bank.store(CREDIT_TAKEN_COUNT_AT, self.taken_count);
        self.bank.store(CREDIT_TAKEN_SEQUENCE_AT, self.newest);
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
        if attempt.validate().map_err(|_| CORRUPT_REGISTER)? {
            let head = copied.then(|| Head::decode(&head)).flatten();
            return match head {
                Some(head) if head.total_bytes() == Some(sample.len_bytes as u64) => Ok(Some(Found {
                    head,
                    mark: sample.time_ns,
                    sequence: sample.sequence,
                })),
                _ => Err(ChannelError::Corrupt("a register that holds no message")),
            };
        }
    }
    Ok(None)
}

/// Copies the register's message to where one with `head` lands. `None`: the writer was faster. If the head returned has
/// other lengths than `head`, nothing was copied.
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
    if !attempt.validate().map_err(|_| CORRUPT_REGISTER)? {
        return Ok(None);
    }
    match newer {
        Some(newer) if copied && newer.total_bytes() == Some(sample.len_bytes as u64) => Ok(Some(Found {
            head: newer,
            mark: sample.time_ns,
            sequence: sample.sequence,
        })),
        _ => Err(ChannelError::Corrupt("a register that holds no message")),
    }
}

fn same_lengths(a: &Head, b: &Head) -> bool {
    a.payload_bytes == b.payload_bytes && a.user_header_bytes == b.user_header_bytes
}

impl Receiver for LatestReceiver {
    fn poll(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<usize, ChannelError> {
        let over = self.base.over();
        if budget == 0 {
            return Ok(0);
        }
        // A message that the sink has begun comes first: it has one landing place.
        let mut delivered = 0;
        let mut put_off = false;
        if !self.inbox.is_open() {
            match self.poll_register(sink)? {
                Attempted::Nothing => {}
                Attempted::Later => put_off = true,
                Attempted::Delivered => {
                    delivered = 1;
                    self.tell();
                }
                Attempted::Discarded => self.tell(),
            }
        }
        if !put_off && delivered < budget {
            let (from_ring, later) = self.poll_ring(sink, budget - delivered)?;
            delivered += from_ring;
            put_off = later;
        }
        match over {
            Some(error) if delivered == 0 && !put_off => {
                self.inbox.abandon(sink);
                Err(error)
            }
            _ => Ok(delivered),
        }
    }

    fn wait_for(&self) -> WaitFor {
        self.base.wait_for
    }
}

impl Drop for LatestReceiver {
    fn drop(&mut self) {
        self.base.close();
    }
}
