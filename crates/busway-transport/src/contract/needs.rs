//! What a link maps on a host and needs of its machine, as plain data.

use std::ops::Range;
use std::path::PathBuf;

use super::one_sided::Access;

/// Memory that a link maps on one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowUse {
    /// What this host does with it.
    pub access: Access,
    /// What it lies in, for people: a file, a resource of a PCI function.
    pub source: String,
    /// Equal for two windows in the same memory, by their names.
    pub memory: String,
    /// Whether `source` is the path of a file or device.
    pub is_path: bool,
    /// Where in the source the window begins, in bytes.
    pub offset_bytes: u64,
    /// Length of the whole window in bytes.
    pub length_bytes: u64,
    /// At the end of the window, set aside for ports, in bytes.
    pub ports_bytes: u64,
    /// The ordering that its mapping needs: `coherent`, `write-combining` or `device`.
    pub medium: &'static str,
}

impl WindowUse {
    /// The bytes of the source that the window takes.
    pub fn bytes(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes.saturating_add(self.length_bytes)
    }
}

/// A file that a link maps on this machine. Two names of one memory lead to the same file.
#[derive(Clone, Debug)]
pub struct FileUse {
    /// What the link does with it, such as `reads /dev/shm/window`.
    pub what: String,
    /// Without links.
    pub file: PathBuf,
    /// The bytes that the link uses.
    pub bytes: Range<u64>,
}

/// One thing that a link needs of this machine.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was looked at, such as `listens on 192.0.2.1:7400`.
    pub what: String,
    /// What is wrong and how to mend it.
    pub result: Result<(), (String, &'static str)>,
}
