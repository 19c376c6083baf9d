//! What a process gets for its own writers when it joins its partition.
//!
//! Contract: a channel without such writers costs nothing, and a process without such a channel
//! has no thread. A thread that can't be made is no error: the gateway writes then. Called by
//! [`crate::partition`].

use std::sync::Arc;

use super::far_end::{FarEnds, OwnEnd};
use super::worker::{self, Destination, SourcePort, Worker};
use crate::config::{ChannelConfig, PartitionConfig, PortRef};
use crate::doorbell::{Ringer, make};
use crate::partition::wire::missing;
use crate::partition::{End, Port};
use crate::store::layout::head;
use crate::store::{Store, StoreError};
use crate::sys::ForkMark;

/// Marks this process, if the partition has a port that it may write elsewhere itself.
pub(crate) fn mark(store: &Store, config: &PartitionConfig) -> Option<Arc<ForkMark>> {
    let mut channels = store.module().channels.iter();
    let is_needed =
        channels.any(|channel| channel.source.partition == config.name && !channel.own_writers.is_empty());
    if !is_needed {
        return None;
    }
    let mark = ForkMark::new().inspect_err(|error| {
        tracing::warn!("no page to tell forked children by ({error}); the gateway writes sampling ports");
    });
    mark.ok().map(Arc::new)
}

/// The ends of the source port `reference` in other hosts' stores, if it has some.
pub(crate) fn far_ends(
    store: &Store,
    channel: &ChannelConfig,
    reference: &PortRef,
    mark: Option<&Arc<ForkMark>>,
) -> Result<Option<FarEnds>, StoreError> {
    let Some(mark) = mark.filter(|_| !channel.own_writers.is_empty()) else {
        return Ok(None);
    };
    make(&store.doorbell_path(reference))?;
    let mut ends = Vec::with_capacity(channel.own_writers.len());
    for far in &channel.own_writers {
        let partition = store.module().partition(&far.port.partition);
        let partition = partition.ok_or_else(|| missing(&far.port))?;
        let host = store.open_partition(partition)?.view()?.part(0, head::BYTES);
        ends.push(Arc::new(OwnEnd::new(far.clock, host, mark.clone())));
    }
    Ok(Some(FarEnds::new(ends, Ringer::of(store, reference)?)))
}

/// Starts the thread for a process with these ports, if one of them has far ends.
pub(crate) fn start(
    store: &Store,
    config: &PartitionConfig,
    ports: &[Port],
    mark: Option<Arc<ForkMark>>,
) -> Option<Worker> {
    let mark = mark?;
    let source_port = |port: &Port| {
        let End::SamplingSource(register) = &port.end else {
            return None;
        };
        let reference = PortRef::new(&config.name, &port.config.name);
        let mut channels = store.module().channels.iter();
        let channel = channels.find(|channel| channel.source == reference)?;
        let far = channel.own_writers.iter().zip(&register.far_ends()?.ends);
        let destinations = far.map(|(far, end)| Destination {
            port: far.port.clone(),
            end: end.clone(),
            devices: far.devices.clone(),
        });
        Some(SourcePort {
            source: register.source(),
            doorbell: (store.doorbell_path(&reference), port.area.clone()),
            destinations: destinations.collect(),
        })
    };
    let ports: Vec<SourcePort> = ports.iter().filter_map(source_port).collect();
    let started = worker::start(store.root().to_owned(), ports, mark);
    started
        .inspect_err(|error| {
            tracing::warn!("no thread for RDMA ({error}); the gateway writes sampling ports")
        })
        .ok()
}
