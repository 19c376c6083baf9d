//! The decision core: takes facts in, keeps the flows, asks for actions.
//!
//! Contract: [`Core::handle`] for each fact in the order in which it happened, [`Core::tick`] now
//! and then, [`Core::decide`] after them, and [`Core::next_action`] until there is none. Answers of
//! actions are facts: see [`super::fact`]. Called by the shell ([`crate::gateway`]) and the
//! simulation.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use busway_system::System;
use busway_transport::{ChannelSpec, Direction};

use super::endpoint::Endpoint;
use super::fact::{Action, Fact, LocalEvents, LocalService};
use super::flow::{Flow, LargeOpening, OutChannel, OutPhase};
use super::link::{Link, LinkProfile, RemoteOffer};
use super::plan::Plan;
use super::port::PortEndpoint;
use super::service::ServiceEndpoint;
use super::shared::Shared;
use crate::description::ServiceDescription;
use crate::lane::{ChannelKey, FlowId, Report};
use crate::protocol::{self, CloseReason, ControlMessage};

/// See the module.
pub struct Core<'a> {
    shared: Shared<'a>,
    flows: BTreeMap<FlowId, Flow>,
    services: HashMap<String, FlowId>,
}

impl<'a> Core<'a> {
    /// Of one host, with all of its links down.
    pub fn new(system: &'a System, host: &str, links: Vec<LinkProfile>, now: Instant) -> Core<'a> {
        Core {
            shared: Shared {
                system,
                host: host.to_string(),
                links: links.into_iter().map(Link::new).collect(),
                index: HashMap::new(),
                dirty: BTreeSet::new(),
                actions: VecDeque::new(),
                now,
            },
            flows: BTreeMap::new(),
            services: HashMap::new(),
        }
    }

    /// Adds one end of a channel of ports; `number` names it towards the shell.
    pub fn add_port(&mut self, number: u32, channel: String, port: PortEndpoint) {
        let id = FlowId::Port(number);
        self.flows
            .insert(id, Flow::new(id, channel, Endpoint::Port(port)));
        self.shared.dirty.insert(id);
    }

    /// All links, in their order.
    pub fn links(&self) -> &[Link] {
        &self.shared.links
    }

    /// All flows.
    pub fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.flows.values()
    }

    /// A flow.
    pub fn flow(&self, id: FlowId) -> Option<&Flow> {
        self.flows.get(&id)
    }

    /// The key of a channel of a link's present conversation.
    pub fn key(&self, link: usize, channel: u32) -> ChannelKey {
        self.shared.key(link, channel)
    }

    /// The flow of a channel.
    pub fn flow_of(&self, direction: Direction, key: ChannelKey) -> Option<FlowId> {
        self.shared.index.get(&(direction, key)).copied()
    }

    /// The next action to carry out.
    pub fn next_action(&mut self) -> Option<Action> {
        self.shared.actions.pop_front()
    }

    /// Whether [`decide`](Self::decide) has something to do.
    pub fn is_dirty(&self) -> bool {
        !self.shared.dirty.is_empty()
    }

    /// Whether [`tick`](Self::tick) must be called soon.
    pub fn needs_tick(&self) -> bool {
        self.shared.links.iter().any(Link::needs_tick) || self.flows.values().any(Flow::needs_tick)
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) {
        self.shared.now = now;
        for link in 0..self.shared.links.len() {
            for name in self.shared.links[link].expire_offers(now) {
                self.mark(&name);
            }
        }
        let timed = self.flows.values().filter(|flow| flow.needs_tick());
        self.shared.dirty.extend(timed.map(|flow| flow.id));
    }

    /// Compares what should be with what is for each flow that a fact concerned.
    pub fn decide(&mut self, now: Instant) {
        self.shared.now = now;
        for id in std::mem::take(&mut self.shared.dirty) {
            if let Some(flow) = self.flows.get_mut(&id) {
                match flow.endpoint {
                    Endpoint::Service(_) => flow.reconcile_service(&mut self.shared),
                    Endpoint::Port(_) => flow.reconcile_port(&mut self.shared),
                }
            }
        }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, fact: Fact, now: Instant) {
        self.shared.now = now;
        match fact {
            Fact::LinkUp {
                link,
                application,
                may_lose,
                silence_timeout,
            } => self.link_up(link, &application, may_lose, silence_timeout),
            Fact::LinkDown { link, reason } => self.link_down(link, reason),
            Fact::LinkRefused { link, reason } => {
                let Link { profile, .. } = &self.shared.links[link];
                let line = format!(
                    "link to {:?} over {}: refused: {reason}",
                    profile.peer, profile.bus
                );
                self.shared.act(Action::Warn(line));
                self.shared.links[link].reason = Some(reason);
            }
            Fact::Control { link, message } => self.control(link, message),
            Fact::ClockKnown { link } => self.clock_known(link),
            Fact::Local {
                service,
                programs,
                events,
            } => self.local(service, programs, events),
            Fact::EndReady {
                direction,
                key,
                result,
            } => self.with_channel(direction, key, |flow, shared| match direction {
                Direction::Send => flow.sender_ready(key, result, shared),
                Direction::Receive => flow.receiver_ready(key, result, shared),
            }),
            Fact::Lane(report) => self.report(report),
            answer => self.answer(answer),
        }
    }

    /// Takes in the result of an action.
    fn answer(&mut self, fact: Fact) {
        match fact {
            Fact::ServiceHeld { flow, result } => {
                self.with_flow(flow, |flow, shared| flow.service_held(result, shared));
            }
            Fact::PublisherMade {
                flow,
                result,
                was_there,
            } => self.with_flow(flow, |flow, shared| {
                flow.publisher_made(result, was_there, shared);
            }),
            Fact::SubscriberMade { flow, result } => {
                self.with_flow(flow, |flow, shared| flow.subscriber_made(result, shared));
            }
            Fact::NotifierSet { flow, result } => {
                self.with_flow(flow, |flow, shared| flow.notifier_set(result, shared));
            }
            Fact::ListenerSet { flow, result } => {
                self.with_flow(flow, |flow, shared| flow.listener_set(result, shared));
            }
            Fact::ReceiverOpened { key, result } => {
                self.with_channel(Direction::Receive, key, |flow, shared| {
                    flow.receiver_opened(key, result, shared);
                });
            }
            Fact::SenderOpened { key, result } => {
                self.with_channel(Direction::Send, key, |flow, shared| {
                    flow.sender_opened(key, result, shared);
                });
            }
            _ => {}
        }
    }

    fn with_flow(&mut self, id: FlowId, then: impl FnOnce(&mut Flow, &mut Shared)) {
        if let Some(flow) = self.flows.get_mut(&id) {
            then(flow, &mut self.shared);
        }
    }

    fn with_channel(
        &mut self,
        direction: Direction,
        key: ChannelKey,
        then: impl FnOnce(&mut Flow, &mut Shared),
    ) {
        if let Some(&id) = self.shared.index.get(&(direction, key)) {
            self.with_flow(id, then);
        }
    }

    /// The flow of a service is to be looked at.
    fn mark(&mut self, service: &str) {
        let id = self.service(service);
        self.shared.dirty.insert(id);
    }

    /// The flow of a service, made when it is first named.
    fn service(&mut self, name: &str) -> FlowId {
        if let Some(&id) = self.services.get(name) {
            return id;
        }
        let id = FlowId::Service(self.services.len() as u32);
        let plan = Plan::from(self.shared.system.plan_for(name));
        let endpoint = Endpoint::Service(Box::new(ServiceEndpoint::new(plan)));
        self.flows.insert(id, Flow::new(id, name.to_string(), endpoint));
        self.services.insert(name.to_string(), id);
        id
    }

    fn local(&mut self, service: String, programs: Option<LocalService>, events: LocalEvents) {
        let id = self.service(&service);
        if let Some(endpoint) = self.flows.get_mut(&id).and_then(Flow::service_mut) {
            endpoint.programs = programs;
            endpoint.events = events;
        }
        self.shared.dirty.insert(id);
    }

    fn clock_known(&mut self, link: usize) {
        for flow in self.flows.values_mut() {
            if let Endpoint::Port(port) = &mut flow.endpoint
                && port.clocks_known.insert(link)
            {
                self.shared.dirty.insert(flow.id);
            }
        }
    }

    fn link_up(&mut self, index: usize, application: &str, may_lose: bool, silence_timeout: Duration) {
        let now = self.shared.now;
        let ours = protocol::application();
        let is_compatible = application == ours;
        let link = &mut self.shared.links[index];
        link.came_up(is_compatible, may_lose, silence_timeout, now);
        let (peer, bus) = (link.profile.peer.clone(), link.profile.bus);
        if !is_compatible {
            let reason = format!(
                "{peer:?} runs {application:?}, this host {ours:?}: nothing is carried until both run the same"
            );
            link.reason = Some(reason.clone());
            let line = format!("link to {peer:?} over {bus}: {reason}");
            return self.shared.act(Action::Warn(line));
        }
        let line = format!("link to {peer:?} over {bus} is up");
        self.shared.act(Action::Info(line));
        for flow in self.flows.values_mut() {
            flow.link_up(index, &peer, &mut self.shared);
        }
    }

    fn link_down(&mut self, index: usize, reason: String) {
        let now = self.shared.now;
        let link = &mut self.shared.links[index];
        let (peer, bus) = (link.profile.peer.clone(), link.profile.bus);
        let line = format!("link to {peer:?} over {bus} is down: {reason}; trying again");
        let (stood, unknown) = link.went_down(reason, now);
        let offered: Vec<_> = link.offers.keys().cloned().collect();
        self.shared.act(Action::Warn(line));
        for (flow, messages) in unknown {
            self.shared.act(Action::CountDeliveryUnknown { flow, messages });
        }
        for name in offered {
            self.mark(&name);
        }
        for flow in self.flows.values_mut() {
            flow.link_down(index, &peer, stood, &mut self.shared);
        }
    }

    fn control(&mut self, link: usize, message: ControlMessage) {
        if !self.shared.links[link].is_usable() {
            return;
        }
        let key = |channel| self.shared.key(link, channel);
        match message {
            ControlMessage::Offer {
                description,
                longest_bytes,
            } => self.offered(link, description, longest_bytes),
            ControlMessage::Withdraw { service } => {
                self.shared.links[link].offers.remove(&service);
                self.mark(&service);
            }
            ControlMessage::Open {
                channel,
                service,
                spec,
                landing,
                large_from_bytes,
            } => {
                let large = large_from_bytes.map(|from_bytes| LargeOpening {
                    from_bytes,
                    may_use: false,
                });
                let key = key(channel);
                let id = self.service(&service);
                self.requested(key, id, spec.into(), landing, large);
            }
            ControlMessage::OpenPort {
                channel,
                name,
                spec,
                landing,
            } => {
                let key = key(channel);
                self.port_requested(key, &name, spec.into(), landing);
            }
            ControlMessage::Use { channel } => {
                let key = key(channel);
                self.with_channel(Direction::Send, key, |flow, shared| flow.may_use(key, shared));
            }
            ControlMessage::Close { channel, reason } => {
                let key = key(channel);
                self.close(key, reason);
            }
            ControlMessage::Closed { channel, reason } => {
                let key = key(channel);
                self.with_channel(Direction::Receive, key, |flow, shared| {
                    flow.sender_closed(key, reason, shared);
                });
            }
            ControlMessage::AskTime { .. } | ControlMessage::TellTime { .. } => {}
        }
    }

    fn offered(&mut self, link: usize, description: ServiceDescription, longest_bytes: Option<u64>) {
        let name = description.name.clone();
        let offer = RemoteOffer {
            description,
            longest_bytes,
            lapses_at: None,
        };
        self.shared.links[link].offers.insert(name.clone(), offer);
        self.mark(&name);
    }

    fn requested(
        &mut self,
        key: ChannelKey,
        id: FlowId,
        spec: ChannelSpec,
        landing: Vec<u8>,
        large: Option<LargeOpening>,
    ) {
        let is_taken = self.shared.index.contains_key(&(Direction::Send, key));
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let crosses = flow.service().is_none_or(|service| service.plan.crosses);
        let refusal = if is_taken {
            Some("that channel number is taken")
        } else if !crosses {
            Some("the system file does not let it cross")
        } else {
            None
        };
        let peer = self.shared.links[key.link].profile.peer.clone();
        if let Some(reason) = refusal {
            flow.complain(format!("can't be sent to {peer:?}: {reason}"), &mut self.shared);
            return self.refuse(key, reason.to_string());
        }
        let channel = OutChannel {
            peer,
            phase: OutPhase::Requested { landing },
            spec,
            large,
            is_draining: false,
        };
        flow.sender_requested(key, channel, &mut self.shared);
    }

    fn port_requested(&mut self, key: ChannelKey, name: &str, spec: ChannelSpec, landing: Vec<u8>) {
        let is_asked = |flow: &Flow| match &flow.endpoint {
            Endpoint::Port(port) => port.leaves && flow.name == name && port.route_over(key.link).is_some(),
            Endpoint::Service(_) => false,
        };
        let flow = self.flows.values_mut().find(|flow| is_asked(flow));
        let checked = match flow {
            Some(flow) => flow.check_port_request(key, &spec).map(|()| flow.id),
            None => Err("by this host's system file it does not go that way".to_string()),
        };
        match checked {
            Ok(id) => self.requested(key, id, spec, landing, None),
            Err(reason) => {
                let peer = &self.shared.links[key.link].profile.peer;
                let line = format!("{peer:?} asks for channel {name:?}: {reason}");
                self.shared.act(Action::Warn(line));
                self.refuse(key, reason);
            }
        }
    }

    fn refuse(&mut self, key: ChannelKey, reason: String) {
        let closed = ControlMessage::Closed {
            channel: key.channel,
            reason: Some(reason),
        };
        self.shared.send(key.link, closed);
    }

    fn close(&mut self, key: ChannelKey, reason: CloseReason) {
        if self.flow_of(Direction::Send, key).is_some() {
            return self.with_channel(Direction::Send, key, |flow, shared| {
                flow.close_requested(key, reason, shared);
            });
        }
        if reason != CloseReason::Failed {
            for flow in self.flows.values_mut() {
                if flow.service_mut().is_some_and(|service| service.forget_move(key)) {
                    self.shared.dirty.insert(flow.id);
                }
            }
        }
        let closed = ControlMessage::Closed {
            channel: key.channel,
            reason: None,
        };
        self.shared.send(key.link, closed);
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::SenderEnded {
                flow,
                key,
                unacknowledged,
                failure,
            } => {
                self.hold_unacknowledged(flow, key, unacknowledged);
                self.with_channel(Direction::Send, key, |flow, shared| {
                    flow.sender_ended(key, failure, shared);
                });
            }
            Report::ReceiverAdded { key, .. } => {
                self.with_channel(Direction::Receive, key, |flow, shared| {
                    flow.receiver_added(key, shared);
                });
            }
            Report::ReceiverEnded { key, failure, .. } => {
                self.with_channel(Direction::Receive, key, |flow, shared| {
                    flow.receiver_ended(key, failure, shared);
                });
            }
            Report::PublisherFailed { flow } => self.with_flow(flow, |flow, shared| {
                let complaint = "no memory behind a sample: /dev/shm is full; trying again";
                flow.complain(complaint.into(), shared);
                if let Some(service) = flow.service_mut() {
                    service.publisher_failed(shared.now);
                }
            }),
        }
    }

    /// A channel ended with messages unacknowledged: their delivery is unknown if its link fails
    /// soon, or has failed already.
    fn hold_unacknowledged(&mut self, flow: FlowId, key: ChannelKey, messages: u64) {
        if !matches!(flow, FlowId::Service(_)) || messages == 0 {
            return;
        }
        if self.flow_of(Direction::Send, key).is_some() {
            let now = self.shared.now;
            self.shared.links[key.link].hold_unacknowledged(flow, messages, now);
        } else {
            self.shared.act(Action::CountDeliveryUnknown { flow, messages });
        }
    }
}

impl Flow {
    /// Whether something of it depends on time.
    pub fn needs_tick(&self) -> bool {
        self.backoff.needs_tick() || self.service().is_some_and(ServiceEndpoint::needs_tick)
    }

    fn link_up(&mut self, index: usize, peer: &str, shared: &mut Shared) {
        self.backoff.came_up(index, shared.now);
        let may_take = self.endpoint.may_take(index, &shared.links[index]);
        match &mut self.endpoint {
            Endpoint::Service(service) => {
                if let Some(offer) = service.offer() {
                    shared.send(index, offer);
                }
                // The peer opens a channel over this link if it still wants the service: not over
                // one that may not carry it.
                if may_take {
                    service.peer_is_back(peer, shared.now);
                }
            }
            Endpoint::Port(port) => {
                // The peer may be another process than before.
                port.clocks_known.remove(&index);
            }
        }
        shared.dirty.insert(self.id);
    }

    fn link_down(&mut self, index: usize, peer: &str, stood: Duration, shared: &mut Shared) {
        if self.has_other(index, shared) {
            self.backoff.went_down(index, stood, shared.now);
        }
        if let Endpoint::Service(service) = &mut self.endpoint {
            let can_ask = shared.links.iter().any(|link| {
                link.profile.peer == peer && link.is_usable() && service.plan.may_take(link.profile.bus)
            });
            service.peer_link_down(peer, index, can_ask, shared.now);
        }
        self.senders_link_down(index, shared);
        self.receivers_link_down(index, shared);
    }
}
