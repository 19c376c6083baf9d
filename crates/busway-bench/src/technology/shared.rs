//! A file of memory that both programs map.
//!
//! Copies go through a [`Window`], as those of ports do, so that the way of copying makes no
//! difference. Used by the technologies of bare shared memory.
#![allow(unsafe_code)] // The window into a mapping.

use std::fs::File;
use std::path::Path;

use busway_core::{Medium, OutOfBounds, Window};
use memmap2::{MmapOptions, MmapRaw};

use super::path::Opening;
use crate::control::WorkerResult;

/// Distance of what different programs write, in bytes: CPUs fetch lines in pairs.
pub(super) const APART_BYTES: usize = 128;

pub(super) struct Memory {
    pub(super) window: Window,
    _map: MmapRaw,
}

impl Memory {
    pub(super) fn open(opening: &Opening<'_>, len_bytes: usize) -> WorkerResult<Self> {
        if let Some(shared) = &opening.place.window {
            return Self::of(shared.map(0, len_bytes)?, len_bytes, opening.answers());
        }
        let path = opening.place.directory.join(&opening.place.name);
        let map = map_file(&path, len_bytes, opening.answers())?;
        if !opening.answers() {
            // Both have it mapped, and the memory goes with the programs.
            let _ = std::fs::remove_file(&path);
        }
        // The file is new, and zero.
        Self::of(map, len_bytes, false)
    }

    fn of(map: MmapRaw, len_bytes: usize, clears: bool) -> WorkerResult<Self> {
        // SAFETY: the mapping is page-aligned, readable and writable for `len_bytes` bytes, and
        // lives as long as the window beside it; both programs reach it through windows only.
        let window = unsafe { Window::from_raw_parts(map.as_mut_ptr(), len_bytes, Medium::Coherent) };
        if clears {
            // What the programs before have left; the asking program comes only now.
            for offset in (0..len_bytes).step_by(8) {
                window.store(offset, 0).map_err(outside)?;
            }
        }
        Ok(Self { window, _map: map })
    }
}

/// Maps a file of memory; with `create` makes it first, all zero.
pub(super) fn map_file(path: &Path, len_bytes: usize, create: bool) -> WorkerResult<MmapRaw> {
    let context = |e: std::io::Error| format!("shared memory {}: {e}", path.display());
    let file = File::options()
        .read(true)
        .write(true)
        .create(create)
        .truncate(create)
        .open(path)
        .map_err(context)?;
    if create {
        file.set_len(len_bytes as u64).map_err(context)?;
    }
    MmapOptions::new().len(len_bytes).map_raw(&file).map_err(context)
}

/// Where a program writes and where it reads, in bytes: two places `stride_bytes` apart.
pub(super) fn sides(opening: &Opening<'_>, stride_bytes: usize) -> [usize; 2] {
    opening.ends(0, stride_bytes).into()
}

/// An offset that is wrong is a fault of this program.
pub(super) fn outside(error: OutOfBounds) -> String {
    error.to_string()
}
