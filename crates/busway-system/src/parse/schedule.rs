//! From what is written about the execution of partitions to [`Execution`]s, and the checks of a
//! host's schedule as a whole.
//!
//! Contract: called when partitions have their hosts, once; notes everything that is wrong. What it
//! stores is right if nothing was noted as an error.

use std::path::Path;

use super::draft::{Draft, DraftExecution, DraftPartition, DraftWindow, PolicyName};
use crate::diagnostic::Notes;
use crate::execution::{
    Execution, FaultTable, MAX_WINDOWS, MIN_WINDOW_NS, Program, SchedulingPolicy, Window,
};
use crate::model::Host;
use crate::ports::Partition;

/// Fills `execution` of `partitions`, which stand in the order of the draft, and the frames that
/// hosts have from the XML file.
pub(super) fn apply(
    draft: &Draft,
    hosts: &mut [Host],
    partitions: &mut [Partition],
    file: &Path,
    notes: &mut Notes<'_>,
) {
    let folder = file.parent().unwrap_or(Path::new(""));
    for host in hosts.iter_mut() {
        let mut written = draft.partitions.iter().zip(partitions.iter());
        let has_windows =
            written.any(|(written, it)| it.host == host.name && !written.execution.windows.is_empty());
        if let Some((frame_ns, _)) = draft.major_frame.as_ref().filter(|_| has_windows) {
            host.major_frame_ns.get_or_insert(*frame_ns);
        }
    }
    for (written, partition) in draft.partitions.iter().zip(partitions.iter_mut()) {
        let host = hosts.iter().find(|host| host.name == partition.host);
        partition.execution = execution(written, host, folder, notes);
    }
    for (at, written) in draft.partitions.iter().enumerate() {
        note_overlaps(written, at, draft, partitions, notes);
    }
}

fn execution(
    written: &DraftPartition,
    host: Option<&Host>,
    folder: &Path,
    notes: &mut Notes<'_>,
) -> Execution {
    let run = &written.execution;
    let frame_ns = host.and_then(|host| host.major_frame_ns);
    let host_name = host.map_or("", |host| host.name.as_str());
    if let (Some((_, spot)), Some(_), true) = (&run.command, frame_ns, run.windows.is_empty()) {
        notes.error_at(
            &spot.place,
            &spot.key,
            format!(
                "partition {:?} has no window in the major frame of host {host_name:?}, so it would never run",
                written.name
            ),
            "add windows = [{ offset = \"0ms\", duration = \"10ms\" }]",
        );
    }
    let mut windows = Vec::new();
    for window in &run.windows {
        windows.extend(expand(window, written, host, notes));
    }
    windows.sort_by_key(|window| window.offset_ns);
    let written_periods = run.windows.iter().map(|window| window.period_ns.or(frame_ns));
    let period_ns = run.period_ns.or(written_periods.flatten().min());
    let mut on_fault = FaultTable::default();
    for fault in crate::execution::Fault::ALL {
        if let Some(action) = run.on_fault[fault as usize] {
            on_fault.set(fault, action);
        }
    }
    Execution {
        program: program(run, folder, notes),
        processors: run
            .processors
            .as_ref()
            .map_or_else(Vec::new, |(processors, _)| processors.clone()),
        policy: policy(run, notes),
        windows,
        period_ns,
        on_fault,
        restart_limit: run.restart_limit,
    }
}

fn program(run: &DraftExecution, folder: &Path, notes: &mut Notes<'_>) -> Option<Program> {
    let Some((command, _)) = &run.command else {
        let spots = [
            run.directory.as_ref().map(|(_, spot)| spot),
            run.environment.as_ref().map(|(_, spot)| spot),
        ];
        for spot in spots.into_iter().flatten() {
            notes.error_at(
                &spot.place,
                &spot.key,
                "belongs to a program, and the partition has none",
                "add command = [\"./navigation\"]",
            );
        }
        return None;
    };
    let directory = run.directory.as_ref();
    let environment = run.environment.as_ref();
    Some(Program {
        command: command.clone(),
        directory: directory.map_or_else(|| folder.to_path_buf(), |(it, _)| folder.join(it)),
        environment: environment.map_or_else(Default::default, |(it, _)| it.clone()),
    })
}

fn policy(run: &DraftExecution, notes: &mut Notes<'_>) -> SchedulingPolicy {
    let name = run.policy.as_ref().map_or(PolicyName::Other, |(name, _)| *name);
    match (name, &run.priority) {
        (PolicyName::Other, None) => SchedulingPolicy::Other,
        (PolicyName::Other, Some((priority, spot))) => {
            notes.error_at(
                &spot.place,
                &spot.key,
                format!("the policy \"other\" has no priority, and this is {priority}"),
                "add policy = \"fifo\", or remove `priority`",
            );
            SchedulingPolicy::Other
        }
        (PolicyName::Fifo, Some((priority, _))) => SchedulingPolicy::Fifo(*priority),
        (PolicyName::RoundRobin, Some((priority, _))) => SchedulingPolicy::RoundRobin(*priority),
        (_, None) => {
            if let Some((_, spot)) = &run.policy {
                notes.error_at(
                    &spot.place,
                    &spot.key,
                    "a real-time policy has a priority, and none is given",
                    "add priority = 50",
                );
            }
            SchedulingPolicy::Other
        }
    }
}

/// All windows of a frame that one written window stands for.
fn expand(
    window: &DraftWindow,
    partition: &DraftPartition,
    host: Option<&Host>,
    notes: &mut Notes<'_>,
) -> Vec<Window> {
    // Without a host, that has been noted.
    let Some(host) = host else { return Vec::new() };
    let mut refuse = |problem: String, mend: String| {
        notes.error_at(&window.spot.place, &window.spot.key, problem, mend);
        Vec::new()
    };
    let Some(frame_ns) = host.major_frame_ns else {
        return refuse(
            format!(
                "host {:?} has no major frame, so partition {:?} has no window",
                host.name, partition.name
            ),
            format!("add major_frame = \"40ms\" to [host.{}]", host.name),
        );
    };
    let period_ns = window.period_ns.unwrap_or(frame_ns);
    let end_ns = window.offset_ns.checked_add(window.duration_ns);
    if window.duration_ns < MIN_WINDOW_NS {
        return refuse(
            format!(
                "a window of {} is too short: changing partitions takes tens of microseconds",
                time_text(window.duration_ns)
            ),
            format!("write {} or more", time_text(MIN_WINDOW_NS)),
        );
    }
    if !frame_ns.is_multiple_of(period_ns) {
        return refuse(
            format!(
                "the period {} does not divide the major frame {} of host {:?}",
                time_text(period_ns),
                time_text(frame_ns),
                host.name
            ),
            "write a period that fits a whole number of times".to_string(),
        );
    }
    let Some(_) = end_ns.filter(|end_ns| *end_ns <= period_ns) else {
        let (what, owner) = match window.period_ns {
            Some(_) => ("its period".to_string(), ""),
            None => (
                format!("the major frame of host {:?}", host.name),
                " of the frame",
            ),
        };
        return refuse(
            format!(
                "the window from {} for {} ends after {what} ({})",
                time_text(window.offset_ns),
                time_text(window.duration_ns),
                time_text(period_ns)
            ),
            format!("let it end by the end{owner}, or begin earlier"),
        );
    };
    let count = frame_ns / period_ns;
    if count > MAX_WINDOWS {
        return refuse(
            format!(
                "a period of {} makes {count} windows in a frame of {}",
                time_text(period_ns),
                time_text(frame_ns)
            ),
            format!("use a longer period or a shorter frame: at most {MAX_WINDOWS} windows"),
        );
    }
    let windows = (0..count).map(|index| Window {
        offset_ns: window.offset_ns + index * period_ns,
        duration_ns: window.duration_ns,
    });
    windows.collect()
}

/// Notes the first window of the partition at `at` that overlaps one of an earlier partition on a
/// processor that both may use, or another one of its own.
fn note_overlaps(
    written: &DraftPartition,
    at: usize,
    draft: &Draft,
    partitions: &[Partition],
    notes: &mut Notes<'_>,
) {
    let own = &partitions[at];
    let spot = written.execution.windows.first().map(|window| &window.spot);
    let Some(spot) = spot else { return };
    let windows = &own.execution.windows;
    if let Some(pair) = windows
        .windows(2)
        .find(|pair| pair[1].offset_ns < pair[0].end_ns())
    {
        let problem = format!(
            "two windows of partition {:?} overlap: from {} for {} and from {} for {}",
            own.name,
            time_text(pair[0].offset_ns),
            time_text(pair[0].duration_ns),
            time_text(pair[1].offset_ns),
            time_text(pair[1].duration_ns)
        );
        notes.error_at(&spot.place, &spot.key, problem, "make one window of the two");
    }
    for (other, other_written) in partitions[..at].iter().zip(&draft.partitions) {
        if other.host != own.host || !own.execution.shares_processor_with(&other.execution) {
            continue;
        }
        let Some((mine, theirs)) = first_overlap(windows, &other.execution.windows) else {
            continue;
        };
        let problem = format!(
            "the window from {} for {} overlaps that of partition {:?} from {} for {}, and both may use {}",
            time_text(mine.offset_ns),
            time_text(mine.duration_ns),
            other_written.name,
            time_text(theirs.offset_ns),
            time_text(theirs.duration_ns),
            shared_text(&own.execution, &other.execution)
        );
        let mend = "move one of the two, or give them different `processors`";
        notes.error_at(&spot.place, &spot.key, problem, mend);
    }
}

/// Both lists are in the order of offsets.
fn first_overlap(mine: &[Window], theirs: &[Window]) -> Option<(Window, Window)> {
    let (mut left, mut right) = (mine.iter().peekable(), theirs.iter().peekable());
    while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
        if one.offset_ns < other.end_ns() && other.offset_ns < one.end_ns() {
            return Some((**one, **other));
        }
        if one.end_ns() <= other.end_ns() {
            left.next();
        } else {
            right.next();
        }
    }
    None
}

fn shared_text(one: &Execution, other: &Execution) -> String {
    let shared = match (one.processors.as_slice(), other.processors.as_slice()) {
        ([], []) => return "every processor".to_string(),
        ([], given) | (given, []) => given.first(),
        (one, other) => one.iter().find(|processor| other.contains(processor)),
    };
    shared.map_or_else(String::new, |processor| format!("processor {processor}"))
}

/// As it is written in the file.
fn time_text(ns: u64) -> String {
    humantime::format_duration(std::time::Duration::from_nanos(ns)).to_string()
}
