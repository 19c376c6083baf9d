//! A client of QEMU's ivshmem server: this process shares the memory of virtual machines, rings
//! them and is rung by them.
//!
//! Protocol: "The ivshmem client-server protocol", version 0, in QEMU's docs/specs/ivshmem-spec.
//! The server sends 8-byte messages, little-endian, some with a descriptor; the client sends
//! nothing. In order: version; own number; -1 with the memory; each peer's number with an eventfd
//! for each of its vectors, or without one when it has left; the own number with the own eventfds.
//! A ring is an 8-byte 1 written to an eventfd.
//!
//! Contract: nothing blocks. Joining proceeds at each attempt of a link to open its windows; news
//! of peers are read at each heartbeat and when a peer is looked up. A message out of order or with
//! a wrong number or descriptor ends the connection with a reason. Memory and eventfds stay valid
//! without the server. All links of this process that name one socket share one client. Called by
//! the control thread.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::pci::interrupts::{Interrupts, Lease, MOST_VECTORS};
use reader::MessageReader;

mod reader;

const VERSION: i64 = 0;
/// In the place of a peer's number: the memory.
const MEMORY: i64 = -1;
/// Most peers of one server that are kept; each may hold [`MOST_VECTORS`] descriptors.
const MOST_PEERS: usize = 64;
/// Most messages read at once, so that a server that never stops does not block other work.
const MOST_MESSAGES_A_POLL: usize = 1024;
/// A server whose greeting takes longer is disconnected and joined again.
const JOIN_LIMIT: Duration = Duration::from_secs(2);

/// A server, not joined yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its socket.
    pub socket: PathBuf,
    /// Vectors of this host that the link needs: 0 if it polls.
    pub vectors: u32,
    /// The number under which the other host rings this one, if its table has it.
    pub expected_number: Option<u16>,
}

/// Why a server can't be used now. Links report it and try again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The system refused.
    #[error("cannot {action} the ivshmem server {}: {source}", socket.display())]
    System {
        /// What was tried.
        action: &'static str,
        /// The server's socket.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its greeting is incomplete.
    #[error("the ivshmem server {} has given {given} so far, needed are the memory and {needed} vectors: start it with that many vectors (-n)", socket.display())]
    Waiting {
        /// The server's socket.
        socket: PathBuf,
        /// What it has given.
        given: String,
        /// Vectors that the link needs.
        needed: u32,
    },
    /// What it sent is unusable.
    #[error("the ivshmem server {} {problem}: {mend}", socket.display())]
    Unusable {
        /// The server's socket.
        socket: PathBuf,
        /// What is wrong.
        problem: String,
        /// What would be right.
        mend: String,
    },
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ivshmem server {}", self.socket.display())
    }
}

/// Device, inode and change time of the socket; the time distinguishes files that reuse an inode.
type SocketIdentity = (u64, u64, i64, i64);

/// A peer of a server.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    identity: Option<SocketIdentity>,
    began: Instant,
    state: Mutex<State>,
    /// Alive while this peer's eventfds are in use.
    in_use: Mutex<Weak<()>>,
}

#[derive(Debug)]
struct State {
    /// `None` after the server has gone or was left.
    reader: Option<MessageReader>,
    received: Received,
    /// Why the connection ended.
    ended: Option<String>,
}

/// What the server has sent.
#[derive(Debug, Default)]
struct Received {
    knows_version: bool,
    number: Option<u16>,
    memory: Option<Arc<OwnedFd>>,
    own: Vec<OwnedFd>,
    peers: BTreeMap<u16, Vec<Arc<OwnedFd>>>,
}

/// A server that this process has joined, or is joining.
struct Known {
    client: Weak<Client>,
    /// Keeps the client between two attempts to join.
    joining: Option<Arc<Client>>,
}

/// The servers of this process. Locked when windows and doorbells open, never on the data path.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Joins the server, continues joining it, or returns the client that this process has.
    ///
    /// # Errors
    /// See [`ServerError`]; `Waiting` until the greeting is complete.
    pub(crate) fn join(&self) -> Result<Arc<Client>, ServerError> {
        let mut known = locked(&KNOWN);
        for one in known.iter_mut() {
            let is_late = |client: &mut Arc<Client>| client.began.elapsed() > JOIN_LIMIT;
            let _ = one.joining.take_if(is_late);
        }
        known.retain(|one| one.client.strong_count() > 0);
        let is_ours = |client: &Arc<Client>| client.socket == self.socket && !client.is_replaced();
        let found = known
            .iter()
            .position(|one| one.client.upgrade().as_ref().is_some_and(is_ours));
        let at = match found {
            Some(at) => at,
            None => {
                let client = Arc::new(Client::connect(&self.socket)?);
                known.push(Known {
                    client: Arc::downgrade(&client),
                    joining: Some(client),
                });
                known.len() - 1
            }
        };
        let result = match known[at].client.upgrade() {
            Some(client) => client.check(self).map(|()| client),
            None => Err(self.waiting("nothing".into())),
        };
        if !matches!(result, Err(ServerError::Waiting { .. })) {
            known[at].joining = None;
        }
        result
    }

    fn waiting(&self, given: String) -> ServerError {
        ServerError::Waiting {
            socket: self.socket.clone(),
            given,
            needed: self.vectors,
        }
    }

    /// The eventfds that wake this host.
    ///
    /// # Errors
    /// They are in use, or the other host would ring another peer's.
    pub(crate) fn interrupts(&self) -> Result<Interrupts, ServerError> {
        self.join()?.interrupts(self)
    }
}

impl Client {
    fn connect(socket: &Path) -> Result<Client, ServerError> {
        let system = |action| {
            let socket = socket.to_owned();
            move |errno: rustix::io::Errno| ServerError::System {
                action,
                socket,
                source: errno.into(),
            }
        };
        let identity = socket_identity(socket);
        let address = SocketAddrUnix::new(socket).map_err(system("name"))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(system("make a socket for"))?;
        rustix::net::connect(&stream, &address).map_err(system("connect to"))?;
        Ok(Client::over(stream, socket, identity))
    }

    /// The peer at this end of a connection that does not block.
    fn over(stream: OwnedFd, socket: &Path, identity: Option<SocketIdentity>) -> Client {
        Client {
            socket: socket.into(),
            identity,
            began: Instant::now(),
            state: Mutex::new(State {
                reader: Some(MessageReader::new(stream)),
                received: Received::default(),
                ended: None,
            }),
            in_use: Mutex::new(Weak::new()),
        }
    }

    /// Reads what the server has sent since the last call.
    pub(crate) fn poll(&self) {
        locked(&self.state).poll();
    }

    /// Whether everything is there that the link of `server` needs.
    fn check(&self, server: &Server) -> Result<(), ServerError> {
        let mut state = locked(&self.state);
        state.poll();
        let received = &state.received;
        if received.memory.is_some() && received.own.len() >= server.vectors as usize {
            return Ok(());
        }
        match &state.ended {
            Some(why) => Err(self.unusable(why.clone(), "is it an ivshmem server of QEMU 2.5 or newer?")),
            None => Err(server.waiting(match &received.memory {
                None => "no memory".into(),
                Some(_) => format!("the memory and {} vectors", received.own.len()),
            })),
        }
    }

    fn unusable(&self, problem: impl Into<String>, mend: impl Into<String>) -> ServerError {
        ServerError::Unusable {
            socket: self.socket.clone(),
            problem: problem.into(),
            mend: mend.into(),
        }
    }

    /// The memory, of which the first `end_bytes` bytes must exist.
    ///
    /// # Errors
    /// It is shorter.
    pub(crate) fn memory(&self, end_bytes: u64) -> Result<OwnedFd, ServerError> {
        let memory = locked(&self.state).received.memory.clone();
        let Some(memory) = memory else {
            return Err(self.unusable("gave no memory", "start it anew"));
        };
        let actual_bytes = length(&memory);
        if actual_bytes < end_bytes {
            return Err(self.unusable(
                format!("has a memory of {actual_bytes} bytes, the windows in it need {end_bytes}"),
                "correct `length`, or start it with more (-l)",
            ));
        }
        memory
            .as_fd()
            .try_clone_to_owned()
            .map_err(|source| ServerError::System {
                action: "duplicate the memory of",
                socket: self.socket.clone(),
                source,
            })
    }

    fn interrupts(self: &Arc<Client>, server: &Server) -> Result<Interrupts, ServerError> {
        let mut in_use = locked(&self.in_use);
        if in_use.strong_count() > 0 {
            return Err(self.unusable(
                "wakes another link of this host already",
                "give each link a server of its own, or let one of them poll",
            ));
        }
        let state = locked(&self.state);
        let number = state.received.number.unwrap_or_default();
        if let Some(expected_number) = server
            .expected_number
            .filter(|expected_number| *expected_number != number)
        {
            return Err(self.unusable(
                format!("has given this host the number {number}, and the other host rings number {expected_number}"),
                format!(
                    "write `value = {:#x}` in the other host's `ring`",
                    u32::from(number) << 16
                ),
            ));
        }
        let own = state.received.own.iter().take(server.vectors as usize);
        let eventfds: Result<Vec<OwnedFd>, _> = own.map(|one| one.as_fd().try_clone_to_owned()).collect();
        let eventfds = eventfds.map_err(|source| ServerError::System {
            action: "duplicate the eventfds of",
            socket: self.socket.clone(),
            source,
        })?;
        let token = Arc::new(());
        *in_use = Arc::downgrade(&token);
        let owner = Arc::clone(self);
        let lease = Arc::new(Lease::new(owner, token));
        Ok(Interrupts { eventfds, lease })
    }

    /// The eventfds for `vector` of all other peers that have one.
    pub(crate) fn peers(&self, vector: u32) -> Vec<Arc<OwnedFd>> {
        let mut state = locked(&self.state);
        state.poll();
        let of_vector = |vectors: &Vec<Arc<OwnedFd>>| vectors.get(vector as usize).cloned();
        state.received.peers.values().filter_map(of_vector).collect()
    }

    /// Why the memory can't be used any more. `None`: its first `end_bytes` bytes are there.
    pub(crate) fn fault(&self, end_bytes: u64) -> Option<String> {
        let state = locked(&self.state);
        let actual_bytes = state.received.memory.as_ref().map_or(0, |memory| length(memory));
        (actual_bytes < end_bytes).then(|| {
            format!(
                "the memory of the ivshmem server {} was truncated to {actual_bytes} bytes",
                self.socket.display()
            )
        })
    }

    /// Whether the connection has ended and another server listens at the socket.
    pub(crate) fn is_replaced(&self) -> bool {
        let has_ended = locked(&self.state).reader.is_none();
        has_ended && socket_identity(&self.socket).is_some_and(|now| Some(now) != self.identity)
    }

    /// What it is, for people.
    pub(crate) fn name(&self) -> String {
        format!("ivshmem server {}", self.socket.display())
    }
}

impl State {
    fn poll(&mut self) {
        for _ in 0..MOST_MESSAGES_A_POLL {
            let Some(reader) = &mut self.reader else { return };
            let result = match reader.next() {
                Ok(None) => return,
                Ok(Some((value, descriptor))) => self.received.take(value, descriptor),
                Err(why) => Err(why),
            };
            if let Err(why) = result {
                tracing::warn!(%why, "the connection to the ivshmem server has ended");
                self.ended = Some(why);
                self.reader = None;
            }
        }
    }
}

impl Received {
    /// Takes one message, or returns what is wrong with it.
    fn take(&mut self, value: i64, descriptor: Option<OwnedFd>) -> Result<(), String> {
        if !self.knows_version {
            if value != VERSION || descriptor.is_some() {
                return Err(format!(
                    "speaks version {value} of the protocol, known is {VERSION}"
                ));
            }
            self.knows_version = true;
            return Ok(());
        }
        let Some(own) = self.number else {
            let number = u16::try_from(value).ok().filter(|_| descriptor.is_none());
            self.number = Some(number.ok_or_else(|| format!("gives {value} as this host's number"))?);
            return Ok(());
        };
        if self.memory.is_none() {
            let memory = descriptor.filter(|_| value == MEMORY);
            let memory = memory.ok_or_else(|| format!("says {value} where the memory was due"))?;
            self.memory = Some(Arc::new(checked_memory(memory)?));
            return Ok(());
        }
        let number = u16::try_from(value).map_err(|_| format!("says {value}, which is no peer's number"))?;
        match descriptor {
            None if number == own => Err("says that this host has left".into()),
            None => {
                self.peers.remove(&number);
                Ok(())
            }
            Some(descriptor) => self.add_vector(number, number == own, checked_eventfd(descriptor)?),
        }
    }

    /// Adds a vector of a peer or of this host. Those beyond the limit are closed, as the protocol
    /// asks.
    fn add_vector(&mut self, number: u16, is_own: bool, eventfd: OwnedFd) -> Result<(), String> {
        let most = MOST_VECTORS as usize;
        if is_own {
            if self.own.len() < most {
                self.own.push(eventfd);
            }
            return Ok(());
        }
        if !self.peers.contains_key(&number) && self.peers.len() >= MOST_PEERS {
            return Err(format!("has more than {MOST_PEERS} peers"));
        }
        let vectors = self.peers.entry(number).or_default();
        if vectors.len() < most {
            vectors.push(Arc::new(eventfd));
        }
        Ok(())
    }
}

/// Lets memory pass that can be mapped and has a length.
fn checked_memory(memory: OwnedFd) -> Result<OwnedFd, String> {
    let stat =
        rustix::fs::fstat(&memory).map_err(|errno| format!("gives a memory that is none ({errno})"))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(memory),
        kind => Err(format!("gives a memory that is a {kind:?}")),
    }
}

/// Accepts only an eventfd and makes it non-blocking: a pipe could raise SIGPIPE.
fn checked_eventfd(descriptor: OwnedFd) -> Result<OwnedFd, String> {
    let target = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
    match target {
        Ok(target) if target == Path::new("anon_inode:[eventfd]") => {}
        Ok(target) => return Err(format!("gives {} in the place of an eventfd", target.display())),
        Err(error) => return Err(format!("gives what can't be examined in /proc/self/fd ({error})")),
    }
    let flags = rustix::fs::fcntl_getfl(&descriptor);
    flags
        .and_then(|flags| rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK))
        .map_err(|errno| format!("gives an eventfd that blocks ({errno})"))?;
    Ok(descriptor)
}

/// Bytes of the memory; 0 if unknown.
fn length(memory: &OwnedFd) -> u64 {
    rustix::fs::fstat(memory).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
}

fn socket_identity(socket: &Path) -> Option<SocketIdentity> {
    use std::os::unix::fs::MetadataExt;
    let stat = std::fs::metadata(socket).ok()?;
    Some((stat.dev(), stat.ino(), stat.ctime(), stat.ctime_nsec()))
}

#[cfg(test)]
mod tests;
