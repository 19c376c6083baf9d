//! The contract for windows in PCI functions: over a function where there is one, and everywhere as
//! a process beside a virtual machine, which maps the file behind the function.

mod contract;
mod pci_function;
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

mod over_a_function {
    crate::contract::contract_tests!(
        crate::pci_function::PciFunction,
        ignore = "needs a PCI window: cargo xtask lab runs it"
    );
}
