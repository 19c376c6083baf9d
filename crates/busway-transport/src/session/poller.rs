//! A set of descriptors that is a descriptor itself (epoll), so that a link has one descriptor.
//!
//! Level-triggered. Used by links, listeners and what a bus watches, on the control thread.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

/// Descriptors handled in one round; the rest stay ready.
const ROUND: usize = 64;

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    Write,
    ReadWrite,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Interest::Read => EventFlags::IN,
            Interest::Write => EventFlags::OUT,
            Interest::ReadWrite => EventFlags::IN | EventFlags::OUT,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        Ok(Poller {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    pub(crate) fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            source,
            EventData::new_u64(token),
            interest.flags(),
        )?)
    }

    pub(crate) fn modify(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(
            &self.epoll,
            source,
            EventData::new_u64(token),
            interest.flags(),
        )?)
    }

    /// Forgets a descriptor that lives on elsewhere; one that is closed is forgotten by itself.
    pub(crate) fn remove(&self, source: impl AsFd) {
        // It fails only where the descriptor was never added, and then all is well.
        let _ = epoll::delete(&self.epoll, source);
    }

    /// The tokens of what is ready now, at most [`ROUND`]; never waits.
    pub(crate) fn ready(&self) -> impl Iterator<Item = u64> + use<> {
        let mut buffer = [MaybeUninit::<Event>::uninit(); ROUND];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut tokens = [0; ROUND];
        let mut count = 0;
        // An interrupted call finds nothing, and the caller's descriptor stays readable.
        if let Ok((events, _)) = epoll::wait(&self.epoll, &mut buffer[..], Some(&now)) {
            count = events.len();
            for (token, event) in tokens.iter_mut().zip(&*events) {
                *token = event.data.u64();
            }
        }
        tokens.into_iter().take(count)
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
