//! TIPC's socket addresses: `struct sockaddr_tipc` of linux/tipc.h. Used by this bus's sockets, and
//! by the benchmark's bare ones.
#![allow(unsafe_code)] // Addresses of a family that the socket library does not know.

use std::fmt;

use serde::Deserialize;
use socket2::{SockAddr, SockAddrStorage};

/// `AF_TIPC`, from linux/tipc.h.
pub const AF_TIPC: u16 = 30;
/// Longest message of a SOCK_SEQPACKET or SOCK_RDM socket in bytes: `TIPC_MAX_USER_MSG_SIZE`.
pub const MAX_MESSAGE_BYTES: usize = 66_000;
/// `TIPC_SERVICE_ADDR`: a service, wherever it is.
const SERVICE_ADDRESS: u8 = 2;
/// `TIPC_SOCKET_ADDR`: one socket.
const SOCKET_ADDRESS: u8 = 3;
/// `TIPC_CLUSTER_SCOPE` and `TIPC_NODE_SCOPE`.
const CLUSTER_SCOPE: i8 = 2;
const NODE_SCOPE: i8 = 3;
/// `TIPC_TOP_SRV`: type and instance of the topology service.
const TOPOLOGY_SERVICE: u32 = 1;

/// `struct sockaddr_tipc`. The words by kind of address: reference and node of a socket; type,
/// instance and domain of a service.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RawAddress {
    family: u16,
    kind: u8,
    scope: i8,
    words: [u32; 3],
}

const _: () = assert!(size_of::<RawAddress>() == 16);

/// How far a service address is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// On all nodes of the cluster.
    Cluster,
    /// On this node only: for two hosts in one kernel, such as containers.
    Node,
}

/// A service of the cluster: where connections are accepted, on whichever node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceAddress {
    /// What kind of service it is, at least 64.
    pub service_type: u32,
    /// Which of its kind.
    pub instance: u32,
    /// How far it is known.
    pub scope: Scope,
}

impl ServiceAddress {
    /// The kernel's topology service.
    pub(super) const TOPOLOGY: ServiceAddress = ServiceAddress {
        service_type: TOPOLOGY_SERVICE,
        instance: TOPOLOGY_SERVICE,
        scope: Scope::Node,
    };

    /// An instance from names: the 32-bit FNV-1a hash of the names with a zero byte between them.
    pub fn instance_of(names: &[&str]) -> u32 {
        names.join("\0").bytes().fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    }

    /// For the socket calls: to bind this address, or to connect to it wherever it is.
    pub fn to_socket_address(self) -> SockAddr {
        RawAddress {
            family: AF_TIPC,
            kind: SERVICE_ADDRESS,
            scope: match self.scope {
                Scope::Cluster => CLUSTER_SCOPE,
                Scope::Node => NODE_SCOPE,
            },
            words: [self.service_type, self.instance, 0],
        }
        .into()
    }
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TIPC service {}:{}", self.service_type, self.instance)
    }
}

/// One socket in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    pub(crate) reference: u32,
    /// The node's number (its 32-bit hash, as `tipc link list` shows it).
    pub(crate) node: u32,
}

impl SocketId {
    /// Out of what a socket call returned; `None` where that is no TIPC socket.
    pub(super) fn of(address: &SockAddr) -> Option<SocketId> {
        if (address.len() as usize) < size_of::<RawAddress>() || address.family() != AF_TIPC {
            return None;
        }
        // SAFETY: the storage of every SockAddr is as large as a sockaddr_storage, which is more
        // than 16 bytes, aligned for all socket addresses and initialized; any bytes make a
        // RawAddress.
        let raw = unsafe { address.as_ptr().cast::<RawAddress>().read() };
        (raw.kind == SOCKET_ADDRESS).then_some(SocketId {
            reference: raw.words[0],
            node: raw.words[1],
        })
    }
}

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket {} of TIPC node {:x}", self.reference, self.node)
    }
}

impl From<RawAddress> for SockAddr {
    fn from(raw: RawAddress) -> SockAddr {
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: RawAddress is this platform's `sockaddr_tipc`; it fits, and its length is the
        // part of the storage in use.
        unsafe {
            *storage.view_as::<RawAddress>() = raw;
            SockAddr::new(storage, size_of::<RawAddress>() as socket2::socklen_t)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_address_is_laid_out_as_in_the_kernels_header() {
        let address = ServiceAddress {
            service_type: 0x01020304,
            instance: 0x05060708,
            scope: Scope::Node,
        }
        .to_socket_address();
        assert_eq!((address.family(), address.len()), (AF_TIPC, 16));
        assert_eq!(SocketId::of(&address), None, "a service is no socket");
    }

    #[test]
    fn a_socket_is_read_back_and_other_families_are_none() {
        let raw = RawAddress {
            family: AF_TIPC,
            kind: SOCKET_ADDRESS,
            scope: 0,
            words: [7, 9, 0],
        };
        let id = SocketId {
            reference: 7,
            node: 9,
        };
        assert_eq!(SocketId::of(&raw.into()), Some(id));
        let other: std::net::SocketAddr = "127.0.0.1:1".parse().expect("an address");
        assert_eq!(SocketId::of(&other.into()), None);
    }
}
