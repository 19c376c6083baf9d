//! Sockets of a multicast group: one from which a host sends, one on which another listens.
//!
//! The group's port is that of the sending socket, so that each circle of senders has a group of its own and no port must be agreed upon. Who
//! listens joins for one source only (RFC 4607), on the interface of its own datagrams. Packets don't leave the network segment (TTL 1), and
//! are looped back, so that hosts may share a machine. Called by [`super::circle`] and [`super::hearing`].

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket as Plain};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use super::socket::{UdpSocket, set_bytes_option};

/// The interfaces that have IPv6 addresses (`if6_seq_show` in net/ipv6/addrconf.c), in the network namespace of the calling thread.
const INTERFACES: &str = "/proc/thread-self/net/if_inet6";
/// How many routers pass a packet on: none.
const HOPS: u32 = 1;

/// A group as one host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupPlace {
    /// Of this host's datagrams.
    local: IpAddr,
    group: IpAddr,
    /// Index of the interface with that address; 0 for IPv4, which needs none.
    interface: u32,
}

impl GroupPlace {
    /// The group of datagrams from or to this address. Both are of one family.
    pub(super) fn new(local: IpAddr, group: IpAddr) -> io::Result<GroupPlace> {
        let interface = match local {
            IpAddr::V4(_) => 0,
            IpAddr::V6(local) => interface_of(&std::fs::read_to_string(INTERFACES)?, local)
                .ok_or_else(|| io::Error::other(format!("no interface has the address {local}")))?,
        };
        Ok(GroupPlace {
            local,
            group,
            interface,
        })
    }

    /// A socket that sends to the group, and the port of both.
    pub(super) fn sending(&self) -> io::Result<(UdpSocket, u16)> {
        // Nobody answers to this socket.
        let socket = UdpSocket::bind(self.local, &Arc::default())?;
        match self.local {
            IpAddr::V4(local) => {
                sockopt::set_ip_multicast_if(&socket, &local)?;
                sockopt::set_ip_multicast_ttl(&socket, HOPS)?;
                sockopt::set_ip_multicast_loop(&socket, true)?;
            }
            IpAddr::V6(_) => {
                sockopt::set_ipv6_multicast_if(&socket, self.interface)?;
                sockopt::set_ipv6_multicast_hops(&socket, HOPS)?;
                sockopt::set_ipv6_multicast_loop(&socket, true)?;
            }
        }
        let port = socket.local_address()?.port();
        socket.connect(self.address(port))?;
        Ok((socket, port))
    }

    /// A socket that gets what `source` sends to the group with this port, and nothing else.
    pub(super) fn listening(
        &self,
        source: IpAddr,
        port: u16,
        strangers: &Arc<AtomicU64>,
    ) -> io::Result<UdpSocket> {
        let family = if self.local.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        // Other hosts may share this machine.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &self.address(port))?;
        let socket = Plain::from(socket);
        match (self.group, self.local, source) {
            (IpAddr::V4(group), IpAddr::V4(local), IpAddr::V4(source)) => {
                sockopt::set_ip_add_source_membership(&socket, &group, &local, &source)?;
            }
            (IpAddr::V6(group), _, IpAddr::V6(source)) => {
                let request = source_request(self.interface, group, source);
                set_bytes_option(
                    &socket,
                    libc::IPPROTO_IPV6,
                    libc::MCAST_JOIN_SOURCE_GROUP,
                    &request,
                )?;
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        socket.connect((source, port))?;
        let socket = UdpSocket::new(socket, strangers)?;
        socket.join_segments();
        Ok(socket)
    }

    fn address(&self, port: u16) -> SocketAddr {
        match self.group {
            IpAddr::V4(_) => SocketAddr::new(self.group, port),
            IpAddr::V6(group) => SocketAddrV6::new(group, port, 0, self.interface).into(),
        }
    }
}

/// The index of the interface with an address, in the kernel's list: address, index, prefix, scope, flags in hexadecimal, name.
fn interface_of(list: &str, local: Ipv6Addr) -> Option<u32> {
    let lines = list.lines().map(|line| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        let index = u32::from_str_radix(words.next()?, 16).ok()?;
        Some((Ipv6Addr::from(address), index))
    });
    let found = lines.flatten().find(|(address, _)| *address == local);
    found.map(|(_, index)| index)
}

/// A `group_source_req` (RFC 3678, 5.1.2; linux/in.h): the interface, and two places of 128 bytes for addresses.
fn source_request(interface: u32, group: Ipv6Addr, source: Ipv6Addr) -> [u8; 264] {
    let mut bytes = [0; 264];
    bytes[..4].copy_from_slice(&interface.to_ne_bytes());
    for (at, address) in [(8, group), (136, source)] {
        let family = libc::AF_INET6 as u16; // as in sockaddr_in6
        bytes[at..at + 2].copy_from_slice(&family.to_ne_bytes());
        bytes[at + 8..at + 24].copy_from_slice(&address.octets());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_an_address_is_found_in_the_kernels_list() {
        let list = "00000000000000000000000000000001 01 80 10 80       lo\n\
                    20010db8000000000000000000000007 1f 40 00 80     eth0\n";
        assert_eq!(interface_of(list, "2001:db8::7".parse().expect("good")), Some(31));
        assert_eq!(interface_of(list, "::1".parse().expect("good")), Some(1));
        assert_eq!(interface_of(list, "2001:db8::8".parse().expect("good")), None);
    }

    #[test]
    fn a_request_is_laid_out_as_the_kernels() {
        let (size, interface, group, source) = (
            size_of::<libc::group_source_req>(),
            std::mem::offset_of!(libc::group_source_req, gsr_interface),
            std::mem::offset_of!(libc::group_source_req, gsr_group),
            std::mem::offset_of!(libc::group_source_req, gsr_source),
        );
        assert_eq!((size, interface, group, source), (264, 0, 8, 136));
        assert_eq!(std::mem::offset_of!(libc::sockaddr_in6, sin6_addr), 8);
    }
}
