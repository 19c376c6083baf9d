//! Where things lie in the body of a partition's and of a channel's file.
//!
//! Contract: offsets in bytes, all of them multiples of 8; what different partitions write never
//! shares 128 bytes (CPUs fetch lines in pairs). Called by the store and by the ports.

use busway_core::ring::{CREDIT_BYTES, Position};
use busway_core::{LINE_BYTES, register, ring};

use super::StoreError;
use crate::config::{ChannelConfig, Module};
use crate::sync::Ordering;
use crate::sys::Area;
use crate::waiters::WAITER_WORDS;

/// Most processes that live in a partition at the same time.
pub(crate) const MAX_MEMBERS: usize = 64;

/// Widest line in bytes of a ring that a device writes: a write that fits one packet of every
/// network.
const WIDEST_LINE_BYTES: usize = 1216;

/// The head of a partition's body. Written by the processes of the partition; everything but `MODE`
/// and `ERROR_RAISED` under the join lock.
pub(crate) mod head {
    use super::MAX_MEMBERS;

    /// u64, counts the incarnations from 1; 0 before the first.
    pub(crate) const INCARNATION: usize = 0;
    /// `OPERATING_MODE_TYPE`.
    pub(crate) const MODE: usize = 8;
    /// `START_CONDITION_TYPE` of this incarnation.
    pub(crate) const START_CONDITION: usize = 16;
    /// u64, the incarnation that has raised an application error last; 0 before the first.
    pub(crate) const ERROR_RAISED: usize = 24;
    /// u64, how the next incarnation starts (module `next_start`); 0: as a cold start. Written by
    /// the supervisor, and back to 0 by the process that begins the incarnation.
    pub(crate) const NEXT_START: usize = 32;
    /// In a partition that stands for another host: what is known of its clock (module
    /// `peer_clock`). Written by the gateway.
    pub(crate) const PEER_CLOCK: usize = 64;
    /// Length of [`PEER_CLOCK`].
    pub(crate) const PEER_CLOCK_BYTES: usize = 32;
    /// u64 a member place: how many processes have had the place so far.
    pub(crate) const GENERATIONS: usize = 128;
    /// Where the ports begin.
    pub(crate) const BYTES: usize = GENERATIONS + MAX_MEMBERS * 8;
}

/// One port in a partition's body. Written by the processes of the partition.
pub(crate) mod port {
    use super::{CREDIT_BYTES, MAX_MEMBERS, WAITER_WORDS};

    /// The port's lock (module `lock`): guards writing, sending, receiving, creating.
    pub(crate) const LOCK: usize = 0;
    /// u64, the incarnation in which the port was created; created is what equals the head's
    /// incarnation.
    pub(crate) const CREATED: usize = 8;
    /// i64 ns, more than 0: what CREATE_SAMPLING_PORT said.
    pub(crate) const REFRESH_PERIOD: usize = 16;
    /// `QUEUING_DISCIPLINE_TYPE`: what CREATE_QUEUING_PORT said.
    pub(crate) const DISCIPLINE: usize = 24;
    /// 1 if the message read last was valid when it was read, else 0.
    pub(crate) const LAST_VALIDITY: usize = 32;
    /// u64, sequence of the newest message that a read has delivered; only grows.
    pub(crate) const CONSUMED: usize = 40;
    /// u64, of the ring's overflows: those that receivers know of. Under the lock.
    pub(crate) const OVERFLOWS_TOLD: usize = 48;
    /// Where a receiving port's consumer stands (see `Record`). Under the lock.
    pub(crate) const CONSUMER: usize = 64;
    /// Queuing, at the gateway's source port: u64, number of the newest message when the other host
    /// began to write the ring itself. Written by the gateway, as the next word. Under the lock.
    pub(crate) const RING_NUMBER: usize = 104;
    /// Queuing: u64, the producer's line position at that time, and 1; 0 while this host's gateway
    /// writes the ring.
    pub(crate) const RING_AFTER: usize = 112;
    /// Counters, one u64 each (module `counters`). Any process of the partition adds.
    pub(crate) const COUNTERS: usize = 128;
    /// u64, the store whose numbers the messages carry that cross to another host: at the sending
    /// host drawn once for the store, at the receiving host that of the last sender; 0 before.
    /// Written by the gateway, as the words that follow. Under the lock. At a destination whose
    /// queue another host shares: the session that was taken up last, written by its partition.
    pub(crate) const ORIGIN: usize = 208;
    /// u64, number of the last message from the other host that destinations were given.
    pub(crate) const DELIVERED: usize = 216;
    /// u64, of the messages that the other host's queue had no room for: those that destinations
    /// here know of.
    pub(crate) const LOST_TOLD: usize = 224;
    /// u64, number of the message being given, and [`INTENT_LINE`] what the first destination had
    /// been sent before: shows after a kill whether it was given.
    pub(crate) const INTENT: usize = 232;
    /// See [`INTENT`].
    pub(crate) const INTENT_LINE: usize = 240;
    /// Sampling, in the place of [`INTENT`]: u64, number of the newest message when the other host
    /// began to write the register itself.
    pub(crate) const LANDED_NUMBER: usize = INTENT;
    /// Sampling: u64, the register's sequence at that time, and 1; 0 while this host's gateway
    /// writes the register.
    pub(crate) const LANDED_AFTER: usize = INTENT_LINE;
    /// u64, one more counter. Any process of the partition adds.
    pub(crate) const DAMAGED: usize = 248;
    /// u64 a member place: sampling messages read by the processes that have had the place. Only
    /// the holder of the place adds, one thread at a time, so that a read costs no locked
    /// instruction.
    pub(crate) const READS: usize = 256;
    /// The credit words of a receiving port's ring; the sending partition reads and waits there.
    pub(crate) const CREDIT: usize = READS + MAX_MEMBERS * 8;
    /// Who waits at the port (module `waiters`). Under the lock; the other side reads its first
    /// word.
    pub(crate) const WAITERS: usize = CREDIT + 2 * CREDIT_BYTES;
    /// u64 on lines of its own, odd while the gateway that has the port sleeps (module `doorbell`).
    /// Written by the gateway; the other side reads it.
    pub(crate) const DOORBELL: usize = (WAITERS + WAITER_WORDS * 8).next_multiple_of(128);
    /// Distance of ports.
    pub(crate) const STRIDE: usize = DOORBELL + 128;
}

/// What stands before each ring in a queuing channel's body. Written by the partition with the
/// source port.
pub(crate) mod writer {
    /// u64, line position behind the last message committed. Receivers sleep on it.
    pub(crate) const PUBLISHED: usize = 0;
    /// u64, messages that this destination had no room for, ever.
    pub(crate) const OVERFLOWS: usize = 8;
    /// Where the producer stands (see `Record`). Under the source port's lock.
    pub(crate) const PRODUCER: usize = 64;
    /// Where the ring begins.
    pub(crate) const BYTES: usize = 128;
}

/// What follows the register of a sampling channel whose source's processes write registers of
/// other hosts too. Written by the partition with the source port, under the port's lock.
pub(crate) mod copies {
    /// u64, drawn by the first write in this store; 0 before.
    pub(crate) const SESSION: usize = 0;
    /// u64 a far register: sequence of the message that was written there last.
    pub(crate) const WRITTEN: usize = 8;
}

/// What follows the queues in the store of a channel with queues in memory that other hosts share.
/// Written by the partition with the source port, under the port's lock.
pub(crate) mod shared {
    /// Credit words that nobody writes: 0, as before anything was received.
    pub(crate) const NO_CREDIT: usize = 0;
    /// u64 a queue: its session (module `shared_queue`); 0 before the first message.
    pub(crate) const SESSIONS: usize = super::CREDIT_BYTES;
}

/// A partition's body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionLayout {
    ports: usize,
}

impl PartitionLayout {
    pub(crate) fn new(ports: usize) -> Self {
        Self { ports }
    }

    pub(crate) fn body_bytes(self) -> usize {
        self.port_offset(self.ports)
    }

    pub(crate) fn port_offset(self, index: usize) -> usize {
        head::BYTES.next_multiple_of(128) + index * port::STRIDE
    }
}

/// A channel's body.
#[derive(Debug, Clone)]
pub(crate) enum ChannelLayout {
    /// The register, and what its far copies need.
    Sampling(SamplingLayout),
    /// The queues in the store, and what those in memory that another host shares need.
    Queuing(QueuingLayout),
}

/// A sampling channel's body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SamplingLayout {
    /// The register that destinations read.
    pub(crate) register: register::Layout,
    /// The register in the store. Without a destination at home it has no room for payloads: it
    /// counts the messages and keeps their times.
    pub(crate) stored: register::Layout,
    /// Registers in other hosts' memory.
    pub(crate) copies: usize,
    /// Whether the register lies in memory that another host writes: then there is nothing here.
    pub(crate) has_landing: bool,
}

impl SamplingLayout {
    /// Where [`copies`] begin.
    pub(crate) fn copies_offset(self) -> usize {
        self.stored.required_bytes().next_multiple_of(128)
    }

    pub(crate) fn copies_bytes(self) -> usize {
        if self.copies == 0 {
            return 0;
        }
        (copies::WRITTEN + 8 * self.copies).next_multiple_of(128)
    }

    fn body_bytes(self) -> usize {
        if self.has_landing {
            0
        } else {
            self.copies_offset() + self.copies_bytes()
        }
    }
}

/// A queuing channel's body.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueuingLayout {
    /// For each destination in the store a writer and a ring.
    pub(crate) outlets: Vec<OutletLayout>,
    /// Queues in memory that other hosts share: [`shared`] words follow.
    pub(crate) shared: usize,
}

impl QueuingLayout {
    /// Where [`shared`] begins.
    pub(crate) fn shared_offset(&self) -> usize {
        self.outlets.last().map_or(0, |last| {
            last.offset + writer::BYTES + last.ring.required_bytes().next_multiple_of(128)
        })
    }

    pub(crate) fn shared_bytes(&self) -> usize {
        if self.shared == 0 {
            return 0;
        }
        (shared::SESSIONS + 8 * self.shared).next_multiple_of(128)
    }

    fn body_bytes(&self) -> usize {
        self.shared_offset() + self.shared_bytes()
    }
}

/// One destination of a queuing channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutletLayout {
    /// Where the writer begins in the body.
    pub(crate) offset: usize,
    pub(crate) ring: ring::Layout,
    /// Most messages in the queue: the destination port's, which the ring may exceed.
    pub(crate) depth: usize,
}

impl ChannelLayout {
    pub(crate) fn new(module: &Module, channel: &ChannelConfig) -> Result<Self, StoreError> {
        let size = |reason: String| StoreError::Size {
            channel: channel.name.clone(),
            reason,
        };
        let ports = |reference| module.port(reference).map(|(_, port)| port);
        let max_size_bytes = ports(&channel.source).map_or(1, |port| port.max_size());
        let depth = |reference| ports(reference).and_then(|port| port.kind.max_messages());
        if depth(&channel.source).is_none() {
            let register = |max_size_bytes| -> Result<register::Layout, StoreError> {
                let layout = register::Layout::new(channel.slots, max_size_bytes)
                    .map_err(|error| size(error.to_string()))?;
                Ok(if channel.is_checked {
                    layout.with_checksum()
                } else {
                    layout
                })
            };
            let stored_bytes = if channel.destinations.is_empty() {
                0
            } else {
                max_size_bytes
            };
            return Ok(Self::Sampling(SamplingLayout {
                register: register(max_size_bytes)?,
                stored: register(stored_bytes)?,
                copies: channel.copies.len(),
                has_landing: channel.landing.is_some(),
            }));
        }
        if channel.has_shared_source() {
            return Ok(Self::Queuing(QueuingLayout::default()));
        }
        let mut offset = 0_usize;
        let mut writers = Vec::new();
        for destination in &channel.destinations {
            let depth = depth(destination).unwrap_or(1);
            let ring = ring_layout(depth, max_size_bytes, channel.is_checked)
                .map_err(|error| size(error.to_string()))?;
            writers.push(OutletLayout { offset, ring, depth });
            offset = ring
                .required_bytes()
                .checked_next_multiple_of(128)
                .and_then(|bytes| bytes.checked_add(offset + writer::BYTES))
                .ok_or_else(|| size("its queues are too deep".into()))?;
        }
        Ok(Self::Queuing(QueuingLayout {
            outlets: writers,
            shared: channel.shared_queues.len(),
        }))
    }

    pub(crate) fn body_bytes(&self) -> usize {
        match self {
            Self::Sampling(layout) => layout.body_bytes(),
            Self::Queuing(layout) => layout.body_bytes(),
        }
    }
}

/// The ring of a queue. With checksums a device that another host drives may write it: then short
/// messages fit their lines, so that each is one write.
fn ring_layout(
    depth: usize,
    max_size_bytes: usize,
    is_checked: bool,
) -> Result<ring::Layout, ring::LayoutError> {
    let usual = ring::Layout::for_messages(depth, max_size_bytes)?;
    if !is_checked {
        return Ok(usual);
    }
    let line_bytes = (max_size_bytes.saturating_add(ring::LINE_HEAD_BYTES)).next_multiple_of(LINE_BYTES);
    if line_bytes > WIDEST_LINE_BYTES {
        return usual.with_checksum();
    }
    ring::Layout::with_wide_lines(usual.lines(), line_bytes, 0, max_size_bytes)?.with_checksum()
}

/// Length of a [`Record`] in bytes.
pub(crate) const RECORD_BYTES: usize = 40;

/// A ring position that is never half written: two copies, and a word that says which one counts.
///
/// Words: turn (the low bit chooses the copy), line and data of copy 0, line and data of copy 1.
/// Read and written under a lock.
pub(crate) struct Record<'a> {
    pub(crate) area: &'a Area,
    pub(crate) offset: usize,
}

impl Record<'_> {
    pub(crate) fn load(&self) -> Position {
        let copy = self.offset + 8 + 16 * (self.turn() & 1) as usize;
        let load = |offset| self.area.word(offset).load(Ordering::Relaxed);
        Position {
            line: load(copy),
            data: load(copy + 8),
        }
    }

    pub(crate) fn store(&self, position: Position) {
        let turn = self.turn().wrapping_add(1);
        let copy = self.offset + 8 + 16 * (turn & 1) as usize;
        self.area.word(copy).store(position.line, Ordering::Relaxed);
        crate::crash::step("record-half-written");
        self.area.word(copy + 8).store(position.data, Ordering::Relaxed);
        // Release: a process that dies behind this store has done those before it. Partner: taking
        // over the dead one's lock.
        self.area.word(self.offset).store(turn, Ordering::Release);
    }

    fn turn(&self) -> u64 {
        self.area.word(self.offset).load(Ordering::Relaxed)
    }
}
