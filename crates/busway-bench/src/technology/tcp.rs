//! `tcp`: a bare TCP connection.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::path::{Description, OneWay, Opening, Reach, Stage, User};
use super::stream::{Socket, Stream};
use super::wait::Wait;
use crate::control::WorkerResult;
use crate::record::Measured;

pub(super) fn describe() -> [Description; 1] {
    [Description {
        name: "tcp".into(),
        title: "a bare TCP connection".into(),
        waits: vec![Wait::Event, Wait::Spin],
        reach: Reach::Network,
        one_way: Some(OneWay::Lossless),
        max_bytes: usize::MAX,
        stage: Stage::Bare,
        missing: None,
    }]
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
    while !opening.control.ended() {
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(format!("accept on {address}: {e}")),
        }
    }
    Ok(None)
}

impl Socket for TcpStream {
    fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
        self.set_nonblocking(nonblocking)
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> std::io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }
}
