//! A channel of ARINC 653 ports that comes from another host.
//!
//! Called by the lane that owns it; never blocks. A message for a full queue that holds its senders back waits in the bus's channel. What came before is
//! thrown away: a queue's sender repeats what it does not know to have arrived.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use busway_port::carry::{Bell, Carried, Spout};
use busway_transport::{ChannelError, Head, Kind, Landing, Receiver, Sink, Verdict, WaitFor};

use super::ChannelKey;
use crate::clock::Wire;
use crate::counters::{PortCounters, add};

/// Messages taken in one go before the other channels of the lane get their turn.
const BUDGET: usize = 64;
/// A channel is polled so often after its last message, so that its bus gives back what credits it still owes.
const AFTER_POLLS: u32 = 64;

/// See the module.
pub struct PortIn {
    key: ChannelKey,
    receiver: Box<dyn Receiver>,
    /// epoll has said that there is something.
    is_ready: bool,
    /// The bell was armed some time, so it may have been rung, even late.
    was_armed: bool,
    /// Polls since the last message.
    quiet_polls: u32,
    sink: PortSink,
}

struct PortSink {
    spout: Spout,
    wire: Wire,
    counters: Arc<PortCounters>,
    buffer: Box<[u8]>,
    /// Length of the message being received.
    len_bytes: usize,
    /// A message found its queue full at the last poll.
    is_put_off: bool,
}

impl PortIn {
    /// Goes on behind what the spout was given before.
    pub fn new(
        key: ChannelKey,
        spout: Spout,
        receiver: Box<dyn Receiver>,
        wire: Wire,
        counters: Arc<PortCounters>,
    ) -> PortIn {
        let buffer = vec![0; spout.max_message_size_bytes()].into();
        PortIn {
            key,
            receiver,
            is_ready: true,
            was_armed: false,
            quiet_polls: 0,
            sink: PortSink {
                spout,
                wire,
                counters,
                buffer,
                len_bytes: 0,
                is_put_off: false,
            },
        }
    }

    /// The channel.
    pub fn key(&self) -> ChannelKey {
        self.key
    }

    /// How to sleep until something comes.
    pub fn wait_for(&self) -> WaitFor {
        self.receiver.wait_for()
    }

    /// epoll has said that there is something, or that the bell was rung.
    pub fn set_ready(&mut self) {
        self.is_ready = true;
        if let Some(bell) = self.bell().filter(|_| self.was_armed) {
            bell.clear();
        }
    }

    /// From now on who makes room in a queue rings, if a message waits for that.
    pub fn arm(&mut self) {
        if self.awaits_room()
            && let Some(bell) = self.bell()
        {
            bell.arm();
            self.was_armed = true;
        }
    }

    /// Whether it must be polled although nothing wakes the lane: for credits owed, or for room in a queue that nobody announces.
    pub fn is_polled(&self) -> bool {
        self.quiet_polls < AFTER_POLLS || self.awaits_room() && self.sink.spout.bell().is_none()
    }

    /// Whether a message waits for room in a queue.
    pub fn awaits_room(&self) -> bool {
        self.sink.is_put_off
    }

    /// Rings when a full queue has room.
    pub fn bell(&self) -> Option<&Bell> {
        self.sink.spout.bell()
    }

    /// The bell's descriptor.
    pub fn bell_fd(&self) -> Option<RawFd> {
        self.bell().map(|bell| bell.fd().as_raw_fd())
    }

    /// So many messages found room although nobody had rung.
    pub fn note_unrung(&self, messages: usize) {
        add(&self.sink.counters.unrung, messages as u64);
    }

    /// Takes what has arrived. `eager` reads descriptors even though epoll has said nothing. Returns how many messages came.
    ///
    /// # Errors
    /// The channel has ended or failed.
    pub fn pump(&mut self, eager: bool) -> Result<usize, ChannelError> {
        let is_unfinished = self.awaits_room() || self.quiet_polls < AFTER_POLLS;
        let is_quiet = !self.is_ready && !eager && !is_unfinished;
        if is_quiet && matches!(self.receiver.wait_for(), WaitFor::Fd { .. }) {
            return Ok(0);
        }
        self.sink.is_put_off = false;
        let moved = self.receiver.poll(&mut self.sink, BUDGET)?;
        self.is_ready = moved == BUDGET;
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
        let is_possible = head.kind == Kind::Data
            && head.user_header_bytes == 0
            && (1..=limit).contains(&head.payload_bytes)
            && head.sequence > 0
            && head.origin != 0;
        if !is_possible {
            add(&self.counters.refused, 1);
            return Verdict::Discard;
        }
        if self.spout.is_old(head.origin, head.sequence) {
            add(&self.counters.duplicates, 1);
            return Verdict::Discard;
        }
        if !self.spout.has_room() {
            self.is_put_off = true;
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
        let carried = Carried {
            len_bytes: self.len_bytes,
            time_ns: self.wire.arrived(head.time_ns),
            sequence: head.sequence,
            lost: head.events,
        };
        let message = &self.buffer[..self.len_bytes];
        if self.spout.deliver(message, head.origin, &carried) {
            add(&self.counters.received, 1);
            add(&self.counters.received_bytes, head.payload_bytes);
        } else {
            add(&self.counters.refused, 1);
        }
    }

    fn abandon(&mut self) {}
}
