//! The module that tests and programs of this crate share: every kind of channel there is.
#![allow(dead_code)] // Each program uses a part of this.

pub mod script;
pub mod toml;

use busway_port::{
    ChannelConfig, Direction, Module, PartitionConfig, PortConfig, PortKind, PortRef, WhenFull,
};

/// Longest message of every port but the small ones, in bytes: more than a ring's line holds.
pub const SIZE_BYTES: usize = 64;
/// Longest message of the channel `small`, in bytes: fits a ring's line.
pub const SMALL_BYTES: usize = 16;
/// Longest message of the channel `large`, in bytes.
pub const LARGE_BYTES: usize = 4096;
/// Depth of every queue.
pub const DEPTH: usize = 3;

fn port(name: &str, direction: Direction, size_bytes: usize, kind: PortKind) -> PortConfig {
    PortConfig::new(name, direction, size_bytes as u32, kind)
}

/// Partitions `sensors`, `navigation` and `display`, and between them:
///
/// | channel | kind | from | to |
/// |---|---|---|---|
/// | `attitude` | sampling | sensors/ATTITUDE_OUT | navigation/ATTITUDE, display/ATTITUDE, sensors/ATTITUDE_BACK |
/// | `large` | sampling | sensors/LARGE_OUT | navigation/LARGE |
/// | `command` | queuing, waits | navigation/COMMAND_OUT | sensors/COMMAND |
/// | `small` | queuing, waits | navigation/SMALL_OUT | sensors/SMALL |
/// | `all` | queuing, waits | navigation/ALL_OUT | sensors/ALL, display/ALL |
/// | `alarm` | queuing, overflows | sensors/ALARM_OUT | navigation/ALARM, display/ALARM |
pub fn module() -> Module {
    use Direction::{Destination, Source};
    let sampling = PortKind::SAMPLING;
    let queuing = PortKind::queuing(DEPTH as u32);
    let partition = |name: &str, identifier, ports| PartitionConfig {
        name: name.into(),
        identifier,
        ports,
    };
    let channel = |name: &str, source: (&str, &str), destinations: &[(&str, &str)]| {
        let reference = |(partition, port): (&str, &str)| PortRef::new(partition, port);
        let destinations = destinations.iter().copied().map(reference).collect();
        ChannelConfig::new(name, reference(source), destinations)
    };
    let mut all = channel(
        "all",
        ("navigation", "ALL_OUT"),
        &[("sensors", "ALL"), ("display", "ALL")],
    );
    all.when_full = WhenFull::Wait;
    Module {
        partitions: vec![
            partition(
                "sensors",
                1,
                vec![
                    port("ATTITUDE_OUT", Source, SIZE_BYTES, sampling),
                    port("ATTITUDE_BACK", Destination, SIZE_BYTES, sampling),
                    port("LARGE_OUT", Source, LARGE_BYTES, sampling),
                    port("COMMAND", Destination, SIZE_BYTES, queuing),
                    port("SMALL", Destination, SMALL_BYTES, queuing),
                    port("ALL", Destination, SIZE_BYTES, queuing),
                    port("ALARM_OUT", Source, SIZE_BYTES, queuing),
                    port("LOOSE_OUT", Source, SIZE_BYTES, sampling),
                ],
            ),
            partition(
                "navigation",
                2,
                vec![
                    port("ATTITUDE", Destination, SIZE_BYTES, sampling),
                    port("LARGE", Destination, LARGE_BYTES, sampling),
                    port("COMMAND_OUT", Source, SIZE_BYTES, queuing),
                    port("SMALL_OUT", Source, SMALL_BYTES, queuing),
                    port("ALL_OUT", Source, SIZE_BYTES, queuing),
                    port("ALARM", Destination, SIZE_BYTES, queuing),
                    port("LOOSE", Destination, SIZE_BYTES, sampling),
                    port("LOOSE_QUEUE", Destination, SIZE_BYTES, queuing),
                ],
            ),
            partition(
                "display",
                3,
                vec![
                    port("ATTITUDE", Destination, SIZE_BYTES, sampling),
                    port("ALL", Destination, SIZE_BYTES, queuing),
                    port("ALARM", Destination, SIZE_BYTES, queuing),
                ],
            ),
        ],
        channels: vec![
            channel(
                "attitude",
                ("sensors", "ATTITUDE_OUT"),
                &[
                    ("navigation", "ATTITUDE"),
                    ("display", "ATTITUDE"),
                    ("sensors", "ATTITUDE_BACK"),
                ],
            ),
            channel("large", ("sensors", "LARGE_OUT"), &[("navigation", "LARGE")]),
            channel(
                "command",
                ("navigation", "COMMAND_OUT"),
                &[("sensors", "COMMAND")],
            ),
            channel("small", ("navigation", "SMALL_OUT"), &[("sensors", "SMALL")]),
            all,
            channel(
                "alarm",
                ("sensors", "ALARM_OUT"),
                &[("navigation", "ALARM"), ("display", "ALARM")],
            ),
        ],
    }
}
