//! The contract of every bus, for TCP over the loopback interface.

mod contract;

use std::any::Any;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};

use busway_transport::registry::{Buses, link_settings, parse_host};
use busway_transport::{Link, LinkIdentity};
use contract::harness::Buffer;
use contract::{BusUnderTest, Side};

/// Host `one` listens, `two` connects.
struct Tcp {
    address: SocketAddr,
}

impl Tcp {
    fn table(&self, side: Side) -> toml::Value {
        let mut table = toml::Table::new();
        table.insert("heartbeat".into(), "20ms".into());
        table.insert("timeout".into(), "1s".into());
        if side == Side::One {
            table.insert("listen".into(), self.address.to_string().into());
        }
        toml::Value::Table(table)
    }
}

impl BusUnderTest for Tcp {
    fn new() -> Self {
        // Each place has a loopback address of its own, so that no two tests and no two test runs meet.
        static PLACES: AtomicU16 = AtomicU16::new(0);
        let [high, low] = PLACES.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let process = std::process::id().to_be_bytes();
        let ip = [127, process[3], high.wrapping_add(process[2]).max(1), low];
        Tcp {
            address: SocketAddr::from((ip, 7400)),
        }
    }

    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        let host = |side| parse_host("tcp", self.table(side)).expect("a good table");
        let settings = link_settings("tcp", host(side), host(side.other()), side == Side::One);
        settings.validate().expect("good settings");
        Buses::new(identity)
            .open(&settings, side.other().name())
            .expect("the link opens")
    }

    fn attack(&self, victim: Side, seed: u64) {
        if victim == Side::Two {
            // The connecting side has no port; its peer's bytes are hostile in tests/tcp.rs.
            return;
        }
        contract::conversation::attack(self.address, seed);
    }

    fn other_version(&self, side: Side) -> Box<dyn Any> {
        contract::conversation::other_version(side, self.address)
    }
}

contract::contract_tests!(Tcp);
