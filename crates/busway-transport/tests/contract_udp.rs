//! Runs the contract suite on UDP over the loopback interface, by IPv4 and IPv6: with reliable
//! delivery, and with best effort, which loses nothing there as long as senders respect the
//! receiver's credit.

mod contract;

use std::any::Any;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{Link, LinkIdentity};
use contract::harness::Buffer;
use contract::spot::{Spot, missing_v6};
use contract::{BusUnderTest, Side};

/// Host `one` listens, `two` connects.
struct Udp<const IS_RELIABLE: bool, const IS_V6: bool>(Spot);

impl<const IS_RELIABLE: bool, const IS_V6: bool> Udp<IS_RELIABLE, IS_V6> {
    fn conversation(&self) -> SocketAddr {
        self.0.address
    }

    fn ip(&self) -> IpAddr {
        self.0.address.ip()
    }

    fn table(&self, side: Side) -> toml::Value {
        let mut table = toml::Table::new();
        table.insert("heartbeat".into(), "20ms".into());
        table.insert("timeout".into(), "1s".into());
        let delivery = if IS_RELIABLE { "reliable" } else { "best-effort" };
        table.insert("delivery".into(), delivery.into());
        match side {
            Side::One => table.insert("listen".into(), self.conversation().to_string().into()),
            Side::Two => table.insert("address".into(), self.ip().to_string().into()),
        };
        toml::Value::Table(table)
    }

    /// The ports of the hosts' UDP sockets at this address. Over IPv6 all tests share one address:
    /// only the sockets of this process count.
    fn datagram_ports(&self) -> Vec<u16> {
        let (table, own) = match self.ip() {
            IpAddr::V4(ip) => ("/proc/net/udp", hexadecimal(&ip.octets())),
            IpAddr::V6(ip) => ("/proc/net/udp6", hexadecimal(&ip.octets())),
        };
        let table = std::fs::read_to_string(table).expect("the kernel has UDP");
        let sockets = IS_V6.then(sockets_of_this_process);
        let ports = table.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (ip, port) = words.nth(1)?.split_once(':')?;
            let inode = words.nth(7)?;
            let is_ours = sockets
                .as_ref()
                .is_none_or(|sockets| sockets.iter().any(|it| it == inode));
            (ip == own && is_ours).then(|| u16::from_str_radix(port, 16).ok())?
        });
        ports.collect()
    }
}

/// An address as the kernel's tables print it: words in this machine's byte order.
fn hexadecimal(octets: &[u8]) -> String {
    let words = octets
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes(word.try_into().expect("4 bytes")));
    words.map(|word| format!("{word:08X}")).collect()
}

/// The inodes of this process's sockets.
fn sockets_of_this_process() -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd").expect("a process has descriptors");
    let targets = open
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let inode = |target: std::path::PathBuf| {
        let name = target.to_str()?.strip_prefix("socket:[")?;
        Some(name.strip_suffix(']')?.to_owned())
    };
    targets.filter_map(inode).collect()
}

impl<const IS_RELIABLE: bool, const IS_V6: bool> BusUnderTest for Udp<IS_RELIABLE, IS_V6> {
    fn new() -> Self {
        Udp(Spot::new(IS_V6))
    }

    fn missing() -> Option<String> {
        IS_V6.then(missing_v6)?
    }

    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        let host = |side| parse_host("udp", self.table(side)).expect("a good table");
        let settings = link_settings("udp", host(side), host(side.other()), side == Side::One);
        settings.validate().expect("good settings");
        Buses::new(identity)
            .open(&settings, side.other().name())
            .expect("the link opens")
    }

    fn attack(&self, victim: Side, seed: u64) {
        let stranger = UdpSocket::bind((self.ip(), 0)).expect("a free port");
        let mut bytes = vec![0; 1 + seed as usize * 97 % 5000];
        contract::harness::fill(&mut bytes, seed);
        for port in self.datagram_ports() {
            // The socket may be closed by now.
            let _ = stranger.send_to(&bytes, (self.ip(), port));
        }
        if victim == Side::One {
            // Only the side that accepts has a port for the conversation.
            contract::conversation::attack(self.conversation(), seed);
        }
    }

    fn other_version(&self, side: Side) -> Box<dyn Any> {
        contract::conversation::other_version(side, self.conversation())
    }
}

mod reliable {
    crate::contract::contract_tests!(crate::Udp<true, false>);
}

mod best_effort {
    crate::contract::contract_tests!(crate::Udp<false, false>);
}

mod reliable_over_ipv6 {
    crate::contract::contract_tests!(crate::Udp<true, true>);
}

mod best_effort_over_ipv6 {
    crate::contract::contract_tests!(crate::Udp<false, true>);
}
