//! TCP: one control connection a link, one connection a channel.
//!
//! The host with a `listen` address accepts all connections of a link, the other one makes them.
//! `stream` is the protocol over them; here are the sockets (`socket`) and the tables in the system
//! file ([`settings`]).

pub mod settings;
mod socket;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::contract::{self, Direction, Link, LinkIdentity, Message, OpenError, Site};
use crate::stream::{self, Heartbeat, StreamBus, StreamLink};
use settings::{HostSettings, LinkSettings};
use socket::TcpSocket;

/// What the TCP links of a process share.
pub type Shared = stream::Shared<Tcp>;

/// The settings of this host in one link.
pub struct Tcp(HostSettings);

impl contract::Bus for Tcp {
    const NAME: &'static str = "tcp";

    type HostSettings = HostSettings;
    type LinkSettings = LinkSettings;
    type Shared = Shared;

    fn join(local: HostSettings, peer: HostSettings, local_is_first: bool) -> LinkSettings {
        LinkSettings::new(local, peer, local_is_first)
    }

    /// The second host listens.
    fn link_lines(site: &Site<'_>) -> String {
        let [_, host] = site.hosts;
        let [_, address] = site.addresses;
        format!("tcp.{host} = {{ listen = \"{address}\" }}\n")
    }

    fn open<M: Message>(
        shared: &Shared,
        identity: &LinkIdentity,
        settings: &LinkSettings,
        peer_host: &str,
    ) -> Result<Box<dyn Link<M>>, OpenError> {
        Ok(Box::new(converse(shared, identity, settings, peer_host)?))
    }
}

/// A link that is another bus's conversation.
pub(crate) type Conversation<M> = StreamLink<Tcp, M>;

/// Opens a link, for this bus and for a bus that ends its conversation itself.
///
/// # Errors
/// The settings name no address, or one that another link of this process uses for the same peer;
/// no descriptors left.
pub(crate) fn converse<M: Message>(
    shared: &Shared,
    identity: &LinkIdentity,
    settings: &LinkSettings,
    peer_host: &str,
) -> Result<Conversation<M>, OpenError> {
    let role = settings
        .role()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    stream::open(shared, identity, peer_host, role, Tcp(settings.local.clone()))
}

impl StreamBus for Tcp {
    const NAME: &'static str = <Tcp as contract::Bus>::NAME;
    type Address = SocketAddr;
    type Socket = TcpSocket;
    type Listener = TcpListener;
    type Origin = SocketAddr;

    fn connect(to: &SocketAddr) -> io::Result<TcpSocket> {
        TcpSocket::connect(*to)
    }

    fn listen(address: &SocketAddr) -> io::Result<TcpListener> {
        socket::listen(*address)
    }

    fn accept(listener: &TcpListener) -> io::Result<(TcpSocket, SocketAddr)> {
        let (stream, from) = listener.accept()?;
        Ok((TcpSocket::accepted(stream)?, from))
    }

    fn tune_conversation(&self, socket: &TcpSocket) -> io::Result<()> {
        socket.fail_unacknowledged_after(self.0.timeout)
    }

    fn tune_channel(&self, socket: &TcpSocket, direction: Direction) -> io::Result<()> {
        let bytes = usize::try_from(self.0.send_buffer.0).unwrap_or(usize::MAX);
        if direction == Direction::Send && bytes > 0 {
            socket.bound_send_buffer(bytes)?;
        }
        Ok(())
    }

    fn heartbeat(&self) -> Option<Heartbeat> {
        Some(Heartbeat {
            every: self.0.heartbeat,
            timeout: self.0.timeout,
        })
    }

    fn silence_timeout(&self) -> Duration {
        self.0.timeout
    }
}
