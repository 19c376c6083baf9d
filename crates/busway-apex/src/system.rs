//! From a system file to the module of one host: the partitions there and the channels between them.
//!
//! Contract: covers channels inside one host, and refuses a host with others, rather than lose their messages. Called when a
//! process joins.

use std::path::PathBuf;

use busway_port::{
    ChannelConfig, Direction, MAX_NAME_LENGTH_BYTES, Module, PartitionConfig, PortConfig, PortKind, PortRef,
    Store,
};
use busway_system::System;

/// Why a host's part of a system is no module of this library.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModuleOfError {
    /// A channel with ends on several hosts.
    #[error(
        "channel {channel:?} joins host {host:?} with host {other:?}, and this library carries channels inside one host: \
         put its partitions on one host"
    )]
    Crosses {
        channel: String,
        host: String,
        other: String,
    },
}

/// Where the module on `host` keeps its state unless told otherwise: named by the module, or the file, and the host, since
/// several hosts of a system may run on one machine.
pub(crate) fn store_root(system: &System, host: &str) -> PathBuf {
    let stem = || {
        system
            .file
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
    };
    let module = system.module.clone().or_else(stem).unwrap_or_default();
    Store::default_root(&format!("{module}.{host}"))
}

/// The module of `host`.
pub(crate) fn module_of(system: &System, host: &str) -> Result<Module, ModuleOfError> {
    let here = system
        .partitions
        .iter()
        .filter(|partition| partition.host == host);
    let mut module = Module {
        partitions: here.map(partition).collect(),
        channels: Vec::new(),
    };
    for (index, channel) in system.channels.iter().enumerate() {
        let ends = || std::iter::once(&channel.source).chain(&channel.destinations);
        let host_of = |end: &busway_system::PortRef| &system.partitions[end.partition].host;
        if ends().all(|end| host_of(end) != host) {
            continue;
        }
        if let Some(other) = ends().find(|end| host_of(end) != host) {
            return Err(ModuleOfError::Crosses {
                channel: channel.name.clone(),
                host: host.into(),
                other: host_of(other).clone(),
            });
        }
        module.channels.push(self::channel(system, index));
    }
    Ok(module)
}

fn partition(partition: &busway_system::Partition) -> PartitionConfig {
    let port = |port: &busway_system::Port| PortConfig {
        name: port.name.clone(),
        direction: match port.direction {
            busway_system::Direction::Source => Direction::Source,
            busway_system::Direction::Destination => Direction::Destination,
        },
        max_message_size_bytes: port.max_size_bytes as usize,
        kind: match port.kind {
            busway_system::PortKind::Sampling { .. } => PortKind::Sampling,
            busway_system::PortKind::Queuing { max_messages, .. } => PortKind::Queuing {
                max_messages: max_messages as usize,
            },
        },
    };
    PartitionConfig {
        name: partition.name.clone(),
        identifier: partition.id.into(),
        ports: partition.ports.iter().map(port).collect(),
    }
}

fn channel(system: &System, index: usize) -> ChannelConfig {
    let channel = &system.channels[index];
    let reference = |at: &busway_system::PortRef| {
        PortRef::new(&system.partitions[at.partition].name, &system.port(*at).name)
    };
    // A channel without a name of its own is called PARTITION/PORT, which may be longer than a name of the standard.
    let name = if channel.name.len() <= MAX_NAME_LENGTH_BYTES {
        channel.name.clone()
    } else {
        format!("#{index}")
    };
    let destinations = channel.destinations.iter().map(reference).collect();
    let mut config = ChannelConfig::new(name, reference(&channel.source), destinations);
    if let Some(slots) = channel.slots {
        config.slots = slots as usize;
    }
    config
}
