//! Queues through which any thread hands something to a link's control thread: connections from a
//! shared listener, and senders that were dropped before everything had arrived.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// A dropped sender whose last bytes have not arrived yet.
pub trait Linger: Send {
    /// Ready when [`pump`](Self::pump) has something to do.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Does what can be done now; returns whether everything has arrived or never will.
    fn pump(&mut self) -> bool;
    /// Whether it waits until it can write to [`fd`](Self::fd).
    fn waits_for_room(&self) -> bool {
        false
    }
}

/// Takes dropped senders. The link keeps each for [`LINGER`](crate::contract::LINGER) at most.
pub type DroppedSenders = Mailbox<Box<dyn Linger>>;

/// A queue that one thread, which sleeps on descriptors, reads.
pub struct Mailbox<T> {
    queue: Mutex<VecDeque<T>>,
    /// Readable while something may be queued.
    wake: OwnedFd,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Mailbox {
            queue: Mutex::new(VecDeque::new()),
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// Queues `item` and wakes the reader.
    pub(crate) fn put(&self, item: T) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(item);
        self.wake();
    }

    /// Makes the link's descriptor readable.
    pub(crate) fn wake(&self) {
        // It fails only if the counter is full, and then the descriptor is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Takes everything out. Clears the wake-up first, so that what comes meanwhile wakes again.
    pub(crate) fn take(&self) -> VecDeque<T> {
        let mut count = [0; 8];
        // Fails only if nothing was put in.
        let _ = rustix::io::read(&self.wake, &mut count);
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
