//! The few socket calls that this bus makes, all non-blocking. Called by the link, the listener and both channel ends.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendFlags};
use socket2::{Domain, Protocol, SockRef, TcpKeepalive, Type};

/// Silence in seconds after which the system asks whether a connection's other end is there, and then every [`PROBE_S`].
const KEEP_ALIVE_S: u64 = 10;
/// Seconds between two such questions; after [`PROBES`] without an answer the connection fails.
const PROBE_S: u64 = 2;
/// Unanswered questions after which a connection fails.
const PROBES: u32 = 5;

/// A TCP connection, non-blocking, without Nagle's delay.
#[derive(Debug)]
pub(super) struct Socket(socket2::Socket);

impl Socket {
    /// Begins to connect; it is decided when the socket becomes writable (see [`connected`](Self::connected)).
    pub(super) fn connect(to: SocketAddr) -> io::Result<Socket> {
        let socket = socket2::Socket::new(
            Domain::for_address(to),
            Type::STREAM.nonblocking().cloexec(),
            Some(Protocol::TCP),
        )?;
        tune(&SockRef::from(&socket))?;
        match socket.connect(&to.into()) {
            Ok(()) => Ok(Socket(socket)),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                Ok(Socket(socket))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the connection stands: `None` while that is undecided.
    pub(super) fn connected(&self) -> Option<io::Result<()>> {
        match self.0.take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return Some(Err(error)),
        }
        match self.0.peer_addr() {
            Ok(_) => Some(Ok(())),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Takes over an accepted connection.
    pub(super) fn accepted(stream: std::net::TcpStream) -> io::Result<Socket> {
        stream.set_nonblocking(true)?;
        tune(&SockRef::from(&stream))?;
        Ok(Socket(stream.into()))
    }

    /// Makes the connection fail if what was sent stays unacknowledged for so long. Not for channels: a peer that is slow to take
    /// its messages would count as dead.
    pub(super) fn fail_unacknowledged_after(&self, timeout: Duration) -> io::Result<()> {
        self.0.set_tcp_user_timeout(Some(timeout))
    }

    /// Bounds what the system holds for sending (it doubles the number for its own needs, and has a limit of its own).
    pub(super) fn bound_send_buffer(&self, bytes: usize) -> io::Result<()> {
        self.0.set_send_buffer_size(bytes)
    }

    /// Writes as much as fits; `None` if nothing does.
    pub(super) fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        not_now(rustix::net::sendmsg(
            &self.0,
            slices,
            &mut SendAncillaryBuffer::default(),
            flags,
        ))
    }

    /// Reads what is there; `None` if nothing is, 0 at the end of the stream.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        not_now(rustix::io::read(&self.0, buffer))
    }

    /// As [`read`](Self::read), into several places.
    pub(super) fn read_vectored(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        not_now(rustix::io::readv(&self.0, slices))
    }

    /// Ends one or both directions. A connection that is gone already is fine.
    pub(super) fn shutdown(&self, how: Shutdown) {
        // The only failure is "not connected", which is what was wanted.
        let _ = self.0.shutdown(how);
    }

    /// The descriptor, for a caller's poll set.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn not_now(result: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    use rustix::io::Errno;
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn tune(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(Duration::from_secs(KEEP_ALIVE_S))
            .with_interval(Duration::from_secs(PROBE_S))
            .with_retries(PROBES),
    )
}
