//! The register of a PCI function that interrupts the other host, mapped.

use super::mapping::{MapError, Mapped};
use super::medium::Medium;
use super::pci::doorbell::Ring;
use super::region::WindowRegion;
use super::source::Source;
use crate::contract::Access;

/// Bytes that are mapped around a register.
const LINE_BYTES: u64 = 64;

/// A register, mapped.
#[derive(Debug)]
pub struct Register {
    mapped: Mapped,
    offset: usize,
}

impl Register {
    /// Maps the register that `ring` names.
    pub fn open(ring: &Ring) -> Result<Register, MapError> {
        let line = ring.offset / LINE_BYTES * LINE_BYTES;
        let place = WindowRegion {
            source: Source::Resource(ring.resource.clone()),
            offset: line,
            length: LINE_BYTES,
            file_length: ring.offset.saturating_add(4),
            // The strongest ordering: earlier stores may still be in a write-combining buffer.
            medium: Medium::WriteCombining,
        };
        Ok(Register {
            mapped: Mapped::open(&place, Access::Writes)?,
            // Below 64.
            offset: (ring.offset - line) as usize,
        })
    }

    /// Stores `value`, after everything that was stored before.
    #[inline]
    pub fn store(&self, value: u32) {
        self.mapped.ring(self.offset, value);
    }
}
