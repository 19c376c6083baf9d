//! Compares what should be of an iceoryx2 service with what is, and asks for the next step: what is
//! offered, what is mirrored, and which ports of the gateway stand for remote ones.
//!
//! The rules, which keep the gateway out of the programs' way:
//! * a host offers what a *program* there has open; a service that only the gateway holds is
//!   nobody's;
//! * the gateway holds a mirror of a service while a peer offers it;
//! * a channel from a peer is open while a program there publishes and one here subscribes; our
//!   publisher exists while such a channel does, or while its link is expected back;
//! * our subscriber exists while a peer has a channel open to us, or is expected back.
//!
//! Over all hosts, each place that the gateway takes in `max_publishers`, `max_subscribers` and
//! `max_nodes` stands for one of a remote program, so what works at home works across hosts. Called
//! by [`super::core`] and [`super::outbound`].

use std::collections::BTreeMap;
use std::time::Instant;

use super::endpoint::Endpoint;
use super::fact::{Action, HoldError};
use super::flow::Flow;
use super::link::{OUTAGE_HOLD, REOFFER};
use super::plan;
use super::routes::{Choice, Wanted};
use super::service::{Hold, RETRY, ServiceEndpoint};
use super::shared::{Part, Shared};
use crate::description::ServiceDescription;
use crate::lane::{ChannelKey, Ending};
use crate::protocol::CloseReason;

/// Whether this host's source can feed a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It can.
    Ready,
    /// It is being made.
    Pending,
    /// It can't, in words for the peer.
    Refused(String),
}

/// What the peers offer of one service.
struct Offers {
    /// By which the service is held: the local description, or the first peer's.
    description: Option<ServiceDescription>,
    /// Whether an offer fits that description.
    is_offered: bool,
    /// Routes from each host that publishes.
    sources: Wanted,
    /// Whether some host publishes, or did before its link went down.
    is_published: bool,
    /// Two hosts mean different things by the name.
    conflict: Option<String>,
}

impl Flow {
    /// The service, if it is one.
    pub fn service(&self) -> Option<&ServiceEndpoint> {
        match &self.endpoint {
            Endpoint::Service(service) => Some(service),
            Endpoint::Port(_) => None,
        }
    }

    /// As [`service`](Self::service), to change it.
    pub fn service_mut(&mut self) -> Option<&mut ServiceEndpoint> {
        match &mut self.endpoint {
            Endpoint::Service(service) => Some(service),
            Endpoint::Port(_) => None,
        }
    }

    /// Compares what should be of a service with what is, and asks for the next step.
    pub fn reconcile_service(&mut self, shared: &mut Shared) {
        let now = shared.now;
        let name = self.name.clone();
        let Some(service) = self.service_mut() else { return };
        if !service.plan.crosses {
            return;
        }
        if service.retry_at.is_some_and(|at| now >= at) {
            service.retry_at = None;
        }
        service.send_offer(&name, shared);
        self.backoff.tick(now);
        let offers = self.offers(shared);
        if let Some(conflict) = &offers.conflict {
            self.complain(conflict.clone(), shared);
        }
        self.hold_service(&offers, shared);
        self.reconcile_destination(&offers, shared);
        self.reconcile_source(shared);
        self.release_service(shared);
    }

    fn offers(&self, shared: &Shared) -> Offers {
        let programs = self.service().and_then(|service| service.programs.as_ref());
        let mut offers = Offers {
            description: programs.map(|programs| programs.description.clone()),
            is_offered: false,
            sources: Wanted::new(),
            is_published: false,
            conflict: None,
        };
        let mut candidates: BTreeMap<&str, Vec<(usize, u64)>> = BTreeMap::new();
        for (index, link) in shared.links.iter().enumerate() {
            let Some(offer) = link.offers.get(&self.name) else {
                continue;
            };
            let peer = &link.profile.peer;
            let reference = offers
                .description
                .get_or_insert_with(|| offer.description.clone());
            if let Some(conflict) = reference.type_conflict(&offer.description) {
                offers.conflict = Some(format!(
                    "{peer:?} and this host {:?} mean different things by it and it is not carried \
                     between them: {conflict}; give one of them another name or the same type",
                    shared.host
                ));
                continue;
            }
            offers.is_offered = true;
            let Some(longest_bytes) = offer.longest_bytes else {
                continue;
            };
            offers.is_published = true;
            if offer.lapses_at.is_none() && link.is_usable() {
                candidates.entry(peer).or_default().push((index, longest_bytes));
            }
        }
        let (Some(description), Some(service)) = (&offers.description, self.service()) else {
            return offers;
        };
        let choice = Choice {
            system: shared.system,
            links: &shared.links,
            plan: &service.plan,
            backoff: &self.backoff,
            is_any_length: plan::is_any_length(description),
            now: shared.now,
        };
        let routes = |(peer, links): (&str, Vec<_>)| Some((peer.to_string(), choice.routes(&links)?));
        offers.sources = candidates.into_iter().filter_map(routes).collect();
        offers
    }

    /// Holds the service open while a peer offers it or a port of ours is in it.
    fn hold_service(&mut self, offers: &Offers, shared: &mut Shared) {
        let flow = self.id;
        let Some(service) = self.service_mut() else { return };
        let has_ports = service.publisher != Part::Absent || service.subscriber != Part::Absent;
        if (!offers.is_offered && !has_ports) || service.held != Part::Absent || service.retry_at.is_some() {
            return;
        }
        if let Some(description) = &offers.description {
            service.ask_to_hold(flow, description, shared);
        }
    }

    /// The service is open here, or can't be.
    pub fn service_held(&mut self, result: Result<(), HoldError>, shared: &mut Shared) {
        shared.dirty.insert(self.id);
        let Some(service) = self.service_mut() else { return };
        let Err(error) = result else {
            service.held = Part::Ready;
            return self.open_requested(shared);
        };
        service.held = Part::Absent;
        service.description = None;
        service.retry_at = Some(shared.now + RETRY);
        if !error.is_type_conflict {
            self.complain(format!("{}; trying again", error.reason), shared);
        }
        self.refuse_requested(&error.reason, shared);
    }

    /// Releases a service that no peer offers and in which no port of ours is left.
    fn release_service(&mut self, shared: &mut Shared) {
        let is_offered = shared
            .links
            .iter()
            .any(|link| link.offers.contains_key(&self.name));
        let flow = self.id;
        let has_requests = !self.outbound.is_empty();
        let Some(service) = self.service_mut() else { return };
        let has_ports = service.publisher != Part::Absent || service.subscriber != Part::Absent;
        if service.held == Part::Ready && !is_offered && !has_ports && !has_requests {
            service.held = Part::Absent;
            service.description = None;
            shared.act(Action::ReleaseService { flow });
        }
    }

    /// What arrives: channels, our publisher, and its companion notifier.
    fn reconcile_destination(&mut self, offers: &Offers, shared: &mut Shared) {
        let (flow, now) = (self.id, shared.now);
        let Some(service) = self.service_mut() else { return };
        service.set_notifier(flow, shared);
        let subscribers = service
            .programs
            .as_ref()
            .map_or(0, |programs| programs.subscribers);
        let wanted = if subscribers > 0 {
            offers.sources.clone()
        } else {
            Wanted::new()
        };
        self.close_unwanted(&wanted, shared);
        let has_channels = !self.inbound.is_empty();
        let Some(service) = self.service_mut() else { return };
        if service.publisher == Part::Ready {
            if subscribers != service.subscribers {
                service.subscribers = subscribers;
                shared.act(Action::NoticeSubscribers { flow });
            }
            let is_expected = subscribers > 0 && offers.is_published;
            if !has_channels && wanted.is_empty() && !is_expected {
                service.publisher = Part::Absent;
                service.replace_publisher_at = None;
                service.has_notifier = false;
                shared.act(Action::DropPublisher { flow });
            }
        }
        if service.publisher == Part::Ready && service.replace_publisher_at.is_some_and(|at| now >= at) {
            service.replace_publisher_at = None;
            service.publisher = Part::Asked;
            shared.act(Action::ReplacePublisher { flow });
        }
        if service.retry_at.is_none() && service.held == Part::Ready {
            self.open_wanted(&wanted, subscribers, shared);
        }
    }

    fn open_wanted(&mut self, wanted: &Wanted, subscribers: usize, shared: &mut Shared) {
        for (peer, routes) in wanted {
            let Some((link, large_from_bytes)) = self.missing_from(peer, *routes) else {
                continue;
            };
            if self.backoff.has(link, shared.now) {
                continue;
            }
            let flow = self.id;
            let Some(service) = self.service_mut() else { return };
            let Some(description) = service.description.clone() else {
                return;
            };
            match service.publisher {
                Part::Ready => {
                    let spec = service.plan.channel_spec(&description);
                    self.open_receiver(peer, link, spec, large_from_bytes, shared);
                }
                Part::Asked => {}
                Part::Absent => {
                    service.publisher = Part::Asked;
                    service.subscribers = subscribers;
                    let waits = service.plan.publisher_waits(&description);
                    shared.act(Action::MakePublisher { flow, waits });
                }
            }
        }
    }

    /// Our publisher is made, or can't be. `was_there`: it was to replace one.
    pub fn publisher_made(&mut self, result: Result<(), String>, was_there: bool, shared: &mut Shared) {
        let now = shared.now;
        shared.dirty.insert(self.id);
        let Some(service) = self.service_mut() else { return };
        match (result, was_there) {
            (Ok(()), false) => service.publisher = Part::Ready,
            (Ok(()), true) => {
                service.publisher = Part::Ready;
                self.complaint = None;
            }
            (Err(reason), false) => {
                service.publisher = Part::Absent;
                service.retry_at = Some(now + RETRY);
                self.complain(format!("can't be received: {reason}; trying again"), shared);
            }
            (Err(reason), true) => {
                service.publisher = Part::Ready;
                service.replace_publisher_at = Some(now + RETRY);
                self.complain(format!("{reason}; trying again"), shared);
            }
        }
    }

    /// The companion notifier is set as asked, or can't be.
    pub fn notifier_set(&mut self, result: Result<(), String>, shared: &mut Shared) {
        let Err(reason) = result else { return };
        let now = shared.now;
        if let Some(service) = self.service_mut() {
            service.has_notifier = !service.has_notifier;
            service.retry_at = Some(now + RETRY);
        }
        self.complain(
            format!("{reason}; programs here are not woken; trying again"),
            shared,
        );
    }

    /// The companion listener is set as asked, or can't be.
    pub fn listener_set(&mut self, result: Result<(), String>, shared: &mut Shared) {
        let Err(reason) = result else { return };
        let now = shared.now;
        if let Some(service) = self.service_mut() {
            service.has_listener = !service.has_listener;
            service.retry_at = Some(now + RETRY);
        }
        self.complain(
            format!("{reason}; without it the gateway looks for messages by the clock; trying again"),
            shared,
        );
    }

    /// Whether the source here can feed channels; asks for what is missing.
    pub fn source(&mut self, shared: &mut Shared) -> Source {
        let flow = self.id;
        let Some(service) = self.service_mut() else {
            return Source::Ready;
        };
        if service.subscriber == Part::Ready {
            return Source::Ready;
        }
        let Some(programs) = &service.programs else {
            return Source::Refused("no program here has it open".into());
        };
        match (service.held, service.subscriber) {
            (Part::Asked, _) | (_, Part::Asked) => Source::Pending,
            (Part::Absent, _) => {
                let description = programs.description.clone();
                service.ask_to_hold(flow, &description, shared);
                Source::Pending
            }
            (Part::Ready, _) => {
                service.subscriber = Part::Asked;
                service.publishers = programs.publishers;
                let description = service.description.as_ref().unwrap_or(&programs.description);
                let when_full = service.plan.when_full(description);
                shared.act(Action::MakeSubscriber { flow, when_full });
                Source::Pending
            }
        }
    }

    /// Our subscriber is made, or can't be.
    pub fn subscriber_made(&mut self, result: Result<(), String>, shared: &mut Shared) {
        let Some(service) = self.service_mut() else { return };
        match result {
            Ok(()) => {
                service.subscriber = Part::Ready;
                self.open_requested(shared);
            }
            Err(reason) => {
                service.subscriber = Part::Absent;
                self.refuse_requested(&reason, shared);
            }
        }
        shared.dirty.insert(self.id);
    }

    /// What leaves: our subscriber, and its companion listener.
    fn reconcile_source(&mut self, shared: &mut Shared) {
        let (flow, now) = (self.id, shared.now);
        let has_channels = !self.outbound.is_empty();
        let Some(service) = self.service_mut() else { return };
        if service.subscriber != Part::Ready {
            return;
        }
        let publishers = service
            .programs
            .as_ref()
            .map_or(0, |programs| programs.publishers);
        service.holds.retain(|_, hold| now < hold.until);
        if publishers != service.publishers {
            service.publishers = publishers;
            shared.act(Action::NoticePublishers { flow });
        }
        let is_wanted = service.events.notifiers > 0;
        if is_wanted != service.has_listener && service.retry_at.is_none() {
            service.has_listener = is_wanted;
            shared.act(Action::SetListener { flow, is_wanted });
        }
        if !has_channels && (service.holds.is_empty() || publishers == 0) {
            service.subscriber = Part::Absent;
            service.has_listener = false;
            service.holds.clear();
            shared.act(Action::DropSubscriber { flow });
        }
    }

    /// How a channel ends whose peer asks for it.
    pub fn ending_for(
        &mut self,
        key: ChannelKey,
        peer: &str,
        is_main: bool,
        reason: CloseReason,
        shared: &Shared,
    ) -> Ending {
        let Some(service) = self.service_mut() else {
            return Ending::Replaced;
        };
        let ending = match reason {
            CloseReason::Drained if service.publishers > 0 && is_main => Ending::Moved,
            CloseReason::Drained => Ending::Drained,
            CloseReason::Unwanted => Ending::Now,
            CloseReason::Failed => Ending::Replaced,
        };
        if ending == Ending::Moved {
            // To a better link: our subscriber stays until it has.
            let hold = Hold {
                until: shared.now + OUTAGE_HOLD,
                moves: Some(key),
            };
            service.holds.insert(peer.to_string(), hold);
        } else if reason != CloseReason::Failed {
            service.forget_move(key);
        }
        ending
    }

    /// The host has a channel again.
    pub fn release_hold(&mut self, peer: &str) {
        if let Some(service) = self.service_mut() {
            service.holds.remove(peer);
        }
    }

    /// A channel to the host failed under a standing link: it opens another one soon.
    pub fn hold_for_return(&mut self, peer: &str, shared: &Shared) {
        self.hold_until(peer, shared.now + REOFFER);
    }

    /// The host's channel ended since no program here published. If one does again by now, the host
    /// opens another channel soon.
    pub fn hold_if_published(&mut self, peer: &str, shared: &Shared) {
        let Some(service) = self.service() else { return };
        let publishers = service
            .programs
            .as_ref()
            .map_or(0, |programs| programs.publishers);
        if publishers > 0 && !service.holds.contains_key(peer) {
            self.hold_for_return(peer, shared);
        }
    }

    /// The link of the host's last channel is down.
    pub fn hold_for_outage(&mut self, peer: &str, shared: &Shared) {
        self.hold_until(peer, shared.now + OUTAGE_HOLD);
    }

    fn hold_until(&mut self, peer: &str, until: Instant) {
        if self.reaches(peer) {
            return;
        }
        if let Some(service) = self.service_mut() {
            service.holds.insert(peer.to_string(), Hold::until(until));
        }
    }
}
