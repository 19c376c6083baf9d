//! The gateway's side of the sockets to all processes that can write registers of other hosts'
//! stores themselves.
//!
//! Contract: [`WriterDesk::candidate`] names a process for a channel, or says why there is none;
//! [`WriterDesk::connect`] gives it a ticket, and [`WriterDesk::poll`] says what becomes of it.
//! What processes say is checked; one that says what is no message is left. Called by the gateway,
//! on its control thread.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use busway_transport::contract::RegisterTicket;

use super::message::{GatewayPort, MAX_BYTES, ToGateway, ToPartition, decode};
use super::socket::{Received, accept, listener, receive, tell};
use crate::config::PortRef;

/// Processes that are connected at the same time, at most.
const MOST_CLIENTS: usize = 4096;
/// Registers and links that a process can write over, at most.
const MOST_ABILITIES: usize = 16_384;
/// Messages of one process that are taken in one go.
const ROUND: usize = 256;

/// What processes have told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriterEvent {
    /// A process can write this channel's register.
    Able(PortRef),
    /// A process has connected with this ticket: it writes.
    Connected {
        /// The gateway's port of the channel.
        port: PortRef,
        /// The ticket.
        ticket: u64,
    },
    /// A process with this ticket has not connected, or its queue pair has ended.
    Ended {
        /// The gateway's port of the channel.
        port: PortRef,
        /// The ticket.
        ticket: u64,
        /// Why.
        why: String,
    },
    /// This process is gone.
    Gone(u64),
}

#[derive(Debug)]
struct Client {
    number: u64,
    socket: OwnedFd,
    /// Whether it can write a channel's register over a link, and if not, why.
    abilities: HashMap<(PortRef, u32), Result<(), String>>,
    /// It did not answer; until it says something.
    is_mute: bool,
    is_gone: bool,
}

/// See the module.
#[derive(Debug)]
pub struct WriterDesk {
    listener: OwnedFd,
    clients: Vec<Client>,
    last_number: u64,
}

impl WriterDesk {
    /// Waits for the processes of the store in the directory `root`.
    ///
    /// # Errors
    /// The system refuses the socket.
    pub fn open(root: &Path) -> io::Result<WriterDesk> {
        Ok(WriterDesk {
            listener: listener(root)?,
            clients: Vec::new(),
            last_number: 0,
        })
    }

    /// Readable when [`poll`](Self::poll) has something to return.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.iter().map(|client| client.socket.as_fd());
        std::iter::once(self.listener.as_fd()).chain(clients)
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Takes what processes have told.
    pub fn poll(&mut self) -> Vec<WriterEvent> {
        while self.clients.len() < MOST_CLIENTS
            && let Some(socket) = accept(&self.listener)
        {
            let number = self.next_number();
            self.clients.push(Client {
                number,
                socket,
                abilities: HashMap::new(),
                is_mute: false,
                is_gone: false,
            });
        }
        let mut events = Vec::new();
        for client in &mut self.clients {
            client.poll(&mut events);
        }
        self.clients.retain(|client| !client.is_gone);
        events
    }

    /// The process that shall write the channel of `port` over `link`, index in `System::links`.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn candidate(&self, port: &PortRef, link: u32) -> Result<u64, String> {
        let key = (port.clone(), link);
        let mut why_not = None;
        for client in &self.clients {
            match client.abilities.get(&key) {
                Some(Ok(())) if client.is_mute => {
                    why_not.get_or_insert_with(|| "the source's process does not answer".into());
                }
                Some(Ok(())) => return Ok(client.number),
                Some(Err(why)) => {
                    why_not.get_or_insert_with(|| why.clone());
                }
                None => {}
            }
        }
        Err(why_not.unwrap_or_else(|| "no process of the source's partition has asked to write".into()))
    }

    /// Gives a process a ticket; returns its number, `None` if the process is gone.
    pub fn connect(
        &mut self,
        client: u64,
        port: &PortRef,
        link: u32,
        register: &RegisterTicket,
    ) -> Option<u64> {
        let ticket = self.next_number();
        let message = ToPartition::Connect {
            place: place(port),
            ticket,
            link,
            channel: register.channel.0,
            session: register.session,
            peer_session: register.peer_session,
            origin: register.source.origin,
            landing: &register.landing,
        };
        self.tell(client, &message).then_some(ticket)
    }

    /// Tells a process to end what it connected with this ticket.
    pub fn end(&mut self, client: u64, port: &PortRef, ticket: u64) {
        let place = place(port);
        self.tell(client, &ToPartition::End { place, ticket });
    }

    /// A process did not answer: it is no candidate until it says something.
    pub fn set_mute(&mut self, client: u64) {
        if let Some(client) = self.client(client) {
            client.is_mute = true;
        }
    }

    /// A process could not connect: it is no candidate for that channel over that link until
    /// [`forget_failure`](Self::forget_failure).
    pub fn set_unable(&mut self, client: u64, port: &PortRef, link: u32, why: String) {
        if let Some(client) = self.client(client) {
            client.abilities.insert((port.clone(), link), Err(why));
        }
    }

    /// The process may try again. Returns whether it is there.
    pub fn forget_failure(&mut self, client: u64, port: &PortRef, link: u32) -> bool {
        let Some(client) = self.client(client) else {
            return false;
        };
        client.abilities.insert((port.clone(), link), Ok(()));
        true
    }

    fn client(&mut self, number: u64) -> Option<&mut Client> {
        self.clients.iter_mut().find(|client| client.number == number)
    }

    fn tell(&mut self, client: u64, message: &ToPartition<'_>) -> bool {
        self.client(client)
            .is_some_and(|client| tell(&client.socket, message))
    }
}

fn place(port: &PortRef) -> GatewayPort<'_> {
    GatewayPort {
        host: &port.partition,
        port: &port.port,
    }
}

impl Client {
    fn poll(&mut self, events: &mut Vec<WriterEvent>) {
        let mut buffer = [0; MAX_BYTES];
        for _ in 0..ROUND {
            let message = match receive(&self.socket, &mut buffer) {
                Received::Nothing => return,
                Received::Message(bytes) => decode(bytes),
                Received::End => None,
            };
            let Some(message) = message.filter(|_| self.abilities.len() < MOST_ABILITIES) else {
                self.is_gone = true;
                events.push(WriterEvent::Gone(self.number));
                return;
            };
            if std::mem::take(&mut self.is_mute) {
                let able = self.abilities.iter().filter(|(_, ability)| ability.is_ok());
                events.extend(able.map(|((port, _), _)| WriterEvent::Able(port.clone())));
            }
            events.extend(self.handle(message));
        }
    }

    fn handle(&mut self, message: ToGateway<'_>) -> Option<WriterEvent> {
        let port_of = |place: GatewayPort<'_>| PortRef::new(place.host, place.port);
        match message {
            ToGateway::Ability { place, link, why_not } => {
                let port = port_of(place);
                let ability = why_not.map_or(Ok(()), |why| Err(why.to_owned()));
                let is_able = ability.is_ok();
                self.abilities.insert((port.clone(), link), ability);
                is_able.then_some(WriterEvent::Able(port))
            }
            ToGateway::Connected { place, ticket } => Some(WriterEvent::Connected {
                port: port_of(place),
                ticket,
            }),
            ToGateway::Ended { place, ticket, why } => Some(WriterEvent::Ended {
                port: port_of(place),
                ticket,
                why: why.to_owned(),
            }),
        }
    }
}
