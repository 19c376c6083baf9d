//! How a lane sleeps: one epoll over everything that can wake it.
//!
//! Watched are the lane's own bell (commands), the descriptors of receiving channels, the doorbells of links, the listeners of
//! companion events, and, while something is held back, the descriptors of sending channels.
#![allow(unsafe_code)] // `BorrowedFd::borrow_raw` for descriptors that channel ends and listeners own.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use busway_transport::{Doorbell, WaitFor};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::FlowId;

const OWN_BELL: u64 = u64::MAX;
const DOORBELL: u64 = u64::MAX - 1;
const BLOCKED: u64 = u64::MAX - 2;
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
/// For times from here on, a millisecond more or less is nothing.
const COARSE: Duration = Duration::from_millis(10);
/// Most descriptors reported by one question.
const BATCH: usize = 64;

/// A bell for threads of this process.
///
/// # Errors
/// No descriptor left.
pub fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Rings it.
pub fn ring(bell: &OwnedFd) {
    // Fails only if it has been rung 2^64 times and nobody listened.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Silences it.
pub fn silence(bell: impl AsFd) {
    let mut count = [0u8; 8];
    // Fails if it was silent.
    let _ = rustix::io::read(bell, &mut count);
}

/// CLOCK_REALTIME in nanoseconds.
pub fn realtime_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

/// The flows whose descriptors are ready.
pub struct Woken {
    flows: [FlowId; BATCH],
    count: usize,
    /// Something happened, rather than that the time was over.
    pub is_by_event: bool,
}

impl Woken {
    /// Their names; one may occur twice.
    pub fn flows(&self) -> &[FlowId] {
        &self.flows[..self.count]
    }
}

/// See the module.
pub struct Sleeper {
    epoll: OwnedFd,
    bell: OwnedFd,
    doorbells: Vec<(usize, Box<dyn Doorbell>)>,
    blocked: Vec<RawFd>,
    /// Watched for these flows again when the lane is awake.
    ignored: Vec<(FlowId, RawFd)>,
    /// Some channel can wake nobody.
    pub must_poll: bool,
}

impl Sleeper {
    /// Woken by the lane's own bell, for a start.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new(bell: &OwnedFd) -> io::Result<Sleeper> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = bell.try_clone()?;
        epoll::add(&epoll, &bell, EventData::new_u64(OWN_BELL), EventFlags::IN)?;
        Ok(Sleeper {
            epoll,
            bell,
            doorbells: Vec::new(),
            blocked: Vec::with_capacity(16),
            ignored: Vec::with_capacity(16),
            must_poll: false,
        })
    }

    fn watch(&self, fd: RawFd, data: u64, flags: EventFlags) {
        // SAFETY: the number comes from a channel end or listener that the lane holds right now.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // Already watched is as good; what can't be watched is found by the next turn.
        let _ = epoll::add(&self.epoll, fd, EventData::new_u64(data), flags);
    }

    /// Watches a flow's descriptors.
    pub fn watch_flow(&self, flow: FlowId, ear: Option<RawFd>, channels: impl Iterator<Item = WaitFor>) {
        for fd in ear
            .into_iter()
            .chain(channels.filter_map(|wait_for| match wait_for {
                WaitFor::Fd { fd, .. } => Some(fd),
                WaitFor::Doorbell | WaitFor::Poll => None,
            }))
        {
            self.watch(fd, u64::from(flow), EventFlags::IN);
        }
    }

    /// Watches the descriptors of channels that hold something back, until the next [`disarm`](Self::disarm).
    pub fn watch_blocked(&mut self, channels: impl Iterator<Item = WaitFor>) {
        for channel in channels {
            if let WaitFor::Fd { fd, writable } = channel {
                let flags = if writable {
                    EventFlags::IN | EventFlags::OUT
                } else {
                    EventFlags::IN
                };
                self.watch(fd, BLOCKED, flags);
                self.blocked.push(fd);
            }
        }
    }

    /// Hears nothing of these channels of a flow until the next [`disarm`](Self::disarm).
    pub fn ignore(&mut self, flow: FlowId, channels: impl Iterator<Item = WaitFor>) {
        for channel in channels {
            if let WaitFor::Fd { fd, .. } = channel {
                self.unwatch(fd);
                self.ignored.push((flow, fd));
            }
        }
    }

    fn unwatch(&self, fd: RawFd) {
        // SAFETY: the lane holds the channel end, and has held it since it was watched.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Replaces the doorbell of a link.
    pub fn set_doorbell(&mut self, link: usize, bell: Option<Box<dyn Doorbell>>) {
        self.doorbells.retain(|(owner, old)| {
            if *owner == link {
                let _ = epoll::delete(&self.epoll, old.fd());
            }
            *owner != link
        });
        if let Some(bell) = bell {
            let data = EventData::new_u64(DOORBELL);
            let _ = epoll::add(&self.epoll, bell.fd(), data, EventFlags::IN);
            self.doorbells.push((link, bell));
        }
    }

    /// Whether some link has a doorbell here.
    pub fn has_doorbells(&self) -> bool {
        !self.doorbells.is_empty()
    }

    /// Peers ring from now on; the lane must look once more before it sleeps.
    pub fn arm(&mut self) {
        for (_, bell) in &mut self.doorbells {
            bell.arm();
        }
    }

    /// The lane is awake.
    pub fn disarm(&mut self) {
        for (_, bell) in &mut self.doorbells {
            bell.disarm();
        }
        while let Some(fd) = self.blocked.pop() {
            self.unwatch(fd);
        }
        while let Some((flow, fd)) = self.ignored.pop() {
            self.watch(fd, u64::from(flow), EventFlags::IN);
        }
    }

    /// Waits for at most this long. Returns the flows that have something to do.
    pub fn ask(&self, longest: Duration) -> Woken {
        let mut woken = Woken {
            flows: [0; BATCH],
            count: 0,
            is_by_event: false,
        };
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; BATCH];
        let mut patience = Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        // epoll_wait(2) rounds its time-out up to whole milliseconds, ppoll(2) does not but is one call more.
        if !longest.is_zero() && longest < COARSE {
            let mut all = [PollFd::new(&self.epoll, PollFlags::IN)];
            // Interrupted by a signal: as good as nothing to do.
            if !matches!(poll(&mut all, Some(&patience)), Ok(1..)) {
                return woken;
            }
            patience = NOW;
        }
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut events, Some(&patience)) else {
            return woken;
        };
        woken.is_by_event = !ready.is_empty();
        for event in ready.iter() {
            match event.data.u64() {
                OWN_BELL => silence(&self.bell),
                DOORBELL | BLOCKED => {}
                flow => {
                    woken.flows[woken.count] = flow as FlowId;
                    woken.count += 1;
                }
            }
        }
        woken
    }
}
