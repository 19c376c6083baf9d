//! `[module]`: an ARINC 653 XML file that belongs to the system, and where its partitions run.
//!
//! The XML file is left as it was made for another system; host and bus are named here where it has
//! no extension elements, and programs, which no such file names.

use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use super::draft::{Draft, DraftChannel, DraftPartition, Spot};
use super::execution;
use crate::diagnostic::{Notes, nearest, one_of};
use crate::read::Fields;
use crate::xml::{self, Files};

const KEYS: [&str; 5] = ["name", "xml", "hosts", "buses", "partition"];

/// The module's name, from here or from the XML file; what the XML file says is added to `draft`.
pub(super) fn read(
    root: &Fields<'_, '_>,
    file: &Path,
    files: &mut Files<'_>,
    draft: &mut Draft,
    notes: &mut Notes<'_>,
) -> Option<String> {
    let table = Fields::of(root.get("module")?, "module".to_string(), notes)?;
    table.only(&KEYS, notes);
    let own_name = table.get("name").and_then(|_| {
        let (name, _) = table.required("name", "avionics", notes)?;
        Some(name.to_string())
    });
    let mut included = xml::Module::default();
    let mut is_read = false;
    if table.get("xml").is_some()
        && let Some((href, span)) = table.required("xml", "module.xml", notes)
    {
        let path = file.parent().unwrap_or(Path::new("")).join(href);
        match files(&path) {
            Ok(text) => {
                let text: Rc<str> = text.into();
                let source = notes.add_source(path.clone(), Rc::clone(&text));
                included = xml::read(&path, source, text, files, notes);
                is_read = true;
            }
            Err(cause) => notes.error(
                &span,
                table.key_of("xml"),
                format!("{} can't be read: {cause}", path.display()),
                "correct the path: it is relative to this file",
            ),
        }
    }
    for field in ["hosts", "buses"] {
        let Some(assigned) = table
            .get(field)
            .and_then(|it| Fields::of(it, table.key_of(field), notes))
        else {
            continue;
        };
        if is_read {
            assign(&assigned, field == "hosts", &mut included.draft, notes);
        }
    }
    if let Some(table) = table
        .get("partition")
        .and_then(|it| Fields::of(it, table.key_of("partition"), notes))
        .filter(|_| is_read)
    {
        complete(&table, &mut included.draft, notes);
    }
    draft.major_frame = included.draft.major_frame.take();
    draft.partitions.append(&mut included.draft.partitions);
    draft.channels.append(&mut included.draft.channels);
    own_name.or(included.name)
}

/// `[module.partition.NAME]`: how a partition of the XML file runs; goes over what that file says.
fn complete(table: &Fields<'_, '_>, draft: &mut Draft, notes: &mut Notes<'_>) {
    for (name, span, value) in table.entries() {
        let Some(fields) = Fields::of(value, table.key_of(name), notes) else {
            continue;
        };
        fields.only(&execution::KEYS, notes);
        let over = execution::read(&fields, notes);
        match draft.partitions.iter_mut().find(|it| it.name == name) {
            Some(partition) => partition.execution.replace_by(over),
            None => {
                let known = draft.partitions.iter().map(|it| it.name.as_str()).collect();
                note_unknown("partition", name, known, &span, table.key_of(name), notes);
            }
        }
    }
}

/// `PARTITION = "HOST"` or `CHANNEL = "BUS"`; goes over what the XML file says.
fn assign(table: &Fields<'_, '_>, is_hosts: bool, draft: &mut Draft, notes: &mut Notes<'_>) {
    let (what, example) = if is_hosts {
        ("partition", "vision")
    } else {
        ("channel", "memory")
    };
    for (name, span, _) in table.entries() {
        let Some((value, at)) = table.required(name, example, notes) else {
            continue;
        };
        let assigned = Some((value.to_string(), Spot::new(at, table.key_of(name))));
        let is_named = |channel: &&mut DraftChannel| channel.name.as_ref().is_some_and(|(it, _)| it == name);
        let is_partition = |partition: &&mut DraftPartition| partition.name == name;
        let target = if is_hosts {
            let mut partitions = draft.partitions.iter_mut();
            partitions.find(is_partition).map(|found| &mut found.host)
        } else {
            draft
                .channels
                .iter_mut()
                .find(is_named)
                .map(|found| &mut found.bus)
        };
        if let Some(target) = target {
            *target = assigned;
            continue;
        }
        let known: Vec<&str> = if is_hosts {
            draft.partitions.iter().map(|it| it.name.as_str()).collect()
        } else {
            let names = draft.channels.iter().filter_map(|it| it.name.as_ref());
            names.map(|(name, _)| name.as_str()).collect()
        };
        note_unknown(what, name, known, &span, table.key_of(name), notes);
    }
}

fn note_unknown(
    what: &str,
    name: &str,
    known: Vec<&str>,
    span: &Range<usize>,
    key: String,
    notes: &mut Notes<'_>,
) {
    let mend = match nearest(name, known.iter().copied()) {
        Some(near) => format!("write `{near}`"),
        None => format!("it has {}", one_of(known)),
    };
    notes.error(span, key, format!("the module has no {what} {name:?}"), mend);
}
