//! A time table for programs that somebody else has started: the windows of `busway module run`
//! without its supervision.
//!
//! Contract: [`TimeTable::start`] makes a control group for each window, frozen outside of it. A
//! process takes its place by [`join`], and keeps it with all that it starts later. Dropping the
//! table thaws everything and moves it back to the control group of the process that made it. If
//! that process is killed, those in windows stay frozen; the next table of that name kills them.
//! Called by `busway bench interference --schedule`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use busway_system::{Execution, Window};

use crate::cgroup::{self, CgroupError, ModuleGroup};
use crate::scheduler::{Scheduled, Scheduler};
use crate::status::{WindowSummary, WindowTimes};
use crate::timeline::timelines;

/// See the module.
#[derive(Debug)]
pub struct TimeTable {
    scheduler: Scheduler,
    /// In the order of the windows.
    scheduled: Arc<Vec<Scheduled>>,
    /// Where the processes came from.
    base: PathBuf,
    /// The last field: its directory is removed when everything in it has left.
    _group: ModuleGroup,
}

impl TimeTable {
    /// Makes a table with one window of each frame for each partition, all on these processors, in
    /// the control group of this process. Frame `n` begins at `n` times its length on
    /// `CLOCK_MONOTONIC`. Windows don't overlap and lie within the frame.
    ///
    /// # Errors
    /// There is no cgroup v2, or no right to it, or another process has a table of that name.
    pub fn start(
        name: &str,
        frame: Duration,
        processors: &[usize],
        windows: &[Window],
    ) -> Result<Self, CgroupError> {
        let base = cgroup::own_group()?;
        let group = ModuleGroup::create(&base, name)?;
        let mut scheduled = Vec::new();
        for at in 0..windows.len() {
            scheduled.push(Scheduled {
                group: group.add(&place(at), processors)?,
                times: Mutex::new(WindowTimes::new()),
            });
        }
        let executions: Vec<Execution> = windows
            .iter()
            .map(|window| Execution {
                processors: processors.to_vec(),
                windows: vec![*window],
                ..Execution::default()
            })
            .collect();
        let scheduled = Arc::new(scheduled);
        let frame_ns = frame.as_nanos() as u64;
        let scheduler = Scheduler::start(timelines(&executions, frame_ns), frame_ns, &scheduled);
        Ok(Self {
            scheduler,
            scheduled,
            base,
            _group: group,
        })
    }

    /// What was measured of each window so far.
    #[must_use]
    pub fn summaries(&self) -> Vec<WindowSummary> {
        let times = |it: &Scheduled| it.times.lock().unwrap_or_else(PoisonError::into_inner).summary();
        self.scheduled.iter().map(times).collect()
    }
}

impl Drop for TimeTable {
    fn drop(&mut self) {
        self.scheduler.stop();
        for scheduled in self.scheduled.iter() {
            if let Err(error) = scheduled.group.set_frozen(false) {
                tracing::error!("a window cannot be thawed: {error}");
            }
            scheduled.group.move_all_to(&self.base);
        }
    }
}

/// Moves this process into window `at` of the table `name`, which a process of the same control
/// group has made. Returns in that window.
///
/// # Errors
/// There is no such table, or no right to it.
pub fn join(name: &str, at: usize) -> Result<(), CgroupError> {
    let path = cgroup::own_group()?.join(name).join(place(at));
    cgroup::enter(&path)
}

fn place(at: usize) -> String {
    format!("window-{at}")
}
