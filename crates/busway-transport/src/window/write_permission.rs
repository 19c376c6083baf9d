//! Lets the control thread stop the lanes' writes into the windows when a conversation ends.
//!
//! Contract: each channel end has a [`WritePermission`] and holds a guard of it while it writes
//! into a window. After [`WritePermissions::revoke`], once [`WritePermissions::has_no_writer`], no
//! end of the conversation writes any more, and the peer may reuse the memory. A lane pays one
//! locked instruction on a cache line of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A flag on a cache line of its own (two, since lines are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicBool);

/// One conversation with a peer: from link up to link down.
#[derive(Debug, Default)]
pub struct WritePermissions {
    /// Set once by the control thread.
    revoked: Line,
    /// One flag an end: it writes now. Only that end's lane writes it. Locked when channels open
    /// and when the link goes down, never on the data path.
    writing: Mutex<Vec<Arc<Line>>>,
}

impl WritePermissions {
    /// A permission for one more channel end.
    pub fn grant(self: &Arc<Self>) -> WritePermission {
        let writing = Arc::new(Line::default());
        let mut all = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|flag| Arc::strong_count(flag) > 1);
        all.push(Arc::clone(&writing));
        WritePermission {
            permissions: Arc::clone(self),
            writing,
        }
    }

    /// Ends all permissions: ends that are writing may finish, none begins.
    pub fn revoke(&self) {
        // Partner: `WritePermission::begin_write`. Both are SeqCst, so either the lane sees this,
        // or `has_no_writer` sees the lane.
        self.revoked.0.store(true, Ordering::SeqCst);
    }

    /// Whether no end is writing. After [`end`](Self::end) it stays so.
    pub fn has_no_writer(&self) -> bool {
        let all = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // Acquire (part of SeqCst); partner: the Release in `WriteGuard::drop`. All writes of the
        // lane come before it.
        all.iter().all(|flag| !flag.0.load(Ordering::SeqCst))
    }

    /// Whether the conversation has revoked.
    pub fn is_revoked(&self) -> bool {
        // Partner: `revoke`. A hint only: writers use `begin_write`.
        self.revoked.0.load(Ordering::Relaxed)
    }
}

/// One channel end's permission to write into the windows.
#[derive(Debug)]
pub struct WritePermission {
    permissions: Arc<WritePermissions>,
    writing: Arc<Line>,
}

/// Proof that the conversation lasts; it can't be declared quiet before this is dropped.
#[derive(Debug)]
pub struct WriteGuard<'a>(&'a Line);

impl WritePermission {
    /// Enters, unless the conversation has revoked.
    #[inline]
    pub fn begin_write(&self) -> Option<WriteGuard<'_>> {
        // Partner: `WritePermissions::revoke` and `has_no_writer`. A swap, since a store would need
        // a fence after it.
        self.writing.0.swap(true, Ordering::SeqCst);
        let writing = WriteGuard(&self.writing);
        (!self.permissions.revoked.0.load(Ordering::SeqCst)).then_some(writing)
    }

    /// Whether the conversation has revoked.
    #[inline]
    pub fn is_revoked(&self) -> bool {
        self.permissions.is_revoked()
    }
}

impl Drop for WriteGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Partner: the load in `WritePermissions::has_no_writer`.
        self.0.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn no_write_begins_after_revoke() {
        let permissions = Arc::new(WritePermissions::default());
        let permission = permissions.grant();
        assert!(permission.begin_write().is_some());
        permissions.revoke();
        assert!(permission.begin_write().is_none());
        assert!(permissions.has_no_writer());
    }

    #[test]
    fn writer_is_counted_until_it_ends() {
        let permissions = Arc::new(WritePermissions::default());
        let permission = permissions.grant();
        let writing = permission.begin_write().expect("not revoked");
        permissions.revoke();
        assert!(!permissions.has_no_writer());
        drop(writing);
        assert!(permissions.has_no_writer());
    }

    #[test]
    fn no_write_follows_once_it_has_no_writer() {
        for _ in 0..200 {
            let permissions = Arc::new(WritePermissions::default());
            let permission = permissions.grant();
            let writes = Arc::new(AtomicU64::new(0));
            let lane = std::thread::spawn({
                let writes = Arc::clone(&writes);
                move || {
                    while let Some(_inside) = permission.begin_write() {
                        writes.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            std::thread::yield_now();
            permissions.revoke();
            while !permissions.has_no_writer() {
                std::hint::spin_loop();
            }
            let at_quiet = writes.load(Ordering::Relaxed);
            lane.join().expect("the lane ends");
            assert_eq!(writes.load(Ordering::Relaxed), at_quiet);
        }
    }
}
