//! Channels of services on their way: asked for, ready, ended, at either side. What should be open decides `reconcile`; here is what follows from what the peers, the buses and the
//! lanes say of one channel.

use std::time::Instant;

use busway_transport::{ChannelEnd, ChannelId, ChannelSpec, Direction};

use super::Gateway;
use super::large::LargeOpening;
use super::links::{LinkState, OUTAGE_HOLD, REOFFER, lane_of};
use super::service::{Hold, InLane, InPhase, OutChannel, OutPhase};
use crate::counters::add;
use crate::iox::sample::Outgoing;
use crate::lane::{ChannelKey, Ending, FlowId, InboundCommand, LaneCommand, OutboundCommand};
use crate::protocol::{Parting, Say};

impl Gateway<'_> {
    /// A peer wants our messages.
    pub(super) fn open_sender(
        &mut self,
        index: usize,
        channel: u32,
        name: String,
        spec: &ChannelSpec,
        landing: &[u8],
        large: Option<LargeOpening>,
    ) {
        let key = ChannelKey { link: index, channel };
        let lane = self.service(&name).plan.lane;
        let opened = self.prepare_outbound(&name).and_then(|()| {
            if self.channels.contains_key(&(Direction::Send, key)) || self.ports.owns(Direction::Send, key) {
                return Err("that channel number is taken".into());
            }
            let link = &mut self.links[index].link;
            link.open_sender(ChannelId(channel), spec, landing, lane as u32)
                .map_err(|e| e.to_string())
        });
        let peer = self.links[index].peer.clone();
        match opened {
            Ok(()) => {
                let service = self.services.get_mut(&name).expect("prepared");
                let out = service.outbound.as_mut().expect("prepared");
                if large.is_none() {
                    out.lost.remove(&peer);
                }
                let channel = OutChannel {
                    peer,
                    phase: OutPhase::Opening,
                    large,
                };
                out.channels.insert(key, channel);
                self.channels.insert((Direction::Send, key), name.clone());
                // The new outbound half may want its ear.
                self.dirty.insert(name);
            }
            Err(reason) => {
                self.service(&name)
                    .complain(&name, format!("can't be sent to {peer:?}: {reason}"));
                self.links[index].say(&Say::Closed {
                    channel,
                    reason: Some(reason),
                });
                self.dirty.insert(name);
            }
        }
    }

    /// A peer wants no more of our messages.
    pub(super) fn close_sender(&mut self, index: usize, channel: u32, parting: Parting) {
        let key = ChannelKey { link: index, channel };
        let name = self.channels.get(&(Direction::Send, key));
        let Some(service) = name.and_then(|name| self.services.get_mut(name)) else {
            if parting != Parting::Failed {
                self.forget_move(key);
            }
            return self.links[index].say(&Say::Closed {
                channel,
                reason: None,
            });
        };
        let Some(out) = &mut service.outbound else {
            return;
        };
        let Some(state) = out.channels.get_mut(&key) else {
            return;
        };
        let ending = match parting {
            Parting::Drained if out.publishers > 0 && state.is_main() => Ending::Moved,
            Parting::Drained => Ending::Drained,
            Parting::Unwanted => Ending::Now,
            Parting::Failed => Ending::Replaced,
        };
        if ending == Ending::Moved {
            // To a better link: our subscriber stays until it has.
            let hold = Hold {
                until: Instant::now() + OUTAGE_HOLD,
                moves: Some(key),
            };
            out.lost.insert(state.peer.clone(), hold);
        } else if parting != Parting::Failed {
            out.lost.retain(|_, hold| hold.moves != Some(key));
        }
        let was_opening = state.phase == OutPhase::Opening;
        state.phase = if parting == Parting::Failed {
            OutPhase::Failed
        } else {
            OutPhase::Ending
        };
        if was_opening {
            self.sender_ended(key, None);
        } else {
            // Also one that ends already: its host may have changed its mind about what is left.
            self.lanes[service.plan.lane].send(LaneCommand::Outbound {
                flow: service.flow,
                command: OutboundCommand::EndSender { key, ending },
            });
        }
    }

    /// The host by whose wish this channel moved wants no other one.
    fn forget_move(&mut self, key: ChannelKey) {
        for (name, service) in &mut self.services {
            let Some(out) = &mut service.outbound else {
                continue;
            };
            let holds = out.lost.len();
            out.lost.retain(|_, hold| hold.moves != Some(key));
            if out.lost.len() < holds {
                self.dirty.insert(name.clone());
            }
        }
    }

    /// So many messages had not been confirmed when the channel was given up: in doubt, if its link is lost or about to be.
    pub(super) fn hold_unconfirmed(&mut self, flow: FlowId, key: ChannelKey, messages: u64, now: Instant) {
        let service = self.names.get(&flow).and_then(|name| self.services.get(name));
        let Some(service) = service else { return };
        if self.channels.contains_key(&(Direction::Send, key)) {
            let link = &mut self.links[key.link];
            let patience = link.link.patience();
            link.unconfirmed.hold(messages, &service.counters, patience, now);
        } else {
            // The link was lost while the channel was given up.
            add(&service.counters.in_doubt, messages);
        }
    }

    /// Our sending end is gone: the peer may reuse the landing place.
    pub(super) fn sender_ended(&mut self, key: ChannelKey, mut reason: Option<String>) {
        let Some(name) = self.channels.remove(&(Direction::Send, key)) else {
            return;
        };
        if let Some(out) = self
            .services
            .get_mut(&name)
            .and_then(|service| service.outbound.as_mut())
        {
            let ended = out.channels.remove(&key);
            let peer_failed = ended
                .as_ref()
                .is_some_and(|channel| channel.phase == OutPhase::Failed);
            if let Some(channel) = ended
                && (reason.is_some() || peer_failed)
                && !out.reaches(&channel.peer)
            {
                // It failed under a standing link: the peer will ask again, and what it misses until then is counted.
                out.lost
                    .insert(channel.peer, Hold::until(Instant::now() + REOFFER));
            }
            if peer_failed {
                // The peer has said why itself.
                reason = None;
            }
        }
        let link = &mut self.links[key.link];
        link.link.close(Direction::Send, ChannelId(key.channel));
        link.say(&Say::Closed {
            channel: key.channel,
            reason,
        });
        self.dirty.insert(name);
    }

    /// The peer's sending end is gone.
    pub(super) fn sender_closed(&mut self, index: usize, channel: u32, reason: Option<String>) {
        let key = ChannelKey { link: index, channel };
        let Some(name) = self.channels.get(&(Direction::Receive, key)).cloned() else {
            return;
        };
        let Some(service) = self.services.get_mut(&name) else {
            return;
        };
        let Some(inbound) = &mut service.inbound else {
            return;
        };
        let Some(state) = inbound.channels.get_mut(&key) else {
            return;
        };
        if state.phase == InPhase::Draining {
            // Said already.
            return;
        }
        let in_lane = matches!(state.phase, InPhase::Active | InPhase::Closing);
        if in_lane {
            state.phase = InPhase::Draining;
            lane_of(&self.lanes, &inbound.lane).send(LaneCommand::Inbound {
                flow: service.flow,
                command: InboundCommand::EndReceiver { key },
            });
        } else {
            inbound.channels.remove(&key);
            self.channels.remove(&(Direction::Receive, key));
            self.links[index]
                .link
                .close(Direction::Receive, ChannelId(channel));
        }
        if let Some(reason) = reason {
            let has_other = has_other(&self.links, index, |bus| service.plan.may_take(bus));
            service.rests.failed(index, has_other, Instant::now());
            let peer = &self.links[index].peer;
            service.complain(&name, format!("{peer:?} can't send it: {reason}; trying again"));
        }
        self.dirty.insert(name);
    }

    pub(super) fn channel_ready(
        &mut self,
        index: usize,
        direction: Direction,
        channel: ChannelId,
        end: Result<ChannelEnd<Outgoing>, String>,
    ) {
        let key = ChannelKey {
            link: index,
            channel: channel.0,
        };
        if self.ports.owns(direction, key) {
            self.ports
                .channel_ready(direction, key, end, &mut self.links, &self.lanes);
            return;
        }
        let name = self.channels.get(&(direction, key)).cloned();
        let Some(service) = name.as_ref().and_then(|name| self.services.get_mut(name)) else {
            return;
        };
        match end {
            Ok(ChannelEnd::Sender(sender)) => {
                let lane = &self.lanes[service.plan.lane];
                self.links[index].give_doorbell(index, lane, service.plan.lane as u32, sender.wait_for());
                let channel = service
                    .outbound
                    .as_mut()
                    .and_then(|out| out.channels.get_mut(&key));
                match channel {
                    Some(OutChannel {
                        large: Some(large), ..
                    }) => large.set_sender(sender),
                    Some(main) => {
                        main.phase = OutPhase::Active;
                        // Where messages may take two channels, not all of them take this one.
                        let may_join = self.system.links[self.links[index].number].large.is_none();
                        lane.send(LaneCommand::Outbound {
                            flow: service.flow,
                            command: OutboundCommand::AddSender {
                                key,
                                sender,
                                may_join,
                            },
                        });
                    }
                    None => return,
                }
                self.join_large(&name.expect("found"));
            }
            Ok(ChannelEnd::Receiver(receiver)) => {
                self.receiver_ready(index, key, &name.expect("found"), receiver)
            }
            Err(reason) if direction == Direction::Send => self.sender_ended(key, Some(reason)),
            Err(reason) => self.receiver_ended(key, Some(reason)),
        }
    }

    fn receiver_ready(
        &mut self,
        index: usize,
        key: ChannelKey,
        name: &str,
        receiver: Box<dyn busway_transport::Receiver>,
    ) {
        let Some(service) = self.services.get_mut(name) else {
            return;
        };
        let Some(inbound) = &mut service.inbound else {
            return;
        };
        let (lane, number) = match &inbound.lane {
            InLane::Shared(lane) => (&self.lanes[*lane], *lane as u32),
            InLane::Own(lane, number) => (lane, *number),
        };
        self.links[index].give_doorbell(index, lane, number, receiver.wait_for());
        if let Some(state) = inbound.channels.get_mut(&key) {
            let is_wanted = state.phase == InPhase::Opening;
            state.phase = if is_wanted {
                InPhase::Active
            } else {
                InPhase::Closing
            };
            let continuity = service.continuity.entry(state.peer.clone()).or_default().clone();
            lane.send(LaneCommand::Inbound {
                flow: service.flow,
                command: InboundCommand::AddReceiver {
                    key,
                    receiver,
                    continuity,
                    keeps_all: state.keeps_all,
                },
            });
            if !is_wanted {
                lane.send(LaneCommand::Inbound {
                    flow: service.flow,
                    command: InboundCommand::AcknowledgeReceiver { key },
                });
            }
        }
    }

    /// The lane has our receiving end.
    pub(super) fn receiver_added(&mut self, key: ChannelKey) {
        let Some(name) = self.channels.get(&(Direction::Receive, key)) else {
            return;
        };
        let inbound = self
            .services
            .get(name)
            .and_then(|service| service.inbound.as_ref());
        let channel = inbound.and_then(|inbound| inbound.channels.get(&key));
        if channel.is_some_and(|channel| channel.is_large) {
            self.links[key.link].say(&Say::Use { channel: key.channel });
        } else {
            // One for what is large may come beside it.
            self.dirty.insert(name.clone());
        }
    }

    /// The lane has given our receiving end up.
    pub(super) fn receiver_ended(&mut self, key: ChannelKey, reason: Option<String>) {
        let Some(name) = self.channels.get(&(Direction::Receive, key)).cloned() else {
            return;
        };
        let Some(service) = self.services.get_mut(&name) else {
            return;
        };
        let Some(inbound) = &mut service.inbound else {
            return;
        };
        let Some(state) = inbound.channels.get_mut(&key) else {
            return;
        };
        if let Some(reason) = &reason {
            tracing::warn!(
                "service {name:?}: channel from {:?} failed: {reason}; opening it anew",
                state.peer
            );
            let may_take = |bus: &str| service.plan.may_take(bus);
            if has_other(&self.links, key.link, may_take) {
                service.rests.failed(key.link, true, Instant::now());
            }
        }
        let link = &mut self.links[key.link];
        if state.phase == InPhase::Draining {
            if state.is_unwanted
                && let Some(continuity) = service.continuity.get(&state.peer)
            {
                continuity.reset();
            }
            inbound.channels.remove(&key);
            self.channels.remove(&(Direction::Receive, key));
            link.link.close(Direction::Receive, ChannelId(key.channel));
        } else {
            // The sender of one that is to end in good order has been told, and may have ended already.
            let has_told = matches!(state.phase, InPhase::Abandoned | InPhase::Closing);
            if reason.is_some() || !has_told {
                link.say(&Say::Close {
                    channel: key.channel,
                    parting: Parting::Failed,
                });
            }
            state.phase = InPhase::Dead;
        }
        self.dirty.insert(name);
    }
}

/// Whether another link to the host at the end of this one can be taken.
pub(super) fn has_other(links: &[LinkState], index: usize, may_take: impl Fn(&str) -> bool) -> bool {
    links.iter().enumerate().any(|(other, link)| {
        other != index && link.peer == links[index].peer && link.is_usable() && may_take(link.bus())
    })
}
