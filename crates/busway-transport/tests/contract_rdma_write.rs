//! The contract of every bus, for RDMA by WRITE: both hosts over one device, RoCE or iWARP.

mod contract;
mod rdma_place;

use rdma_place::RdmaPlace;

contract::bus_at_place!(RdmaWrite(RdmaPlace) = RdmaPlace::new("rdma-write"));

contract::contract_tests!(
    RdmaWrite,
    ignore = "needs RDMA in the kernel: cargo xtask lab runs it"
);
