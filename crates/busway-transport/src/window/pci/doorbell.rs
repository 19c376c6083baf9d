//! Doorbells across a PCI bus: a register in one host's function, an interrupt of the other's.
//!
//! A 32-bit store of `value + vector` raises the peer's interrupt `vector`. QEMU's shared-memory
//! device works so (docs/specs/ivshmem-spec: at offset 12, the peer's number << 16 | vector), and
//! so do the mailboxes of bridges. Vector 0 wakes the control thread, vector 1 the first lane, and
//! so on; lanes without a vector poll.
//!
//! Contract: plain data; `super::super::register` maps the register.

use super::error::FunctionError;
use super::function::{Driver, Function, Resource};
use super::interrupts::Interrupts;
use super::vfio::Device;

/// The interrupts that wake a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// The function that interrupts, through vfio.
    pub function: Function,
    /// How many, from 1 to [`MOST_VECTORS`](super::interrupts::MOST_VECTORS).
    pub count: u32,
}

impl Vectors {
    /// Has the kernel signal the interrupts through eventfds.
    pub(crate) fn open(&self) -> Result<Interrupts, FunctionError> {
        debug_assert_eq!(self.function.driver, Driver::Vfio);
        Device::open(&self.function)?.interrupts(self.count)
    }
}

/// The register that rings the other host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The resource that it lies in.
    pub resource: Resource,
    /// Where, in bytes; a multiple of 4.
    pub offset: u64,
    /// What rings vector 0.
    pub value: u32,
}
