//! How a link over an IP network reaches the other host, for people: what `busway check` says of it and looks for on this machine.
//!
//! Contract: asked only of settings that have been validated. A bus without addresses implements [`Network`] with an empty block.

use std::net::{IpAddr, SocketAddr};

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
