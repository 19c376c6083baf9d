//! How channel ends write into the other host's window and wake each other: [`RemoteAccess`] for
//! windows.
//!
//! A receiver is woken for messages by its lane's armed word. A sender asks for a wake-up at the
//! next credit by a word in its line of the landing place.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use busway_core::Window;

use super::armed::arrive;
use super::doorbell::LaneWaker;
use super::landings::Lease;
use super::mapping::Mapped;
use super::write_permission::{WriteGuard, WritePermission};
use crate::contract::ChannelError;
use crate::remote_write::{self, RemoteAccess, SENDER_AWAITS_CREDIT_AT, Waker, link_went_down};

/// From a sender to its receiver.
#[derive(Debug)]
pub struct SenderAccess;

impl RemoteAccess for SenderAccess {
    type Memory = Window;
    type WritePermission = WritePermission;
    type Waker = SenderWaker;
    /// Both windows stay mapped.
    type Keep = [Mapped; 2];
    const CREDITS_AFTER_POLLS: u32 = 0;
}

/// From a receiver back to its sender.
#[derive(Debug)]
pub struct ReceiverAccess;

impl RemoteAccess for ReceiverAccess {
    type Memory = Window;
    type WritePermission = WritePermission;
    type Waker = ReceiverWaker;
    /// Both windows stay mapped, and the landing place is not reused.
    type Keep = ([Mapped; 2], Arc<Lease>);
    const CREDITS_AFTER_POLLS: u32 = 0;
}

impl remote_write::WritePermission for WritePermission {
    type Guard<'a> = WriteGuard<'a>;

    #[inline]
    fn begin_write(&self) -> Result<WriteGuard<'_>, ChannelError> {
        WritePermission::begin_write(self).ok_or_else(link_went_down)
    }

    #[inline]
    fn end_reason(&self) -> Option<ChannelError> {
        self.is_revoked().then(link_went_down)
    }
}

/// Wakes the receiver's lane, and asks the receiver to wake this one at the next credit.
#[derive(Debug)]
pub struct SenderWaker {
    /// `None` if that lane polls.
    wake: Option<LaneWaker>,
    /// The sender's line of the landing place, in the window that this host writes.
    line: Window,
    wants: bool,
}

impl SenderWaker {
    /// Asks for no wake-up yet; `line` is a whole entry.
    pub fn new(wake: Option<LaneWaker>, line: Window) -> SenderWaker {
        let _ = line.store(SENDER_AWAITS_CREDIT_AT, 0);
        SenderWaker {
            wake,
            line,
            wants: false,
        }
    }
}

impl Waker for SenderWaker {
    #[inline]
    fn wake(&mut self, _mark: u64) {
        if let Some(wake) = &mut self.wake {
            wake.wake();
        }
    }

    fn prepare_sleep(&mut self, _seen: u64) -> bool {
        if self.wants {
            return false;
        }
        self.wants = true;
        let _ = self.line.store(SENDER_AWAITS_CREDIT_AT, 1);
        self.line.write_fence();
        arrive(&self.line);
        // Partner: the fence in `ReceiverWaker::wake`. Either the receiver sees the request, or the
        // caller's next look sees the credits.
        fence(Ordering::SeqCst);
        true
    }

    fn cancel_sleep(&mut self) {
        if self.wants {
            self.wants = false;
            let _ = self.line.store(SENDER_AWAITS_CREDIT_AT, 0);
        }
    }
}

/// Wakes the sender's lane if it waits for credit. The receiver's own lane is woken by its
/// doorbell.
#[derive(Debug)]
pub struct ReceiverWaker {
    /// `None` if that lane polls.
    wake: Option<LaneWaker>,
    /// The sender's line of the landing place, in the window that this host reads.
    line: Window,
}

impl ReceiverWaker {
    /// A waker of the sender's lane.
    pub fn new(wake: Option<LaneWaker>, line: Window) -> ReceiverWaker {
        ReceiverWaker { wake, line }
    }
}

impl Waker for ReceiverWaker {
    #[inline]
    fn wake(&mut self, _mark: u64) {
        let Some(wake) = &mut self.wake else { return };
        // Partner: the fence in `SenderWaker::rest`.
        fence(Ordering::SeqCst);
        if self.line.load(SENDER_AWAITS_CREDIT_AT).unwrap_or_default() != 0 {
            wake.wake();
        }
    }

    #[inline]
    fn prepare_sleep(&mut self, _seen: u64) -> bool {
        false
    }
}
