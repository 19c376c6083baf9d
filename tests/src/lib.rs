//! End-to-end tests: programs that know nothing of Busway, on several hosts, joined by the real `busway gateway`.
//!
//! * [`rig`]: hosts, their gateways, the system file.
//! * [`program`]: child processes that report.
//! * [`role`]: what the Rust program under test can be told to do.
//! * [`ports`]: ARINC 653 partitions on those hosts.
//! * [`quiet`]: when nothing is under way between ports any more.
//! * [`stream`]: messages from one host to another, and what the gateways count of them.
//! * [`mod@wait`]: waiting for something, with a deadline that only guards against hanging.
//! * [`skip`]: saying that a test can't run here.
//!
//! The programs under test are `src/bin/busway-test-program.rs` (Rust), `python/program.py` (the iceoryx2 wheel) and the tests
//! themselves, which open ports in the hosts' iceoryx2 domains as any user would. `busway` is the binary beside the tests
//! (`cargo test --workspace` builds it), or the one that the environment variable `BUSWAY_BIN` names.

pub mod ports;
pub mod program;
pub mod quiet;
pub mod rig;
pub mod role;
pub mod skip;
pub mod stream;
pub mod wait;

pub use rig::{Bus, Rig};
pub use wait::{eventually, holds_for};

/// Makes, for each test function that takes a [`Bus`], a module with one test for each bus. Those of buses that need a part of the kernel are left to
/// the lab.
#[macro_export]
macro_rules! on_each_bus {
    ($($name:ident),* $(,)?) => {
        $crate::on_memory_and_tcp! { @with $($name),* ;
            #[test]
            #[ignore = "needs TIPC in the kernel: cargo xtask lab runs it"]
            over_tipc Tipc;
            #[test]
            #[ignore = "needs an RDMA device: cargo xtask lab runs it"]
            over_rdma_send RdmaSend;
            #[test]
            #[ignore = "needs an RDMA device: cargo xtask lab runs it"]
            over_rdma_write RdmaWrite;
        }
    };
}

/// The same for the buses that every machine has, where a test reaches into the bus or nothing of it depends on which bus it is.
#[macro_export]
macro_rules! on_memory_and_tcp {
    ($($name:ident),* $(,)?) => {
        $crate::on_memory_and_tcp! { @with $($name),* ; }
    };
    (@with $($name:ident),* ; $($more:tt)*) => {
        $crate::on_memory_and_tcp! {
            @each $($name),* ; [#[test] over_memory Memory; #[test] over_tcp Tcp; $($more)*]
        }
    };
    (@each $($name:ident),* ; $tests:tt) => {
        $($crate::on_memory_and_tcp! { @one $name $tests })*
    };
    (@one $name:ident [$($(#[$attribute:meta])* $test:ident $bus:ident;)*]) => {
        mod $name {
            $($(#[$attribute])*
            fn $test() {
                super::$name($crate::Bus::$bus);
            })*
        }
    };
}
