//! What others hand to a link: connections from the shared listener, and the streams of senders
//! that were dropped before their last byte was sent. Any thread writes, the link reads; it is not
//! in the data path.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::opening::Opening;

/// A stream that has to be kept until the peer has it all.
pub(super) trait Linger: Send {
    /// The connection's descriptor: wait for it to become readable or writable.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Does what can be done now; whether it is over.
    fn pump(&mut self) -> bool;
    /// Whether something is still waiting for room to write.
    fn waits_for_room(&self) -> bool;
}

/// One piece of mail.
pub(super) enum Mail<S> {
    /// A connection whose first bytes say that it is for this link.
    Opened(S, Opening),
    /// A stream that outlives its channel end.
    Linger(Box<dyn Linger>),
}

/// The mail of a link of connections.
pub(super) type Mailbox<S> = Letterbox<Mail<S>>;

/// A queue that one thread, which sleeps on descriptors, reads.
pub(crate) struct Letterbox<T> {
    mail: Mutex<VecDeque<T>>,
    /// Readable while there may be mail.
    bell: OwnedFd,
}

impl<S> Mailbox<S> {
    pub(super) fn opened(&self, socket: S, opening: Opening) {
        self.put(Mail::Opened(socket, opening));
    }

    pub(super) fn linger(&self, stream: Box<dyn Linger>) {
        self.put(Mail::Linger(stream));
    }
}

impl<T> Letterbox<T> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Letterbox {
            mail: Mutex::new(VecDeque::new()),
            bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// Puts something in and rings.
    pub(crate) fn put(&self, mail: T) {
        self.mail
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(mail);
        self.ring();
    }

    /// Makes the link's descriptor readable.
    pub(crate) fn ring(&self) {
        // It fails only if the counter is full, and then the bell rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Takes everything out. The bell is cleared first, so that mail put in meanwhile rings anew.
    pub(crate) fn take(&self) -> VecDeque<T> {
        let mut count = [0; 8];
        // It fails only if nobody has rung.
        let _ = rustix::io::read(&self.bell, &mut count);
        std::mem::take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> AsFd for Letterbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
