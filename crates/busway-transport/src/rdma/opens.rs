//! Channels of one conversation that are being opened, and weak handles of the queue pairs of open
//! ones, so that a lost conversation, a disconnecting peer or a removed device ends them. Owned by
//! the link; control thread.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::channel_kind::ChannelKind;
use super::cm::{CmEvent, CmEventKind, CmId, EventChannel, MOST_PORTS};
use super::device::Device;
use super::error::RdmaError;
use super::landing::Request;
use super::queue_pair::{ENDED_BY_PEER, QueuePair};
use crate::contract::{ChannelEnd, ChannelId, ChannelSpec, Direction, Message, Receiver, Sender};
use crate::session::landing::Landing;
use crate::session::mailbox::DroppedSenders;

/// A channel that is not open by then, though the peer should be ready for it, is reported as
/// failed.
const GIVE_UP_AFTER: Duration = Duration::from_secs(5);

/// A channel of a link, in this host's role.
pub(super) type Key = (Direction, ChannelId);

/// A channel whose opening has ended.
pub(super) type Done<M> = (Key, Result<ChannelEnd<M>, String>);

/// What all openings of one conversation have in common.
pub(super) struct Context<'a> {
    pub(super) events: &'a Arc<EventChannel>,
    pub(super) device: &'a Arc<Device>,
    pub(super) dropped: &'a Arc<DroppedSenders>,
    /// This process's session.
    pub(super) session: u64,
    /// The peer's session.
    pub(super) peer_session: u64,
    pub(super) now: Instant,
}

struct Expected<F: ChannelKind> {
    channel: ChannelId,
    prepared: F::Prepared,
}

/// What makes a sender of the receiver's answer.
type Finish<M> = Box<dyn FnOnce(&[u8]) -> Result<Box<dyn Sender<M>>, String> + Send>;

/// What a sender connects to, kept until it has asked.
struct Target<F: ChannelKind> {
    place: F::CheckedLanding,
    spec: ChannelSpec,
    token: u64,
    /// This host's session and the peer's.
    sessions: [u64; 2],
    local: IpAddr,
    address: SocketAddr,
    /// How many local ports were in use, at most [`MOST_PORTS`].
    ports_in_use: u32,
}

enum Stage<F: ChannelKind, M: Message> {
    /// The address or the route is being looked for.
    Resolving(CmId, Target<F>),
    /// The receiver was asked.
    Asked(Finish<M>, Established),
    /// The sender was accepted and has not confirmed.
    Accepted(Box<dyn Receiver>, Established),
}

/// The queue pair of a channel, for the time when it is open.
struct Established {
    pair: Arc<QueuePair>,
    /// The end of the conversation does not end it.
    outlives: bool,
}

/// An open channel.
struct Live {
    key: Key,
    pair: Weak<QueuePair>,
    /// The end of the conversation does not end it; then `key` may be another conversation's.
    outlives: bool,
}

impl Live {
    fn disconnect(&self, why: &str) {
        if let Some(pair) = self.pair.upgrade() {
            pair.disconnect(why);
        }
    }
}

struct Opening<F: ChannelKind, M: Message> {
    key: Key,
    give_up_at: Instant,
    stage: Stage<F, M>,
}

pub(super) struct Opens<F: ChannelKind, M: Message> {
    /// Receivers whose sender has not connected, by token.
    expected: HashMap<u64, Expected<F>>,
    /// By the number of their id.
    opening: HashMap<u64, Opening<F, M>>,
    live: HashMap<u64, Live>,
    /// The last number given to an id.
    last_number: u64,
}

impl<F: ChannelKind, M: Message> Opens<F, M> {
    /// `first_number` and all that follow name ids of channels.
    pub(super) fn new(first_number: u64) -> Self {
        Opens {
            expected: HashMap::new(),
            opening: HashMap::new(),
            live: HashMap::new(),
            last_number: first_number,
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Waits for the sender that knows the token.
    pub(super) fn expect(&mut self, channel: ChannelId, token: u64, prepared: F::Prepared) {
        self.expected.insert(token, Expected { channel, prepared });
    }

    /// Begins to connect to a receiver.
    pub(super) fn dial(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &Landing,
        place: F::CheckedLanding,
        local: IpAddr,
        context: &Context<'_>,
    ) -> Result<(), RdmaError> {
        let target = Target {
            place,
            spec: *spec,
            token: landing.token,
            sessions: [context.session, context.peer_session],
            local,
            address: landing.address,
            ports_in_use: 0,
        };
        let key = (Direction::Send, channel);
        self.resolve(key, context.now + GIVE_UP_AFTER, target, context)
    }

    /// Looks for the way to the target, with a new id and so a new local port.
    fn resolve(
        &mut self,
        key: Key,
        give_up_at: Instant,
        target: Target<F>,
        context: &Context<'_>,
    ) -> Result<(), RdmaError> {
        let number = self.next_number();
        let id = CmId::new(context.events, number)?;
        id.resolve_address(target.local, target.address)?;
        let opening = Opening {
            key,
            give_up_at,
            stage: Stage::Resolving(id, target),
        };
        self.opening.insert(number, opening);
        Ok(())
    }

    /// Somebody connects: accepts it if it is the sender of a channel that is waited for.
    pub(super) fn requested(&mut self, mut id: CmId, data: &[u8], context: &Context<'_>) -> Option<Done<M>> {
        let request = Request::decode(data).filter(|request| {
            request.from_session == context.peer_session
                && request.to_session == context.session
                && self
                    .expected
                    .get(&request.token)
                    .is_some_and(|expected| expected.channel == request.channel)
        });
        let Some((request, expected)) = request.and_then(|request| {
            let expected = self.expected.remove(&request.token)?;
            Some((request, expected))
        }) else {
            tracing::debug!("{}: refused a connection for no channel of this session", F::NAME);
            id.reject();
            return None;
        };
        let number = self.next_number();
        id.set_context(number);
        let key = (Direction::Receive, expected.channel);
        let accepted =
            F::accept(expected.prepared, context.device, id, &request.request).and_then(|accepted| {
                accepted
                    .pair
                    .id()
                    .accept(&accepted.answer, context.device.ack_timeout())
                    .map_err(|error| error.to_string())?;
                Ok(accepted)
            });
        match accepted {
            Ok(accepted) => {
                let opening = Opening {
                    key,
                    give_up_at: context.now + GIVE_UP_AFTER,
                    stage: Stage::Accepted(
                        accepted.receiver,
                        Established {
                            pair: accepted.pair,
                            outlives: accepted.outlives_conversation,
                        },
                    ),
                };
                self.opening.insert(number, opening);
                None
            }
            // The id is gone, which refuses the sender.
            Err(error) => Some((key, Err(error))),
        }
    }

    /// Takes an event of an open channel; whether it was one.
    pub(super) fn event_of_open(&self, event: &CmEvent) -> bool {
        let Some(live) = self.live.get(&event.context) else {
            return false;
        };
        if matches!(event.kind, CmEventKind::Disconnected) {
            live.disconnect(ENDED_BY_PEER);
        }
        true
    }

    fn opened(&mut self, number: u64, key: Key, established: &Established) {
        let live = Live {
            key,
            pair: Arc::downgrade(&established.pair),
            outlives: established.outlives,
        };
        self.live.insert(number, live);
    }

    /// Continues the opening that the event belongs to.
    pub(super) fn event(&mut self, event: &CmEvent, context: &Context<'_>) -> Option<Done<M>> {
        if self.event_of_open(event) {
            return None;
        }
        let Opening {
            key,
            give_up_at,
            stage,
        } = self.opening.remove(&event.context)?;
        let next = match (stage, event.kind) {
            (Stage::Resolving(id, target), CmEventKind::AddressResolved) => id
                .resolve_route()
                .map(|()| Stage::Resolving(id, target))
                .map_err(|error| error.to_string()),
            (Stage::Resolving(id, mut target), CmEventKind::RouteResolved) => {
                match ask::<F, M>(id, key.1, &target, context) {
                    Err(Unasked::PortInUse(_)) if target.ports_in_use < MOST_PORTS => {
                        target.ports_in_use += 1;
                        let begun = self.resolve(key, give_up_at, target, context);
                        return begun.err().map(|error| (key, Err(error.to_string())));
                    }
                    Err(Unasked::PortInUse(why) | Unasked::Failed(why)) => Err(why),
                    Ok(stage) => Ok(stage),
                }
            }
            (Stage::Asked(finish, pair), CmEventKind::Established) => {
                let sender = finish(&event.data);
                if sender.is_ok() {
                    self.opened(event.context, key, &pair);
                }
                return Some((key, sender.map(ChannelEnd::Sender)));
            }
            (Stage::Accepted(receiver, pair), CmEventKind::Established) => {
                self.opened(event.context, key, &pair);
                return Some((key, Ok(ChannelEnd::Receiver(receiver))));
            }
            (_, CmEventKind::Failed(why)) => Err(format!("{why}{}", event.reason())),
            (_, CmEventKind::Rejected) => Err(format!("the peer refused the connection{}", event.reason())),
            (_, CmEventKind::Disconnected) => Err("the peer closed the connection at once".into()),
            (stage, _) => Ok(stage),
        };
        match next {
            Ok(stage) => {
                let opening = Opening {
                    key,
                    give_up_at,
                    stage,
                };
                self.opening.insert(event.context, opening);
                None
            }
            Err(why) => Some((key, Err(why))),
        }
    }

    /// Abandons what is late, and removes ends that were dropped.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<Done<M>> {
        self.live.retain(|_, live| live.pair.strong_count() > 0);
        let late = self.opening.extract_if(|_, opening| now >= opening.give_up_at);
        late.map(|(_, opening)| {
            let what = match opening.stage {
                Stage::Resolving(..) => "no way to the peer was found over RDMA",
                Stage::Asked(..) => "the peer did not accept the connection",
                Stage::Accepted(..) => "the peer did not confirm the connection",
            };
            (opening.key, Err(format!("{what} within {GIVE_UP_AFTER:?}")))
        })
        .collect()
    }

    /// When [`tick`](Self::tick) is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.opening.values().map(|opening| opening.give_up_at).min()
    }

    /// Forgets a channel.
    pub(super) fn close(&mut self, key: Key) {
        if key.0 == Direction::Receive {
            self.expected.retain(|_, expected| expected.channel != key.1);
        }
        self.opening.retain(|_, opening| opening.key != key);
        self.live
            .retain(|_, live| (live.outlives || live.key != key) && live.pair.strong_count() > 0);
    }

    /// Ends everything. Ends in use drain what has arrived and then fail for this reason.
    pub(super) fn void(&mut self, why: &str) {
        self.live.values().for_each(|live| live.disconnect(why));
        self.live.clear();
        self.end_conversation(why);
    }

    /// As [`void`](Self::void), but for open channels that outlive the conversation.
    pub(super) fn end_conversation(&mut self, why: &str) {
        self.live.retain(|_, live| {
            if !live.outlives {
                live.disconnect(why);
            }
            live.outlives
        });
        self.expected.clear();
        self.opening.clear();
    }
}

/// Why a sender could not ask for its connection.
enum Unasked {
    /// Somebody else has the local port that the system chose.
    PortInUse(String),
    /// Another port would not help.
    Failed(String),
}

/// Makes the sender's queue pair and asks the receiver for the connection.
fn ask<F: ChannelKind, M: Message>(
    id: CmId,
    channel: ChannelId,
    target: &Target<F>,
    context: &Context<'_>,
) -> Result<Stage<F, M>, Unasked> {
    let place = target.place.clone();
    let asking =
        F::connect::<M>(place, context.device, id, &target.spec, context.dropped).map_err(Unasked::Failed)?;
    let request = Request {
        channel,
        token: target.token,
        from_session: target.sessions[0],
        to_session: target.sessions[1],
        request: asking.request,
    };
    let connecting = asking
        .pair
        .id()
        .connect(&request.encode(), context.device.ack_timeout());
    match connecting {
        Ok(()) => Ok(Stage::Asked(
            asking.finish,
            Established {
                pair: asking.pair,
                outlives: asking.outlives_conversation,
            },
        )),
        Err(error) if error.is_address_in_use() => Err(Unasked::PortInUse(error.to_string())),
        Err(error) => Err(Unasked::Failed(error.to_string())),
    }
}
