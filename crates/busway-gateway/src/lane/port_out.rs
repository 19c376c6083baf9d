//! A channel of ARINC 653 ports on its way to another host.
//!
//! Called by the fan (`lane/port_fan.rs`) that owns it; never blocks. A sampling channel is looked at for a newer message, a queuing channel for the next one. What is in a
//! queue stays there until the other host has it: a full channel, or one that fails, loses nothing and holds the senders back as any full queue.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use busway_port::carry::{Bell, Tap};
use busway_transport::{ChannelError, Company, Flushed, HEAD_BYTES, Head, Kind, Refused, Sender, WaitFor};

use super::ChannelKey;
use super::port_pool::Pool;
use crate::clock::Wire;
use crate::counters::{PortCounters, add};
use crate::iox::ports::Outgoing;

/// Looks for credits, on a bus that does not wake the lane for each, after the last message or credit.
const CREDIT_LOOKS: u32 = 64;

/// See the module.
pub struct PortOut {
    key: ChannelKey,
    /// Its name in the system file: one source, several hosts.
    channel: Arc<str>,
    tap: Tap,
    sender: Box<dyn Sender<Outgoing>>,
    wire: Wire,
    counters: Arc<PortCounters>,
    /// Memory for its messages, until it is [taken](Self::take_pool), and the number of its buffers.
    pool: Pool,
    buffers: usize,
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
        channel: Arc<str>,
        tap: Tap,
        sender: Box<dyn Sender<Outgoing>>,
        wire: Wire,
        counters: Arc<PortCounters>,
    ) -> PortOut {
        let pool = Pool::new(tap.max_message_size_bytes());
        PortOut {
            key,
            channel,
            tap,
            sender,
            wire,
            counters,
            buffers: pool.len(),
            pool,
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

    /// Whether both carry the messages of one source under the same heads.
    pub fn is_like(&self, other: &PortOut) -> bool {
        self.channel == other.channel
            && self.tap.origin() == other.tap.origin()
            && self.wire.leaves_like(&other.wire)
    }

    /// From now on it is given the same messages as the others of the company; whether its bus can make use of that.
    pub fn join(&mut self, company: &mut Company<Outgoing>) -> bool {
        self.sender.join(company)
    }

    /// Its memory, for whoever calls [`take`](Self::take). Once only.
    pub fn take_pool(&mut self) -> Pool {
        std::mem::take(&mut self.pool)
    }

    /// Number of buffers that it has brought along.
    pub fn buffers(&self) -> usize {
        self.buffers
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

    /// Begins a turn with what was refused before.
    ///
    /// # Errors
    /// As those of [`flush`](Self::flush).
    pub fn retry(&mut self) -> Result<(), ChannelError> {
        self.starved = false;
        match self.pending.take() {
            Some(message) => self.send(message),
            None => Ok(()),
        }
    }

    /// Takes the next message and gives it to the sender; whether there was one, and room for it. `is_shared`: other channels of the same source use the
    /// same memory.
    ///
    /// # Errors
    /// As those of [`flush`](Self::flush).
    pub fn take(&mut self, pool: &mut Pool, is_shared: bool) -> Result<bool, ChannelError> {
        if self.pending.is_some() {
            return Ok(false);
        }
        match self.next(pool, is_shared) {
            Some(message) => self.send(message).map(|()| true),
            None => Ok(false),
        }
    }

    /// Sends what was taken, and frees what the other host has.
    ///
    /// # Errors
    /// The channel has failed; what was not confirmed is still in the queue.
    pub fn flush(&mut self) -> Result<(), ChannelError> {
        if self.touched || self.waiting || self.starved || self.sender.outstanding() > 0 {
            self.touched = false;
            self.waiting = self.sender.flush()? == Flushed::Waiting;
        }
        self.confirm();
        Ok(())
    }

    /// The next message: where others have it already, in their buffer, else in a free one.
    fn next(&mut self, pool: &mut Pool, is_shared: bool) -> Option<Outgoing> {
        self.starved = true;
        let free = pool.free()?;
        // Who shares memory holds at most what it has brought along.
        let has_share = !is_shared || self.sender.outstanding() < self.buffers as u64;
        if !has_share
            || !self
                .sender
                .has_room((HEAD_BYTES + self.tap.max_message_size_bytes()) as u64)
        {
            self.sender.hold_back();
            return None;
        }
        self.starved = false;
        let tap = &mut self.tap;
        if is_shared
            && let Some(number) = tap.due_up_to(pool.newest())
            && let Some(message) = pool.find(number, |carried, bytes| tap.skip_same(carried, bytes))
        {
            return Some(message);
        }
        pool.fill(free, |buffer| {
            let carried = tap.next(buffer)?;
            let head = Head {
                sequence: carried.sequence,
                origin: tap.origin(),
                time_ns: self.wire.leaving(carried.time_ns),
                payload_bytes: carried.len_bytes as u64,
                // Ports have no events; the place says what the queue had no room for.
                events: carried.lost,
                user_header_bytes: 0,
                kind: Kind::Data,
            };
            Some((carried, head))
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
