//! The contract of every bus, for RDMA by SEND and RECV: both hosts over one device, RoCE or iWARP.

mod contract;
mod rdma_place;

use rdma_place::RdmaPlace;

contract::bus_at_place!(RdmaSend(RdmaPlace) = RdmaPlace::new("rdma-send"));

contract::contract_tests!(
    RdmaSend,
    ignore = "needs RDMA in the kernel: cargo xtask lab runs it"
);
