//! What a window lies in: a file, a PCI resource, or an ivshmem server's memory.
//!
//! Contract: plain data; `mapping.rs` opens it.

use std::fmt;
use std::path::{Path, PathBuf};

use super::ivshmem::Server;
use super::medium::Medium;
use super::pci::function::Resource;

/// A file, a device, a resource of a PCI function, or the memory of an ivshmem server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, or a device that is mapped by its path.
    File(PathBuf),
    /// A resource of a PCI function, which is looked for when the window is opened.
    Resource(Resource),
    /// The memory that an ivshmem server gives.
    Server(Server),
}

impl Source {
    /// The file or device, if it is mapped by its path.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Source::File(path) => Some(path),
            Source::Resource(_) | Source::Server(_) => None,
        }
    }

    /// The ordering of the kernel's mapping (`Documentation/PCI/sysfs-pci.rst`).
    #[must_use]
    pub fn default_medium(&self) -> Medium {
        match self {
            Source::File(path) => match resource_name(path) {
                Some("") => Medium::Device,
                Some("_wc") => Medium::WriteCombining,
                _ => Medium::Coherent,
            },
            Source::Resource(resource) if resource.write_combining => Medium::WriteCombining,
            Source::Resource(_) => Medium::Device,
            Source::Server(_) => Medium::Coherent,
        }
    }

    /// Equal for two sources that name the same memory, however it is mapped. Names that lead to
    /// one memory on their machine only: [`file_here`](Source::file_here).
    #[must_use]
    pub fn memory_name(&self) -> String {
        match self {
            Source::File(path) => path.display().to_string(),
            Source::Resource(resource) => resource.to_string(),
            Source::Server(server) => format!("server {}", server.socket.display()),
        }
    }
}

impl Source {
    /// The file behind it on this machine, the same for all names of one memory; `None` if there is
    /// none yet.
    #[must_use]
    pub fn file_here(&self) -> Option<PathBuf> {
        let file = match self {
            Source::File(path) => path.clone(),
            Source::Resource(resource) => {
                let found = resource.function.find().ok()?;
                found.folder.join(format!("resource{}", resource.index))
            }
            Source::Server(server) => server.socket.clone(),
        };
        let file = file.canonicalize().ok()?;
        match resource_name(&file) {
            Some("_wc") => Some(PathBuf::from(file.to_str()?.strip_suffix("_wc")?)),
            _ => Some(file),
        }
    }
}

/// What follows the number in the name of a PCI function's resource in sysfs.
fn resource_name(path: &Path) -> Option<&str> {
    let name = path.starts_with("/sys").then(|| path.file_name()?.to_str())??;
    let rest = name
        .strip_prefix("resource")?
        .strip_prefix(|digit: char| digit.is_ascii_digit())?;
    Some(rest)
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => path.display().fmt(f),
            Source::Resource(resource) => resource.fmt(f),
            Source::Server(server) => server.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_resource_by_path_gets_the_kernels_ordering() {
        for (path, medium) in [
            ("/sys/bus/pci/devices/0000:03:00.0/resource2", Medium::Device),
            (
                "/sys/bus/pci/devices/0000:03:00.0/resource2_wc",
                Medium::WriteCombining,
            ),
            ("/sys/devices/pci0000:00/0000:00:10.0/resource0", Medium::Device),
            ("/sys/bus/pci/devices/0000:03:00.0/resource", Medium::Coherent),
            ("/dev/shm/resource2", Medium::Coherent),
            ("/dev/shm/window", Medium::Coherent),
        ] {
            assert_eq!(Source::File(path.into()).default_medium(), medium, "{path}");
        }
    }
}
