//! The contract for windows in PCI functions: over a function where there is one, and everywhere as
//! a process beside a virtual machine, which maps the file behind the function.

mod contract;
mod pci_function;
mod window_file;

use window_file::WindowFile;

contract::bus_at_place! {
    /// One file, split in two halves, in the place of a resource.
    Pci(WindowFile) = WindowFile::of_bus("pci")
}

contract::contract_tests!(Pci);

mod over_a_function {
    crate::contract::contract_tests!(
        crate::pci_function::PciFunction,
        ignore = "needs a PCI window: cargo xtask lab runs it"
    );
}
