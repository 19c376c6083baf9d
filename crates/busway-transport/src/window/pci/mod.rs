//! PCI functions: how they are found, opened for mapping, watched, and how their interrupts arrive.

pub mod doorbell;
pub mod error;
pub mod function;
pub mod interrupts;
pub mod selector;

mod sysfs;
mod vfio;

use std::sync::Arc;

use rustix::fd::OwnedFd;

use crate::contract::Access;
use error::FunctionError;
use function::{Driver, Resource};

/// A resource, opened for mapping.
#[derive(Debug)]
pub(crate) struct OpenResource {
    /// What is mapped.
    pub file: OwnedFd,
    /// Where in it the resource begins, in bytes.
    pub at: u64,
    /// To be kept as long as the mapping.
    pub handle: OpenFunction,
}

impl Resource {
    /// Finds the function, enables it, and opens the resource, which must have `end_bytes` bytes.
    pub(crate) fn open(&self, access: Access, end_bytes: u64) -> Result<OpenResource, FunctionError> {
        match self.function.driver {
            Driver::Sysfs => {
                let (file, handle) = self.open_sysfs(access, end_bytes)?;
                Ok(OpenResource {
                    file,
                    at: 0,
                    handle: OpenFunction::Sysfs(handle),
                })
            }
            Driver::Vfio => {
                let (file, at, device) = self.open_vfio(end_bytes)?;
                Ok(OpenResource {
                    file,
                    at,
                    handle: OpenFunction::Vfio(device),
                })
            }
        }
    }
}

/// What keeps a mapped resource in order, and notices when it no longer is.
#[derive(Debug)]
pub(crate) enum OpenFunction {
    Sysfs(sysfs::SysfsHandle),
    Vfio(Arc<vfio::Device>),
}

impl OpenFunction {
    /// The function's name, for people.
    pub fn name(&self) -> String {
        let address = match self {
            OpenFunction::Sysfs(handle) => handle.address(),
            OpenFunction::Vfio(device) => device.address(),
        };
        format!("PCI function {address}")
    }

    /// Why the mapping can't be used any more; `None` while it can.
    pub fn fault(&self) -> Option<String> {
        match self {
            OpenFunction::Sysfs(handle) => handle.fault(),
            OpenFunction::Vfio(device) => device.fault(),
        }
    }
}
