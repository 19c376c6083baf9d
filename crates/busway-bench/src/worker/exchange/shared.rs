//! What ports are compared with in shared memory: two bare cache lines, and the published register of one slot between two flags.
//!
//! Both programs map one file, which the answering one makes. Copies go through a [`Window`], as those of ports do, so that the way of
//! copying makes no difference.
#![allow(unsafe_code)] // The window into a mapping.

use std::fs::File;
use std::path::Path as FilePath;

use busway_core::{Medium, Window};
use memmap2::{MmapOptions, MmapRaw};

use super::{Path, number, word};
use crate::worker::WorkerResult;

/// Distance of what different programs write, in bytes: CPUs fetch lines in pairs.
const APART_BYTES: usize = 128;

/// A mapped file and the window onto it.
struct Memory {
    window: Window,
    /// Keeps the memory behind `window`.
    _map: MmapRaw,
}

impl Memory {
    fn open(path: &FilePath, len_bytes: usize, create: bool) -> WorkerResult<Self> {
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
        let map = MmapOptions::new()
            .len(len_bytes)
            .map_raw(&file)
            .map_err(context)?;
        // SAFETY: the mapping is page-aligned, readable and writable for `len_bytes` bytes, and lives as long as the window beside
        // it; both programs reach it through windows only.
        let window = unsafe { Window::from_raw_parts(map.as_mut_ptr(), len_bytes, Medium::Coherent) };
        Ok(Self { window, _map: map })
    }
}

/// The least that any exchange between two processors costs: a word each way, in a line of its own.
pub(super) struct TwoLines {
    memory: Memory,
    /// Offsets in bytes of the line to write and the line to look at.
    lines: [usize; 2],
    last: u64,
}

impl TwoLines {
    pub(super) fn open(path: &FilePath, answers: bool) -> WorkerResult<Self> {
        Ok(Self {
            memory: Memory::open(path, 2 * APART_BYTES, answers)?,
            lines: sides(APART_BYTES, answers),
            last: 0,
        })
    }
}

impl Path for TwoLines {
    #[inline]
    fn write(&mut self, message: &[u8]) -> WorkerResult<()> {
        let window = &self.memory.window;
        window.write_fence();
        window
            .store(self.lines[0], word(message, 0))
            .map_err(|e| e.to_string())
    }

    #[inline]
    fn look(&mut self, message: &mut [u8]) -> WorkerResult<bool> {
        let found = self
            .memory
            .window
            .load_acquire(self.lines[1])
            .map_err(|e| e.to_string())?;
        if found == self.last {
            return Ok(false);
        }
        self.last = found;
        number(message, found);
        Ok(true)
    }
}

/// The register of the RDMA sampling port: flag, message, flag, one behind the other. Equal flags around a copy are taken for a whole
/// message; here, where one message at a time is under way, they are right.
pub(super) struct Flags {
    memory: Memory,
    /// Offsets in bytes of the register to write and the register to read.
    registers: [usize; 2],
    size_bytes: usize,
    written: u64,
    last: u64,
}

impl Flags {
    pub(super) fn open(path: &FilePath, size_bytes: usize, answers: bool) -> WorkerResult<Self> {
        let stride_bytes = (size_bytes + 16).next_multiple_of(APART_BYTES);
        Ok(Self {
            memory: Memory::open(path, 2 * stride_bytes, answers)?,
            registers: sides(stride_bytes, answers),
            size_bytes,
            written: 0,
            last: 0,
        })
    }
}

impl Path for Flags {
    #[inline]
    fn write(&mut self, message: &[u8]) -> WorkerResult<()> {
        let (window, begin) = (&self.memory.window, self.registers[0]);
        self.written += 1;
        // Sequence and size together, as published.
        let flag = self.written << 32 | message.len() as u64;
        let result = (|| {
            window.store(begin, flag)?;
            window.write_fence();
            window.write(begin + 8, &[], &[message])?;
            window.write_fence();
            window.store(begin + 8 + self.size_bytes, flag)
        })();
        result.map_err(|e| e.to_string())
    }

    #[inline]
    fn look(&mut self, message: &mut [u8]) -> WorkerResult<bool> {
        let (window, begin) = (&self.memory.window, self.registers[1]);
        let result = (|| {
            let flag = window.load_acquire(begin)?;
            if flag == self.last {
                return Ok(false);
            }
            window.read(begin + 8, message)?;
            window.read_fence();
            let is_whole = window.load(begin + 8 + self.size_bytes)? == flag;
            if is_whole {
                self.last = flag;
            }
            Ok(is_whole)
        })();
        result.map_err(|e: busway_core::OutOfBounds| e.to_string())
    }
}

/// Where a program writes and where it reads.
fn sides(stride_bytes: usize, answers: bool) -> [usize; 2] {
    if answers {
        [stride_bytes, 0]
    } else {
        [0, stride_bytes]
    }
}
