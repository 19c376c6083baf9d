//! What all flows of a core share: links, the index of channels, and the actions to be carried out.
//!
//! Plain state, passed to each transition. Owned by [`super::core`].

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use busway_system::System;
use busway_transport::Direction;

use super::fact::Action;
use super::link::Link;
use crate::lane::{ChannelKey, FlowId};
use crate::protocol::ControlMessage;

/// Whether a part of an endpoint exists in the shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// It does not.
    #[default]
    Absent,
    /// The shell was asked to make it.
    Asked,
    /// It does.
    Ready,
}

/// See the module.
pub struct Shared<'a> {
    /// The system file.
    pub system: &'a System,
    /// This host.
    pub host: String,
    /// This host's links; indices are stable.
    pub links: Vec<Link>,
    /// Which flow a channel belongs to.
    pub index: HashMap<(Direction, ChannelKey), FlowId>,
    /// Flows to look at again.
    pub dirty: BTreeSet<FlowId>,
    /// In their order.
    pub actions: VecDeque<Action>,
    /// The time of the fact being handled.
    pub now: Instant,
}

impl Shared<'_> {
    /// Asks for an action.
    pub fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// The key of a channel of a link's present conversation.
    pub fn key(&self, link: usize, channel: u32) -> ChannelKey {
        let conversation = self.links[link].conversation();
        ChannelKey {
            link,
            conversation,
            channel,
        }
    }

    /// Sends a control message, if the conversation stands.
    pub fn send(&mut self, link: usize, message: ControlMessage) {
        if self.links[link].up_since.is_some() {
            self.act(Action::Send { link, message });
        }
    }
}
