//! ARINC 653 XML: a module's partitions, ports and channels, as a [`Draft`].
//!
//! Reads what files made for three families of systems have in common, and more words where they
//! differ:
//!
//! - the `ARINC_653_Module` schema of ARINC 653 Part 1 (Supplement 2, appendix on the configuration
//!   schema), as AIR writes it: `Partition` with `Sampling_Port` and `Queuing_Port`,
//!   `Connection_Table`; several `Module_Schedule`s, AIR's own elements;
//! - JetOS (CHPOK): the root `chpok-configuration`, partitions in files of their own by XInclude,
//!   `Definition`, `ARINC653_Ports`, `Queueing_Port`, sizes with `K` and `M`, `Refresh="10ms"`;
//! - `Partition_Configuration` in the place of `Partition`.
//!
//! The schedule and the tables of the health monitor are for `busway module run`: see [`schedule`]
//! and [`health`]. Memory is not Busway's: its elements are known and skipped.
//! Unknown elements and attributes are warnings. The elements of the namespace [`NAMESPACE`] are
//! Busway's extensions: see [`extension`].
//!
//! The parser is `roxmltree` (MIT or Apache-2.0, no unsafe code): unlike an event reader it gives
//! the place of each attribute, and it refuses document type definitions as a whole, so there are
//! no entities to expand. Its tree and the included files are bounded by [`MAX_NODES`] and
//! [`MAX_FILES`].

mod channels;
mod extension;
mod health;
mod partitions;
mod schedule;
mod tree;

use std::path::Path;
use std::rc::Rc;

use crate::diagnostic::{Notes, nearest};
use crate::parse::draft::{Draft, Spot};
use tree::{Element, Sources};

pub(crate) use extension::NAMESPACE;

/// Reads a file that is included, or says why it can't be read.
pub(crate) type Files<'f> = dyn FnMut(&Path) -> std::io::Result<String> + 'f;

/// Most elements, attributes and texts of one file.
const MAX_NODES: u32 = 1_000_000;

/// Most files of one module.
const MAX_FILES: usize = 256;

/// Roots of a module.
const ROOTS: [&str; 2] = ["ARINC_653_Module", "chpok-configuration"];

/// What a module holds that is not about ports.
const SKIPPED: [&str; 13] = [
    "MultiPartition_HM_Table",
    "HM_Table",
    "Partition_Memory",
    "Memory_Regions",
    "Memory_Blocks",
    "Shared_Memory",
    "SharedMemory",
    "Network",
    "AIR_Configuration",
    "air_module_ext",
    "Devices",
    "Module_Configuration",
    "GDB",
];

/// What a module holds that is read.
const READ: [&str; 7] = [
    "Partition",
    "Partition_Configuration",
    "Partitions",
    "Connection_Table",
    "Module_Schedule",
    "Schedule",
    "Partition_HM_Table",
];

/// What names partitions, which may stand behind it.
const READ_LAST: [&str; 6] = [
    "Connection_Table",
    "Module_Schedule",
    "Schedule",
    "System_HM_Table",
    "Module_HM_Table",
    "Partition_HM_Table",
];

/// What one XML module says.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// `ModuleName`.
    pub(crate) name: Option<String>,
    pub(crate) draft: Draft,
}

/// Whether a text is XML and not TOML, which no `<` can begin.
pub(crate) fn is_xml(text: &str, file: &Path) -> bool {
    let named = file
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("xml"));
    named || text.trim_start_matches('\u{feff}').trim_start().starts_with('<')
}

/// Reads a module. `source` is the number of `file` in `notes`; relative paths of included files
/// are joined to the folder of the file that includes them.
pub(crate) fn read(
    file: &Path,
    source: usize,
    text: Rc<str>,
    files: &mut Files<'_>,
    notes: &mut Notes<'_>,
) -> Module {
    let sources = Sources::load(file, source, text, files, notes);
    let documents = sources.parse();
    let Some(root) = sources.root(&documents) else {
        return Module::default();
    };
    if !ROOTS.contains(&root.name()) {
        let mend = match nearest(root.name(), ROOTS) {
            Some(name) => format!("write <{name}>"),
            None => {
                "write <ARINC_653_Module>, which holds the partitions and the connection table".to_string()
            }
        };
        notes.error_at(
            &root.place(),
            root.name(),
            format!("the root element is <{}>", root.name()),
            mend,
        );
        return Module::default();
    }
    module(&root, notes)
}

fn module(root: &Element<'_>, notes: &mut Notes<'_>) -> Module {
    root.only(
        root.name(),
        &["ModuleName", "ModuleVersion", "ModuleId", "Name"],
        notes,
    );
    let mut module = Module {
        name: root
            .attribute(&["ModuleName", "Name"], root.name())
            .map(|attribute| attribute.value.to_string()),
        draft: Draft::default(),
    };
    let mut last = Vec::new();
    walk_module(root, &mut module.draft, &mut last, notes);
    for table in last.iter().filter(|it| it.name() == "Connection_Table") {
        channels::read(table, &mut module.draft, notes);
    }
    schedule::read(&last, &mut module.draft, notes);
    health::read(&last, &mut module.draft, notes);
    // After an error they may only have been unreadable.
    if module.draft.partitions.is_empty() && !notes.has_errors() {
        notes.warning_at(
            &root.place(),
            root.name(),
            "there is no partition in this module",
            "add <Partition PartitionIdentifier=\"1\" PartitionName=\"..\"> with its ports",
        );
    }
    module
}

fn walk_module<'a>(
    parent: &Element<'a>,
    draft: &mut Draft,
    last: &mut Vec<Element<'a>>,
    notes: &mut Notes<'_>,
) {
    for child in parent.children() {
        match child.name() {
            _ if child.is_foreign() => unknown(&child, parent.name(), &READ, notes),
            "Partition" => draft.partitions.extend(partitions::read(&child, notes)),
            "Partition_Configuration" => {
                if child.is_partition() {
                    draft.partitions.extend(partitions::read(&child, notes));
                } else {
                    wrapped(&child, draft, notes);
                }
            }
            "Partitions" => wrapped(&child, draft, notes),
            name if READ_LAST.contains(&name) => last.push(child),
            name if SKIPPED.contains(&name) => {}
            _ => unknown(&child, parent.name(), &READ, notes),
        }
    }
}

/// Partitions that stand in an element of their own.
fn wrapped(wrapper: &Element<'_>, draft: &mut Draft, notes: &mut Notes<'_>) {
    for child in wrapper.children() {
        if ["Partition", "Partition_Configuration"].contains(&child.name()) && !child.is_foreign() {
            draft.partitions.extend(partitions::read(&child, notes));
        } else {
            unknown(&child, wrapper.name(), &["Partition"], notes);
        }
    }
}

/// Warns of an element that nothing reads. `key` names its parent.
fn unknown(element: &Element<'_>, key: &str, known: &[&str], notes: &mut Notes<'_>) {
    // AIR's extensions of partition and module, in a namespace of their own.
    if ["air_partition_ext", "air_module_ext"].contains(&element.name()) {
        return;
    }
    let name = element.name();
    let mend = match nearest(name, known.iter().copied()).filter(|near| *near != name) {
        Some(near) => format!("write <{near}>, or leave it: it is skipped"),
        None => "leave it, or remove it: it is skipped".to_string(),
    };
    let problem = if element.is_foreign() {
        format!(
            "unknown element <{name}> of the namespace {:?}",
            element.namespace()
        )
    } else {
        format!("unknown element <{name}>")
    };
    notes.warning_at(&element.place(), format!("{key}/{name}"), problem, mend);
}

/// Where an element stands, under its key.
fn spot(element: &Element<'_>, key: &str) -> Spot {
    Spot::new(element.place(), key)
}
