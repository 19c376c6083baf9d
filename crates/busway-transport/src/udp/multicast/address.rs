//! Opens the sockets of a multicast group: one that sends to it, one that receives from it.
//!
//! The group's port is that of the sending socket: so each set of senders has its own, and no port
//! has to be agreed. A receiver joins for one source only (RFC 4607), on the interface of its own
//! datagrams. Packets stay on the network segment (TTL 1) and are looped back, so that several
//! hosts may share a machine.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket as Plain};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::udp::socket::{UdpSocket, set_bytes_option};

/// The IPv6 addresses of the calling thread's network namespace (`if6_seq_show` in
/// net/ipv6/addrconf.c).
const INTERFACES: &str = "/proc/thread-self/net/if_inet6";
/// Time to live: no router forwards the packets.
const HOPS: u32 = 1;

/// A multicast group as one host reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupAddress {
    local: IpAddr,
    group: IpAddr,
    /// Index of the interface with address `local`; 0 for IPv4, which needs none.
    interface: u32,
}

impl GroupAddress {
    /// The group for datagrams from or to `local`; both addresses are of one family.
    ///
    /// # Errors
    /// No interface has the IPv6 address `local`.
    pub fn new(local: IpAddr, group: IpAddr) -> io::Result<GroupAddress> {
        let interface = match local {
            IpAddr::V4(_) => 0,
            IpAddr::V6(local) => interface_of(&std::fs::read_to_string(INTERFACES)?, local)
                .ok_or_else(|| io::Error::other(format!("no interface has the address {local}")))?,
        };
        Ok(GroupAddress {
            local,
            group,
            interface,
        })
    }

    /// A socket that sends to the group, and the port of both.
    pub fn connect(&self) -> io::Result<(UdpSocket, u16)> {
        // This socket receives nothing, so its count of foreign datagrams is nobody's.
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

    /// A socket that receives only what `source` sends to the group on this port.
    pub fn listen(
        &self,
        source: IpAddr,
        port: u16,
        foreign_datagrams: &Arc<AtomicU64>,
    ) -> io::Result<UdpSocket> {
        let family = if self.local.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        // Several hosts may share this machine.
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
        let socket = UdpSocket::new(socket, foreign_datagrams)?;
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

/// Finds the index of the interface with an address in the kernel's list, whose lines are: address,
/// index, prefix length, scope and flags in hexadecimal, and the name.
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

/// A `group_source_req` (RFC 3678, 5.1.2; linux/in.h): the interface, and two addresses in 128
/// bytes each.
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
    fn interface_is_found_by_its_address() {
        let list = "00000000000000000000000000000001 01 80 10 80       lo\n\
                    20010db8000000000000000000000007 1f 40 00 80     eth0\n";
        assert_eq!(interface_of(list, "2001:db8::7".parse().expect("good")), Some(31));
        assert_eq!(interface_of(list, "::1".parse().expect("good")), Some(1));
        assert_eq!(interface_of(list, "2001:db8::8".parse().expect("good")), None);
    }

    #[test]
    fn request_has_the_layout_of_the_kernel() {
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
