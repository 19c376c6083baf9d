//! The rules of ARINC 653 for ports, with the partitions on two hosts and a gateway on each: the
//! suite of `busway-port`, over each bus that every machine has, and over the one that the lab
//! names.
//!
//! `sensors` is on host `a`; `navigation` and `display` are on host `b`. So `attitude` and `alarm`
//! go from `a` to `b`, `command` from `b` to `a`.
//!
//! What differs by nature between one host and two is a number of the bench, and the rules take it
//! into account:
//! - where gateways move messages, a full queue fills the one on the sender's host before the
//!   sender notices (`HELD_BACK`);
//! - stamps are set back by the error to which hosts know each other's clocks (`STAMP_ERROR_NS`).
//!
//! What holds inside one host only: that a message is there when the service that sent it returns,
//! with time-out 0. Here each service's effect is waited for ([`Routes::settle`]) before the next
//! is called.

use std::marker::PhantomData;
use std::sync::Arc;

use busway_system::System;
use busway_tests::ports::join;
use busway_tests::quiet::Routes;
use busway_tests::{Bus, Rig};

#[path = "../../../crates/busway-port/tests/conformance/bench.rs"]
mod bench;
#[path = "../../../crates/busway-port/tests/conformance/handle.rs"]
mod handle;
#[path = "../../../crates/busway-port/examples/shared/mod.rs"]
mod shared;

pub(crate) use bench::{Bench, HOUR_NS, Process, script, until};
use handle::Handle;

macro_rules! rules {
    ($($rule:ident)*) => {
        mod over_memory {
            $(crate::rule! { $rule Memory })*
        }
        mod over_tcp {
            $(crate::rule! { $rule Tcp })*
        }
        mod over_udp {
            $(crate::rule! { $rule Udp })*
        }
        mod over_named_bus {
            $(crate::rule! { $rule Named #[ignore = "needs TIPC, RDMA or a PCI window: cargo xtask lab runs it"] })*
        }
    };
}
macro_rules! rule {
    ($rule:ident $bus:ident $(#[$attribute:meta])?) => {
        #[test]
        $(#[$attribute])?
        fn $rule() {
            super::$rule::<crate::TwoHosts<crate::$bus>>();
        }
    };
}
pub(crate) use {rule, rules};

#[path = "../../../crates/busway-port/tests/conformance/extensions.rs"]
mod extensions;
#[path = "../../../crates/busway-port/tests/conformance/modes.rs"]
mod modes;
#[path = "../../../crates/busway-port/tests/conformance/queuing.rs"]
mod queuing;
#[path = "../../../crates/busway-port/tests/conformance/sampling.rs"]
mod sampling;

trait Over {
    /// See [`Bench::HELD_BACK`].
    const HELD_BACK: usize = shared::DEPTH;

    fn bus() -> Bus;
}

struct Memory;
struct Tcp;
struct Udp;
struct Named;

impl Over for Memory {
    /// Both hosts share the queue.
    const HELD_BACK: usize = 0;

    fn bus() -> Bus {
        Bus::Memory
    }
}

impl Over for Tcp {
    fn bus() -> Bus {
        Bus::Tcp
    }
}

impl Over for Udp {
    fn bus() -> Bus {
        Bus::Udp
    }
}

impl Over for Named {
    fn bus() -> Bus {
        Bus::named()
    }
}

struct TwoHosts<B> {
    rig: Rig,
    routes: Arc<Routes>,
    bus: PhantomData<B>,
}

impl<B: Over> Bench for TwoHosts<B> {
    type Process = OnAHost;

    const HELD_BACK: usize = B::HELD_BACK;

    /// A second: the error is the time that a question to the other gateway takes, which a busy
    /// machine may stretch.
    const STAMP_ERROR_NS: i64 = 1_000_000_000;

    fn new() -> Self {
        let host_of = |partition: &str| if partition == "sensors" { "a" } else { "b" };
        let module = shared::toml::text(host_of);
        // In namespaces of their own, where that is allowed.
        let rig = match Rig::isolated_pair(B::bus(), &module) {
            Ok(mut rig) => {
                rig.start_gateways();
                rig
            }
            Err(_) => Rig::pair_with(B::bus(), &module),
        };
        let system = System::load(&rig.system).expect("the test's system file is right");
        Self {
            routes: Routes::open(&system).into(),
            rig,
            bus: PhantomData,
        }
    }

    fn process(&self, partition: &str) -> OnAHost {
        OnAHost {
            handle: Handle::new(join(&self.rig.system, partition)),
            routes: self.routes.clone(),
        }
    }
}

struct OnAHost {
    handle: Handle,
    routes: Arc<Routes>,
}

impl Process for OnAHost {
    fn ask(&mut self, line: &str) -> String {
        let reply = self.handle.ask(line);
        self.routes.settle();
        reply
    }

    fn begin(&mut self, line: &str) {
        self.handle.begin(line);
    }

    fn end(&mut self) -> String {
        let reply = self.handle.end();
        self.routes.settle();
        reply
    }
}
