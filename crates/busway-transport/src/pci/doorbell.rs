//! Doorbells across a PCI bus: a register in one host's function, an interrupt of the other's.
//!
//! A 32-bit store of `value + vector` rings the peer's interrupt `vector`: that is what the doorbell register of QEMU's shared-memory device takes
//! (docs/specs/ivshmem-spec in QEMU: at offset 12, the peer's number shifted left by 16 and the vector), and what the mailboxes of
//! bridges are laid out for. Vector 0 wakes the control thread, vector 1 the first lane, and so on; lanes without a vector poll.
//!
//! Contract: places are plain data; what is opened keeps its function open. Ringing is one store. Called by
//! [`crate::memory`]'s bells.

use super::error::FunctionError;
use super::function::{Driver, Function, Resource};
use super::vfio::Device;
use crate::contract::Access;
use crate::memory::mapping::{MapError, Mapped};
use crate::memory::source::Source;
use crate::memory::tables::{Medium, Place};

pub use super::vfio::{Interrupts, Lease, MOST_VECTORS};

/// Bytes that are mapped around a register.
const LINE_BYTES: u64 = 64;

/// The interrupts that wake a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// The function that interrupts, through vfio.
    pub function: Function,
    /// How many, from 1 to [`MOST_VECTORS`].
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

impl Ring {
    /// Maps the register.
    ///
    /// # Errors
    /// See [`MapError`].
    pub(crate) fn open(&self) -> Result<Register, MapError> {
        let line = self.offset / LINE_BYTES * LINE_BYTES;
        let place = Place {
            source: Source::Resource(self.resource.clone()),
            offset: line,
            length: LINE_BYTES,
            file_length: self.offset.saturating_add(4),
            // The strongest ordering: what was stored before the ring may sit in a write-combining mapping.
            medium: Medium::WriteCombining,
        };
        Ok(Register {
            mapped: Mapped::open(&place, Access::Writes)?,
            // Below 64.
            offset: (self.offset - line) as usize,
        })
    }
}

/// A register, mapped.
#[derive(Debug)]
pub struct Register {
    mapped: Mapped,
    offset: usize,
}

impl Register {
    /// Stores `value`, after everything that was stored before.
    #[inline]
    pub fn store(&self, value: u32) {
        self.mapped.ring(self.offset, value);
    }
}
