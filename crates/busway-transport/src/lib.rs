//! Buses: how messages get from one host to another.
//!
//! A [`Link`] joins this host to one peer over one bus. It holds the control conversation (reliable, ordered, with a
//! heartbeat and sessions) and opens channels. A channel carries messages in one direction, has resources of its own
//! (a ring or register in a window, a connection), and has two ends: a [`Sender`] on one host and a [`Receiver`] on the other.
//! The gateway, the ports and the benchmark use these traits and know no bus; a new bus is one folder beside
//! [`memory`], [`pci`], [`tcp`], [`tipc`] and [`udp`] and one line in [`registry`].
//!
//! Who calls what: one control thread per process polls the links; lanes (threads) own the channel ends and move the data.
//! Nothing in the data path allocates, locks or logs.
//!
//! The contract of every bus is written down as tests in `tests/contract/`, generic over the bus.

pub mod contract;

// Under loom only the parts that make no system call exist, see `tests/loom.rs`.
#[cfg(not(loom))]
pub mod core_queue;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod network;
#[cfg(not(loom))]
pub mod one_sided;
#[cfg(not(loom))]
pub mod pci;
#[cfg(not(loom))]
mod rdma;
#[cfg(not(loom))]
pub(crate) use rdma::send as rdma_send;
#[cfg(not(loom))]
pub(crate) use rdma::write as rdma_write;
#[cfg(not(loom))]
pub mod registry;
mod remote_write;
#[cfg(not(loom))]
mod session;
#[cfg(not(loom))]
mod stream;
#[cfg(not(loom))]
pub mod tcp;
#[cfg(not(loom))]
pub mod tipc;
#[cfg(not(loom))]
pub mod udp;

pub use contract::*;
