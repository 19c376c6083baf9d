//! How a link comes up and goes down: connecting, greeting, checking the peer, reading from it. The
//! part of [`StreamLink`] that the control connection drives; `link.rs` has the rest.

use std::time::Instant;

use busway_core::control::{ByteOrder, PROTOCOL_VERSION};

use super::bus::{Socket, StreamBus};
use super::conversation::{Conversation, Frame};
use super::link::{CONTROL, State, StreamLink, Up};
use super::opening::Greeting;
use super::opens::CONNECT_TIMEOUT;
use crate::contract::Role;
use crate::contract::{LinkEvent, Message, PeerHello};
use crate::session::poller::Interest;

/// Frames taken in one go, so that a flood of them leaves time for the rest.
const ROUND: usize = 256;

impl<B: StreamBus, M: Message> StreamLink<B, M> {
    pub(super) fn connect(&mut self, to: B::Address, now: Instant) {
        let begun = B::connect(&to).and_then(|socket| {
            self.bus.tune_conversation(&socket)?;
            self.poller.add(&socket, CONTROL, Interest::Write)?;
            Ok(socket)
        });
        match begun {
            Ok(socket) => {
                self.state = State::Connecting {
                    socket,
                    until: now + CONNECT_TIMEOUT,
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                self.refuse(error.to_string());
                self.state = State::Down {
                    retry_at: Some(now + self.back_off.next()),
                };
            }
            Err(error) => self.fail(&error.to_string(), now),
        }
    }

    /// An attempt to come up has failed.
    pub(super) fn fail(&mut self, why: &str, now: Instant) {
        if let Role::Connect(to) = &self.role {
            let why = format!("no connection to `{}` at {to}: {why}", self.peer_host);
            if self.said.as_ref() != Some(&why) {
                tracing::info!("{}: {why}; trying on", B::NAME);
                self.said = Some(why);
            }
        }
        self.state = State::Down {
            retry_at: Some(now + self.back_off.next()),
        };
    }

    /// The peer, or this host's own address, can't be used: reported once.
    pub(super) fn refuse(&mut self, why: String) {
        if self.said.as_ref() != Some(&why) {
            self.said = Some(why.clone());
            self.events.push_back(LinkEvent::Refused(why));
        }
    }

    /// The conversation has ended.
    pub(super) fn down(&mut self, why: &str, now: Instant) {
        self.opens.void();
        self.events
            .push_back(LinkEvent::Down(format!("`{}`: {why}", self.peer_host)));
        self.said = None;
        self.state = State::Down {
            retry_at: Some(now + self.back_off.next()),
        };
    }

    pub(super) fn control_is_ready(&mut self, now: Instant) {
        match std::mem::replace(&mut self.state, State::Down { retry_at: None }) {
            State::Connecting { socket, until } => match socket.connected() {
                None => self.state = State::Connecting { socket, until },
                Some(Err(error)) => self.fail(&error.to_string(), now),
                Some(Ok(())) => {
                    let mut conversation = Conversation::new(socket, now);
                    let begun = self
                        .poller
                        .modify(conversation.socket(), CONTROL, Interest::Read)
                        .map_err(|error| error.to_string())
                        .and_then(|()| conversation.greet(&self.identity));
                    match begun {
                        Ok(()) => {
                            self.state = State::Greeting {
                                conversation,
                                until: now + self.bus.silence_timeout(),
                            };
                        }
                        Err(why) => self.fail(&why, now),
                    }
                }
            },
            State::Greeting {
                mut conversation,
                until,
            } => match conversation.hear(now) {
                Ok(None) => self.state = State::Greeting { conversation, until },
                Ok(Some(Frame::Greeting(greeting))) => match self.judge(&greeting) {
                    Ok(peer) => {
                        self.up(conversation, peer, now);
                        self.hear(now);
                    }
                    Err(why) => {
                        self.refuse(why);
                        self.state = State::Down {
                            retry_at: Some(now + self.back_off.next()),
                        };
                    }
                },
                Ok(Some(_)) => self.fail("it spoke before it greeted: is it Busway?", now),
                Err(why) => self.fail(
                    &format!(
                        "{why}; does its system file have a link to `{}`?",
                        self.identity.host
                    ),
                    now,
                ),
            },
            state => {
                self.state = state;
                self.hear(now);
            }
        }
    }

    /// Reads what the peer sends, at most one round of events.
    pub(super) fn hear(&mut self, now: Instant) {
        for _ in 0..ROUND {
            let State::Up(up) = &mut self.state else { return };
            up.may_say_more = false;
            let heard = up.conversation.write().and_then(|()| up.conversation.hear(now));
            match heard {
                Ok(None) => return,
                Ok(Some(Frame::Heartbeat)) => self.back_off.reset(),
                Ok(Some(Frame::Payload(bytes))) => {
                    self.back_off.reset();
                    self.events.push_back(LinkEvent::Control(bytes));
                }
                Ok(Some(Frame::Greeting(_))) => self.down("it greeted twice", now),
                Err(why) => self.down(&why, now),
            }
        }
        if let State::Up(up) = &mut self.state {
            up.may_say_more = true;
        }
    }

    /// Whether the peer is one that this host can talk to.
    fn judge(&self, greeting: &Greeting) -> Result<PeerHello, String> {
        let Greeting {
            protocol_version,
            byte_order,
            session,
            host,
            application,
        } = greeting;
        let (own, peer) = (&self.identity.host, &self.peer_host);
        if *protocol_version != PROTOCOL_VERSION {
            return Err(format!(
                "`{peer}` speaks protocol version {protocol_version}, `{own}` version {PROTOCOL_VERSION}: install the same Busway on both"
            ));
        }
        if *byte_order != ByteOrder::NATIVE {
            return Err(format!(
                "`{peer}` is {byte_order:?}-endian, `{own}` {:?}-endian: payloads would be misread",
                ByteOrder::NATIVE
            ));
        }
        if host != peer {
            let host = host.escape_debug();
            return Err(format!(
                "`{own}` expects `{peer}` here, but found `{host}`: check the addresses"
            ));
        }
        Ok(PeerHello {
            host: host.clone(),
            session: *session,
            application: application.clone(),
        })
    }

    fn up(&mut self, conversation: Conversation<B::Socket>, peer: PeerHello, now: Instant) {
        self.said = None;
        self.bus.came_up(conversation.socket());
        self.events.push_back(LinkEvent::Up(peer.clone()));
        let next_heartbeat = self.bus.heartbeat().map(|heartbeat| now + heartbeat.every);
        self.state = State::Up(Up {
            conversation,
            peer,
            next_heartbeat,
            looked_at: now,
            watches_write: false,
            may_say_more: false,
        });
    }

    /// The peer has connected and greeted.
    pub(super) fn greeted(&mut self, socket: B::Socket, greeting: &Greeting, now: Instant) {
        let mut conversation = Conversation::new(socket, now);
        // The greeting also tells a refused peer the reason.
        let answered = self
            .bus
            .tune_conversation(conversation.socket())
            .map_err(|error| error.to_string())
            .and_then(|()| conversation.greet(&self.identity));
        match self.judge(greeting) {
            Err(why) => self.refuse(why),
            Ok(peer) => {
                if let State::Up(up) = &self.state {
                    let why = if up.peer.session == peer.session {
                        "it lost the conversation and began a new one"
                    } else {
                        "it was restarted"
                    };
                    self.down(why, now);
                }
                let watched = answered.and_then(|()| {
                    self.poller
                        .add(conversation.socket(), CONTROL, Interest::Read)
                        .map_err(|error| error.to_string())
                });
                match watched {
                    Ok(()) => self.up(conversation, peer, now),
                    Err(why) => {
                        tracing::info!("{}: `{}` was there for a moment: {why}", B::NAME, self.peer_host)
                    }
                }
            }
        }
    }
}
