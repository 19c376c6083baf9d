//! What a host of the system file needs of the machine it runs on: `busway check --here`.
//!
//! Looks only: creates, maps and occupies nothing.

use std::fs;
use std::ops::Range;
use std::path::Path;

use busway_buses::missing;
use busway_port::system::{Crossing, crossings_of};
use busway_system::{BusSettings, Host, Lane, System};
use busway_transport::contract::{FileUse, RegisterDevicePlace};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities, sched_getaffinity};
use serde::Serialize;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// Key and value, such as `link[0].tcp listens on 192.0.2.1:7400`.
    pub what: String,
    /// What is wrong; `None`: nothing.
    pub problem: Option<String>,
    /// What would be right; empty where nothing is wrong.
    pub mend: String,
}

/// A problem and what would be right.
type Problem = (String, &'static str);

/// Looks at everything that `host` needs.
pub fn check(system: &System, host: &Host) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |what: String, found: Result<(), Problem>| {
        let (problem, mend) = match found {
            Ok(()) => (None, ""),
            Err((problem, mend)) => (Some(problem), mend),
        };
        findings.push(Finding {
            what,
            problem,
            mend: mend.to_string(),
        });
    };
    if let Some(config) = &host.iceoryx2.config {
        note(
            format!("iceoryx2 configuration {}", config.display()),
            can_read(config),
        );
    }
    if let Some(status) = &host.status {
        note(format!("status file {}", status.display()), has_folder(status));
    }
    let mut used = Vec::new();
    for link in system.links_of(&host.name) {
        for bus in &link.buses {
            let name = format!("link[{}].{}", link.index, bus.name());
            for finding in bus.check_here() {
                note(format!("{name} {}", finding.what), finding.result);
            }
            used.extend(bus.files_here().into_iter().map(|used| FileUse {
                what: format!("{name} {}", used.what),
                ..used
            }));
            if let Some(device) = own_device(system, host, link.index, bus) {
                let what = format!(
                    "{name} device {} for the queue pairs of partitions",
                    device.name()
                );
                let opened = device.open().map(drop).map_err(|error| error.to_string());
                let mend = "until this user can open it, the gateway writes the sampling ports";
                note(what, opened.map_err(|problem| (problem, mend)));
            }
            let lacking = missing(bus.name()).map(|what| format!("this machine needs {what}"));
            if let Some(problem) = lacking {
                note(
                    name,
                    Err((problem, "without it the link uses its other buses, if it has any")),
                );
            }
        }
    }
    shared_windows(&used, &mut note);
    for lane in &system.lanes {
        for (what, found) in lane_needs(lane) {
            note(format!("lane {} {what}", lane.name), found);
        }
    }
    findings
}

/// The device by which partitions of `host` write sampling ports over a bus of a link, if they do
/// and this machine has what the bus needs.
fn own_device(system: &System, host: &Host, link: usize, bus: &BusSettings) -> Option<RegisterDevicePlace> {
    let takes = |crossing: &Crossing| {
        let mut hops = crossing.hops();
        crossing.leaves
            && hops.any(|hop| hop.link == link && hop.bus == bus.name() && crossing.writes_register(&hop))
    };
    let is_needed = missing(bus.name()).is_none() && crossings_of(system, &host.name).iter().any(takes);
    bus.register_device().filter(|_| is_needed)
}

fn can_read(path: &Path) -> Result<(), Problem> {
    fs::File::open(path)
        .map(drop)
        .map_err(|error| (error.to_string(), "create it, or correct the path"))
}

fn has_folder(path: &Path) -> Result<(), Problem> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            Err((format!("there is no folder {}", folder.display()), "create it"))
        }
        _ => Ok(()),
    }
}

/// Notes windows in one memory under two names, which the system file alone can't show: a PCI
/// function by kind and by address, a path that is a link.
fn shared_windows(used: &[FileUse], note: &mut impl FnMut(String, Result<(), Problem>)) {
    for (at, later) in used.iter().enumerate() {
        for earlier in &used[..at] {
            let overlaps = earlier.bytes.start < later.bytes.end && later.bytes.start < earlier.bytes.end;
            if earlier.file == later.file && overlaps {
                let Range { start, end } = &earlier.bytes;
                let problem = format!(
                    "its bytes {} to {} lie in {} as do bytes {start} to {end}, which {}",
                    later.bytes.start,
                    later.bytes.end,
                    later.file.display(),
                    earlier.what
                );
                note(
                    later.what.clone(),
                    Err((
                        problem,
                        "begin at another `offset`, or name another device or file",
                    )),
                );
            }
        }
    }
}

fn lane_needs(lane: &Lane) -> Vec<(String, Result<(), Problem>)> {
    let mut needs = Vec::new();
    if let Some(cpu) = lane.cpu {
        let allowed = sched_getaffinity(None).is_ok_and(|cpus| cpus.is_set(cpu));
        let problem = || {
            (
                "this process may not run there, or there is no such CPU".to_string(),
                "see `nproc` and `taskset`",
            )
        };
        needs.push((
            format!("runs on CPU {cpu}"),
            allowed.then_some(()).ok_or_else(problem),
        ));
    }
    if let Some(priority) = lane.priority {
        let limit = getrlimit(Resource::Rtprio).current;
        let allowed = may(CapabilitySet::SYS_NICE) || limit.is_none_or(|limit| limit >= u64::from(priority));
        let problem = || {
            let limit = limit.unwrap_or(0);
            (
                format!("this user may use priorities to {limit}"),
                "run with CAP_SYS_NICE, or raise the limit (ulimit -r)",
            )
        };
        needs.push((
            format!("has real-time priority {priority}"),
            allowed.then_some(()).ok_or_else(problem),
        ));
    }
    if lane.lock_memory {
        let limit = getrlimit(Resource::Memlock).current;
        let problem = || {
            let limit = limit.unwrap_or(0);
            (
                format!("this user may lock {limit} bytes"),
                "run with CAP_IPC_LOCK, or raise the limit (ulimit -l unlimited)",
            )
        };
        let allowed = may(CapabilitySet::IPC_LOCK) || limit.is_none();
        needs.push((
            "locks the memory".to_string(),
            allowed.then_some(()).ok_or_else(problem),
        ));
    }
    needs
}

fn may(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}
