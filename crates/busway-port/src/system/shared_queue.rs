//! The queues of a crossing that lie in memory that both hosts share, as one of them sees them.
//!
//! Contract: follows from the system file alone ([`busway_system::shared_queue`]), so both hosts
//! come to the same places and keys. Called by [`module_of`](super::module_of).

use busway_system::System;
use busway_system::shared_queue::SharedQueue as SystemQueue;
use busway_transport::core_queue::Part;

use super::{Crossing, bus_of, name_of, writer_of};
use crate::config::{DIGEST, SharedQueue};

/// The queues of the crossing of channel number `index`, in the order of its destinations on the
/// receiving host. Empty if the gateways move its messages.
pub(super) fn shared_queues_of(
    system: &System,
    host: &str,
    index: usize,
    crossing: &Crossing,
) -> Vec<SharedQueue> {
    let sources = parts(system, host, index, crossing, crossing.leaves);
    let destinations = parts(system, host, index, crossing, !crossing.leaves);
    let both = sources.into_iter().zip(destinations);
    both.map(|((queue, source), (_, destination))| {
        let channel = &system.channels[index];
        let description = format!(
            "{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}",
            channel.name,
            name_of(system, channel.source),
            name_of(system, queue.destination),
            queue.layout.lines(),
            queue.layout.data_bytes(),
            queue.layout.max_size_bytes(),
            queue.max_messages,
            source.offset_bytes,
            destination.offset_bytes
        );
        SharedQueue {
            source,
            destination,
            layout: queue.layout,
            max_messages: queue.max_messages,
            // 0 is what fresh memory has.
            key: DIGEST.checksum(description.as_bytes()).max(1),
        }
    })
    .collect()
}

/// The parts that `host` writes, or those that its peer writes.
fn parts(
    system: &System,
    host: &str,
    index: usize,
    crossing: &Crossing,
    is_ours: bool,
) -> Vec<(SystemQueue, Part)> {
    let (writer, access) = writer_of(host, crossing, is_ours);
    let area = system.port_area(crossing.link, crossing.bus, writer);
    let place = bus_of(system, host, crossing).and_then(|bus| bus.port_place(access));
    let Some(place) = place else {
        return Vec::new();
    };
    let mut queues = area.shared_queues;
    queues.retain(|queue| queue.channel == index);
    let part = |queue: SystemQueue| {
        let part = Part {
            place: place.clone(),
            offset_bytes: queue.offset_bytes,
            len_bytes: queue.len_bytes,
        };
        (queue, part)
    };
    queues.into_iter().map(part).collect()
}
