//! What this bus keeps in a [`SenderGroup`](crate::contract::SenderGroup): the multicast groups to
//! which its senders send each datagram once.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use super::circle::Circle;
use super::group::GroupPlace;
use super::near::Near;
use crate::contract::Message;

/// See the module.
pub(super) struct Company<M: Message> {
    circles: Vec<Arc<Circle<M>>>,
}

impl<M: Message> Default for Company<M> {
    fn default() -> Self {
        Company { circles: Vec::new() }
    }
}

impl<M: Message> std::fmt::Debug for Company<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Company")
            .field("circles", &self.circles.len())
            .finish()
    }
}

impl<M: Message> Company<M> {
    /// Gives a sender its place among those that send to the same group.
    pub(super) fn seat(
        &mut self,
        place: GroupPlace,
        near: &Arc<Mutex<Near<M>>>,
        deserted: &Arc<AtomicU64>,
    ) -> Arc<Circle<M>> {
        self.circles.retain(|circle| !circle.is_empty());
        if let Some(circle) = self
            .circles
            .iter()
            .find(|circle| circle.take_in(place, near, deserted))
        {
            return circle.clone();
        }
        let circle = Arc::new(Circle::new(place));
        circle.take_in(place, near, deserted);
        self.circles.push(circle.clone());
        circle
    }
}
