//! Doorbells across a PCI bus: a register in one host's function, an interrupt of the other's.
//!
//! A 32-bit store of `value + vector` rings the peer's interrupt `vector`: that is what the doorbell register of QEMU's shared-memory device takes
//! (docs/specs/ivshmem-spec in QEMU: at offset 12, the peer's number shifted left by 16 and the vector), and what the mailboxes of
//! bridges are laid out for. Vector 0 wakes the control thread, vector 1 the first lane, and so on; lanes without a vector poll.
//!
//! Contract: places are plain data; what is opened keeps its function open. Ringing is one store. Called by
//! [`crate::window`]'s bells.

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
    /// Has the kernel tell of the interrupts.
    ///
    /// # Errors
    /// See [`FunctionError`].
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
