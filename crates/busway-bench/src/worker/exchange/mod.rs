//! The programs of `busway bench ports`: two of them exchange messages over ARINC 653 ports, or over what ports are compared with.
//!
//! Contract: whatever they exchange messages over is a [`Path`], and the loops around it ([`ping`], [`interval`]) are the same for
//! all, so that figures differ by the path alone. A message begins and ends with its number. Started as workers: see
//! [`super::Role::Exchange`].

mod interval;
mod ping;
mod ports;
mod shared;
mod sockets;

use std::net::SocketAddr;
use std::path::PathBuf;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::control::Control;
use super::figures::Figures;
use super::{Costs, Wait, WorkerResult};
use crate::pattern::{PROBE, now_ns};

pub(super) use ports::costs;

/// Shortest message in bytes: its number twice.
pub const MIN_MESSAGE_BYTES: usize = 16;

/// Numbers of one measurement: from [`Exchange::base`], and fewer than this.
pub const NUMBERS: u64 = 1 << 40;

/// One of two programs that exchange messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exchange {
    /// Over what.
    pub over: Over,
    /// What this one does.
    pub part: ExchangePart,
    /// Size of a message in bytes: a multiple of 8, at least [`MIN_MESSAGE_BYTES`].
    pub payload_bytes: usize,
    /// How the program waits for a message. Over sockets [`Wait::Spin`] polls and anything else blocks.
    pub wait: Wait,
    /// Which of the processors that it may use the program keeps to; none: any.
    pub processor: Option<usize>,
    /// First number: what a measurement before has left behind is below it, or [`NUMBERS`] above.
    pub base: u64,
    /// How long to go on after `go`, in s.
    pub seconds: f64,
}

/// What messages are exchanged over.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// Sampling ports of a partition.
    Ports(PortsPlace),
    /// Two words in cache lines of their own in this file: no message, only its number.
    TwoLines(PathBuf),
    /// A register of one slot between two equal flags each way, in this file.
    Flags(PathBuf),
    /// A TCP connection. The answering program listens.
    Sockets(SocketAddr),
}

/// Ports of one of the two programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortsPlace {
    /// The system file.
    pub system: PathBuf,
    /// The partition that the program is.
    pub partition: String,
    /// Sampling port to write to.
    pub source: String,
    /// Sampling port to read from.
    pub destination: String,
}

/// What one of two programs does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExchangePart {
    /// Measures round trips.
    Ping,
    /// Answers each new message with the same.
    Echo,
    /// Writes a message each so many ns.
    Write(u64),
    /// Takes down the intervals between new messages.
    Read,
}

/// Two ways: one for messages to the other program, one for its messages.
trait Path {
    /// Writes `message`, of the measurement's size.
    fn write(&mut self, message: &[u8]) -> WorkerResult<()>;

    /// Looks once. True if there was a message that no look before has given, then `message` holds it.
    fn look(&mut self, message: &mut [u8]) -> WorkerResult<bool>;
}

/// Runs the program.
pub(super) fn run(spec: &Exchange, control: &Control) -> WorkerResult<Figures> {
    if let Some(processor) = spec.processor {
        keep_to(processor)?;
    }
    let answers = spec.part == ExchangePart::Echo;
    match &spec.over {
        Over::Ports(place) => {
            let partition = ports::join(place)?;
            exchange(ports::Ports::open(&partition, place)?, spec, control)
        }
        Over::TwoLines(file) => exchange(shared::TwoLines::open(file, answers)?, spec, control),
        Over::Flags(file) => exchange(
            shared::Flags::open(file, spec.payload_bytes, answers)?,
            spec,
            control,
        ),
        Over::Sockets(address) => {
            let is_polling = spec.wait == Wait::Spin;
            let Some(stream) = sockets::Stream::open(*address, answers, is_polling, control)? else {
                return Ok(Figures::default());
            };
            exchange(stream, spec, control)
        }
    }
}

fn exchange(mut path: impl Path, spec: &Exchange, control: &Control) -> WorkerResult<Figures> {
    match spec.part {
        ExchangePart::Ping => ping::ping(&mut path, spec, control),
        ExchangePart::Echo => ping::echo(&mut path, spec, control),
        ExchangePart::Write(interval_ns) => interval::write(&mut path, spec, interval_ns, control),
        ExchangePart::Read => interval::read(&mut path, spec, control),
    }
}

/// Writes the number of a message to its ends.
fn number(message: &mut [u8], number: u64) {
    let last = message.len() - 8;
    message[..8].copy_from_slice(&number.to_ne_bytes());
    message[last..].copy_from_slice(&number.to_ne_bytes());
}

/// The number of a message; `None` if its ends belong to different ones.
fn number_of(message: &[u8]) -> Option<u64> {
    let first = word(message, 0);
    (word(message, message.len() - 8) == first).then_some(first)
}

fn word(message: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&message[at..at + 8]);
    u64::from_ne_bytes(bytes)
}

impl Exchange {
    /// Whether a message belongs to this measurement; probes count with it.
    fn is_ours(&self, number: u64) -> bool {
        (self.base..self.base + NUMBERS).contains(&(number & !PROBE))
    }
}

/// Keeps this program to one of its processors: the scheduler likes to put two that talk on one.
fn keep_to(index: usize) -> WorkerResult<()> {
    let allowed = sched_getaffinity(None).map_err(|e| format!("processors of this program: {e}"))?;
    let nth = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).nth(index);
    let Some(cpu) = nth else {
        return Err(format!(
            "keep to processor number {index}: there are {}",
            allowed.count()
        ));
    };
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).map_err(|e| format!("keep to processor {cpu}: {e}"))
}

/// What reading the clock once costs, in ns: the least of several means.
fn clock_ns() -> u64 {
    const CALLS: u64 = 1000;
    let mean_ns = |_| {
        let begun_ns = now_ns();
        for _ in 1..CALLS {
            std::hint::black_box(now_ns());
        }
        (now_ns() - begun_ns) / CALLS
    };
    (0..10).map(mean_ns).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_two_numbers_is_torn() {
        let mut message = vec![0; 64];
        number(&mut message, 7);
        assert_eq!(number_of(&message), Some(7));
        message[63] ^= 1;
        assert_eq!(number_of(&message), None);
    }
}
