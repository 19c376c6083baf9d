//! What the torture programs share: mapping a file between guard pages, the pattern, the addresses
//! within the file.
//!
//! The file holds a register, or a ring with its credit words on the page behind it.
#![allow(unsafe_code, dead_code)] // Mapping memory. Each program uses a part of this module.

use std::fs::OpenOptions;
use std::ptr;

use busway_core::ring::CREDIT_BYTES;
use busway_core::{Medium, Window, register, ring};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const PAGE_BYTES: usize = 4096;

/// Where the session of every torture run begins: near enough to the end that positions wrap within
/// a run.
pub const START: u64 = u64::MAX - 100_000;

/// Maps `len_bytes` bytes of the file at `path` from `offset` on, with inaccessible pages on both
/// sides, for ever.
pub fn map(path: &str, offset: usize, len_bytes: usize, writable: bool) -> Window {
    let file = OpenOptions::new()
        .read(true)
        .write(writable)
        .open(path)
        .expect("open the shared file");
    let all_bytes = len_bytes.next_multiple_of(PAGE_BYTES);
    let protection = if writable {
        ProtFlags::READ | ProtFlags::WRITE
    } else {
        ProtFlags::READ
    };
    // SAFETY: a fresh reservation is made, and the file is mapped over its inside only; the mapping
    // is never undone, and this process reaches it through the window only.
    unsafe {
        let guarded = mmap_anonymous(
            ptr::null_mut(),
            all_bytes + 2 * PAGE_BYTES,
            ProtFlags::empty(),
            MapFlags::PRIVATE,
        )
        .expect("reserve addresses");
        let inside = guarded.byte_add(PAGE_BYTES);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let base =
            mmap(inside, all_bytes, protection, flags, &file, offset as u64).expect("map the shared file");
        // At the end of the last page, so that one word too far hits the guard.
        Window::from_raw_parts(
            base.cast::<u8>().add(begin_in_file(len_bytes)),
            len_bytes,
            Medium::Coherent,
        )
    }
}

/// Where [`map`] lets a window of `len_bytes` begin, counted from its offset in the file.
pub fn begin_in_file(len_bytes: usize) -> usize {
    len_bytes.next_multiple_of(PAGE_BYTES) - len_bytes
}

pub fn register_layout(size_bytes: usize) -> register::Layout {
    register::Layout::new(3, size_bytes).expect("register layout")
}

pub fn ring_layout(size_bytes: usize) -> ring::Layout {
    ring::Layout::for_messages(64, size_bytes).expect("ring layout")
}

/// Bytes of the file for messages of `size_bytes`, enough for either protocol.
pub fn file_bytes(size_bytes: usize) -> usize {
    let ring = ring_layout(size_bytes)
        .required_bytes()
        .next_multiple_of(PAGE_BYTES)
        + PAGE_BYTES;
    ring.max(
        register_layout(size_bytes)
            .required_bytes()
            .next_multiple_of(PAGE_BYTES),
    )
}

/// The credit words: where their page begins in the file of a ring.
fn credit_offset(layout: &ring::Layout) -> usize {
    layout.required_bytes().next_multiple_of(PAGE_BYTES)
}

/// The window of a ring and that of its credits, each writable only for the side that writes it.
pub fn map_ring(path: &str, layout: &ring::Layout, is_producer: bool) -> (Window, Window) {
    let lines = map(path, 0, layout.required_bytes(), is_producer);
    (
        lines,
        map(path, credit_offset(layout), CREDIT_BYTES, !is_producer),
    )
}

/// Random words from which every message is a slice that begins elsewhere than its neighbours': any
/// word from another message stands out, and neither side has to compute anything.
pub struct Pattern {
    bytes: Vec<u8>,
    size_bytes: usize,
}

/// Starting places. Prime, so that the place does not repeat with slots or lines.
const PLACES: u64 = 4093;

impl Pattern {
    pub fn new(size_bytes: usize) -> Self {
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let words = size_bytes / 8 + 1 + PLACES as usize;
        Self {
            bytes: (0..words).flat_map(|_| random.next().to_ne_bytes()).collect(),
            size_bytes,
        }
    }

    /// The message with number `number`, of the full size or, if `varied`, of any length up to it.
    pub fn message(&self, number: u64, varied: bool) -> &[u8] {
        let begin = (number % PLACES) as usize * 8;
        let len = if varied {
            (number.wrapping_mul(0x9E37_79B9) % (self.size_bytes as u64 + 1)) as usize
        } else {
            self.size_bytes
        };
        &self.bytes[begin..begin + len]
    }
}

/// Source time of message `number`, so that the header is checked too.
pub fn time_of(number: u64) -> u64 {
    !number.rotate_left(17)
}

/// Binds this thread to the `index`-th processor that it may use, if there are as many, so that two
/// sides really run at once: the scheduler likes to put processes that share memory on one.
pub fn pin(index: usize) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    if let Some(cpu) = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).nth(index) {
        let mut one = CpuSet::new();
        one.set(cpu);
        let _ = sched_setaffinity(None, &one);
    }
}

/// Spins, and gives the processor away now and then, since there may be fewer of them than
/// processes.
pub fn wait(spins: &mut u64) {
    *spins += 1;
    if spins.is_multiple_of(1000) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Xorshift*: fast. (Plain xorshift is linear, and some triples of place, kind and value never
/// come.)
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(32)
    }
}
