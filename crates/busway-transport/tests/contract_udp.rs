//! The contract of every bus, for UDP over the loopback interface: with reliable delivery, and with best effort, which loses nothing
//! there as long as the receiver's room is respected.

mod contract;

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

use busway_transport::registry::{Buses, link_settings, parse_host};
use busway_transport::{Link, LinkIdentity};
use contract::harness::Buffer;
use contract::{BusUnderTest, Side};

/// Host `one` listens, `two` connects.
struct Udp<const IS_RELIABLE: bool> {
    ip: Ipv4Addr,
}

impl<const IS_RELIABLE: bool> Udp<IS_RELIABLE> {
    fn conversation(&self) -> SocketAddr {
        SocketAddr::from((self.ip, 7400))
    }

    fn table(&self, side: Side) -> toml::Value {
        let mut table = toml::Table::new();
        table.insert("heartbeat".into(), "20ms".into());
        table.insert("timeout".into(), "1s".into());
        let delivery = if IS_RELIABLE { "reliable" } else { "best-effort" };
        table.insert("delivery".into(), delivery.into());
        match side {
            Side::One => table.insert("listen".into(), self.conversation().to_string().into()),
            Side::Two => table.insert("address".into(), self.ip.to_string().into()),
        };
        toml::Value::Table(table)
    }

    /// The sockets that hosts have opened at this place, of either host.
    fn datagram_ports(&self) -> Vec<u16> {
        let table = std::fs::read_to_string("/proc/net/udp").expect("the kernel has UDP");
        let own = format!("{:08X}", u32::from_ne_bytes(self.ip.octets()));
        let ports = table.lines().filter_map(|line| {
            let (ip, port) = line.split_whitespace().nth(1)?.split_once(':')?;
            (ip == own).then(|| u16::from_str_radix(port, 16).ok())?
        });
        ports.collect()
    }
}

impl<const IS_RELIABLE: bool> BusUnderTest for Udp<IS_RELIABLE> {
    fn new() -> Self {
        // Each place has a loopback address of its own, so that no two tests and no two test runs meet.
        static PLACES: AtomicU16 = AtomicU16::new(0);
        let [high, low] = PLACES.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let process = std::process::id().to_be_bytes();
        Udp {
            ip: Ipv4Addr::new(127, process[3], high.wrapping_add(process[2]).max(1), low),
        }
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
        let stranger = UdpSocket::bind((IpAddr::from(self.ip), 0)).expect("a free port");
        let mut bytes = vec![0; 1 + seed as usize * 97 % 5000];
        contract::harness::fill(&mut bytes, seed);
        for port in self.datagram_ports() {
            // The port may be gone by now.
            let _ = stranger.send_to(&bytes, (self.ip, port));
        }
        if victim == Side::One {
            // The connecting side has no port for the conversation.
            contract::conversation::attack(self.conversation(), seed);
        }
    }

    fn other_version(&self, side: Side) -> Box<dyn Any> {
        contract::conversation::other_version(side, self.conversation())
    }
}

mod reliable {
    crate::contract::contract_tests!(crate::Udp<true>);
}

mod best_effort {
    crate::contract::contract_tests!(crate::Udp<false>);
}
