//! The time schedule: `Module_Schedule` with `Partition_Schedule` and `Window_Schedule` (ARINC 653,
//! AIR), `Schedule` with `Slot` (JetOS).
//!
//! Contract: gives partitions their windows and the draft its major frame. Of several module
//! schedules the one with `InitialModuleSchedule="true"` counts, else the first: a Linux module
//! does not change its schedule. AIR's `WindowConfiguration Cores=".."` names processors; Busway
//! gives a partition the same ones in all its windows.

use super::channels::partition_of;
use super::partitions::{refresh_ns, seconds_ns};
use super::tree::Element;
use super::{spot, unknown};
use crate::diagnostic::Notes;
use crate::execution::MAX_PROCESSORS;
use crate::parse::draft::{Draft, DraftWindow, Spot};

const PARTITION_ATTRIBUTES: [&str; 6] = [
    "PartitionIdentifier",
    "PartitionName",
    "PeriodSeconds",
    "PeriodDurationSeconds",
    "SetModuleSchedule",
    "ScheduleChangeAction",
];
const WINDOW_ATTRIBUTES: [&str; 4] = [
    "WindowIdentifier",
    "WindowStartSeconds",
    "WindowDurationSeconds",
    "PartitionPeriodStart",
];
const SLOT_ATTRIBUTES: [&str; 4] = ["Type", "PartitionNameRef", "Duration", "PeriodicProcessingStart"];

/// Reads the schedules among `elements`; partitions have been read.
pub(super) fn read(elements: &[Element<'_>], draft: &mut Draft, notes: &mut Notes<'_>) {
    let named = |name: &'static str| elements.iter().filter(move |element| element.name() == name);
    let is_initial = |element: &&Element<'_>| {
        let initial = element.attribute(&["InitialModuleSchedule"], "");
        initial.is_some_and(|it| ["true", "1"].contains(&it.value))
    };
    let chosen = named("Module_Schedule").find(is_initial);
    if let Some(schedule) = chosen.or_else(|| named("Module_Schedule").next()) {
        module_schedule(schedule, draft, notes);
    } else if let Some(schedule) = named("Schedule").next() {
        slots(schedule, draft, notes);
    }
}

fn module_schedule(schedule: &Element<'_>, draft: &mut Draft, notes: &mut Notes<'_>) {
    let key = schedule.name();
    let Some(frame) = schedule.required(&["MajorFrameSeconds"], "0.04", key, notes) else {
        return;
    };
    let Some(frame_ns) = seconds_ns(&frame, notes) else {
        return;
    };
    if frame_ns == 0 {
        frame.refuse("is no length of a frame", "write for example \"0.04\"", notes);
        return;
    }
    draft.major_frame = Some((frame_ns, frame.spot));
    for child in schedule.children() {
        if child.is_foreign() {
            continue;
        }
        if child.name() != "Partition_Schedule" {
            unknown(&child, key, &["Partition_Schedule"], notes);
            continue;
        }
        partition_schedule(&child, frame_ns, draft, notes);
    }
}

fn partition_schedule(element: &Element<'_>, frame_ns: u64, draft: &mut Draft, notes: &mut Notes<'_>) {
    let key = "Module_Schedule/Partition_Schedule";
    element.only(key, &PARTITION_ATTRIBUTES, notes);
    let Some(name) = partition_of(element, key, &draft.partitions, notes) else {
        return;
    };
    let key = format!("{key}[{name}]");
    let Some(partition) = draft.partitions.iter_mut().find(|it| it.name == name) else {
        note_missing(&name, &spot(element, &key), notes);
        return;
    };
    let mut processors: Vec<usize> = Vec::new();
    let mut processors_spot = None;
    let mut given_ns = 0_u64;
    for child in element.children().filter(|child| !child.is_foreign()) {
        if child.name() != "Window_Schedule" {
            unknown(&child, &key, &["Window_Schedule"], notes);
            continue;
        }
        let window_key = format!("{key}/Window_Schedule");
        child.only(&window_key, &WINDOW_ATTRIBUTES, notes);
        let start = child.required(&["WindowStartSeconds"], "0.0", &window_key, notes);
        let length = child.required(&["WindowDurationSeconds"], "0.01", &window_key, notes);
        for cores in child.children().filter(|it| it.name() == "WindowConfiguration") {
            if let Some(found) = cores_of(&cores, &window_key, notes) {
                processors.extend(found);
                processors_spot = Some(spot(&cores, &window_key));
            }
        }
        let offset_ns = start.and_then(|it| seconds_ns(&it, notes));
        let duration_ns = length.and_then(|it| seconds_ns(&it, notes));
        if let Some((offset_ns, duration_ns)) = offset_ns.zip(duration_ns) {
            given_ns = given_ns.saturating_add(duration_ns);
            partition.execution.windows.push(DraftWindow {
                offset_ns,
                duration_ns,
                period_ns: None,
                spot: spot(&child, &window_key),
            });
        }
    }
    processors.sort_unstable();
    processors.dedup();
    partition.execution.processors = processors_spot.map(|spot| (processors, spot));
    partition.execution.period_ns = period_of(element, &key, frame_ns, given_ns, notes);
}

/// `PeriodSeconds`, if it divides the frame. Warns of windows that are shorter than
/// `PeriodDurationSeconds` in each period asks for.
fn period_of(
    element: &Element<'_>,
    key: &str,
    frame_ns: u64,
    given_ns: u64,
    notes: &mut Notes<'_>,
) -> Option<u64> {
    let period = element.attribute(&["PeriodSeconds"], key)?;
    let period_ns = seconds_ns(&period, notes)?;
    if period_ns == 0 || !frame_ns.is_multiple_of(period_ns) {
        notes.warning_at(
            &period.spot.place,
            &period.spot.key,
            format!("{} s does not divide the major frame", period.value),
            "write a period that fits a whole number of times",
        );
        return None;
    }
    let duration = element.attribute(&["PeriodDurationSeconds"], key);
    let duration_ns = duration.as_ref().and_then(|it| seconds_ns(it, notes));
    let periods = frame_ns / period_ns;
    if let Some(duration) = duration
        && duration_ns.is_some_and(|ns| ns.saturating_mul(periods) > given_ns)
    {
        notes.warning_at(
            &duration.spot.place,
            &duration.spot.key,
            format!(
                "{} s in each of {periods} periods of a frame is more than its windows have, {} s",
                duration.value,
                given_ns as f64 / 1e9
            ),
            "make the windows longer, or the duration shorter",
        );
    }
    Some(period_ns)
}

/// AIR's `Cores`: numbers, parted by `;`, `,` or spaces.
fn cores_of(element: &Element<'_>, key: &str, notes: &mut Notes<'_>) -> Option<Vec<usize>> {
    let cores = element.attribute(&["Cores"], key)?;
    let words = cores.value.split([';', ',', ' ']).filter(|word| !word.is_empty());
    let numbers: Option<Vec<usize>> = words
        .map(|word| word.parse().ok().filter(|core| *core < MAX_PROCESSORS))
        .collect();
    if numbers.is_none() {
        cores.refuse("is no list of processors", "write for example \"0;1\"", notes);
    }
    numbers.filter(|numbers| !numbers.is_empty())
}

/// JetOS: slots one after the other; the frame ends with the last. Slots of other types than
/// `Partition` take time in which nothing runs.
fn slots(schedule: &Element<'_>, draft: &mut Draft, notes: &mut Notes<'_>) {
    let mut end_ns = 0_u64;
    for child in schedule.children().filter(|child| !child.is_foreign()) {
        if child.name() != "Slot" {
            unknown(&child, schedule.name(), &["Slot"], notes);
            continue;
        }
        let key = format!("{}/Slot", schedule.name());
        child.only(&key, &SLOT_ATTRIBUTES, notes);
        let duration = child.required(&["Duration"], "10ms", &key, notes);
        let Some(duration_ns) = duration.and_then(|it| refresh_ns(&it, notes)) else {
            continue;
        };
        let offset_ns = end_ns;
        end_ns = end_ns.saturating_add(duration_ns);
        let kind = child.attribute(&["Type"], &key);
        if kind.is_some_and(|kind| kind.value != "Partition") {
            continue;
        }
        let Some(name) = child.required(&["PartitionNameRef"], "P1", &key, notes) else {
            continue;
        };
        match draft.partitions.iter_mut().find(|it| it.name == name.value) {
            Some(partition) => partition.execution.windows.push(DraftWindow {
                offset_ns,
                duration_ns,
                period_ns: None,
                spot: spot(&child, &key),
            }),
            None => note_missing(name.value, &name.spot, notes),
        }
    }
    if end_ns > 0 {
        draft.major_frame = Some((end_ns, spot(schedule, schedule.name())));
    }
}

fn note_missing(name: &str, spot: &Spot, notes: &mut Notes<'_>) {
    notes.error_at(
        &spot.place,
        &spot.key,
        format!("the module has no partition {name:?}"),
        "name a partition of this module",
    );
}
