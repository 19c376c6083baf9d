//! Opens the channels of one conversation, and ends the open ones when the conversation is lost.
//! Control thread.
//!
//! A receiver waits on a socket of its own for an opening, which names the channel, both sessions
//! and the token from the landing description. It connects the socket to the sender of the opening
//! and acknowledges it. The sender repeats its opening until the acknowledgement arrives.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::multicast::{GroupAddress, GroupReceiver};
use super::receiver::UdpReceiver;
use super::send_state::Setup;
use super::sender::UdpSender;
use super::settings::Delivery;
use super::socket::UdpSocket;
use super::wire::{ACK_BYTES, Datagram, Open, decode};
use crate::contract::{ChannelEnd, ChannelId, ChannelSpec, Direction, Message};
use crate::session::landing::Landing;
use crate::session::mailbox::DroppedSenders;
use crate::session::poller::{Interest, Poller};
use crate::session::token::{Key, draw_token, token_of};

/// Time after which a sender without an acknowledgement is reported as failed.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Between two openings.
const REPEAT_EVERY: Duration = Duration::from_millis(20);
const ROUND: usize = 64;

/// A channel whose opening has ended.
pub(super) type Done<M> = (Key, Result<ChannelEnd<M>, String>);

/// What all openings of one conversation have in common.
pub(super) struct Context<'a> {
    pub(super) poller: &'a Poller,
    pub(super) dropped: &'a Arc<DroppedSenders>,
    pub(super) address: IpAddr,
    pub(super) foreign_datagrams: &'a Arc<AtomicU64>,
    /// Counts receivers that a group did not reach.
    pub(super) group_failures: &'a Arc<AtomicU64>,
    pub(super) session: u64,
    pub(super) peer_session: u64,
}

/// How both ends of a channel carry it.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) delivery: Delivery,
    pub(super) window_bytes: u64,
    /// Largest datagram of the sender.
    pub(super) most_bytes: usize,
    /// The multicast group of the sender.
    pub(super) group: Option<GroupAddress>,
}

struct Expected {
    socket: UdpSocket,
    token: u64,
    terms: Terms,
}

struct Dialled {
    socket: UdpSocket,
    token: u64,
    spec: ChannelSpec,
    terms: Terms,
    repeat_at: Instant,
    fails_at: Instant,
}

#[derive(Default)]
pub(super) struct Opens {
    expected: HashMap<ChannelId, Expected>,
    dialled: HashMap<ChannelId, Dialled>,
    live: Vec<(Key, Weak<UdpSocket>)>,
}

impl Opens {
    /// Opens a socket that waits for the sender that knows the token; returns its address.
    pub(super) fn expect(
        &mut self,
        channel: ChannelId,
        terms: Terms,
        context: &Context<'_>,
    ) -> std::io::Result<Landing> {
        let socket = UdpSocket::bind(context.address, context.foreign_datagrams)?;
        let landing = Landing {
            address: socket.local_address()?,
            token: draw_token(),
            description: Vec::new(),
        };
        context
            .poller
            .add(&socket, token_of((Direction::Receive, channel)), Interest::Read)?;
        let token = landing.token;
        self.expected.insert(channel, Expected { socket, token, terms });
        Ok(landing)
    }

    /// Sends the first opening to a receiver.
    pub(super) fn dial(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &Landing,
        terms: Terms,
        context: &Context<'_>,
    ) -> std::io::Result<()> {
        let socket = UdpSocket::bind(context.address, context.foreign_datagrams)?;
        socket.connect(landing.address)?;
        context
            .poller
            .add(&socket, token_of((Direction::Send, channel)), Interest::Read)?;
        let now = Instant::now();
        let dialled = Dialled {
            socket,
            token: landing.token,
            spec: *spec,
            terms,
            repeat_at: now + REPEAT_EVERY,
            fails_at: now + TIMEOUT,
        };
        dialled.send_opening(channel, context);
        self.dialled.insert(channel, dialled);
        Ok(())
    }

    pub(super) fn ready<M: Message>(&mut self, key: Key, context: &Context<'_>) -> Option<Done<M>> {
        let end = match key.0 {
            Direction::Receive => self.accept(key.1, context),
            Direction::Send => self.finish_dialling(key.1, context),
        }?;
        Some((key, end))
    }

    fn accept<M: Message>(
        &mut self,
        channel: ChannelId,
        context: &Context<'_>,
    ) -> Option<Result<ChannelEnd<M>, String>> {
        let expected = self.expected.get(&channel)?;
        let awaited = Open {
            channel: channel.0,
            from_session: context.peer_session,
            to_session: context.session,
        };
        let mut bytes = [0; ACK_BYTES];
        let from = (0..ROUND).find_map(|_| {
            let (count, from) = expected.socket.receive(&mut bytes).ok()??;
            let is_awaited = decode(&bytes[..count]) == Some((expected.token, Datagram::Open(awaited)));
            if !is_awaited {
                expected.socket.count_foreign();
            }
            is_awaited.then_some(from)
        })?;
        let Expected { socket, token, terms } = self.expected.remove(&channel)?;
        context.poller.remove(&socket);
        if let Err(error) = socket.connect(from) {
            return Some(Err(format!("no way to {from}: {error}")));
        }
        socket.join_segments();
        let socket = Arc::new(socket);
        self.live
            .push(((Direction::Receive, channel), Arc::downgrade(&socket)));
        // A group that cannot be used is logged where the settings are read; then all datagrams
        // arrive here.
        let group = terms
            .group
            .and_then(|address| GroupReceiver::new(address, from.ip(), &socket).ok());
        let mut receiver = UdpReceiver::new(socket, token, terms.delivery, terms.window_bytes, group);
        receiver.acknowledge();
        Some(Ok(ChannelEnd::Receiver(Box::new(receiver))))
    }

    fn finish_dialling<M: Message>(
        &mut self,
        channel: ChannelId,
        context: &Context<'_>,
    ) -> Option<Result<ChannelEnd<M>, String>> {
        let dialled = self.dialled.get(&channel)?;
        let mut bytes = [0; ACK_BYTES];
        let ack = (0..ROUND).find_map(|_| {
            // An error is about an earlier opening; it is repeated until its time is over.
            let (count, _) = dialled.socket.receive(&mut bytes).ok().flatten()?;
            match decode(&bytes[..count]) {
                Some((token, Datagram::Ack(ack))) if token == dialled.token => Some(ack),
                _ => {
                    dialled.socket.count_foreign();
                    None
                }
            }
        })?;
        let dialled = self.dialled.remove(&channel)?;
        context.poller.remove(&dialled.socket);
        let socket = Arc::new(dialled.socket);
        self.live
            .push(((Direction::Send, channel), Arc::downgrade(&socket)));
        let setup = Setup {
            socket,
            token: dialled.token,
            keep: dialled.spec.keep,
            delivery: dialled.terms.delivery,
            most_bytes: dialled.terms.most_bytes,
        };
        let group = dialled.terms.group;
        let sender = UdpSender::new(setup, &ack, group, context.group_failures, context.dropped);
        Some(match sender {
            Ok(sender) => Ok(ChannelEnd::Sender(Box::new(sender))),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Repeats openings, fails those that are late, and forgets ends that are gone.
    pub(super) fn tick<M: Message>(&mut self, context: &Context<'_>, now: Instant) -> Vec<Done<M>> {
        self.live.retain(|(_, socket)| socket.strong_count() > 0);
        for (channel, dialled) in &mut self.dialled {
            if now >= dialled.repeat_at {
                dialled.send_opening(*channel, context);
                dialled.repeat_at = now + REPEAT_EVERY;
            }
        }
        let late = self.dialled.extract_if(|_, dialled| now >= dialled.fails_at);
        late.map(|(channel, _)| {
            let why = format!(
                "the receiver did not answer over UDP within {TIMEOUT:?}: does a firewall keep datagrams out?"
            );
            ((Direction::Send, channel), Err(why))
        })
        .collect()
    }

    /// When [`tick`](Self::tick) is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.dialled.values().map(|dialled| dialled.repeat_at).min()
    }

    pub(super) fn close(&mut self, key: Key) {
        match key.0 {
            Direction::Receive => drop(self.expected.remove(&key.1)),
            Direction::Send => drop(self.dialled.remove(&key.1)),
        }
        self.live.retain(|(live, _)| *live != key);
    }

    /// Ends all channels. Ends in use read what has arrived and then fail.
    pub(super) fn void(&mut self) {
        for socket in self.live.iter().filter_map(|(_, socket)| socket.upgrade()) {
            socket.set_void();
        }
        *self = Opens::default();
    }
}

impl Dialled {
    fn send_opening(&self, channel: ChannelId, context: &Context<'_>) {
        let open = Open {
            channel: channel.0,
            from_session: context.session,
            to_session: context.peer_session,
        };
        let _ = self.socket.send(&open.encode(self.token));
    }
}
