//! What a bus offers to programs that write into the other host's memory themselves.
//!
//! Contract: over a *one-sided* bus a host can set a part of the memory that the other one writes aside for registers of sampling
//! channels. The programs of the writing host map it and write it; those of the reading host map it read-only; no gateway takes
//! part. Both hosts must set the same number of bytes aside, which follows from the system file. A bus over which messages are moved
//! implements [`OneSided`] with an empty block. Called by the system file (which channels find room) and by the ports.

use std::time::Duration;

use busway_core::Window;

use crate::memory::mapping::{MapError, Mapped};
use crate::memory::source::Source;
use crate::memory::tables::Place;

/// What the local host does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads it; a read-only mapping.
    Reads,
    /// Writes it.
    Writes,
}

/// What the settings of a link say about memory for ports. The defaults are those of a bus that has none.
pub trait OneSided {
    /// Whether programs can write into the other host's memory over this bus.
    const IS_ONE_SIDED: bool = false;

    /// The most bytes that can be set aside in the memory that this host reads or writes.
    fn port_room_bytes(&self, _role: Role) -> u64 {
        0
    }

    /// Sets bytes aside: at most [`port_room_bytes`](Self::port_room_bytes) of each, multiples of 128.
    fn set_port_bytes(&mut self, _read_bytes: u64, _write_bytes: u64) {}

    /// The memory that was set aside; `None` if none was.
    fn port_place(&self, _role: Role) -> Option<PortPlace> {
        None
    }

    /// Silence after which a host that holds no conversation, a core, has stopped. Where there is no memory for ports it means nothing.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }
}

/// Where memory for ports lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlace {
    pub(crate) place: Place,
    pub(crate) role: Role,
}

/// Memory for ports, mapped for as long as this or a clone lives.
#[derive(Clone, Debug)]
pub struct PortMemory(Mapped);

impl PortPlace {
    /// Maps the memory. A file that is missing is made, as the link would.
    ///
    /// # Errors
    /// In words: what, which file, and the mend.
    pub fn open(&self) -> Result<PortMemory, MapError> {
        Mapped::open(&self.place, self.role).map(PortMemory)
    }

    /// What it lies in.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.place.source
    }

    /// Where in the file or device the memory begins, in bytes.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        self.place.offset
    }
}

impl PortMemory {
    /// The part of `len_bytes` bytes at `offset_bytes`, for as long as this or a clone lives; `None` if it lies outside.
    #[must_use]
    pub fn part(&self, offset_bytes: usize, len_bytes: usize) -> Option<Window> {
        self.0.window.sub(offset_bytes, len_bytes).ok()
    }
}
