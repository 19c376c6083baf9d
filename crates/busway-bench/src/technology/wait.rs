//! How a program waits for the next message.

use serde::{Deserialize, Serialize};

/// Wait strategy of a program and of the gateway's lanes beside it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Looks without pause: needs a core for each program and lane.
    Spin,
    /// Spins for a microsecond, yields for some 50 µs, then sleeps 50 µs between looks.
    Adaptive,
    /// Blocks until notified: by the companion event service, the socket, a futex.
    Event,
}

impl Wait {
    pub fn word(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Adaptive => "adaptive",
            Self::Event => "event",
        }
    }
}
