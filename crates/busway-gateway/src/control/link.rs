//! What the core knows of one link: whether its conversation stands, and what the peer offers over
//! it.
//!
//! Plain state, changed by [`super::core`] alone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::unacknowledged::Unacknowledged;
use crate::description::ServiceDescription;
use crate::lane::FlowId;

/// Offers of a lost peer stay for this long: mirrors stay, and losses are counted meanwhile.
pub const OUTAGE_HOLD: Duration = Duration::from_secs(60);
/// A peer that is back has this long to repeat its offers and to open its channels again.
pub const REOFFER: Duration = Duration::from_secs(2);

/// A service that a peer offers.
#[derive(Clone, Debug)]
pub struct RemoteOffer {
    /// Types and settings.
    pub description: ServiceDescription,
    /// As in [`ControlMessage::Offer`](crate::protocol::ControlMessage::Offer).
    pub longest_bytes: Option<u64>,
    /// Set while the offer is unconfirmed, because the link is or was down: when it lapses.
    pub lapses_at: Option<Instant>,
}

/// Which link it is; fixed for the life of the gateway.
#[derive(Clone, Debug)]
pub struct LinkProfile {
    /// Index of the `[[link]]` in the system file.
    pub number: usize,
    /// The host at the other end.
    pub peer: String,
    /// The bus's name.
    pub bus: &'static str,
}

/// See the module.
#[derive(Debug)]
pub struct Link {
    /// Which one it is.
    pub profile: LinkProfile,
    /// Since when the conversation stands; `None` while it is down.
    pub up_since: Option<Instant>,
    /// Whether the peer speaks our protocol.
    pub is_compatible: bool,
    /// Why it is down, or why nothing crosses.
    pub reason: Option<String>,
    /// By service.
    pub offers: BTreeMap<String, RemoteOffer>,
    /// Whether a channel that keeps all messages may lose some although the link stands.
    pub may_lose: bool,
    silence_timeout: Duration,
    unacknowledged: Unacknowledged,
    next_channel: u32,
    /// Counts the times that the link came up.
    conversation: u32,
}

impl Link {
    /// Not up yet.
    pub fn new(profile: LinkProfile) -> Link {
        Link {
            profile,
            up_since: None,
            is_compatible: false,
            reason: None,
            offers: BTreeMap::new(),
            may_lose: false,
            silence_timeout: Duration::ZERO,
            unacknowledged: Unacknowledged::default(),
            next_channel: 0,
            conversation: 0,
        }
    }

    /// Whether messages can cross now.
    pub fn is_usable(&self) -> bool {
        self.up_since.is_some() && self.is_compatible
    }

    /// Whether an offer may lapse.
    pub fn needs_tick(&self) -> bool {
        self.offers.values().any(|offer| offer.lapses_at.is_some())
    }

    /// A channel number that no other channel of this session has.
    pub fn new_channel(&mut self) -> u32 {
        self.next_channel = self.next_channel.wrapping_add(1);
        self.next_channel
    }

    /// Counts the times that the link came up: part of the keys of its channels.
    pub fn conversation(&self) -> u32 {
        self.conversation
    }

    /// The conversation stands.
    pub fn came_up(&mut self, is_compatible: bool, may_lose: bool, silence_timeout: Duration, now: Instant) {
        self.up_since = Some(now);
        self.conversation = self.conversation.wrapping_add(1);
        self.is_compatible = is_compatible;
        self.reason = None;
        self.may_lose = may_lose;
        self.silence_timeout = silence_timeout;
        self.set_lapse(now + REOFFER);
    }

    /// The conversation ended. Returns how long it had stood, and the messages of each flow whose
    /// delivery is unknown now.
    pub fn went_down(&mut self, reason: String, now: Instant) -> (Duration, Vec<(FlowId, u64)>) {
        let stood = self
            .up_since
            .take()
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.reason = Some(reason);
        self.set_lapse(now + OUTAGE_HOLD);
        (stood, self.unacknowledged.link_failed(now))
    }

    fn set_lapse(&mut self, at: Instant) {
        for offer in self.offers.values_mut() {
            offer.lapses_at = Some(at);
        }
    }

    /// Forgets offers that have lapsed and returns their services.
    pub fn expire_offers(&mut self, now: Instant) -> Vec<String> {
        let has_lapsed = |offer: &RemoteOffer| offer.lapses_at.is_some_and(|at| now >= at);
        let lapsed: Vec<_> = self
            .offers
            .iter()
            .filter(|(_, offer)| has_lapsed(offer))
            .map(|(name, _)| name.clone())
            .collect();
        for name in &lapsed {
            self.offers.remove(name);
        }
        lapsed
    }

    /// A channel of `flow` ended while the link stands, with so many messages unacknowledged.
    pub fn hold_unacknowledged(&mut self, flow: FlowId, messages: u64, now: Instant) {
        self.unacknowledged
            .hold(flow, messages, self.silence_timeout, now);
    }
}

/// Whether a usable link other than `index` leads to the same host and may be taken.
pub fn has_other(links: &[Link], index: usize, may_take: impl Fn(usize, &Link) -> bool) -> bool {
    links.iter().enumerate().any(|(other, link)| {
        other != index
            && link.profile.peer == links[index].profile.peer
            && link.is_usable()
            && may_take(other, link)
    })
}
