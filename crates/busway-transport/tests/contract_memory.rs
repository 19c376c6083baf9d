//! The contract of every bus, for windows in `/dev/shm`.

mod contract;
mod window_file;

use window_file::WindowFile;

contract::bus_at_place! {
    /// One file, split in two halves.
    Memory(WindowFile) = WindowFile::new()
}

contract::contract_tests!(Memory);
