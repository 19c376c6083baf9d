//! The programs under test, each a process of its own: `busway bench-worker ROLE`, where ROLE is a
//! [`Role`] as JSON.
//!
//! The parent commands a worker over its standard input (`go`, `finish N`, end of file: see the
//! module `control`). The worker writes [`Report`]s, one JSON object a line, to its standard
//! output. It ends by itself when its parent goes.

mod calls;
mod compute;
mod exchange;
mod frames;
mod report;
mod schedule;
mod services;
mod steer;
mod usage;
mod waiter;

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::control::{Control, WorkerResult};

pub use crate::technology::NUMBERS;
pub use calls::PortCalls;
pub use compute::Compute;
pub(crate) use compute::steps_for;
pub use exchange::{Exchange, ExchangePart, Extent, Injected};
pub use report::Report;
use report::report;
pub use schedule::{Schedule, Seat};
pub use services::Services;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Exchange(Exchange),
    Services(Services),
    PortCalls(PortCalls),
    Compute(Compute),
    Steer(usize),
    Schedule(Schedule),
}

impl Role {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Services(_) => "services",
            Self::Exchange(spec) => spec.part.word(),
            Self::PortCalls(_) => "port calls",
            Self::Compute(_) => "computing task",
            Self::Steer(_) => "steering of packets",
            Self::Schedule(_) => "time table of partitions",
        }
    }
}

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
        Role::Compute(spec) => compute::run(&spec, control).map(drop),
        Role::Steer(cpu) => steer::run(cpu),
        Role::Schedule(spec) => schedule::run(&spec, control),
        Role::PortCalls(spec) => {
            report(&Report::Calls(calls::calls(&spec, control)?));
            Ok(())
        }
    }
}

fn fail(reason: String) -> ExitCode {
    report(&Report::Failed(reason));
    ExitCode::FAILURE
}
