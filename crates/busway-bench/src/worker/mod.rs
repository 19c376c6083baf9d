//! The programs under test, each a process of its own: `busway bench-worker ROLE`, where ROLE is a [`Role`] as JSON.
//!
//! The parent commands a worker over its standard input (`go`, `finish N`, end of file: see the module
//! `control`). The worker writes [`Report`]s, one JSON object a line, to its standard output. It ends by
//! itself when its parent goes.

mod exchange;
mod interference;
mod services;
mod usage;
mod waiter;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::control::{Control, WorkerResult};
use crate::record::{Calls, Condition, Measured};
use crate::technology::Place;

pub(crate) use exchange::PROBE;
pub use exchange::{Exchange, ExchangePart, Extent, Injected, NUMBERS};
pub(crate) use interference::steps_for;
pub use interference::{Compute, Partition};

/// Which program this process is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// One of two programs that exchange messages over a technology.
    Exchange(Exchange),
    /// Holds many services open without sending (for the cost of being idle).
    Services(Services),
    /// Calls both ends of a channel of ports, for what a call costs.
    PortCalls(PortCalls),
    /// The task that shares a core with a receiving partition.
    Compute(Compute),
    /// The receiving partition beside it.
    Partition(Partition),
    /// Keeps the processing of the host's packets on this CPU.
    Steer(usize),
}

impl Role {
    /// What the program is called in messages.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Services(_) => "services",
            Self::Exchange(spec) => spec.part.word(),
            Self::PortCalls(_) => "port calls",
            Self::Compute(_) => "computing task",
            Self::Partition(_) => "receiving partition",
            Self::Steer(_) => "steering of packets",
        }
    }
}

/// See [`Role::Services`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Services {
    /// iceoryx2 configuration file.
    pub config: PathBuf,
    /// How many; named `idle/0` onwards.
    pub count: usize,
    /// Publisher or subscriber of each.
    pub publish: bool,
}

/// See [`Role::PortCalls`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortCalls {
    /// Both partitions with their ports, on one host.
    pub place: Place,
    /// Size of a message in bytes.
    pub payload_bytes: usize,
    /// How long to measure, in s.
    pub seconds: f64,
}

/// What a worker reports to its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// Its ports are there (a bare TCP listener says at which address).
    Ready(Option<SocketAddr>),
    /// The first probe or answer came through.
    Arrived,
    /// What was counted so far.
    Progress(Box<Measured>),
    /// What the program asked of the system, and got.
    Conditions(Vec<Condition>),
    /// What a program of an experiment has counted; it stays until the parent closes its standard input.
    Counted(Box<Measured>),
    /// What a long run has found since its last report.
    Interim(Box<Measured>),
    /// What calls of ports cost; nothing more follows than [`Report::Done`].
    Calls(Calls),
    /// The process ends.
    Done,
    /// It cannot go on; the process ends.
    Failed(String),
}

/// Runs the role given as JSON in `args[0]`; for the hidden subcommand `bench-worker`.
pub fn main(args: &[String]) -> ExitCode {
    let role = match args.first().map(|text| serde_json::from_str::<Role>(text)) {
        Some(Ok(role)) => role,
        Some(Err(error)) => return fail(format!("role is not valid JSON for a worker: {error}")),
        None => {
            return fail(
                "no role given; this subcommand is started by `busway demo` and `busway bench`".into(),
            );
        }
    };
    let control = Control::start();
    match run(role, &control) {
        Ok(()) => {
            report(&Report::Done);
            ExitCode::SUCCESS
        }
        Err(reason) => fail(reason),
    }
}

fn run(role: Role, control: &Control) -> WorkerResult<()> {
    match role {
        Role::Exchange(spec) => exchange::run(&spec, control).map(drop),
        Role::Services(spec) => services::hold(&spec, control),
        Role::Compute(spec) => interference::compute(&spec, control).map(drop),
        Role::Partition(spec) => interference::receive(&spec, control).map(drop),
        Role::Steer(cpu) => interference::steer(cpu),
        Role::PortCalls(spec) => {
            report(&Report::Calls(exchange::calls(&spec, control)?));
            Ok(())
        }
    }
}

/// Reports what was counted, and stays until the parent has no more use for the program: a path that
/// closes early would be measured at its closing.
fn stay(measured: &Measured, control: &Control) {
    report(&Report::Counted(Box::new(measured.clone())));
    while !control.ended() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

fn fail(reason: String) -> ExitCode {
    report(&Report::Failed(reason));
    ExitCode::FAILURE
}

/// Writes one report. A parent that no longer reads is noticed by [`Control`], so a failed write is not an error here.
pub(crate) fn report(report: &Report) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(&line).and_then(|()| out.flush());
}
