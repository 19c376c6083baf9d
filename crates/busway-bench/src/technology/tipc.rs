//! `tipc`: a bare TIPC connection of whole messages (SOCK_SEQPACKET). `tipc-stream`: one of bytes
//! (SOCK_STREAM), for messages of any length. `tipc-batch`: the same, with many messages in a call
//! of the system one way, as a channel has them.
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
use super::stream::{Calls, Socket, Stream, socket};
use crate::control::WorkerResult;
use crate::record::Measured;

/// Service type of measurements: the bytes `BUSB`.
const SERVICE_TYPE: u32 = 0x4255_5342;
/// A service is known on all nodes within this time; nodes that have just met need a few seconds.
const FINDING_TIMEOUT: Duration = Duration::from_secs(10);

const MESSAGES: &str = "tipc";
const BATCHING: &str = "tipc-batch";

pub(super) fn describe() -> [Description; 3] {
    let kinds = [
        (
            MESSAGES,
            "a bare TIPC connection (SOCK_SEQPACKET)",
            MAX_MESSAGE_BYTES,
        ),
        (
            "tipc-stream",
            "a bare TIPC connection (SOCK_STREAM), a call for each message",
            usize::MAX,
        ),
        (
            BATCHING,
            "a bare TIPC connection (SOCK_STREAM); one way, up to 64 KiB of messages a call",
            usize::MAX,
        ),
    ];
    kinds.map(|(name, title, max_bytes)| Description {
        max_bytes,
        missing: missing("tipc"),
        ..Description::new(name, title)
    })
}

pub(super) fn with(name: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    let kind = if name == MESSAGES {
        Type::SEQPACKET
    } else {
        Type::STREAM
    };
    let address = ServiceAddress {
        service_type: SERVICE_TYPE,
        instance: ServiceAddress::instance_of(&[&opening.place.name]),
        scope: Scope::Cluster,
    };
    let socket = if opening.answers() {
        accept(kind, address, opening)?
    } else {
        connect(kind, address, opening)?
    };
    match socket {
        Some(socket) => user.exchange(Stream::new(socket, opening, Calls::of(name == BATCHING))?),
        None => Ok(Measured::default()),
    }
}

fn new_socket(kind: Type) -> std::io::Result<socket2::Socket> {
    socket2::Socket::new(Domain::from(i32::from(AF_TIPC)), kind, None)
}

/// `None` if the program shall end before anybody has connected.
fn accept(
    kind: Type,
    address: ServiceAddress,
    opening: &Opening<'_>,
) -> WorkerResult<Option<socket2::Socket>> {
    let listening = new_socket(kind).and_then(|listener| {
        listener.set_nonblocking(true)?;
        listener.bind(&address.to_socket_address())?;
        listener.listen(1)?;
        Ok(listener)
    });
    let listener = listening.map_err(|e| format!("listen on {address}: {e}"))?;
    (opening.listening)(None);
    accepted(opening, address, || listener.accept())
}

fn connect(
    kind: Type,
    address: ServiceAddress,
    opening: &Opening<'_>,
) -> WorkerResult<Option<socket2::Socket>> {
    let give_up_at = Instant::now() + FINDING_TIMEOUT;
    while !opening.control.ended() {
        let connected = new_socket(kind).and_then(|socket| {
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
