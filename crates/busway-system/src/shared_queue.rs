//! Queuing channels between two Linux hosts whose queues lie in memory that both hosts share.
//!
//! Contract: follows from the system file alone, so both hosts of a link come to the same. A queue
//! has two parts: the ring lies in memory that the source's host writes, the words that its
//! destination writes in memory that the destination's host writes. Only a channel that has no
//! other bus to move to gets one: messages in such a queue can't change to another bus. Each
//! destination port has a queue of its own. `busway-port` defines what is inside a part. Called by
//! `direct` and `route`.

use busway_buses as registry;
use busway_core::ring;

use crate::System;
use crate::ports::{Channel, PortKind, PortRef};
use crate::route::{hops_between, host_of};

/// Length in bytes of what precedes the ring in the source's part.
pub const SOURCE_HEAD_BYTES: usize = 256;

/// Length in bytes of the destination's part.
pub const DESTINATION_BYTES: usize = 384;

/// One host's part of the queue of one destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedQueue {
    /// Index in [`System::channels`].
    pub channel: usize,
    /// The destination port whose queue it is.
    pub destination: PortRef,
    /// Where the part begins in the memory that is set aside, in bytes.
    pub offset_bytes: usize,
    /// Length of the part in bytes.
    pub len_bytes: usize,
    /// The shape of the ring, which is in the source's part.
    pub layout: ring::Layout,
    /// Most messages in the queue: those of the destination port, which the ring may exceed.
    pub max_messages: usize,
}

impl System {
    /// The parts that `writer` writes of a channel's shared queues, one behind the other from
    /// `offset_bytes` on, each a multiple of `alignment_bytes` long. Empty if the channel has none
    /// over this bus.
    pub(crate) fn shared_queue_parts(
        &self,
        channel: usize,
        (link, bus, writer): (usize, &str, &str),
        (offset_bytes, alignment_bytes): (u64, u64),
    ) -> Vec<SharedQueue> {
        let described = &self.channels[channel];
        let here = host_of(self, described.source);
        let other = |name: &&String| name.as_str() != writer;
        let hosts = self.links.get(link).map(|link| &link.hosts);
        let Some(other) = hosts.and_then(|hosts| hosts.iter().find(other)) else {
            return Vec::new();
        };
        let there = if here == writer { other } else { writer };
        if ![writer, other].contains(&here) || !self.may_share_queue(described, there, link, bus) {
            return Vec::new();
        }
        let mut parts = Vec::new();
        let mut next = offset_bytes as usize;
        let over_there = described.destinations.iter().copied();
        for destination in over_there.filter(|at| host_of(self, *at) == there) {
            // The ports report an impossible shape.
            let Some((layout, max_messages)) = self.ring_of(described, destination) else {
                return Vec::new();
            };
            let len_bytes = if here == writer {
                SOURCE_HEAD_BYTES.saturating_add(layout.required_bytes())
            } else {
                DESTINATION_BYTES
            };
            parts.push(SharedQueue {
                channel,
                destination,
                offset_bytes: next,
                len_bytes,
                layout,
                max_messages,
            });
            next = next.saturating_add(len_bytes.next_multiple_of(alignment_bytes as usize));
        }
        parts
    }

    /// Whether the queues of a channel between its source's host and `there` may lie in the memory
    /// of this bus, if that has room.
    pub(crate) fn may_share_queue(&self, channel: &Channel, there: &str, link: usize, bus: &str) -> bool {
        let here = host_of(self, channel.source);
        let is_queue = channel.slots.is_none() && here != there;
        if !is_queue || self.is_core(here) || self.is_core(there) || !registry::shares_memory(bus) {
            return false;
        }
        let mut hops = hops_between(self, channel, here, there);
        let is_first = hops.next().is_some_and(|hop| (hop.link, hop.bus) == (link, bus));
        is_first && hops.next().is_none() && self.is_coherent(link, bus)
    }

    /// Whether both hosts map the windows of a bus as ordinary, coherent memory.
    fn is_coherent(&self, link: usize, bus: &str) -> bool {
        let mut buses = self.links[link].buses.iter();
        let Some(bus) = buses.find(|known| known.name() == bus) else {
            return false;
        };
        let windows = |at| bus.seen_from(at).windows();
        let mut all = windows(0).into_iter().chain(windows(1));
        all.all(|window| window.medium == "coherent")
    }

    fn ring_of(&self, channel: &Channel, destination: PortRef) -> Option<(ring::Layout, usize)> {
        let PortKind::Queuing { max_messages, .. } = self.port(destination).kind else {
            return None;
        };
        let max_size_bytes = self.port(channel.source).max_size_bytes as usize;
        let layout = ring::Layout::for_messages(max_messages as usize, max_size_bytes).ok()?;
        Some((layout, max_messages as usize))
    }
}
