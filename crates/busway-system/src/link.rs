//! Links: which two hosts are joined, over which buses.
//!
//! What a bus table holds is the bus's business ([`busway_transport::registry`]): this crate finds the tables, lays a host's table over
//! the defaults of both, and says where in the file a problem lies.

use serde::Serialize;

/// A link of the file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Link {
    /// The two hosts, as ordered in the file: a bus that treats them differently goes by this order.
    pub hosts: [String; 2],
    /// In order of preference, at least one.
    pub buses: Vec<LinkBus>,
}

/// One bus of a link, with the settings of both hosts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkBus {
    /// Such as `tcp`.
    pub bus: String,
    /// The table of each host, in the order of [`Link::hosts`].
    pub hosts: [toml::Table; 2],
}

/// A link as one of its hosts sees it.
#[derive(Clone, Debug)]
pub struct LinkOf<'a> {
    /// Index in [`crate::System::links`]: tells parallel links between the same hosts apart.
    pub index: usize,
    /// The other host.
    pub peer: &'a str,
    /// Whether this host is the first of [`Link::hosts`].
    pub local_is_first: bool,
    /// In order of preference, at least one.
    pub buses: &'a [LinkBus],
}
