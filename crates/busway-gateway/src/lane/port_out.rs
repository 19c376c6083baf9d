//! A channel of ARINC 653 ports on its way to another host.
//!
//! Called by the lane that owns it; never blocks. A sampling channel is looked at for a newer message, a queuing channel for the next one. What is in a
//! queue stays there until the other host has it: a full channel, or one that fails, loses nothing and holds the senders back as any full queue.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use busway_port::carry::{Bell, Tap};
use busway_transport::{ChannelError, Flushed, HEAD_BYTES, Head, Kind, Refused, Sender, WaitFor};

use super::ChannelKey;
use crate::clock::Wire;
use crate::counters::{PortCounters, add};
use crate::iox::ports::Outgoing;

/// Messages taken in one go before the other channels of the lane get their turn.
const BUDGET: usize = 64;
/// Memory for messages that a bus holds, in bytes: more buffers are for small messages.
const POOL_BYTES: usize = 4 << 20;
/// Most buffers.
const MAX_BUFFERS: usize = 32;
/// Looks for credits, on a bus that does not wake the lane for each, after the last message or credit.
const CREDIT_LOOKS: u32 = 64;

/// See the module.
pub struct PortOut {
    key: ChannelKey,
    tap: Tap,
    sender: Box<dyn Sender<Outgoing>>,
    wire: Wire,
    counters: Arc<PortCounters>,
    /// Buffers, free where nobody else holds them; used in turn.
    pool: Vec<Arc<[u8]>>,
    cursor: usize,
    /// Refused by a full channel; goes first when there is room.
    pending: Option<Outgoing>,
    /// Number of the last message that the channel took.
    accepted: u64,
    /// Number of the last message that the other host is known to have.
    confirmed: u64,
    /// Something was accepted that the bus has not taken yet.
    waiting: bool,
    /// The channel had no room, or no buffer was free, when the next message was to be taken.
    starved: bool,
    /// Something was given to the sender since the last flush.
    touched: bool,
    /// Looks for credits that found none.
    credit_looks: u32,
}

impl PortOut {
    /// Begins with what the tap has that was not confirmed.
    pub fn new(
        key: ChannelKey,
        tap: Tap,
        sender: Box<dyn Sender<Outgoing>>,
        wire: Wire,
        counters: Arc<PortCounters>,
    ) -> PortOut {
        let size_bytes = tap.max_message_size_bytes();
        let buffers = (POOL_BYTES / size_bytes).clamp(2, MAX_BUFFERS);
        PortOut {
            key,
            tap,
            sender,
            wire,
            counters,
            pool: (0..buffers).map(|_| vec![0; size_bytes].into()).collect(),
            cursor: 0,
            pending: None,
            accepted: 0,
            confirmed: 0,
            waiting: false,
            starved: false,
            touched: false,
            credit_looks: 0,
        }
    }

    /// The channel.
    pub fn key(&self) -> ChannelKey {
        self.key
    }

    /// Whether the other host, or the bus, has to do something before this side can go on.
    pub fn awaits_credit(&self) -> bool {
        self.waiting || self.starved || self.pending.is_some() || self.awaits_confirmation()
    }

    /// Whether a queue keeps messages that the other host is not known to have.
    fn awaits_confirmation(&self) -> bool {
        self.confirmed != self.accepted && self.tap.keeps_all()
    }

    /// Whether it must be looked at although nothing wakes the lane.
    pub fn is_polled(&self) -> bool {
        let credits_are = match self.sender.wait_for() {
            WaitFor::Fd { .. } => false,
            // Rings when there is room again, but not for every message that the other host has taken.
            WaitFor::Doorbell => self.awaits_confirmation() && self.credit_looks < CREDIT_LOOKS,
            WaitFor::Poll => self.awaits_credit(),
        };
        credits_are || self.tap.bell().is_none()
    }

    /// Rings when a message waits.
    pub fn bell(&self) -> Option<&Bell> {
        self.tap.bell()
    }

    /// The bell's descriptor.
    pub fn bell_fd(&self) -> Option<RawFd> {
        self.bell().map(|bell| bell.fd().as_raw_fd())
    }

    /// From now on who has written or sent a message rings.
    pub fn arm(&self) {
        if let Some(bell) = self.bell() {
            bell.arm();
        }
    }

    /// epoll has said that the bell was rung.
    pub fn set_ready(&self) {
        if let Some(bell) = self.bell() {
            bell.clear();
        }
    }

    /// So many messages were found although nobody had rung.
    pub fn note_unrung(&self, messages: usize) {
        add(&self.counters.unrung, messages as u64);
    }

    /// How to learn that it can go on.
    pub fn wait_for(&self) -> WaitFor {
        self.sender.wait_for()
    }

    /// Takes messages and sends them. Returns how many were taken.
    ///
    /// # Errors
    /// The channel has failed; what was not confirmed is still in the queue.
    pub fn pump(&mut self) -> Result<usize, ChannelError> {
        let mut taken = 0;
        self.starved = false;
        if let Some(message) = self.pending.take() {
            self.send(message)?;
        }
        while taken < BUDGET && self.pending.is_none() {
            let Some(message) = self.next() else { break };
            taken += 1;
            self.send(message)?;
        }
        if taken > 0 || self.touched || self.waiting || self.starved || self.sender.outstanding() > 0 {
            self.touched = false;
            self.waiting = self.sender.flush()? == Flushed::Waiting;
        }
        self.confirm();
        Ok(taken)
    }

    /// The next message, in a free buffer.
    fn next(&mut self) -> Option<Outgoing> {
        let count = self.pool.len();
        self.starved = true;
        let free = (0..count)
            .map(|step| (self.cursor + step) % count)
            .find(|index| Arc::get_mut(&mut self.pool[*index]).is_some())?;
        let buffer = Arc::get_mut(&mut self.pool[free])?;
        if !self.sender.has_room((HEAD_BYTES + buffer.len()) as u64) {
            return None;
        }
        self.starved = false;
        let carried = self.tap.next(buffer)?;
        self.cursor = free + 1;
        let head = Head {
            sequence: carried.sequence,
            origin: self.tap.origin(),
            time_ns: self.wire.leaving(carried.time_ns),
            payload_bytes: carried.len_bytes as u64,
            // Ports have no events; the place says what the queue had no room for.
            events: carried.lost,
            user_header_bytes: 0,
            kind: Kind::Data,
        };
        Some(Outgoing::port(head, self.pool[free].clone()))
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

    /// Frees the room of what the other host has. Numbers of a queue have no gaps.
    fn confirm(&mut self) {
        if self.confirmed == self.accepted {
            return;
        }
        let confirmed = self.accepted.saturating_sub(self.sender.outstanding());
        if confirmed > self.confirmed {
            self.tap.confirm(confirmed);
            self.confirmed = confirmed;
            self.credit_looks = 0;
        } else {
            self.credit_looks = self.credit_looks.saturating_add(1);
        }
    }
}
