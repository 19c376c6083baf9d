//! `busway module`: runs the ARINC 653 partitions of one host.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use busway_module::{End, Options, PartitionStatus, State, Status};
use busway_system::System;
use clap::Subcommand;

use crate::commands::check::time_text;
use crate::commands::gateway::find_host;
use crate::output::{FAILURE, UsageError};

/// Run this host's ARINC 653 partitions on their schedule
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Run(RunArgs),
}

/// Start, schedule, restart and stop the partitions of this host
///
/// Starts the program of each `[[partition]]` that has a `command`. A partition runs in its
/// `windows` of the host's `major_frame` only; in between, all its processes are frozen (cgroup
/// v2).
/// `on_fault` says what happens if it fails. Ends on Ctrl-C or SIGTERM, by a fault with the action
/// `shutdown`, or when no partition has anything left to do; then prints what was measured.
///
/// Needs root, or a control group of its own: systemd-run --user --scope -p Delegate=yes. Real-time
/// priorities need root or an rtprio limit. If it is killed, its partitions die with it; processes
/// that they had started die at the next start.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  busway module run system.toml --host control
  busway module run system.toml --host control --status /run/busway/module.json --json
  busway check system.toml --host control               # the schedule, without running it
  systemd-run --user --scope -p Delegate=yes busway module run system.toml --host control

Exit status: 0 asked to stop, or all partitions done; 1 shut down by a fault, or a partition given up")]
struct RunArgs {
    /// The system file, the same on every host
    #[arg(value_name = "SYSTEM")]
    system: PathBuf,
    /// Which host of the system file this is; not needed if it has only one
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Write the status to this JSON file once a second
    #[arg(long, value_name = "FILE")]
    status: Option<PathBuf>,
    /// The control group in which the module makes its own; the default is that of this process
    #[arg(long, value_name = "DIRECTORY")]
    cgroup: Option<PathBuf>,
    /// Print the summary at the end as one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Action::Run(args) = &args.action;
    let system = System::load(&args.system)?;
    for warning in &system.warnings {
        eprintln!("{warning}");
    }
    let host = match (&args.host, system.hosts.as_slice()) {
        (Some(name), _) => find_host(&system, name)?,
        (None, [only]) => only,
        (None, _) => {
            let missing = format!(
                "--host: {} has several hosts; name the one that this is",
                system.file.display()
            );
            return Err(UsageError(missing).into());
        }
    };
    let options = Options {
        status: args.status.clone(),
        cgroup: args.cgroup.clone(),
    };
    let stop = crate::stop::flag()?;
    let status = busway_module::run(&system, &host.name, &options, &stop)?;
    let mut stdout = std::io::stdout().lock();
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&status)?)?;
    } else {
        stdout.write_all(text_of(&status).as_bytes())?;
    }
    Ok(if has_failed(&status) {
        ExitCode::from(FAILURE)
    } else {
        ExitCode::SUCCESS
    })
}

fn has_failed(status: &Status) -> bool {
    let mut partitions = status.partitions.iter();
    matches!(status.end, Some(End::Shutdown { .. })) || partitions.any(|it| it.state == State::GivenUp)
}

fn text_of(status: &Status) -> String {
    let because = match &status.end {
        Some(End::Asked) | None => "asked to stop".to_owned(),
        Some(End::AllIdle) => "no partition has anything left to do".to_owned(),
        Some(End::Shutdown { partition, fault }) => {
            format!("shut down by partition {partition}: {fault}")
        }
    };
    let mut text = format!("module of {}: {because}\n", status.host);
    for partition in &status.partitions {
        text.push_str(&format!(
            "  {:<10} {}\n",
            partition.name,
            partition_text(partition)
        ));
        let windows = &partition.windows;
        if status.major_frame_ns.is_some() {
            text.push_str(&format!(
                "    windows  {}, {} lost, began late by {} (median), {} (99 %), {} at most\n",
                windows.count,
                windows.lost,
                time_text(windows.late_ns.p50),
                time_text(windows.late_ns.p99),
                time_text(windows.late_ns.max)
            ));
            text.push_str(&format!(
                "    freezing {} (median), {} (99 %), {} at most, {} times longer than 1 ms\n",
                time_text(windows.freeze_ns.p50),
                time_text(windows.freeze_ns.p99),
                time_text(windows.freeze_ns.max),
                windows.overruns
            ));
        }
    }
    text
}

fn partition_text(partition: &PartitionStatus) -> String {
    let state = match partition.state {
        State::Starting => "was starting",
        State::Running => "was running",
        State::BackOff => "was about to restart",
        State::Ending => "was ending",
        State::Ended => "had ended",
        State::Idle => "was idle",
        State::GivenUp => "was given up after too many restarts",
    };
    let faults = partition.faults.iter();
    let faults: Vec<String> = faults.map(|(fault, count)| format!("{fault} {count}")).collect();
    match faults.as_slice() {
        [] => format!("{state}, no fault"),
        some => format!(
            "{state}, restarted {} times, faults: {}",
            partition.restarts,
            some.join(", ")
        ),
    }
}
