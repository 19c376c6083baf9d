//! A file for the two windows of a link, removed at the end of the test.
#![allow(dead_code)]

use std::any::Any;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{Link, LinkIdentity};

use crate::contract::Side;
use crate::contract::harness::{Buffer, fill};

/// What every window begins with: the magic number, and then the protocol's version.
pub const MAGIC: &[u8; 8] = b"BUSWAYmw";
pub const VERSION_AT: u64 = 8;
pub const CONVERSATION_AT: u64 = 40;

pub struct WindowFile {
    pub path: PathBuf,
    bus: &'static str,
    /// More keys for both hosts.
    pub more: toml::Table,
}

impl WindowFile {
    /// Length of each window in bytes.
    pub const HALF_BYTES: u64 = 8 << 20;

    /// A name where nothing is yet.
    pub fn new() -> WindowFile {
        WindowFile::with(toml::Table::new())
    }

    pub fn with(more: toml::Table) -> WindowFile {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/dev/shm/busway-test-{}-{count}", std::process::id()).into();
        WindowFile {
            path,
            bus: "memory",
            more,
        }
    }

    /// For another bus than `memory`.
    pub fn of_bus(bus: &'static str) -> WindowFile {
        let mut file = WindowFile::new();
        file.bus = bus;
        file
    }

    fn table(&self) -> toml::Value {
        let mut table = self.more.clone();
        table.insert("path".into(), self.path.to_string_lossy().into_owned().into());
        table.insert("length".into(), (2 * Self::HALF_BYTES as i64).into());
        table.insert("heartbeat".into(), "20ms".into());
        table.entry("timeout").or_insert("200ms".into());
        toml::Value::Table(table)
    }

    pub fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        let host = || parse_host(self.bus, self.table()).expect("a good table");
        let settings = link_settings(self.bus, host(), host(), side == Side::One);
        settings.validate().expect("good settings");
        Buses::new(identity)
            .open(&settings, side.other().name())
            .expect("the link opens")
    }

    /// The file, made if need be.
    pub fn file(&self) -> File {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.path);
        let file = file.expect("/dev/shm is writable");
        if file.metadata().expect("a file").len() == 0 {
            file.set_len(2 * Self::HALF_BYTES).expect("room");
        }
        file
    }

    /// See [`crate::contract::BusUnderTest::attack`].
    pub fn attack(&self, victim: Side, seed: u64) {
        let mut bytes = vec![0; 1 + seed as usize * 977 % 50_000];
        fill(&mut bytes, seed);
        // Every second one where header, tables and control ring lie, the others anywhere.
        let range = if seed.is_multiple_of(2) {
            64 << 10
        } else {
            Self::HALF_BYTES - bytes.len() as u64
        };
        let at = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % range;
        let file = self.file();
        file.write_all_at(&bytes, self.read_at(victim) + at)
            .expect("the window is there");
    }

    /// See [`crate::contract::BusUnderTest::other_version`].
    pub fn other_version(&self, side: Side) -> Box<dyn Any> {
        let file = self.file();
        let window = self.read_at(side.other());
        for (at, word) in [
            (0, *MAGIC),
            (VERSION_AT, 999_u64.to_ne_bytes()),
            (CONVERSATION_AT, 5_u64.to_ne_bytes()),
        ] {
            file.write_all_at(&word, window + at)
                .expect("the window is there");
        }
        Box::new(())
    }

    /// Where the window that `side` reads begins, in bytes.
    pub fn read_at(&self, side: Side) -> u64 {
        match side {
            Side::One => 0,
            Side::Two => Self::HALF_BYTES,
        }
    }
}

impl Drop for WindowFile {
    fn drop(&mut self) {
        let directory = self.path.parent().expect("in a directory");
        let name = self
            .path
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        for entry in std::fs::read_dir(directory).expect("readable").flatten() {
            let found = entry.file_name().to_string_lossy().into_owned();
            // The file and the doorbells beside it.
            if found == name || found.starts_with(&format!("{name}.")) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}
