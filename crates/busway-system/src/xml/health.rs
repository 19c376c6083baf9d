//! The health monitor's tables: `System_HM_Table`, `Module_HM_Table` and `Partition_HM_Table`
//! (ARINC 653, AIR), `HM_Table` of a partition (JetOS).
//!
//! Contract: gives partitions the actions of those faults that Linux shows. AIR numbers errors; the
//! numbers are those of its public configurations ([`NUMBERS`]). A table has entries for several
//! states of the system. The state in which a partition's application runs counts; an error that it
//! lacks is looked up in the others, in their order. If the level of an error is `MODULE`, the
//! module's table says what it does.

use std::collections::HashMap;

use super::channels::partition_of;
use super::tree::{Attribute, Element};
use super::unknown;
use crate::diagnostic::{Notes, one_of};
use crate::execution::{Fault, FaultAction};
use crate::parse::draft::{Draft, DraftExecution};

/// AIR's error identifiers of each fault, the most telling first.
const NUMBERS: [(Fault, &[u64]); 6] = [
    (Fault::IllegalRequest, &[1, 3]),
    (Fault::MemoryViolation, &[2, 10]),
    (Fault::NumericError, &[6, 4, 5]),
    (Fault::ApplicationError, &[12]),
    (Fault::Failure, &[12]),
    (Fault::Start, &[9, 8]),
];

/// JetOS: `ErrorCode` of each fault.
const CODES: [(Fault, &[&str]); 5] = [
    (Fault::IllegalRequest, &["ILLEGAL_REQUEST"]),
    (Fault::MemoryViolation, &["MEMORY_VIOLATION", "STACK_OVERFLOW"]),
    (Fault::NumericError, &["NUMERIC_ERROR"]),
    (Fault::ApplicationError, &["APPLICATION_ERROR"]),
    (Fault::Failure, &["APPLICATION_ERROR"]),
];

const PARTITION_ACTIONS: [(&str, FaultAction); 4] = [
    ("IGNORE", FaultAction::Ignore),
    ("WARM_START", FaultAction::WarmStart),
    ("COLD_START", FaultAction::ColdStart),
    ("IDLE", FaultAction::Idle),
];
/// A module that is reset ends too: who started the supervisor starts it again.
const MODULE_ACTIONS: [(&str, FaultAction); 3] = [
    ("IGNORE", FaultAction::Ignore),
    ("SHUTDOWN", FaultAction::Shutdown),
    ("RESET", FaultAction::Shutdown),
];

/// Reads the tables among `elements`; partitions have been read.
pub(super) fn read(elements: &[Element<'_>], draft: &mut Draft, notes: &mut Notes<'_>) {
    let named = |name: &'static str| elements.iter().filter(move |element| element.name() == name);
    let levels: HashMap<u64, bool> = named("System_HM_Table")
        .flat_map(|table| entries(table, "Error_ID_Level", notes, is_module_level))
        .collect();
    let of_module: HashMap<u64, FaultAction> = named("Module_HM_Table")
        .flat_map(|table| {
            entries(table, "Error_ID_Action", notes, |it, notes| {
                action(it, &MODULE_ACTIONS, notes)
            })
        })
        .collect();
    for table in named("Partition_HM_Table") {
        let name = partition_of(table, table.name(), &draft.partitions, notes);
        let actions = entries(table, "Error_ID_Action", notes, |it, notes| {
            action(it, &PARTITION_ACTIONS, notes)
        });
        let found = draft
            .partitions
            .iter_mut()
            .find(|it| Some(&it.name) == name.as_ref());
        if let Some(partition) = found {
            merge(&mut partition.execution, |number| actions.get(&number).copied());
        }
    }
    for partition in &mut draft.partitions {
        merge(&mut partition.execution, |number| {
            let is_module = levels.get(&number).copied().unwrap_or(false);
            of_module.get(&number).copied().filter(|_| is_module)
        });
    }
}

/// Sets the actions that `of` knows.
fn merge(execution: &mut DraftExecution, of: impl Fn(u64) -> Option<FaultAction>) {
    for (fault, numbers) in NUMBERS {
        if let Some(action) = numbers.iter().find_map(|number| of(*number)) {
            execution.on_fault[fault as usize] = Some(action);
        }
    }
}

/// What `read` finds in the elements called `name`, by error identifier: of the state in which
/// applications run, else of the first state that has the identifier.
fn entries<T>(
    table: &Element<'_>,
    name: &str,
    notes: &mut Notes<'_>,
    read: impl Fn(&Element<'_>, &mut Notes<'_>) -> Option<T>,
) -> HashMap<u64, T> {
    let mut states: Vec<Element<'_>> = Vec::new();
    for child in table.children().filter(|child| !child.is_foreign()) {
        if child.name() == "System_State_Entry" {
            states.push(child);
        } else {
            unknown(&child, table.name(), &["System_State_Entry"], notes);
        }
    }
    states.sort_by_key(|state| !is_of_applications(state));
    let mut found = HashMap::new();
    for state in states {
        for child in state.children().filter(|child| child.name() == name) {
            let identifier = child.required(&["ErrorIdentifier"], "2", table.name(), notes);
            let Some(number) = identifier.and_then(|it| it.number()) else {
                continue;
            };
            if let Some(value) = read(&child, notes) {
                found.entry(number).or_insert(value);
            }
        }
    }
    found
}

fn is_of_applications(state: &Element<'_>) -> bool {
    let description = state.attribute(&["Description"], "");
    let text = description.map_or_else(String::new, |it| it.value.to_ascii_lowercase());
    text.contains("application") || (text.contains("running") && !text.contains("not"))
}

fn is_module_level(element: &Element<'_>, notes: &mut Notes<'_>) -> Option<bool> {
    let level = element.required(&["ErrorLevel"], "PARTITION", element.name(), notes)?;
    match level.value {
        "MODULE" => Some(true),
        "PARTITION" | "PROCESS" => Some(false),
        _ => {
            let right = "write \"MODULE\", \"PARTITION\" or \"PROCESS\"";
            level.refuse("is no level of an error", right, notes);
            None
        }
    }
}

fn action(
    element: &Element<'_>,
    known: &[(&'static str, FaultAction)],
    notes: &mut Notes<'_>,
) -> Option<FaultAction> {
    let written: Attribute<'_> = element.required(&["Action"], known[0].0, element.name(), notes)?;
    let found = known.iter().find(|(word, _)| *word == written.value);
    if found.is_none() {
        let right = format!("write {}", one_of(known.iter().map(|(word, _)| *word)));
        written.refuse("is no action of this table", right, notes);
    }
    found.map(|(_, action)| *action)
}

/// JetOS: a partition's own table of `Error` elements.
pub(super) fn of_partition(table: &Element<'_>, execution: &mut DraftExecution, notes: &mut Notes<'_>) {
    let mut actions = HashMap::new();
    for child in table.children().filter(|child| !child.is_foreign()) {
        if child.name() != "Error" {
            unknown(&child, table.name(), &["Error"], notes);
            continue;
        }
        let code = child.required(&["ErrorCode"], "APPLICATION_ERROR", "HM_Table/Error", notes);
        if let (Some(code), Some(action)) = (code, action(&child, &PARTITION_ACTIONS, notes)) {
            actions.entry(code.value).or_insert(action);
        }
    }
    for (fault, codes) in CODES {
        if let Some(action) = codes.iter().find_map(|code| actions.get(code)) {
            execution.on_fault[fault as usize] = Some(*action);
        }
    }
}
