//! The module of the torture test: one sampling channel.

use busway_port::{ChannelConfig, Direction, Module, PartitionConfig, PortConfig, PortKind, PortRef};

/// `source/OUT` to `sink/IN`.
pub fn module(size_bytes: usize) -> Module {
    let partition = |name: &str, port: &str, direction| PartitionConfig {
        name: name.into(),
        identifier: 1,
        ports: vec![PortConfig::new(
            port,
            direction,
            size_bytes as u32,
            PortKind::SAMPLING,
        )],
    };
    Module {
        partitions: vec![
            partition("source", "OUT", Direction::Source),
            partition("sink", "IN", Direction::Destination),
        ],
        channels: vec![ChannelConfig::new(
            "torture",
            PortRef::new("source", "OUT"),
            vec![PortRef::new("sink", "IN")],
        )],
    }
}
