//! The conversation with the peers: links up and down, and what they say.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use busway_transport::{ChannelId, ChannelSpec, Direction, Link, LinkEvent, PeerHello, WaitFor};

use super::Gateway;
use super::channels::has_other;
use super::large::LargeOpening;
use super::port_channel::Asked;
use super::service::{Hold, InLane};
use super::unconfirmed::Unconfirmed;
use crate::clock::{measured, monotonic_ns};
use crate::description::ServiceDescription;
use crate::iox::sample::Outgoing;
use crate::lane::{ChannelKey, Ending, FlowId, InboundCommand, Lane, LaneCommand, OutboundCommand, Report};
use crate::protocol::{self, Say};

/// What a lost peer offered is held for this long: mirrors stay, losses are counted for it.
pub const OUTAGE_HOLD: Duration = Duration::from_secs(60);
/// A peer that is back has this long to repeat its offers.
pub(super) const REOFFER: Duration = Duration::from_secs(2);

/// What a peer offers.
pub struct RemoteOffer {
    /// Types and settings.
    pub description: ServiceDescription,
    /// As in [`Say::Offer`].
    pub longest_bytes: Option<u64>,
    /// Set while the offer is not confirmed, because the link is or was down: when it lapses.
    pub lapses_at: Option<Instant>,
}

/// One link.
pub struct LinkState {
    /// Index of the `[[link]]`.
    pub number: usize,
    /// The host at the other end.
    pub peer: String,
    /// The link.
    pub link: Box<dyn Link<Outgoing>>,
    /// The peer's hello, while the conversation stands.
    pub up: Option<PeerHello>,
    /// When it came up last.
    up_since: Option<Instant>,
    /// Why it is down or refused.
    pub reason: Option<String>,
    /// Whether the peer speaks our language.
    pub compatible: bool,
    /// By service.
    pub offers: HashMap<String, RemoteOffer>,
    /// What channels that were given up had not been confirmed.
    pub(super) unconfirmed: Unconfirmed,
    next_channel: u32,
    lanes_with_doorbell: HashSet<u32>,
}

impl LinkState {
    /// Not up yet.
    pub fn new(number: usize, peer: String, link: Box<dyn Link<Outgoing>>) -> LinkState {
        LinkState {
            number,
            peer,
            link,
            up: None,
            up_since: None,
            reason: None,
            compatible: false,
            offers: HashMap::new(),
            unconfirmed: Unconfirmed::default(),
            next_channel: 0,
            lanes_with_doorbell: HashSet::new(),
        }
    }

    /// The bus's name.
    pub fn bus(&self) -> &'static str {
        self.link.bus()
    }

    /// Whether services can cross now.
    pub fn is_usable(&self) -> bool {
        self.up.is_some() && self.compatible
    }

    /// Whether an offer may lapse.
    pub fn needs_tick(&self) -> bool {
        self.offers.values().any(|offer| offer.lapses_at.is_some())
    }

    /// Says something; a link that goes down meanwhile tells so itself.
    pub fn say(&mut self, say: &Say) {
        if self.up.is_some() {
            let _ = self.link.send_control(&say.encode());
        }
    }

    /// A number that no other channel of this session has.
    pub fn new_channel(&mut self) -> ChannelId {
        self.next_channel = self.next_channel.wrapping_add(1);
        ChannelId(self.next_channel)
    }

    /// The lane of this number is gone.
    pub fn forget_lane(&mut self, number: u32) {
        self.lanes_with_doorbell.remove(&number);
    }

    /// Gives the lane the link's doorbell, if it needs one and has none.
    pub(super) fn give_doorbell(&mut self, index: usize, lane: &Lane, number: u32, wait_for: WaitFor) {
        if wait_for == WaitFor::Doorbell
            && !self.lanes_with_doorbell.contains(&number)
            && let Some(bell) = self.link.doorbell(number)
        {
            self.lanes_with_doorbell.insert(number);
            lane.send(LaneCommand::SetDoorbell {
                link: index,
                doorbell: Some(bell),
            });
        }
    }
}

impl Gateway<'_> {
    /// Takes in what the links have to tell.
    pub(super) fn poll_links(&mut self, now: Instant) {
        for index in 0..self.links.len() {
            while let Some(event) = self.links[index].link.poll(now) {
                match event {
                    LinkEvent::Up(hello) => self.link_up(index, hello, now),
                    LinkEvent::Down(reason) => self.link_down(index, reason, now),
                    LinkEvent::Refused(reason) => {
                        let link = &mut self.links[index];
                        tracing::warn!("link to {:?} over {}: refused: {reason}", link.peer, link.bus());
                        link.reason = Some(reason);
                    }
                    LinkEvent::Control(bytes) => match Say::decode(&bytes) {
                        Some(say) => self.hear(index, say),
                        None => {
                            let peer = &self.links[index].peer;
                            tracing::warn!(
                                "{peer:?} sent {} bytes that are no message of ours; passed over",
                                bytes.len()
                            );
                        }
                    },
                    LinkEvent::Channel(direction, channel, end) => {
                        self.channel_ready(index, direction, channel, end);
                    }
                }
            }
        }
    }

    fn link_up(&mut self, index: usize, hello: PeerHello, now: Instant) {
        let link = &mut self.links[index];
        link.compatible = hello.application == protocol::application();
        link.reason = None;
        if link.compatible {
            tracing::info!("link to {:?} over {} is up", link.peer, link.bus());
        } else {
            let reason = format!(
                "{:?} runs {:?}, this host {:?}: nothing is carried until both run the same",
                link.peer,
                hello.application,
                protocol::application()
            );
            tracing::warn!("link to {:?} over {}: {reason}", link.peer, link.bus());
            link.reason = Some(reason);
        }
        link.up = Some(hello);
        link.up_since = Some(now);
        for offer in link.offers.values_mut() {
            offer.lapses_at = Some(now + REOFFER);
        }
        if !link.compatible {
            return;
        }
        self.ports.link_up(index, &mut self.links, now);
        let link = &mut self.links[index];
        let peer = link.peer.clone();
        for (name, service) in &mut self.services {
            service.rests.came_up(index, now);
            if let Some((description, longest_bytes)) = &service.offered {
                link.say(&Say::Offer {
                    description: description.clone(),
                    longest_bytes: *longest_bytes,
                });
            }
            // The peer asks over this link, if it still wants the service: not over one that may not carry it.
            if let Some(hold) = service.outbound.as_mut().and_then(|out| out.lost.get_mut(&peer))
                && hold.moves.is_none()
                && service.plan.may_take(link.bus())
            {
                hold.until = hold.until.min(now + REOFFER);
            }
            self.dirty.insert(name.clone());
        }
    }

    /// A link to `peer` is lost, perhaps one that was back for a moment only: what it can't ask for over any other link is held as from the beginning.
    fn hold_for_lost(&mut self, index: usize, peer: &str, now: Instant) {
        for service in self.services.values_mut() {
            let Some(hold) = service.outbound.as_mut().and_then(|out| out.lost.get_mut(peer)) else {
                continue;
            };
            if hold.moves.is_some_and(|key| key.link == index) {
                // What still came by it does not any more: it asks soon, or never.
                hold.moves = None;
                hold.until = hold.until.min(now + REOFFER);
            }
            let can_ask =
                |link: &LinkState| link.peer == peer && link.is_usable() && service.plan.may_take(link.bus());
            if !self.links.iter().any(can_ask) {
                hold.until = now + OUTAGE_HOLD;
            }
        }
    }

    fn link_down(&mut self, index: usize, reason: String, now: Instant) {
        let link = &mut self.links[index];
        tracing::warn!(
            "link to {:?} over {} is down: {reason}; trying again",
            link.peer,
            link.bus()
        );
        link.up = None;
        let stood = link
            .up_since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        link.reason = Some(reason);
        link.unconfirmed.lost(now);
        for offer in link.offers.values_mut() {
            offer.lapses_at = Some(now + OUTAGE_HOLD);
        }
        self.dirty.extend(link.offers.keys().cloned());
        let peer = link.peer.clone();
        for service in self.services.values_mut() {
            if has_other(&self.links, index, |bus| service.plan.may_take(bus)) {
                service.rests.went_down(index, stood, now);
            }
        }
        self.hold_for_lost(index, &peer, now);
        let gone: Vec<_> = self
            .channels
            .keys()
            .filter(|(_, key)| key.link == index)
            .copied()
            .collect();
        for (direction, key) in gone {
            let Some(name) = self.channels.remove(&(direction, key)) else {
                continue;
            };
            self.links[index].link.close(direction, ChannelId(key.channel));
            let Some(service) = self.services.get_mut(&name) else {
                continue;
            };
            match direction {
                Direction::Send => {
                    if let Some(out) = &mut service.outbound
                        && let Some(channel) = out.channels.remove(&key)
                    {
                        // The peer may have noticed first and have moved to another link already.
                        let ending = if !channel.is_main() || out.reaches(&peer) {
                            Ending::Replaced
                        } else {
                            out.lost.insert(peer.clone(), Hold::until(now + OUTAGE_HOLD));
                            Ending::Lost
                        };
                        self.lanes[service.plan.lane].send(LaneCommand::Outbound {
                            flow: service.flow,
                            command: OutboundCommand::EndSender { key, ending },
                        });
                    }
                }
                Direction::Receive => {
                    if let Some(inbound) = &mut service.inbound
                        && inbound.channels.remove(&key).is_some()
                    {
                        let lane = lane_of(&self.lanes, &inbound.lane);
                        lane.send(LaneCommand::Inbound {
                            flow: service.flow,
                            command: InboundCommand::EndReceiver { key },
                        });
                    }
                }
            }
            self.dirty.insert(name);
        }
        self.ports
            .link_down((index, stood), &mut self.links, &self.lanes, now);
        // After the ends, so that lanes drain what has arrived first.
        for number in std::mem::take(&mut self.links[index].lanes_with_doorbell) {
            if let Some(lane) = self.lanes.get(number as usize) {
                lane.send(LaneCommand::SetDoorbell {
                    link: index,
                    doorbell: None,
                });
            }
            for service in self.services.values() {
                if let Some(InLane::Own(lane, own)) = service.inbound.as_ref().map(|inbound| &inbound.lane)
                    && *own == number
                {
                    lane.send(LaneCommand::SetDoorbell {
                        link: index,
                        doorbell: None,
                    });
                }
            }
        }
    }

    /// Forgets offers of peers that have not come back.
    pub(super) fn expire_offers(&mut self, now: Instant) {
        for link in &mut self.links {
            let dirty = &mut self.dirty;
            link.offers.retain(|name, offer| {
                let lapsed = offer.lapses_at.is_some_and(|at| now >= at);
                if lapsed {
                    dirty.insert(name.clone());
                }
                !lapsed
            });
        }
    }

    fn hear(&mut self, index: usize, say: Say) {
        if !self.links[index].is_usable() {
            return;
        }
        let Some(say) = self.hear_ports(index, say) else {
            return;
        };
        match say {
            Say::Offer {
                description,
                longest_bytes,
            } => {
                let name = description.name.clone();
                let offer = RemoteOffer {
                    description,
                    longest_bytes,
                    lapses_at: None,
                };
                self.links[index].offers.insert(name.clone(), offer);
                self.dirty.insert(name);
            }
            Say::Withdraw { service } => {
                self.links[index].offers.remove(&service);
                self.dirty.insert(service);
            }
            Say::Open {
                channel,
                service,
                spec,
                landing,
                large_from_bytes,
            } => {
                let spec = ChannelSpec::from(spec);
                let large = large_from_bytes.map(|from_bytes| LargeOpening::new(from_bytes, &spec));
                self.open_sender(index, channel, service, &spec, &landing, large);
            }
            Say::Use { channel } => self.may_use(ChannelKey { link: index, channel }),
            Say::Close { channel, parting } => self.close_sender(index, channel, parting),
            Say::Closed { channel, reason } => self.sender_closed(index, channel, reason),
            Say::OpenPort { .. } | Say::AskTime { .. } | Say::TellTime { .. } => {}
        }
    }

    /// Gives the ports what concerns them; the rest comes back.
    fn hear_ports(&mut self, index: usize, say: Say) -> Option<Say> {
        let heard_ns = monotonic_ns();
        let key = |channel| ChannelKey { link: index, channel };
        match say {
            Say::OpenPort {
                channel,
                name,
                spec,
                landing,
            } => {
                let asked = Asked {
                    key: key(channel),
                    spec: spec.into(),
                    landing,
                };
                self.ports.open_sender(asked, &name, &mut self.links, &self.lanes);
            }
            Say::Close { channel, .. } if self.ports.owns(Direction::Send, key(channel)) => {
                self.ports
                    .close_sender(key(channel), &mut self.links, &self.lanes);
            }
            Say::Closed { channel, reason } if self.ports.owns(Direction::Receive, key(channel)) => {
                self.ports
                    .sender_closed(key(channel), reason, &mut self.links, &self.lanes);
            }
            Say::AskTime { asked_ns } => self.links[index].say(&Say::TellTime {
                asked_ns,
                heard_ns,
                answered_ns: monotonic_ns(),
            }),
            Say::TellTime {
                asked_ns,
                heard_ns: there_ns,
                answered_ns,
            } => {
                let offset = measured(asked_ns, there_ns, answered_ns, heard_ns);
                self.ports.hear_time(index, offset, &mut self.links);
            }
            other => return Some(other),
        }
        None
    }

    /// Takes in what the lanes have to tell.
    pub(super) fn hear_reports(&mut self, now: Instant) {
        while let Ok(report) = self.reports.try_recv() {
            match report {
                Report::SenderEnded {
                    flow: FlowId::Core(number),
                    failure,
                    ..
                }
                | Report::ReceiverEnded {
                    flow: FlowId::Core(number),
                    failure,
                    ..
                } => self.cores.hear_report(number, failure),
                Report::SenderEnded {
                    flow: FlowId::Port(number),
                    key,
                    failure,
                    ..
                }
                | Report::ReceiverEnded {
                    flow: FlowId::Port(number),
                    key,
                    failure,
                } => self.ports.hear_report(number, key, failure, &mut self.links),
                Report::SenderEnded {
                    flow,
                    key,
                    unacknowledged,
                    failure,
                } => {
                    self.hold_unconfirmed(flow, key, unacknowledged, now);
                    self.sender_ended(key, failure);
                }
                Report::ReceiverEnded { key, failure, .. } => self.receiver_ended(key, failure),
                Report::ReceiverAdded { key, .. } => self.receiver_added(key),
                Report::PublisherFailed { flow } => self.publisher_failed(flow, now),
            }
        }
    }

    fn publisher_failed(&mut self, flow: FlowId, now: Instant) {
        let name = self.names.get(&flow);
        let Some((name, service)) = name.and_then(|name| Some((name, self.services.get_mut(name)?))) else {
            return;
        };
        let complaint = "no memory behind a sample: /dev/shm is full; trying again";
        service.complain(name, complaint.into());
        if let Some(inbound) = &mut service.inbound {
            inbound.replace_publisher_at = Some(now + super::reconcile::RETRY);
        }
    }
}

/// The lane of an inbound half.
pub(super) fn lane_of<'a>(lanes: &'a [Lane], lane: &'a InLane) -> &'a Lane {
    match lane {
        InLane::Shared(index) => &lanes[*index],
        InLane::Own(lane, _) => lane,
    }
}
