//! A process's place in a partition: joining, the incarnation and mode of the partition, its ports.
//!
//! Contract: [`Partition`] is one process's handle, to be shared by its threads. What it says of
//! the partition lies in the partition's file and is the same for all its processes. Called by
//! [`crate::apex`].

mod carried_queue;
pub(crate) mod far;
mod members;
pub(crate) mod queuing;
pub(crate) mod sampling;
mod session;
pub(crate) mod shared_queue;
pub(crate) mod wire;

use std::path::PathBuf;

use crate::config::{PartitionConfig, PortConfig};
use crate::counters::{Counter, Counters, Counting};
use crate::doorbell::Ringers;
use crate::lock::{self, Guard};
use crate::own_writer::{self, Worker};
use crate::peer_clock::{self, PeerClock};
use crate::store::layout::{head, port};
use crate::store::{Store, StoreError};
use crate::sync::Ordering;
use crate::sys::Area;
use crate::waiters::Waiters;
pub(crate) use members::Members;
use queuing::{QueueReader, QueueWriters};
use sampling::{Latest, Register};
pub(crate) use wire::port_view;

/// Why a process could not join a partition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// No such partition in the module.
    #[error("the module has no partition {name}; it has {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// Too many processes.
    #[error("partition {name} has {members} processes, the most that it can have: end one of them first")]
    Full {
        /// Name of the partition.
        name: String,
        /// How many processes it has.
        members: usize,
    },
    /// The locks of the partition's file failed.
    #[error("cannot take a lock on the file of partition {name}: {source}")]
    Lock {
        /// Name of the partition.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// The state could not be had.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One process's handle to its partition. Dropping it leaves the partition.
#[derive(Debug)]
pub struct Partition {
    /// Connects source ports to other hosts; ends before this process leaves the partition.
    _worker: Option<Worker>,
    name: String,
    identifier: i64,
    /// The body of the partition's file.
    body: Area,
    members: Members,
    ports: Vec<Port>,
}

/// One configured port, created or not.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) config: PortConfig,
    /// The port's part of the partition's file.
    pub(crate) area: Area,
    /// The waiting table in it.
    table: Area,
    /// Whom to wake after a write, a send or a receive.
    pub(crate) ringers: Ringers,
    /// Where the gateway's doorbell is, at a port of the gateway.
    pub(crate) doorbell_path: Option<PathBuf>,
    pub(crate) end: End,
}

impl Port {
    /// Who waits at the port.
    pub(crate) fn waiters(&self) -> Waiters<'_, Area> {
        Waiters(&self.table)
    }

    /// Tells the other hosts that share the port's queues how many processes wait here. Under the
    /// port's lock, after each change of [`waiters`](Self::waiters).
    pub(crate) fn announce_waiters(&self) {
        match &self.end {
            End::QueuingSource(writers) => writers.announce(self.waiters().waiting()),
            End::QueuingDestination(reader) => reader.announce(self.waiters().waiting()),
            _ => {}
        }
    }

    /// Repairs what a killed holder of the lock has left. Each process that takes the lock over
    /// does it, whatever it took the lock for: no other process learns of the death.
    #[cold]
    fn recover(&self) {
        Counting(&self.area).bump(Counter::TakenOver);
        match &self.end {
            End::QueuingSource(writers) => writers.recover(),
            End::QueuingDestination(reader) => reader.recover(),
            // A register's newest message shows where to continue.
            End::SamplingSource(_) | End::SamplingDestination(_) | End::Unconnected => {}
        }
        self.ringers.ring();
    }
}

/// The port's end of its channel.
#[derive(Debug)]
// One a port, made at start: a box would be one more line to fetch in every read.
#[allow(clippy::large_enum_variant)]
pub(crate) enum End {
    /// Writes a register.
    SamplingSource(Register),
    /// Reads a register.
    SamplingDestination(Latest),
    /// Sends into rings.
    QueuingSource(QueueWriters),
    /// Receives from a ring.
    QueuingDestination(QueueReader),
    /// The module has no channel for the port: what is written goes nowhere, and nothing ever
    /// comes.
    Unconnected,
}

impl Partition {
    pub(crate) fn join(store: &Store, name: &str) -> Result<Self, JoinError> {
        let config = config_of(store, name)?;
        let opened = store.open_partition(config)?;
        crate::fast_clock::prepare();
        let body = opened.area()?;
        let mark = own_writer::mark(store, config);
        let ports = wire::ports(store, config, &body, mark.as_ref())?;
        let members = Members::join(opened.file, &body, name, |incarnation| {
            // Relaxed: the join lock orders it after the supervisor's store, whose partition had
            // no process left.
            let asked = body.word(head::NEXT_START).load(Ordering::Relaxed);
            body.word(head::NEXT_START).store(0, Ordering::Relaxed);
            let (mode, condition) = next_start::decode(asked);
            begin_incarnation(&body, &ports, incarnation, mode, condition);
        })?;
        tracing::info!(partition = name, incarnation = incarnation_of(&body), "joined");
        Ok(Self {
            _worker: own_writer::start(store, config, &ports, mark),
            name: name.into(),
            identifier: config.identifier,
            body,
            members,
            ports,
        })
    }

    /// Name of the partition.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number that the configuration gives the partition.
    #[must_use]
    pub fn identifier(&self) -> i64 {
        self.identifier
    }

    /// How often the partition was started in this store, this time included.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        incarnation_of(&self.body)
    }

    /// What the port called `name` has seen, created or not.
    #[must_use]
    pub fn counters(&self, name: &str) -> Option<Counters> {
        let port = self.ports.iter().find(|port| port.config.name == name)?;
        let mut counters = Counting(&port.area).load();
        if let End::QueuingDestination(reader) = &port.end {
            counters.overflows = reader.overflows();
        }
        Some(counters)
    }

    /// Passes the clock estimate of the host that this partition represents to the host's
    /// partitions. For one thread of the gateway.
    pub fn set_peer_clock(&self, clock: PeerClock) {
        peer_clock::store(&self.body, clock);
    }

    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    pub(crate) fn start_condition(&self) -> u64 {
        self.body.word(head::START_CONDITION).load(Ordering::Relaxed)
    }

    /// The partition's mode, one of [`mode`].
    #[inline]
    pub(crate) fn mode(&self) -> u64 {
        // Acquire: partner is the Release in `set_mode`, so that a thread that reads NORMAL sees
        // the ports created before.
        self.body.word(head::MODE).load(Ordering::Acquire)
    }

    /// Sets the mode; a start mode begins a new incarnation, in which no port is created.
    pub(crate) fn set_mode(&self, new: u64) -> std::io::Result<()> {
        self.members.alone(|| {
            if matches!(new, mode::COLD_START | mode::WARM_START) {
                begin_incarnation(&self.body, &self.ports, self.incarnation() + 1, new, None);
            } else {
                self.body.word(head::MODE).store(new, Ordering::Release);
            }
        })
    }

    /// Records that this incarnation has raised an application error.
    pub(crate) fn mark_error(&self) {
        // Relaxed: its reader looks after the end of the process.
        self.body
            .word(head::ERROR_RAISED)
            .store(self.incarnation(), Ordering::Relaxed);
    }

    /// The port with the identifier `id`, if it is created.
    #[inline]
    pub(crate) fn created(&self, id: i32) -> Option<&Port> {
        let port = self.ports.get(usize::try_from(id).ok()?.checked_sub(1)?)?;
        self.is_created(port).then_some(port)
    }

    #[inline]
    pub(crate) fn is_created(&self, port: &Port) -> bool {
        // Acquire: partner is the Release in `mark_created`, so that the port's attributes are
        // there.
        port.area.word(port::CREATED).load(Ordering::Acquire) == incarnation_of(&self.body)
    }

    /// Ends the creation of `port`, whose attributes are stored.
    pub(crate) fn mark_created(&self, port: &Port) {
        port.area
            .word(port::CREATED)
            .store(incarnation_of(&self.body), Ordering::Release);
    }

    /// Takes the lock of `port`, and finishes what a dead holder has begun.
    #[inline]
    pub(crate) fn lock<'p>(&'p self, port: &'p Port) -> Guard<'p, Members> {
        let guard = lock::lock(port.area.word(port::LOCK), &self.members);
        if guard.taken_over {
            port.recover();
        }
        guard
    }
}

/// Values of `OPERATING_MODE_TYPE`; `IDLE`, 0, needs no name.
pub(crate) mod mode {
    pub(crate) const COLD_START: u64 = 1;
    pub(crate) const WARM_START: u64 = 2;
    pub(crate) const NORMAL: u64 = 3;
}

/// Values of `START_CONDITION_TYPE` that this crate gives.
mod start_condition {
    pub(super) const NORMAL_START: u64 = 0;
    pub(super) const PARTITION_RESTART: u64 = 1;
}

/// The word by which a supervisor says how the next incarnation starts: the mode in the low 8 bits,
/// START_CONDITION_TYPE and one in the next 8; 0 says nothing.
pub(crate) mod next_start {
    use super::mode;

    pub(crate) fn encode(mode: u64, condition: u64) -> u64 {
        mode | (condition + 1) << 8
    }

    /// The mode and the condition. Only a start mode can be asked for.
    pub(crate) fn decode(word: u64) -> (u64, Option<u64>) {
        let mode = match word & 0xff {
            mode::WARM_START => mode::WARM_START,
            _ => mode::COLD_START,
        };
        (mode, (word >> 8 & 0xff).checked_sub(1))
    }
}

/// The configuration of the partition called `name`.
pub(crate) fn config_of<'s>(store: &'s Store, name: &str) -> Result<&'s PartitionConfig, JoinError> {
    let module = store.module();
    module.partition(name).ok_or_else(|| {
        let names: Vec<&str> = module
            .partitions
            .iter()
            .map(|known| known.name.as_str())
            .collect();
        JoinError::Unknown {
            name: name.into(),
            known: names.join(", "),
        }
    })
}

#[inline]
fn incarnation_of(body: &Area) -> u64 {
    body.word(head::INCARNATION).load(Ordering::Relaxed)
}

/// Begins the incarnation number `incarnation`, for the only one who may at the moment. Messages,
/// positions and counters stay. `condition` is what a supervisor says of a restart.
fn begin_incarnation(body: &Area, ports: &[Port], incarnation: u64, mode: u64, condition: Option<u64>) {
    for port in ports {
        port.waiters().clear();
        port.announce_waiters();
        port.area.word(port::LAST_VALIDITY).store(0, Ordering::Relaxed);
    }
    let condition = if incarnation == 1 {
        start_condition::NORMAL_START
    } else {
        condition.unwrap_or(start_condition::PARTITION_RESTART)
    };
    body.word(head::START_CONDITION)
        .store(condition, Ordering::Relaxed);
    body.word(head::INCARNATION).store(incarnation, Ordering::Relaxed);
    // Release: partner is the Acquire in `Partition::mode`.
    body.word(head::MODE).store(mode, Ordering::Release);
}
