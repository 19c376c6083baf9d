//! The keys of a partition about its execution: `command`, `processors`, `policy`, `windows`,
//! `on_fault` and their kin, in `[[partition]]` and in `[module.partition.NAME]`.
//!
//! Contract: checks what one partition shows by itself; [`super::schedule`] checks the rest.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::draft::{DraftExecution, DraftWindow, PolicyName, Spot};
use crate::diagnostic::Notes;
use crate::execution::{Fault, FaultAction, MAX_PRIORITY, MAX_PROCESSORS};
use crate::read::Fields;

pub(super) const KEYS: [&str; 10] = [
    "command",
    "directory",
    "environment",
    "processors",
    "policy",
    "priority",
    "windows",
    "window",
    "on_fault",
    "restart_limit",
];
const WINDOW_KEYS: [&str; 3] = ["offset", "duration", "period"];
const POLICIES: [(&str, PolicyName); 3] = [
    ("other", PolicyName::Other),
    ("fifo", PolicyName::Fifo),
    ("round-robin", PolicyName::RoundRobin),
];

pub(super) fn read(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> DraftExecution {
    let spot = |field: &str| {
        let value = table.get(field)?;
        Some(Spot::new(value.span(), table.key_of(field)))
    };
    let mut windows = Vec::new();
    for field in ["windows", "window"] {
        for window_table in table.tables(field, notes) {
            windows.extend(window(&window_table, notes));
        }
    }
    let mut on_fault = [None; Fault::ALL.len()];
    faults(table, &mut on_fault, notes);
    DraftExecution {
        command: command(table, notes).zip(spot("command")),
        directory: table.get("directory").and_then(|_| {
            let (directory, _) = table.required("directory", "/opt/navigation", notes)?;
            Some((PathBuf::from(directory), spot("directory")?))
        }),
        environment: environment(table, notes).zip(spot("environment")),
        processors: processors(table, notes).zip(spot("processors")),
        policy: table.word("policy", &POLICIES, notes).zip(spot("policy")),
        priority: table
            .number("priority", 1..=i64::from(MAX_PRIORITY), notes)
            .and_then(|priority| u8::try_from(priority).ok())
            .zip(spot("priority")),
        windows,
        period_ns: None,
        on_fault,
        restart_limit: table
            .number("restart_limit", 0..=i64::from(u32::MAX), notes)
            .and_then(|limit| u32::try_from(limit).ok()),
    }
}

fn command(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Option<Vec<String>> {
    let written = table.texts("command", "[\"./navigation\", \"--fast\"]", notes)?;
    if written.is_empty() {
        notes.error(
            &table.get("command")?.span(),
            table.key_of("command"),
            "names no program",
            "write for example [\"./navigation\"]",
        );
        return None;
    }
    Some(written.into_iter().map(|(text, _)| text.to_string()).collect())
}

fn environment(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Option<BTreeMap<String, String>> {
    let written = Fields::of(table.get("environment")?, table.key_of("environment"), notes)?;
    let mut environment = BTreeMap::new();
    for (name, span, _) in written.entries() {
        if name.is_empty() || name.contains(['=', '\0']) {
            notes.error(
                &span,
                written.key_of(name),
                format!("{name:?} is no name of an environment variable"),
                "use a name without `=`",
            );
        } else if let Some((value, _)) = written.text(name, "3", notes) {
            environment.insert(name.to_string(), value.to_string());
        }
    }
    Some(environment)
}

fn processors(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Option<Vec<usize>> {
    let value = table.get("processors")?;
    let key = table.key_of("processors");
    let right = format!("write numbers from 0 to {}, such as [1, 2]", MAX_PROCESSORS - 1);
    let Some(array) = value.get_ref().as_array() else {
        notes.error(&value.span(), key, "is no list of processors", right);
        return None;
    };
    let mut processors: Vec<usize> = Vec::new();
    for (index, element) in array.iter().enumerate() {
        let key = format!("{key}[{index}]");
        let number = element
            .get_ref()
            .as_integer()
            .and_then(|number| usize::from_str_radix(number.as_str(), number.radix()).ok())
            .filter(|number| *number < MAX_PROCESSORS);
        match number {
            None => notes.error(
                &element.span(),
                key,
                format!("{} is no processor", crate::read::shown(element.get_ref())),
                right.clone(),
            ),
            Some(number) if processors.contains(&number) => notes.error(
                &element.span(),
                key,
                format!("processor {number} stands here twice"),
                "name each processor once",
            ),
            Some(number) => processors.push(number),
        }
    }
    if array.is_empty() {
        let problem = "names no processor, so the partition could never run";
        notes.error(
            &value.span(),
            key,
            problem,
            "name one, or remove `processors` to allow all",
        );
    }
    processors.sort_unstable();
    Some(processors)
}

fn window(table: &Fields<'_, '_>, notes: &mut Notes<'_>) -> Option<DraftWindow> {
    table.only(&WINDOW_KEYS, notes);
    for (field, example) in [("offset", "\"0ms\""), ("duration", "\"10ms\"")] {
        if table.get(field).is_none() {
            super::partitions::missing(table, field, example, notes);
        }
    }
    let offset_ns = table.time_ns("offset", 0, notes);
    let duration_ns = table.duration_ns("duration", notes);
    let has_period = table.get("period").is_some();
    let period_ns = table.duration_ns("period", notes);
    if has_period && period_ns.is_none() {
        return None;
    }
    Some(DraftWindow {
        offset_ns: offset_ns?,
        duration_ns: duration_ns?,
        period_ns,
        spot: Spot::new(table.span.clone(), &table.key),
    })
}

/// One action for all faults, or a table with an action for each and a `default`.
fn faults(
    table: &Fields<'_, '_>,
    on_fault: &mut [Option<FaultAction>; Fault::ALL.len()],
    notes: &mut Notes<'_>,
) {
    let Some(value) = table.get("on_fault") else {
        return;
    };
    if value.get_ref().as_str().is_some() {
        *on_fault = [table.word("on_fault", &FaultAction::WORDS, notes); Fault::ALL.len()];
        return;
    }
    let Some(written) = Fields::of(value, table.key_of("on_fault"), notes) else {
        return;
    };
    let mut known = Fault::ALL.map(Fault::name).to_vec();
    known.push("default");
    written.only(&known, notes);
    let default = written.word("default", &FaultAction::WORDS, notes);
    for fault in Fault::ALL {
        let own = written.word(fault.name(), &FaultAction::WORDS, notes);
        on_fault[fault as usize] = own.or(default);
    }
}
