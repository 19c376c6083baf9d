//! How channel ends reach the other host through windows.
//!
//! Contract: see [`crate::remote_write::Way`]. A sender's bell and a receiver's differ: the receiver's wish to be woken for messages is the
//! armed word of its lane, the sender's wish for credit is a word in its line of the landing place. Called by the channel ends.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use busway_core::Window;

use super::armed::arrive;
use super::doorbell::Wake;
use super::gate::{Gate, Inside};
use super::landings::Lease;
use super::mapping::Mapped;
use crate::contract::ChannelError;
use crate::remote_write::{self, Bell, SENDER_WANTS_AT, Way, link_went_down};

/// From a sender to its receiver.
#[derive(Debug)]
pub struct Outward;

impl Way for Outward {
    type Memory = Window;
    type Gate = Gate;
    type Bell = SenderBell;
    /// Both windows stay mapped.
    type Keep = [Mapped; 2];
    const CREDITS_AFTER_POLLS: u32 = 0;
}

/// From a receiver back to its sender.
#[derive(Debug)]
pub struct Homeward;

impl Way for Homeward {
    type Memory = Window;
    type Gate = Gate;
    type Bell = ReceiverBell;
    /// Both windows stay mapped, and the landing place is not used anew.
    type Keep = ([Mapped; 2], Arc<Lease>);
    const CREDITS_AFTER_POLLS: u32 = 0;
}

impl remote_write::Gate for Gate {
    type Inside<'a> = Inside<'a>;

    #[inline]
    fn enter(&self) -> Result<Inside<'_>, ChannelError> {
        Gate::enter(self).ok_or_else(link_went_down)
    }

    #[inline]
    fn over(&self) -> Option<ChannelError> {
        self.has_ended().then(link_went_down)
    }
}

/// Wakes the receiver's lane, and wants to be woken for credit.
#[derive(Debug)]
pub struct SenderBell {
    /// `None` if that lane polls.
    wake: Option<Wake>,
    /// The sender's line of the landing place, in the window that this host writes.
    line: Window,
    wants: bool,
}

impl SenderBell {
    /// Wants nothing yet, and says so in `line`, which is a whole entry.
    pub fn new(wake: Option<Wake>, line: Window) -> SenderBell {
        let _ = line.store(SENDER_WANTS_AT, 0);
        SenderBell {
            wake,
            line,
            wants: false,
        }
    }
}

impl Bell for SenderBell {
    #[inline]
    fn wake(&mut self, _mark: u64) {
        if let Some(wake) = &mut self.wake {
            wake.wake();
        }
    }

    fn rest(&mut self, _seen: u64) -> bool {
        if self.wants {
            return false;
        }
        self.wants = true;
        let _ = self.line.store(SENDER_WANTS_AT, 1);
        self.line.write_fence();
        arrive(&self.line);
        // Partner: the fence in `ReceiverBell::wake`. Either it sees the wish, or the look at the credits that now
        // follows sees them.
        fence(Ordering::SeqCst);
        true
    }

    fn stir(&mut self) {
        if self.wants {
            self.wants = false;
            let _ = self.line.store(SENDER_WANTS_AT, 0);
        }
    }
}

/// Wakes the sender's lane if it waits for credit. The receiver itself is woken through its lane's doorbell.
#[derive(Debug)]
pub struct ReceiverBell {
    /// `None` if that lane polls.
    wake: Option<Wake>,
    /// The sender's line of the landing place, in the window that this host reads.
    line: Window,
}

impl ReceiverBell {
    /// A bell that `wake` rings.
    pub fn new(wake: Option<Wake>, line: Window) -> ReceiverBell {
        ReceiverBell { wake, line }
    }
}

impl Bell for ReceiverBell {
    #[inline]
    fn wake(&mut self, _mark: u64) {
        let Some(wake) = &mut self.wake else { return };
        // Partner: the fence in `SenderBell::rest`.
        fence(Ordering::SeqCst);
        if self.line.load(SENDER_WANTS_AT).unwrap_or_default() != 0 {
            wake.wake();
        }
    }

    #[inline]
    fn rest(&mut self, _seen: u64) -> bool {
        false
    }
}
