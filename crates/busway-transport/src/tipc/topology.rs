//! The topology service: the kernel reports which sockets offer a link's service address.
//!
//! A subscription (`struct tipc_subscr` of linux/tipc.h) is sent once over a connection to the
//! service. Each socket that publishes or withdraws the address, anywhere in the cluster, comes
//! back as one `struct tipc_event`. A lost node withdraws all it had. Used by the link, on the
//! control thread.

use std::io::{self, IoSlice};

use socket2::Type;

use super::address::{ServiceAddress, SocketId};
use super::socket::TipcSocket;
use crate::session::poller::{Interest, Poller};
use crate::stream::{Discovered, Socket, WATCHED};

/// `TIPC_SUB_PORTS`: an event for each socket.
const EACH_SOCKET: u32 = 1;
/// `TIPC_WAIT_FOREVER`.
const FOR_EVER: u32 = u32::MAX;
/// Length of `struct tipc_event` in bytes.
const EVENT_BYTES: usize = 48;
/// Sockets of one address that are kept apart; more make no difference to the report.
const MAX_SEEN: usize = 8;

/// What the topology service reports of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It offers the address now.
    Published(SocketId),
    /// It does no more.
    Withdrawn(SocketId),
}

impl Event {
    /// Reads a `struct tipc_event`; `None` for another length or another kind of event.
    pub(super) fn decode(bytes: &[u8]) -> Option<Event> {
        let bytes: &[u8; EVENT_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let socket = SocketId {
            reference: word(12),
            node: word(16),
        };
        match word(0) {
            1 => Some(Event::Published(socket)),
            2 => Some(Event::Withdrawn(socket)),
            _ => None,
        }
    }
}

/// A `struct tipc_subscr` for all sockets that offer one address, without a time limit.
fn subscription(address: &ServiceAddress) -> [u8; 28] {
    let mut bytes = [0; 28];
    let words = [
        address.service_type,
        address.instance,
        address.instance,
        FOR_EVER,
        EACH_SOCKET,
    ];
    for (at, word) in words.into_iter().enumerate() {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// What is known of one address.
pub(super) struct Topology {
    address: ServiceAddress,
    state: State,
    /// Sockets that offer the address, at most [`MAX_SEEN`].
    seen: Vec<SocketId>,
}

enum State {
    /// Not connected to the service.
    Apart,
    /// The connection is being made.
    Connecting(TipcSocket),
    /// The subscription stands.
    Subscribed(TipcSocket),
}

impl Topology {
    pub(super) fn new(address: ServiceAddress) -> Topology {
        Topology {
            address,
            state: State::Apart,
            seen: Vec::new(),
        }
    }

    /// Begins to subscribe, if there is no subscription. Without one the link only tries to
    /// connect.
    pub(super) fn watch(&mut self, poller: &Poller) {
        if let State::Apart = self.state
            && let Ok(socket) = TipcSocket::connect(ServiceAddress::TOPOLOGY, Type::SEQPACKET)
            && poller.add(&socket, WATCHED, Interest::Write).is_ok()
        {
            self.state = State::Connecting(socket);
        }
    }

    /// Continues with what is ready.
    pub(super) fn look(&mut self, poller: &Poller) -> Option<Discovered> {
        self.state = match std::mem::replace(&mut self.state, State::Apart) {
            State::Connecting(socket) => match socket.connected() {
                None => State::Connecting(socket),
                Some(Ok(())) => self.subscribe(socket, poller),
                Some(Err(_)) => State::Apart,
            },
            state => state,
        };
        let State::Subscribed(socket) = &self.state else {
            return None;
        };
        let mut buffer = [0; EVENT_BYTES];
        loop {
            match socket.read(&mut buffer) {
                Ok(None) => break,
                Ok(Some(bytes @ 1..)) => {
                    if let Some(event) = Event::decode(&buffer[..bytes]) {
                        note(&mut self.seen, event);
                    }
                }
                Ok(Some(0)) | Err(_) => {
                    self.state = State::Apart;
                    self.seen.clear();
                    return None;
                }
            }
        }
        self.sighting()
    }

    fn subscribe(&mut self, socket: TipcSocket, poller: &Poller) -> State {
        let subscription = subscription(&self.address);
        let sent = socket
            .write(&[IoSlice::new(&subscription)])
            .and_then(|sent| sent.ok_or(io::ErrorKind::WouldBlock.into()))
            .and_then(|_| poller.modify(&socket, WATCHED, Interest::Read));
        match sent {
            Ok(()) => State::Subscribed(socket),
            Err(_) => State::Apart,
        }
    }

    fn sighting(&self) -> Option<Discovered> {
        match &self.seen[..] {
            [] => None,
            [_] => Some(Discovered::Here),
            [one, other, ..] => Some(Discovered::Trouble(format!(
                "{} is offered twice, by {one} and by {other}: end the gateway that is too many, or give one of the links an \
                 `instance` of its own",
                self.address
            ))),
        }
    }
}

fn note(seen: &mut Vec<SocketId>, event: Event) {
    match event {
        Event::Published(socket) => {
            if !seen.contains(&socket) && seen.len() < MAX_SEEN {
                seen.push(socket);
            }
        }
        Event::Withdrawn(socket) => seen.retain(|known| *known != socket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: u32, reference: u32, node: u32) -> [u8; EVENT_BYTES] {
        let mut bytes = [0; EVENT_BYTES];
        for (at, word) in [what, 5, 5, reference, node].into_iter().enumerate() {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn an_event_says_which_socket_came_or_went() {
        let socket = SocketId {
            reference: 7,
            node: 9,
        };
        assert_eq!(Event::decode(&event(1, 7, 9)), Some(Event::Published(socket)));
        assert_eq!(Event::decode(&event(2, 7, 9)), Some(Event::Withdrawn(socket)));
    }

    #[test]
    fn what_is_no_event_is_none() {
        assert_eq!(
            Event::decode(&event(3, 7, 9)),
            None,
            "a subscription that has run out"
        );
        assert_eq!(Event::decode(&event(1, 7, 9)[..47]), None);
        assert_eq!(Event::decode(&[1; 49]), None);
        assert_eq!(Event::decode(&[]), None);
    }

    #[test]
    fn the_sockets_of_an_address_are_counted_once_each_and_within_bounds() {
        let mut seen = Vec::new();
        let socket = |reference| SocketId { reference, node: 1 };
        for reference in [1, 1, 2] {
            note(&mut seen, Event::Published(socket(reference)));
        }
        assert_eq!(seen, [socket(1), socket(2)]);
        note(&mut seen, Event::Withdrawn(socket(1)));
        note(&mut seen, Event::Withdrawn(socket(3)));
        assert_eq!(seen, [socket(2)]);
        for reference in 0..100 {
            note(&mut seen, Event::Published(socket(reference)));
        }
        assert_eq!(seen.len(), MAX_SEEN);
    }
}
