//! `tcp`: a bare TCP connection. `tcp-batch`: the same, with many messages in a call of the system
//! one way, as a channel has them.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::path::{Description, Opening, User};
use super::ready::accepted;
use super::stream::{Calls, Socket, Stream, socket};
use crate::control::WorkerResult;
use crate::record::Measured;

const BATCHING: &str = "tcp-batch";

pub(super) fn describe() -> [Description; 2] {
    [
        Description::new("tcp", "a bare TCP connection, a call for each message"),
        Description::new(
            BATCHING,
            "a bare TCP connection; one way, up to 64 KiB of messages a call",
        ),
    ]
}

pub(super) fn with(name: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    match connected(opening)? {
        Some(socket) => user.exchange(Stream::new(socket, opening, Calls::of(name == BATCHING))?),
        None => Ok(Measured::default()),
    }
}

/// Connects both programs, without delay of short segments. The answering one listens and says
/// where; `None` if it shall end before anybody has connected.
pub(super) fn connected(opening: &Opening<'_>) -> WorkerResult<Option<TcpStream>> {
    let address = opening.place.address;
    let socket = if opening.answers() {
        let Some(socket) = accept(address, opening)? else {
            return Ok(None);
        };
        socket
    } else {
        TcpStream::connect(address).map_err(|e| format!("connect to {address}: {e}"))?
    };
    socket
        .set_nodelay(true)
        .map_err(|e| format!("socket options: {e}"))?;
    Ok(Some(socket))
}

fn accept(address: SocketAddr, opening: &Opening<'_>) -> WorkerResult<Option<TcpStream>> {
    let listening = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    let (listener, address) = listening.map_err(|e| format!("listen on {address}: {e}"))?;
    (opening.listening)(Some(address));
    accepted(opening, address, || listener.accept())
}

socket!(TcpStream);
