//! The sending end of a channel, as its lane sees it.
//!
//! What it does is done by [`super::near`], alone, and by [`super::circle`] where it is one of several that send the same. Used by one lane: the
//! locks are there because the ends of one company know each other, and are never contended.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use super::circle::Circle;
use super::company::Company;
use super::group::GroupPlace;
use super::lock;
use super::near::Near;
use super::settings::Delivery;
use super::socket::UdpSocket;
use super::wake::now_ns;
use super::wire::Answer;
use crate::contract::{ChannelError, Flushed, Keep, Message, Refused, Sender, SenderGroup, WaitFor};
use crate::session::attic::{Attic, Lingering};

/// See the module.
pub(super) struct UdpSender<M: Message> {
    /// `None` only after `drop` took it.
    near: Option<Arc<Mutex<Near<M>>>>,
    /// Those that send the same.
    circle: Option<Arc<Circle<M>>>,
    /// Where it sends what goes to several.
    group: Option<GroupPlace>,
    deserted: Arc<AtomicU64>,
    /// Where the rest goes when this end is dropped.
    attic: Arc<Attic>,
}

/// What a sending end is made of.
pub(super) struct Setup {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) token: u64,
    pub(super) keep: Keep,
    pub(super) delivery: Delivery,
    /// Largest datagram that the settings allow.
    pub(super) most_bytes: usize,
    /// Where this host sends what goes to several.
    pub(super) group: Option<GroupPlace>,
    /// Counts receivers that a group did not reach.
    pub(super) deserted: Arc<AtomicU64>,
}

impl<M: Message> UdpSender<M> {
    /// For a receiver that has answered the opening.
    pub(super) fn new(setup: Setup, answer: &Answer, attic: Arc<Attic>) -> Result<Self, ChannelError> {
        let (group, deserted) = (setup.group, setup.deserted.clone());
        Ok(UdpSender {
            near: Some(Arc::new(Mutex::new(Near::new(setup, answer)?))),
            circle: None,
            group,
            deserted,
            attic,
        })
    }

    fn shared_near(&self) -> &Arc<Mutex<Near<M>>> {
        self.near.as_ref().expect("only drop takes it")
    }

    fn near(&self) -> MutexGuard<'_, Near<M>> {
        lock(self.shared_near())
    }

    /// Sends what those of the circle have in common; all have been offered the same only at a flush.
    fn send_together(&self, is_flush: bool, now_ns: u64) -> Option<u64> {
        self.circle.as_ref()?.transmit(is_flush, now_ns)
    }
}

impl<M: Message> Sender<M> for UdpSender<M> {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        let mut result = self.near().send(message);
        if self.circle.is_none() {
            return result;
        }
        if let Err(Refused::Full(message)) = result {
            self.send_together(false, now_ns());
            result = self.near().send(message);
        }
        let has_whole_group = self.near().has_whole_groups(1);
        if has_whole_group && result.is_ok() {
            self.send_together(false, now_ns());
        }
        result
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        let now_ns = now_ns();
        self.near().begin_flush(now_ns)?;
        let until_ns = self.send_together(true, now_ns);
        Ok(self.near().end_flush(until_ns))
    }

    fn has_room(&mut self, total_bytes: u64) -> bool {
        if self.near().has_room(total_bytes) {
            return true;
        }
        self.send_together(false, now_ns());
        self.circle.is_some() && self.near().has_room(total_bytes)
    }

    fn outstanding(&self) -> u64 {
        self.near().unconfirmed()
    }

    fn overwritten(&self) -> u64 {
        self.near().overwritten
    }

    fn needs_flush(&self) -> bool {
        self.near().needs_flush()
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Fd {
            fd: self.near().wake.as_fd().as_raw_fd(),
            writable: false,
        }
    }

    fn join(&mut self, group_of_senders: &mut SenderGroup) -> bool {
        let Some(group) = self.group else {
            return false;
        };
        let circle = group_of_senders
            .state::<Company<M>>()
            .seat(group, self.shared_near(), &self.deserted);
        self.circle = Some(circle);
        true
    }

    fn hold_back(&mut self) {
        if let Some(seat) = &mut self.near().seat {
            seat.is_starved = true;
        }
    }
}

impl<M: Message> Drop for UdpSender<M> {
    fn drop(&mut self) {
        let Some(near) = self.near.take() else { return };
        if let Some(circle) = self.circle.take() {
            circle.leave(&near);
        }
        // Nobody else has it now.
        let Some(near) = Arc::into_inner(near) else { return };
        let mut near = near.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        near.is_ending = true;
        if !near.pump() {
            self.attic.put(Box::new(near));
        }
    }
}
