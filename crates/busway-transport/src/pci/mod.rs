//! The PCI bus: the windows of the memory bus, in memory resources of PCI functions.
//!
//! A non-transparent bridge (each host writes the other's memory), or one shared memory in the middle (as between virtual machines).
//! Windows, header, conversation and channels are those of [`crate::memory`]; this module says where windows come from and what
//! wakes a host. See `docs/decisions/014-pci.md`.
//!
//! ```text
//! settings ── memory::tables, memory::link ── memory::mapping ── function ── sysfs, vfio; server
//!                                          └─ memory::bell ────── doorbell ── vfio; server
//! ```

pub mod doorbell;
pub mod function;
pub mod server;
pub mod settings;

mod error;
mod sysfs;
mod vfio;

use std::sync::Arc;

use rustix::fd::OwnedFd;

use crate::contract::Access;
use crate::contract::{self, Link, LinkIdentity, Message, OpenError, Site};
use crate::memory::MemoryLink;
use settings::{HostSettings, LinkSettings};

pub(crate) use error::ALL_ONES;
pub use error::FunctionError;
use function::{Driver, Resource};
pub use server::ServerError;

/// The bus.
pub struct Pci;

impl contract::Bus for Pci {
    const NAME: &'static str = "pci";
    const IS_ONE_SIDED: bool = true;
    const NEEDS_WINDOW: bool = true;

    type HostSettings = HostSettings;
    type LinkSettings = LinkSettings;
    type Shared = ();

    fn join(local: HostSettings, peer: HostSettings, local_is_first: bool) -> LinkSettings {
        LinkSettings::new(local, peer, local_is_first)
    }

    fn link_lines(site: &Site<'_>) -> String {
        site.window_line(Self::NAME)
    }

    fn open<M: Message>(
        _shared: &(),
        identity: &LinkIdentity,
        settings: &LinkSettings,
        peer_host: &str,
    ) -> Result<Box<dyn Link<M>>, OpenError> {
        MemoryLink::open(Self::NAME, settings, identity, peer_host)
    }
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
    pub(crate) fn open(&self, access: Access, end_bytes: u64) -> Result<Opened, FunctionError> {
        match self.function.driver {
            Driver::Sysfs => {
                let (file, attended) = self.open_sysfs(access, end_bytes)?;
                Ok(Opened {
                    file,
                    at: 0,
                    attended: Attended::Sysfs(attended),
                })
            }
            Driver::Vfio => {
                let (file, at, device) = self.open_vfio(end_bytes)?;
                Ok(Opened {
                    file,
                    at,
                    attended: Attended::Vfio(device),
                })
            }
        }
    }
}

/// What keeps a mapped resource in order, and notices when it no longer is.
#[derive(Debug)]
pub(crate) enum Attended {
    Sysfs(sysfs::Attended),
    Vfio(Arc<vfio::Device>),
}

impl Attended {
    /// The function's name, for people.
    pub fn name(&self) -> String {
        let address = match self {
            Attended::Sysfs(attended) => attended.address(),
            Attended::Vfio(device) => device.address(),
        };
        format!("PCI function {address}")
    }

    /// Why the mapping is of no use any more. `None`: it is well.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Attended::Sysfs(attended) => attended.trouble(),
            Attended::Vfio(device) => device.trouble(),
        }
    }
}
