//! Channels in memory that two hosts see: the registers of sampling channels, shared queues, and
//! the queues of cores; which channels have one, and where it lies.
//!
//! Contract: follows from the system file alone, so both hosts of a link come to the same. Over a
//! one-sided bus each host sets a part of the memory that the other one writes aside
//! ([`busway_transport::one_sided`]); the sampling channels that take this bus get their registers
//! there, in the order of the file, as long as there is room. The others are moved by the gateways.
//! So do the queuing channels of [`shared_queue`](crate::shared_queue). A queuing channel with a
//! core, where no gateway runs, has there what each of its ends writes
//! ([`busway_transport::core_queue`]). Called by [`route`](crate::route), by the links (how much is
//! set aside) and by the ports.

use busway_buses as registry;
use busway_core::{register, ring};
use busway_transport::contract::Access;
use busway_transport::core_queue::END_BYTES;

use crate::System;
use crate::ports::{Channel, PortKind};
use crate::route::{hops_between, host_of};
use crate::shared_queue::SharedQueue;

/// Registers begin at multiples of this, in bytes: CPUs fetch lines in pairs.
const ALIGNMENT_BYTES: u64 = 128;

/// A channel's register in the memory of another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarRegister {
    /// Index in [`System::channels`].
    pub channel: usize,
    /// Where it begins in the memory that is set aside, in bytes.
    pub offset_bytes: usize,
    /// Its shape.
    pub layout: register::Layout,
}

/// One end's part of a queuing channel between a core and another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarQueue {
    /// Index in [`System::channels`].
    pub channel: usize,
    /// Where the part begins in the memory that is set aside, in bytes.
    pub offset_bytes: usize,
    /// Length of the part in bytes.
    pub len_bytes: usize,
    /// The shape of the ring, which is in the source's part.
    pub layout: ring::Layout,
}

/// What the programs of one host write over one bus of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortArea {
    /// In the order of the file.
    pub registers: Vec<FarRegister>,
    /// In the order of the file.
    pub queues: Vec<FarQueue>,
    /// In the order of the file, those of one channel in the order of its destinations.
    pub shared_queues: Vec<SharedQueue>,
    /// What they need, in bytes.
    pub bytes: u64,
}

impl System {
    /// What programs on the host `writer` write into the memory of the other host of a link;
    /// nothing if the bus is not one-sided. `link` is an index in [`System::links`].
    pub fn port_area(&self, link: usize, bus: &str, writer: &str) -> PortArea {
        let mut area = PortArea::default();
        let Some(room) = self.port_room_bytes(link, bus, writer) else {
            return area;
        };
        for (index, channel) in self.channels.iter().enumerate() {
            let register = self.far_layout(channel, link, bus, writer);
            let queue = self.queue_part(channel, link, bus, writer);
            let shared = self.shared_queue_parts(index, (link, bus, writer), (area.bytes, ALIGNMENT_BYTES));
            let len_bytes = match (&register, &queue, shared.last()) {
                (Some(layout), ..) => layout.required_bytes(),
                (None, Some((_, len_bytes)), _) => *len_bytes,
                (None, None, Some(last)) => {
                    (last.offset_bytes - area.bytes as usize).saturating_add(last.len_bytes)
                }
                (None, None, None) => continue,
            };
            let bytes = (len_bytes as u64).next_multiple_of(ALIGNMENT_BYTES);
            // A smaller one behind it may still fit.
            if bytes > room.saturating_sub(area.bytes) {
                continue;
            }
            let offset_bytes = area.bytes as usize;
            area.registers.extend(register.map(|layout| FarRegister {
                channel: index,
                offset_bytes,
                layout,
            }));
            area.queues.extend(queue.map(|(layout, _)| FarQueue {
                channel: index,
                offset_bytes,
                len_bytes,
                layout,
            }));
            area.shared_queues.extend(shared);
            area.bytes += bytes;
        }
        area
    }

    fn port_room_bytes(&self, link: usize, bus: &str, writer: &str) -> Option<u64> {
        if !registry::is_one_sided(bus) {
            return None;
        }
        let joins = self.links.get(link)?;
        let at = joins.hosts.iter().position(|host| host == writer)?;
        let bus = joins.buses.iter().find(|known| known.name() == bus)?;
        Some(bus.seen_from(at).port_room_bytes(Access::Writes))
    }

    /// The shape of the register that `channel` would have; `None` if it does not go that way.
    fn far_layout(
        &self,
        channel: &Channel,
        link: usize,
        bus: &str,
        writer: &str,
    ) -> Option<register::Layout> {
        let slots = channel.slots?;
        if host_of(self, channel.source) != writer {
            return None;
        }
        let goes_there = channel.destinations.iter().any(|destination| {
            let there = host_of(self, *destination);
            there != writer
                && hops_between(self, channel, writer, there)
                    .next()
                    .is_some_and(|hop| (hop.link, hop.bus) == (link, bus))
        });
        let max_size_bytes = self.port(channel.source).max_size_bytes as usize;
        // This function ignores an impossible shape: the ports report it.
        let layout = register::Layout::new(slots as usize, max_size_bytes).ok()?;
        goes_there.then_some(layout)
    }

    /// What `writer` writes of a queuing channel with a core: the shape of its ring and the length
    /// of the part in bytes. `None` if the channel is none, or does not go that way.
    fn queue_part(
        &self,
        channel: &Channel,
        link: usize,
        bus: &str,
        writer: &str,
    ) -> Option<(ring::Layout, usize)> {
        let PortKind::Queuing { .. } = self.port(channel.source).kind else {
            return None;
        };
        let mut hosts = self.links.get(link)?.hosts.iter().map(String::as_str);
        let other = hosts.find(|host| *host != writer)?;
        let here = host_of(self, channel.source);
        let there = if here == writer { other } else { writer };
        let is_between = [writer, other].contains(&here) && (self.is_core(here) || self.is_core(there));
        let destination = channel
            .destinations
            .iter()
            .find(|at| host_of(self, **at) == there)?;
        let hop = hops_between(self, channel, here, there).next()?;
        if !is_between || here == there || (hop.link, hop.bus) != (link, bus) {
            return None;
        }
        // The ring is the queue of the core's port: nothing else there holds messages.
        let port = self.port(if self.is_core(there) {
            *destination
        } else {
            channel.source
        });
        let PortKind::Queuing { max_messages, .. } = port.kind else {
            return None;
        };
        let layout = ring::Layout::for_messages(max_messages as usize, port.max_size_bytes as usize).ok()?;
        let behind = if here == writer {
            layout.required_bytes()
        } else {
            ring::CREDIT_BYTES
        };
        Some((layout, END_BYTES.checked_add(behind)?))
    }
}
