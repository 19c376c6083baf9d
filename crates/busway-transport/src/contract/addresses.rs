//! How a link over an IP network reaches the other host.

use std::net::{IpAddr, SocketAddr, TcpListener};

use super::needs::Finding;
use super::settings::SettingError;

/// Which host makes the connections of a link, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role<A> {
    /// This host accepts them on this address.
    Accept(A),
    /// This host makes them to this address.
    Connect(A),
}

/// The addresses of one link, as one host sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Of the conversation, a TCP connection.
    pub conversation: Role<SocketAddr>,
    /// This host's and the peer's address for messages, where they differ from those of the
    /// conversation (datagrams, an RDMA device).
    pub messages: Option<[IpAddr; 2]>,
    /// The multicast group to which this host sends each message for several hosts once.
    pub group: Option<IpAddr>,
}

impl Addresses {
    /// The address on which this host accepts the conversation.
    pub fn listens(&self) -> Option<SocketAddr> {
        match self.conversation {
            Role::Accept(address) => Some(address),
            Role::Connect(_) => None,
        }
    }

    /// Checks that this host's addresses are addresses of this machine.
    pub(super) fn check_here(&self) -> Vec<Finding> {
        let listens = self.listens().map(|address| Finding {
            what: format!("listens on {address}"),
            result: is_local(address),
        });
        let messages = self.messages.map(|[own, _]| Finding {
            what: format!("sends messages from {own}"),
            result: is_local(SocketAddr::new(own, 0)),
        });
        listens.into_iter().chain(messages).collect()
    }
}

/// Whether the address is one of this machine. Does not use the port, which a gateway may hold.
fn is_local(mut address: SocketAddr) -> Result<(), (String, &'static str)> {
    address.set_port(0);
    // The whole address: a link-local one can be bound on its interface only.
    TcpListener::bind(address).map(drop).map_err(|error| {
        (
            format!("{} is no address of this machine ({error})", address.ip()),
            "correct the address, or set it up (ip address)",
        )
    })
}

/// Whether an address means something on one interface only, which must be named beside it (RFC
/// 4007, 6).
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Refuses a link-local address for messages. A bus sends the peer the addresses of its channel
/// ends, and the number of an interface means nothing on another host.
///
/// # Errors
/// It is one.
pub(crate) fn refuse_link_local(
    local: bool,
    key: &'static str,
    address: Option<IpAddr>,
) -> Result<(), SettingError> {
    match address.filter(|address| is_link_local(*address)) {
        Some(address) => Err(SettingError {
            local,
            key,
            problem: format!("messages can't go by the link-local address {address}, which needs an interface beside it"),
            mend: "give that host a unique local address such as fd00::1 (`ip address add`), a global or an IPv4 one".into(),
        }),
        None => Ok(()),
    }
}
