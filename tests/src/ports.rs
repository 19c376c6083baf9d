//! Partitions of the hosts under test: in the test itself, or in processes of their own that can be
//! killed (`src/bin/busway-test-ports.rs`).

use std::path::Path;
use std::time::Duration;

use busway_port::apex::{OperatingMode, Refusal, SamplingRead, set_partition_mode};
use busway_port::system::{module_of, root_of};
use busway_port::{Discipline, Partition, QueuingDestination, QueuingSource, SamplingDestination, Store};
use busway_system::System;
use serde::{Deserialize, Serialize};

use crate::program::Program;
use crate::rig::Rig;
use crate::wait::eventually;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Task {
    Write,
    /// As `Write`, with this pause in µs between two messages.
    WriteEvery {
        gap_us: u64,
    },
    /// Reads new messages of a sampling port; reports a [`Seen`] a line.
    Watch {
        refresh_period_ns: i64,
        gap_us: u64,
    },
    WriteTime,
    Flood,
    /// Reads the sampling ports `IN` of all [`TORTURE_BYTES`] without a pause, in two threads.
    /// Reports how many different messages each port has returned to each thread at least; ends
    /// with an error if one was torn or came late.
    Check,
    /// Sends `from`, `from` + 1 .. `to` into a queuing port, waiting as long as it takes.
    Send {
        from: u64,
        to: u64,
    },
}

/// What [`Task::Watch`] has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Number of the newest message.
    pub last: u64,
    /// New messages read.
    pub new: u64,
    /// Of those, the ones that were no newer than one before.
    pub repeated: u64,
    /// Looks that found the newest message older than the refresh period.
    pub stale: u64,
    /// Looks that found it valid.
    pub valid: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    pub system: std::path::PathBuf,
    pub partition: String,
    pub port: String,
    pub task: Task,
}

/// Longest messages of the ports of the torture test, in bytes. Their names end with it.
pub const TORTURE_BYTES: [usize; 3] = [64, 4 << 10, 64 << 10];

/// Length in words of message `number` of a port for `size_bytes`: it consists of its number, over
/// and over.
pub fn torture_words(number: u64, size_bytes: usize) -> usize {
    1 + (number.wrapping_mul(0x9E37_79B9) % (size_bytes as u64 / 8)) as usize
}

/// Joins a partition, on whichever of the hosts it is.
///
/// # Panics
/// It can't be had.
pub fn join(system: &Path, partition: &str) -> Partition {
    let system = System::load(system).expect("the test's system file is right");
    let host = &system.partition(partition).expect("of the system file").host;
    let store = Store::open(root_of(&system, host), module_of(&system, host)).expect("the store");
    store.join(partition).expect("a place in the partition")
}

pub fn run(rig: &Rig, host: usize, partition: &str, port: &str, task: Task) -> Program {
    let work = Work {
        system: rig.system.clone(),
        partition: partition.to_owned(),
        port: port.to_owned(),
        task,
    };
    let place = &rig.hosts.hosts[host];
    let mut command = place
        .command(&crate::rig::beside_the_test("busway-test-ports"))
        .expect("the ports' program");
    command.arg(serde_json::to_string(&work).expect("plain data"));
    Program::start(command, &format!("partition {partition}"))
}

pub fn number(message: &[u8]) -> u64 {
    u64::from_le_bytes(message.try_into().expect("8 bytes"))
}

pub fn read(port: SamplingDestination<'_>) -> Option<(u64, SamplingRead)> {
    let mut buffer = [0; 8];
    match port.read(&mut buffer) {
        Ok(read) => Some((number(&buffer[..read.length]), read)),
        Err(Refusal::NoAction) => None,
        Err(refusal) => panic!("{refusal}"),
    }
}

/// Receives from a queuing port of 8-byte messages; `None` after `longest` without one. Whether
/// messages were lost before it.
pub fn receive(port: QueuingDestination<'_>, longest: Duration) -> Option<(u64, bool)> {
    let mut buffer = [0; 8];
    match port.receive(&mut buffer, longest.as_nanos() as i64) {
        Ok(received) => Some((number(&buffer[..received.length]), received.overflowed)),
        Err(Refusal::TimedOut | Refusal::NotAvailable) => None,
        Err(refusal) => panic!("{refusal}"),
    }
}

pub fn normal(partition: &Partition) {
    set_partition_mode(partition, OperatingMode::Normal).expect("it was starting");
}

pub fn queue_in<'p>(partition: &'p Partition, port: &str) -> QueuingDestination<'p> {
    let port = partition.queuing_destination(port, Discipline::Fifo);
    port.expect("configured")
}

pub fn queue_out<'p>(partition: &'p Partition, port: &str) -> QueuingSource<'p> {
    let port = partition.queuing_source(port, Discipline::Fifo);
    port.expect("configured")
}

/// Waits for the next message of a queue, before which none was lost.
///
/// # Panics
/// It is another one than `expected`.
pub fn next_is(port: QueuingDestination<'_>, expected: u64) {
    let next = eventually("the next message", || receive(port, Duration::from_secs(1)));
    assert_eq!(next, (expected, false));
}
