//! Looking at ports from outside, and writing into them from outside.
//!
//! Contract: an [`Observer`] maps everything read-only and takes no lock, so that no partition
//! notices it. What it shows of a queue may be a moment old. [`intrude`] is the opposite. Called by
//! `busway port`.

use std::path::PathBuf;

use busway_core::Window;
use busway_core::register::{self, ReadOutcome, RegisterReader};
use busway_core::ring::{Position, RingConsumer};
use busway_transport::contract::PortPlace;

use crate::apex::Refusal;
use crate::config::{ChannelConfig, Clock, FarMemory, Module, PortConfig, PortRef, SharedQueue};
use crate::counters::{Counter, Counters, Counting};
use crate::partition::far::Origin;
use crate::partition::queuing::count_waiting;
use crate::partition::shared_queue::{self, DestinationPart, SourcePart};
use crate::partition::{End, Partition, mode, wire};
use crate::store::layout::{ChannelLayout, OutletLayout, PartitionLayout, RECORD_BYTES, head, port, writer};
use crate::store::{Store, StoreError};
use crate::sync::Ordering;
use crate::sys::View;

/// Attempts to see a queue while its partitions are at work on it.
const ATTEMPTS: u32 = 1000;

/// A store, for looking only.
#[derive(Debug)]
pub struct Observer {
    store: Store,
}

/// A port, for looking only.
#[derive(Debug)]
pub struct ObservedPort {
    config: PortConfig,
    /// The body of the partition's file.
    partition: View,
    /// The port's part of it.
    area: View,
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    Sampling {
        window: Window,
        layout: register::Layout,
        origin: Origin,
        /// Keeps the memory behind `window`, if it is the store's.
        _view: Option<View>,
    },
    /// A destination has one queue, a source one for each destination.
    Queuing(Vec<Queue>),
    Unconnected,
}

/// One queue of a channel.
#[derive(Debug)]
struct Queue {
    control: View,
    ring: View,
    /// Where the receiver stands.
    consumer: View,
    layout: OutletLayout,
    /// In memory that two hosts share.
    shared: Option<SharedHeads>,
}

/// What shows the session of a queue in memory that two hosts share.
#[derive(Debug)]
struct SharedHeads {
    source: View,
    destination: View,
    key: u64,
}

/// A message that an observer has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its source time in ns of `CLOCK_MONOTONIC`.
    pub time_ns: i64,
    /// Its number: how many were written or sent, it included.
    pub number: u64,
}

impl Observer {
    /// Looks at the state of `module` in `root`.
    ///
    /// # Errors
    /// The module is impossible. Whether anything is there shows with the first port.
    pub fn new(root: impl Into<PathBuf>, module: Module) -> Result<Self, StoreError> {
        Ok(Self {
            store: Store::to_look(root.into(), module)?,
        })
    }

    /// Looks at a port; `None` if the module has none of that name.
    ///
    /// # Errors
    /// [`StoreError`]: nothing is there yet (no partition of the host was ever started), or another
    /// configuration.
    pub fn port(&self, reference: &PortRef) -> Result<Option<ObservedPort>, StoreError> {
        let module = self.store.module();
        let (Some(partition), Some((_, config))) =
            (module.partition(&reference.partition), module.port(reference))
        else {
            return Ok(None);
        };
        let body = self.store.partition_file(partition).open_to_look()?.view()?;
        let area = self.area(reference)?;
        Ok(Some(ObservedPort {
            config: config.clone(),
            partition: body,
            area,
            seen: self.channel_of(reference)?,
        }))
    }

    fn channel_of(&self, reference: &PortRef) -> Result<Seen, StoreError> {
        let channel = self
            .store
            .module()
            .channels
            .iter()
            .find(|channel| channel.source == *reference || channel.destinations.contains(reference));
        let Some(channel) = channel else {
            return Ok(Seen::Unconnected);
        };
        let (spec, layout) = self.store.channel_file(channel)?;
        let view = spec.open_to_look()?.view()?;
        match layout {
            ChannelLayout::Sampling(layout) => match channel.payloads_elsewhere() {
                Some(far) => self.landed(channel, far, layout.register),
                None => Ok(Seen::Sampling {
                    window: view.window(),
                    layout: layout.register,
                    origin: Origin::Store(channel.clock),
                    _view: Some(view),
                }),
            },
            ChannelLayout::Queuing(layouts) => {
                let mut queues = Vec::new();
                for (layout, destination) in layouts.outlets.into_iter().zip(&channel.destinations) {
                    if channel.source == *reference || destination == reference {
                        let area = self.area(destination)?;
                        queues.push(Queue {
                            control: view.part(layout.offset, writer::BYTES),
                            ring: view.part(layout.offset + writer::BYTES, layout.ring.required_bytes()),
                            consumer: area.part(port::CONSUMER, RECORD_BYTES),
                            layout,
                            shared: None,
                        });
                    }
                }
                for (index, queue) in channel.shared_queues.iter().enumerate() {
                    if channel.source == *reference || channel.destinations.get(index) == Some(reference) {
                        queues.push(Queue::shared(channel, queue)?);
                    }
                }
                Ok(Seen::Queuing(queues))
            }
        }
    }

    /// A register that one host's partitions write in another one's memory.
    fn landed(
        &self,
        channel: &ChannelConfig,
        far: &FarMemory,
        layout: register::Layout,
    ) -> Result<Seen, StoreError> {
        must_exist(&far.place)?;
        let host = wire::source_partition(&self.store, channel)?;
        let host = self.store.partition_file(host).open_to_look()?.view()?;
        let (window, origin) = wire::landing(channel, far, layout, &host)?;
        Ok(Seen::Sampling {
            window,
            layout,
            origin: Origin::Far(origin),
            _view: None,
        })
    }

    /// A port's part of its partition's file. The module has the port.
    fn area(&self, reference: &PortRef) -> Result<View, StoreError> {
        let module = self.store.module();
        let partition = module.partition(&reference.partition);
        let partition = partition.ok_or_else(|| wire::missing(reference))?;
        let (index, _) = module.port(reference).ok_or_else(|| wire::missing(reference))?;
        let layout = PartitionLayout::new(partition.ports.len());
        let body = self.store.partition_file(partition).open_to_look()?.view()?;
        Ok(body.part(layout.port_offset(index), port::STRIDE))
    }
}

impl ObservedPort {
    /// As configured.
    #[must_use]
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// Whether the partition is in its present life at work (mode `NORMAL`). A killed partition's
    /// mode stays what it was.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        self.partition.word(head::MODE).load(Ordering::Relaxed) == mode::NORMAL
    }

    /// Whether the partition has created the port in its present or last life.
    #[must_use]
    pub fn is_created(&self) -> bool {
        let incarnation = self.partition.word(head::INCARNATION).load(Ordering::Relaxed);
        incarnation != 0 && self.area.word(port::CREATED).load(Ordering::Relaxed) == incarnation
    }

    /// The refresh period in ns with which the port was created; `None` if it was not.
    #[must_use]
    pub fn refresh_period_ns(&self) -> Option<i64> {
        let period = self.area.word(port::REFRESH_PERIOD).load(Ordering::Relaxed) as i64;
        (period > 0 && self.is_created()).then_some(period)
    }

    /// What the port has counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::load(|offset| self.area.word(offset).load(Ordering::Relaxed));
        if let (Seen::Queuing(queues), crate::Direction::Destination) = (&self.seen, self.config.direction) {
            counters.overflows = queues.iter().map(Queue::overflows).sum();
        }
        counters
    }

    /// Messages in the queue, in the fullest one at a source; `None` for a sampling port.
    #[must_use]
    pub fn in_queue(&self) -> Option<u64> {
        match &self.seen {
            Seen::Queuing(queues) => queues.iter().map(Queue::in_queue).max(),
            _ => None,
        }
    }

    /// The message of a sampling port, or the first one in the queue of a queuing port (the fullest
    /// queue at a source), which stays there. `None` if there is none, or if the partitions were
    /// too fast to see it whole.
    #[must_use]
    pub fn message(&self) -> Option<Message> {
        match &self.seen {
            Seen::Sampling {
                window,
                layout,
                origin,
                ..
            } => {
                let session = origin.session(window)?;
                let mut reader = RegisterReader::new(window.clone(), *layout, session).ok()?;
                let mut bytes = vec![0; layout.max_size_bytes()];
                for _ in 0..ATTEMPTS {
                    if let ReadOutcome::New(sample) | ReadOutcome::Unchanged(sample) =
                        reader.read(&mut bytes).ok()?
                    {
                        bytes.truncate(sample.len_bytes);
                        return Some(Message {
                            bytes,
                            time_ns: origin.clock().to_monotonic_ns(origin.time_ns(window, sample)),
                            number: sample.sequence.wrapping_sub(session),
                        });
                    }
                }
                None
            }
            Seen::Queuing(queues) => {
                let fullest = queues.iter().max_by_key(|queue| queue.in_queue())?;
                (0..ATTEMPTS).find_map(|_| fullest.front())
            }
            Seen::Unconnected => None,
        }
    }

    /// Age of a message in ns, by its source time.
    #[must_use]
    pub fn age_ns(message: &Message) -> i64 {
        Clock::Monotonic.now_ns().saturating_sub(message.time_ns)
    }
}

/// Mapping would make a missing file.
fn must_exist(place: &PortPlace) -> Result<(), StoreError> {
    let Some(path) = place.path() else {
        return Ok(());
    };
    std::fs::metadata(path)
        .map(drop)
        .map_err(|source| StoreError::System {
            action: "open",
            path: path.into(),
            source,
        })
}

impl Queue {
    /// A queue in memory that two hosts share.
    fn shared(channel: &ChannelConfig, queue: &SharedQueue) -> Result<Self, StoreError> {
        must_exist(&queue.source.place)?;
        must_exist(&queue.destination.place)?;
        let [source, destination] =
            [&queue.source, &queue.destination].map(|part| wire::map(channel, part, View::of));
        let source = SourcePart::of(&source?, &queue.layout);
        let destination = DestinationPart::of(&destination?);
        Ok(Self {
            control: source.control,
            ring: source.ring,
            consumer: destination.consumer,
            layout: wire::outlet(queue),
            shared: Some(SharedHeads {
                source: source.head,
                destination: destination.head,
                key: queue.key,
            }),
        })
    }

    fn overflows(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        self.control.word(writer::OVERFLOWS).load(Ordering::Relaxed)
    }

    /// Where the receiver stands: the copy of its record that counts, if that did not change
    /// meanwhile.
    fn position(&self) -> Option<Position> {
        if let Some(heads) = &self.shared
            && !shared_queue::is_met(&heads.source, &heads.destination, heads.key)
        {
            return Some(Position::at_start(0));
        }
        let word = |offset| self.consumer.word(offset).load(Ordering::Acquire);
        let turn = word(0);
        let copy = 8 + 16 * (turn & 1) as usize;
        let position = Position {
            line: word(copy),
            data: word(copy + 8),
        };
        (word(0) == turn).then_some(position)
    }

    /// Whether no source has begun to use it.
    fn is_empty(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|heads| !shared_queue::has_begun(&heads.source, heads.key))
    }

    fn in_queue(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let published = self.control.word(writer::PUBLISHED).load(Ordering::Relaxed);
        let taken = (0..ATTEMPTS).find_map(|_| self.position());
        let first = taken.map_or(published, |taken| taken.line);
        count_waiting(&self.layout, &self.ring.window(), first, published)
    }

    /// The first message, if the receiver did not take it meanwhile.
    fn front(&self) -> Option<Message> {
        if self.is_empty() {
            return None;
        }
        let position = self.position()?;
        let window = self.ring.window();
        // It writes no credits, so the window that it is given for them does not matter.
        let mut consumer = RingConsumer::resume(window.clone(), self.layout.ring, position, window).ok()?;
        let message = consumer.peek().ok()??;
        let mut bytes = vec![0; message.len_bytes];
        consumer.copy(0, &mut bytes).ok()?;
        // The copy before the second look: had the message been taken, its memory could have been
        // written again.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        (self.position()? == position).then_some(Message {
            bytes,
            time_ns: message.time_ns as i64,
            number: position.line + 1,
        })
    }
}

/// Writes `message` into a source port in the place of the partition's own program, created or not;
/// the partition is one that this process has joined.
///
/// # Errors
/// [`Refusal::InvalidParam`] for an unknown port or an empty message; [`Refusal::InvalidMode`] for
/// a destination port; [`Refusal::InvalidConfig`] for a message longer than the port's;
/// [`Refusal::NotAvailable`] for a full queue.
pub fn intrude(partition: &Partition, name: &str, message: &[u8]) -> Result<(), Refusal> {
    let mut ports = partition.ports().iter();
    let port = ports
        .find(|port| port.config.name == name)
        .ok_or(Refusal::InvalidParam)?;
    if port.config.direction != crate::Direction::Source {
        return Err(Refusal::InvalidMode);
    }
    if message.is_empty() {
        return Err(Refusal::InvalidParam);
    }
    if message.len() > port.config.max_size() {
        return Err(Refusal::InvalidConfig);
    }
    let _lock = partition.lock(port);
    match &port.end {
        End::SamplingSource(register) if !register.write(message) => return Err(Refusal::NotAvailable),
        End::QueuingSource(writers) => {
            writers.settle();
            if !writers.has_room() {
                return Err(Refusal::NotAvailable);
            }
            let overflows = writers.send(message);
            if overflows > 0 {
                Counting(&port.area).add(Counter::Overflows, overflows);
            }
        }
        _ => {}
    }
    Counting(&port.area).add(Counter::Writes, 1);
    Ok(())
}
