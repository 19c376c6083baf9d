//! Registers of sampling channels in the memory of other hosts: which channels have one, and where it lies.
//!
//! Contract: follows from the system file alone, so both hosts of a link come to the same. Over a one-sided bus each host sets a part of the
//! memory that the other one writes aside ([`busway_transport::one_sided`]); the sampling channels that take this bus get their registers there, in
//! the order of the file, as long as there is room. The others are moved by the gateways. Called by [`route`](crate::route), by the
//! links (how much is set aside) and by the ports.

use busway_core::register;
use busway_transport::one_sided::Role;
use busway_transport::registry;

use crate::System;
use crate::ports::Channel;
use crate::route::{hops_between, host_of};

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

/// What the programs of one host write over one bus of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortArea {
    /// In the order of the file.
    pub registers: Vec<FarRegister>,
    /// What they need, in bytes.
    pub bytes: u64,
}

impl System {
    /// The registers that programs on the host `writer` write into the memory of the other host of a link; none if the bus is not
    /// one-sided. `link` is an index in [`System::links`].
    pub fn port_area(&self, link: usize, bus: &str, writer: &str) -> PortArea {
        let mut area = PortArea::default();
        let Some(room) = self.port_room_bytes(link, bus, writer) else {
            return area;
        };
        for (index, channel) in self.channels.iter().enumerate() {
            let Some(layout) = self.far_layout(channel, link, bus, writer) else {
                continue;
            };
            let bytes = (layout.required_bytes() as u64).next_multiple_of(ALIGNMENT_BYTES);
            // A smaller one behind it may still fit.
            if bytes > room.saturating_sub(area.bytes) {
                continue;
            }
            area.registers.push(FarRegister {
                channel: index,
                offset_bytes: area.bytes as usize,
                layout,
            });
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
        Some(bus.seen_from(at).port_room_bytes(Role::Writes))
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
        // A shape that is impossible is no business of this function: the ports say so.
        let layout = register::Layout::new(slots as usize, max_size_bytes).ok()?;
        goes_there.then_some(layout)
    }
}
