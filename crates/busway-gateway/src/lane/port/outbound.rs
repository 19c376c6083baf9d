//! The sending end of a channel of ARINC 653 ports.
//!
//! Called by the [`super::fan_out`] that owns it; never blocks. A sampling channel sends its newest
//! message, a queuing channel each. A queue keeps its messages until the other host acknowledges
//! them: a channel that is full, or fails, loses nothing, and holds the senders back as any full
//! queue does.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use busway_port::carry::{Doorbell, PortSource};
use busway_transport::{ChannelError, Flushed, HEAD_BYTES, Refused, Sender, SenderGroup, WaitFor};

use super::buffer_pool::BufferPool;
use super::head;
use crate::clock::Wire;
use crate::counters::{PortCounters, add};
use crate::iox::sample::Outgoing;
use crate::lane::interface::ChannelKey;

/// Looks for credits after the last message or credit, on a bus that does not wake the lane for
/// each.
const CREDIT_LOOKS: u32 = 64;

pub struct OutboundPort {
    key: ChannelKey,
    /// Its name in the system file: one source, several hosts.
    channel: Arc<str>,
    port_source: PortSource,
    sender: Box<dyn Sender<Outgoing>>,
    wire: Wire,
    counters: Arc<PortCounters>,
    /// Memory for its messages, until it is [taken](Self::take_pool); and how many buffers that
    /// has.
    pool: BufferPool,
    buffers: usize,
    /// Refused by a full channel; goes first when there is room.
    pending: Option<Outgoing>,
    /// Number of the last message that the channel took.
    accepted: u64,
    /// Number of the last message that the other host is known to have.
    acknowledged: u64,
    /// Something was accepted that the bus has not taken yet.
    waiting: bool,
    /// The channel had no room, or no buffer was free, when the next message was to be taken.
    starved: bool,
    /// Something was given to the sender since the last flush.
    touched: bool,
    /// See [`can_continue`](Self::can_continue).
    can_continue: bool,
    /// Looks for credits that found none.
    credit_looks: u32,
}

impl OutboundPort {
    /// Starts with the messages that the source has not seen acknowledged.
    pub fn new(
        key: ChannelKey,
        channel: Arc<str>,
        port_source: PortSource,
        sender: Box<dyn Sender<Outgoing>>,
        wire: Wire,
        counters: Arc<PortCounters>,
    ) -> OutboundPort {
        let pool = BufferPool::new(port_source.max_message_size_bytes());
        OutboundPort {
            key,
            channel,
            port_source,
            sender,
            wire,
            counters,
            buffers: pool.len(),
            pool,
            pending: None,
            accepted: 0,
            acknowledged: 0,
            waiting: false,
            starved: false,
            touched: false,
            can_continue: false,
            credit_looks: 0,
        }
    }

    pub fn key(&self) -> ChannelKey {
        self.key
    }

    /// Whether both carry the messages of one source under the same heads.
    pub fn is_like(&self, other: &OutboundPort) -> bool {
        self.channel == other.channel
            && self.port_source.origin() == other.port_source.origin()
            && self.wire.leaves_like(&other.wire)
    }

    /// It sends the same messages as the other members from now on. Returns whether its bus can
    /// send one of them to several hosts at once.
    pub fn join(&mut self, group: &mut SenderGroup) -> bool {
        self.sender.join(group)
    }

    /// Hands its memory to the caller of [`take`](Self::take). Once only.
    pub fn take_pool(&mut self) -> BufferPool {
        std::mem::take(&mut self.pool)
    }

    /// Number of buffers that it contributes.
    pub fn buffers(&self) -> usize {
        self.buffers
    }

    /// Whether it waits for the other host or for the bus.
    pub fn awaits_credit(&self) -> bool {
        self.waiting || self.starved || self.pending.is_some() || self.awaits_acknowledgement()
    }

    /// Whether a queue keeps messages that the other host is not known to have.
    fn awaits_acknowledgement(&self) -> bool {
        self.acknowledged != self.accepted && self.port_source.keeps_all()
    }

    /// Whether it must be polled since nothing wakes the lane.
    pub fn is_polled(&self) -> bool {
        let credits_are = match self.sender.wait_for() {
            WaitFor::Fd { .. } => false,
            // Rings when there is room again, but not for every message that the other host has
            // taken.
            WaitFor::Doorbell => self.awaits_acknowledgement() && self.credit_looks < CREDIT_LOOKS,
            WaitFor::Poll => self.awaits_credit(),
        };
        credits_are || !self.wire.is_known() || self.port_source.doorbell().is_none()
    }

    /// Rings when a message waits.
    pub fn doorbell(&self) -> Option<&Doorbell> {
        self.port_source.doorbell()
    }

    /// The doorbell's descriptor.
    pub fn doorbell_fd(&self) -> Option<RawFd> {
        self.doorbell().map(|doorbell| doorbell.fd().as_raw_fd())
    }

    /// Writers and senders of messages ring from now on.
    pub fn arm(&self) {
        if let Some(doorbell) = self.doorbell() {
            doorbell.arm();
        }
    }

    /// epoll reports the doorbell.
    pub fn set_ready(&self) {
        if let Some(doorbell) = self.doorbell() {
            doorbell.clear();
        }
    }

    /// Counts messages that were found although no doorbell had rung.
    pub fn note_unrung(&self, messages: usize) {
        add(&self.counters.unrung, messages as u64);
    }

    /// What to wait for until it can continue.
    pub fn wait_for(&self) -> WaitFor {
        self.sender.wait_for()
    }

    /// Starts a turn: sends the message that was refused before.
    pub fn retry(&mut self) -> Result<(), ChannelError> {
        self.starved = false;
        match self.pending.take() {
            Some(message) => self.send(message),
            None => Ok(()),
        }
    }

    /// Takes the next message and hands it to the sender. Returns whether there was one, and room
    /// for it. `is_shared`: other channels of the same source use the same memory.
    pub fn take(&mut self, pool: &mut BufferPool, is_shared: bool) -> Result<bool, ChannelError> {
        if self.pending.is_some() {
            return Ok(false);
        }
        match self.next(pool, is_shared) {
            Some(message) => self.send(message).map(|()| true),
            None => Ok(false),
        }
    }

    /// Sends the messages taken, and frees those acknowledged.
    ///
    /// # Errors
    /// The channel has failed; the queue still has every message that was not acknowledged.
    pub fn flush(&mut self) -> Result<(), ChannelError> {
        let has_news = self.touched || self.waiting || self.starved || self.sender.outstanding() > 0;
        if has_news || self.sender.needs_flush() {
            self.touched = false;
            self.waiting = self.sender.flush()? == Flushed::Waiting;
        }
        let acknowledged = self.acknowledged;
        self.acknowledge();
        let has_room = self.acknowledged > acknowledged;
        self.can_continue = has_room && (self.starved || self.pending.is_some());
        Ok(())
    }

    /// Whether the last flush made the room for which messages wait: the bus wakes nobody then.
    pub fn can_continue(&self) -> bool {
        self.can_continue
    }

    /// The next message, in the buffer that another channel has read it into or else in a free one.
    fn next(&mut self, pool: &mut BufferPool, is_shared: bool) -> Option<Outgoing> {
        self.starved = true;
        if !self.wire.is_known() {
            return None;
        }
        let free = pool.free()?;
        // Of shared memory it holds at most as many buffers as it contributes.
        let has_share = !is_shared || self.sender.outstanding() < self.buffers as u64;
        if !has_share
            || !self
                .sender
                .has_room((HEAD_BYTES + self.port_source.max_message_size_bytes()) as u64)
        {
            self.sender.hold_back();
            return None;
        }
        self.starved = false;
        let port_source = &mut self.port_source;
        if is_shared
            && let Some(number) = port_source.due_up_to(pool.newest())
            && let Some(message) = pool.find(number, |carried, bytes| port_source.skip_same(carried, bytes))
        {
            return Some(message);
        }
        pool.fill(free, |buffer| {
            let carried = port_source.next(buffer)?;
            Some((carried, head::of(&carried, port_source.origin(), &self.wire)))
        })
    }

    fn send(&mut self, message: Outgoing) -> Result<(), ChannelError> {
        let (sequence, bytes) = (message.head.sequence, message.head.payload_bytes);
        self.touched = true;
        match self.sender.send(message) {
            Ok(()) => {
                add(&self.counters.sent, 1);
                add(&self.counters.sent_bytes, bytes);
            }
            Err(Refused::Full(message)) => {
                self.pending = Some(message);
                return Ok(());
            }
            // A bus that carries services carries messages of any length, in pieces.
            Err(Refused::TooLong { .. }) => add(&self.counters.refused, 1),
            Err(Refused::Failed(_, error)) => return Err(error),
        }
        self.accepted = sequence;
        self.credit_looks = 0;
        Ok(())
    }

    /// Frees the queue's room of messages that the other host has. Numbers of a queue have no gaps.
    fn acknowledge(&mut self) {
        if self.acknowledged == self.accepted {
            return;
        }
        let acknowledged = self.accepted.saturating_sub(self.sender.outstanding());
        if acknowledged > self.acknowledged {
            self.port_source.confirm(acknowledged);
            self.acknowledged = acknowledged;
            self.credit_looks = 0;
        } else {
            self.credit_looks = self.credit_looks.saturating_add(1);
        }
    }
}
