//! One thing to measure, and what is merged of its rounds.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::options::Common;
use crate::BenchError;
use crate::record::{Measured, Recorder, Row, Run};
use crate::technology::{Description, Wait};

/// What every experiment needs of the program around it.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub program: &'a Path,
    /// Whether to show progress on a terminal.
    pub live: bool,
    pub stop: &'a AtomicBool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    pub(crate) technology: Description,
    pub(crate) wait: Wait,
    pub(crate) payload_bytes: usize,
    pub(crate) interval_ns: Option<u64>,
    /// What distinguishes it beyond that.
    pub(crate) mode: Option<&'static str>,
    pub(crate) overwrites: bool,
    pub(crate) once: bool,
}

impl Task {
    pub(crate) fn new(technology: &Description, wait: Wait, payload_bytes: usize) -> Self {
        Self {
            technology: technology.clone(),
            wait,
            payload_bytes,
            interval_ns: None,
            mode: None,
            overwrites: false,
            once: false,
        }
    }

    pub(crate) fn name(&self) -> String {
        let interval = self
            .interval_ns
            .map_or(String::new(), |ns| format!(" every {} µs", ns as f64 / 1000.0));
        format!(
            "{} {} {}{} B{interval}",
            self.technology.name,
            self.wait.word(),
            self.mode.map_or(String::new(), |mode| format!("{mode} ")),
            self.payload_bytes
        )
    }

    /// A row that has everything but the figures. `threads` are those that may be busy at once.
    pub(crate) fn row(&self, threads: u32, cores: usize, rounds: usize) -> Row {
        Row {
            technology: self.technology.name.clone(),
            wait: self.wait.word().to_owned(),
            mode: self.mode.map(str::to_owned),
            payload_bytes: self.payload_bytes as u64,
            interval_ns: self.interval_ns,
            threads,
            crowded: threads as usize > cores,
            rounds: rounds as u32,
            ..Row::default()
        }
    }
}

pub(crate) fn merge_times<'m>(
    rounds: impl Iterator<Item = Option<&'m Measured>>,
) -> (Recorder, Vec<Option<f64>>) {
    let mut all = Recorder::default();
    let mut medians = Vec::new();
    for measured in rounds {
        let times = measured.and_then(|measured| Recorder::decode(measured.times.as_deref()?));
        medians.push(times.and_then(|times| {
            all.add(&times);
            Some(times.distribution()?.p50 as f64)
        }));
    }
    (all, medians)
}

pub(crate) fn finish(run: Run, common: &Common) -> Result<Run, BenchError> {
    common.output.write(&run)?;
    Ok(run)
}
