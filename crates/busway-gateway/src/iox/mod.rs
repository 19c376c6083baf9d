//! What the gateway knows of iceoryx2, and nothing else does.
//!
//! * [`domain`]: which iceoryx2 installation (root path and prefix) the programs of this host use, and our node in it.
//! * [`description`]: a service's types and settings, as they cross the link; the mirror service made from them.
//! * [`registry`]: who publishes and subscribes, read from shared memory without taking a slot.
//! * [`watch`]: what changes in the domain, told by the kernel (inotify, pidfd).
//! * [`queues`]: whether anything waits for a subscriber of ours, and what it lost to overflow.
//! * [`ports`]: type-erased publisher and subscriber: the ends of a flow.
//! * [`companion`]: the event service of the same name, where there is one.
//!
//! iceoryx2 is pinned to exactly 0.10.0: [`description`], [`registry`] and [`ports`] use calls and layouts that its authors keep
//! internal (docs/decisions/003-iceoryx2-internals.md).

pub mod companion;
pub mod description;
pub mod domain;
pub mod ports;
pub mod queues;
pub mod registry;
pub mod watch;

/// The iceoryx2 service variant of the gateway: inter-process, with ports that may move between threads.
pub type Service = iceoryx2::service::ipc_threadsafe::Service;
