//! Second channels of services, for what is large, at the sending side.
//!
//! The receiving side opens one beside the main channel, and says [`Say::Use`](crate::protocol::Say::Use) once its lane has it: from then on nothing that takes it can be
//! passed over by what takes the main one. Only then, and once the main channel is in the lane here, the lane gets it. `links` and `channels` call.

use busway_transport::{ChannelSpec, Direction, Keep, Sender};

use super::Gateway;
use super::service::OutPhase;
use crate::iox::sample::Outgoing;
use crate::lane::destination::LargeSender;
use crate::lane::{ChannelKey, LaneCommand, OutboundCommand};

/// A second channel on its way into the lane.
pub struct LargeOpening {
    /// Payload in bytes from which on a message takes it.
    from_bytes: u64,
    /// Whether the order is kept across both channels.
    in_order: bool,
    /// The peer's lane has its end.
    may_use: bool,
    /// Our end, until the lane gets it.
    sender: Option<Box<dyn Sender<Outgoing>>>,
}

impl LargeOpening {
    /// As the peer asks for it.
    pub(super) fn new(from_bytes: u64, spec: &ChannelSpec) -> LargeOpening {
        LargeOpening {
            from_bytes,
            in_order: spec.keep != Keep::Latest,
            may_use: false,
            sender: None,
        }
    }

    /// Our end is ready.
    pub(super) fn set_sender(&mut self, sender: Box<dyn Sender<Outgoing>>) {
        self.sender = Some(sender);
    }
}

impl Gateway<'_> {
    /// The peer's end of a second channel is in its lane.
    pub(super) fn may_use(&mut self, key: ChannelKey) {
        let Some(name) = self.channels.get(&(Direction::Send, key)).cloned() else {
            return;
        };
        let out = self
            .services
            .get_mut(&name)
            .and_then(|service| service.outbound.as_mut());
        let channel = out.and_then(|out| out.channels.get_mut(&key));
        if let Some(large) = channel.and_then(|channel| channel.large.as_mut()) {
            large.may_use = true;
        }
        self.join_large(&name);
    }

    /// Gives the lane the second channels of a service that have become ready.
    pub(super) fn join_large(&mut self, name: &str) {
        let Some(service) = self.services.get_mut(name) else {
            return;
        };
        let Some(out) = &mut service.outbound else { return };
        let mains: Vec<_> = out
            .channels
            .iter()
            .filter(|(_, channel)| channel.is_main() && channel.phase == OutPhase::Active)
            .map(|(key, channel)| (*key, channel.peer.clone()))
            .collect();
        for (key, channel) in &mut out.channels {
            let Some(large) = channel.large.as_mut().filter(|large| large.may_use) else {
                continue;
            };
            let Some((main, _)) = mains.iter().find(|(_, peer)| *peer == channel.peer) else {
                continue;
            };
            let Some(sender) = large.sender.take() else {
                continue;
            };
            channel.phase = OutPhase::Active;
            let large = LargeSender {
                key: *key,
                from_bytes: large.from_bytes,
                in_order: large.in_order,
                sender,
            };
            self.lanes[service.plan.lane].send(LaneCommand::Outbound {
                flow: service.flow,
                command: OutboundCommand::AddLargeSender { main: *main, large },
            });
        }
    }
}
