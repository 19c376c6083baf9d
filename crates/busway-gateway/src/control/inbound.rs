//! Channels that this host receives: opened over the best link, moved to a better one, ended.
//!
//! The receiving side owns the landing place, so it decides. Before it opens a channel over another
//! link it closes the old one in order: the sender ends it and confirms (`Closed`), the lane takes
//! what has arrived and reports, and only then the next one is opened. Called by [`super::core`],
//! [`super::service_flow`] and [`super::port_flow`].

use busway_transport::{ChannelSpec, Direction, Keep};

use super::fact::Action;
use super::flow::{Flow, InChannel, InPhase};
use super::routes::{Routes, Wanted};
use super::shared::Shared;
use crate::lane::ChannelKey;
use crate::protocol::{CloseReason, ControlMessage};

impl Flow {
    /// The channel to open next from a host, if one is missing: its link, and for the one for large
    /// messages from how many bytes on messages take it.
    pub fn missing_from(&self, peer: &str, routes: Routes) -> Option<(usize, Option<u64>)> {
        // A channel that still ends delivers its last messages before the next one begins: that
        // keeps the order, and nothing comes twice.
        if self.inbound_from(peer).next().is_none() {
            return Some((routes.main, None));
        }
        let large = routes.large?;
        let is_main_alone = |(key, channel): (&ChannelKey, &InChannel)| {
            !channel.is_large() && channel.phase == InPhase::Active && key.link == routes.main
        };
        self.inbound_from(peer)
            .all(is_main_alone)
            .then_some((large.link, Some(large.from_bytes)))
    }

    /// Whether the main channel from a host takes this link, and is in use or about to be.
    fn has_main_over(&self, peer: &str, link: usize) -> bool {
        self.inbound_from(peer).any(|(key, channel)| {
            !channel.is_large()
                && key.link == link
                && matches!(channel.phase, InPhase::Opening | InPhase::Active)
        })
    }

    /// Whether a channel takes the link that it should. The one for large messages needs the main
    /// one beside it.
    fn is_on_route(&self, key: ChannelKey, channel: &InChannel, wanted: &Wanted) -> bool {
        wanted.get(&channel.peer).is_some_and(|routes| {
            if channel.is_large() {
                routes.large.is_some_and(|large| large.link == key.link)
                    && self.has_main_over(&channel.peer, routes.main)
            } else {
                routes.main == key.link
            }
        })
    }

    /// Asks the senders of channels that are not wanted, or not over that link, to end them.
    pub fn close_unwanted(&mut self, wanted: &Wanted, shared: &mut Shared) {
        let on_route: Vec<bool> = self
            .inbound
            .iter()
            .map(|(key, channel)| self.is_on_route(*key, channel, wanted))
            .collect();
        let mut closes = Vec::new();
        for ((key, channel), is_on_route) in self.inbound.iter_mut().zip(on_route) {
            let is_wanted = wanted.contains_key(&channel.peer);
            let is_news = !is_wanted && !channel.is_unwanted;
            channel.is_unwanted |= !is_wanted;
            let is_settled = match channel.phase {
                InPhase::Opening | InPhase::Active => is_on_route,
                // It was about to move, and now nobody wants what is left.
                InPhase::Abandoned | InPhase::Closing | InPhase::Draining => !is_news,
                InPhase::Requested | InPhase::Dead => true,
            };
            if is_settled {
                continue;
            }
            // It moves, or its last publisher left: what was published before shall still come.
            let is_published = self
                .endpoint
                .is_published_over(&self.name, &shared.links[key.link]);
            let reason = if is_wanted || !is_published {
                CloseReason::Drained
            } else {
                CloseReason::Unwanted
            };
            closes.push((*key, reason));
            if channel.phase == InPhase::Opening {
                channel.phase = InPhase::Abandoned;
            } else if channel.phase == InPhase::Active {
                channel.phase = InPhase::Closing;
                shared.act(Action::AcknowledgeReceiver {
                    flow: self.id,
                    key: *key,
                });
            }
        }
        for (key, reason) in closes {
            let channel = key.channel;
            shared.send(key.link, ControlMessage::Close { channel, reason });
        }
    }

    /// Asks the bus for a landing place.
    pub fn open_receiver(
        &mut self,
        peer: &str,
        link: usize,
        spec: ChannelSpec,
        large_from_bytes: Option<u64>,
        shared: &mut Shared,
    ) {
        let number = shared.links[link].new_channel();
        let key = shared.key(link, number);
        let channel = InChannel {
            peer: peer.to_string(),
            phase: InPhase::Requested,
            spec,
            large_from_bytes,
            is_unwanted: false,
        };
        self.inbound.insert(key, channel);
        shared.index.insert((Direction::Receive, key), self.id);
        let flow = self.id;
        shared.act(Action::OpenReceiver { flow, key, spec });
    }

    /// The bus has made a landing place: the peer is asked to send. Or it has none.
    pub fn receiver_opened(&mut self, key: ChannelKey, result: Result<Vec<u8>, String>, shared: &mut Shared) {
        let Some(channel) = self.inbound.get_mut(&key) else {
            return;
        };
        match result {
            Ok(landing) => {
                channel.phase = InPhase::Opening;
                let (spec, large) = (channel.spec, channel.large_from_bytes);
                let message = self
                    .endpoint
                    .open_message(&self.name, key.channel, spec, landing, large);
                shared.send(key.link, message);
            }
            Err(reason) => {
                let peer = channel.peer.clone();
                self.inbound.remove(&key);
                shared.index.remove(&(Direction::Receive, key));
                self.complain(
                    format!("can't be received from {peer:?}: {reason}; trying again"),
                    shared,
                );
                self.back_off(key.link, shared);
            }
        }
        shared.dirty.insert(self.id);
    }

    /// The bus has made this host's end, or could not.
    pub fn receiver_ready(&mut self, key: ChannelKey, result: Result<(), String>, shared: &mut Shared) {
        let Some(channel) = self.inbound.get_mut(&key) else {
            return;
        };
        if let Err(reason) = result {
            return self.receiver_ended(key, Some(reason), shared);
        }
        let is_wanted = channel.phase == InPhase::Opening;
        channel.phase = if is_wanted {
            InPhase::Active
        } else {
            InPhase::Closing
        };
        let flow = self.id;
        shared.act(Action::AddReceiver {
            flow,
            key,
            peer: channel.peer.clone(),
            keeps_all: channel.spec.keep != Keep::Latest,
        });
        if is_wanted {
            self.complaint = None;
        } else {
            shared.act(Action::AcknowledgeReceiver { flow, key });
        }
    }

    /// The lane has this host's end.
    pub fn receiver_added(&mut self, key: ChannelKey, shared: &mut Shared) {
        let channel = key.channel;
        if self.inbound.get(&key).is_some_and(InChannel::is_large) {
            shared.send(key.link, ControlMessage::Use { channel });
        } else {
            // The one for large messages may be opened beside it.
            shared.dirty.insert(self.id);
        }
    }

    /// The peer's end is gone: what has arrived is taken, then this end goes.
    pub fn sender_closed(&mut self, key: ChannelKey, reason: Option<String>, shared: &mut Shared) {
        let Some(channel) = self.inbound.get_mut(&key) else {
            return;
        };
        let phase = channel.phase;
        match phase {
            // Known already.
            InPhase::Draining => return,
            InPhase::Active | InPhase::Closing => {
                channel.phase = InPhase::Draining;
                let flow = self.id;
                shared.act(Action::EndReceiver { flow, key });
            }
            _ => self.forget_receiver(key, shared),
        }
        // A sender that fails while this side leaves the channel anyway is no reason to avoid its
        // link.
        let is_left = matches!(phase, InPhase::Abandoned | InPhase::Closing | InPhase::Dead);
        if let Some(reason) = reason.filter(|_| !is_left) {
            self.back_off(key.link, shared);
            let peer = shared.links[key.link].profile.peer.clone();
            self.complain(format!("{peer:?} can't send it: {reason}; trying again"), shared);
        }
        shared.dirty.insert(self.id);
    }

    fn forget_receiver(&mut self, key: ChannelKey, shared: &mut Shared) {
        let direction = Direction::Receive;
        self.inbound.remove(&key);
        shared.index.remove(&(direction, key));
        shared.act(Action::CloseChannel { direction, key });
    }

    /// The lane has dropped this host's end, or the bus could not make it.
    pub fn receiver_ended(&mut self, key: ChannelKey, failure: Option<String>, shared: &mut Shared) {
        let Some(channel) = self.inbound.get(&key) else {
            return;
        };
        let (phase, peer, is_unwanted) = (channel.phase, channel.peer.clone(), channel.is_unwanted);
        let has_failed = failure.is_some();
        if let Some(failure) = failure {
            self.receiver_failed(key.link, &peer, failure, shared);
        }
        if phase == InPhase::Draining {
            if is_unwanted {
                let flow = self.id;
                shared.act(Action::ResetContinuity { flow, peer });
            }
            self.forget_receiver(key, shared);
        } else {
            // A sender that was asked to end in order has been told, and may have ended already.
            let is_asked = matches!(phase, InPhase::Abandoned | InPhase::Closing);
            if has_failed || !is_asked {
                let (channel, reason) = (key.channel, CloseReason::Failed);
                shared.send(key.link, ControlMessage::Close { channel, reason });
            }
            if let Some(channel) = self.inbound.get_mut(&key) {
                channel.phase = InPhase::Dead;
            }
        }
        shared.dirty.insert(self.id);
    }

    fn receiver_failed(&mut self, link: usize, peer: &str, failure: String, shared: &mut Shared) {
        if self.endpoint.backs_off_alone() {
            self.complain(format!("{failure}; trying again"), shared);
            self.back_off(link, shared);
            return;
        }
        let what = self.endpoint.describe(&self.name);
        shared.act(Action::Warn(format!(
            "{what}: channel from {peer:?} failed: {failure}; opening it anew"
        )));
        if self.has_other(link, shared) {
            self.back_off(link, shared);
        }
    }

    /// The link is down: its receiving ends take what has arrived and go.
    pub fn receivers_link_down(&mut self, link: usize, shared: &mut Shared) {
        let keys: Vec<_> = self
            .inbound
            .keys()
            .filter(|key| key.link == link)
            .copied()
            .collect();
        for key in keys {
            self.forget_receiver(key, shared);
            let flow = self.id;
            shared.act(Action::EndReceiver { flow, key });
            shared.dirty.insert(flow);
        }
    }
}
