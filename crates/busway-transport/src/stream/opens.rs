//! Channels that are being opened, and weak handles of the open ones, so that a lost link ends
//! them.
//!
//! The connecting host makes the channel's connection, sends its opening and waits for [`ANSWER`].
//! The accepting host answers as soon as its own side wants the channel, and keeps the connection
//! until then. Owned by the link; control thread.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::bus::{Socket, StreamBus};
use super::opening::{ANSWER, ChannelOpening};
use crate::contract::{Direction, Keep};
use crate::session::poller::{Interest, Poller};
use crate::session::token::{Key, token_of};

/// An attempt to connect fails after this time: the system's own retries are far apart.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// A channel that is not open by then, though the peer should be ready for it, has failed.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Connections kept at most for channels that this side has not asked for yet.
const MAX_EARLY: usize = 16 * 1024;

/// What all openings of one conversation have in common.
pub(super) struct Context<'a> {
    pub(super) poller: &'a Poller,
    /// Name of this host.
    pub(super) host: &'a str,
    /// This process's session.
    pub(super) session: u64,
    /// The peer's session.
    pub(super) peer_session: u64,
    pub(super) now: Instant,
}

/// A channel whose opening has ended.
pub(super) struct Done<S> {
    pub(super) key: Key,
    pub(super) keep: Keep,
    pub(super) result: Result<Arc<S>, String>,
}

struct Open<B: StreamBus> {
    keep: Keep,
    token: u64,
    /// After that the opening has failed; `None` where the peer may take its time.
    fails_at: Option<Instant>,
    stage: Stage<B>,
}

enum Stage<B: StreamBus> {
    /// The peer will connect.
    Awaited,
    /// Between two attempts to connect to this address; the last one's error.
    Paused(B::Address, Instant, String),
    /// The connection is being made, until then.
    Connecting(B::Address, B::Socket, Instant),
    /// The opening was sent; this many bytes of its answer are here.
    Asked(B::Socket, usize),
}

pub(super) struct Opens<B: StreamBus> {
    opening: HashMap<Key, Open<B>>,
    /// Connections of the peer for channels that this side has not asked for yet, with their
    /// tokens.
    early: HashMap<Key, (B::Socket, u64)>,
    live: HashMap<Key, Weak<B::Socket>>,
}

impl<B: StreamBus> Default for Opens<B> {
    fn default() -> Self {
        Opens {
            opening: HashMap::new(),
            early: HashMap::new(),
            live: HashMap::new(),
        }
    }
}

impl<B: StreamBus> Opens<B> {
    /// Waits for the peer to connect, or takes the connection that it has made already.
    pub(super) fn expect(
        &mut self,
        key: Key,
        keep: Keep,
        token: u64,
        context: &Context<'_>,
    ) -> Option<Done<B::Socket>> {
        // A receiver is asked for before the peer knows of it; a sender's peer connects at once.
        let fails_at = (key.0 == Direction::Send).then(|| context.now + TIMEOUT);
        let open = Open {
            keep,
            token,
            fails_at,
            stage: Stage::Awaited,
        };
        match self.early.remove(&key) {
            Some((socket, early_token)) if early_token == token => Some(self.answer(key, keep, socket)),
            _ => {
                self.opening.insert(key, open);
                None
            }
        }
    }

    /// Begins to connect to the peer.
    pub(super) fn dial(&mut self, key: Key, keep: Keep, token: u64, to: B::Address, context: &Context<'_>) {
        let stage = connect(key, to, context);
        let fails_at = Some(context.now + TIMEOUT);
        self.opening.insert(
            key,
            Open {
                keep,
                token,
                fails_at,
                stage,
            },
        );
    }

    /// Takes a connection that the peer made.
    pub(super) fn arrived(
        &mut self,
        socket: B::Socket,
        opening: &ChannelOpening,
        context: &Context<'_>,
    ) -> Option<Done<B::Socket>> {
        if opening.from_session != context.peer_session || opening.to_session != context.session {
            tracing::debug!(
                "{}: closed the connection of a channel of an earlier session",
                B::NAME
            );
            return None;
        }
        let direction = match opening.direction {
            Direction::Send => Direction::Receive,
            Direction::Receive => Direction::Send,
        };
        let key = (direction, opening.channel);
        match self.opening.get(&key) {
            Some(Open {
                stage: Stage::Awaited,
                token,
                keep,
                ..
            }) => {
                if *token != opening.token {
                    tracing::warn!(
                        "{}: closed a connection for channel {}: wrong token",
                        B::NAME,
                        opening.channel.0
                    );
                    return None;
                }
                let keep = *keep;
                self.opening.remove(&key);
                Some(self.answer(key, keep, socket))
            }
            // Only a sender may still be unasked for: a receiver's peer learned of it after it was.
            None if direction == Direction::Send && self.early.len() < MAX_EARLY => {
                self.early.insert(key, (socket, opening.token));
                None
            }
            _ => None,
        }
    }

    fn answer(&mut self, key: Key, keep: Keep, socket: B::Socket) -> Done<B::Socket> {
        let result = match socket.write(&[IoSlice::new(&ANSWER)]) {
            Ok(Some(bytes)) if bytes == ANSWER.len() => Ok(self.hold(key, socket)),
            Ok(_) => Err("the channel's connection took no answer".into()),
            Err(error) => Err(format!("the channel's connection failed: {error}")),
        };
        Done { key, keep, result }
    }

    /// A connection that stands: the link keeps a hold on it as long as an end uses it.
    fn hold(&mut self, key: Key, socket: B::Socket) -> Arc<B::Socket> {
        let socket = Arc::new(socket);
        self.live.insert(key, Arc::downgrade(&socket));
        socket
    }

    /// Continues an opening whose socket is ready.
    pub(super) fn ready(&mut self, key: Key, context: &Context<'_>) -> Option<Done<B::Socket>> {
        let Open {
            keep,
            token,
            mut fails_at,
            stage,
        } = self.opening.remove(&key)?;
        let next = match stage {
            Stage::Connecting(to, socket, until) => match socket.connected() {
                None => Ok(Stage::Connecting(to, socket, until)),
                Some(Ok(())) => {
                    // The peer may ask for its sender at any time; its receiver is ready.
                    if key.0 == Direction::Receive {
                        fails_at = None;
                    }
                    ask(key, token, socket, context)
                }
                Some(Err(error)) => Ok(Stage::Paused(to, context.now + CONNECT_PAUSE, error.to_string())),
            },
            Stage::Asked(socket, have) => match read_answer(&socket, have) {
                Ok(have) if have == ANSWER.len() => {
                    context.poller.remove(&socket);
                    return Some(Done {
                        key,
                        keep,
                        result: Ok(self.hold(key, socket)),
                    });
                }
                Ok(have) => Ok(Stage::Asked(socket, have)),
                Err(error) => Err(error),
            },
            stage => Ok(stage),
        };
        match next {
            Ok(stage) => {
                self.opening.insert(
                    key,
                    Open {
                        keep,
                        token,
                        fails_at,
                        stage,
                    },
                );
                None
            }
            Err(error) => Some(Done {
                key,
                keep,
                result: Err(error),
            }),
        }
    }

    /// Retries what is due, and abandons what is late.
    pub(super) fn tick(&mut self, context: &Context<'_>) -> Vec<Done<B::Socket>> {
        let mut done = Vec::new();
        self.opening.retain(|key, open| {
            if open.fails_at.is_some_and(|at| context.now >= at) {
                let why = match &open.stage {
                    Stage::Awaited => "the peer did not make the channel's connection".to_owned(),
                    Stage::Paused(to, _, error) => format!("no connection to {to}: {error}"),
                    Stage::Connecting(to, ..) => format!("no connection to {to}: no answer"),
                    Stage::Asked(..) => "the peer did not take the channel's connection".to_owned(),
                };
                let why = format!("{why} within {TIMEOUT:?}");
                done.push(Done {
                    key: *key,
                    keep: open.keep,
                    result: Err(why),
                });
                return false;
            }
            match &open.stage {
                Stage::Paused(to, until, _) if context.now >= *until => {
                    open.stage = connect(*key, to.clone(), context);
                }
                Stage::Connecting(to, _, until) if context.now >= *until => {
                    open.stage = Stage::Paused(
                        to.clone(),
                        context.now,
                        format!("no answer within {CONNECT_TIMEOUT:?}"),
                    );
                }
                _ => {}
            }
            true
        });
        done
    }

    /// When [`tick`](Self::tick) is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let of_stage = |open: &Open<B>| match &open.stage {
            Stage::Paused(_, until, _) | Stage::Connecting(_, _, until) => Some(*until),
            Stage::Awaited | Stage::Asked(..) => None,
        };
        self.opening
            .values()
            .filter_map(|open| open.fails_at.into_iter().chain(of_stage(open)).min())
            .min()
    }

    /// Forgets a channel.
    pub(super) fn close(&mut self, key: Key) {
        self.opening.remove(&key);
        self.early.remove(&key);
        self.live.remove(&key);
    }

    /// The link is down: ends everything. Ends in use drain what has arrived and then fail.
    pub(super) fn void(&mut self) {
        for socket in self.live.values().filter_map(Weak::upgrade) {
            socket.end();
        }
        *self = Opens::default();
    }
}

fn connect<B: StreamBus>(key: Key, to: B::Address, context: &Context<'_>) -> Stage<B> {
    let begun = B::connect(&to).and_then(|socket| {
        context.poller.add(&socket, token_of(key), Interest::Write)?;
        Ok(socket)
    });
    match begun {
        Ok(socket) => Stage::Connecting(to, socket, context.now + CONNECT_TIMEOUT),
        Err(error) => Stage::Paused(to, context.now + CONNECT_PAUSE, error.to_string()),
    }
}

/// Sends what the connection is for.
fn ask<B: StreamBus>(
    key: Key,
    token: u64,
    socket: B::Socket,
    context: &Context<'_>,
) -> Result<Stage<B>, String> {
    let opening = ChannelOpening {
        from_session: context.session,
        to_session: context.peer_session,
        token,
        channel: key.1,
        direction: key.0,
        host: context.host.to_owned(),
    };
    let bytes = opening.encode();
    match socket.write(&[IoSlice::new(&bytes)]) {
        Ok(Some(written)) if written == bytes.len() => {}
        Ok(_) => return Err("a new connection took no bytes".into()),
        Err(error) => return Err(format!("the channel's connection failed: {error}")),
    }
    context
        .poller
        .modify(&socket, token_of(key), Interest::Read)
        .map_err(|error| error.to_string())?;
    Ok(Stage::Asked(socket, 0))
}

/// Reads the answer, and not a byte of the stream that follows it; returns how much of it is here.
fn read_answer(socket: &impl Socket, have: usize) -> Result<usize, String> {
    let mut buffer = [0; ANSWER.len()];
    match socket.read(&mut buffer[have..]) {
        Ok(None) => Ok(have),
        Ok(Some(0)) => Err("the peer refused the channel's connection".into()),
        Ok(Some(bytes)) if buffer[have..have + bytes] == ANSWER[have..have + bytes] => Ok(have + bytes),
        Ok(Some(_)) => Err("the peer's answer to the channel's connection is none of ours".into()),
        Err(error) => Err(format!("the channel's connection failed: {error}")),
    }
}
