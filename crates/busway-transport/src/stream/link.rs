//! A link over connections: the control conversation, reconnecting, and the opening of channels.
//!
//! One control thread polls it. The link's descriptor is an epoll set with the control connection,
//! the listener shared with other links, the inbox, and every connection that does not belong to
//! a channel end.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use busway_core::control::MAX_BODY_BYTES;

use super::backoff::BackOff;
use super::bus::{Discovered, Heartbeat, Socket, StreamBus, WATCHED};
use super::conversation::Conversation;
use super::inbox::{Inbox, Incoming};
use super::listener::{Listener, Shared};
use super::opening::Opening;
use super::opens::{CONNECT_TIMEOUT, Context, Done, Opens};
use super::receiver::StreamReceiver;
use super::sender::StreamSender;
use crate::contract::Role;
use crate::contract::{
    ChannelEnd, ChannelId, ChannelSpec, Direction, Doorbell, LINGER, Link, LinkEvent, LinkIdentity, Message,
    OpenError, PeerHello,
};
use crate::session::mailbox::Linger;
use crate::session::poller::{Interest, Poller};
use crate::session::token::{Key, draw_token, key_of};

/// How long a link that expects nothing sleeps at most.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// Tokens of the link's poller.
pub(super) const CONTROL: u64 = 1;
const INBOX: u64 = 2;
const LISTENER: u64 = 3;
const LINGERING: u64 = 4;

/// Opens a link to `peer_host` over `bus`, in this role.
///
/// # Errors
/// Another link of this process has the same peer on the same address; no descriptors left.
pub fn open<B: StreamBus, M: Message>(
    shared: &Shared<B>,
    identity: &LinkIdentity,
    peer_host: &str,
    role: Role<B::Address>,
    bus: B,
) -> Result<StreamLink<B, M>, OpenError> {
    let poller = Poller::new()?;
    let inbox = Arc::new(Inbox::new()?);
    poller.add(&*inbox, INBOX, Interest::Read)?;
    let listener = match &role {
        Role::Connect(_) => None,
        Role::Accept(address) => {
            let listener = shared.listener(address, peer_host, &inbox)?;
            poller.add(&*listener, LISTENER, Interest::Read)?;
            Some(listener)
        }
    };
    Ok(StreamLink {
        identity: identity.clone(),
        peer_host: peer_host.to_owned(),
        role,
        bus,
        poller,
        inbox,
        listener,
        state: State::Down { retry_at: None },
        back_off: BackOff::default(),
        said: None,
        opens: Opens::default(),
        lingering: Vec::new(),
        events: VecDeque::new(),
        message: PhantomData,
    })
}

pub(super) enum State<S> {
    /// No conversation; the connecting host tries again then (`None`: now).
    Down { retry_at: Option<Instant> },
    /// The connection is being made.
    Connecting { socket: S, until: Instant },
    /// The peer was greeted and has not answered.
    Greeting {
        conversation: Conversation<S>,
        until: Instant,
    },
    /// Both have greeted.
    Up(Up<S>),
}

pub(super) struct Up<S> {
    pub(super) conversation: Conversation<S>,
    pub(super) peer: PeerHello,
    /// `None` where the bus needs no heartbeat.
    pub(super) next_heartbeat: Option<Instant>,
    /// When this side last checked whether the peer has sent something.
    pub(super) looked_at: Instant,
    /// Whether the poller watches for room to write.
    pub(super) watches_write: bool,
    /// The last round ended before the peer had nothing more to say.
    pub(super) may_say_more: bool,
}

impl<S: Socket> Up<S> {
    /// Gives a sign of life when it is due; an error if the peer has given none for too long.
    fn beat(&mut self, heartbeat: Heartbeat, session: u64, now: Instant) -> Result<(), String> {
        // A host that did not look, for want of CPU time, can't say that nothing came.
        if now.saturating_duration_since(self.looked_at) > heartbeat.timeout / 2 {
            self.conversation.heard_at = now;
        }
        self.looked_at = now;
        let silence = now.saturating_duration_since(self.conversation.heard_at);
        if silence >= heartbeat.timeout {
            return Err(format!("nothing heard for {silence:?}"));
        }
        if self.next_heartbeat.is_none_or(|at| now >= at) {
            self.next_heartbeat = Some(now + heartbeat.every);
            self.conversation.heartbeat(session)?;
        }
        Ok(())
    }

    /// An error if the peer has left the conversation unread for too long.
    fn is_read(&mut self, patience: Duration, now: Instant) -> Result<(), String> {
        self.looked_at = now;
        let stalled = self.conversation.stalled_for(now);
        if stalled >= patience {
            return Err(format!("it has read nothing for {stalled:?}"));
        }
        Ok(())
    }
}

/// See the module.
pub struct StreamLink<B: StreamBus, M: Message> {
    pub(super) identity: LinkIdentity,
    pub(super) peer_host: String,
    pub(super) role: Role<B::Address>,
    pub(super) bus: B,
    pub(super) poller: Poller,
    pub(super) inbox: Arc<Inbox<B::Socket>>,
    pub(super) listener: Option<Arc<Listener<B>>>,
    pub(super) state: State<B::Socket>,
    pub(super) back_off: BackOff,
    /// The last reason given for there being no conversation, so that it is given once.
    pub(super) said: Option<String>,
    pub(super) opens: Opens<B>,
    /// Streams of dropped senders, each with the time when it is abandoned.
    pub(super) lingering: Vec<(Box<dyn Linger>, Instant)>,
    pub(super) events: VecDeque<LinkEvent<M>>,
    pub(super) message: PhantomData<fn(M)>,
}

impl<B: StreamBus, M: Message> StreamLink<B, M> {
    /// Ends the conversation for a reason that only this side knows; both sides report it as down.
    pub(crate) fn hang_up(&mut self, why: &str, now: Instant) {
        if matches!(self.state, State::Up(_)) {
            self.down(why, now);
        }
    }

    fn work(&mut self, now: Instant) {
        for token in self.poller.ready() {
            match token {
                CONTROL => self.control_is_ready(now),
                INBOX => self.read_inbox(now),
                LINGERING => self.pump_lingering(now),
                LISTENER => {}
                WATCHED => self.look(now),
                token => {
                    if let Some(key) = key_of(token) {
                        self.with_opens(now, |opens, context| {
                            opens.ready(key, context).into_iter().collect()
                        });
                    }
                }
            }
        }
        if let Some(trouble) = self.listener.as_ref().and_then(|listener| listener.pump(now)) {
            self.refuse(trouble);
        }
        if matches!(&self.state, State::Up(up) if up.may_say_more) {
            self.hear(now);
        }
        self.look_at_the_clock(now);
        self.watch_for_room();
    }

    fn look_at_the_clock(&mut self, now: Instant) {
        match &mut self.state {
            State::Down { retry_at } => {
                let is_due = retry_at.is_none_or(|at| now >= at);
                self.bus.watch(&self.poller);
                if let Role::Connect(to) = &self.role
                    && is_due
                {
                    self.connect(to.clone(), now);
                }
            }
            State::Connecting { until, .. } if now >= *until => {
                self.fail(&format!("no answer within {CONNECT_TIMEOUT:?}"), now);
            }
            State::Greeting { until, .. } if now >= *until => {
                self.fail("it took the connection but did not greet: is it Busway?", now);
            }
            State::Connecting { .. } | State::Greeting { .. } => {}
            State::Up(up) => {
                let result = match self.bus.heartbeat() {
                    Some(heartbeat) => up.beat(heartbeat, self.identity.session, now),
                    None => up.is_read(self.bus.silence_timeout(), now),
                };
                if let Err(why) = result {
                    self.down(&why, now);
                }
            }
        }
        self.with_opens(now, Opens::tick);
        self.lingering.retain(|(_, until)| now < *until);
    }

    fn read_inbox(&mut self, now: Instant) {
        for mail in self.inbox.take() {
            match mail {
                Incoming::Opened(socket, Opening::Conversation(greeting)) => {
                    self.greeted(socket, &greeting, now)
                }
                Incoming::Opened(socket, Opening::Channel(opening)) => {
                    self.with_opens(now, |opens, context| {
                        opens.arrived(socket, &opening, context).into_iter().collect()
                    });
                }
                Incoming::Linger(mut stream) => {
                    let watched = self.poller.add(stream.fd(), LINGERING, Interest::ReadWrite);
                    if watched.is_ok() && !stream.pump() {
                        self.lingering.push((stream, now + LINGER));
                    }
                }
            }
        }
    }

    fn pump_lingering(&mut self, now: Instant) {
        let poller = &self.poller;
        self.lingering.retain_mut(|(stream, until)| {
            if now >= *until || stream.pump() {
                return false;
            }
            // Everything has left: what is awaited now is the peer's last credit and its farewell.
            if !stream.waits_for_room() {
                let _ = poller.modify(stream.fd(), LINGERING, Interest::Read);
            }
            true
        });
    }

    fn watch_for_room(&mut self) {
        if let State::Up(up) = &mut self.state {
            let wants = up.conversation.is_waiting();
            if wants != up.watches_write {
                let interest = if wants {
                    Interest::ReadWrite
                } else {
                    Interest::Read
                };
                up.watches_write = self
                    .poller
                    .modify(up.conversation.socket(), CONTROL, interest)
                    .is_ok()
                    && wants;
            }
        }
    }

    /// Runs `act` if the conversation is up, and reports the channels whose opening has ended.
    fn with_opens(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Opens<B>, &Context<'_>) -> Vec<Done<B::Socket>>,
    ) {
        let State::Up(up) = &self.state else { return };
        let context = Context {
            poller: &self.poller,
            host: &self.identity.host,
            session: self.identity.session,
            peer_session: up.peer.session,
            now,
        };
        for Done {
            key: (direction, channel),
            keep,
            result,
        } in act(&mut self.opens, &context)
        {
            let end = result.map(|socket| {
                if let Err(error) = self.bus.tune_channel(&socket, direction) {
                    tracing::warn!("{}: a channel stays as the system made it: {error}", B::NAME);
                }
                match direction {
                    Direction::Send => {
                        ChannelEnd::Sender(Box::new(StreamSender::new(socket, keep, self.inbox.clone())))
                    }
                    Direction::Receive => ChannelEnd::Receiver(Box::new(StreamReceiver::new(socket, keep))),
                }
            });
            self.events.push_back(LinkEvent::Channel(direction, channel, end));
        }
    }

    /// What the bus watches has changed.
    fn look(&mut self, now: Instant) {
        match self.bus.look(&self.poller) {
            None => {}
            Some(Discovered::Trouble(why)) => self.refuse(why),
            Some(Discovered::Here) => {
                if let (State::Down { .. }, Role::Connect(to)) = (&self.state, &self.role) {
                    self.connect(to.clone(), now);
                }
            }
        }
    }

    fn open_channel(&mut self, key: Key, spec: &ChannelSpec, token: u64) -> Result<(), OpenError> {
        if !matches!(self.state, State::Up(_)) {
            return Err(OpenError::Down);
        }
        let (keep, role) = (spec.keep, self.role.clone());
        self.with_opens(Instant::now(), |opens, context| match role {
            Role::Accept(_) => opens.expect(key, keep, token, context).into_iter().collect(),
            Role::Connect(to) => {
                opens.dial(key, keep, token, to, context);
                Vec::new()
            }
        });
        if !self.events.is_empty() {
            // The caller sleeps on the descriptor: it shall come and fetch the event.
            self.inbox.wake();
        }
        Ok(())
    }
}

impl<B: StreamBus, M: Message> Link<M> for StreamLink<B, M> {
    fn bus(&self) -> &'static str {
        B::NAME
    }

    fn silence_timeout(&self) -> Duration {
        self.bus.silence_timeout()
    }

    fn poll(&mut self, now: Instant) -> Option<LinkEvent<M>> {
        if self.events.is_empty() {
            self.work(now);
        }
        self.events.pop_front()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_fd())
    }

    fn poll_within(&self, now: Instant) -> Duration {
        if !self.events.is_empty() {
            return Duration::ZERO;
        }
        let patience = self.bus.silence_timeout();
        let of_state = match &self.state {
            State::Down { retry_at } => match self.role {
                Role::Connect(_) => Some(retry_at.unwrap_or(now)),
                Role::Accept(_) => None,
            },
            State::Connecting { until, .. } | State::Greeting { until, .. } => Some(*until),
            State::Up(up) if up.may_say_more => Some(now),
            State::Up(up) => match self.bus.heartbeat() {
                Some(heartbeat) => Some(
                    (up.conversation.heard_at + heartbeat.timeout)
                        .min(up.looked_at + heartbeat.timeout / 4)
                        .min(up.next_heartbeat.unwrap_or(now)),
                ),
                None if up.conversation.is_waiting() => Some(up.looked_at + patience / 4),
                None => None,
            },
        };
        let of_listener = self.listener.as_ref().and_then(|listener| listener.due());
        let of_lingering = self.lingering.iter().map(|(_, until)| *until).min();
        [of_state, of_listener, of_lingering, self.opens.due()]
            .into_iter()
            .flatten()
            .min()
            .map_or(LONGEST_SLEEP, |at| at.saturating_duration_since(now))
    }

    fn send_control(&mut self, bytes: &[u8]) -> Result<(), OpenError> {
        if bytes.len() > MAX_BODY_BYTES {
            return Err(OpenError::NoRoom(format!(
                "a control message of {} bytes is longer than {MAX_BODY_BYTES}: split it",
                bytes.len()
            )));
        }
        let State::Up(up) = &mut self.state else {
            return Err(OpenError::Down);
        };
        if let Err(why) = up.conversation.say_payload(bytes) {
            self.down(&why, Instant::now());
            self.inbox.wake();
            return Err(OpenError::Down);
        }
        self.watch_for_room();
        Ok(())
    }

    fn open_receiver(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        _lane: u32,
    ) -> Result<Vec<u8>, OpenError> {
        let token = draw_token();
        self.open_channel((Direction::Receive, channel), spec, token)?;
        Ok(token.to_le_bytes().to_vec())
    }

    fn open_sender(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        _lane: u32,
    ) -> Result<(), OpenError> {
        let token = landing.try_into().map(u64::from_le_bytes).map_err(|_| {
            OpenError::BadLanding(format!("{} bytes where a token of 8 belongs", landing.len()))
        })?;
        self.open_channel((Direction::Send, channel), spec, token)
    }

    fn close(&mut self, direction: Direction, channel: ChannelId) {
        self.opens.close((direction, channel));
    }

    fn doorbell(&mut self, _lane: u32) -> Option<Box<dyn Doorbell>> {
        None
    }
}

impl<B: StreamBus, M: Message> Drop for StreamLink<B, M> {
    fn drop(&mut self) {
        self.opens.void();
        if let Some(listener) = &self.listener {
            listener.forget(&self.peer_host, &self.inbox);
        }
    }
}
