//! ARINC 653 sampling and queuing ports on Linux, through shared memory.
//!
//! A *module* is a set of partitions with ports, and channels that join one source port with any
//! number of destination ports ([`Module`]). A *store* is a directory in shared memory that holds
//! its state ([`Store`]): one file a channel, one a partition. A *partition* is one or several
//! Linux processes that [`join`](Store::join) it by name. Then the services of the standard are
//! functions of [`apex`], [`SamplingSource`] and its kin are ports on top of them, and [`typed`]
//! has those whose messages are values of a type.
//!
//! - No process moves the data: a sampling channel is a register of [`busway_core::register`] and a
//!   queuing channel has a ring of [`busway_core::ring`] for each destination. Reading a sampling
//!   port takes no lock, makes no system call and does not allocate.
//! - A partition writes its own file and the channels whose source it is, and maps everything else
//!   read-only.
//! - A process may be killed at any instruction: the next one continues from the state in the
//!   files.
//!
//! A store knows one host. [`system`] makes its module from the file that describes all hosts,
//! [`carry`] is how a gateway moves messages between stores, [`observe`] looks at ports from
//! outside, and [`supervise`] is for who starts partitions.
//!
//! The reasons are in `docs/decisions/005-ports.md` and `007-ports-across-hosts.md`.

mod doorbell;
mod lock;
mod sync;
mod waiters;

/// What the loom tests look at, and nobody else.
#[cfg(loom)]
pub mod for_loom {
    pub use crate::doorbell::{after_publishing, arm, disarm, is_due};
    pub use crate::lock::{MemberTable, lock};
    pub use crate::waiters::{WAITER_WORDS, Waiters, Words, before_last_look, is_anybody_there};
}

#[cfg(not(loom))]
pub mod apex;
#[cfg(not(loom))]
pub mod carry;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod counters;
#[cfg(not(loom))]
mod crash;
#[cfg(not(loom))]
mod fast_clock;
#[cfg(not(loom))]
pub mod observe;
#[cfg(not(loom))]
mod own_writer;
#[cfg(not(loom))]
mod partition;
#[cfg(not(loom))]
pub mod peer_clock;
#[cfg(not(loom))]
pub mod places;
#[cfg(not(loom))]
mod port;
#[cfg(not(loom))]
mod store;
#[cfg(not(loom))]
pub mod supervise;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
pub mod system;
#[cfg(not(loom))]
mod try_cell;
#[cfg(not(loom))]
pub mod typed;

#[cfg(not(loom))]
pub use config::{
    ChannelConfig, Clock, Direction, Discipline, FarMemory, FarPort, MAX_NAME_LENGTH_BYTES, Module,
    ModuleError, PartitionConfig, PortConfig, PortKind, PortRef, WhenFull,
};
#[cfg(not(loom))]
pub use counters::Counters;
#[cfg(not(loom))]
pub use partition::{JoinError, Partition};
#[cfg(not(loom))]
pub use port::{QueuingDestination, QueuingSource, SamplingDestination, SamplingSource};
#[cfg(not(loom))]
pub use store::{Store, StoreError};
