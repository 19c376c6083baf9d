//! What buses of connections that carry byte streams have in common: everything but the sockets.
//!
//! Contract: a bus brings a [`Bus`] (how a connection is made, accepted and tuned, and how the peer's absence is noticed) and its
//! settings; [`open`] makes a link of it. One side of a link accepts all its connections, the other one makes them, whichever
//! way the data goes. The first bytes of a connection say what it is: a greeting of the control conversation
//! ([`busway_core::control`]), or the `opening` of a channel, which names both sessions and a token from the landing place, so
//! that a stale or stray connection joins nothing. Everything else is closed and counted by the `listener`, and disturbs nobody.
//! Called by [`crate::tcp`] and [`crate::tipc`].
//!
//! | module         | what it does                                                         | runs on        |
//! |----------------|----------------------------------------------------------------------|----------------|
//! | `listener`   | one a listening address; hands connections to links                  | control thread |
//! | `link`       | the link: its clock, its mail, its channels                          | control thread |
//! | `meeting`    | how it comes up and goes down                                        | control thread |
//! | `opens`      | channels on their way to being open                                  | control thread |
//! | `sender`     | batches, written by one system call                                  | lanes          |
//! | `receiver`   | reads straight into the landing                                      | lanes          |
//!
//! The stream of a channel is a sequence of messages (head, user header, payload) and `END_MARK`; what flows back is the
//! cumulative count of messages taken, 8 bytes little-endian each time.

mod conversation;
mod link;
mod listener;
mod mailbox;
mod meeting;
mod opening;
mod opens;
mod poller;
mod receiver;
mod sender;

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendFlags};

pub(crate) use link::{StreamLink, open};
pub use listener::Shared;
pub(crate) use mailbox::Letterbox;
pub(crate) use opens::draw_token;
pub(crate) use poller::{Interest, Poller};
pub(crate) use receiver::rest_of;
pub(crate) use sender::segment_bytes;

pub use crate::contract::Role;
use crate::contract::{ChannelError, Direction, HEAD_BYTES};

/// Token of what a bus watches by itself (see [`Bus::watch`]) in its link's poller.
pub(crate) const WATCHED: u64 = 5;

/// Ends the stream of a channel that was closed in an orderly way; no head, since its kind is unknown.
const END_MARK: [u8; HEAD_BYTES] = *b"the end of this busway channel, in good order\0\0\0";

/// One connection that carries a stream of bytes both ways. No call blocks.
pub trait Socket: AsFd + Debug + Send + Sync + Sized + 'static {
    /// Whether a connection that was begun stands: `None` while that is undecided.
    fn connected(&self) -> Option<io::Result<()>>;

    /// Writes as much as fits; `None` if nothing does.
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        write(self, slices)
    }

    /// Reads what is there; `None` if nothing is, 0 at the end of the stream.
    fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        not_now(rustix::io::read(self, buffer))
    }

    /// As [`read`](Self::read), into several places.
    fn read_vectored(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        not_now(rustix::io::readv(self, slices))
    }

    /// Says that nothing more will be written, where connections of this kind can say so and go on reading.
    fn finish(&self);

    /// Ends both directions, for all who hold the connection: what waits for the other host need not arrive, and reads come to
    /// the end of the stream.
    fn end(&self);
}

/// Signs of life that a link gives and expects.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    /// Time between two of this host's.
    pub every: Duration,
    /// Silence of the peer after which the link is held for lost.
    pub timeout: Duration,
}

/// What [`Bus::look`] has found.
pub enum Sighting {
    /// The peer can be connected to now.
    Here,
    /// Something that keeps the link from working as it should, for people; said once.
    Trouble(String),
}

/// A kind of connections, with the settings of one link. The functions without `self` serve all links of a process.
pub trait Bus: Send + 'static {
    /// The bus's name in the system file.
    const NAME: &'static str;
    /// Where connections are accepted.
    type Address: Clone + Eq + Hash + Debug + Display + Send + Sync + 'static;
    /// One end of a connection.
    type Socket: Socket;
    /// What accepts connections; readable when there is one.
    type Listener: AsFd + Send;
    /// Where a connection came from, for people.
    type Origin: Display + Send;

    /// Begins to connect; it is decided when the socket becomes writable (see [`Socket::connected`]).
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where this system has no connections of this kind: said as
    /// [`Refused`](crate::LinkEvent::Refused), in the error's words. Any other: this attempt failed.
    fn connect(to: &Self::Address) -> io::Result<Self::Socket>;

    /// Accepts connections from now on.
    fn listen(address: &Self::Address) -> io::Result<Self::Listener>;

    /// The next connection; [`io::ErrorKind::WouldBlock`] if there is none.
    fn accept(listener: &Self::Listener) -> io::Result<(Self::Socket, Self::Origin)>;

    /// Prepares the connection of the conversation.
    fn tune_conversation(&self, socket: &Self::Socket) -> io::Result<()>;

    /// Prepares the connection of a channel. What fails here is logged, and the channel works without.
    fn tune_channel(&self, socket: &Self::Socket, direction: Direction) -> io::Result<()>;

    /// The heartbeat of the conversation; `None` where the system notices by itself that the peer is gone.
    fn heartbeat(&self) -> Option<Heartbeat>;

    /// How long the peer may take to greet; without a heartbeat also how long it may leave the conversation unread.
    fn silence_timeout(&self) -> Duration;

    /// Called when a conversation has come up.
    fn came_up(&self, _socket: &Self::Socket) {}

    /// Called while there is no conversation, at every look at the clock: puts what else tells of the peer into `poller` under
    /// [`WATCHED`], unless it is there already.
    fn watch(&mut self, _poller: &Poller) {}

    /// Called when what [`watch`](Self::watch) has put into the poller is ready.
    fn look(&mut self, _poller: &Poller) -> Option<Sighting> {
        None
    }
}

/// Writes to a connection as much as fits; `None` if nothing does.
pub(crate) fn write(socket: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    not_now(rustix::net::sendmsg(
        socket,
        slices,
        &mut SendAncillaryBuffer::default(),
        flags,
    ))
}

/// "Not now" is no error.
pub(crate) fn not_now(result: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    use rustix::io::Errno;
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The same error once more: an end that has failed goes on saying why.
pub(crate) fn again(error: &ChannelError) -> ChannelError {
    match error {
        ChannelError::Closed => ChannelError::Closed,
        ChannelError::Corrupt(what) => ChannelError::Corrupt(what),
        ChannelError::Io(error) => ChannelError::Io(match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        }),
    }
}

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn decode_opening(bytes: &[u8]) {
    for end in 0..=bytes.len().min(opening::MAX_OPENING_BYTES) {
        if opening::Opening::decode(&bytes[..end]).is_err() {
            break;
        }
    }
}
