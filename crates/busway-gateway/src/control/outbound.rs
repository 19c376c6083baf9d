//! Channels that this host sends: opened on a peer's request, ended on its request or by a failure.
//!
//! Contract: the receiving side chooses links and moves; this side follows. It confirms each end
//! with `Closed`, after which the peer may reuse the landing place. Called by [`super::core`] and
//! [`super::service_flow`].

use busway_transport::{Direction, Keep};

use super::fact::Action;
use super::flow::{Flow, OutChannel, OutPhase};
use super::service_flow::Source;
use super::shared::Shared;
use crate::lane::{ChannelKey, Ending};
use crate::protocol::{CloseReason, ControlMessage};

impl Flow {
    /// A peer wants the messages over this channel.
    pub fn sender_requested(&mut self, key: ChannelKey, channel: OutChannel, shared: &mut Shared) {
        let mut replaced = Vec::new();
        if self.endpoint.source_is_exclusive() {
            // The receiving side has left every other link, whether this side has noticed or not.
            replaced.extend(self.outbound.keys().copied());
        }
        self.outbound.insert(key, channel);
        shared.index.insert((Direction::Send, key), self.id);
        for other in replaced {
            self.end_replaced(other, shared);
        }
        self.open_requested(shared);
    }

    fn end_replaced(&mut self, key: ChannelKey, shared: &mut Shared) {
        let Some(channel) = self.outbound.get_mut(&key) else {
            return;
        };
        match channel.phase {
            OutPhase::Active => {
                channel.phase = OutPhase::Ending;
                let (flow, ending) = (self.id, Ending::Replaced);
                shared.act(Action::EndSender { flow, key, ending });
            }
            OutPhase::Ending | OutPhase::Failed => {}
            OutPhase::Requested { .. } | OutPhase::Opening | OutPhase::Made => {
                self.sender_ended(key, None, shared);
            }
        }
    }

    /// Opens what peers have requested, as soon as the source can feed it.
    pub fn open_requested(&mut self, shared: &mut Shared) {
        let is_requested = |channel: &OutChannel| matches!(channel.phase, OutPhase::Requested { .. });
        if !self.outbound.values().any(is_requested) {
            return;
        }
        let is_busy = self.outbound.values().any(|channel| !is_requested(channel));
        if self.endpoint.source_is_exclusive() && is_busy {
            return;
        }
        match self.source(shared) {
            Source::Pending => {}
            Source::Refused(reason) => self.refuse_requested(&reason, shared),
            Source::Ready => {
                for (&key, channel) in &mut self.outbound {
                    let OutPhase::Requested { landing } = &mut channel.phase else {
                        continue;
                    };
                    let landing = std::mem::take(landing);
                    channel.phase = OutPhase::Opening;
                    let (flow, spec) = (self.id, channel.spec);
                    shared.act(Action::OpenSender {
                        flow,
                        key,
                        spec,
                        landing,
                    });
                }
            }
        }
    }

    /// Tells all peers whose channels are still requested that they get no messages.
    pub fn refuse_requested(&mut self, reason: &str, shared: &mut Shared) {
        let is_requested =
            |(_, channel): &(&ChannelKey, &OutChannel)| matches!(channel.phase, OutPhase::Requested { .. });
        let keys: Vec<_> = self
            .outbound
            .iter()
            .filter(is_requested)
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.refuse_sender(key, reason, shared);
        }
    }

    fn refuse_sender(&mut self, key: ChannelKey, reason: &str, shared: &mut Shared) {
        let Some(channel) = self.outbound.remove(&key) else {
            return;
        };
        shared.index.remove(&(Direction::Send, key));
        self.complain(format!("can't be sent to {:?}: {reason}", channel.peer), shared);
        let closed = ControlMessage::Closed {
            channel: key.channel,
            reason: Some(reason.to_string()),
        };
        shared.send(key.link, closed);
        shared.dirty.insert(self.id);
    }

    /// The bus makes this host's end, or can't.
    pub fn sender_opened(&mut self, key: ChannelKey, result: Result<(), String>, shared: &mut Shared) {
        if let Err(reason) = result {
            return self.refuse_sender(key, &reason, shared);
        }
        if let Some(channel) = self.outbound.get(&key).filter(|channel| channel.is_main()) {
            let peer = channel.peer.clone();
            self.release_hold(&peer);
        }
        // The new source may want its listener.
        shared.dirty.insert(self.id);
    }

    /// The bus has made this host's end, or could not.
    pub fn sender_ready(&mut self, key: ChannelKey, result: Result<(), String>, shared: &mut Shared) {
        if let Err(reason) = result {
            return self.sender_ended(key, Some(reason), shared);
        }
        let Some(channel) = self.outbound.get_mut(&key) else {
            return;
        };
        if channel.is_main() {
            channel.phase = OutPhase::Active;
            let number = shared.links[key.link].profile.number;
            // Where messages may take two channels, not all of them take this one.
            let may_join = shared.system.links[number].large.is_none();
            let flow = self.id;
            shared.act(Action::AddSender { flow, key, may_join });
            self.complaint = None;
        } else {
            channel.phase = OutPhase::Made;
        }
        self.join_large(shared);
    }

    /// The peer's lane has its end of a channel for large messages.
    pub fn may_use(&mut self, key: ChannelKey, shared: &mut Shared) {
        let channel = self.outbound.get_mut(&key);
        if let Some(large) = channel.and_then(|channel| channel.large.as_mut()) {
            large.may_use = true;
        }
        self.join_large(shared);
    }

    /// Gives the lane any large-message channels that finished opening.
    fn join_large(&mut self, shared: &mut Shared) {
        let is_main = |channel: &OutChannel| channel.is_main() && channel.phase == OutPhase::Active;
        let mains: Vec<_> = self
            .outbound
            .iter()
            .filter(|(_, channel)| is_main(channel))
            .map(|(key, channel)| (*key, channel.peer.clone()))
            .collect();
        for (&key, channel) in &mut self.outbound {
            let Some(large) = channel.large.filter(|large| large.may_use) else {
                continue;
            };
            let main = mains.iter().find(|(_, peer)| *peer == channel.peer);
            let Some(&(main, _)) = main.filter(|_| channel.phase == OutPhase::Made) else {
                continue;
            };
            channel.phase = OutPhase::Active;
            shared.act(Action::AddLargeSender {
                flow: self.id,
                key,
                main,
                from_bytes: large.from_bytes,
                in_order: channel.spec.keep != Keep::Latest,
            });
        }
    }

    /// The peer asks to end a channel.
    pub fn close_requested(&mut self, key: ChannelKey, reason: CloseReason, shared: &mut Shared) {
        let Some(channel) = self.outbound.get(&key) else {
            return;
        };
        let (peer, is_main) = (channel.peer.clone(), channel.is_main());
        let ending = self.ending_for(key, &peer, is_main, reason, shared);
        let Some(channel) = self.outbound.get_mut(&key) else {
            return;
        };
        channel.is_draining = reason == CloseReason::Drained;
        let peer_failed = reason == CloseReason::Failed;
        if !channel.is_in_lane() {
            return self.sender_gone(key, None, peer_failed, shared);
        }
        channel.phase = if peer_failed {
            OutPhase::Failed
        } else {
            OutPhase::Ending
        };
        // Also one that ends already: its host may have changed its mind about what is left.
        let flow = self.id;
        shared.act(Action::EndSender { flow, key, ending });
    }

    /// The lane or the bus has dropped this host's end.
    pub fn sender_ended(&mut self, key: ChannelKey, failure: Option<String>, shared: &mut Shared) {
        if let Some(channel) = self.outbound.get(&key) {
            let peer_failed = channel.phase == OutPhase::Failed;
            // Whoever noticed first: only this host knows why its own end failed.
            if let Some(failure) = failure
                .as_ref()
                .filter(|_| peer_failed || !self.endpoint.backs_off_alone())
            {
                let (what, peer) = (self.endpoint.describe(&self.name), &channel.peer);
                shared.act(Action::Warn(format!(
                    "{what}: channel to {peer:?} failed: {failure}"
                )));
            }
            // The peer has reported why its end failed.
            let failure = failure.filter(|_| !peer_failed);
            self.sender_gone(key, failure, peer_failed, shared);
        }
    }

    /// This host's end is gone: the peer may reuse the landing place.
    fn sender_gone(
        &mut self,
        key: ChannelKey,
        failure: Option<String>,
        peer_failed: bool,
        shared: &mut Shared,
    ) {
        let Some(channel) = self.outbound.remove(&key) else {
            return;
        };
        let direction = Direction::Send;
        shared.index.remove(&(direction, key));
        if failure.is_some() || peer_failed {
            // It failed under a standing link: the peer opens another one soon.
            self.hold_for_return(&channel.peer, shared);
        } else if channel.is_draining {
            self.hold_if_published(&channel.peer, shared);
        }
        if let Some(failure) = failure.as_ref().filter(|_| self.endpoint.backs_off_alone()) {
            self.complain(format!("{failure}; trying again"), shared);
        }
        if !matches!(channel.phase, OutPhase::Requested { .. }) {
            shared.act(Action::CloseChannel { direction, key });
        }
        let closed = ControlMessage::Closed {
            channel: key.channel,
            reason: failure,
        };
        shared.send(key.link, closed);
        shared.dirty.insert(self.id);
        self.open_requested(shared);
    }

    /// The link is down: its sending ends go.
    pub fn senders_link_down(&mut self, link: usize, shared: &mut Shared) {
        let direction = Direction::Send;
        let keys: Vec<_> = self
            .outbound
            .keys()
            .filter(|key| key.link == link)
            .copied()
            .collect();
        for key in keys {
            let Some(channel) = self.outbound.remove(&key) else {
                continue;
            };
            let flow = self.id;
            shared.index.remove(&(direction, key));
            shared.dirty.insert(flow);
            if matches!(channel.phase, OutPhase::Requested { .. }) {
                continue;
            }
            shared.act(Action::CloseChannel { direction, key });
            // The peer may have noticed first and have moved to another link already.
            let ending = if !channel.is_main() || self.reaches(&channel.peer) {
                Ending::Replaced
            } else {
                self.hold_for_outage(&channel.peer, shared);
                Ending::Lost
            };
            shared.act(Action::EndSender { flow, key, ending });
        }
        self.open_requested(shared);
    }
}
