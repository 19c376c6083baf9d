//! The ends by which a gateway carries channels between hosts.
//!
//! Contract: the gateway is a partition of the store like any other (see [`crate::system`]): of a
//! channel that leaves the host it holds a destination port, through a [`PortSource`], and of one
//! that comes from elsewhere the source port, through a [`PortReceiver`].
//!
//! - Every message has a number within its *origin*, a store: a sampling message the register's
//!   sequence, a queuing message its place in the queue since the store was made. Both lie in the
//!   store, and so does the number that was delivered last: they outlive gateways.
//! - A queuing message stays in the source's queue until the other host has it
//!   ([`PortSource::confirm`]), and is sent again after an outage; a receiver knows what it was
//!   given before ([`PortReceiver::is_old`]). So a queue that crosses hosts loses nothing and
//!   repeats nothing, whichever gateway or link fails, as long as both hosts run; a full one holds
//!   its senders back or overflows, as any queue.
//! - A message keeps its source time ([`Carried::time_ns`]).
//!
//! - An end has a [`Doorbell`], which rings when a message waits, or when a full queue has room
//!   again.
//!
//! Nothing here waits, allocates (after `open`) or logs. Called by the gateway's lanes.

mod landing;
mod landing_ring;

pub use crate::own_writer::{WriterDesk, WriterEvent};

use std::sync::Arc;

use busway_core::ring::Position;

use crate::config::Direction;
use crate::counters::{Counter, Counting};
use crate::crash;
pub use crate::doorbell::Doorbell;
use crate::lock::Guard;
use crate::partition::queuing::QueueWriters;
use crate::partition::{End, Members, Partition, Port};
use crate::store::layout::port;
use crate::sync::Ordering;

/// What goes with a message from host to host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Length in bytes, at least 1.
    pub len_bytes: usize,
    /// Source time in nanoseconds of `CLOCK_MONOTONIC` of the host whose store this is.
    pub time_ns: i64,
    /// Number of the message within its origin, from 1.
    pub sequence: u64,
    /// Queuing: messages that the sending host's queue had no room for, ever.
    pub lost: u64,
}

/// One port of a joined partition.
#[derive(Debug, Clone)]
struct Held {
    partition: Arc<Partition>,
    /// In the partition's ports.
    index: usize,
}

impl Held {
    fn find(partition: &Arc<Partition>, name: &str, direction: Direction) -> Option<Self> {
        let index = partition.ports().iter().position(|port| {
            port.config.name == name
                && port.config.direction == direction
                && !matches!(port.end, End::Unconnected)
        })?;
        Some(Self {
            partition: partition.clone(),
            index,
        })
    }

    fn port(&self) -> &Port {
        &self.partition.ports()[self.index]
    }

    fn lock(&self) -> Guard<'_, Members> {
        self.partition.lock(self.port())
    }

    /// The port's doorbell; `None` where there is none, or it can't be had.
    fn doorbell(&self) -> Option<Doorbell> {
        let port = self.port();
        let path = port.doorbell_path.as_ref()?;
        Doorbell::open(path, &port.area)
            .inspect_err(|error| {
                tracing::warn!("{error}; the gateway looks at {} by itself", port.config.name)
            })
            .ok()
    }

    /// Relaxed throughout: the words are written under the port's lock, which orders them.
    fn load(&self, word: usize) -> u64 {
        self.port().area.word(word).load(Ordering::Relaxed)
    }

    fn store(&self, word: usize, value: u64) {
        self.port().area.word(word).store(value, Ordering::Relaxed);
    }

    fn count(&self, counter: Counter, count: u64) {
        Counting(&self.port().area).add(counter, count);
    }
}

/// Takes the messages of a channel that leaves this host. One a port at a time.
#[derive(Debug)]
pub struct PortSource {
    doorbell: Option<Doorbell>,
    held: Held,
    origin: u64,
    /// Queuing: behind the last message that [`next`](Self::next) gave; `None`: at the queue's
    /// front.
    position: Option<Position>,
    /// Sampling: number of the last message that [`next`](Self::next) gave.
    last: u64,
}

impl PortSource {
    /// Opens the destination port `name` of a joined partition. `new_origin`, not 0, becomes the
    /// store's name for this port if it has none. `None` if the partition has no such port with a
    /// channel.
    #[must_use]
    pub fn open(partition: &Arc<Partition>, name: &str, new_origin: u64) -> Option<Self> {
        let origin = Self::claim(partition, name, new_origin)?;
        let held = Held::find(partition, name, Direction::Destination)?;
        Some(Self {
            doorbell: held.doorbell(),
            held,
            origin,
            position: None,
            last: 0,
        })
    }

    /// Gives a port its origin, as [`open`](Self::open) does, and returns it. Ports of one source
    /// that get it with one `new_origin` can share their messages ([`skip_same`](Self::skip_same)),
    /// whenever each of them is opened.
    pub fn claim(partition: &Arc<Partition>, name: &str, new_origin: u64) -> Option<u64> {
        let held = Held::find(partition, name, Direction::Destination)?;
        let _lock = held.lock();
        if held.load(port::ORIGIN) == 0 {
            held.store(port::ORIGIN, new_origin);
        }
        Some(held.load(port::ORIGIN))
    }

    /// Rings when a message waits; `None`: look now and then.
    #[must_use]
    pub fn doorbell(&self) -> Option<&Doorbell> {
        self.doorbell.as_ref()
    }

    /// Whether every message is kept until it is confirmed: a queuing port.
    #[must_use]
    pub fn keeps_all(&self) -> bool {
        matches!(self.held.port().end, End::QueuingDestination(_))
    }

    /// Whose numbers the messages carry.
    #[must_use]
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Longest message in bytes.
    #[must_use]
    pub fn max_message_size_bytes(&self) -> usize {
        self.held.port().config.max_size()
    }

    /// Copies the next message into `buffer`, which is as long as the longest: of a sampling
    /// channel the latest, if it was not given before; of a queuing channel the one behind that
    /// given last, which stays in the queue until it is confirmed.
    pub fn next(&mut self, buffer: &mut [u8]) -> Option<Carried> {
        let port = self.held.port();
        let carried = match &port.end {
            End::SamplingDestination(latest) => {
                if latest.newest_sequence().is_none_or(|newest| newest <= self.last) {
                    return None;
                }
                let place = self.held.partition.members().place();
                // Counts.
                let delivered = latest.read(buffer, &Counting(&port.area), place).ok()?;
                if delivered.sequence <= self.last {
                    return None;
                }
                self.last = delivered.sequence;
                Carried {
                    len_bytes: delivered.len_bytes,
                    time_ns: delivered.time_ns,
                    sequence: delivered.sequence,
                    lost: 0,
                }
            }
            End::QueuingDestination(reader) => {
                let lost = reader.overflows();
                let Some((len_bytes, time_ns, behind)) = reader.look(self.position, buffer) else {
                    if reader.is_damaged() {
                        let _lock = self.held.lock();
                        reader.skip_damage();
                        self.position = None;
                    }
                    return None;
                };
                self.position = Some(behind);
                self.held.count(Counter::Reads, 1);
                Carried {
                    len_bytes,
                    time_ns,
                    sequence: behind.line,
                    lost,
                }
            }
            _ => return None,
        };
        Some(carried)
    }

    /// Number of the message that this source could take over from another one of the same source,
    /// which has given messages up to `newest`: of a sampling channel that one, of a queuing
    /// channel the next. `None` if it is due none of them.
    #[must_use]
    pub fn due_up_to(&self, newest: u64) -> Option<u64> {
        let (number, is_due) = match &self.held.port().end {
            End::SamplingDestination(_) => (newest, newest > self.last),
            End::QueuingDestination(reader) => {
                let number = reader.number_at(self.position);
                (number, number <= newest)
            }
            _ => return None,
        };
        is_due.then_some(number)
    }

    /// Takes a message over that another source of the same source and origin has given: it counts
    /// as given by this one, too. `false`, and nothing has happened, if it is not the one that is
    /// [due](Self::due_up_to). Queues of one source may differ (one has overflowed, or the source
    /// was killed between two), so what is in this one is compared.
    pub fn skip_same(&mut self, carried: &Carried, message: &[u8]) -> bool {
        if self.due_up_to(carried.sequence) != Some(carried.sequence) {
            return false;
        }
        match &self.held.port().end {
            End::SamplingDestination(_) => self.last = carried.sequence,
            End::QueuingDestination(reader) => {
                let behind = reader.look_like(self.position, message, carried.time_ns);
                if behind.is_none() || reader.overflows() != carried.lost {
                    return false;
                }
                self.position = behind;
            }
            _ => return false,
        }
        self.held.count(Counter::Reads, 1);
        true
    }

    /// The other host has all messages up to `sequence`, of those that [`next`](Self::next) gave:
    /// their room is free.
    pub fn confirm(&self, sequence: u64) {
        if let End::QueuingDestination(reader) = &self.held.port().end {
            let first = reader.position().line;
            if sequence > first {
                let _lock = self.held.lock();
                reader.skip(sequence - first);
            }
        }
    }

    /// Messages in the queue, those included that are not confirmed; 0 for a sampling channel.
    #[must_use]
    pub fn in_queue(&self) -> u64 {
        match &self.held.port().end {
            End::QueuingDestination(reader) => reader.in_queue(),
            _ => 0,
        }
    }
}

/// Gives the messages of a channel that comes from another host to its destinations here. One a
/// port at a time.
#[derive(Debug)]
pub struct PortReceiver {
    doorbell: Option<Doorbell>,
    held: Held,
}

impl PortReceiver {
    /// Opens the source port `name` of a joined partition; `None` if the partition has no such port
    /// with a channel.
    #[must_use]
    pub fn open(partition: &Arc<Partition>, name: &str) -> Option<Self> {
        let held = Held::find(partition, name, Direction::Source)?;
        let receiver = Self {
            doorbell: held.doorbell(),
            held,
        };
        let lock = receiver.held.lock();
        match &receiver.held.port().end {
            End::QueuingSource(writers) => receiver.settle(writers),
            End::SamplingSource(register) => receiver.held.settle_landed(register),
            _ => {}
        }
        drop(lock);
        Some(receiver)
    }

    /// Puts right what a gateway left behind that was killed while it gave a message. Under the
    /// lock.
    fn settle(&self, writers: &QueueWriters) {
        let intent = self.held.load(port::INTENT);
        if intent > self.held.load(port::DELIVERED)
            && writers.sent_to_first() != self.held.load(port::INTENT_LINE)
        {
            self.held.store(port::DELIVERED, intent);
        }
        self.held.settle_ring(writers);
    }

    /// Longest message in bytes.
    #[must_use]
    pub fn max_message_size_bytes(&self) -> usize {
        self.held.port().config.max_size()
    }

    /// Rings when a full queue has room again; `None`: look now and then.
    #[must_use]
    pub fn doorbell(&self) -> Option<&Doorbell> {
        self.doorbell.as_ref()
    }

    /// Whether the message `sequence` of `origin`, or a later one, was delivered before.
    #[must_use]
    pub fn is_old(&self, origin: u64, sequence: u64) -> bool {
        self.held.load(port::ORIGIN) == origin && sequence <= self.held.load(port::DELIVERED)
    }

    /// Whether a message would find room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        match &self.held.port().end {
            End::QueuingSource(writers) => writers.has_room(),
            _ => true,
        }
    }

    /// Gives `message`, which is not old and has room, to all destinations. `false` if its length
    /// is impossible or it is old after all.
    pub fn deliver(&self, message: &[u8], origin: u64, carried: &Carried) -> bool {
        let port = self.held.port();
        if message.is_empty() || message.len() > port.config.max_size() {
            return false;
        }
        let _lock = self.held.lock();
        if self.is_old(origin, carried.sequence) {
            return false;
        }
        let before = self.meet(origin, carried);
        let is_given = match &port.end {
            End::SamplingSource(register) => {
                let skipped = carried.sequence.saturating_sub(before + 1);
                if skipped > 0 {
                    self.held.count(Counter::Overwritten, skipped);
                }
                register.write_at(message, register.clock().of_monotonic_ns(carried.time_ns))
            }
            End::QueuingSource(writers) => {
                self.tell_lost(writers, before, carried);
                self.held.store(port::INTENT_LINE, writers.sent_to_first());
                // Release: a process that dies behind a store has done those before it. Partner:
                // taking over the dead one's lock.
                port.area
                    .word(port::INTENT)
                    .store(carried.sequence, Ordering::Release);
                let overflows = writers.send_at(message, carried.time_ns);
                crash::step("given");
                if overflows > 0 {
                    self.held.count(Counter::Overflows, overflows);
                }
                true
            }
            _ => false,
        };
        self.held.store(port::DELIVERED, carried.sequence);
        if is_given {
            self.held.count(Counter::Writes, 1);
        }
        is_given
    }

    /// Makes `origin` the one whose numbers count, and returns the number delivered last.
    fn meet(&self, origin: u64, carried: &Carried) -> u64 {
        if self.held.load(port::ORIGIN) != origin {
            // Another store: its numbers begin again. If this is its first message, all that it
            // ever lost was lost here; else what it lost before its first message here does not
            // count here.
            let before = carried.sequence.saturating_sub(1);
            let told = if before == 0 { 0 } else { carried.lost };
            if matches!(self.held.port().end, End::QueuingSource(_)) {
                self.held.store(port::INTENT, 0);
            }
            self.held.store(port::LOST_TOLD, told);
            self.held.store(port::DELIVERED, before);
            self.held
                .port()
                .area
                .word(port::ORIGIN)
                .store(origin, Ordering::Release);
        }
        self.held.load(port::DELIVERED)
    }

    /// Reports to the destinations the messages that did not come: those that the sending host's
    /// queue had no room for, and gaps.
    fn tell_lost(&self, writers: &QueueWriters, before: u64, carried: &Carried) {
        let told = self.held.load(port::LOST_TOLD);
        // A peer's numbers: they can be anything, but only grow.
        let lost = carried.lost.saturating_sub(told);
        let gap = carried.sequence.saturating_sub(before + 1);
        if lost.saturating_add(gap) > 0 {
            writers.note_lost(lost.saturating_add(gap));
            self.held.count(Counter::Overflows, lost.saturating_add(gap));
            self.held.store(port::LOST_TOLD, told.saturating_add(lost));
        }
    }
}
