//! A link over RDMA: the conversation of a TCP link, and channels that are connections of queue
//! pairs.
//!
//! The conversation (heartbeat, sessions, hellos) is a whole link of the TCP bus, inside this one:
//! the same code notices a dead host within the timeout on both buses. A channel's receiver listens
//! with librdmacm on an address of its device, puts that address into its landing description, and
//! accepts the sender that connects with the right token and both sessions. Without a device, or
//! without the libraries, the link is down and reports why once; the conversation begins when the
//! device is there. When the device is removed, every channel fails for that reason and the link is
//! down until it returns.
//!
//! One control thread polls it; the link's descriptor is an epoll set of the inner link's,
//! librdmacm's events, the queue of dropped senders and those senders. Which kind of ends a channel
//! gets is the [`ChannelKind`]'s business.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel_kind::ChannelKind;
use super::cm::{CmEventKind, CmId, EventChannel, MOST_PORTS};
use super::device::Device;
use super::error::RdmaError;
use super::landing::MAGIC;
use super::lane::{Lane, Lanes};
use super::opens::{Context, Done, Opens};
use super::settings::LinkSettings;
use crate::contract::LinkSettings as _;
use crate::contract::{
    ChannelId, ChannelSpec, Direction, Doorbell, LINGER, LandingRegister, LandingRing, Link, LinkEvent,
    LinkIdentity, Message, OpenError, QueueNumbers, SourceNumbers,
};
use crate::session::landing::Landing;
use crate::session::mailbox::{DroppedSenders, Linger};
use crate::session::poller::{Interest, Poller};
use crate::tcp;

/// Time between two looks for a device that is not there.
const DEVICE_PAUSE: Duration = Duration::from_millis(500);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Events of the conversation taken in one go.
const ROUND: usize = 64;

/// Tokens of the link's poller.
const CONVERSATION: u64 = 1;
const EVENTS: u64 = 2;
const DROPPED: u64 = 3;
const LINGERING: u64 = 4;

/// Numbers of ids.
const KEEPER: u64 = 0;
const LISTENER: u64 = 1;

/// What the RDMA links of a process share: what their conversations do.
#[derive(Default)]
pub struct Shared(Arc<tcp::Shared>);

/// Everything that exists only while the device does.
struct Ready {
    listener: CmId,
    device: Arc<Device>,
}

/// Opens a link.
///
/// # Errors
/// The settings name no address, or one that another link of this process uses for the same peer;
/// no descriptors left.
pub(crate) fn open<F: ChannelKind, M: Message>(
    shared: &Shared,
    identity: &LinkIdentity,
    settings: &LinkSettings,
    peer_host: &str,
) -> Result<Box<dyn Link<M>>, OpenError> {
    let invalid = |text: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, text);
    settings.validate().map_err(|error| invalid(error.to_string()))?;
    let Some(address) = settings.local.device_address() else {
        return Err(invalid("no address of an RDMA device".into()).into());
    };
    let poller = Poller::new()?;
    let dropped = Arc::new(DroppedSenders::new()?);
    poller.add(&*dropped, DROPPED, Interest::Read)?;
    let link: RdmaLink<F, M> = RdmaLink {
        shared: shared.0.clone(),
        identity: identity.clone(),
        settings: settings.clone(),
        peer_host: peer_host.to_owned(),
        address,
        poller,
        dropped,
        opens: Opens::new(LISTENER),
        ready: None,
        events: None,
        look_at: None,
        said: None,
        conversation: None,
        peer_session: None,
        has_warned: false,
        lingering: Vec::new(),
        lanes: Lanes::default(),
        outbox: VecDeque::new(),
    };
    Ok(Box::new(link))
}

struct RdmaLink<F: ChannelKind, M: Message> {
    shared: Arc<tcp::Shared>,
    identity: LinkIdentity,
    settings: LinkSettings,
    peer_host: String,
    /// Of this host's device.
    address: IpAddr,
    poller: Poller,
    dropped: Arc<DroppedSenders>,
    opens: Opens<F, M>,
    ready: Option<Ready>,
    /// librdmacm's events, once the libraries are there.
    events: Option<Arc<EventChannel>>,
    /// When to look for the device again (`None`: now).
    look_at: Option<Instant>,
    /// The last reason given for there being no device, so that it is given once.
    said: Option<String>,
    conversation: Option<Box<dyn Link<M>>>,
    /// While the conversation stands.
    peer_session: Option<u64>,
    has_warned: bool,
    /// Dropped senders, each with the time when it is abandoned.
    lingering: Vec<(Box<dyn Linger>, Instant)>,
    /// Those of this process that have ends here.
    lanes: Lanes,
    /// Events for the user.
    outbox: VecDeque<LinkEvent<M>>,
}

impl<F: ChannelKind, M: Message> RdmaLink<F, M> {
    fn work(&mut self, now: Instant) {
        for token in self.poller.ready() {
            match token {
                EVENTS => self.take_events(now),
                DROPPED => self.take_in_lingering(now),
                LINGERING => self.lingering.retain_mut(|(sender, _)| !sender.pump()),
                _ => {}
            }
        }
        self.lingering.retain(|(_, until)| now < *until);
        if self.ready.is_none() && self.look_at.is_none_or(|at| now >= at) {
            self.look_for_device(now);
        }
        self.converse(now);
        self.warn_of_copies();
        let late = self.opens.tick(now);
        self.tell(late);
    }

    fn tell(&mut self, done: impl IntoIterator<Item = Done<M>>) {
        for ((direction, channel), end) in done {
            self.outbox.push_back(LinkEvent::Channel(direction, channel, end));
        }
    }

    /// Polls the inner link, and notes whether its conversation stands.
    fn converse(&mut self, now: Instant) {
        for _ in 0..ROUND {
            let Some(event) = self.conversation.as_mut().and_then(|link| link.poll(now)) else {
                return;
            };
            match &event {
                LinkEvent::Up(hello) => self.peer_session = Some(hello.session),
                LinkEvent::Down(why) => {
                    self.peer_session = None;
                    self.opens.end_conversation(&format!("the link went down: {why}"));
                }
                _ => {}
            }
            self.outbox.push_back(event);
        }
    }

    /// Lanes don't log: this reports once what they had to do without.
    fn warn_of_copies(&mut self) {
        let unregistered = self.ready.as_ref().map_or(0, |ready| ready.device.unregistered());
        if unregistered > 0 && !self.has_warned {
            self.has_warned = true;
            tracing::warn!(
                "{}: memory of messages could not be registered, so their payload is copied: raise the limit of locked memory \
                 (`ulimit -l`, `LimitMEMLOCK=` of systemd)",
                F::NAME
            );
        }
    }

    /// Begins, once the device is there.
    fn look_for_device(&mut self, now: Instant) {
        match self.make_ready() {
            Ok(ready) => {
                self.said = None;
                self.look_at = None;
                self.ready = Some(ready);
            }
            Err(error) => {
                self.look_at = Some(now + DEVICE_PAUSE);
                let why = error.to_string();
                if self.said.as_ref() != Some(&why) {
                    self.said = Some(why.clone());
                    self.outbox.push_back(LinkEvent::Refused(why));
                }
            }
        }
    }

    /// Finds the device, listens on it, and begins the conversation.
    fn make_ready(&mut self) -> Result<Ready, Box<dyn std::error::Error>> {
        let events = match &self.events {
            Some(events) => events.clone(),
            None => {
                let events = EventChannel::new()?;
                self.poller.add(&*events, EVENTS, Interest::Read)?;
                self.events = Some(events.clone());
                events
            }
        };
        let device = Device::open(&events, self.address, KEEPER)?;
        let listener = self.listen(&events)?;
        let conversation = Box::new(tcp::converse(
            &self.shared,
            &self.identity,
            &self.settings.conversation(),
            &self.peer_host,
        )?);
        if let Some(fd) = conversation.fd() {
            self.poller.add(fd, CONVERSATION, Interest::Read)?;
        }
        self.conversation = Some(conversation);
        Ok(Ready { device, listener })
    }

    /// Listens for the connections of channels, on the port of the settings or on a free one.
    fn listen(&self, events: &Arc<EventChannel>) -> Result<CmId, RdmaError> {
        let at = SocketAddr::new(self.address, self.settings.local.port);
        let mut ports_left = if at.port() == 0 { MOST_PORTS } else { 1 };
        loop {
            let listener = CmId::new(events, LISTENER)?;
            ports_left -= 1;
            match listener.bind(at).and_then(|()| listener.listen(BACKLOG)) {
                Ok(()) => return Ok(listener),
                Err(error) if error.is_address_in_use() && ports_left > 0 => {}
                Err(error) => {
                    return Err(RdmaError::Listen {
                        address: at,
                        error: error.into(),
                    });
                }
            }
        }
    }

    fn take_events(&mut self, now: Instant) {
        let Some(events) = self.events.clone() else { return };
        while let Some(mut event) = events.next() {
            if event.kind == CmEventKind::DeviceRemoved {
                self.device_removed(now);
                continue;
            }
            if event.request.is_none() && self.opens.event_of_open(&event) {
                continue;
            }
            let (Some(ready), Some(peer_session)) = (&self.ready, self.peer_session) else {
                if let Some(id) = event.request.take() {
                    id.reject();
                }
                continue;
            };
            let context = Context {
                events: &events,
                device: &ready.device,
                dropped: &self.dropped,
                session: self.identity.session,
                peer_session,
                now,
            };
            let done = match event.request.take() {
                Some(id) => self.opens.requested(id, &event.data, &context),
                None => self.opens.event(&event, &context),
            };
            self.tell(done);
        }
    }

    /// The kernel waits until everything on the device is released: the ends do that when their
    /// lanes see them fail.
    fn device_removed(&mut self, now: Instant) {
        let Some(ready) = self.ready.take() else { return };
        ready.device.set_removed();
        drop(ready);
        let why = format!("the RDMA device with address {} was removed", self.address);
        self.opens.void(&why);
        self.lingering.clear();
        self.conversation = None;
        self.look_at = Some(now + DEVICE_PAUSE);
        if self.peer_session.take().is_some() {
            self.outbox
                .push_back(LinkEvent::Down(format!("`{}`: {why}", self.peer_host)));
        }
    }

    fn take_in_lingering(&mut self, now: Instant) {
        for mut sender in self.dropped.take() {
            let watched = self.poller.add(sender.fd(), LINGERING, Interest::Read);
            if watched.is_ok() && !sender.pump() {
                self.lingering.push((sender, now + LINGER));
            }
        }
    }

    /// Waits for the sender of a landing place; returns its description for the peer.
    fn expect(
        &mut self,
        channel: ChannelId,
        port: u16,
        (prepared, description): (F::Prepared, Vec<u8>),
    ) -> Vec<u8> {
        let landing = Landing {
            address: SocketAddr::new(self.address, port),
            token: crate::session::token::draw_token(),
            description,
        };
        self.opens.expect(channel, landing.token, prepared);
        landing.encode(MAGIC)
    }

    /// Begins to connect a sender to the peer's landing place.
    fn dial(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
        judge: impl FnOnce(&[u8], &LinkSettings, &Arc<Lane>) -> Result<F::CheckedLanding, String>,
    ) -> Result<(), OpenError> {
        let (Some(ready), Some(events), Some(peer_session)) = (&self.ready, &self.events, self.peer_session)
        else {
            return Err(OpenError::Down);
        };
        let landing = Landing::decode(landing, MAGIC).map_err(OpenError::BadLanding)?;
        let lane = self.lanes.lane(lane)?;
        let place = judge(&landing.description, &self.settings, &lane).map_err(OpenError::BadLanding)?;
        let context = Context {
            events,
            device: &ready.device,
            dropped: &self.dropped,
            session: self.identity.session,
            peer_session,
            now: Instant::now(),
        };
        self.opens
            .dial(channel, spec, &landing, place, self.address, &context)?;
        self.ring_for_events();
        Ok(())
    }

    /// Makes the link's descriptor readable, so that its user fetches the event.
    fn ring_for_events(&self) {
        if !self.outbox.is_empty() {
            self.dropped.wake();
        }
    }
}

impl<F: ChannelKind, M: Message> Link<M> for RdmaLink<F, M> {
    fn bus(&self) -> &'static str {
        F::NAME
    }

    fn silence_timeout(&self) -> Duration {
        self.settings.local.timeout
    }

    fn poll(&mut self, now: Instant) -> Option<LinkEvent<M>> {
        if self.outbox.is_empty() {
            self.work(now);
        }
        self.outbox.pop_front()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_fd())
    }

    fn poll_within(&self, now: Instant) -> Duration {
        if !self.outbox.is_empty() {
            return Duration::ZERO;
        }
        let of_device = self.ready.is_none().then(|| self.look_at.unwrap_or(now));
        let of_lingering = self.lingering.iter().map(|(_, until)| *until).min();
        let own = [of_device, of_lingering, self.opens.due()]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.saturating_duration_since(now));
        let of_conversation = self.conversation.as_ref().map(|link| link.poll_within(now));
        own.into_iter()
            .chain(of_conversation)
            .min()
            .unwrap_or(DEVICE_PAUSE)
    }

    fn send_control(&mut self, bytes: &[u8]) -> Result<(), OpenError> {
        match &mut self.conversation {
            Some(conversation) => conversation.send_control(bytes),
            None => Err(OpenError::Down),
        }
    }

    fn open_receiver(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        lane: u32,
    ) -> Result<Vec<u8>, OpenError> {
        let (Some(ready), Some(_)) = (&self.ready, self.peer_session) else {
            return Err(OpenError::Down);
        };
        let lane = self.lanes.lane(lane)?;
        let prepared = F::prepare(&ready.device, spec, &lane)?;
        let port = ready.listener.port();
        Ok(self.expect(channel, port, prepared))
    }

    fn open_register(&mut self, channel: ChannelId, register: LandingRegister) -> Result<Vec<u8>, OpenError> {
        let (Some(ready), Some(_)) = (&self.ready, self.peer_session) else {
            return Err(OpenError::Down);
        };
        let prepared = F::prepare_register(&ready.device, register)?;
        let port = ready.listener.port();
        Ok(self.expect(channel, port, prepared))
    }

    fn open_sender(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
    ) -> Result<(), OpenError> {
        self.dial(channel, spec, landing, lane, |place, settings, lane| {
            F::judge(place, settings, lane, None)
        })
    }

    fn open_register_sender(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
        source: SourceNumbers,
    ) -> Result<(), OpenError> {
        self.dial(channel, spec, landing, lane, |place, settings, lane| {
            F::judge(place, settings, lane, Some(source))
        })
    }

    fn open_ring(&mut self, channel: ChannelId, ring: LandingRing, lane: u32) -> Result<Vec<u8>, OpenError> {
        let (Some(ready), Some(_)) = (&self.ready, self.peer_session) else {
            return Err(OpenError::Down);
        };
        let lane = self.lanes.lane(lane)?;
        let prepared = F::prepare_ring(&ready.device, ring, &lane)?;
        let port = ready.listener.port();
        Ok(self.expect(channel, port, prepared))
    }

    fn open_ring_sender(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
        source: QueueNumbers,
    ) -> Result<(), OpenError> {
        self.dial(channel, spec, landing, lane, |place, _, lane| {
            F::judge_ring(place, lane, source)
        })
    }

    fn close(&mut self, direction: Direction, channel: ChannelId) {
        self.opens.close((direction, channel));
    }

    fn doorbell(&mut self, lane: u32) -> Option<Box<dyn Doorbell>> {
        self.lanes.doorbell(lane)
    }
}

impl<F: ChannelKind, M: Message> Drop for RdmaLink<F, M> {
    fn drop(&mut self) {
        self.opens.void("this host has closed the link");
    }
}
