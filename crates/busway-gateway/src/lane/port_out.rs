//! A channel of ARINC 653 ports on its way to another host.
//!
//! Called by the lane that owns it; never blocks. A sampling channel is looked at for a newer message, a queuing channel for the next one. What is in a
//! queue stays there until the other host has it: a full channel, or one that fails, loses nothing and holds the senders back as any full queue.

use std::sync::Arc;

use busway_port::carry::Tap;
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
    /// Something was given to the sender since the last flush.
    touched: bool,
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
            touched: false,
        }
    }

    /// The channel.
    pub fn key(&self) -> ChannelKey {
        self.key
    }

    /// Whether the channel holds something back.
    pub fn is_blocked(&self) -> bool {
        self.waiting || self.pending.is_some()
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
        if let Some(message) = self.pending.take() {
            self.send(message)?;
        }
        while taken < BUDGET && self.pending.is_none() {
            let Some(message) = self.next() else { break };
            taken += 1;
            self.send(message)?;
        }
        if taken > 0 || self.touched || self.waiting || self.sender.outstanding() > 0 {
            self.touched = false;
            self.waiting = self.sender.flush()? == Flushed::Waiting;
        }
        self.confirm();
        Ok(taken)
    }

    /// The next message, in a free buffer.
    fn next(&mut self) -> Option<Outgoing> {
        let count = self.pool.len();
        let free = (0..count)
            .map(|step| (self.cursor + step) % count)
            .find(|index| Arc::get_mut(&mut self.pool[*index]).is_some())?;
        let buffer = Arc::get_mut(&mut self.pool[free])?;
        if !self.sender.has_room((HEAD_BYTES + buffer.len()) as u64) {
            self.waiting = true;
            return None;
        }
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
        }
    }
}
