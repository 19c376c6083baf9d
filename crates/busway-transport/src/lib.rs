//! Buses: how messages get from one host to another.
//!
//! A [`Link`] joins this host to one peer over one bus. It carries the control conversation
//! (reliable, ordered, with a heartbeat and sessions) and opens channels. A channel carries
//! messages in one direction, has resources of its own (a ring or register in a window, a
//! connection), and has two ends: a [`Sender`] on one host and a [`Receiver`] on the other. The
//! gateway, the ports and the benchmark use these traits and know no bus. A new bus is one folder,
//! here or in another crate, and one line in the crate `busway-buses`.
//!
//! One control thread of a process polls the links; lanes (threads) own the channel ends and move
//! the data. Nothing in the data path allocates, locks or logs. `tests/contract/` checks every bus
//! against [`contract`].

pub mod contract;

// Under loom only the parts that make no system call exist, see `tests/loom.rs`.
#[cfg(not(loom))]
pub mod core_queue;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod pci;
#[cfg(not(loom))]
pub mod rdma;
mod remote_write;
#[cfg(not(loom))]
mod session;
#[cfg(not(loom))]
pub mod stream;
#[cfg(not(loom))]
pub mod tcp;
#[cfg(not(loom))]
pub mod tipc;
#[cfg(not(loom))]
pub mod udp;
#[cfg(not(loom))]
pub mod window;

pub use contract::*;
