//! How partitions run, for people: program, processors, priority, windows, faults.

use std::fmt::Write;

use busway_system::{Execution, Fault, Partition, SchedulingPolicy};

use super::ports_text::time_text;
use super::report::HostReport;

/// What a partition runs, if a supervisor starts it; indented below its name.
pub fn write_execution(execution: &Execution, to: &mut String) -> std::fmt::Result {
    let Some(program) = &execution.program else {
        return Ok(());
    };
    writeln!(
        to,
        "    runs     {} in {}, {}",
        program.command.join(" "),
        match program.directory.as_os_str().is_empty() {
            true => ".".to_owned(),
            false => program.directory.display().to_string(),
        },
        place_text(execution)
    )?;
    writeln!(to, "    faults   {}", faults_text(execution))
}

/// The windows of each host that has a major frame.
pub fn write_schedules(
    hosts: &[HostReport<'_>],
    partitions: &[&Partition],
    to: &mut String,
) -> std::fmt::Result {
    for host in hosts {
        let Some(frame_ns) = host.major_frame_ns else {
            continue;
        };
        writeln!(
            to,
            "schedule of {}, major frame {}",
            host.name,
            time_text(frame_ns)
        )?;
        let own = partitions.iter().filter(|partition| partition.host == host.name);
        let mut windows: Vec<_> = own
            .flat_map(|partition| partition.execution.windows.iter().map(move |it| (it, partition)))
            .collect();
        windows.sort_by_key(|(window, _)| window.offset_ns);
        for (window, partition) in &windows {
            writeln!(
                to,
                "  {:>8} to {:<8} {:<10} {}",
                time_text(window.offset_ns),
                time_text(window.end_ns()),
                partition.name,
                place_text(&partition.execution)
            )?;
        }
        if windows.is_empty() {
            writeln!(to, "  no partition has a window")?;
        }
    }
    Ok(())
}

fn place_text(execution: &Execution) -> String {
    let processors: Vec<String> = execution.processors.iter().map(ToString::to_string).collect();
    let place = match processors.as_slice() {
        [] => "any CPU".to_owned(),
        [one] => format!("CPU {one}"),
        several => format!("CPUs {}", several.join(", ")),
    };
    match execution.policy {
        SchedulingPolicy::Other => place,
        SchedulingPolicy::Fifo(priority) => format!("{place}, SCHED_FIFO {priority}"),
        SchedulingPolicy::RoundRobin(priority) => format!("{place}, SCHED_RR {priority}"),
    }
}

/// Actions with the faults that lead to them.
fn faults_text(execution: &Execution) -> String {
    let mut by_action: Vec<(&str, Vec<&str>)> = Vec::new();
    for fault in Fault::ALL {
        let action = execution.on_fault.action(fault).name();
        match by_action.iter_mut().find(|(known, _)| *known == action) {
            Some((_, faults)) => faults.push(fault.name()),
            None => by_action.push((action, vec![fault.name()])),
        }
    }
    let parts = by_action.into_iter();
    let parts: Vec<String> = parts
        .map(|(action, faults)| format!("{action} after {}", faults.join(", ")))
        .collect();
    let limit = execution.restart_limit;
    let limit = limit.map_or_else(String::new, |limit| {
        format!("; at most {limit} restarts in a row")
    });
    format!("{}{limit}", parts.join("; "))
}
