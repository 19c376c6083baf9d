//! A window that the machine has once, in a PCI function of a guest for example: one test at a time
//! has it, empty.
//!
//! `BUSWAY_PCI_TABLES` (of bus `pci`) has the tables of the link's first and second host, as in the
//! system file, separated by `|`. Without it a bus of windows gets a file of its own for each link.

use std::sync::{Mutex, MutexGuard, PoisonError};

use busway_buses::{BusSettings, link_settings, parse_host};
use busway_transport::contract::{Access, PortMemory};

/// There is one window for all tests.
static ALONE: Mutex<()> = Mutex::new(());
const PIECE_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub struct GivenWindow {
    bus: String,
    tables: [String; 2],
    _alone: MutexGuard<'static, ()>,
}

impl GivenWindow {
    /// The window that the environment names for this bus, filled with zeros.
    ///
    /// # Panics
    /// It names one that can't be used.
    pub fn of(bus: &str) -> Option<GivenWindow> {
        let variable = format!("BUSWAY_{}_TABLES", bus.to_uppercase().replace('-', "_"));
        let text = std::env::var(&variable).ok()?;
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = text.split_once('|').map(|(a, b)| [a.to_owned(), b.to_owned()]);
        let window = GivenWindow {
            bus: bus.to_owned(),
            tables: tables.unwrap_or_else(|| panic!("{variable}={text:?} has no | between two tables")),
            _alone: alone,
        };
        window.clear();
        Some(window)
    }

    /// The lines of the link between these hosts.
    pub fn lines(&self, hosts: [&str; 2]) -> String {
        let of_host = hosts.iter().zip(&self.tables);
        of_host
            .map(|(host, table)| format!("{}.{host} = {{ {table} }}\n", self.bus))
            .collect()
    }

    /// What an earlier test wrote would be a message: channels are known by what the system file
    /// says of them.
    fn clear(&self) {
        for (memory, length_bytes) in self.written() {
            for at in (0..length_bytes).step_by(PIECE_BYTES) {
                let zeros = vec![0; PIECE_BYTES.min(length_bytes - at)];
                overwrite(&memory, at, &zeros);
            }
        }
    }

    /// All of the memory that each host writes, and its length in bytes.
    pub fn written(&self) -> [(PortMemory, usize); 2] {
        [0, 1].map(|local| {
            let mut settings = self.settings(local);
            // No more than half of a window is for ports; a stranger takes it all.
            let all_bytes = 2 * settings.port_room_bytes(Access::Writes);
            settings.set_port_bytes(0, all_bytes);
            let place = settings.port_place(Access::Writes).expect("set aside");
            let memory = place.open().expect("the window is there");
            (memory, place.length_bytes() as usize)
        })
    }

    fn settings(&self, local: usize) -> BusSettings {
        let host = |number: usize| {
            let text = format!("host = {{ {} }}", self.tables[number]);
            let mut all: toml::Table = toml::from_str(&text).expect("a table as in the system file");
            let table = all.remove("host").expect("there");
            parse_host(&self.bus, table).expect("a table of this bus")
        };
        link_settings(&self.bus, host(local), host(1 - local), local == 0)
    }
}

/// Writes into such a memory, as a stranger would.
pub fn overwrite(memory: &PortMemory, at_bytes: usize, bytes: &[u8]) {
    let part = memory.part(at_bytes, bytes.len()).expect("inside");
    part.write(0, &[], &[bytes]).expect("inside");
}
