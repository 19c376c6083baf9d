//! From text to [`System`]: one module for each kind of table, then what concerns several of them.

mod across;
mod bus_tables;
mod connect;
mod cores;
pub(crate) mod draft;
mod execution;
mod hosts;
mod links;
mod module;
mod partitions;
mod rules;
mod schedule;
mod unused;

use std::path::Path;

use toml::de::DeTable;

use crate::System;
use crate::diagnostic::{MAIN, Notes, SystemError};
use crate::model::{GatewayRules, Host, Iceoryx2Domain, Lane};
use crate::read::Fields;
use crate::xml::{self, Files};
use draft::Draft;

/// The tables of a system file.
const TABLES: [&str; 8] = [
    "host",
    "link",
    "gateway",
    "service",
    "lane",
    "module",
    "partition",
    "channel",
];

/// Name of the one host of a system that is an ARINC 653 XML file alone.
pub(crate) const LOCAL_HOST: &str = "local";

pub(crate) fn system(text: &str, file: &Path, files: &mut Files<'_>) -> Result<System, SystemError> {
    if xml::is_xml(text, file) {
        return xml_alone(text, file, files);
    }
    let mut notes = Notes::new(file, text);
    let (root, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        let span = error.span().unwrap_or(0..0);
        notes.error(
            &span,
            "",
            error.message(),
            "mend the TOML syntax (https://toml.io)",
        );
    }
    if !syntax_errors.is_empty() {
        // What could be read of a broken file would only bring follow-up errors.
        return Err(notes.finish().expect_err("a syntax error was noted"));
    }
    let root = Fields {
        key: String::new(),
        span: 0..0,
        table: root.get_ref(),
    };
    root.only(&TABLES, &mut notes);

    let mut hosts = hosts::read(&root, file, &mut notes);
    let links = links::read(&root, &hosts, &mut notes);
    across::check(&root, &links, &mut notes);
    let gateway = rules::gateway(&root, &mut notes);
    let lanes = rules::lanes(&root, &mut notes);
    let services = rules::services(&root, &links, &lanes, &mut notes);
    let mut draft = Draft::default();
    let module = module::read(&root, file, files, &mut draft, &mut notes);
    partitions::read(&root, &mut draft, &mut notes);
    rules::check_lanes_are_used(&root, &lanes, &services, &draft, &mut notes);
    let (mut partitions, channels) = connect::connect(&draft, &hosts, &links, &lanes, &mut notes);
    schedule::apply(&draft, &mut hosts, &mut partitions, file, &mut notes);

    let mut system = System {
        file: file.to_path_buf(),
        hosts,
        links,
        gateway,
        services,
        lanes,
        module,
        partitions,
        channels,
        warnings: Vec::new(),
    };
    cores::check(&system, &root, &draft, &mut notes);
    unused::check(&system, &root, &draft, &mut notes);
    system.warnings = notes.finish()?;
    Ok(system)
}

/// A module without a system around it: all on one host. What the file says of hosts and buses is
/// for a system that includes it.
fn xml_alone(text: &str, file: &Path, files: &mut Files<'_>) -> Result<System, SystemError> {
    let mut notes = Notes::new(file, text);
    let mut module = xml::read(file, MAIN, text.into(), files, &mut notes);
    for partition in &mut module.draft.partitions {
        partition.host = None;
    }
    for channel in &mut module.draft.channels {
        channel.bus = None;
        channel.buses.clear();
        channel.lane = None;
    }
    let mut hosts = vec![Host {
        name: LOCAL_HOST.to_string(),
        iceoryx2: Iceoryx2Domain::default(),
        status: None,
        ports: None,
        gateway: true,
        major_frame_ns: None,
    }];
    let (mut partitions, channels) =
        connect::connect(&module.draft, &hosts, &[], &[Lane::default()], &mut notes);
    schedule::apply(&module.draft, &mut hosts, &mut partitions, file, &mut notes);
    let warnings = notes.finish()?;
    Ok(System {
        file: file.to_path_buf(),
        hosts,
        links: Vec::new(),
        gateway: GatewayRules::default(),
        services: Vec::new(),
        lanes: vec![Lane::default()],
        module: module.name,
        partitions,
        channels,
        warnings,
    })
}
