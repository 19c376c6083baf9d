//! What a bus of connections brings: how to connect, listen and accept, and how it notices that the
//! peer is gone. `docs/adding-a-bus.md` has an example.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::time::Duration;

use super::io::{not_now, write};
use crate::contract::Direction;
use crate::session::poller::Poller;

/// Token of what a bus watches (see [`StreamBus::watch`]) in its link's poller.
pub(crate) const WATCHED: u64 = 5;

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

    /// Ends writing; reading goes on, where connections of this kind allow that.
    fn finish(&self);

    /// Ends both directions, for all holders of the connection. Bytes that wait for the other host
    /// need not arrive, and reads return the end of the stream.
    fn end(&self);
}

/// The heartbeat that a link sends and expects.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    /// Time between two of this host's.
    pub every: Duration,
    /// Silence of the peer after which the link goes down.
    pub timeout: Duration,
}

/// What [`StreamBus::look`] found.
pub enum Discovered {
    /// The peer accepts connections now.
    Here,
    /// A problem of the link, for people; reported once.
    Trouble(String),
}

/// A kind of connection, with the settings of one link. The functions without `self` serve all
/// links of a process.
pub trait StreamBus: Send + 'static {
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

    /// Begins to connect. The socket becomes writable when it is decided (see
    /// [`Socket::connected`]).
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where this system has no connections of this kind: the link
    /// reports it as [`Refused`](crate::LinkEvent::Refused). Any other: this attempt failed.
    fn connect(to: &Self::Address) -> io::Result<Self::Socket>;

    /// Accepts connections from now on.
    ///
    /// # Errors
    /// Nobody can listen there.
    fn listen(address: &Self::Address) -> io::Result<Self::Listener>;

    /// The next connection.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none.
    fn accept(listener: &Self::Listener) -> io::Result<(Self::Socket, Self::Origin)>;

    /// Prepares the connection of the conversation.
    ///
    /// # Errors
    /// The connection can't be used; this attempt failed.
    fn tune_conversation(&self, _socket: &Self::Socket) -> io::Result<()> {
        Ok(())
    }

    /// Prepares the connection of a channel.
    ///
    /// # Errors
    /// Logged; the channel works without.
    fn tune_channel(&self, _socket: &Self::Socket, _direction: Direction) -> io::Result<()> {
        Ok(())
    }

    /// The heartbeat of the conversation; `None` where the system notices by itself that the peer
    /// is gone.
    fn heartbeat(&self) -> Option<Heartbeat>;

    /// How long the peer may take to greet; without a heartbeat also how long it may leave the
    /// conversation unread.
    fn silence_timeout(&self) -> Duration;

    /// Called when a conversation has come up.
    fn came_up(&self, _socket: &Self::Socket) {}

    /// Called regularly while there is no conversation: adds what announces the peer to `poller`
    /// under the token `WATCHED`, unless it is there already.
    fn watch(&mut self, _poller: &Poller) {}

    /// Called when what [`watch`](Self::watch) added to the poller is ready.
    fn look(&mut self, _poller: &Poller) -> Option<Discovered> {
        None
    }
}
