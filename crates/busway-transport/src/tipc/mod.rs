//! TIPC (Transparent Inter-Process Communication, net/tipc in the Linux kernel): reliable
//! connections in a cluster, without IP.
//!
//! Contract: a link has one service address, derived from the names of its hosts. The first host
//! binds it and accepts, the second one connects, whichever way the data goes. The conversation and
//! each channel have a connection; `stream` is the protocol over them. There is no heartbeat of
//! ours: the kernel ends the connections to a process that is gone at once, and those to a lost
//! node after the tolerance of its links; its topology service reports when the peer offers the
//! address. A stopped process is noticed only by what it leaves unread
//! ([`settings::HostSettings::send_timeout`]). An idle link sends nothing. Works from Linux 6.1.
//!
//! | module       | what it does                                                         |
//! |--------------|----------------------------------------------------------------------|
//! | [`settings`] | the tables in the system file                                        |
//! | `address`    | `struct sockaddr_tipc`                                               |
//! | `socket`     | connections, and what closing one costs                              |
//! | `topology`   | who offers the link's address                                        |
//! | `tolerance`  | after how long the kernel holds a node for lost                      |

pub mod address;
pub mod settings;
mod socket;
mod tolerance;
mod topology;

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::Type;

use crate::contract::{self, Direction, Link, LinkIdentity, Message, OpenError, Role, Site};
use crate::stream::{self, Discovered, Heartbeat, Poller, StreamBus};
use address::{ServiceAddress, SocketId};
use settings::{HostSettings, Importance, LinkSettings};
use socket::{TipcListener, TipcSocket};
use topology::Topology;

/// What the TIPC links of a process share.
pub type Shared = stream::Shared<Tipc>;

/// One link.
pub struct Tipc {
    settings: HostSettings,
    topology: Topology,
}

impl contract::Bus for Tipc {
    const NAME: &'static str = "tipc";

    type HostSettings = HostSettings;
    type LinkSettings = LinkSettings;
    type Shared = Shared;

    fn join(local: HostSettings, peer: HostSettings, local_is_first: bool) -> LinkSettings {
        LinkSettings::new(local, peer, local_is_first)
    }

    /// An instance of its own for each pair of ports, so that links between hosts of the same names
    /// do not meet.
    fn link_lines(site: &Site<'_>) -> String {
        let [_, host] = site.hosts;
        let [_, address] = site.addresses;
        format!("tipc.{host} = {{ instance = {} }}\n", address.port())
    }

    /// Whether the kernel opens sockets of TIPC.
    fn missing() -> Option<String> {
        let refused = socket::refusal()?;
        Some(format!("TIPC in the kernel ({refused})"))
    }

    /// On a kernel without TIPC the link reports that as [`Refused`](crate::LinkEvent::Refused).
    fn open<M: Message>(
        shared: &Shared,
        identity: &LinkIdentity,
        settings: &LinkSettings,
        peer_host: &str,
    ) -> Result<Box<dyn Link<M>>, OpenError> {
        let role = settings
            .role(&identity.host, peer_host)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
        let (Role::Accept(address) | Role::Connect(address)) = role;
        let bus = Tipc {
            settings: settings.local.clone(),
            topology: Topology::new(address),
        };
        Ok(Box::new(stream::open(shared, identity, peer_host, role, bus)?))
    }
}

impl StreamBus for Tipc {
    const NAME: &'static str = <Tipc as contract::Bus>::NAME;
    type Address = ServiceAddress;
    type Socket = TipcSocket;
    type Listener = TipcListener;
    type Origin = SocketId;

    fn connect(to: &ServiceAddress) -> io::Result<TipcSocket> {
        TipcSocket::connect(*to, Type::STREAM)
    }

    fn listen(address: &ServiceAddress) -> io::Result<TipcListener> {
        TipcListener::bind(*address)
    }

    fn accept(listener: &TipcListener) -> io::Result<(TipcSocket, SocketId)> {
        listener.accept()
    }

    fn tune_conversation(&self, socket: &TipcSocket) -> io::Result<()> {
        socket.set_importance(Importance::Critical)
    }

    fn tune_channel(&self, socket: &TipcSocket, direction: Direction) -> io::Result<()> {
        // What flows back is little, and frees the other host's queues.
        socket.set_importance(match direction {
            Direction::Send => self.settings.importance,
            Direction::Receive => Importance::Critical,
        })
    }

    fn heartbeat(&self) -> Option<Heartbeat> {
        None
    }

    fn silence_timeout(&self) -> Duration {
        self.settings.send_timeout
    }

    fn came_up(&self, socket: &TipcSocket) {
        if let (Some(tolerance), Some(peer)) = (self.settings.link_tolerance, socket.peer())
            && let Err(error) = tolerance::set(socket.as_fd(), peer.node, tolerance)
        {
            tracing::warn!(
                "tipc: the links to node {:x} keep their tolerance: {error}; with the right to administer the network (CAP_NET_ADMIN) it \
                 is set here, and by hand with `tipc link set tolerance {} link LINK` (`tipc link list` shows them)",
                peer.node,
                tolerance.as_millis()
            );
        }
    }

    fn watch(&mut self, poller: &Poller) {
        self.topology.watch(poller);
    }

    fn look(&mut self, poller: &Poller) -> Option<Discovered> {
        self.topology.look(poller)
    }
}

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn decode_event(bytes: &[u8]) {
    let _ = topology::Event::decode(bytes);
}
