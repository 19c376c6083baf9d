//! `tipc`: a bare TIPC connection of whole messages (SOCK_SEQPACKET).
//!
//! The answering program offers a service whose instance is a hash of the measurement's name; the
//! asking one connects to it, on whichever node of the cluster it is.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use busway_buses::missing;
use busway_transport::tipc::address::{AF_TIPC, MAX_MESSAGE_BYTES, ServiceAddress};
use busway_transport::tipc::settings::Scope;
use socket2::{Domain, Type};

use super::path::{Description, Opening, User};
use super::ready::accepted;
use super::stream::{Socket, Stream, socket};
use crate::control::WorkerResult;
use crate::record::Measured;

/// Service type of measurements: the bytes `BUSB`.
const SERVICE_TYPE: u32 = 0x4255_5342;
/// A service is known on all nodes within this time; nodes that have just met need a few seconds.
const FINDING_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn describe() -> [Description; 1] {
    [Description {
        max_bytes: MAX_MESSAGE_BYTES,
        missing: missing("tipc"),
        ..Description::new("tipc", "a bare TIPC connection (SOCK_SEQPACKET)")
    }]
}

pub(super) fn with(_: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    let address = ServiceAddress {
        service_type: SERVICE_TYPE,
        instance: ServiceAddress::instance_of(&[&opening.place.name]),
        scope: Scope::Cluster,
    };
    let socket = if opening.answers() {
        accept(address, opening)?
    } else {
        connect(address, opening)?
    };
    match socket {
        Some(socket) => user.exchange(Stream::new(socket, opening)?),
        None => Ok(Measured::default()),
    }
}

fn new_socket() -> std::io::Result<socket2::Socket> {
    socket2::Socket::new(Domain::from(i32::from(AF_TIPC)), Type::SEQPACKET, None)
}

/// `None` if the program shall end before anybody has connected.
fn accept(address: ServiceAddress, opening: &Opening<'_>) -> WorkerResult<Option<socket2::Socket>> {
    let listening = new_socket().and_then(|listener| {
        listener.set_nonblocking(true)?;
        listener.bind(&address.to_socket_address())?;
        listener.listen(1)?;
        Ok(listener)
    });
    let listener = listening.map_err(|e| format!("listen on {address}: {e}"))?;
    (opening.listening)(None);
    accepted(opening, address, || listener.accept())
}

fn connect(address: ServiceAddress, opening: &Opening<'_>) -> WorkerResult<Option<socket2::Socket>> {
    let give_up_at = Instant::now() + FINDING_TIMEOUT;
    while !opening.control.ended() {
        let connected = new_socket().and_then(|socket| {
            socket.connect(&address.to_socket_address())?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => return Ok(Some(socket)),
            Err(e) if e.kind() == ErrorKind::HostUnreachable && Instant::now() < give_up_at => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => {
                return Err(format!(
                    "connect to {address}: {e}; two hosts need a bearer each: tipc bearer enable media eth device DEVICE"
                ));
            }
        }
    }
    Ok(None)
}

socket!(socket2::Socket);
