//! `tcp`: a bare TCP connection.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::path::{Description, Opening, User};
use super::ready::accepted;
use super::stream::{Socket, Stream, socket};
use crate::control::WorkerResult;
use crate::record::Measured;

pub(super) fn describe() -> [Description; 1] {
    [Description::new("tcp", "a bare TCP connection")]
}

/// Opens it. The answering program listens and says where.
pub(super) fn with(_: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    let address = opening.place.address;
    let socket = if opening.answers() {
        let Some(socket) = accept(address, opening)? else {
            return Ok(Measured::default());
        };
        socket
    } else {
        TcpStream::connect(address).map_err(|e| format!("connect to {address}: {e}"))?
    };
    socket
        .set_nodelay(true)
        .map_err(|e| format!("socket options: {e}"))?;
    user.exchange(Stream::new(socket, opening)?)
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
