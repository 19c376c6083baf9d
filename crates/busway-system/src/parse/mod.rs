//! From text to [`System`]: one module for each kind of table, then what concerns several of them.

mod across;
mod bus_tables;
mod hosts;
mod links;
mod rules;

use std::path::Path;

use toml::de::DeTable;

use crate::System;
use crate::diagnostic::{Notes, SystemError};
use crate::read::Fields;

/// The tables of a system file.
const TABLES: [&str; 5] = ["host", "link", "gateway", "service", "lane"];

/// Tables that the design has and this version does not.
const LATER: [&str; 2] = ["partition", "channel"];

pub(crate) fn system(text: &str, file: &Path) -> Result<System, SystemError> {
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
    refuse_unknown_tables(&root, &mut notes);

    let hosts = hosts::read(&root, file, &mut notes);
    let links = links::read(&root, &hosts, &mut notes);
    across::check(&root, &links, &mut notes);
    let gateway = rules::gateway(&root, &mut notes);
    let lanes = rules::lanes(&root, &mut notes);
    let services = rules::services(&root, &lanes, &mut notes);
    rules::check_lanes_are_used(&root, &lanes, &services, &mut notes);

    let warnings = notes.finish()?;
    Ok(System {
        file: file.to_path_buf(),
        hosts,
        links,
        gateway,
        services,
        lanes,
        warnings,
    })
}

fn refuse_unknown_tables(root: &Fields<'_, '_>, notes: &mut Notes<'_>) {
    for (field, span, value) in root.entries() {
        if LATER.contains(&field) {
            let span = match value.get_ref().as_array().and_then(|array| array.first()) {
                Some(first) => first.span(),
                None => span,
            };
            notes.error(
                &span,
                field,
                "not built yet: this version joins iceoryx2 services only",
                format!("remove every [[{field}]]"),
            );
        } else if !TABLES.contains(&field) {
            crate::read::unknown_key(field, field, &span, &TABLES, notes);
        }
    }
}
