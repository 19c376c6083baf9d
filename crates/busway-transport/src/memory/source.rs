//! What a window lies in.
//!
//! Contract: plain data that says what `mapping.rs` opens; two buses that are made of windows differ in little else. Called by
//! the tables of these buses and by whoever shows or maps a window.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::pci::function::Resource;
use crate::pci::server::Server;

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

    /// Whether both are the same memory, as far as their names tell; how it is mapped does not matter.
    #[must_use]
    pub fn is_same_memory(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::File(one), Source::File(other)) => one == other,
            (Source::Resource(one), Source::Resource(other)) => one.is_same_memory(other),
            (Source::Server(one), Source::Server(other)) => one.socket == other.socket,
            _ => false,
        }
    }
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
