//! What tests and examples share: the header with the places of channels, and telling that a tool is missing.
#![allow(dead_code)] // Each user takes a part.

#[path = "../../../../tests/src/skip.rs"]
mod skip;

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use busway_port::system::module_of;
use busway_port::{FarMemory, PortKind};
use busway_system::System;

/// A C header with a `busway_place` for each sampling port of `host` whose channel lies in memory that two hosts see.
///
/// Offsets are from the start of the window's file or device.
///
/// # Errors
/// In words: a host without such a channel.
pub fn places(system: &System, host: &str) -> Result<String, String> {
    let module = module_of(system, host);
    let mut text = format!(
        "/* Where the channels of {host} lie, by its system file. Made by `cargo run -p busway-c --example places`. */\n\
         #ifndef BUSWAY_PLACES_H\n#define BUSWAY_PLACES_H\n\n#include \"busway/port.h\"\n"
    );
    let mut count = 0;
    for partition in &module.partitions {
        for port in &partition.ports {
            let name = |end: &busway_port::PortRef| end.partition == partition.name && end.port == port.name;
            let channel = module
                .channels
                .iter()
                .find(|channel| name(&channel.source) || channel.destinations.iter().any(name));
            let Some(channel) = channel.filter(|_| matches!(port.kind, PortKind::Sampling)) else {
                continue;
            };
            let far = if name(&channel.source) {
                channel.copies.first()
            } else {
                channel.landing.as_ref()
            };
            let Some(far) = far.filter(|_| !partition.name.starts_with('/')) else {
                continue;
            };
            text += &place(&port.name, far, port.max_message_size_bytes, channel.slots);
            count += 1;
        }
    }
    if count == 0 {
        return Err(format!(
            "no sampling port of host `{host}` has a channel in memory that two hosts see: \
             give it one over a link with the bus `memory`"
        ));
    }
    text += "\n#endif\n";
    Ok(text)
}

fn place(port: &str, far: &FarMemory, max_size_bytes: usize, slots: usize) -> String {
    let name: String = port
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect();
    let at = far.place.offset_bytes() as usize + far.offset_bytes;
    let mut text = String::new();
    let _ = write!(
        text,
        "\n/* Port {port}: in {}. */\nstatic const struct busway_place BUSWAY_{name} = {{\n    \
         .key = UINT64_C({:#018x}), .source_at = {at:#x}, .max_size_bytes = {max_size_bytes}, .count = {slots},\n}};\n",
        far.place.source(),
        far.key
    );
    text
}

/// Whether all of `tools` are here. If not, says so, and tells the file that `BUSWAY_SKIPPED` names.
pub fn has(tools: &[&str]) -> bool {
    let is_missing = |tool: &&&str| {
        Command::new(**tool)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
    };
    let Some(missing) = tools.iter().find(is_missing) else {
        return true;
    };
    skip::skipped(missing);
    false
}
