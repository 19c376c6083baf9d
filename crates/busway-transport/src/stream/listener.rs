//! One listening socket an address, shared by all links of one bus in a process.
//!
//! Reads the first bytes of each connection and hands it to the link of the host that it names.
//! Closes and counts a connection that is no opening, names an unknown host, or sends nothing in
//! time, with a warning at most every [`WARN_EVERY`]. Every link that uses it polls it and has its
//! descriptor in its set.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::backoff::BackOff;
use super::bus::{Socket, StreamBus};
use super::inbox::{Inbox, Incoming};
use super::opening::{MAX_OPENING_BYTES, Opening};
use crate::contract::OpenError;
use crate::session::poller::{Interest, Poller};

/// A connection that has not sent its opening by then is closed.
const OPENING_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections without an opening yet; further ones wait in the system's queue.
const MAX_STRANGERS: usize = 256;
/// Pause after an accept that failed, since its cause (no descriptors left) lasts.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time between two warnings about strangers.
const WARN_EVERY: Duration = Duration::from_secs(5);
/// Token of the listening socket; connections have numbers from 1.
const LISTEN: u64 = 0;

/// What the links of one bus in a process share: the listeners, by address.
pub struct Shared<B: StreamBus> {
    listeners: Mutex<HashMap<B::Address, Weak<Listener<B>>>>,
}

impl<B: StreamBus> Default for Shared<B> {
    fn default() -> Self {
        Shared {
            listeners: Mutex::default(),
        }
    }
}

impl<B: StreamBus> Shared<B> {
    /// The listener of an address, with a route to `inbox` for connections from `peer_host`.
    ///
    /// # Errors
    /// There is a link to that host on that address already.
    pub(super) fn listener(
        &self,
        address: &B::Address,
        peer_host: &str,
        inbox: &Arc<Inbox<B::Socket>>,
    ) -> Result<Arc<Listener<B>>, OpenError> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = match listeners.get(address).and_then(Weak::upgrade) {
            Some(listener) => listener,
            None => {
                let listener = Arc::new(Listener::new(address.clone())?);
                listeners.insert(address.clone(), Arc::downgrade(&listener));
                listener
            }
        };
        let mut state = listener.state();
        if state
            .routes
            .get(peer_host)
            .is_some_and(|route| route.strong_count() > 0)
        {
            return Err(OpenError::NoRoom(format!(
                "this process has a link to `{peer_host}` on {address} already; give the other one an address of its own"
            )));
        }
        state.routes.insert(peer_host.to_owned(), Arc::downgrade(inbox));
        drop(state);
        Ok(listener)
    }
}

pub(super) struct Listener<B: StreamBus> {
    address: B::Address,
    /// A second handle of the poller's descriptor, so that it can be waited for without the lock.
    wait: std::os::fd::OwnedFd,
    state: Mutex<State<B>>,
}

struct State<B: StreamBus> {
    poller: Poller,
    socket: Option<B::Listener>,
    /// When to listen, or to accept, again.
    pause_until: Option<Instant>,
    /// Why this address can't be listened on.
    trouble: Option<String>,
    back_off: BackOff,
    strangers: HashMap<u64, Stranger<B>>,
    next_stranger: u64,
    /// Inboxes by peer host.
    routes: HashMap<String, Weak<Inbox<B::Socket>>>,
    /// Connections closed because they followed no protocol of ours.
    rejected: u64,
    /// The part of `rejected` that was warned of, and the time of the last warning.
    warned: u64,
    warned_at: Option<Instant>,
}

/// A connection that has not sent its opening yet.
struct Stranger<B: StreamBus> {
    socket: B::Socket,
    from: B::Origin,
    bytes: Vec<u8>,
    deadline: Instant,
}

impl<B: StreamBus> Listener<B> {
    fn new(address: B::Address) -> io::Result<Self> {
        let poller = Poller::new()?;
        Ok(Listener {
            address,
            wait: poller.as_fd().try_clone_to_owned()?,
            state: Mutex::new(State {
                poller,
                socket: None,
                pause_until: None,
                trouble: None,
                back_off: BackOff::default(),
                strangers: HashMap::new(),
                next_stranger: LISTEN + 1,
                routes: HashMap::new(),
                rejected: 0,
                warned: 0,
                warned_at: None,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is due. Returns why the address can't be listened on, if so.
    pub(super) fn pump(&self, now: Instant) -> Option<String> {
        let mut state = self.state();
        if state.pause_until.is_none_or(|until| now >= until) {
            state.pause_until = None;
            state.listen(&self.address, now);
        }
        let ready = state.poller.ready();
        for token in ready {
            if token == LISTEN {
                state.accept(now);
            } else {
                state.hear(token, now);
            }
        }
        let late: Vec<u64> = state
            .strangers
            .iter()
            .filter(|(_, stranger)| now >= stranger.deadline)
            .map(|(token, _)| *token)
            .collect();
        for token in late {
            if let Some(stranger) = state.strangers.remove(&token) {
                state.reject(&stranger.from, "silent for 2 s", now);
            }
        }
        state.trouble.clone()
    }

    /// When [`pump`](Self::pump) is due although the descriptor is quiet.
    pub(super) fn due(&self) -> Option<Instant> {
        let state = self.state();
        state
            .strangers
            .values()
            .map(|stranger| stranger.deadline)
            .chain(state.pause_until)
            .min()
    }

    /// Ends the route of a link that is dropped.
    pub(super) fn forget(&self, peer_host: &str, inbox: &Arc<Inbox<B::Socket>>) {
        let mut state = self.state();
        if state
            .routes
            .get(peer_host)
            .is_some_and(|route| std::ptr::eq(route.as_ptr(), Arc::as_ptr(inbox)))
        {
            state.routes.remove(peer_host);
        }
    }
}

impl<B: StreamBus> AsFd for Listener<B> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wait.as_fd()
    }
}

impl<B: StreamBus> State<B> {
    /// Listens, if it does not yet; accepts again after a pause.
    fn listen(&mut self, address: &B::Address, now: Instant) {
        if let Some(socket) = &self.socket {
            // The socket is not in the set during a pause; adding it twice does no harm.
            let _ = self.poller.add(socket, LISTEN, Interest::Read);
            return;
        }
        match B::listen(address).and_then(|socket| {
            self.poller.add(&socket, LISTEN, Interest::Read)?;
            Ok(socket)
        }) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.trouble = None;
            }
            Err(error) => {
                self.trouble = Some(if error.kind() == io::ErrorKind::Unsupported {
                    error.to_string()
                } else {
                    format!("this host can't listen on {address}: {error}")
                });
                self.pause_until = Some(now + self.back_off.next());
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        while self.strangers.len() < MAX_STRANGERS {
            let Some(socket) = &self.socket else { return };
            match B::accept(socket) {
                Ok((socket, from)) => self.greet(socket, from, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(
                        "{}: a connection could not be accepted, trying again: {error}",
                        B::NAME
                    );
                    self.poller.remove(socket);
                    self.pause_until = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
        // Full: leave the rest in the system's queue, and do not wake up for them.
        if let Some(socket) = &self.socket {
            self.poller.remove(socket);
            self.pause_until = Some(now + ACCEPT_PAUSE);
        }
    }

    fn greet(&mut self, socket: B::Socket, from: B::Origin, now: Instant) {
        let token = self.next_stranger;
        self.next_stranger += 1;
        if self.poller.add(&socket, token, Interest::Read).is_ok() {
            let bytes = Vec::with_capacity(128);
            self.strangers.insert(
                token,
                Stranger {
                    socket,
                    from,
                    bytes,
                    deadline: now + OPENING_TIMEOUT,
                },
            );
            self.hear(token, now);
        }
    }

    /// Reads from a stranger, and hands its connection over once it is known what it is for.
    fn hear(&mut self, token: u64, now: Instant) {
        let Some(stranger) = self.strangers.get_mut(&token) else {
            return;
        };
        let mut buffer = [0; MAX_OPENING_BYTES];
        let opening = match stranger.socket.read(&mut buffer) {
            Ok(None) => return,
            Ok(Some(0)) => Err("closed before it said what it is".into()),
            Ok(Some(bytes)) => {
                stranger.bytes.extend(&buffer[..bytes]);
                Opening::decode(&stranger.bytes)
            }
            Err(error) => Err(error.to_string()),
        };
        let opening = match opening {
            Ok(None) => return,
            Ok(Some(opening)) => Ok(opening),
            Err(error) => Err(error),
        };
        let Some(Stranger { socket, from, .. }) = self.strangers.remove(&token) else {
            return;
        };
        self.poller.remove(&socket);
        match opening {
            Ok(opening) => match self.routes.get(opening.host()).and_then(Weak::upgrade) {
                Some(inbox) => inbox.put(Incoming::Opened(socket, opening)),
                None => {
                    let why = format!(
                        "no link of this host on this address leads to `{}`: is that its name in the system file here too?",
                        opening.host().escape_debug()
                    );
                    self.reject(&from, &why, now);
                }
            },
            Err(why) => self.reject(&from, &why, now),
        }
    }

    fn reject(&mut self, from: &B::Origin, why: &str, now: Instant) {
        self.rejected += 1;
        if self.warned_at.is_some_and(|at| now < at + WARN_EVERY) {
            return;
        }
        let more = self.rejected - self.warned - 1;
        tracing::warn!(
            rejected = self.rejected,
            "{}: closed a connection from {from}: {why} ({more} more since the last warning)",
            B::NAME
        );
        self.warned = self.rejected;
        self.warned_at = Some(now);
    }
}
