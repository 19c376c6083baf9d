//! The contract of every bus, for RDMA by WRITE: both hosts over one device, RoCE or iWARP.

mod contract;

use std::any::Any;

use busway_transport::{Link, LinkIdentity};
use contract::harness::Buffer;
use contract::rdma::Place;
use contract::{BusUnderTest, Side};

struct RdmaWrite(Place);

impl BusUnderTest for RdmaWrite {
    fn new() -> Self {
        RdmaWrite(Place::new("rdma-write"))
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
