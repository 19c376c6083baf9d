//! How a lane sleeps: one epoll over everything that can wake it.
//!
//! Watched are the lane's own doorbell (commands), the descriptors of receiving channels, the
//! doorbells of links, the listeners of companion events, and, while messages wait for room, the
//! descriptors of sending channels. Not `polling` or `mio`: a lane needs level-triggered events,
//! time-outs shorter than epoll's millisecond, and no allocation.
#![allow(unsafe_code)] // `BorrowedFd::borrow_raw` for descriptors that channel ends and listeners own.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use busway_transport::{Doorbell, WaitFor};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::interface::FlowId;

const OWN_DOORBELL: u64 = u64::MAX;
const DOORBELL: u64 = u64::MAX - 1;
const BLOCKED: u64 = u64::MAX - 2;
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
/// For sleeps as long as this or longer, a millisecond more makes no difference.
const COARSE: Duration = Duration::from_millis(10);
/// Most descriptors reported by one call.
const BATCH: usize = 64;

/// A doorbell between threads of this process.
pub fn doorbell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

pub fn ring(doorbell: &OwnedFd) {
    // Fails only after 2^64 rings without a read.
    let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
}

pub fn silence(doorbell: impl AsFd) {
    let mut count = [0u8; 8];
    // Fails if it was silent.
    let _ = rustix::io::read(doorbell, &mut count);
}

/// CLOCK_REALTIME in nanoseconds.
pub fn realtime_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

/// The flow in an epoll event's 64 bits: its kind above its number. Far below the tokens above.
fn token_of(flow: FlowId) -> u64 {
    let (kind, number) = match flow {
        FlowId::Service(number) => (0, number),
        FlowId::Port(number) => (1, number),
        FlowId::Core(number) => (2, number),
    };
    kind << 32 | u64::from(number)
}

fn flow_of(token: u64) -> FlowId {
    let number = token as u32;
    match token >> 32 {
        0 => FlowId::Service(number),
        1 => FlowId::Port(number),
        _ => FlowId::Core(number),
    }
}

/// The flows whose descriptors are ready.
pub struct Woken {
    flows: [FlowId; BATCH],
    count: usize,
    /// A descriptor was ready; the time was not over.
    pub is_by_event: bool,
}

impl Woken {
    pub fn flows(&self) -> &[FlowId] {
        &self.flows[..self.count]
    }
}

pub struct Sleeper {
    epoll: OwnedFd,
    doorbell: OwnedFd,
    doorbells: Vec<(usize, Box<dyn Doorbell>)>,
    blocked: Vec<RawFd>,
    /// Watched for these flows again when the lane is awake.
    ignored: Vec<(FlowId, RawFd)>,
    /// Some channel has no descriptor and no doorbell.
    pub must_poll: bool,
}

impl Sleeper {
    /// Watches the lane's own doorbell only.
    pub fn new(doorbell: &OwnedFd) -> io::Result<Sleeper> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let doorbell = doorbell.try_clone()?;
        epoll::add(
            &epoll,
            &doorbell,
            EventData::new_u64(OWN_DOORBELL),
            EventFlags::IN,
        )?;
        Ok(Sleeper {
            epoll,
            doorbell,
            doorbells: Vec::new(),
            blocked: Vec::with_capacity(16),
            ignored: Vec::with_capacity(16),
            must_poll: false,
        })
    }

    fn watch(&self, fd: RawFd, data: u64, flags: EventFlags) {
        // SAFETY: the number comes from a channel end or listener that the lane holds right now.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // Already watched is fine; one that can't be watched is looked at in the next turn.
        let _ = epoll::add(&self.epoll, fd, EventData::new_u64(data), flags);
    }

    /// Watches a flow's descriptors.
    pub fn watch_flow(&self, flow: FlowId, listener: Option<RawFd>, channels: impl Iterator<Item = WaitFor>) {
        for fd in listener
            .into_iter()
            .chain(channels.filter_map(|wait_for| match wait_for {
                WaitFor::Fd { fd, .. } => Some(fd),
                WaitFor::Doorbell | WaitFor::Poll => None,
            }))
        {
            self.watch(fd, token_of(flow), EventFlags::IN);
        }
    }

    /// Watches the descriptors of channels that wait for room, until the next
    /// [`disarm`](Self::disarm).
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

    /// Ignores these channels of a flow until the next [`disarm`](Self::disarm).
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
    pub fn set_doorbell(&mut self, link: usize, doorbell: Option<Box<dyn Doorbell>>) {
        self.doorbells.retain(|(owner, old)| {
            if *owner == link {
                let _ = epoll::delete(&self.epoll, old.fd());
            }
            *owner != link
        });
        if let Some(doorbell) = doorbell {
            let data = EventData::new_u64(DOORBELL);
            let _ = epoll::add(&self.epoll, doorbell.fd(), data, EventFlags::IN);
            self.doorbells.push((link, doorbell));
        }
    }

    /// Whether some link has a doorbell here.
    pub fn has_doorbells(&self) -> bool {
        !self.doorbells.is_empty()
    }

    /// Peers ring from now on; the lane must look once more before it sleeps.
    pub fn arm(&mut self) {
        for (_, doorbell) in &mut self.doorbells {
            doorbell.arm();
        }
    }

    /// The lane is awake.
    pub fn disarm(&mut self) {
        for (_, doorbell) in &mut self.doorbells {
            doorbell.disarm();
        }
        while let Some(fd) = self.blocked.pop() {
            self.unwatch(fd);
        }
        while let Some((flow, fd)) = self.ignored.pop() {
            self.watch(fd, token_of(flow), EventFlags::IN);
        }
    }

    /// Waits for at most `longest`. Returns the flows whose descriptors are ready.
    pub fn ask(&self, longest: Duration) -> Woken {
        let mut woken = Woken {
            flows: [FlowId::Service(0); BATCH],
            count: 0,
            is_by_event: false,
        };
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; BATCH];
        let mut time_limit = Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        // epoll_wait(2) rounds its time-out up to whole milliseconds; ppoll(2) does not, but is one
        // more call.
        if !longest.is_zero() && longest < COARSE {
            let mut all = [PollFd::new(&self.epoll, PollFlags::IN)];
            // Interrupted by a signal: nothing to do.
            if !matches!(poll(&mut all, Some(&time_limit)), Ok(1..)) {
                return woken;
            }
            time_limit = NOW;
        }
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut events, Some(&time_limit)) else {
            return woken;
        };
        woken.is_by_event = !ready.is_empty();
        for event in ready.iter() {
            match event.data.u64() {
                OWN_DOORBELL => silence(&self.doorbell),
                DOORBELL | BLOCKED => {}
                token => {
                    woken.flows[woken.count] = flow_of(token);
                    woken.count += 1;
                }
            }
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_names_its_flow_and_nothing_else() {
        for number in [0, 1, u32::MAX] {
            for flow in [
                FlowId::Service(number),
                FlowId::Port(number),
                FlowId::Core(number),
            ] {
                assert_eq!(flow_of(token_of(flow)), flow);
                assert!(token_of(flow) < BLOCKED);
            }
        }
    }
}
