//! The socket between a host's gateway and the processes of its partitions: a file of the store.
//!
//! Contract: packets in order, one message each (SOCK_SEQPACKET). The kernel says when the process
//! at the other end is gone, however it went. Nothing here waits. A socket has a name in the
//! store's directory, so it is reached wherever the store is, in another network namespace too. A
//! gateway that starts takes the name from the one before.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, send, socket_with,
};

use super::message::{MAX_BYTES, Packet};

/// Name of the socket in the store's directory.
const NAME: &str = "writers";
/// Processes that may wait to be accepted.
const BACKLOG: i32 = 64;

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// The address of `name` in the directory, however long its path is.
fn address(directory: &OwnedFd, name: &str) -> io::Result<SocketAddrUnix> {
    let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    Ok(SocketAddrUnix::new(path)?)
}

fn open(root: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(root, flags, Mode::empty())?)
}

/// Waits for processes, in the store's directory `root`.
pub(super) fn listener(root: &Path) -> io::Result<OwnedFd> {
    let directory = open(root)?;
    let socket = socket()?;
    // It gets its name when it is complete, and takes it from a gateway that was killed.
    let own_name = format!(".new-{NAME}-{}", std::process::id());
    let _ = rustix::fs::unlinkat(&directory, &own_name, rustix::fs::AtFlags::empty());
    bind(&socket, &address(&directory, &own_name)?)?;
    let mode = Mode::from_raw_mode(0o660);
    rustix::fs::chmodat(&directory, &own_name, mode, rustix::fs::AtFlags::empty())?;
    listen(&socket, BACKLOG)?;
    rustix::fs::renameat(&directory, &own_name, &directory, NAME)?;
    Ok(socket)
}

/// The next process that wants to talk.
pub(super) fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()
}

/// Connects to the gateway, if there is one.
pub(super) fn connect_to(root: &Path) -> io::Result<OwnedFd> {
    let directory = open(root)?;
    let socket = socket()?;
    connect(&socket, &address(&directory, NAME)?)?;
    Ok(socket)
}

/// Sends a message; `false`: the other side is gone, or has not read for long.
pub(super) fn tell(socket: &OwnedFd, message: &impl serde::Serialize) -> bool {
    let Some(packet) = Packet::new(message) else {
        return false;
    };
    let sent = send(
        socket,
        packet.as_bytes(),
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    );
    sent == Ok(packet.as_bytes().len())
}

/// What was received.
pub(super) enum Received<'b> {
    Message(&'b [u8]),
    /// There is none now.
    Nothing,
    /// The other side is gone.
    End,
}

/// Receives a message into `buffer`.
pub(super) fn receive<'b>(socket: &OwnedFd, buffer: &'b mut [u8; MAX_BYTES]) -> Received<'b> {
    match recv(socket.as_fd(), &mut buffer[..], RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Received::End,
        Ok((_, length)) => Received::Message(&buffer[..length.min(MAX_BYTES)]),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Received::Nothing,
        Err(_) => Received::End,
    }
}
