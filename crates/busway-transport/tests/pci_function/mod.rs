//! Windows in a real PCI function, both hosts in one process: two mappings.
//!
//! `BUSWAY_PCI_TABLES` has the tables of host one and host two, as in the system file, separated by
//! `|`.
#![allow(dead_code)]

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

use busway_buses::{BusSettings, Buses, link_settings, parse_host};
use busway_transport::contract::{Access, PortMemory};
use busway_transport::{Link, LinkIdentity};

use crate::contract::harness::{Buffer, fill};
use crate::contract::{BusUnderTest, Side};
use crate::window_file::{CONVERSATION_AT, MAGIC, VERSION_AT};

const TABLES: &str = "BUSWAY_PCI_TABLES";

/// There is one window for all tests.
static ALONE: Mutex<()> = Mutex::new(());

pub struct PciFunction {
    tables: [toml::Table; 2],
    /// All of the window that each side writes, as a stranger has it.
    written: [(PortMemory, u64); 2],
    _alone: MutexGuard<'static, ()>,
}

impl PciFunction {
    /// What these tables name.
    pub fn of(tables: &str) -> PciFunction {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (one, two) = tables.split_once('|').expect("two tables with | between them");
        let tables = [one, two].map(|text| {
            // As the value of a key, the form that a system file has.
            let text = format!("host = {{ {text} }}");
            let mut all: toml::Table = toml::from_str(&text).expect("TOML");
            let host = all.remove("host").expect("there");
            let toml::Value::Table(mut table) = host else {
                panic!("{host:?} is no table");
            };
            table.insert("heartbeat".into(), "20ms".into());
            table.entry("timeout").or_insert("200ms".into());
            table
        });
        let written = Side::BOTH.map(|side| {
            let mut settings = settings(&tables, side);
            // No more than half of a window is for ports; a stranger takes it all.
            let bytes = 2 * settings.port_room_bytes(Access::Writes);
            settings.set_port_bytes(0, bytes);
            let place = settings.port_place(Access::Writes).expect("set aside");
            (place.open().expect("the window is there"), bytes)
        });
        let function = PciFunction {
            tables,
            written,
            _alone: alone,
        };
        for side in Side::BOTH {
            function.write(side, 0, &[0; 4096]);
        }
        function
    }

    /// Writes into the window that `side` writes.
    fn write(&self, side: Side, offset_bytes: usize, bytes: &[u8]) {
        let (memory, _) = &self.written[side as usize];
        let part = memory.part(offset_bytes / 8 * 8, bytes.len().next_multiple_of(8));
        part.expect("inside").write(0, &[], &[bytes]).expect("inside");
    }
}

fn settings(tables: &[toml::Table; 2], side: Side) -> BusSettings {
    let host = |side: Side| parse_host("pci", tables[side as usize].clone().into()).expect("a good table");
    let settings = link_settings("pci", host(side), host(side.other()), side == Side::One);
    settings.validate().expect("good settings");
    settings
}

impl BusUnderTest for PciFunction {
    fn new() -> Self {
        let tables = std::env::var(TABLES).unwrap_or_else(|_| panic!("{TABLES} names no window"));
        PciFunction::of(&tables)
    }

    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        Buses::new(identity)
            .open(&settings(&self.tables, side), side.other().name())
            .expect("the link opens")
    }

    fn attack(&self, victim: Side, seed: u64) {
        let mut bytes = vec![0; 1 + seed as usize * 977 % 50_000];
        fill(&mut bytes, seed);
        let attacker = victim.other();
        let range = if seed.is_multiple_of(2) {
            64 << 10
        } else {
            self.written[attacker as usize].1 - bytes.len() as u64 - 8
        };
        let at = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % range;
        self.write(attacker, at as usize, &bytes);
    }

    fn other_version(&self, side: Side) -> Box<dyn Any> {
        for (at, word) in [
            (0, *MAGIC),
            (VERSION_AT, 999_u64.to_ne_bytes()),
            (CONVERSATION_AT, 5_u64.to_ne_bytes()),
        ] {
            self.write(side, at as usize, &word);
        }
        Box::new(())
    }
}
