//! TCP sockets, all non-blocking. Used by the bus's [`StreamBus`](crate::stream::StreamBus), and by
//! [`crate::stream`] through [`Socket`].

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, TcpKeepalive, Type};

use crate::stream::Socket;

/// Silence in seconds after which the system probes the other end, and then every [`PROBE_S`].
const KEEP_ALIVE_S: u64 = 10;
/// Seconds between two such questions; after [`PROBES`] without an answer the connection fails.
const PROBE_S: u64 = 2;
/// Unanswered questions after which a connection fails.
const PROBES: u32 = 5;
/// How many connections the system may hold ready (it may cut that).
const BACKLOG: i32 = 1024;

/// A TCP connection, non-blocking, without Nagle's delay.
#[derive(Debug)]
pub struct TcpSocket(socket2::Socket);

impl TcpSocket {
    /// Begins to connect. The socket becomes writable when it is decided (see
    /// [`connected`](Self::connected)).
    pub(super) fn connect(to: SocketAddr) -> io::Result<TcpSocket> {
        let socket = socket2::Socket::new(
            Domain::for_address(to),
            Type::STREAM.nonblocking().cloexec(),
            Some(Protocol::TCP),
        )?;
        tune(&SockRef::from(&socket))?;
        match socket.connect(&to.into()) {
            Ok(()) => Ok(TcpSocket(socket)),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                Ok(TcpSocket(socket))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes over an accepted connection.
    pub(super) fn accepted(stream: std::net::TcpStream) -> io::Result<TcpSocket> {
        stream.set_nonblocking(true)?;
        tune(&SockRef::from(&stream))?;
        Ok(TcpSocket(stream.into()))
    }

    /// Makes the connection fail if sent bytes stay unacknowledged for this long. Not for channels:
    /// a peer that takes its messages slowly would count as dead.
    pub(super) fn fail_unacknowledged_after(&self, timeout: Duration) -> io::Result<()> {
        self.0.set_tcp_user_timeout(Some(timeout))
    }

    /// Bounds the send buffer (the system doubles the number, and has a limit of its own).
    pub(super) fn bound_send_buffer(&self, bytes: usize) -> io::Result<()> {
        self.0.set_send_buffer_size(bytes)
    }
}

impl Socket for TcpSocket {
    fn connected(&self) -> Option<io::Result<()>> {
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

    fn finish(&self) {
        // The only failure is "not connected", which is what was wanted.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    fn end(&self) {
        // As above.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Accepts connections on an address.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
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
