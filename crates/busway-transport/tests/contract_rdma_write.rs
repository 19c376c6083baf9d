//! The contract of every bus, for RDMA by WRITE: both hosts over one device, RoCE or iWARP.

mod contract;
mod rdma_place;

use std::any::Any;

use busway_transport::{Link, LinkIdentity};
use contract::harness::Buffer;
use contract::{BusUnderTest, Side};
use rdma_place::RdmaPlace;

struct RdmaWrite(RdmaPlace);

impl BusUnderTest for RdmaWrite {
    fn new() -> Self {
        RdmaWrite(RdmaPlace::new("rdma-write"))
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

contract::contract_tests!(
    RdmaWrite,
    ignore = "needs RDMA in the kernel: cargo xtask lab runs it"
);
