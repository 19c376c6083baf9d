//! The sending end of a channel.
//!
//! [`SendState`] does the work of a single sender, [`MulticastGroup`] that of several senders of
//! the same messages. Used by one lane: the locks exist because the members of a group refer to
//! each other, and are never contended.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use super::lock::lock;
use super::multicast::{GroupAddress, MulticastGroup, MulticastGroups};
use super::send_state::{SendState, Setup, SharedState};
use super::wake::now_ns;
use super::wire::Ack;
use crate::contract::{ChannelError, Flushed, Message, Refused, Sender, SenderGroup, WaitFor};
use crate::session::mailbox::{DroppedSenders, Linger};

pub(super) struct UdpSender<M: Message> {
    /// `None` only after `drop` took it.
    state: Option<SharedState<M>>,
    group: Option<Arc<MulticastGroup<M>>>,
    /// The group that this host sends to; `None` where the settings name none.
    group_address: Option<GroupAddress>,
    /// Counts receivers that a group did not reach.
    group_failures: Arc<AtomicU64>,
    /// Receives the state if it has unacknowledged messages when this end is dropped.
    dropped: Arc<DroppedSenders>,
}

impl<M: Message> UdpSender<M> {
    /// For a receiver that has answered the opening with `ack`.
    pub(super) fn new(
        setup: Setup,
        ack: &Ack,
        group_address: Option<GroupAddress>,
        group_failures: &Arc<AtomicU64>,
        dropped: &Arc<DroppedSenders>,
    ) -> Result<Self, ChannelError> {
        Ok(UdpSender {
            state: Some(Arc::new(Mutex::new(SendState::new(setup, ack)?))),
            group: None,
            group_address,
            group_failures: group_failures.clone(),
            dropped: dropped.clone(),
        })
    }

    fn shared_state(&self) -> &SharedState<M> {
        self.state.as_ref().expect("only drop takes it")
    }

    fn state(&self) -> MutexGuard<'_, SendState<M>> {
        lock(self.shared_state())
    }

    /// Sends what the members of the group have in common. At a flush, and only then, the caller
    /// has offered the same messages to all of them.
    fn transmit_group(&self, is_flush: bool, now_ns: u64) -> Option<u64> {
        self.group.as_ref()?.transmit(is_flush, now_ns)
    }
}

impl<M: Message> Sender<M> for UdpSender<M> {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        let mut result = self.state().send(message);
        if self.group.is_none() {
            return result;
        }
        if let Err(Refused::Full(message)) = result {
            self.transmit_group(false, now_ns());
            result = self.state().send(message);
        }
        let has_whole_buffer = self.state().has_whole_buffers(1);
        if has_whole_buffer && result.is_ok() {
            self.transmit_group(false, now_ns());
        }
        result
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        let now_ns = now_ns();
        self.state().begin_flush(now_ns)?;
        let until_ns = self.transmit_group(true, now_ns);
        Ok(self.state().end_flush(until_ns))
    }

    fn has_room(&mut self, total_bytes: u64) -> bool {
        if self.state().has_room(total_bytes) {
            return true;
        }
        self.transmit_group(false, now_ns());
        self.group.is_some() && self.state().has_room(total_bytes)
    }

    fn outstanding(&self) -> u64 {
        self.state().unacknowledged()
    }

    fn overwritten(&self) -> u64 {
        self.state().overwritten
    }

    fn needs_flush(&self) -> bool {
        self.state().needs_flush()
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Fd {
            fd: self.state().wake.as_fd().as_raw_fd(),
            writable: false,
        }
    }

    fn join(&mut self, senders: &mut SenderGroup) -> bool {
        let Some(address) = self.group_address else {
            return false;
        };
        let groups = senders.state::<MulticastGroups<M>>();
        self.group = Some(groups.join(address, self.shared_state(), &self.group_failures));
        true
    }

    fn hold_back(&mut self) {
        if let Some(membership) = &mut self.state().membership {
            membership.awaits_message = true;
        }
    }
}

impl<M: Message> Drop for UdpSender<M> {
    fn drop(&mut self) {
        let Some(state) = self.state.take() else { return };
        if let Some(group) = self.group.take() {
            group.remove(&state);
        }
        // No one else refers to it now.
        let Some(state) = Arc::into_inner(state) else {
            return;
        };
        let mut state = state
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        state.is_ending = true;
        if !state.pump() {
            self.dropped.put(Box::new(state));
        }
    }
}
