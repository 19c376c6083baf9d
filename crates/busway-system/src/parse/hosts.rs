//! `[host.NAME]`.

use std::path::Path;

use busway_buses::{self as registry, BUS_NAMES};

use crate::diagnostic::Notes;
use crate::model::{Host, Iceoryx2Domain};
use crate::read::{Fields, unknown_key};

const KEYS: [&str; 5] = ["iceoryx2", "status", "ports", "gateway", "major_frame"];
const ICEORYX2_KEYS: [&str; 3] = ["config", "root_path", "prefix"];

/// Longest host name in bytes: it crosses the bus in every hello.
const MAX_NAME_BYTES: usize = 64;

pub(super) fn read(root: &Fields<'_, '_>, file: &Path, notes: &mut Notes<'_>) -> Vec<Host> {
    let Some(value) = root.get("host") else {
        notes.error(
            &(0..0),
            "host",
            "there is no host",
            "add [host.NAME] for each of your computers",
        );
        return Vec::new();
    };
    if value.get_ref().is_array() {
        notes.error(
            &value.span(),
            "host",
            "a list is not a table of hosts",
            "write [host.NAME], with one bracket",
        );
        return Vec::new();
    }
    let Some(table) = Fields::of(value, "host".to_string(), notes) else {
        return Vec::new();
    };
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut hosts = Vec::new();
    for (name, span, value) in table.entries() {
        let key = table.key_of(name);
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(good) {
            notes.error(
                &span,
                &key,
                format!("{name:?} is no host name"),
                format!("use 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` and `.`"),
            );
        }
        if let Some(bus) = BUS_NAMES.iter().find(|bus| is_key_of(bus, name)) {
            notes.error(
                &span,
                &key,
                format!(
                    "{name:?} is a key of the bus {bus:?}: `{bus}.{name}` could be a host's table or that key"
                ),
                "give the host another name",
            );
        }
        // A key where a host is meant: `[host] status = ".."`.
        if !value.get_ref().is_table() && KEYS.contains(&name) {
            unknown_key(&key, name, &span, &["NAME"], notes);
            continue;
        }
        let host = Fields::of(value, key, notes);
        hosts.push(one(name, host.as_ref(), folder, notes));
    }
    hosts
}

/// Whether a bus table has this key: then the bus says of a senseless value something else than
/// that it does not know the key.
fn is_key_of(bus: &str, key: &str) -> bool {
    let senseless = toml::Table::from_iter([(key.to_string(), toml::Value::Array(Vec::new()))]);
    registry::parse_host(bus, senseless.into())
        .err()
        .is_none_or(|said| !said.starts_with("unknown field"))
}

/// A host that is wrong is kept by its name, so that what refers to it is not wrong too.
fn one(name: &str, host: Option<&Fields<'_, '_>>, folder: &Path, notes: &mut Notes<'_>) -> Host {
    let mut read = Host {
        name: name.to_string(),
        iceoryx2: Iceoryx2Domain::default(),
        status: None,
        ports: None,
        gateway: true,
        major_frame_ns: None,
    };
    let Some(host) = host else { return read };
    host.only(&KEYS, notes);
    read.status = path(host, "status", "/run/busway/status.json", folder, notes);
    read.ports = path(host, "ports", "/dev/shm/busway-ports", folder, notes);
    read.gateway = host.flag("gateway", notes).unwrap_or(true);
    read.major_frame_ns = host.duration_ns("major_frame", notes);
    let Some(domain) = host
        .get("iceoryx2")
        .and_then(|it| Fields::of(it, host.key_of("iceoryx2"), notes))
    else {
        return read;
    };
    domain.only(&ICEORYX2_KEYS, notes);
    read.iceoryx2 = Iceoryx2Domain {
        config: path(&domain, "config", "iceoryx2.toml", folder, notes),
        root_path: path(&domain, "root_path", "/tmp/iceoryx2", folder, notes),
        prefix: prefix(&domain, notes),
    };
    read
}

fn path(
    table: &Fields<'_, '_>,
    field: &str,
    example: &str,
    folder: &Path,
    notes: &mut Notes<'_>,
) -> Option<std::path::PathBuf> {
    table.get(field)?;
    let (text, _) = table.required(field, example, notes)?;
    Some(folder.join(text))
}

/// iceoryx2 puts the prefix in front of file names.
fn prefix(domain: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Option<String> {
    domain.get("prefix")?;
    let (text, span) = domain.required("prefix", "iox2_", notes)?;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.len() > MAX_NAME_BYTES || !text.bytes().all(good) {
        notes.error(
            &span,
            domain.key_of("prefix"),
            format!("{text:?} can't begin a file name of iceoryx2"),
            format!("use 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` and `.`, such as \"iox2_\""),
        );
        return None;
    }
    Some(text.to_string())
}
