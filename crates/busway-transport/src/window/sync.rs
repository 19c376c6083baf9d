//! The atomics of [`super::armed`], in one place, so that loom can replace them (`--cfg loom`).

#[cfg(not(loom))]
pub use std::sync::atomic::{Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{Ordering, fence};
