//! Loopback addresses for the buses over IP, unique among tests and test runs.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

/// The port of an address that is a test's own.
const PORT: u16 = 7400;

/// An address and port to listen on.
pub struct Spot {
    pub address: SocketAddr,
    /// Keeps the system from assigning the port.
    _bound: Option<Socket>,
}

impl Spot {
    /// Over IPv4: a loopback address of its own.
    pub fn v4() -> Spot {
        static PLACES: AtomicU16 = AtomicU16::new(0);
        let [high, low] = PLACES.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let process = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, process[3], high.wrapping_add(process[2]).max(1), low);
        Spot {
            address: (ip, PORT).into(),
            _bound: None,
        }
    }

    /// IPv6 has one loopback address, so each gets a port. A socket that is bound and does not
    /// listen leaves the port to those that share it (SO_REUSEADDR, socket(7)), as the bus's does.
    pub fn v6() -> Spot {
        let bound = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)).expect("a socket");
        bound.set_reuse_address(true).expect("an option of each socket");
        bound
            .bind(&SocketAddr::from((Ipv6Addr::LOCALHOST, 0)).into())
            .expect("a free port of ::1");
        let address = bound.local_addr().expect("it is bound");
        Spot {
            address: address.as_socket().expect("of IP"),
            _bound: Some(bound),
        }
    }

    /// Either of the two.
    pub fn new(is_v6: bool) -> Spot {
        if is_v6 { Spot::v6() } else { Spot::v4() }
    }
}

/// What lacks where the kernel has no IPv6, or it is switched off.
pub fn missing_v6() -> Option<String> {
    let error = std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).err()?;
    Some(format!("IPv6 on the loopback interface ({error})"))
}
