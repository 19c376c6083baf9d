//! TIPC sockets, all non-blocking. Used by the bus's [`StreamBus`](crate::stream::StreamBus), by
//! `topology`, and by [`crate::stream`] through [`Socket`].
//!
//! Connections are SOCK_STREAM: the kernel splits what is longer than one TIPC message (66,000
//! bytes), and one read takes several messages. SOCK_SEQPACKET would send the same packets and cost
//! a read for each. The kernel's own coalescing, which delays the small messages of a one-way flow,
//! is off; the sender of a channel coalesces what waits.
#![allow(unsafe_code)] // Socket options and an ioctl that no library knows.

use std::ffi::c_int;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use socket2::{Domain, Type};

use super::address::{AF_TIPC, ServiceAddress, SocketId};
use super::settings::Importance;
use crate::stream::{Socket, not_now};

/// `SOL_TIPC` and options of it, from linux/tipc.h.
const SOL_TIPC: c_int = 271;
const TIPC_IMPORTANCE: c_int = 127;
const TIPC_NODELAY: c_int = 138;
/// How many connections the system may hold ready (it may cut that).
const BACKLOG: c_int = 1024;

/// A TIPC connection, non-blocking.
#[derive(Debug)]
pub struct TipcSocket {
    /// `None` only after `drop` took it.
    socket: Option<socket2::Socket>,
    /// This host has ended it. The kernel does not report that to a reader that does not wait: it
    /// finds nothing.
    ended: AtomicBool,
}

/// A socket that accepts TIPC connections.
#[derive(Debug)]
pub struct TipcListener(socket2::Socket);

impl TipcSocket {
    /// Begins to connect. The socket becomes writable when it is decided (see
    /// [`Socket::connected`]).
    pub(super) fn connect(to: ServiceAddress, kind: Type) -> io::Result<TipcSocket> {
        let socket = new_socket(kind)?;
        if kind == Type::STREAM {
            set_option(&socket, TIPC_NODELAY, 1)?;
        }
        match socket.connect(&to.to_socket_address()) {
            Ok(()) => Ok(socket.into()),
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket.into()),
            Err(error) if error.raw_os_error() == Some(libc::EHOSTUNREACH) => Err(io::Error::new(
                io::ErrorKind::HostUnreachable,
                "no node of the cluster offers it: is the gateway there running, and has each host a bearer \
                 (`tipc bearer enable media eth device DEVICE`; `tipc link list` shows the links)?",
            )),
            Err(error) => Err(error),
        }
    }

    /// How much it matters to the kernel that what this host sends gets through.
    pub(super) fn set_importance(&self, importance: Importance) -> io::Result<()> {
        set_option(self.socket(), TIPC_IMPORTANCE, importance as u32)
    }

    /// The socket at the other end; `None` if there is none.
    pub(super) fn peer(&self) -> Option<SocketId> {
        SocketId::of(&self.socket().peer_addr().ok()?)
    }

    fn socket(&self) -> &socket2::Socket {
        self.socket.as_ref().expect("only drop takes the socket")
    }

    fn is_ended(&self) -> bool {
        // Pairs with the store in `end`.
        self.ended.load(Ordering::Acquire)
    }
}

impl From<socket2::Socket> for TipcSocket {
    fn from(socket: socket2::Socket) -> Self {
        TipcSocket {
            socket: Some(socket),
            ended: AtomicBool::new(false),
        }
    }
}

impl Socket for TipcSocket {
    fn connected(&self) -> Option<io::Result<()>> {
        match self.socket().take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return Some(Err(error)),
        }
        match self.socket().peer_addr() {
            Ok(_) => Some(Ok(())),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let read = not_now(rustix::io::read(self, buffer))?;
        Ok(read.or(self.is_ended().then_some(0)))
    }

    fn read_vectored(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        let read = not_now(rustix::io::readv(self, slices))?;
        Ok(read.or(self.is_ended().then_some(0)))
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        if self.is_ended() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        crate::stream::write(self, slices)
    }

    /// TIPC ends both directions or none. The end mark of a channel does what this would.
    fn finish(&self) {}

    fn end(&self) {
        // Pairs with `is_ended`: a thread that the shutdown wakes sees it.
        self.ended.store(true, Ordering::Release);
        if !is_congested(self.socket()) {
            // The only failure is "not connected", which is what was wanted.
            let _ = self.socket().shutdown(Shutdown::Both);
        } else if let Ok(socket) = self.socket().try_clone() {
            aside(move || {
                let _ = socket.shutdown(Shutdown::Both);
            });
        }
    }
}

impl AsFd for TipcSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl Drop for TipcSocket {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take()
            && is_congested(&socket)
        {
            aside(move || drop(socket));
        }
    }
}

impl TipcListener {
    /// Publishes the address and accepts connections to it.
    pub(super) fn bind(address: ServiceAddress) -> io::Result<TipcListener> {
        let socket = new_socket(Type::STREAM)?;
        socket.bind(&address.to_socket_address())?;
        socket.listen(BACKLOG)?;
        Ok(TipcListener(socket))
    }

    /// The next connection, and who made it.
    pub(super) fn accept(&self) -> io::Result<(TipcSocket, SocketId)> {
        let (socket, _) = self.0.accept()?;
        socket.set_nonblocking(true)?;
        set_option(&socket, TIPC_NODELAY, 1)?;
        let from = SocketId::of(&socket.peer_addr()?).ok_or(io::ErrorKind::ConnectionAborted)?;
        Ok((socket.into(), from))
    }
}

impl AsFd for TipcListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Why no socket of TIPC can be opened; `None` if one can.
pub(super) fn refusal() -> Option<io::Error> {
    new_socket(Type::STREAM).err()
}

fn new_socket(kind: Type) -> io::Result<socket2::Socket> {
    let domain = Domain::from(c_int::from(AF_TIPC));
    socket2::Socket::new(domain, kind.nonblocking().cloexec(), None).map_err(|error| {
        if error.raw_os_error() == Some(libc::EAFNOSUPPORT) {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel has no TIPC: `modprobe tipc`, then enable a bearer: `tipc bearer enable media eth device DEVICE`",
            )
        } else {
            error
        }
    })
}

fn set_option(socket: &socket2::Socket, option: c_int, value: u32) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the kernel reads 4 bytes
    // of `value`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            SOL_TIPC,
            option,
            (&raw const value).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether the kernel would wait, for up to 8 s, before it closes or shuts down this socket: it
/// first sends what is queued (`__tipc_shutdown` in net/tipc/socket.c). That is when the socket
/// accepts no more to send either.
fn is_congested(socket: &socket2::Socket) -> bool {
    let mut set = [PollFd::new(socket, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut set, Some(&now)) == Ok(0)
}

/// Runs `work`, which may take long, on a thread of its own. If the system has no thread left, the
/// socket in `work` is closed here.
fn aside(work: impl FnOnce() + Send + 'static) {
    let spawned = std::thread::Builder::new()
        .name("tipc-close".into())
        .stack_size(64 << 10)
        .spawn(work);
    if let Err(error) = spawned {
        tracing::warn!("tipc: a stuck connection was closed without a thread of its own: {error}");
    }
}
