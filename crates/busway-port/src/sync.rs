//! The atomics of this crate, in one place, so that loom can replace them (`--cfg loom`).
//!
//! Contract: no other module names `std::sync::atomic` for words in shared memory.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
