//! What a worker reports to its parent, one JSON object a line on standard output.

use std::io::Write;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::control::Control;
use crate::record::{Calls, Condition, Measured};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// Its ports are there (a bare TCP listener says at which address).
    Ready(Option<SocketAddr>),
    Arrived,
    /// What was counted so far.
    Progress(Box<Measured>),
    Conditions(Vec<Condition>),
    /// What a program of an experiment has counted; it stays until the parent closes its standard
    /// input.
    Counted(Box<Measured>),
    /// What a long run has found since its last report.
    Interim(Box<Measured>),
    Calls(Calls),
    /// What a time table has kept, in words.
    Windows(Vec<String>),
    Done,
    /// It cannot continue; the process ends.
    Failed(String),
}

/// Writes one report. A parent that no longer reads is noticed by [`Control`], so a failed write is
/// not an error here.
pub(super) fn report(report: &Report) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(&line).and_then(|()| out.flush());
}

/// Reports what was counted, and stays until the parent has no more use for the program: a path
/// that closes early would be measured at its closing.
pub(super) fn stay(measured: &Measured, control: &Control) {
    report(&Report::Counted(Box::new(measured.clone())));
    while !control.ended() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
