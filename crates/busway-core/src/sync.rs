//! The atomics of this crate, in one place, so that loom can replace them (`--cfg loom`).
//!
//! Contract: no other module names `core::sync::atomic`. Called by [`crate::window`] and
//! [`crate::copy`] only; the register and the ring reach memory through a window and have no
//! atomics of their own.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
