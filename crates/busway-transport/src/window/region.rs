//! Where a window lies: a range of a file, of a PCI resource or of a server's memory.
//!
//! Contract: plain data, no system calls.

use super::layout::{MINIMUM_WINDOW_BYTES, WINDOW_ALIGNMENT_BYTES};
use super::medium::Medium;
use super::source::Source;
use crate::contract::SettingError;

/// A window, found: a range of a file or device and what its mapping needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowRegion {
    /// What it lies in.
    pub source: Source,
    /// Where in it the window begins, in bytes.
    pub offset: u64,
    /// Length of the window in bytes.
    pub length: u64,
    /// Length that the source must have (both windows of the short form), in bytes.
    pub file_length: u64,
    /// The ordering that the mapping needs.
    pub medium: Medium,
}

/// A mistake in the table of the local host or of the other one.
pub(crate) fn error(
    local: bool,
    key: &'static str,
    problem: impl Into<String>,
    mend: impl Into<String>,
) -> SettingError {
    SettingError {
        local,
        key,
        problem: problem.into(),
        mend: mend.into(),
    }
}

impl WindowRegion {
    /// `length` bytes at `offset` of `source`, which `key` of a host's table has named.
    ///
    /// # Errors
    /// They can't be a window.
    pub(crate) fn new(
        source: &Source,
        (offset, length): (u64, u64),
        medium: Medium,
        local: bool,
        key: &'static str,
    ) -> Result<WindowRegion, SettingError> {
        if !offset.is_multiple_of(WINDOW_ALIGNMENT_BYTES) || !length.is_multiple_of(WINDOW_ALIGNMENT_BYTES) {
            return Err(error(
                local,
                key,
                format!("the window at offset {offset} with length {length} is not aligned to cache lines"),
                format!("make both multiples of {WINDOW_ALIGNMENT_BYTES}"),
            ));
        }
        if length < MINIMUM_WINDOW_BYTES {
            return Err(error(
                local,
                key,
                format!("a window of {length} bytes is too small"),
                format!("give each window at least {} KiB", MINIMUM_WINDOW_BYTES >> 10),
            ));
        }
        let end = offset.checked_add(length).filter(|end| *end <= i64::MAX as u64);
        let Some(file_length) = end else {
            return Err(error(
                local,
                key,
                "the window ends beyond the largest file",
                "correct offset or length",
            ));
        };
        Ok(WindowRegion {
            source: source.clone(),
            offset,
            length,
            file_length,
            medium,
        })
    }

    pub(super) fn overlaps(&self, other: &WindowRegion) -> bool {
        self.source.memory_name() == other.source.memory_name()
            && self.offset < other.offset + other.length
            && other.offset < self.offset + self.length
    }

    /// Cuts the last `bytes` bytes off: what is left, and they.
    pub(super) fn split(self, bytes: u64) -> (WindowRegion, WindowRegion) {
        let length = self.length.saturating_sub(bytes);
        let end = WindowRegion {
            offset: self.offset + length,
            length: self.length - length,
            ..self.clone()
        };
        (WindowRegion { length, ..self }, end)
    }
}
