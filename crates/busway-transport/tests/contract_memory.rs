//! The contract of every bus, for windows in `/dev/shm`.

mod contract;
mod window_file;

use std::any::Any;

use busway_transport::{Link, LinkIdentity};
use contract::harness::Buffer;
use contract::{BusUnderTest, Side};
use window_file::WindowFile;

/// One file, split in two halves.
struct Memory(WindowFile);

impl BusUnderTest for Memory {
    fn new() -> Self {
        Memory(WindowFile::new())
    }

    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        self.0.open(side, identity)
    }

    fn attack(&self, victim: Side, seed: u64) {
        self.0.attack(victim, seed);
    }

    fn other_version(&self, side: Side) -> Box<dyn Any> {
        self.0.other_version(side)
    }
}

contract::contract_tests!(Memory);
