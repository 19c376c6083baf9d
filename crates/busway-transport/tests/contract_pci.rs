//! The contract of every bus, for windows in PCI functions: here in the form in which a process beside a virtual machine takes part, by
//! mapping the file behind the function.

mod contract;
mod window_file;

use std::any::Any;

use busway_transport::{Link, LinkIdentity};
use contract::harness::Buffer;
use contract::{BusUnderTest, Side};
use window_file::WindowFile;

/// One file, split in two halves, in the place of a resource.
struct Pci(WindowFile);

impl BusUnderTest for Pci {
    fn new() -> Self {
        Pci(WindowFile::of_bus("pci"))
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

contract::contract_tests!(Pci);
