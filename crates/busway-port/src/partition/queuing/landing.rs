//! The sending end of a queue whose messages the other host writes into the ring itself.
//!
//! Contract: while the other host writes lines and data, this end keeps what else belongs to a
//! sender: its record, the word that receivers sleep on, and the wake-up. For the holder of the
//! port's lock. Called by [`crate::carry`].

use busway_core::ring::{Layout, Position, RingConsumer};
use busway_transport::contract::PortMemory;

use super::{QueueWriter, QueueWriters};
use crate::crash;

/// What [`QueueWriter::take_in`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakenIn {
    /// Messages that this end had not counted yet.
    pub(crate) messages: u64,
    /// Why the next line holds no message, though it says so: it has not arrived whole, or its
    /// writer broke the protocol.
    pub(crate) doubt: Option<Doubt>,
}

/// See [`TakenIn::doubt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The rest may still come.
    NotWhole,
    /// It never will be a message.
    Corrupt,
}

impl QueueWriters {
    /// The way to the only destination; `None` if there are several.
    pub(crate) fn only(&self) -> Option<&QueueWriter> {
        match &self.writers[..] {
            [writer] => Some(writer),
            _ => None,
        }
    }
}

impl QueueWriter {
    /// Lines and data, their shape and the most messages in the queue, for a bus.
    pub(crate) fn hand_over(&self) -> (PortMemory, Layout, usize) {
        let memory = PortMemory::new(self.ring.clone(), self.ring_area.clone());
        (memory, self.layout.ring, self.layout.depth)
    }

    /// Where the next message goes, as this end has recorded it.
    pub(crate) fn position(&self) -> Position {
        self.record().load()
    }

    pub(crate) fn is_half_full(&self) -> bool {
        2 * self.in_queue() >= self.layout.depth as u64
    }

    /// Whether the next line says to hold a message. Needs no lock.
    pub(crate) fn has_news(&self) -> bool {
        self.layout
            .ring
            .is_committed(&self.ring, self.record().load().line)
    }

    /// Records all messages that are there whole, and wakes who waits for them.
    pub(crate) fn take_in(&self) -> TakenIn {
        let position = self.record().load();
        let mut taken = TakenIn {
            messages: 0,
            doubt: None,
        };
        // Reads the ring as a receiver would. It writes no credits, so the window that it is given
        // for them does not matter.
        let consumer = RingConsumer::resume(self.ring.clone(), self.layout.ring, position, self.ring.clone());
        let Ok(mut consumer) = consumer else {
            return taken;
        };
        // At most one ring full, however fast the other host is.
        while taken.messages < self.layout.ring.lines() as u64 {
            match consumer.peek() {
                Ok(Some(_)) => {
                    consumer.release_later();
                    taken.messages += 1;
                }
                Ok(None) => {
                    let is_doubtful = consumer.counters().doubtful > 0;
                    taken.doubt = is_doubtful.then_some(Doubt::NotWhole);
                    break;
                }
                Err(_) => {
                    taken.doubt = Some(Doubt::Corrupt);
                    break;
                }
            }
        }
        if taken.messages > 0 {
            self.stand(consumer.position());
            crash::step("taken-in");
            self.wake();
        }
        taken
    }

    /// Takes back what the other host has written behind a message that never arrived, once it can
    /// write no more: the next messages are another sender's.
    pub(crate) fn erase_rest(&self) {
        let position = self.record().load();
        self.layout.ring.erase_from(&self.ring, position.line);
    }
}
