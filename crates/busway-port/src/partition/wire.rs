//! Connects the ports of a partition with the channels of its module.
//!
//! Contract: maps for writing what the partition writes, its own file and the channels of its source ports, and everything
//! else read-only. Called when a process joins.

use super::queuing::{Inlet, Outlet, Outlets};
use super::sampling::{Latest, Register};
use super::{End, Port};
use crate::config::{ChannelConfig, PartitionConfig, PortRef};
use crate::store::layout::{ChannelLayout, PartitionLayout, outlet, port};
use crate::store::{Store, StoreError};
use crate::sys::{Area, View};
use crate::waiters::WAITER_WORDS;

/// All ports of the partition `config`, whose body is `body`.
pub(super) fn ports(store: &Store, config: &PartitionConfig, body: &Area) -> Result<Vec<Port>, StoreError> {
    let layout = PartitionLayout::new(config.ports.len());
    let mut ports = Vec::with_capacity(config.ports.len());
    for (index, port_config) in config.ports.iter().enumerate() {
        let area = body.part(layout.port_offset(index), port::STRIDE);
        let reference = PortRef::new(&config.name, &port_config.name);
        let end = connect(store, &reference, &area)?;
        ports.push(Port {
            config: port_config.clone(),
            table: area.part(port::WAITERS, WAITER_WORDS * 8),
            area,
            end,
        });
    }
    Ok(ports)
}

fn connect(store: &Store, reference: &PortRef, area: &Area) -> Result<End, StoreError> {
    let uses =
        |channel: &&ChannelConfig| channel.source == *reference || channel.destinations.contains(reference);
    let Some(channel) = store.module().channels.iter().find(uses) else {
        return Ok(End::Unconnected);
    };
    let (opened, layout) = store.open_channel(channel)?;
    let is_source = channel.source == *reference;
    Ok(match (layout, is_source) {
        (ChannelLayout::Sampling(register), true) => {
            End::SamplingSource(Register::new(opened.area()?, register, channel.clock))
        }
        (ChannelLayout::Sampling(register), false) => {
            End::SamplingDestination(Latest::new(opened.view()?, register, channel.clock))
        }
        (ChannelLayout::Queuing(layouts), true) => {
            let body = opened.area()?;
            let mut outlets = Vec::with_capacity(layouts.len());
            for (layout, destination) in layouts.iter().zip(&channel.destinations) {
                let control = body.part(layout.offset, outlet::BYTES);
                let ring = body.part(layout.offset + outlet::BYTES, layout.ring.required_bytes());
                let far = port_view(store, destination)?;
                outlets.push(Outlet::new(control, ring, far, *layout));
            }
            End::QueuingSource(Outlets::new(outlets, channel.when_full, channel.clock))
        }
        (ChannelLayout::Queuing(layouts), false) => {
            let view = opened.view()?;
            let mine = channel
                .destinations
                .iter()
                .position(|destination| destination == reference);
            // `uses` has found the port among them.
            let layout = layouts[mine.unwrap_or_default()];
            let control = view.part(layout.offset, outlet::BYTES);
            let ring = view.part(layout.offset + outlet::BYTES, layout.ring.required_bytes());
            let far = port_view(store, &channel.source)?;
            End::QueuingDestination(Inlet::new(control, ring, far, area, layout))
        }
    })
}

/// The part of another partition's file that belongs to the port `reference`, read-only.
fn port_view(store: &Store, reference: &PortRef) -> Result<View, StoreError> {
    let module = store.module();
    // The module was validated when the store was opened: every channel's ports exist.
    let missing = || crate::config::ModuleError::NoPort {
        channel: String::new(),
        port: reference.clone(),
    };
    let partition = module.partition(&reference.partition).ok_or_else(missing)?;
    let (index, _) = module.port(reference).ok_or_else(missing)?;
    let layout = PartitionLayout::new(partition.ports.len());
    let view = store.open_partition(partition)?.view()?;
    Ok(view.part(layout.port_offset(index), port::STRIDE))
}
