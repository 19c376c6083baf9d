//! The programs under test, each a process of its own: `busway bench-worker ROLE`, where ROLE is a [`Role`] as JSON.
//!
//! The parent speaks to a worker over standard input (`go`, `finish N`, end of file: see the module `control`) and hears [`Report`]s, one JSON object a
//! line, on standard output. A worker ends by itself when its parent goes.

mod bare_copy;
mod bare_tcp;
mod control;
mod endpoint;
mod exchange;
mod figures;
mod ping;
mod services;
mod stream;
mod usage;
mod wait;
mod window;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::interference::{self, Compute, Partition};
use crate::record::{Calls, Condition, Interruption, Maximum};
use crate::technology::Place;

pub(crate) use control::Control;
pub(crate) use endpoint::node as iceoryx2_node;
pub use exchange::{Exchange, ExchangePart, Extent, Injected, NUMBERS};
pub use figures::{Figures, Percentiles};
pub use usage::Used;
pub use wait::Wait;
pub(crate) use window::Ring;
pub use window::{SLOTS_BYTES_MAX, slots_for, window_bytes};

/// Which program this process is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Publishes probes until `go`, then numbered messages for a time.
    Publish(Publish),
    /// Counts and checks what it receives until `finish`.
    Subscribe(Service),
    /// Publishes on `…/there`, waits for the answer on `…/back`, measures the time between.
    Ping(Ping),
    /// Answers each message on `…/there` with one of the same number on `…/back`.
    Echo(Service),
    /// Holds many services open without sending (for the cost of being idle).
    Services(Services),
    /// Ping or echo, send or receive over a bare TCP connection.
    BareTcp(Bare<SocketAddr>),
    /// Ping or echo, send or receive through a bare shared window.
    BareCopy(Bare<PathBuf>),
    /// One of two programs that exchange messages over a technology.
    Exchange(Exchange),
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
            Self::Publish(_) => "publisher",
            Self::Subscribe(_) => "subscriber",
            Self::Ping(_) => "ping",
            Self::Echo(_) => "echo",
            Self::Services(_) => "services",
            Self::BareTcp(_) => "bare TCP program",
            Self::BareCopy(_) => "bare copy program",
            Self::Exchange(spec) => spec.part.word(),
            Self::PortCalls(_) => "port calls",
            Self::Compute(_) => "computing task",
            Self::Partition(_) => "receiving partition",
            Self::Steer(_) => "steering of packets",
        }
    }
}

/// One service as the programs see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Service {
    /// iceoryx2 configuration file: says which domain the program belongs to.
    pub config: PathBuf,
    /// Name of the service, and of its companion event service.
    pub name: String,
    /// Size of a message in bytes, a multiple of 8, at least [`crate::pattern::MIN_PAYLOAD_BYTES`].
    pub payload_bytes: usize,
    /// Settings other than iceoryx2's defaults.
    pub settings: Option<ServiceSettings>,
    /// How the program waits for messages; with [`Wait::Event`] publishers notify after each message.
    pub wait: Wait,
    /// Whether messages carry their send time and the receiver keeps a histogram.
    pub latency: bool,
    /// Whether the program reports its figures ten times a second.
    pub progress: bool,
}

/// The settings of a service that the measurements change.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ServiceSettings {
    /// Messages that a subscriber's queue holds.
    pub buffer: usize,
    /// Whether a full queue loses its oldest message (true) or makes the publisher wait (false).
    pub safe_overflow: bool,
}

/// See [`Role::Publish`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Publish {
    /// Where to.
    pub service: Service,
    /// Messages a second; none: as fast as the service takes them.
    pub rate_hz: Option<f64>,
    /// How long to publish after `go`.
    pub seconds: f64,
}

/// See [`Role::Ping`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ping {
    /// Base name and settings of the two services.
    pub service: Service,
    /// How long to measure after `go`.
    pub seconds: f64,
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

/// A program that uses a bus without iceoryx2 and without gateways.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bare<Place> {
    /// Where: an address or a file.
    pub place: Place,
    /// What to do there.
    pub part: Part,
    /// Size of a message in bytes, as in [`Service::payload_bytes`].
    pub payload_bytes: usize,
    /// How the program waits.
    pub wait: Wait,
    /// How long the active part (ping, send) goes on after `go`.
    pub seconds: f64,
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

/// What one program of an experiment counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Messages sent, or questions asked.
    pub sent: u64,
    /// Messages received, or answers.
    pub received: u64,
    /// Questions without an answer, of an open loop.
    pub lost: u64,
    /// Messages that were torn, altered, or came twice.
    pub corrupt: u64,
    /// `CLOCK_MONOTONIC` of the first counted message, in ns.
    pub first_ns: u64,
    /// The same of the last one.
    pub last_ns: u64,
    /// Round trips or intervals: [`crate::record::Recorder::encode`].
    pub times: Option<String>,
    /// What it cost.
    pub usage: Used,
    /// Of a long run: round trips longer than all before them.
    #[serde(default)]
    pub maxima: Vec<Maximum>,
    /// Of a long run: times in which nothing was answered.
    #[serde(default)]
    pub interruptions: Vec<Interruption>,
}

/// The four parts of a bare measurement; echo and receive come first (they listen, or make the window).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Measures round trips.
    Ping,
    /// Answers.
    Echo,
    /// Sends as fast as it can.
    Send,
    /// Counts and checks.
    Receive,
}

/// What a worker tells its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// Its ports are there (a bare TCP listener says at which address).
    Ready(Option<SocketAddr>),
    /// The first probe or answer came through.
    Arrived,
    /// Figures so far.
    Progress(Figures),
    /// A publisher has sent its last message; it stays until the parent closes its standard input.
    Sent(Figures),
    /// Round trips: [`crate::record::Recorder::encode`]; nothing more follows than [`Report::Done`].
    Times(String),
    /// What the program asked of the system, and got.
    Conditions(Vec<Condition>),
    /// What a program of an experiment has counted; it stays until the parent closes its standard input.
    Counted(Box<Measured>),
    /// What a long run has found since its last report.
    Interim(Box<Measured>),
    /// What calls of ports cost; nothing more follows than [`Report::Done`].
    Calls(Calls),
    /// Final figures; the process ends.
    Done(Figures),
    /// It cannot go on; the process ends.
    Failed(String),
}

/// What ends a worker early, in words for people.
pub(crate) type WorkerResult<T> = Result<T, String>;

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
    let control = control::Control::start();
    let result = match role {
        Role::Publish(spec) => stream::publish(&spec, &control),
        Role::Subscribe(service) => stream::subscribe(&service, &control),
        Role::Ping(spec) => ping::ping(&spec, &control),
        Role::Echo(service) => ping::echo(&service, &control),
        Role::Services(spec) => services::hold(&spec, &control),
        Role::BareTcp(bare) => bare_tcp::run(&bare, &control),
        Role::BareCopy(bare) => bare_copy::run(&bare, &control),
        Role::Exchange(spec) => exchange::run(&spec, &control).map(|_| Figures::default()),
        Role::Compute(spec) => interference::compute(&spec, &control).map(|_| Figures::default()),
        Role::Partition(spec) => interference::receive(&spec, &control).map(|_| Figures::default()),
        Role::Steer(cpu) => interference::steer(cpu).map(|()| Figures::default()),
        Role::PortCalls(spec) => exchange::calls(&spec, &control).map(|calls| {
            report(&Report::Calls(calls));
            Figures::default()
        }),
    };
    match result {
        Ok(figures) => {
            report(&Report::Done(figures));
            ExitCode::SUCCESS
        }
        Err(reason) => fail(reason),
    }
}

fn fail(reason: String) -> ExitCode {
    report(&Report::Failed(reason));
    ExitCode::FAILURE
}

/// Writes one report. A parent that no longer reads is noticed by [`control::Control`], so a failed write is not an error here.
pub(crate) fn report(report: &Report) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(&line).and_then(|()| out.flush());
}
