//! Connects the ports of a partition with the channels of its module.
//!
//! Contract: maps for writing what the partition writes, its own file, the channels of its source
//! ports, their registers in other hosts' memory, and its parts of queues that other hosts share,
//! and everything else read-only. Called when a process joins.

use std::sync::Arc;

use busway_core::{Window, register};
use busway_transport::contract::PortMemory;
use busway_transport::core_queue::Part;

use super::far::{FarOrigin, FarWriter};
use super::queuing::{QueueReader, QueueWriter, QueueWriters};
use super::sampling::{Latest, Register};
use super::shared_queue::{DestinationPart, SharedDestination, SharedSource, SourcePart};
use super::{End, Port};
use crate::config::{ChannelConfig, FarMemory, ModuleError, PartitionConfig, PortRef, SharedQueue};
use crate::counters::Counting;
use crate::doorbell::Ringers;
use crate::own_writer;
use crate::store::layout::{
    ChannelLayout, OutletLayout, PartitionLayout, SamplingLayout, head, port, writer,
};
use crate::store::{Store, StoreError};
use crate::sys::{Area, ForkMark, View};
use crate::system::is_other_host;
use crate::waiters::WAITER_WORDS;

/// All ports of the partition `config`, whose body is `body`.
pub(super) fn ports(
    store: &Store,
    config: &PartitionConfig,
    body: &Area,
    mark: Option<&Arc<ForkMark>>,
) -> Result<Vec<Port>, StoreError> {
    let layout = PartitionLayout::new(config.ports.len());
    let mut ports = Vec::with_capacity(config.ports.len());
    for (index, port_config) in config.ports.iter().enumerate() {
        let area = body.part(layout.port_offset(index), port::STRIDE);
        let reference = PortRef::new(&config.name, &port_config.name);
        let end = connect(store, &reference, &area, mark)?;
        ports.push(Port {
            config: port_config.clone(),
            table: area.part(port::WAITERS, WAITER_WORDS * 8),
            ringers: Ringers::of(store, &reference)?,
            doorbell_path: is_other_host(&config.name).then(|| store.doorbell_path(&reference)),
            area,
            end,
        });
    }
    Ok(ports)
}

fn connect(
    store: &Store,
    reference: &PortRef,
    area: &Area,
    mark: Option<&Arc<ForkMark>>,
) -> Result<End, StoreError> {
    let uses =
        |channel: &&ChannelConfig| channel.source == *reference || channel.destinations.contains(reference);
    let Some(channel) = store.module().channels.iter().find(uses) else {
        return Ok(End::Unconnected);
    };
    let (opened, layout) = store.open_channel(channel)?;
    let is_source = channel.source == *reference;
    Ok(match (layout, is_source) {
        (ChannelLayout::Sampling(_), true) if channel.landing.is_some() => End::Unconnected,
        (ChannelLayout::Sampling(layout), true) => {
            let body = opened.area()?;
            let copies = copies(channel, layout, &body)?;
            let written = Counting(area).load().writes;
            let register = Register::new(body, layout.stored, channel.clock, copies, written);
            let far_ends = own_writer::far_ends(store, channel, reference, mark)?;
            End::SamplingSource(register.with_far_ends(far_ends))
        }
        (ChannelLayout::Sampling(layout), false) => End::SamplingDestination(match &channel.landing {
            Some(far) => {
                let host = store.open_partition(source_partition(store, channel)?)?.view()?;
                let (window, origin) = landing(channel, far, layout.register, &host)?;
                Latest::from_afar(window, layout.register, origin)
            }
            None => Latest::new(opened.view()?, layout.register, channel.clock),
        }),
        (ChannelLayout::Queuing(_), true) if channel.has_shared_source() => End::Unconnected,
        (ChannelLayout::Queuing(layouts), true) => {
            let body = opened.area()?;
            let mut writers = Vec::with_capacity(layouts.outlets.len() + layouts.shared);
            for (layout, destination) in layouts.outlets.iter().zip(&channel.destinations) {
                let control = body.part(layout.offset, writer::BYTES);
                let ring = body.part(layout.offset + writer::BYTES, layout.ring.required_bytes());
                let far = port_view(store, destination)?;
                writers.push(QueueWriter::new(control, ring, &far, *layout));
            }
            for (index, queue) in channel.shared_queues.iter().enumerate() {
                let words = body.part(layouts.shared_offset(), layouts.shared_bytes());
                writers.push(shared_writer(channel, queue, &words, index)?);
            }
            End::QueuingSource(QueueWriters::new(writers, channel.when_full, channel.clock))
        }
        (ChannelLayout::Queuing(layouts), false) => {
            let mine = channel
                .destinations
                .iter()
                .position(|destination| destination == reference);
            // `uses` has found the port among them.
            let mine = mine.unwrap_or_default();
            if channel.has_shared_source() {
                let reader = shared_reader(channel, &channel.shared_queues[mine], area)?;
                return Ok(End::QueuingDestination(reader));
            }
            let view = opened.view()?;
            let layout = layouts.outlets[mine];
            let control = view.part(layout.offset, writer::BYTES);
            let ring = view.part(layout.offset + writer::BYTES, layout.ring.required_bytes());
            let far = port_view(store, &channel.source)?;
            End::QueuingDestination(QueueReader::new(control, ring, &far, area, layout))
        }
    })
}

/// The writing ends of a channel's registers in other hosts' memory.
fn copies(
    channel: &ChannelConfig,
    layout: SamplingLayout,
    body: &Area,
) -> Result<Vec<FarWriter>, StoreError> {
    let control = body.part(layout.copies_offset(), layout.copies_bytes());
    let far = channel.copies.iter().enumerate();
    far.map(|(index, far)| {
        let memory = open(channel, far)?;
        FarWriter::new(memory, far, layout.register, control.clone(), index)
            .ok_or_else(|| too_small(channel, far))
    })
    .collect()
}

/// The sending end of a queue in memory that another host shares. `words` are those of the channel
/// in the store, `index` is the queue's place among the channel's.
fn shared_writer(
    channel: &ChannelConfig,
    queue: &SharedQueue,
    words: &Area,
    index: usize,
) -> Result<QueueWriter, StoreError> {
    let own = map(channel, &queue.source, Area::of)?;
    let other = map(channel, &queue.destination, View::of)?;
    let (own, other) = (SourcePart::of(&own, &queue.layout), DestinationPart::of(&other));
    let shared = SharedSource::new(&own, &other, words, index, queue.key);
    Ok(QueueWriter::shared(own, other, outlet(queue), shared))
}

/// The receiving end of a queue in memory that another host shares; `area` is the port's part of
/// its partition's file. The module has a queue for each destination.
fn shared_reader(
    channel: &ChannelConfig,
    queue: &SharedQueue,
    area: &Area,
) -> Result<QueueReader, StoreError> {
    let own = map(channel, &queue.destination, Area::of)?;
    let other = map(channel, &queue.source, View::of)?;
    let (own, other) = (DestinationPart::of(&own), SourcePart::of(&other, &queue.layout));
    let shared = SharedDestination::new(&own, &other, queue.key);
    Ok(QueueReader::shared(own, other, area, outlet(queue), shared))
}

/// The shape of a queue in memory that another host shares.
pub(crate) fn outlet(queue: &SharedQueue) -> OutletLayout {
    OutletLayout {
        offset: 0,
        ring: queue.layout,
        depth: queue.max_messages,
    }
}

/// Maps a part of a queue that two hosts share.
pub(crate) fn map<A>(
    channel: &ChannelConfig,
    part: &Part,
    of: impl Fn(&PortMemory, usize, usize) -> Option<A>,
) -> Result<A, StoreError> {
    let far = |reason| StoreError::Far {
        channel: channel.name.clone(),
        reason,
    };
    let memory = part.place.open().map_err(|error| far(error.to_string()))?;
    of(&memory, part.offset_bytes, part.len_bytes).ok_or_else(|| {
        far(format!(
            "its queue does not fit the ports' part of {}: give both hosts the same system file",
            part.place.source()
        ))
    })
}

/// A register that another host's partitions write: where it lies, and how its messages are read.
/// `host` is the body of the file of the partition that stands for that host.
pub(crate) fn landing(
    channel: &ChannelConfig,
    far: &FarMemory,
    layout: register::Layout,
    host: &View,
) -> Result<(Window, FarOrigin), StoreError> {
    let memory = open(channel, far)?;
    let window = memory.part(far.offset_bytes, layout.required_bytes());
    let window = window.ok_or_else(|| too_small(channel, far))?;
    let head = host.part(0, head::BYTES);
    Ok((window, FarOrigin::new(memory, far, head)))
}

/// The partition that a channel's source belongs to.
pub(crate) fn source_partition<'s>(
    store: &'s Store,
    channel: &ChannelConfig,
) -> Result<&'s PartitionConfig, StoreError> {
    let partition = store.module().partition(&channel.source.partition);
    partition.ok_or_else(|| missing(&channel.source))
}

fn open(channel: &ChannelConfig, far: &FarMemory) -> Result<PortMemory, StoreError> {
    far.place.open().map_err(|error| StoreError::Far {
        channel: channel.name.clone(),
        reason: error.to_string(),
    })
}

fn too_small(channel: &ChannelConfig, far: &FarMemory) -> StoreError {
    StoreError::Far {
        channel: channel.name.clone(),
        reason: format!(
            "its register does not fit the ports' part of {}: give both hosts the same system file",
            far.place.source()
        ),
    }
}

/// The part of another partition's file that belongs to the port `reference`, read-only.
pub(crate) fn port_view(store: &Store, reference: &PortRef) -> Result<View, StoreError> {
    let module = store.module();
    let partition = module.partition(&reference.partition);
    let partition = partition.ok_or_else(|| missing(reference))?;
    let (index, _) = module.port(reference).ok_or_else(|| missing(reference))?;
    let layout = PartitionLayout::new(partition.ports.len());
    let view = store.open_partition(partition)?.view()?;
    Ok(view.part(layout.port_offset(index), port::STRIDE))
}

/// Never seen: the module was validated when the store was opened, so every channel's ports exist.
pub(crate) fn missing(reference: &PortRef) -> StoreError {
    StoreError::Module(ModuleError::NoPort {
        channel: String::new(),
        port: reference.clone(),
    })
}
