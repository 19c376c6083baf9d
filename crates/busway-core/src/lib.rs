//! Moving messages through memory that somebody else writes.
//!
//! Two protocols stand on one idea, *remote write*: a host places bytes into memory of another host
//! and never reads across the bus.
//!
//! - [`register`]: **sampling**. The latest message only; reading does not consume it. One writer,
//!   any number of readers that never write.
//! - [`ring`]: **queuing**. Every message, in order, bounded. One producer, one consumer, credits
//!   written back.
//! - [`control`]: the encoding of the conversation that two hosts hold beside them.
//!
//! [`window`] is the memory (with the ordering that its mapping needs) and [`remote`] is what a
//! writing side asks of it, so that an RDMA queue pair can stand where a mapping stands.
//!
//! The crate reads no clock, makes no system call, does not allocate, does not log. What a peer
//! wrote is hostile: every index, offset and length is loaded once and checked; wrong bytes are
//! possible, undefined behaviour is not.
#![cfg_attr(not(any(loom, test)), no_std)]

mod checksum;
pub mod control;
mod copy;
pub mod register;
pub mod remote;
pub mod ring;
mod sync;
pub mod window;

pub use remote::{RemoteError, RemoteWrite};
pub use window::{Medium, OutOfBounds, Window};

/// Size of a cache line in bytes: the unit in which memory moves between cores and across PCI
/// Express.
pub const LINE_BYTES: usize = 64;

/// Size of a word in bytes. Everything shared is accessed as aligned words of this size.
pub const WORD_BYTES: usize = 8;

/// Rounds `len_bytes` up to a multiple of `unit` (a power of two); `None` if that overflows.
pub(crate) const fn round_up(len_bytes: usize, unit: usize) -> Option<usize> {
    match len_bytes.checked_add(unit - 1) {
        Some(sum) => Some(sum & !(unit - 1)),
        None => None,
    }
}
