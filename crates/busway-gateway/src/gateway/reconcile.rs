//! What should be, compared with what is: mirror, channels and ports of one service.
//!
//! The rules, which keep the gateway out of the programs' way:
//! * offered to peers is what a *program* here has open; a service that only the gateway holds is nobody's;
//! * a mirror is held while a peer offers the service;
//! * a channel from a peer is open while a program there publishes and one here subscribes; our publisher exists while such a
//!   channel does (or its link is expected back);
//! * our subscriber exists while a peer has a channel open to us (or its link is expected back).
//!
//! Seen over all hosts, every place that the gateway takes in `max_publishers`, `max_subscribers` and `max_nodes` stands for one of a
//! remote program, so what works at home works across hosts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use busway_transport::{Direction, Keep};

use super::channels::has_other;
use super::links::lane_of;
use super::service::{
    InChannel, InLane, InPhase, InState, OutState, channel_spec, publisher_waits, when_full,
};
use super::ways::{Choice, Ways};
use super::{Gateway, ways};
use crate::description::{ServiceDescription, Shape};
use crate::iox::events::{self, EventListener, EventNotifier};
use crate::iox::publisher::{Backpressure, SamplePublisher};
use crate::iox::service::DescriptionError;
use crate::iox::subscriber::SampleSubscriber;
use crate::lane::inbound::InboundSetup;
use crate::lane::outbound::OutboundSetup;
use crate::lane::{ChannelKey, InboundCommand, LaneCommand, OutboundCommand};
use crate::protocol::{Parting, Say};

/// What is refused is tried again after this time.
pub const RETRY: Duration = Duration::from_secs(1);

/// What the peers offer of one service.
struct Offers {
    /// The description to hold it by: the local one, or the first peer's.
    description: Option<ServiceDescription>,
    /// Links whose offer fits that description.
    fitting: Vec<usize>,
    /// For each host that publishes: the links to have channels on.
    sources: HashMap<String, Ways>,
    /// Whether some host publishes, or did before its link went down.
    is_published: bool,
}

impl Gateway<'_> {
    /// Makes the next step for one service.
    pub(super) fn reconcile(&mut self, name: &str, now: Instant) {
        let service = self.service(name);
        if !service.plan.crosses {
            return;
        }
        if service.retry_at.is_some_and(|at| now >= at) {
            service.retry_at = None;
        }
        service.rests.tick(now);
        self.offer(name);
        let offers = self.offers_of(name, now);
        self.hold(name, &offers, now);
        self.reconcile_inbound(name, &offers, now);
        self.reconcile_outbound(name, now);
        self.let_go(name);
    }

    /// Tells the peers what programs here have open.
    fn offer(&mut self, name: &str) {
        let offer = self
            .catalog
            .publish_subscribe(name)
            .filter(|local| local.census.nodes > 0)
            .map(|local| {
                let longest_bytes = local.census.longest_bytes(&local.description.payload);
                (local.description.clone(), longest_bytes)
            });
        let service = self.services.get_mut(name).expect("made by reconcile");
        if offer == service.offered {
            return;
        }
        let say = match &offer {
            Some((description, longest_bytes)) => Say::Offer {
                description: description.clone(),
                longest_bytes: *longest_bytes,
            },
            None => Say::Withdraw {
                service: name.to_string(),
            },
        };
        service.offered = offer;
        for link in self.links.iter_mut().filter(|link| link.is_usable()) {
            link.say(&say);
        }
    }

    fn offers_of(&mut self, name: &str, now: Instant) -> Offers {
        let local = self
            .catalog
            .publish_subscribe(name)
            .map(|local| local.description.clone());
        let mut offers = Offers {
            description: local.clone(),
            fitting: Vec::new(),
            sources: HashMap::new(),
            is_published: false,
        };
        let mut complaint = None;
        let mut candidates: HashMap<&str, Vec<(usize, u64)>> = HashMap::new();
        for (index, link) in self.links.iter().enumerate() {
            let Some(offer) = link.offers.get(name) else {
                continue;
            };
            let reference = offers
                .description
                .get_or_insert_with(|| offer.description.clone());
            if let Some(conflict) = reference.type_conflict(&offer.description) {
                complaint = Some(format!(
                    "{:?} and this host {:?} mean different things by it and it is not carried between them: {conflict}; give one of them another name or the same type",
                    link.peer, self.host
                ));
                continue;
            }
            if local.is_some() && reference.settings != offer.description.settings {
                tracing::debug!(
                    "service {name:?}: settings here {:?}, at {:?} {:?}",
                    reference.settings,
                    link.peer,
                    offer.description.settings
                );
            }
            offers.fitting.push(index);
            if let Some(longest_bytes) = offer.longest_bytes {
                offers.is_published = true;
                if offer.lapses_at.is_none() && link.is_usable() {
                    candidates
                        .entry(&link.peer)
                        .or_default()
                        .push((index, longest_bytes));
                }
            }
        }
        if let Some(description) = &offers.description {
            let service = &self.services[name];
            let choice = Choice {
                system: self.system,
                links: &self.links,
                plan: &service.plan,
                rests: &service.rests,
                now,
                is_any_length: Shape::of(description).any_length,
            };
            let ways = |(peer, links): (&str, Vec<_>)| Some((peer.to_string(), choice.ways(&links)?));
            offers.sources = candidates.into_iter().filter_map(ways).collect();
        }
        if let Some(complaint) = complaint {
            self.service(name).complain(name, complaint);
        }
        offers
    }

    /// Holds the service open while a peer offers it or a port of ours is in it.
    fn hold(&mut self, name: &str, offers: &Offers, now: Instant) {
        let service = self.services.get_mut(name).expect("made by reconcile");
        let has_ports = service.inbound.is_some() || service.outbound.is_some();
        let is_wanted = !offers.fitting.is_empty() || has_ports;
        if !is_wanted || service.factory.is_some() || service.retry_at.is_some() {
            return;
        }
        let Some(description) = &offers.description else {
            return;
        };
        if let Err(error) = self.open_factory(name, description) {
            let service = self.services.get_mut(name).expect("made by reconcile");
            service.retry_at = Some(now + RETRY);
            if !error.is_type_conflict() {
                service.complain(name, format!("{error}; trying again"));
            }
        }
    }

    /// Lets a service go that no peer offers and in which no port of ours is left.
    fn let_go(&mut self, name: &str) {
        let is_offered = self.links.iter().any(|link| link.offers.contains_key(name));
        let service = self.services.get_mut(name).expect("made by reconcile");
        if !is_offered && service.outbound.is_none() && service.inbound.is_none() {
            service.factory = None;
        }
    }

    fn open_factory(&mut self, name: &str, description: &ServiceDescription) -> Result<(), DescriptionError> {
        let node = &self.node;
        let service = self.services.get_mut(name).expect("made by reconcile");
        if service.factory.is_none() {
            let _ = crate::faults::in_this_thread();
            let factory = description.open_or_create(node)?;
            if crate::faults::in_this_thread() {
                // Dropping it removes what was only half made.
                return Err(DescriptionError::NoMemory);
            }
            service.factory = Some((factory, description.clone()));
        }
        Ok(())
    }

    fn reconcile_inbound(&mut self, name: &str, offers: &Offers, now: Instant) {
        let subscribers = self
            .catalog
            .publish_subscribe(name)
            .map_or(0, |local| local.census.sinks);
        self.give_voice(name, now);
        let wanted = if subscribers > 0 {
            offers.sources.clone()
        } else {
            HashMap::new()
        };
        self.close_unwanted(name, &wanted);
        let service = self.services.get_mut(name).expect("made by reconcile");
        if let Some(inbound) = &mut service.inbound {
            let lane = lane_of(&self.lanes, &inbound.lane);
            if subscribers != inbound.subscribers {
                inbound.subscribers = subscribers;
                lane.send(LaneCommand::Inbound {
                    flow: service.flow,
                    command: InboundCommand::NoticeSubscribers,
                });
            }
            let is_expected = subscribers > 0 && offers.is_published;
            if inbound.channels.is_empty() && wanted.is_empty() && !is_expected {
                self.end_inbound(name);
            }
        }
        self.replace_spoilt_inlet(name, now);
        let service = self.services.get_mut(name).expect("made by reconcile");
        if service.retry_at.is_some() || service.factory.is_none() {
            return;
        }
        for (peer, ways) in wanted {
            let service = &self.services[name];
            let Some((link, large_from_bytes)) = ways::missing(service.inbound.as_ref(), &peer, ways) else {
                continue;
            };
            if service.rests.has(link, now) {
                continue;
            }
            let prepared = self.prepare_inbound(name, subscribers);
            let is_prepared = prepared.is_ok();
            let opened = prepared.and_then(|()| self.open_receiver(name, &peer, link, large_from_bytes));
            let Err(reason) = opened else { continue };
            let service = self.services.get_mut(name).expect("made by reconcile");
            service.complain(
                name,
                format!("can't be received from {peer:?}: {reason}; trying again"),
            );
            if is_prepared {
                let has_other = has_other(&self.links, link, |bus| service.plan.may_take(bus));
                service.rests.failed(link, has_other, now);
                self.dirty.insert(name.to_string());
            } else {
                service.retry_at = Some(now + RETRY);
            }
        }
        self.give_voice(name, now);
    }

    /// Gives the inbound half a notifier while the companion has listeners.
    fn give_voice(&mut self, name: &str, now: Instant) {
        let listeners = self.catalog.companion(name).map_or(0, |ports| ports.sinks);
        let service = self.services.get_mut(name).expect("made by reconcile");
        let Some(inbound) = &mut service.inbound else {
            return;
        };
        if (listeners > 0) == inbound.has_voice || service.retry_at.is_some() {
            return;
        }
        let made = if listeners > 0 {
            events::open(&self.node, name)
                .and_then(|factory| EventNotifier::new(&factory))
                .map(Some)
        } else {
            Ok(None)
        };
        match made {
            Ok(voice) => {
                inbound.has_voice = voice.is_some();
                tracing::debug!("service {name:?}: events raised: {}", inbound.has_voice);
                lane_of(&self.lanes, &inbound.lane).send(LaneCommand::Inbound {
                    flow: service.flow,
                    command: InboundCommand::SetNotifier(voice),
                });
            }
            Err(reason) => {
                service.retry_at = Some(now + RETRY);
                service.complain(
                    name,
                    format!("{reason}; programs here are not woken; trying again"),
                );
            }
        }
    }

    /// Tells senders whose messages nobody here wants any more.
    fn close_unwanted(&mut self, name: &str, wanted: &HashMap<String, Ways>) {
        let service = self.services.get_mut(name).expect("made by reconcile");
        let is_published = |link: usize| {
            self.links[link]
                .offers
                .get(name)
                .is_some_and(|offer| offer.longest_bytes.is_some())
        };
        let Some(inbound) = &mut service.inbound else {
            return;
        };
        let mut closes = Vec::new();
        let right: HashSet<_> = inbound
            .channels
            .iter()
            .filter(|(key, channel)| ways::is_right(inbound, **key, channel, wanted))
            .map(|(key, _)| *key)
            .collect();
        for (key, channel) in &mut inbound.channels {
            let link = wanted.get(&channel.peer);
            let is_news = link.is_none() && !channel.is_unwanted;
            channel.is_unwanted |= link.is_none();
            // Its last publisher left, or it moves to a better link: what was published before shall still come this way.
            let drains = !is_published(key.link) || link.is_some();
            let parting = if drains {
                Parting::Drained
            } else {
                Parting::Unwanted
            };
            let is_told = match channel.phase {
                InPhase::Opening | InPhase::Active => right.contains(key),
                // It was about to move.
                InPhase::Abandoned | InPhase::Closing | InPhase::Draining => !is_news,
                InPhase::Dead => true,
            };
            if is_told {
                continue;
            }
            closes.push((*key, parting));
            if channel.phase == InPhase::Opening {
                channel.phase = InPhase::Abandoned;
            } else if channel.phase == InPhase::Active {
                channel.phase = InPhase::Closing;
                let lane = lane_of(&self.lanes, &inbound.lane);
                lane.send(LaneCommand::Inbound {
                    flow: service.flow,
                    command: InboundCommand::AcknowledgeReceiver { key: *key },
                });
            }
        }
        for (key, parting) in closes {
            self.links[key.link].say(&Say::Close {
                channel: key.channel,
                parting,
            });
        }
    }

    fn open_receiver(
        &mut self,
        name: &str,
        peer: &str,
        link: usize,
        large_from_bytes: Option<u64>,
    ) -> Result<(), String> {
        let service = self.services.get_mut(name).expect("made by reconcile");
        let inbound = service.inbound.as_mut().expect("prepared");
        let (_, description) = service.factory.as_ref().expect("prepared");
        let spec = channel_spec(&service.plan, description);
        let lane = match &inbound.lane {
            InLane::Shared(lane) => *lane as u32,
            InLane::Own(_, number) => *number,
        };
        let state = &mut self.links[link];
        let channel = state.new_channel();
        let landing = state
            .link
            .open_receiver(channel, &spec, lane)
            .map_err(|error| error.to_string())?;
        let key = ChannelKey {
            link,
            channel: channel.0,
        };
        let keeps_all = spec.keep != Keep::Latest;
        inbound.channels.insert(
            key,
            InChannel {
                peer: peer.to_string(),
                phase: InPhase::Opening,
                is_large: large_from_bytes.is_some(),
                keeps_all,
                is_unwanted: false,
            },
        );
        self.channels.insert((Direction::Receive, key), name.to_string());
        let say = Say::Open {
            channel: channel.0,
            service: name.to_string(),
            spec: spec.into(),
            landing,
            large_from_bytes,
        };
        self.links[link].say(&say);
        service.complaint = None;
        Ok(())
    }

    /// Makes our publisher, and the lane that it needs.
    fn prepare_inbound(&mut self, name: &str, subscribers: usize) -> Result<(), String> {
        let service = self.services.get(name).expect("made by reconcile");
        if service.inbound.is_some() {
            return Ok(());
        }
        let (flow, lane) = (service.flow, service.plan.lane);
        let (_, description) = service.factory.as_ref().ok_or("the service is not open")?;
        let may_wait = publisher_waits(&service.plan, description);
        let patience = Arc::new(Backpressure::default());
        if let Some(out) = &service.outbound {
            patience.set_own_subscriber(out.outlet_id);
        }
        let inlet = self.make_inlet(name, &patience)?;
        let lane = if may_wait {
            self.own_lane(name, lane)
                .map_err(|error| format!("no thread for it: {error}"))?
        } else {
            InLane::Shared(lane)
        };
        let service = self.services.get_mut(name).expect("made by reconcile");
        let setup = InboundSetup {
            publisher: inlet,
            own_session: self.session,
            counters: service.counters.clone(),
            backpressure: patience.clone(),
        };
        lane_of(&self.lanes, &lane).send(LaneCommand::Inbound {
            flow,
            command: InboundCommand::Begin(Box::new(setup)),
        });
        service.inbound = Some(InState {
            backpressure: patience,
            lane,
            channels: HashMap::new(),
            replace_publisher_at: None,
            has_voice: false,
            subscribers,
        });
        Ok(())
    }

    fn make_inlet(&self, name: &str, patience: &Arc<Backpressure>) -> Result<SamplePublisher, String> {
        let service = self.services.get(name).expect("made by reconcile");
        let (factory, description) = service.factory.as_ref().ok_or("the service is not open")?;
        let may_wait = publisher_waits(&service.plan, description);
        let inlet = SamplePublisher::new(
            factory,
            Shape::of(description),
            may_wait,
            self.links.len() + 1,
            patience.clone(),
        );
        if crate::faults::in_this_thread() {
            return Err("its data segment has no memory behind it; is /dev/shm full?".into());
        }
        inlet
    }

    fn replace_spoilt_inlet(&mut self, name: &str, now: Instant) {
        let service = self.services.get(name).expect("made by reconcile");
        let Some(inbound) = &service.inbound else { return };
        if inbound.replace_publisher_at.is_none_or(|at| now < at) {
            return;
        }
        let made = self.make_inlet(name, &inbound.backpressure);
        let service = self.services.get_mut(name).expect("made by reconcile");
        let inbound = service.inbound.as_mut().expect("looked at above");
        match made {
            Ok(inlet) => {
                inbound.replace_publisher_at = None;
                lane_of(&self.lanes, &inbound.lane).send(LaneCommand::Inbound {
                    flow: service.flow,
                    command: InboundCommand::ReplacePublisher(Box::new(inlet)),
                });
                service.complaint = None;
            }
            Err(reason) => {
                inbound.replace_publisher_at = Some(now + RETRY);
                service.complain(name, format!("{reason}; trying again"));
            }
        }
    }

    fn end_inbound(&mut self, name: &str) {
        let service = self.services.get_mut(name).expect("made by reconcile");
        let Some(inbound) = service.inbound.take() else {
            return;
        };
        inbound.backpressure.stop_waiting();
        match &inbound.lane {
            InLane::Shared(lane) => self.lanes[*lane].send(LaneCommand::Inbound {
                flow: service.flow,
                command: InboundCommand::End,
            }),
            InLane::Own(..) => self.end_own_lane(inbound.lane),
        }
    }

    /// Makes our subscriber, for a peer that wants the service.
    pub(super) fn prepare_outbound(&mut self, name: &str) -> Result<(), String> {
        let Some(local) = self.catalog.publish_subscribe(name) else {
            return Err("no program here has it open".into());
        };
        let (description, publishers) = (local.description.clone(), local.census.sources);
        if !self.service(name).plan.crosses {
            return Err("the system file does not let it cross".into());
        }
        self.open_factory(name, &description)
            .map_err(|error| error.to_string())?;
        let service = self.services.get_mut(name).expect("made above");
        if service.outbound.is_some() {
            return Ok(());
        }
        let (factory, description) = service.factory.as_ref().expect("opened above");
        let outlet = SampleSubscriber::new(factory, &self.node, description)?;
        let outlet_id = outlet.id();
        if let Some(inbound) = &service.inbound {
            inbound.backpressure.set_own_subscriber(outlet_id);
        }
        let setup = OutboundSetup {
            subscriber: outlet,
            history: description.settings.history_size as usize,
            when_full: when_full(&service.plan, description),
            sequence: service.sequence.clone(),
            origin: self.session,
            counters: service.counters.clone(),
        };
        self.lanes[service.plan.lane].send(LaneCommand::Outbound {
            flow: service.flow,
            command: OutboundCommand::Begin(Box::new(setup)),
        });
        service.outbound = Some(OutState {
            channels: HashMap::new(),
            lost: HashMap::new(),
            outlet_id,
            has_ear: false,
            publishers,
        });
        Ok(())
    }

    fn reconcile_outbound(&mut self, name: &str, now: Instant) {
        let publishers = self
            .catalog
            .publish_subscribe(name)
            .map_or(0, |local| local.census.sources);
        let notifiers = self.catalog.companion(name).map_or(0, |ports| ports.sources);
        let service = self.services.get_mut(name).expect("made by reconcile");
        let Some(out) = &mut service.outbound else { return };
        out.lost.retain(|_, hold| now < hold.until);
        if publishers != out.publishers {
            out.publishers = publishers;
            self.lanes[service.plan.lane].send(LaneCommand::Outbound {
                flow: service.flow,
                command: OutboundCommand::NoticePublishers,
            });
        }
        if (notifiers > 0) != out.has_ear && service.retry_at.is_none() {
            let made = if notifiers > 0 {
                events::open(&self.node, name)
                    .and_then(|factory| EventListener::new(&factory))
                    .map(Some)
            } else {
                Ok(None)
            };
            match made {
                Ok(ear) => {
                    out.has_ear = ear.is_some();
                    tracing::debug!("service {name:?}: events heard: {}", out.has_ear);
                    self.lanes[service.plan.lane].send(LaneCommand::Outbound {
                        flow: service.flow,
                        command: OutboundCommand::SetListener(ear),
                    });
                }
                Err(reason) => {
                    service.retry_at = Some(now + RETRY);
                    service.complain(
                        name,
                        format!(
                            "{reason}; without it the gateway looks for messages by the clock; trying again"
                        ),
                    );
                }
            }
        }
        let Some(out) = &mut service.outbound else { return };
        if out.channels.is_empty() && (out.lost.is_empty() || publishers == 0) {
            service.outbound = None;
            if let Some(inbound) = &service.inbound {
                inbound.backpressure.set_own_subscriber(0);
            }
            self.lanes[service.plan.lane].send(LaneCommand::Outbound {
                flow: service.flow,
                command: OutboundCommand::End,
            });
        }
    }
}
