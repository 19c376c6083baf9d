//! The time table that computing and receiving partition share, kept by the scheduler of
//! `busway module run`: either is frozen outside of its window.
//!
//! One worker keeps the table ([`run`]); the programs take their places in it ([`Seat::take`]).

use std::time::Duration;

use busway_module::WindowSummary;
use busway_module::time_table::{self, TimeTable};
use busway_system::Window;
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};

use super::frames::window_begin_ns;
use crate::control::{Control, WorkerResult};
use crate::worker::report::{Report, report};

/// The windows in the order of [`Seat::window`], as notes name them.
const WINDOWS: [&str; 2] = ["computing", "receiving"];

/// The table's keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// The table's name.
    pub table: String,
    pub frame_ns: u64,
    /// The kernel's number of the processor that the partitions share; `None`: the first that the
    /// keeper may use.
    pub cpu: Option<usize>,
}

/// A program's place in a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seat {
    pub table: String,
    /// 0 computes, 1 receives.
    pub window: usize,
}

impl Seat {
    /// Moves this process into its window, and returns there.
    pub(super) fn take(&self) -> WorkerResult<()> {
        time_table::join(&self.table, self.window).map_err(|error| error.to_string())
    }
}

/// Keeps the table until the parent has no more use for it.
pub(super) fn run(spec: &Schedule, control: &Control) -> WorkerResult<()> {
    let receives_at_ns = window_begin_ns(spec.frame_ns);
    let windows = [
        Window {
            offset_ns: 0,
            duration_ns: receives_at_ns,
        },
        Window {
            offset_ns: receives_at_ns,
            duration_ns: spec.frame_ns - receives_at_ns,
        },
    ];
    let processors: Vec<usize> = spec.cpu.or_else(first_allowed).into_iter().collect();
    let frame = Duration::from_nanos(spec.frame_ns);
    let table = TimeTable::start(&spec.table, frame, &processors, &windows);
    let table = table.map_err(|error| error.to_string())?;
    report(&Report::Ready(None));
    while control.total().is_none() && !control.ended() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let summaries = table.summaries();
    let said = WINDOWS.iter().zip(&summaries);
    report(&Report::Windows(said.map(|(name, it)| words(name, it)).collect()));
    while !control.ended() {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn first_allowed() -> Option<usize> {
    let allowed = sched_getaffinity(None).ok()?;
    (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu))
}

fn words(name: &str, summary: &WindowSummary) -> String {
    let us = |ns: u64| ns as f64 / 1000.0;
    format!(
        "{name} partition: {} windows, {} lost; late {:.0} µs (median), {:.0} µs (99 %), {:.0} µs (most); freezing took \
         {:.0} µs (median), {:.0} µs (99 %), {:.0} µs (most)",
        summary.count,
        summary.lost,
        us(summary.late_ns.p50),
        us(summary.late_ns.p99),
        us(summary.late_ns.max),
        us(summary.freeze_ns.p50),
        us(summary.freeze_ns.p99),
        us(summary.freeze_ns.max),
    )
}
