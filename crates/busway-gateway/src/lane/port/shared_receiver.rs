//! A receiving end that the control thread can take from the lane that polls it.
//!
//! A queue of the store has one sender at a time: a gateway that gives it messages, or the other
//! host that writes it. When the control thread opens the next channel of a queue, the lane may
//! still have the end of the last one, whose link has failed. So the control thread
//! [revokes](Revoker::revoke) that end first: when that returns, no message of it comes any
//! more. Made by the gateway, on its control thread; polled by a lane.

use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

use busway_transport::{ChannelError, Receiver, Sink, WaitFor};

/// The lane's share of a receiving end.
pub struct SharedReceiver {
    shared: Arc<Mutex<Shared>>,
    wait_for: WaitFor,
}

/// The control thread's share.
pub struct Revoker {
    shared: Weak<Mutex<Shared>>,
    wait_for: WaitFor,
}

struct Shared {
    /// `None` once it is revoked or dropped: its queue pair has gone.
    receiver: Option<Box<dyn Receiver>>,
    is_revoked: bool,
}

impl Revoker {
    /// Nothing comes from this end when this returns. Waits for the lane's poll or drop, which
    /// take microseconds.
    pub fn revoke(&self) {
        // Gone: the lane's drop has ended it before its share went.
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.is_revoked = true;
        // A descriptor stays open until the lane, which waits for it, drops its share.
        if !matches!(self.wait_for, WaitFor::Fd { .. }) {
            shared.receiver = None;
        }
    }
}

impl SharedReceiver {
    pub fn new(receiver: Box<dyn Receiver>) -> SharedReceiver {
        SharedReceiver {
            wait_for: receiver.wait_for(),
            shared: Arc::new(Mutex::new(Shared {
                receiver: Some(receiver),
                is_revoked: false,
            })),
        }
    }

    /// For the control thread.
    pub fn revoker(&self) -> Revoker {
        Revoker {
            shared: Arc::downgrade(&self.shared),
            wait_for: self.wait_for,
        }
    }

    /// Uses the end, unless it is revoked or is being revoked.
    fn with<T>(&self, use_it: impl FnOnce(&mut Box<dyn Receiver>) -> T) -> Option<T> {
        let mut shared = match self.shared.try_lock() {
            Ok(shared) => shared,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if shared.is_revoked {
            return None;
        }
        shared.receiver.as_mut().map(use_it)
    }
}

impl Receiver for SharedReceiver {
    /// A revoked end is quiet: the control thread has ended its channel already.
    fn poll(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<usize, ChannelError> {
        self.with(|receiver| receiver.poll(sink, budget)).unwrap_or(Ok(0))
    }

    fn acknowledge(&mut self) {
        self.with(|receiver| receiver.acknowledge());
    }

    fn copied(&self) -> Option<u64> {
        self.with(|receiver| receiver.copied()).flatten()
    }

    fn wait_for(&self) -> WaitFor {
        self.wait_for
    }
}

impl Drop for SharedReceiver {
    fn drop(&mut self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // While it is locked, and before the share goes: so whoever revokes waits for it.
        shared.receiver = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Endless {
        wait_for: WaitFor,
        is_dropped: Arc<AtomicBool>,
    }

    impl Receiver for Endless {
        fn poll(&mut self, _: &mut dyn Sink, _: usize) -> Result<usize, ChannelError> {
            Ok(1)
        }

        fn wait_for(&self) -> WaitFor {
            self.wait_for
        }
    }

    impl Drop for Endless {
        fn drop(&mut self) {
            self.is_dropped.store(true, Ordering::Relaxed);
        }
    }

    struct Nothing;

    impl Sink for Nothing {
        fn land(&mut self, _: &busway_transport::Head) -> busway_transport::Verdict {
            busway_transport::Verdict::Discard
        }

        fn landing(&mut self) -> busway_transport::Landing<'_> {
            busway_transport::Landing {
                user_header: &mut [],
                payload: &mut [],
            }
        }

        fn deliver(&mut self, _: &busway_transport::Head) {}

        fn abandon(&mut self) {}
    }

    #[test]
    fn revoked_end_gives_nothing_and_keeps_only_a_descriptor() {
        let fd = WaitFor::Fd {
            fd: 0,
            writable: false,
        };
        for (wait_for, goes_at_once) in [(WaitFor::Doorbell, true), (WaitFor::Poll, true), (fd, false)] {
            let is_dropped = Arc::new(AtomicBool::new(false));
            let mut of_lane = SharedReceiver::new(Box::new(Endless {
                wait_for,
                is_dropped: is_dropped.clone(),
            }));
            let of_control_thread = of_lane.revoker();
            assert!(matches!(of_lane.poll(&mut Nothing, 1), Ok(1)));
            of_control_thread.revoke();
            assert!(matches!(of_lane.poll(&mut Nothing, 1), Ok(0)));
            assert_eq!(is_dropped.load(Ordering::Relaxed), goes_at_once);
            drop(of_lane);
            assert!(is_dropped.load(Ordering::Relaxed));
            of_control_thread.revoke();
        }
    }
}
