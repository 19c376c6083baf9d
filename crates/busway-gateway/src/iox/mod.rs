//! Everything that touches iceoryx2.
//!
//! * [`domain`]: which iceoryx2 installation (root path and prefix) the programs of this host use,
//!   and our node in it.
//! * [`service`]: describes services, and opens or creates described ones.
//! * [`registry`]: who publishes and subscribes, read from shared memory without taking a slot.
//! * [`watch`]: changes in the domain, reported by the kernel (inotify, pidfd).
//! * [`queues`]: whether samples wait for our subscriber, and how many it lost to overflow.
//! * [`publisher`], [`subscriber`], [`sample`]: type-erased ends of a flow, and the messages
//!   between them.
//! * [`events`]: the event service of the same name, if there is one.
//!
//! iceoryx2 is pinned to exactly 0.10.0: [`service`], [`registry`], [`publisher`] and
//! [`subscriber`] use calls and layouts that its authors keep internal
//! (docs/decisions/003-iceoryx2-internals.md).

pub mod domain;
pub mod events;
pub mod publisher;
pub mod queues;
pub mod registry;
pub mod sample;
pub mod service;
pub mod subscriber;
pub mod watch;

/// The iceoryx2 service variant of the gateway: inter-process, with ports that may move between
/// threads.
pub type Service = iceoryx2::service::ipc_threadsafe::Service;
