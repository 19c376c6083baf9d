//! The shell of a simulated host: carries out what its core asks for, and turns its lanes.
//!
//! Buses refuse now and then; [`Fault`] falsifies actions, to show that the checks find it.

use std::time::Duration;

use busway_transport::{ChannelSpec, Direction, Keep};

use super::check::{host_of, service_of};
use super::lane::{Command, lane_of};
use super::pipe::{Message, PipeId};
use super::world::{Event, Fault, World};
use crate::control::fact::HoldError;
use crate::control::{Action, Fact};
use crate::lane::{ChannelKey, FlowId};
use crate::protocol::{CloseReason, ControlMessage};

impl World<'_> {
    pub fn is_intact(&self, pipe: PipeId) -> bool {
        self.pipes.get(pipe).is_some_and(|of| {
            let wire = &self.wires[of.wire];
            !wire.is_cut && wire.epoch == of.epoch
        })
    }

    pub fn arrive(&mut self, pipe: PipeId, message: Message) {
        let is_intact = self.is_intact(pipe);
        self.pipes.arrive(pipe, message, is_intact);
        let Some(of) = self.pipes.get(pipe) else { return };
        let receiver = self.wires[of.wire].ends.iter().find(|(host, _)| *host != of.from);
        if let Some(&(host, _)) = receiver {
            for lane in [2, 3] {
                self.wake(host, lane);
            }
        }
    }

    pub fn wake_sender(&mut self, pipe: PipeId) {
        if let Some(of) = self.pipes.get(pipe) {
            let host = of.from;
            for lane in [0, 1] {
                self.wake(host, lane);
            }
        }
    }

    pub fn command(&mut self, host: usize, command: Command) {
        let lane = match &command {
            Command::SetOutbound(flow, ..)
            | Command::DropOutbound(flow)
            | Command::AddSender(flow, ..)
            | Command::AddLarge(flow, ..)
            | Command::EndSender(flow, ..) => lane_of(*flow, true),
            Command::SetInbound(flow)
            | Command::DropInbound(flow)
            | Command::AddReceiver(flow, ..)
            | Command::EndReceiver(flow, ..) => lane_of(*flow, false),
        };
        self.hosts[host].lanes.commands[lane].push_back(command);
        self.wake(host, lane);
    }

    pub fn wake(&mut self, host: usize, lane: usize) {
        if self.hosts[host].is_turn_due[lane] {
            return;
        }
        self.hosts[host].is_turn_due[lane] = true;
        let incarnation = self.hosts[host].incarnation;
        let after = self.lag(2, 150);
        self.at(
            after,
            Event::Turn {
                host,
                incarnation,
                lane,
            },
        );
    }

    pub fn turn(&mut self, host: usize, lane: usize) {
        let now = self.now;
        let of = &mut self.hosts[host];
        of.is_turn_due[lane] = false;
        let incarnation = of.incarnation;
        let turn = of.lanes.turn(lane, now, of.session, &mut self.pipes);
        for violation in turn.violations {
            self.checks.violate(format!("{now:?} h{host}: {violation}"));
        }
        for (flow, from, message, lost) in turn.delivered {
            self.delivered(host, flow, from, message, lost);
        }
        for (pipe, message) in turn.sent {
            let after = Duration::from_micros(200);
            self.at(after, Event::Arrive { pipe, message });
        }
        for pipe in turn.acknowledged {
            let after = self.lag(1, 20);
            self.at(after, Event::Acknowledged { pipe });
        }
        let mut time = self.hosts[host].last_report[lane].max(now);
        for report in turn.reports {
            time += self.lag(1, 100);
            self.at_time(
                time,
                Event::Report {
                    host,
                    incarnation,
                    report,
                },
            );
        }
        self.hosts[host].last_report[lane] = time;
        if turn.is_busy && !self.hosts[host].is_turn_due[lane] {
            self.hosts[host].is_turn_due[lane] = true;
            self.at(
                Duration::from_millis(20),
                Event::Turn {
                    host,
                    incarnation,
                    lane,
                },
            );
        }
    }

    pub fn delivered(&mut self, host: usize, flow: FlowId, from: usize, message: Message, lost: u64) {
        match flow {
            FlowId::Port(port) => self.checks.port_delivered(port as usize, message.number),
            _ => {
                let name = self.hosts[host].core.flow(flow).map(|flow| flow.name.clone());
                let service = name.as_deref().and_then(service_of);
                if let Some(service) = service {
                    self.checks
                        .delivered((from, host, service), message, lost, self.now);
                }
            }
        }
    }

    pub fn end_ready(
        &mut self,
        host: usize,
        direction: Direction,
        key: ChannelKey,
        pipe: PipeId,
        result: Result<(), String>,
    ) {
        if self.hosts[host].channels.get(&(direction, key)) != Some(&pipe) {
            return;
        }
        if result.is_ok() {
            self.hosts[host].ends.insert((direction, key), pipe);
        }
        self.fact(
            host,
            Fact::EndReady {
                direction,
                key,
                result,
            },
        );
    }

    /// Tells a core something and carries out what it asks for.
    pub fn fact(&mut self, host: usize, fact: Fact) {
        self.checks.note(host, self.now, &fact);
        let now = self.base + self.now;
        self.hosts[host].core.handle(fact, now);
        self.settle(host);
    }

    pub fn settle(&mut self, host: usize) {
        let now = self.base + self.now;
        loop {
            self.hosts[host].core.decide(now);
            while let Some(action) = self.hosts[host].core.next_action() {
                self.checks.note(host, self.now, &action);
                if let Some(answer) = self.carry_out(host, action) {
                    self.hosts[host].core.handle(answer, now);
                }
            }
            if !self.hosts[host].core.is_dirty() {
                break;
            }
        }
        super::check::structure(self, host);
    }

    pub fn refuses(&mut self) -> bool {
        self.options.refusals && self.is_busy && self.rng.u32(0..12) == 0
    }

    /// Carries out an action; returns its answer.
    pub fn carry_out(&mut self, host: usize, action: Action) -> Option<Fact> {
        if self.options.fault.is_some() && self.is_falsified(host, &action) {
            return None;
        }
        let refused = self.refuses();
        let result = if refused {
            Err("refused".to_string())
        } else {
            Ok(())
        };
        match action {
            Action::Send { link, message } => {
                self.note_close(host, link, &message);
                let message = self.falsify(message);
                self.send(host, link, message);
            }
            Action::HoldService { flow, .. } => {
                if !refused {
                    self.hosts[host].held.insert(flow);
                }
                let result = result.map_err(|reason| HoldError {
                    reason,
                    is_type_conflict: false,
                });
                return Some(Fact::ServiceHeld { flow, result });
            }
            Action::ReleaseService { flow } => {
                self.hosts[host].held.remove(&flow);
            }
            Action::MakePublisher { flow, .. } => {
                if !refused {
                    self.hosts[host].publishers.insert(flow);
                    self.command(host, Command::SetInbound(flow));
                }
                return Some(Fact::PublisherMade {
                    flow,
                    result,
                    was_there: false,
                });
            }
            Action::ReplacePublisher { flow } => {
                return Some(Fact::PublisherMade {
                    flow,
                    result,
                    was_there: true,
                });
            }
            Action::DropPublisher { flow } => {
                self.hosts[host].publishers.remove(&flow);
                self.command(host, Command::DropInbound(flow));
            }
            Action::MakeSubscriber { flow, when_full } => {
                if !refused {
                    self.set_subscriber(host, flow, true);
                    self.command(host, Command::SetOutbound(flow, when_full));
                }
                return Some(Fact::SubscriberMade { flow, result });
            }
            Action::DropSubscriber { flow } => {
                self.note_dropped_subscriber(host, flow);
                self.set_subscriber(host, flow, false);
                self.command(host, Command::DropOutbound(flow));
            }
            Action::SetNotifier { flow, .. } => return Some(Fact::NotifierSet { flow, result }),
            Action::SetListener { flow, .. } => return Some(Fact::ListenerSet { flow, result }),
            Action::OpenReceiver { key, spec, .. } => {
                let result = if refused {
                    Err("no room".into())
                } else {
                    Ok(self.open_receiver(host, key, spec))
                };
                return Some(Fact::ReceiverOpened { key, result });
            }
            Action::OpenSender { key, landing, .. } => {
                let result = result.and_then(|()| self.open_sender(host, key, &landing));
                return Some(Fact::SenderOpened { key, result });
            }
            Action::CloseChannel { direction, key } => self.close_channel(host, direction, key),
            Action::AddSender { flow, key, .. } => {
                if let Some(pipe) = self.hosts[host].ends.remove(&(Direction::Send, key)) {
                    self.command(host, Command::AddSender(flow, key, pipe));
                } else {
                    self.checks
                        .violate(format!("h{host}: {flow:?} has no sending end of {key:?}"));
                }
            }
            Action::AddLargeSender { flow, key, .. } => {
                if let Some(pipe) = self.hosts[host].ends.remove(&(Direction::Send, key)) {
                    self.command(host, Command::AddLarge(flow, key, pipe));
                }
            }
            Action::EndSender { flow, key, ending } => {
                self.command(host, Command::EndSender(flow, key, ending));
            }
            Action::AddReceiver { flow, key, peer, .. } => {
                let from = host_of(&peer);
                if let Some(service) = self.service_of_flow(host, flow) {
                    self.checks.set_unwanted((from, host, service), false);
                }
                if let Some(pipe) = self.hosts[host].ends.remove(&(Direction::Receive, key)) {
                    self.command(host, Command::AddReceiver(flow, key, pipe, from));
                } else {
                    self.checks
                        .violate(format!("h{host}: {flow:?} has no receiving end of {key:?}"));
                }
            }
            Action::EndReceiver { flow, key } => self.command(host, Command::EndReceiver(flow, key)),
            Action::ResetContinuity { flow, peer } => {
                let from = host_of(&peer);
                self.hosts[host].lanes.continuity.remove(&(flow, from));
            }
            Action::CountDeliveryUnknown { flow, messages } => {
                self.hosts[host]
                    .lanes
                    .counters
                    .entry(flow)
                    .or_default()
                    .delivery_unknown += messages;
            }
            Action::AcknowledgeReceiver { .. }
            | Action::NoticeSubscribers { .. }
            | Action::NoticePublishers { .. }
            | Action::Warn(_)
            | Action::Info(_) => {}
        }
        None
    }

    pub fn service_of_flow(&self, host: usize, flow: FlowId) -> Option<usize> {
        service_of(&self.hosts[host].core.flow(flow)?.name)
    }

    pub fn note_close(&mut self, host: usize, link: usize, message: &ControlMessage) {
        let ControlMessage::Close { channel, .. } = message else {
            return;
        };
        let core = &self.hosts[host].core;
        let key = core.key(link, *channel);
        let flow = core.flow_of(Direction::Receive, key);
        let Some(flow) = flow.and_then(|flow| core.flow(flow)) else {
            return;
        };
        let is_unwanted = flow.inbound.get(&key).is_some_and(|channel| channel.is_unwanted);
        if let Some(service) = service_of(&flow.name).filter(|_| is_unwanted) {
            let from = host_of(&core.links()[link].profile.peer);
            self.checks.set_unwanted((from, host, service), true);
        }
    }

    pub fn note_dropped_subscriber(&mut self, host: usize, flow: FlowId) {
        let of = &self.hosts[host].core;
        let name = of.flow(flow).map(|flow| flow.name.as_str());
        let Some(service) = name.and_then(service_of) else {
            return;
        };
        let is_joined: Vec<_> = self
            .hosts
            .iter()
            .map(|peer| {
                let is_to = |link: &&crate::control::link::Link| link.profile.peer == peer.name;
                of.links().iter().filter(is_to).any(|link| link.is_usable())
            })
            .collect();
        self.checks
            .subscriber_dropped(host, service, &is_joined, self.now);
    }

    pub fn set_subscriber(&mut self, host: usize, flow: FlowId, exists: bool) {
        let source = self.hosts[host].lanes.sources.entry(flow).or_default();
        source.has_subscriber = exists;
        source.waiting.clear();
        source.overflowed = 0;
    }

    pub fn open_receiver(&mut self, host: usize, key: ChannelKey, spec: ChannelSpec) -> Vec<u8> {
        let (wire, end) = self.hosts[host].wires[key.link];
        let from = self.wires[wire].ends[1 - end].0;
        let (epoch, is_stream) = (self.wires[wire].epoch, self.wires[wire].is_stream);
        let depth = match spec.keep {
            Keep::Latest => 1,
            Keep::All { depth } => u64::from(depth.min(16)),
        };
        let pipe = self.pipes.open(wire, epoch, from, depth, is_stream);
        self.hosts[host].channels.insert((Direction::Receive, key), pipe);
        if !is_stream {
            self.announce_end(host, Direction::Receive, key, pipe);
        }
        pipe.to_le_bytes().to_vec()
    }

    pub fn open_sender(&mut self, host: usize, key: ChannelKey, landing: &[u8]) -> Result<(), String> {
        let pipe = landing
            .try_into()
            .map(PipeId::from_le_bytes)
            .map_err(|_| "no landing")?;
        if !self.is_intact(pipe) {
            return Err("the link is down".into());
        }
        self.pipes.add_sender(pipe);
        self.hosts[host].channels.insert((Direction::Send, key), pipe);
        self.announce_end(host, Direction::Send, key, pipe);
        if self.pipes.is_stream(pipe) {
            let (wire, end) = self.hosts[host].wires[key.link];
            let (peer, link) = self.wires[wire].ends[1 - end];
            let key = self.hosts[peer].core.key(link, key.channel);
            self.announce_end(peer, Direction::Receive, key, pipe);
        }
        Ok(())
    }

    pub fn announce_end(&mut self, host: usize, direction: Direction, key: ChannelKey, pipe: PipeId) {
        let result = if self.refuses() {
            Err("refused".to_string())
        } else {
            Ok(())
        };
        let incarnation = self.hosts[host].incarnation;
        let after = self.lag(3, 400);
        self.at(
            after,
            Event::EndReady {
                host,
                incarnation,
                direction,
                key,
                pipe,
                result,
            },
        );
    }

    pub fn close_channel(&mut self, host: usize, direction: Direction, key: ChannelKey) {
        self.hosts[host].ends.remove(&(direction, key));
        let Some(pipe) = self.hosts[host].channels.remove(&(direction, key)) else {
            return;
        };
        match direction {
            Direction::Receive => {
                let has_sender = self.pipes.get(pipe).is_some_and(|of| of.has_sender);
                if has_sender && self.is_intact(pipe) {
                    self.checks.violate(format!(
                        "{:?} h{host}: landing place of {key:?} is reused while its sender writes",
                        self.now
                    ));
                }
                self.pipes.close(pipe);
            }
            Direction::Send => self.pipes.drop_sender(pipe),
        }
    }

    pub fn is_falsified(&mut self, host: usize, action: &Action) -> bool {
        match (self.options.fault, action) {
            (Some(Fault::NoEndReceiver), Action::EndReceiver { .. })
            | (Some(Fault::NoCloseChannel), Action::CloseChannel { .. }) => true,
            (
                Some(Fault::NoClosed),
                Action::Send {
                    message: ControlMessage::Closed { .. },
                    ..
                },
            ) => true,
            (Some(Fault::NoHold), Action::EndSender { flow, .. }) => {
                let flow = *flow;
                if matches!(flow, FlowId::Service(_)) {
                    self.set_subscriber(host, flow, false);
                    self.set_subscriber(host, flow, true);
                }
                false
            }
            (
                Some(Fault::EarlyReuse),
                Action::Send {
                    link,
                    message: ControlMessage::Close { channel, .. },
                },
            ) => {
                let key = self.hosts[host].core.key(*link, *channel);
                self.close_channel(host, Direction::Receive, key);
                false
            }
            _ => false,
        }
    }

    pub fn falsify(&self, message: ControlMessage) -> ControlMessage {
        match (self.options.fault, message) {
            (
                Some(Fault::NoDrain),
                ControlMessage::Close {
                    channel,
                    reason: CloseReason::Drained,
                },
            ) => ControlMessage::Close {
                channel,
                reason: CloseReason::Unwanted,
            },
            (_, message) => message,
        }
    }
}
