//! The lanes of this process as a link's channel ends see them: whether one is about to sleep, and
//! a descriptor that wakes it.
//!
//! Contract: the ends that one lane polls share a [`Lane`] with that lane's [`Doorbell`]. An end
//! asks its peer to wake it only when the lane is about to sleep, so that a lane which spins costs
//! the bus nothing. Made by the link, on the control thread.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll;

use crate::contract::Doorbell;

/// Polls in a row without a message after which a receiver sends its credits, however few. Each
/// word that crosses costs about as much as a message, so credits must not collide with the answer
/// to a message. A sender that waits for room does not wait for this (ring and slots have batches
/// of their own), and a lane that is about to sleep sends at once. About half a millisecond of
/// spinning.
pub const CREDITS_AFTER_POLLS: u32 = 4096;

/// See the module.
#[derive(Debug)]
pub struct Lane {
    is_about_to_sleep: AtomicBool,
    /// The completion channels of the ends. Edge-triggered, since an end that the lane does not
    /// look at never takes its events.
    epoll: OwnedFd,
}

impl Lane {
    fn new() -> io::Result<Lane> {
        Ok(Lane {
            is_about_to_sleep: AtomicBool::new(false),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// Whether the lane sleeps next, unless it finds something.
    pub fn is_about_to_sleep(&self) -> bool {
        // Stored by the same thread, by way of its doorbell.
        self.is_about_to_sleep.load(Ordering::Relaxed)
    }

    /// Events of this descriptor wake the lane, until it is closed.
    ///
    /// # Errors
    /// The system has no room for it.
    pub fn watch(&self, fd: impl AsFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), flags)?)
    }
}

/// The lanes of one link.
#[derive(Debug, Default)]
pub struct Lanes(HashMap<u32, Arc<Lane>>);

impl Lanes {
    /// The lane of that number.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn lane(&mut self, number: u32) -> io::Result<Arc<Lane>> {
        if let Some(lane) = self.0.get(&number) {
            return Ok(Arc::clone(lane));
        }
        let lane = Arc::new(Lane::new()?);
        self.0.insert(number, Arc::clone(&lane));
        Ok(lane)
    }

    /// The doorbell of a lane.
    pub fn doorbell(&mut self, number: u32) -> Option<Box<dyn Doorbell>> {
        let lane = self.lane(number).ok()?;
        Some(Box::new(LaneBell(lane)))
    }
}

/// The lane's side.
#[derive(Debug)]
struct LaneBell(Arc<Lane>);

impl Doorbell for LaneBell {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.epoll.as_fd()
    }

    fn arm(&mut self) {
        self.0.is_about_to_sleep.store(true, Ordering::Relaxed);
    }

    fn disarm(&mut self) {
        self.0.is_about_to_sleep.store(false, Ordering::Relaxed);
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 16];
        let now = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Clears the edges; the ends find their completions by polling.
        while matches!(epoll::wait(&self.0.epoll, &mut events, Some(&now)), Ok((ready, _)) if ready.len() == 16)
        {
        }
    }
}
