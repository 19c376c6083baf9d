//! Memory that two sides reach through mappings of their own, as two computers would.
//!
//! Contract: every mapping ends at an inaccessible page and, so far as its length allows, begins
//! behind one, so that an access outside ends the test. Mappings are never unmapped: a test makes
//! few. Called by [`crate::sides`] and the tests.
#![allow(unsafe_code)] // Mapping memory.

use std::os::fd::OwnedFd;
use std::ptr;

use busway_core::{LINE_BYTES, Medium, Window};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect};

const PAGE_BYTES: usize = 4096;

/// Bytes that several mappings show.
#[derive(Debug)]
pub struct Memory {
    file: OwnedFd,
    len_bytes: usize,
}

impl Memory {
    /// `len_bytes` (a multiple of 8) zeros.
    ///
    /// # Panics
    /// If the kernel gives no memory.
    #[must_use]
    pub fn new(len_bytes: usize) -> Self {
        let file = memfd_create("busway-c", MemfdFlags::CLOEXEC).expect("memfd_create");
        ftruncate(&file, len_bytes.next_multiple_of(PAGE_BYTES) as u64).expect("ftruncate");
        Self { file, len_bytes }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// A fresh mapping, as C takes it: its first byte. A store to one that is not `writable` ends
    /// the program.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn map(&self, writable: bool) -> *mut u8 {
        self.map_behind(0, writable)
    }

    /// A fresh mapping behind a cache of its own, which is empty, as `incoherent.h` takes it: the
    /// cache's first byte. A line that is cleaned although the memory is not `writable` ends the
    /// program.
    ///
    /// # Panics
    /// If the kernel refuses, or if the memory is too long or no whole number of lines.
    #[must_use]
    pub fn map_cached(&self, writable: bool) -> *mut u8 {
        let distance_bytes = env!("CACHE_TO_MEMORY_BYTES")
            .parse()
            .expect("build.rs says a number");
        assert!(self.len_bytes.is_multiple_of(LINE_BYTES));
        assert!(self.len_bytes.next_multiple_of(PAGE_BYTES) < distance_bytes);
        let cache = self
            .map_behind(distance_bytes, writable)
            .wrapping_sub(distance_bytes);
        let page = cache.map_addr(|at| at / PAGE_BYTES * PAGE_BYTES);
        let all_bytes = self.len_bytes.next_multiple_of(PAGE_BYTES);
        // SAFETY: whole pages of the reservation that `map_behind` made, in front of the file's.
        unsafe { mprotect(page.cast(), all_bytes, MprotectFlags::READ | MprotectFlags::WRITE) }
            .expect("make the cache writable");
        cache
    }

    /// Maps the file `front_bytes` (a multiple of the page) behind the first inaccessible page.
    fn map_behind(&self, front_bytes: usize, writable: bool) -> *mut u8 {
        let all_bytes = self.len_bytes.next_multiple_of(PAGE_BYTES);
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        // SAFETY: a fresh reservation is made and the file is mapped over its inside only; it is
        // never undone.
        unsafe {
            let guarded = mmap_anonymous(
                ptr::null_mut(),
                front_bytes + all_bytes + 2 * PAGE_BYTES,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            )
            .expect("reserve addresses");
            let inside = guarded.byte_add(PAGE_BYTES + front_bytes);
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            let base = mmap(inside, all_bytes, protection, flags, &self.file, 0).expect("map the file");
            // At the end of the last page, so that one byte too far hits the guard.
            base.cast::<u8>().add(all_bytes - self.len_bytes)
        }
    }

    /// A fresh mapping, as Rust takes it.
    #[must_use]
    pub fn window(&self, writable: bool) -> Window {
        // SAFETY: the mapping is as long, begins at a multiple of 8 since its length is one, lives
        // for ever, and is reached through this window only: the other side has another mapping, as
        // another process would.
        unsafe { Window::from_raw_parts(self.map(writable), self.len_bytes, Medium::Coherent) }
    }

    /// All bytes, while nobody writes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len_bytes];
        self.window(false).read(0, &mut bytes).expect("inside");
        bytes
    }

    /// Overwrites the first bytes, while nobody reads.
    pub fn fill(&self, bytes: &[u8]) {
        self.window(true).write(0, &[], &[bytes]).expect("inside");
    }
}
