//! Memory of the other host that programs write themselves.
//!
//! Contract: over a *one-sided* bus a host sets a part of the memory that the other host writes
//! aside for the registers of sampling channels. Programs of the writing host map it and write it,
//! those of the reading host map it read-only, and no gateway takes part. Both hosts set the same
//! number of bytes aside, which follows from the system file. A bus offers this by
//! [`LinkSettings::port_place`](super::LinkSettings::port_place).

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use busway_core::Window;

/// What the local host does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it, by a read-only mapping.
    Reads,
    /// Writes it.
    Writes,
}

/// Why memory for ports can't be mapped: what, which file, and the mend.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct MapError(Box<dyn Error + Send + Sync>);

impl MapError {
    /// What the bus says.
    pub fn new(error: impl Error + Send + Sync + 'static) -> MapError {
        MapError(Box::new(error))
    }
}

type Map = dyn Fn() -> Result<PortMemory, MapError> + Send + Sync;

/// Where memory for ports lies, and how to map it.
#[derive(Clone)]
pub struct PortPlace {
    access: Access,
    source: String,
    path: Option<PathBuf>,
    offset_bytes: u64,
    length_bytes: u64,
    map: Arc<Map>,
}

impl PortPlace {
    /// `length_bytes` bytes at `offset_bytes` of `source`, which has a `path` if it is a file or
    /// device. `map` maps them.
    pub fn new(
        access: Access,
        (source, path): (String, Option<PathBuf>),
        (offset_bytes, length_bytes): (u64, u64),
        map: impl Fn() -> Result<PortMemory, MapError> + Send + Sync + 'static,
    ) -> PortPlace {
        PortPlace {
            access,
            source,
            path,
            offset_bytes,
            length_bytes,
            map: Arc::new(map),
        }
    }

    /// Maps the memory. Makes a file that is missing, as the link would.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn open(&self) -> Result<PortMemory, MapError> {
        (self.map)()
    }

    /// What the memory lies in, for people.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The file or device, if it is mapped by its path.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Where in the source the memory begins, in bytes.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Length of the memory in bytes.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn fields(&self) -> (Access, &str, u64, u64) {
        (self.access, &self.source, self.offset_bytes, self.length_bytes)
    }
}

impl PartialEq for PortPlace {
    fn eq(&self, other: &PortPlace) -> bool {
        self.fields() == other.fields()
    }
}

impl Eq for PortPlace {}

impl fmt::Debug for PortPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PortPlace").field(&self.fields()).finish()
    }
}

/// Memory for ports, mapped for as long as this or a clone lives.
#[derive(Clone)]
pub struct PortMemory {
    window: Window,
    _mapping: Arc<dyn Any + Send + Sync>,
}

impl PortMemory {
    /// `window` is mapped for as long as `mapping` lives.
    pub fn new(window: Window, mapping: impl Any + Send + Sync) -> PortMemory {
        PortMemory {
            window,
            _mapping: Arc::new(mapping),
        }
    }

    /// All of it, for as long as this or a clone lives.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// The part of `len_bytes` bytes at `offset_bytes`, for as long as this or a clone lives;
    /// `None` if it lies outside.
    #[must_use]
    pub fn part(&self, offset_bytes: usize, len_bytes: usize) -> Option<Window> {
        self.window.sub(offset_bytes, len_bytes).ok()
    }
}

impl fmt::Debug for PortMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PortMemory").field(&self.window).finish()
    }
}
