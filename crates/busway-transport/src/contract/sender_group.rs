//! Senders that carry the same messages to several hosts.
//!
//! A caller that sends each message through several senders owns a [`SenderGroup`] and adds them by
//! [`Sender::join`](super::Sender::join). A bus that can carry one transmission to several hosts
//! keeps what it needs for that in the group. All senders of a group belong to one lane.

use std::any::Any;

/// See the module.
#[derive(Default)]
pub struct SenderGroup {
    /// At most one value of a type: the state of one bus.
    states: Vec<Box<dyn Any + Send>>,
}

impl SenderGroup {
    /// What a bus keeps in this group, made at the first call.
    pub fn state<T: Any + Default + Send>(&mut self) -> &mut T {
        let at = self.states.iter().position(|state| state.is::<T>());
        let at = at.unwrap_or_else(|| {
            self.states.push(Box::<T>::default());
            self.states.len() - 1
        });
        let state = self.states[at].downcast_mut();
        state.expect("`at` is the place of a `T`")
    }
}

impl std::fmt::Debug for SenderGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SenderGroup").finish_non_exhaustive()
    }
}
