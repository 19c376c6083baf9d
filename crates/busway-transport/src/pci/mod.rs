//! The PCI bus: the windows of the memory bus, in memory resources of PCI functions.
//!
//! A non-transparent bridge (each host writes the other's memory), or one shared memory in the middle (as between virtual machines).
//! Windows, header, conversation and channels are those of [`crate::memory`]; this module says where windows come from and what
//! wakes a host. See `docs/decisions/014-pci.md`.
//!
//! ```text
//! settings ── memory::tables, memory::link ── memory::mapping ── function ── sysfs
//! ```

pub mod function;
pub mod settings;

mod error;
mod sysfs;

use rustix::fd::OwnedFd;

use crate::link::{Link, LinkIdentity, OpenError};
use crate::memory::MemoryLink;
use crate::message::Message;
use crate::one_sided::Role;

pub(crate) use error::ALL_ONES;
pub use error::FunctionError;
use function::Resource;
pub(crate) use sysfs::Attended;

/// The bus's name in the system file.
pub const NAME: &str = "pci";

/// Whether the function is there is a matter of each link; files can be mapped everywhere.
pub(crate) fn missing() -> Option<String> {
    None
}

/// What the links of one process share: nothing.
#[derive(Debug, Default)]
pub(crate) struct Shared;

/// Opens a link, see [`MemoryLink::new`].
pub(crate) fn open<M: Message>(
    _shared: &Shared,
    identity: &LinkIdentity,
    settings: &settings::LinkSettings,
    peer_host: &str,
) -> Result<Box<dyn Link<M>>, OpenError> {
    MemoryLink::open(NAME, settings, identity, peer_host)
}

/// A resource, opened for mapping.
#[derive(Debug)]
pub(crate) struct Opened {
    /// What is mapped.
    pub file: OwnedFd,
    /// Where in it the resource begins, in bytes.
    pub at: u64,
    /// To be kept as long as the mapping.
    pub attended: Attended,
}

impl Resource {
    /// Finds the function, enables it, and opens the resource, of which the first `end_bytes` bytes must exist.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub(crate) fn open(&self, role: Role, end_bytes: u64) -> Result<Opened, FunctionError> {
        let (file, attended) = self.open_sysfs(role, end_bytes)?;
        Ok(Opened {
            file,
            at: 0,
            attended,
        })
    }
}
