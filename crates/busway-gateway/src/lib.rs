//! The gateway: carries iceoryx2 publish/subscribe services and the channels of ARINC 653 ports
//! between hosts, without the programs' knowledge.
//!
//! ```text
//! program -> iceoryx2 -> lane::outbound -> bus -> lane::inbound -> iceoryx2 -> program
//!               gateway (control thread): facts -> control (decides) -> actions
//! ```
//!
//! * `iox`: everything that touches iceoryx2.
//! * `description`: a service's types and settings, without iceoryx2.
//! * `catalog`: the services of this host.
//! * `clock`: brings time stamps of ports to another host's clock.
//! * `control`: decides what crosses, over which bus, and when it moves; pure.
//! * `gateway`: the control thread, which carries that out.
//! * `protocol`: the control messages that gateways send each other.
//! * `lane`: the threads that move data.
//! * `janitor`: removes what dead programs left behind.
//! * `counters`, `status`: what is counted, and the file that shows it.
//! * `faults`: survives sample memory that the kernel can't supply.
//!
//! Called by `busway gateway` ([`run`]).

mod catalog;
mod clock;
mod control;
mod counters;
mod description;
mod faults;
mod gateway;
mod iox;
mod janitor;
mod lane;
mod protocol;
mod status;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use busway_system::System;

/// What a call of [`run`] asks for beyond the system file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where to write the status; overrides the system file.
    pub status: Option<PathBuf>,
}

/// Why the gateway can't run.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The system file has no such host.
    #[error("host {host:?} is not in the system file; it has: {known}")]
    UnknownHost {
        /// The name asked for.
        host: String,
        /// The names that there are.
        known: String,
    },
    /// By the system file no gateway runs on this host.
    #[error(
        "the system file says gateway = false of host {host:?}: it is a real-time core; name the host that this machine is"
    )]
    Core {
        /// The host.
        host: String,
    },
    /// The iceoryx2 domain can't be used.
    #[error(transparent)]
    Domain(#[from] iox::domain::DomainError),
    /// The domain can't be watched.
    #[error(
        "the iceoryx2 domain can't be watched: {0}; if it is the limit, raise fs.inotify.max_user_watches"
    )]
    Watch(#[source] std::io::Error),
    /// The ports of this host can't be opened.
    #[error(transparent)]
    Store(#[from] busway_port::StoreError),
    /// The gateway's part of the ports can't be joined.
    #[error(transparent)]
    Join(#[from] busway_port::JoinError),
    /// No thread or descriptor left.
    #[error(
        "a thread can't be started: {0}; raise this user's limits (ulimit -u for threads, ulimit -n for descriptors)"
    )]
    Thread(#[source] std::io::Error),
    /// A link can't even be tried.
    #[error("the link to {peer:?} over {bus} can't be made: {reason}")]
    Link {
        /// The bus.
        bus: &'static str,
        /// The peer.
        peer: String,
        /// The bus's reason.
        reason: String,
    },
}

/// Carries services for `host` until `stop` is set.
///
/// # Errors
/// See [`GatewayError`]; all occur at the start. What may recover later is retried.
pub fn run(system: &System, host: &str, options: Options, stop: Arc<AtomicBool>) -> Result<(), GatewayError> {
    gateway::Gateway::new(system, host, &options)?.run(&stop)
}
