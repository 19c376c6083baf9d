//! The memory of the peer that a pipe writes: one part, or two that lie in different registrations.
//!
//! Contract: offsets of the second part begin at [`SECOND_AT`]. Nothing outside a part is ever
//! addressed. Used by [`super::pipe`].

use busway_core::OutOfBounds;

/// Offset at which the second part begins: no part is as long.
pub(super) const SECOND_AT: usize = 1 << 40;

/// Memory of the peer that an end writes.
#[derive(Clone, Copy, Debug)]
pub struct FarMemory {
    /// Address at the peer.
    pub address: u64,
    /// The peer's key.
    pub key: u32,
    /// Length in bytes.
    pub len_bytes: usize,
}

impl FarMemory {
    /// Before the peer has told where its memory is.
    pub(super) const UNKNOWN: FarMemory = FarMemory {
        address: 0,
        key: 0,
        len_bytes: 0,
    };
}

/// All that one pipe writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FarMemories {
    first: FarMemory,
    second: Option<FarMemory>,
}

impl FarMemories {
    pub(super) fn new(first: FarMemory) -> FarMemories {
        FarMemories { first, second: None }
    }

    /// The first part, once it is known.
    pub(super) fn set_first(&mut self, first: FarMemory) {
        self.first = first;
    }

    /// Adds the second part.
    pub(super) fn set_second(&mut self, second: FarMemory) {
        self.second = Some(second);
    }

    /// The part in which an offset lies, and the offset there.
    fn part(&self, offset: usize) -> (FarMemory, usize) {
        match (self.second, offset.checked_sub(SECOND_AT)) {
            (Some(second), Some(offset)) => (second, offset),
            _ => (self.first, offset),
        }
    }

    /// # Errors
    /// The bytes do not all lie in one part.
    pub(super) fn check(&self, offset: usize, len_bytes: usize) -> Result<(), OutOfBounds> {
        let (part, offset) = self.part(offset);
        let is_inside = offset
            .checked_add(len_bytes)
            .is_some_and(|end| end <= part.len_bytes);
        if is_inside {
            return Ok(());
        }
        Err(OutOfBounds {
            offset_bytes: offset,
            len_bytes,
            window_bytes: part.len_bytes,
        })
    }

    /// Address and key of an offset that was [checked](Self::check).
    pub(super) fn address(&self, offset: usize) -> (u64, u32) {
        let (part, offset) = self.part(offset);
        (part.address.wrapping_add(offset as u64), part.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_outside_either_part_are_refused() {
        let memory = |address, len_bytes| FarMemory {
            address,
            key: address as u32,
            len_bytes,
        };
        let mut all = FarMemories::new(memory(0x1000, 64));
        assert!(all.check(0, 64).is_ok() && all.check(0, 65).is_err() && all.check(64, 1).is_err());
        assert!(all.check(SECOND_AT, 1).is_err());
        all.set_second(memory(0x2000, 128));
        assert!(all.check(SECOND_AT, 128).is_ok() && all.check(SECOND_AT, 129).is_err());
        assert!(all.check(SECOND_AT - 8, 16).is_err() && all.check(usize::MAX, 8).is_err());
        assert_eq!(all.address(8), (0x1008, 0x1000));
        assert_eq!(all.address(SECOND_AT + 8), (0x2008, 0x2000));
    }
}
