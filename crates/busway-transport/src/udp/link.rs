//! A link over UDP: the conversation of a TCP link, and channels that are pairs of connected UDP
//! sockets.
//!
//! The conversation (heartbeat, sessions) is the TCP bus's, so both buses notice a dead host in the
//! same way. When it ends, all channels end. The link is up only while datagrams pass, too
//! ([`super::path`]). The link's descriptor is an epoll set of everything that it waits for.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::multicast::GroupAddress;
use super::opens::{Context, Done, Opens, Terms};
use super::path::{Passing, Path};
use super::settings::{Delivery, HostSettings, LinkSettings};
use crate::contract::LinkSettings as _;
use crate::contract::{
    ChannelId, ChannelSpec, Direction, Doorbell, Keep, LINGER, Link, LinkEvent, LinkIdentity, Message,
    OpenError, PeerHello,
};
use crate::session::landing::Landing;
use crate::session::mailbox::{DroppedSenders, Linger};
use crate::session::poller::{Interest, Poller};
use crate::session::token::key_of;
use crate::tcp;

/// Events of the conversation handled in one call.
const ROUND: usize = 64;
/// Time between two warnings about datagrams of others.
const WARN_AGAIN_AFTER: Duration = Duration::from_secs(60);
pub(super) const MAGIC: [u8; 4] = *b"BUSU";

/// Tokens of the link's poller; those of channels begin at 2^32.
const CONVERSATION: u64 = 1;
const DROPPED: u64 = 2;
const LINGERING: u64 = 3;
const PATH: u64 = 4;

/// State that the UDP links of a process share: that of their conversations.
#[derive(Default)]
pub struct Shared(tcp::Shared);

/// Opens a link.
///
/// # Errors
/// The settings name no address, or one that another link of this process uses for the same peer;
/// no descriptors left.
pub(crate) fn open<M: Message>(
    shared: &Shared,
    identity: &LinkIdentity,
    settings: &LinkSettings,
    peer_host: &str,
) -> Result<Box<dyn Link<M>>, OpenError> {
    let invalid = |text: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, text);
    settings.validate().map_err(|error| invalid(error.to_string()))?;
    let Some(address) = settings.local.datagram_address() else {
        return Err(invalid("no address for datagrams".into()).into());
    };
    let conversation = tcp::converse(&shared.0, identity, &settings.conversation(), peer_host)?;
    let poller = Poller::new()?;
    if let Some(fd) = conversation.fd() {
        poller.add(fd, CONVERSATION, Interest::Read)?;
    }
    let dropped = Arc::new(DroppedSenders::new()?);
    poller.add(&*dropped, DROPPED, Interest::Read)?;
    Ok(Box::new(UdpLink {
        session: identity.session,
        peer_host: peer_host.into(),
        settings: settings.clone(),
        address,
        conversation,
        poller,
        dropped,
        opens: Opens::default(),
        path: None,
        pending: None,
        refusal: None,
        peer_session: None,
        lingering: Vec::new(),
        foreign_datagrams: Arc::default(),
        logged: (0, None),
        group_failures: Arc::default(),
        logged_failures: 0,
        outbox: VecDeque::new(),
    }))
}

struct UdpLink<M: Message> {
    session: u64,
    peer_host: String,
    settings: LinkSettings,
    address: IpAddr,
    conversation: tcp::Conversation<M>,
    poller: Poller,
    dropped: Arc<DroppedSenders>,
    opens: Opens,
    /// While the conversation is up.
    path: Option<Path>,
    /// The peer's greeting, while the conversation is up and datagrams are not known to pass.
    pending: Option<PeerHello>,
    /// The last reason why the link did not come up, so that it is reported once.
    refusal: Option<String>,
    peer_session: Option<u64>,
    /// Dropped senders, each with the time when it is abandoned.
    lingering: Vec<(Box<dyn Linger>, Instant)>,
    /// Datagrams that belong to no channel of this link.
    foreign_datagrams: Arc<AtomicU64>,
    /// How many of them were logged, and when.
    logged: (u64, Option<Instant>),
    /// How often the group did not reach this peer, and how often that was logged.
    group_failures: Arc<AtomicU64>,
    logged_failures: u64,
    outbox: VecDeque<LinkEvent<M>>,
}

impl<M: Message> UdpLink<M> {
    fn work(&mut self, now: Instant) {
        for token in self.poller.ready() {
            match token {
                DROPPED => self.take_in_lingering(now),
                LINGERING => self.lingering.retain_mut(|(sender, _)| !sender.pump()),
                token => {
                    if let (Some(key), Some((opens, context))) = (key_of(token), self.opening()) {
                        let done = opens.ready(key, &context);
                        self.report(done);
                    }
                }
            }
        }
        self.lingering.retain(|(_, until)| now < *until);
        self.converse(now);
        self.check_path(now);
        if let Some((opens, context)) = self.opening() {
            let late = opens.tick(&context, now);
            self.report(late);
        }
        self.warn_of_foreign_datagrams(now);
        self.warn_of_group_failures();
    }

    /// What opens channels; `None` while the link is down.
    fn opening(&mut self) -> Option<(&mut Opens, Context<'_>)> {
        let context = Context {
            poller: &self.poller,
            dropped: &self.dropped,
            address: self.address,
            foreign_datagrams: &self.foreign_datagrams,
            group_failures: &self.group_failures,
            session: self.session,
            peer_session: self.peer_session?,
        };
        Some((&mut self.opens, context))
    }

    fn report(&mut self, done: impl IntoIterator<Item = Done<M>>) {
        for ((direction, channel), end) in done {
            self.outbox.push_back(LinkEvent::Channel(direction, channel, end));
        }
    }

    fn converse(&mut self, now: Instant) {
        for _ in 0..ROUND {
            let Some(event) = self.conversation.poll(now) else {
                return;
            };
            match event {
                LinkEvent::Up(hello) => self.start_path_check(hello, now),
                LinkEvent::Down(why) => self.end_conversation(why),
                LinkEvent::Control(bytes) if self.path.as_ref().is_some_and(|path| !path.has_peer()) => {
                    let read = self.path.as_mut().map_or(Ok(()), |path| path.read(&bytes));
                    if let Err(why) = read {
                        self.refuse(format!("`{}`: {why}", self.peer_host));
                    }
                }
                event => {
                    if let (LinkEvent::Control(_), Some(path)) = (&event, &mut self.path) {
                        path.assume_passing(now);
                        self.come_up();
                    }
                    self.outbox.push_back(event);
                }
            }
        }
    }

    /// The conversation is up: starts to check whether datagrams pass.
    fn start_path_check(&mut self, hello: PeerHello, now: Instant) {
        let opened = Path::open(self.address, &self.foreign_datagrams, now).and_then(|path| {
            self.poller.add(&path, PATH, Interest::Read)?;
            Ok((path.control_message()?, path))
        });
        self.pending = Some(hello);
        match opened {
            Ok((bytes, path)) => {
                self.path = Some(path);
                // If it fails, the conversation has just ended.
                let _ = self.conversation.send_control(&bytes);
            }
            Err(error) => {
                let why = format!("no socket for datagrams on {}: {error}", self.address);
                self.refuse(why.clone());
                self.conversation.hang_up(&why, now);
            }
        }
    }

    fn end_conversation(&mut self, why: String) {
        self.path = None;
        self.peer_session = None;
        self.opens.void();
        self.lingering.clear();
        if self.pending.take().is_none() {
            self.outbox.push_back(LinkEvent::Down(why));
        }
    }

    fn come_up(&mut self) {
        if let Some(hello) = self.pending.take() {
            self.refusal = None;
            self.peer_session = Some(hello.session);
            self.outbox.push_back(LinkEvent::Up(hello));
        }
    }

    /// Reports what keeps the link from coming up.
    fn refuse(&mut self, why: String) {
        if self.refusal.as_ref() != Some(&why) {
            self.refusal = Some(why.clone());
            self.outbox.push_back(LinkEvent::Refused(why));
        }
    }

    fn check_path(&mut self, now: Instant) {
        let Some(path) = &mut self.path else { return };
        let local = &self.settings.local;
        let passing = path.check(local.heartbeat, local.timeout, now);
        let why = |path: &Path| {
            let to = path.peer_address().map(|to| to.ip().to_string());
            format!(
                "no datagram between {} and {} for {:?}, though the conversation stands: does a firewall keep UDP out?",
                self.address,
                to.unwrap_or_else(|| format!("`{}`", self.peer_host)),
                local.timeout
            )
        };
        match (passing, self.pending.is_some()) {
            (Passing::Yes, true) => self.come_up(),
            (Passing::NoLonger, true) => {
                let why = why(path);
                self.refuse(why);
            }
            (Passing::NoLonger, false) => {
                let why = why(path);
                self.conversation.hang_up(&why, now);
                self.converse(now);
            }
            _ => {}
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

    /// Lanes do not log: the link logs what they counted, at most once a minute.
    fn warn_of_foreign_datagrams(&mut self, now: Instant) {
        // Relaxed: a count by itself.
        let foreign_datagrams = self.foreign_datagrams.load(Ordering::Relaxed);
        let (before, at) = self.logged;
        if foreign_datagrams > before && at.is_none_or(|at| now >= at + WARN_AGAIN_AFTER) {
            self.logged = (foreign_datagrams, Some(now));
            tracing::warn!(
                "udp: {foreign_datagrams} datagrams on {} were of no channel of ours",
                self.address
            );
        }
    }

    /// The same for a group that does not reach the peer.
    fn warn_of_group_failures(&mut self) {
        // Relaxed: a count by itself.
        let group_failures = self.group_failures.load(Ordering::Relaxed);
        let group = self.settings.local.multicast;
        if let Some(group) = group.filter(|_| group_failures > self.logged_failures) {
            self.logged_failures = group_failures;
            tracing::warn!(
                "udp: multicast to {group} from {} is lost on its way, so {} gets everything by itself for a while: does a switch snoop IGMP or MLD without a querier?",
                self.address,
                self.peer_host
            );
        }
    }

    /// The multicast group of this sender, as this host reaches it.
    fn group(&self, sender: &HostSettings) -> Option<GroupAddress> {
        let address = GroupAddress::new(self.address, sender.multicast?);
        address
            .inspect_err(|error| tracing::warn!("udp: no multicast on {}: {error}", self.address))
            .ok()
    }

    /// How a channel is carried whose sender has these settings.
    fn terms(&self, sender: &HostSettings, spec: &ChannelSpec) -> Terms {
        let heads_bytes = if self.address.is_ipv4() { 28 } else { 48 };
        Terms {
            delivery: match spec.keep {
                Keep::Latest => Delivery::BestEffort,
                Keep::All { .. } => sender.delivery,
            },
            window_bytes: self.settings.local.window.0,
            most_bytes: usize::from(sender.mtu.unwrap_or(u16::MAX)) - heads_bytes,
            group: self.group(sender),
        }
    }
}

impl<M: Message> Link<M> for UdpLink<M> {
    fn bus(&self) -> &'static str {
        <super::Udp as crate::contract::Bus>::NAME
    }

    fn silence_timeout(&self) -> Duration {
        self.settings.local.timeout
    }

    fn may_lose(&self) -> bool {
        let settings = &self.settings;
        [&settings.local, &settings.peer]
            .iter()
            .any(|sender| sender.delivery == Delivery::BestEffort)
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
        let of_lingering = self.lingering.iter().map(|(_, until)| *until);
        of_lingering
            .chain(self.opens.due())
            .chain(
                self.path
                    .as_ref()
                    .map(|path| path.due(self.settings.local.timeout)),
            )
            .min()
            .map(|at| at.saturating_duration_since(now))
            .into_iter()
            .chain([self.conversation.poll_within(now)])
            .min()
            .unwrap_or(LINGER)
    }

    fn send_control(&mut self, bytes: &[u8]) -> Result<(), OpenError> {
        if self.peer_session.is_none() {
            return Err(OpenError::Down);
        }
        self.conversation.send_control(bytes)
    }

    fn open_receiver(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        _lane: u32,
    ) -> Result<Vec<u8>, OpenError> {
        let terms = self.terms(&self.settings.peer, spec);
        let (opens, context) = self.opening().ok_or(OpenError::Down)?;
        let mut landing = opens.expect(channel, terms, &context)?;
        landing.description = describe(terms.delivery);
        Ok(landing.encode(MAGIC))
    }

    fn open_sender(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        _lane: u32,
    ) -> Result<(), OpenError> {
        let terms = self.terms(&self.settings.local, spec);
        let is_v4 = self.address.is_ipv4();
        let (opens, context) = self.opening().ok_or(OpenError::Down)?;
        let landing = judge(landing, terms.delivery, is_v4).map_err(OpenError::BadLanding)?;
        opens.dial(channel, spec, &landing, terms, &context)?;
        Ok(())
    }

    fn close(&mut self, direction: Direction, channel: ChannelId) {
        self.opens.close((direction, channel));
    }

    fn doorbell(&mut self, _lane: u32) -> Option<Box<dyn Doorbell>> {
        None
    }
}

impl<M: Message> Drop for UdpLink<M> {
    fn drop(&mut self) {
        self.opens.void();
    }
}

/// What the receiver adds to its landing description: its delivery.
fn describe(delivery: Delivery) -> Vec<u8> {
    vec![match delivery {
        Delivery::Reliable => 1,
        Delivery::BestEffort => 2,
    }]
}

/// Decodes a landing description and checks that the receiver's delivery is this host's.
fn judge(landing: &[u8], delivery: Delivery, is_v4: bool) -> Result<Landing, String> {
    let landing = Landing::decode(landing, MAGIC)?;
    if landing.description != describe(delivery) {
        return Err(format!(
            "this host delivers {delivery:?}, the receiver expects something else: both hosts need the same system file"
        ));
    }
    if landing.address.is_ipv4() != is_v4 {
        return Err(format!("no datagram of this host goes to {}", landing.address));
    }
    Ok(landing)
}
