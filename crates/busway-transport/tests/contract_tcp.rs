//! The contract of every bus, for TCP over the loopback interface, by IPv4 and by IPv6.

mod contract;

use std::any::Any;

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{Link, LinkIdentity};
use contract::harness::Buffer;
use contract::spot::{Spot, missing_v6};
use contract::{BusUnderTest, Side};

/// Host `one` listens, `two` connects.
struct Tcp<const IS_V6: bool>(Spot);

impl<const IS_V6: bool> Tcp<IS_V6> {
    fn table(&self, side: Side) -> toml::Value {
        let mut table = toml::Table::new();
        table.insert("heartbeat".into(), "20ms".into());
        table.insert("timeout".into(), "1s".into());
        if side == Side::One {
            table.insert("listen".into(), self.0.address.to_string().into());
        }
        toml::Value::Table(table)
    }
}

impl<const IS_V6: bool> BusUnderTest for Tcp<IS_V6> {
    fn new() -> Self {
        Tcp(Spot::new(IS_V6))
    }

    fn missing() -> Option<String> {
        IS_V6.then(missing_v6)?
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
        contract::conversation::attack(self.0.address, seed);
    }

    fn other_version(&self, side: Side) -> Box<dyn Any> {
        contract::conversation::other_version(side, self.0.address)
    }
}

contract::contract_tests!(Tcp<false>);

mod over_ipv6 {
    crate::contract::contract_tests!(crate::Tcp<true>);
}
