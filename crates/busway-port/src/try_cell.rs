//! A value that one thread at a time may have, and that nobody ever waits for.
//!
//! Contract: as a `Mutex` with `try_lock` alone, but given back by a plain store: since nobody
//! waits, nobody is to be woken. A mutex has to find that out with a second locked instruction,
//! which is a tenth of what a read of a sampling port costs. Called by the reading end of a
//! sampling port.
#![allow(unsafe_code)] // Hands out the only reference to the value.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value and whether it is taken.
pub(crate) struct TryCell<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the one `Taken` that exists at a time, as through a mutex;
// so it moves between threads but is never used by two at once, which asks for `Send` only.
unsafe impl<T: Send> Sync for TryCell<T> {}

/// The value, taken. Dropping it gives it back.
pub(crate) struct Taken<'c, T>(&'c TryCell<T>);

impl<T> TryCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, unless another thread has it.
    #[inline]
    pub(crate) fn try_take(&self) -> Option<Taken<'_, T>> {
        // Acquire: partner is the Release in `drop`, so that what the thread before did with the
        // value is done.
        let was_taken = self.is_taken.swap(true, Ordering::Acquire);
        // Made only if it is ours: dropping one gives the value back.
        (!was_taken).then(|| Taken(self))
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only `Taken` of its cell: `try_take` makes one only when it has
        // changed `is_taken` from false to true, and only dropping it makes that false again.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; and `self` is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: partner is the Acquire in `try_take`.
        self.0.is_taken.store(false, Ordering::Release);
    }
}

impl<T> fmt::Debug for TryCell<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TryCell").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_had_by_nobody_else_until_it_is_given_back() {
        let cell = TryCell::new(1);
        let mut taken = cell.try_take().expect("free");
        assert!(cell.try_take().is_none());
        assert!(cell.try_take().is_none(), "a refusal gives nothing back");
        *taken += 1;
        drop(taken);
        assert_eq!(*cell.try_take().expect("free again"), 2);
    }

    #[test]
    fn threads_that_take_it_in_turn_lose_no_change() {
        let cell = TryCell::new(0_u64);
        let changes: u64 = std::thread::scope(|scope| {
            let change = || {
                (0..10_000)
                    .filter_map(|_| cell.try_take())
                    .map(|mut value| *value += 1)
                    .count() as u64
            };
            let threads = [scope.spawn(change), scope.spawn(change)];
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a count"))
                .sum()
        });
        assert_eq!(*cell.try_take().expect("free"), changes);
    }
}
