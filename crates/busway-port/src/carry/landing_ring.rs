//! A queuing channel whose messages the other host writes into the store itself, over a bus that
//! reaches registered memory (RDMA).
//!
//! Contract: [`PortReceiver::landing_ring`] gives the ring to the bus. From then on nobody else
//! writes lines and data, until the bus's end is dropped and the port is opened anew: then the ring
//! itself says which messages came. Both hosts count in step
//! ([`busway_transport::contract::LandingRing`]), and the port's words hold where that began, so a
//! gateway that was killed meanwhile needs nothing else. Called by the gateway: its control thread
//! opens, its lane takes in.
//!
//! Killed at any step: before `RING_AFTER` is set the other host has written nothing. After that
//! the successor walks over the messages that are there whole, counts them as delivered, and takes
//! back what lies behind a missing one; it may do so twice.

use busway_core::ring::Position;
use busway_transport::contract::{LandingRing, QueueNumbers, RingOwner};

use super::{Carried, Held, PortReceiver, PortSource};
use crate::config::{Direction, WhenFull};
use crate::counters::Counter;
use crate::crash;
use crate::partition::queuing::landing::Doubt;
use crate::partition::queuing::{QueueWriter, QueueWriters};
use crate::partition::{End, Partition};
use crate::store::layout::port;

use std::sync::Arc;

/// Looks at a message that is not whole before it counts as damaged: some seconds of polling.
const MOST_DOUBTS: u32 = 1 << 24;

impl PortReceiver {
    /// Gives the port's queue to a bus that lets the other host write it; `None` unless it is a
    /// queue with one destination that holds its sender back when it is full. This value is of no
    /// use for anything but its [doorbell](Self::doorbell) from then on.
    #[must_use]
    pub fn landing_ring(&self) -> Option<LandingRing> {
        let End::QueuingSource(writers) = &self.held.port().end else {
            return None;
        };
        let writer = writers.only()?;
        if writers.when_full() != WhenFull::Wait {
            return None;
        }
        let _lock = self.held.lock();
        self.held.settle_ring(writers);
        let (memory, layout, depth) = writer.hand_over();
        let position = writer.position();
        let owner = Owner {
            port: PortReceiver {
                doorbell: None,
                held: self.held.clone(),
            },
            position,
            doubts: 0,
        };
        Some(LandingRing {
            memory,
            layout,
            depth,
            position,
            released: writer.released(),
            numbers: QueueNumbers {
                origin: self.held.load(port::ORIGIN),
                newest: self.held.load(port::DELIVERED),
                lost: self.held.load(port::LOST_TOLD),
            },
            owner: Box::new(owner),
        })
    }

    /// Whether the sender of a queue may soon wait for room: else it need not be told of each
    /// message that a program receives.
    #[must_use]
    pub fn is_half_full(&self) -> bool {
        match &self.held.port().end {
            End::QueuingSource(writers) => writers.only().is_some_and(QueueWriter::is_half_full),
            _ => false,
        }
    }
}

impl PortSource {
    /// The numbers of a queuing port's messages: their origin, as [`claim`](Self::claim) gives it,
    /// the last one that the other host is known to have, and what the queue had no room for.
    pub fn queue_numbers(partition: &Arc<Partition>, name: &str, new_origin: u64) -> Option<QueueNumbers> {
        let origin = Self::claim(partition, name, new_origin)?;
        let held = Held::find(partition, name, Direction::Destination)?;
        let End::QueuingDestination(reader) = &held.port().end else {
            return None;
        };
        Some(QueueNumbers {
            origin,
            newest: reader.position().line,
            lost: reader.overflows(),
        })
    }
}

impl Held {
    /// Notes which messages the other host has written, if it wrote any. Under the lock; nobody
    /// writes the ring.
    pub(super) fn settle_ring(&self, writers: &QueueWriters) {
        let after = self.load(port::RING_AFTER);
        if after == 0 {
            return;
        }
        if let Some(writer) = writers.only() {
            writer.take_in();
            writer.erase_rest();
            let count = writer.position().line.wrapping_sub(after.wrapping_sub(1));
            let number = self.load(port::RING_NUMBER);
            self.store(port::DELIVERED, number.saturating_add(count));
        }
        crash::step("ring-counted");
        self.store(port::RING_AFTER, 0);
    }
}

/// What the bus's receiving end does with the store.
struct Owner {
    port: PortReceiver,
    /// Where the other host begins to write.
    position: Position,
    /// Looks at the next message that did not find it whole.
    doubts: u32,
}

impl Owner {
    fn writers(&self) -> Option<&QueueWriters> {
        match &self.port.held.port().end {
            End::QueuingSource(writers) => Some(writers),
            _ => None,
        }
    }

    fn writer(&self) -> Option<&QueueWriter> {
        self.writers()?.only()
    }
}

impl RingOwner for Owner {
    fn begin(&mut self, numbers: QueueNumbers) -> Result<(), String> {
        let (Some(writers), Some(writer)) = (self.writers(), self.writer()) else {
            return Err("the port is no queue with one destination".into());
        };
        let held = &self.port.held;
        let _lock = held.lock();
        if held.load(port::RING_AFTER) != 0 || writer.position() != self.position {
            return Err("messages came over another channel meanwhile: open this one anew".into());
        }
        // As if the sender's first message had come.
        let first = Carried {
            len_bytes: 1,
            time_ns: 0,
            sequence: numbers.newest.saturating_add(1),
            lost: numbers.lost,
        };
        let before = self.port.meet(numbers.origin, &first);
        self.port.tell_lost(writers, before, &first);
        held.store(port::DELIVERED, numbers.newest);
        // In this order: a gateway killed in between has noted nothing, or all.
        held.store(port::RING_NUMBER, numbers.newest);
        crash::step("ring-noted");
        held.store(port::RING_AFTER, self.position.line.wrapping_add(1));
        Ok(())
    }

    fn take_in(&mut self) -> Result<u64, &'static str> {
        let Some(writer) = self.writer() else {
            return Ok(0);
        };
        if !writer.has_news() {
            return Ok(0);
        }
        let lock = self.port.held.lock();
        let taken = writer.take_in();
        drop(lock);
        if taken.messages > 0 {
            self.port.held.count(Counter::Writes, taken.messages);
            self.doubts = 0;
        }
        match taken.doubt {
            Some(Doubt::Corrupt) => return Err("a line of a queue that is no message"),
            Some(Doubt::NotWhole) => self.doubts += 1,
            None => {}
        }
        if self.doubts > MOST_DOUBTS {
            return Err("a message of a queue whose bytes never fitted its checksum");
        }
        Ok(taken.messages)
    }

    fn placed(&self) -> u64 {
        self.writer().map_or(0, |writer| writer.position().line)
    }

    fn released(&self) -> Position {
        self.writer().map_or(Position::at_start(0), QueueWriter::released)
    }
}
