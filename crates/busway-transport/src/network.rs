//! How a link over an IP network reaches the other host, for people: what `busway check` says of it and looks for on this machine.
//!
//! Contract: asked only of settings that have been validated. A bus without addresses implements [`Network`] with an empty block.

use std::net::{IpAddr, SocketAddr};

use crate::registry::SettingError;
pub use crate::stream::Role;

/// The addresses of one link, as one host sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Of the conversation, a TCP connection.
    pub conversation: Role<SocketAddr>,
    /// This host's and the peer's address for messages, where they do not follow the conversation (datagrams, an RDMA device).
    pub messages: Option<[IpAddr; 2]>,
    /// The multicast group to which this host sends once what goes to several.
    pub group: Option<IpAddr>,
}

/// What the settings of a link say about addresses.
pub trait Network {
    /// See [`Addresses`]; `None` over a bus that has none.
    fn addresses(&self) -> Option<Addresses> {
        None
    }
}

/// Whether an address means something on one interface only, which has to be named beside it (RFC 4007, 6).
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Refuses such an address where messages go by addresses alone: a bus that tells the peer where its ends wait has no interface to tell, since its number is
/// of one host only.
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
