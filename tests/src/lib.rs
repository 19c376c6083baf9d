//! End-to-end tests: programs that know nothing of Busway, on several hosts, joined by the real
//! `busway gateway`.
//!
//! * [`rig`]: hosts, their gateways, the system file.
//! * [`program`]: child processes that report.
//! * [`role`]: what the Rust program under test can be told to do.
//! * [`fan`]: one publisher, several hosts over udp.
//! * [`own_network`]: a network in which nobody else sends.
//! * [`outage`]: two links, one of them out of order.
//! * [`module`]: partitions under `busway module run`.
//! * [`ports`]: ARINC 653 partitions on those hosts.
//! * [`port_fan`]: the same with one ARINC 653 port.
//! * [`quiet`]: when nothing is under way between ports any more.
//! * [`stream`]: messages from one host to another, and what the gateways count of them.
//! * [`mod@wait`]: waiting for something, with a deadline that only guards against hanging.
//! * [`window`]: a window that the machine has once.
//! * [`skip`]: saying that a test can't run here.
//!
//! The programs under test are `src/bin/busway-test-program.rs` (Rust), `python/program.py` (the
//! iceoryx2 wheel) and the tests themselves, which open ports in the hosts' iceoryx2 domains as any
//! user would. `busway` is the binary beside the tests (`cargo test --workspace` builds it), or the
//! one that the environment variable `BUSWAY_BIN` names.

// Used by the tests of this folder only.
#![allow(missing_docs)]

pub mod fan;
pub mod module;
pub mod outage;
pub mod own_network;
pub mod port_fan;
pub mod ports;
pub mod program;
pub mod quiet;
pub mod rig;
pub mod role;
pub mod skip;
pub mod stream;
pub mod wait;
pub mod window;

use iceoryx2::prelude::ServiceName;

pub use rig::{Bus, Rig};
pub use wait::{eventually, holds_for};

/// Makes, for each test function that takes a [`Bus`], a module with one test for each bus that
/// every machine has.
#[macro_export]
macro_rules! on_each_bus {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            $crate::buses_of_every_machine!($name);
        })*
    };
}

/// The same, and one for the bus that `BUSWAY_BUS` names, whichever of the registry: for what the
/// lab's guests run.
#[macro_export]
macro_rules! on_each_and_named_bus {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            $crate::buses_of_every_machine!($name);
            #[test]
            #[ignore = "needs TIPC, RDMA or a PCI window: cargo xtask lab runs it"]
            fn over_named_bus() {
                super::$name($crate::Bus::named());
            }
        })*
    };
}

/// For the two above.
#[macro_export]
macro_rules! buses_of_every_machine {
    ($name:ident) => {
        #[test]
        fn over_memory() {
            super::$name($crate::Bus::Memory);
        }
        #[test]
        fn over_tcp() {
            super::$name($crate::Bus::Tcp);
        }
        #[test]
        fn over_udp() {
            super::$name($crate::Bus::Udp);
        }
    };
}

/// The name of an iceoryx2 service.
///
/// # Panics
/// It is too long for one.
pub fn name(text: &str) -> ServiceName {
    text.try_into().expect("a service name")
}

/// The service of this name and payload, opened or made with these settings.
#[macro_export]
macro_rules! service {
    ($node:expr, $name:expr, $payload:ty $(, $set:ident($($value:expr),*))*) => {
        $node
            .service_builder(&$name)
            .publish_subscribe::<$payload>()
            $(.$set($($value),*))*
            .open_or_create()
            .expect("the service")
    };
}

/// The same of a service that is there already.
#[macro_export]
macro_rules! existing_service {
    ($node:expr, $name:expr, $payload:ty $(, $set:ident($($value:expr),*))*) => {
        $node
            .service_builder(&$name)
            .publish_subscribe::<$payload>()
            $(.$set($($value),*))*
            .open()
            .expect("the service is there")
    };
}

/// A publisher of a service.
#[macro_export]
macro_rules! publisher {
    ($service:expr $(, $set:ident($($value:expr),*))*) => {
        $service.publisher_builder()$(.$set($($value),*))*.create().expect("a publisher")
    };
}

/// A subscriber of a service.
#[macro_export]
macro_rules! subscriber {
    ($service:expr) => {
        $service.subscriber_builder().create().expect("a subscriber")
    };
}

/// The next message of a subscriber, if there is one.
#[macro_export]
macro_rules! received {
    ($subscriber:expr) => {
        $subscriber.receive().expect("the subscriber works")
    };
}

/// Waits for the next message of a subscriber.
#[macro_export]
macro_rules! arrives {
    ($subscriber:expr) => {
        $crate::eventually("the message arrives", || $crate::received!($subscriber))
    };
}

/// Waits until a service has this many subscribers, the gateway's among them.
#[macro_export]
macro_rules! subscribers_become {
    ($service:expr, $count:expr) => {
        $crate::eventually("the gateway subscribes, or leaves", || {
            ($service.dynamic_config().number_of_subscribers() == $count).then_some(())
        })
    };
}
