//! Locks what only one lane uses, so that a panic elsewhere does not matter and no call waits.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks without regard to poisoning.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
