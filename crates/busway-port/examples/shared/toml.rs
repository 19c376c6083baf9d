//! The shared module as a system file says it.

use std::fmt::Write;

use busway_port::{Direction, PortKind, WhenFull};

/// Partitions, ports and channels; `host_of` says on which host a partition is. Hosts and links are
/// the caller's.
pub fn text(host_of: impl Fn(&str) -> &'static str) -> String {
    let module = super::module();
    let mut text = String::new();
    for partition in &module.partitions {
        let (name, id, host) = (&partition.name, partition.identifier, host_of(&partition.name));
        let _ = writeln!(text, "[[partition]]\nname = {name:?}\nid = {id}\nhost = {host:?}");
        for port in &partition.ports {
            let (name, size) = (&port.name, port.max_size_bytes);
            let _ = writeln!(text, "[[partition.port]]\nname = {name:?}\nmax_size = {size}");
            let _ = writeln!(
                text,
                "direction = \"{}\"\nkind = \"{}\"",
                port.direction,
                port.kind.name()
            );
            let _ = match port.kind {
                PortKind::Queuing { max_messages, .. } => writeln!(text, "max_messages = {max_messages}"),
                PortKind::Sampling { .. } if port.direction == Direction::Destination => {
                    writeln!(text, "refresh_period = \"1s\"")
                }
                PortKind::Sampling { .. } => Ok(()),
            };
        }
    }
    for channel in &module.channels {
        let destinations: Vec<String> = channel.destinations.iter().map(ToString::to_string).collect();
        let (name, source) = (&channel.name, channel.source.to_string());
        let _ = writeln!(
            text,
            "[[channel]]\nname = {name:?}\nsource = {source:?}\ndestinations = {destinations:?}"
        );
        if destinations.len() > 1 && channel.when_full == WhenFull::Wait {
            text += "when_full = \"wait\"\n";
        }
    }
    text
}
