//! The receiving end of a channel of ARINC 653 ports.
//!
//! Called by the lane that owns it; never blocks. If a queue is full and may lose nothing, its next
//! message stays in the bus's channel. Messages that came before are discarded: the sender of a
//! queue repeats every message that was not acknowledged.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use busway_port::carry::{Doorbell, PortReceiver};
use busway_transport::{ChannelError, Head, Landing, Receiver, Sink, Verdict, WaitFor};

use super::head;
use crate::clock::Wire;
use crate::counters::{PortCounters, add};
use crate::lane::interface::ChannelKey;

/// Most messages taken before the other channels of the lane get their turn.
const BUDGET: usize = 64;
/// Polls after the last message, in which the bus returns the credits that it still owes.
const AFTER_POLLS: u32 = 64;

pub struct InboundPort {
    key: ChannelKey,
    receiver: Box<dyn Receiver>,
    /// epoll reports a message.
    is_ready: bool,
    /// The doorbell has been armed before, so it may ring, even late.
    was_armed: bool,
    /// Polls since the last message.
    quiet_polls: u32,
    /// The other host writes the queue itself: here messages are only counted.
    is_landed: bool,
    sink: PortSink,
}

struct PortSink {
    port_receiver: PortReceiver,
    wire: Wire,
    counters: Arc<PortCounters>,
    buffer: Box<[u8]>,
    /// Length of the message being received.
    len_bytes: usize,
    /// A message found its queue full at the last poll.
    waits_for_room: bool,
}

impl InboundPort {
    /// Continues after the last message that the port received.
    pub fn new(
        key: ChannelKey,
        port_receiver: PortReceiver,
        receiver: Box<dyn Receiver>,
        wire: Wire,
        counters: Arc<PortCounters>,
    ) -> InboundPort {
        let buffer = vec![0; port_receiver.max_message_size_bytes()].into();
        InboundPort {
            key,
            receiver,
            is_ready: true,
            was_armed: false,
            quiet_polls: 0,
            is_landed: false,
            sink: PortSink {
                port_receiver,
                wire,
                counters,
                buffer,
                len_bytes: 0,
                waits_for_room: false,
            },
        }
    }

    /// The same, of a channel whose sender writes the queue itself: the port has given it away.
    pub fn landed(self) -> InboundPort {
        InboundPort {
            is_landed: true,
            ..self
        }
    }

    pub fn key(&self) -> ChannelKey {
        self.key
    }

    /// How to wait for messages.
    pub fn wait_for(&self) -> WaitFor {
        self.receiver.wait_for()
    }

    /// epoll reports a message, or the doorbell.
    pub fn set_ready(&mut self) {
        self.is_ready = true;
        if let Some(doorbell) = self.doorbell().filter(|_| self.was_armed) {
            doorbell.clear();
        }
    }

    /// If the sender is to be told of room, or a message here waits for it, the reader that makes
    /// room rings from now on.
    pub fn arm(&mut self) {
        if self.awaits_room()
            && let Some(doorbell) = self.doorbell()
        {
            doorbell.arm();
            self.was_armed = true;
        }
    }

    /// Whether it must be polled since nothing wakes the lane: to return credits, or to look for
    /// room in a queue without doorbell.
    pub fn is_polled(&self) -> bool {
        self.quiet_polls < AFTER_POLLS || self.awaits_room() && self.sink.port_receiver.doorbell().is_none()
    }

    /// Whether the next message that a program receives makes room that somebody may wait for: a
    /// message here, or the sender that writes the queue itself. While it has room, it is told with
    /// the next message that comes.
    fn awaits_room(&self) -> bool {
        self.waits_for_room() || self.is_landed && self.sink.port_receiver.is_half_full()
    }

    /// Whether a message waits for room in a queue.
    pub fn waits_for_room(&self) -> bool {
        self.sink.waits_for_room
    }

    /// Rings when a full queue has room.
    pub fn doorbell(&self) -> Option<&Doorbell> {
        self.sink.port_receiver.doorbell()
    }

    /// The doorbell's descriptor.
    pub fn doorbell_fd(&self) -> Option<RawFd> {
        self.doorbell().map(|doorbell| doorbell.fd().as_raw_fd())
    }

    /// Counts messages that found room although no doorbell had rung.
    pub fn note_unrung(&self, messages: usize) {
        add(&self.sink.counters.unrung, messages as u64);
    }

    /// Takes messages that have arrived. `eager`: reads descriptors although epoll has reported
    /// none. Returns the number of messages.
    pub fn pump(&mut self, eager: bool) -> Result<usize, ChannelError> {
        let is_unfinished = self.waits_for_room() || self.quiet_polls < AFTER_POLLS;
        let is_quiet = !self.is_ready && !eager && !is_unfinished;
        if is_quiet && matches!(self.receiver.wait_for(), WaitFor::Fd { .. }) {
            return Ok(0);
        }
        self.sink.waits_for_room = false;
        let moved = self.receiver.poll(&mut self.sink, BUDGET)?;
        if self.is_landed {
            add(&self.sink.counters.received, moved as u64);
        }
        self.is_ready = moved >= BUDGET;
        self.quiet_polls = if moved > 0 {
            0
        } else {
            self.quiet_polls.saturating_add(1)
        };
        Ok(moved)
    }
}

impl Sink for PortSink {
    fn land(&mut self, head: &Head) -> Verdict {
        let limit = self.buffer.len() as u64;
        if !head::is_valid(head, limit) {
            add(&self.counters.refused, 1);
            return Verdict::Discard;
        }
        if self.port_receiver.is_old(head.origin, head.sequence) {
            add(&self.counters.duplicates, 1);
            return Verdict::Discard;
        }
        if !self.port_receiver.has_room() {
            self.waits_for_room = true;
            return Verdict::Later;
        }
        self.len_bytes = head.payload_bytes as usize;
        Verdict::Land
    }

    fn landing(&mut self) -> Landing<'_> {
        Landing {
            user_header: &mut [],
            payload: &mut self.buffer[..self.len_bytes],
        }
    }

    fn deliver(&mut self, head: &Head) {
        let carried = head::carried(head, &self.wire);
        let message = &self.buffer[..self.len_bytes];
        if self.port_receiver.deliver(message, head.origin, &carried) {
            add(&self.counters.received, 1);
            add(&self.counters.received_bytes, head.payload_bytes);
        } else {
            add(&self.counters.refused, 1);
        }
    }

    fn abandon(&mut self) {}
}
