//! Two hosts on one RDMA device, whichever bus over RDMA joins them. Not every test program uses
//! all of it.
#![allow(dead_code)]

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{Link, LinkIdentity, Message};

use crate::contract::harness::Buffer;
use crate::contract::{Side, conversation};

/// Payload of this length and more is not copied by `rdma-send`, where that can be.
pub const ZERO_COPY_FROM_BYTES: i64 = 64 << 10;

/// Where the conversation is: host `one` listens, `two` connects; both have the device's address.
pub struct RdmaPlace {
    bus: &'static str,
    address: SocketAddr,
}

impl RdmaPlace {
    /// A place of its own on the device whose address the environment names.
    pub fn new(bus: &'static str) -> RdmaPlace {
        static PLACES: AtomicU16 = AtomicU16::new(0);
        let device: IpAddr = std::env::var("BUSWAY_RDMA_ADDRESS")
            .unwrap_or_else(|_| "10.77.0.1".into())
            .parse()
            .expect("BUSWAY_RDMA_ADDRESS is an address");
        // Below the ports that the system chooses by itself.
        let port = 7500 + PLACES.fetch_add(1, Ordering::Relaxed);
        RdmaPlace::at(bus, SocketAddr::new(device, port))
    }

    /// The place of another process.
    pub fn at(bus: &'static str, address: SocketAddr) -> RdmaPlace {
        RdmaPlace { bus, address }
    }

    /// Where the conversation's listener is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn table(&self, side: Side) -> toml::Value {
        let mut table = toml::Table::new();
        table.insert("heartbeat".into(), "20ms".into());
        table.insert("timeout".into(), "1s".into());
        if self.bus == "rdma-send" {
            table.insert("zero_copy_from".into(), ZERO_COPY_FROM_BYTES.into());
        }
        match side {
            Side::One => table.insert("listen".into(), self.address.to_string().into()),
            Side::Two => table.insert("device".into(), self.address.ip().to_string().into()),
        };
        toml::Value::Table(table)
    }

    pub fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        self.open_for(side, identity)
    }

    /// Opens the link for other messages than the contract's.
    pub fn open_for<M: Message>(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<M>> {
        let host = |side| parse_host(self.bus, self.table(side)).expect("a good table");
        let settings = link_settings(self.bus, host(side), host(side.other()), side == Side::One);
        settings.validate().expect("good settings");
        Buses::new(identity)
            .open(&settings, side.other().name())
            .expect("the link opens")
    }

    pub fn attack(&self, victim: Side, seed: u64) {
        // The connecting side has no port.
        if victim == Side::One {
            conversation::attack(self.address, seed);
        }
    }

    pub fn other_version(&self, side: Side) -> Box<dyn Any> {
        conversation::other_version(side, self.address)
    }
}
