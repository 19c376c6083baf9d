//! What a system file says, as plain values. Made by [`crate::System::parse`], used by the gateway
//! and the command line.
//!
//! Everything here has been validated: names refer to something, numbers are in range.

use std::path::PathBuf;

use serde::Serialize;

use crate::pattern::Pattern;

/// One host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// The name after `host.`; 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Where the programs of this host meet.
    pub iceoryx2: Iceoryx2Domain,
    /// Where the gateway writes what it is doing, for programs to read; `None`: nowhere. Relative
    /// to the system file's folder.
    pub status: Option<PathBuf>,
    /// The directory with the state of this host's ARINC 653 ports; it must lie in memory. `None`:
    /// one in `/dev/shm` that is named after the module and the host. Relative to the system file's
    /// folder.
    pub ports: Option<PathBuf>,
    /// Whether a gateway runs there; `false` for a real-time core whose programs use Busway's C
    /// headers.
    pub gateway: bool,
    /// Length in nanoseconds of the major frame, after which the windows of this host's partitions
    /// repeat; `None`: its partitions run all the time.
    pub major_frame_ns: Option<u64>,
}

/// The iceoryx2 domain of a host. With nothing set, it is the one that programs get by default on
/// that host.
///
/// Paths are relative to the system file's folder. `root_path` and `prefix` go over what `config`
/// says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Iceoryx2Domain {
    /// An iceoryx2 configuration file, the one that the programs use.
    pub config: Option<PathBuf>,
    /// iceoryx2's `global.root-path`.
    pub root_path: Option<PathBuf>,
    /// iceoryx2's `global.prefix`.
    pub prefix: Option<String>,
}

/// Which services cross at all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GatewayRules {
    /// Only services that one of these matches; the default is `*`.
    pub allow: Vec<Pattern>,
    /// None of the services that one of these matches, even if allowed.
    pub deny: Vec<Pattern>,
}

impl Default for GatewayRules {
    fn default() -> Self {
        GatewayRules {
            allow: vec![Pattern::new("*")],
            deny: Vec::new(),
        }
    }
}

/// What happens when the receiver is slower than the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "keep")]
pub enum KeepRule {
    /// The newest message only.
    Latest,
    /// Every message, in order.
    All {
        /// Most messages that wait on their way, 1 to [`MAX_DEPTH`]; `None`: as deep as the
        /// service's own buffers.
        depth: Option<u32>,
        /// What happens when `depth` are waiting; `None`: what the service itself does with a slow
        /// subscriber.
        policy: Option<Policy>,
    },
}

/// Largest `depth` of a service rule: with a 64-byte line a message, 64 MiB of ring.
pub const MAX_DEPTH: u32 = 1 << 20;

/// What happens to a message that finds the queue full. Everything dropped is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The publisher waits.
    Block,
    /// The oldest waiting message makes room.
    DropOldest,
    /// The new message is dropped.
    DropNewest,
}

/// How the services that match are carried. The first rule in the file that matches a service
/// holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceRule {
    /// For which services.
    pub name: Pattern,
    /// `None`: as the service's own settings ask.
    pub keep: Option<KeepRule>,
    /// Name of a lane; `None`: the lane whose own `services` match, else the default lane.
    pub lane: Option<String>,
    /// The buses that may carry it, the best first, whatever its messages' length; empty: all of
    /// the links, in their order.
    pub buses: Vec<String>,
}

impl ServiceRule {
    /// Whether a bus may carry the services at all, where a link has it.
    pub fn may_take(&self, bus: &str) -> bool {
        self.buses.is_empty() || self.buses.iter().any(|named| named == bus)
    }
}

/// How a lane waits while none of its channels has work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// It polls without end: the shortest latency, a whole core.
    Spin,
    /// It polls for a short while, then sleeps.
    Adaptive,
    /// It sleeps until it is woken.
    Event,
}

/// A thread that moves data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lane {
    /// Its name, also the thread's.
    pub name: String,
    /// The services that run on it, besides those whose rule names it. Empty for the default lane.
    pub services: Vec<Pattern>,
    /// How it waits.
    pub wait: Wait,
    /// The CPU it is pinned to, 0 to 1023.
    pub cpu: Option<usize>,
    /// Its `SCHED_FIFO` priority, 1 to 99; `None`: the ordinary scheduler.
    pub priority: Option<u8>,
    /// Whether the process locks its memory (`mlockall`).
    pub lock_memory: bool,
}

/// Name of the lane that takes every service which no other lane takes. It always exists and is the
/// first of [`crate::System::lanes`].
pub const DEFAULT_LANE: &str = "default";

impl Default for Lane {
    fn default() -> Self {
        Lane {
            name: DEFAULT_LANE.to_string(),
            services: Vec::new(),
            wait: Wait::Adaptive,
            cpu: None,
            priority: None,
            lock_memory: false,
        }
    }
}

/// What a system file says about one service.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ServicePlan<'a> {
    /// Whether it crosses at all.
    pub crosses: bool,
    /// The `deny` pattern that forbids it or the `allow` pattern that lets it cross; `None`: no
    /// `allow` pattern matches.
    pub because: Option<&'a Pattern>,
    /// Index in [`crate::System::services`] of the rule that holds; `None`: no rule matches.
    pub rule: Option<usize>,
    /// `None`: as the service's own settings ask.
    pub keep: Option<KeepRule>,
    /// Index in [`crate::System::lanes`].
    pub lane: usize,
    /// As [`ServiceRule::buses`].
    pub buses: &'a [String],
}
