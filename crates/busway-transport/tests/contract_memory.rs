//! The contract of every bus, for windows in `/dev/shm`.

mod contract;
mod window_file;

use std::any::Any;
use std::os::unix::fs::FileExt;

use busway_transport::{Link, LinkIdentity};
use contract::harness::{Buffer, fill};
use contract::{BusUnderTest, Side};
use window_file::WindowFile;

/// One file, split in two halves.
struct Memory(WindowFile);

/// What every window begins with: the magic number, and then the protocol's version.
const MAGIC: &[u8; 8] = b"BUSWAYmw";
const VERSION_AT: u64 = 8;
const CONVERSATION_AT: u64 = 40;

impl BusUnderTest for Memory {
    fn new() -> Self {
        Memory(WindowFile::new())
    }

    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        self.0.open(side, identity)
    }

    fn attack(&self, victim: Side, seed: u64) {
        let mut bytes = vec![0; 1 + seed as usize * 977 % 50_000];
        fill(&mut bytes, seed);
        // Every second one where header, tables and control ring lie, the others anywhere.
        let range = if seed.is_multiple_of(2) {
            64 << 10
        } else {
            WindowFile::HALF_BYTES - bytes.len() as u64
        };
        let at = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % range;
        let file = self.0.file();
        file.write_all_at(&bytes, self.0.read_at(victim) + at)
            .expect("the window is there");
    }

    fn other_version(&self, side: Side) -> Box<dyn Any> {
        let file = self.0.file();
        let window = self.0.read_at(side.other());
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
}

contract::contract_tests!(Memory);
