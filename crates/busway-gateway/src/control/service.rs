//! An iceoryx2 service as an endpoint: its programs here, and the gateway's parts in it.
//!
//! Plain state; [`super::service_flow`] decides by it. Called by it and by [`super::core`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::fact::{Action, LocalEvents, LocalService};
use super::link::{OUTAGE_HOLD, REOFFER};
use super::plan::Plan;
use super::shared::{Part, Shared};
use crate::description::ServiceDescription;
use crate::lane::{ChannelKey, FlowId};
use crate::protocol::ControlMessage;

/// What was refused is tried again after this time.
pub const RETRY: Duration = Duration::from_secs(1);

/// For how long our subscriber stays for a host that has no channel, to count what it misses.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// Until then.
    pub until: Instant,
    /// The channel that moves to a better link, if that is why: the host may take a while to read
    /// what came over it.
    pub moves: Option<ChannelKey>,
}

impl Hold {
    pub(super) fn until(until: Instant) -> Hold {
        Hold { until, moves: None }
    }
}

/// See the module.
pub struct ServiceEndpoint {
    /// From the system file.
    pub plan: Plan,
    /// The programs of this host; `None`: no program here has it open.
    pub programs: Option<LocalService>,
    /// Those of its companion event service.
    pub events: LocalEvents,
    /// Whether the gateway holds the service open, and by which description.
    pub held: Part,
    pub(super) description: Option<ServiceDescription>,
    /// Our publisher, for channels that arrive.
    pub publisher: Part,
    /// After a fault: when the publisher may be made anew.
    pub(super) replace_publisher_at: Option<Instant>,
    pub(super) has_notifier: bool,
    /// Subscribers that our publisher knows of.
    pub(super) subscribers: usize,
    /// Our subscriber, for channels that leave.
    pub subscriber: Part,
    pub(super) has_listener: bool,
    /// Publishers that our subscriber knows of.
    pub(super) publishers: usize,
    /// Hosts that wanted the service when their last channel ended.
    pub(super) holds: BTreeMap<String, Hold>,
    /// What the peers were sent last, as in [`ControlMessage::Offer`].
    offered: Option<(ServiceDescription, Option<u64>)>,
    /// After something was refused: when to try again.
    pub(super) retry_at: Option<Instant>,
}

impl ServiceEndpoint {
    /// A service that nobody has done anything with.
    pub fn new(plan: Plan) -> ServiceEndpoint {
        ServiceEndpoint {
            plan,
            programs: None,
            events: LocalEvents::default(),
            held: Part::Absent,
            description: None,
            publisher: Part::Absent,
            replace_publisher_at: None,
            has_notifier: false,
            subscribers: 0,
            subscriber: Part::Absent,
            has_listener: false,
            publishers: 0,
            holds: BTreeMap::new(),
            offered: None,
            retry_at: None,
        }
    }

    /// Whether something of it depends on time.
    pub fn needs_tick(&self) -> bool {
        self.retry_at.is_some()
            || !self.holds.is_empty() && self.subscriber != Part::Absent
            || self.replace_publisher_at.is_some()
    }

    /// The offer that peers were sent last, as a message.
    pub fn offer(&self) -> Option<ControlMessage> {
        let (description, longest_bytes) = self.offered.clone()?;
        Some(ControlMessage::Offer {
            description,
            longest_bytes,
        })
    }

    /// A usable link to the host came up: it opens a channel again soon, or never. A host that
    /// moves is not hurried.
    pub fn peer_is_back(&mut self, peer: &str, now: Instant) {
        if let Some(hold) = self.holds.get_mut(peer).filter(|hold| hold.moves.is_none()) {
            hold.until = hold.until.min(now + REOFFER);
        }
    }

    /// A link to the host went down, perhaps one that had just come up. `can_ask`: the host can
    /// still open a channel over another one.
    pub fn peer_link_down(&mut self, peer: &str, link: usize, can_ask: bool, now: Instant) {
        let Some(hold) = self.holds.get_mut(peer) else {
            return;
        };
        if hold.moves.is_some_and(|key| key.link == link) {
            // What still came over the old channel is lost with it.
            hold.moves = None;
            hold.until = hold.until.min(now + REOFFER);
        }
        if !can_ask {
            hold.until = now + OUTAGE_HOLD;
        }
    }

    /// The host whose channel moved wants no other one. Returns whether there was a hold for it.
    pub fn forget_move(&mut self, key: ChannelKey) -> bool {
        let before = self.holds.len();
        self.holds.retain(|_, hold| hold.moves != Some(key));
        self.holds.len() < before
    }

    /// A fault has put private memory into our publisher's segment: it is replaced.
    pub fn publisher_failed(&mut self, now: Instant) {
        if self.publisher == Part::Ready {
            self.replace_publisher_at = Some(now + RETRY);
        }
    }

    pub(super) fn send_offer(&mut self, name: &str, shared: &mut Shared) {
        let programs = self.programs.as_ref().filter(|programs| programs.nodes > 0);
        let offer = programs.map(|programs| (programs.description.clone(), programs.longest_bytes));
        if offer == self.offered {
            return;
        }
        self.offered = offer;
        let message = self.offer().unwrap_or_else(|| ControlMessage::Withdraw {
            service: name.to_string(),
        });
        for link in 0..shared.links.len() {
            if shared.links[link].is_usable() {
                shared.send(link, message.clone());
            }
        }
    }

    pub(super) fn set_notifier(&mut self, flow: FlowId, shared: &mut Shared) {
        let is_wanted = self.events.listeners > 0;
        if self.publisher == Part::Ready && is_wanted != self.has_notifier && self.retry_at.is_none() {
            self.has_notifier = is_wanted;
            shared.act(Action::SetNotifier { flow, is_wanted });
        }
    }

    pub(super) fn ask_to_hold(
        &mut self,
        flow: FlowId,
        description: &ServiceDescription,
        shared: &mut Shared,
    ) {
        self.held = Part::Asked;
        self.description = Some(description.clone());
        let description = Box::new(description.clone());
        shared.act(Action::HoldService { flow, description });
    }
}
