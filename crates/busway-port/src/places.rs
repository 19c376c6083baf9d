//! A C header that says where the channels of a real-time core lie.
//!
//! Contract: follows from the system file alone, as everything in [`crate::system`]. The header
//! names each port of the host that has a channel in memory that two hosts see: sampling ports
//! whose register a partition writes itself, and, on a host without a gateway, queuing ports.
//! Called by `busway check --places`.

use std::collections::BTreeMap;

use busway_system::System;

use crate::config::{ChannelConfig, FarMemory, PortConfig, PortKind, PortRef};
use crate::system::{Crossing, core_queue_of, crossings_of, is_other_host, module_of};

/// Why there is no header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacesError {
    /// There would be nothing in it.
    #[error(
        "no port of host {0:?} has a channel in memory that two hosts see: give it one over a link with the bus \"memory\", \
         and for queuing ports write gateway = false in [host.{0}]"
    )]
    None(String),
    /// Two ports would have one name in C.
    #[error("the ports {one} and {other} would both be {name} in C: rename one of them")]
    SameName {
        /// The name in C.
        name: String,
        /// A port.
        one: String,
        /// Another one.
        other: String,
    },
}

/// The header for programs on `host`. Offsets in it are from the start of the file or device that
/// the link's `memory` names.
///
/// # Errors
/// See [`PlacesError`].
pub fn header(system: &System, host: &str) -> Result<String, PlacesError> {
    let module = module_of(system, host);
    let crossings = crossings_of(system, host);
    let mut text = format!(
        "/* Where the channels of {host} lie, by its system file. Made by `busway check --places`. */\n\
         #ifndef BUSWAY_PLACES_H\n#define BUSWAY_PLACES_H\n\n#include \"busway/port.h\"\n"
    );
    let mut names: BTreeMap<String, PortRef> = BTreeMap::new();
    let own = |partition: &&crate::config::PartitionConfig| !is_other_host(&partition.name);
    for partition in module.partitions.iter().filter(own) {
        for port in &partition.ports {
            let at = PortRef::new(&partition.name, &port.name);
            let joins = |channel: &&ChannelConfig| channel.source == at || channel.destinations.contains(&at);
            let Some(channel) = module.channels.iter().find(joins) else {
                continue;
            };
            let place = match port.kind {
                PortKind::Sampling { .. } => sampling(port, &at, channel),
                PortKind::Queuing { .. } => queuing(system, host, port, &crossings, &at, channel),
            };
            let Some(place) = place else { continue };
            let name = name_in_c(&port.name);
            text += &format!(
                "\n/* Port {at}{}\n",
                place.replace("BUSWAY_NAME =", &format!("BUSWAY_{name} ="))
            );
            if let Some(one) = names.insert(name.clone(), at.clone()) {
                return Err(PlacesError::SameName {
                    name: format!("BUSWAY_{name}"),
                    one: one.to_string(),
                    other: at.to_string(),
                });
            }
        }
    }
    if names.is_empty() {
        return Err(PlacesError::None(host.to_string()));
    }
    text += "\n#endif\n";
    Ok(text)
}

fn sampling(port: &PortConfig, at: &PortRef, channel: &ChannelConfig) -> Option<String> {
    let far: &FarMemory = if channel.source == *at {
        channel.copies.first()?
    } else {
        channel.landing.as_ref()?
    };
    let source_at = far.place.offset_bytes() as usize + far.offset_bytes;
    let in_c = place(far.key, [source_at, 0], port.max_size(), 0, channel.slots);
    Some(format!(": in {}. */\n{in_c}", far.place.source()))
}

fn queuing(
    system: &System,
    host: &str,
    port: &PortConfig,
    crossings: &[Crossing],
    at: &PortRef,
    channel: &ChannelConfig,
) -> Option<String> {
    // The gateway's port of a crossing is the other end of the channel here.
    let is_its = |crossing: &&Crossing| {
        if crossing.leaves {
            channel.source == *at && channel.destinations.contains(&crossing.port)
        } else {
            channel.source == crossing.port
        }
    };
    let crossing = crossings.iter().find(is_its)?;
    let queue = core_queue_of(system, host, crossing)?;
    let [source, destination] = [&queue.source, &queue.destination]
        .map(|part| part.place.offset_bytes() as usize + part.offset_bytes);
    let [source_in, destination_in] = [&queue.source, &queue.destination].map(|part| part.place.source());
    let files = if source_in == destination_in {
        format!("in {source_in}")
    } else {
        format!("the source's part in {source_in}, the destination's in {destination_in}")
    };
    let layout = &queue.layout;
    let in_c = place(
        queue.key,
        [source, destination],
        port.max_size(),
        layout.data_bytes(),
        layout.lines(),
    );
    Some(format!(": {files}. */\n{in_c}"))
}

/// The `struct busway_place` of `port.h`, its members in their order: C++ has no names for them
/// before C++20.
fn place(
    key: u64,
    [source_at, destination_at]: [usize; 2],
    max_size_bytes: usize,
    data_bytes: usize,
    count: usize,
) -> String {
    format!(
        "static const struct busway_place BUSWAY_NAME = {{\n    \
         /* key */ UINT64_C({key:#018x}),\n    /* source_at */ {source_at:#x},\n    /* destination_at */ {destination_at:#x},\n    \
         /* max_size_bytes */ {max_size_bytes},\n    /* data_bytes */ {data_bytes},\n    /* count */ {count},\n}};"
    )
}

fn name_in_c(port: &str) -> String {
    let letter = |letter: char| match letter {
        _ if letter.is_ascii_alphanumeric() => letter.to_ascii_uppercase(),
        _ => '_',
    };
    port.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[host.linux]
[host.core]
gateway = false
[[link]]
hosts = ["linux", "core"]
buses = ["memory"]
memory = { path = "/dev/shm/x", length = "256KiB" }
clock = "ptp"
[[partition]]
name = "p"
host = "linux"
ports = [
  { name = "OUT", kind = "queuing", direction = "source", max_size = 64, max_messages = 10 },
  { name = "S", kind = "sampling", direction = "source", max_size = 64 },
]
[[partition]]
name = "c"
host = "core"
ports = [
  { name = "my-queue", kind = "queuing", direction = "destination", max_size = 64, max_messages = 10 },
  { name = "LATEST", kind = "sampling", direction = "destination", max_size = 64, refresh_period = "1s" },
]
[[channel]]
source = "p/OUT"
destinations = ["c/my-queue"]
[[channel]]
source = "p/S"
destinations = ["c/LATEST"]
"#;

    fn header_of(text: &str, host: &str) -> Result<String, PlacesError> {
        let system = System::parse(text, "s.toml".as_ref()).unwrap_or_else(|error| panic!("{error}"));
        header(&system, host)
    }

    /// The words of a place, without its line ends.
    fn place<'a>(header: &'a str, name: &str) -> Vec<&'a str> {
        let begin = header.find(&format!("BUSWAY_{name} = {{")).expect("it is there");
        let words = header[begin..].split_once('{').expect("a place").1;
        words
            .split_once('}')
            .expect("its end")
            .0
            .split(',')
            .map(str::trim)
            .collect()
    }

    #[test]
    fn both_hosts_come_to_the_same_places() {
        let (linux, core) = (header_of(TEXT, "linux"), header_of(TEXT, "core"));
        let (linux, core) = (linux.expect("places"), core.expect("places"));
        assert_eq!(place(&linux, "OUT"), place(&core, "MY_QUEUE"));
        assert_eq!(place(&linux, "S"), place(&core, "LATEST"));
        let queue = place(&core, "MY_QUEUE");
        assert!(
            queue.contains(&"/* count */ 16") && queue.contains(&"/* data_bytes */ 1024"),
            "{queue:?}"
        );
    }

    #[test]
    fn a_queue_has_another_key_where_anything_about_it_differs() {
        let key = |text: &str| place(&header_of(text, "core").expect("places"), "MY_QUEUE")[0].to_string();
        let other = TEXT.replace("max_messages = 10", "max_messages = 30");
        assert_ne!(key(TEXT), key(&other));
    }

    #[test]
    fn a_host_without_places_is_told_what_would_give_it_some() {
        let text = TEXT
            .replace("gateway = false\n", "")
            .replace("memory = {", "tcp.linux = { listen = \"192.0.2.1:1\" }\n# {");
        let error = header_of(&text.replace("[\"memory\"]", "[\"tcp\"]"), "core").expect_err("nothing");
        assert!(
            error.to_string().contains("gateway = false in [host.core]"),
            "{error}"
        );
    }

    #[test]
    fn two_ports_with_one_name_in_c_are_an_error() {
        let error = header_of(&TEXT.replace("LATEST", "MY_QUEUE"), "core").expect_err("one name");
        assert!(
            error.to_string().contains("would both be BUSWAY_MY_QUEUE"),
            "{error}"
        );
    }
}
