//! One descriptor that wakes the lane of a sending end: an epoll set of its socket and a timer.
//!
//! A lane sleeps on one descriptor for the whole life of an end. The timer is set again only when
//! it would expire too late, so that a busy channel makes next to no system calls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::session::poller::{Interest, Poller};

const SOCKET: u64 = 1;
const TIMER: u64 = 2;
const GROUP: u64 = 3;
const NS: u64 = 1_000_000_000;

pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * NS + now.tv_nsec as u64
}

#[derive(Debug)]
pub(super) struct Wake {
    poller: Poller,
    timer: OwnedFd,
    timer_at_ns: Option<u64>,
    waits_for_room: bool,
    waits_for_group: bool,
}

impl Wake {
    pub(super) fn new(socket: impl AsFd) -> io::Result<Wake> {
        let poller = Poller::new()?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        poller.add(socket, SOCKET, Interest::Read)?;
        poller.add(&timer, TIMER, Interest::Read)?;
        Ok(Wake {
            poller,
            timer,
            timer_at_ns: None,
            waits_for_room: false,
            waits_for_group: false,
        })
    }

    /// Reads the timer if it has expired.
    pub(super) fn awake(&mut self, now_ns: u64) {
        if self.timer_at_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            // Fails if the timer is slightly late; it is set again in any case.
            let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
            self.timer_at_ns = None;
        }
    }

    /// Wakes the lane at that time at the latest.
    pub(super) fn set_timer(&mut self, at_ns: u64) {
        if self.timer_at_ns.is_some_and(|earlier_ns| earlier_ns <= at_ns) {
            return;
        }
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spec = Itimerspec {
            it_interval: zero,
            it_value: Timespec {
                tv_sec: (at_ns / NS) as i64,
                // All zeros would mean never.
                tv_nsec: (at_ns % NS).max(1) as _,
            },
        };
        // Fails only for invalid times.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec);
        self.timer_at_ns = Some(at_ns);
    }

    /// Whether room in the socket also wakes the lane.
    pub(super) fn wait_for_room(&mut self, socket: impl AsFd, waits: bool) {
        if self.waits_for_room != waits {
            let interest = if waits {
                Interest::ReadWrite
            } else {
                Interest::Read
            };
            self.waits_for_room = self.poller.modify(socket, SOCKET, interest).is_ok() && waits;
        }
    }

    /// Whether room in the multicast socket also wakes the lane.
    pub(super) fn wait_for_group_room(&mut self, socket: impl AsFd, waits: bool) {
        if self.waits_for_group == waits {
            return;
        }
        self.waits_for_group = waits;
        if !waits {
            self.poller.remove(socket);
        } else if self.poller.add(socket, GROUP, Interest::Write).is_err() {
            self.waits_for_group = false;
        }
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
