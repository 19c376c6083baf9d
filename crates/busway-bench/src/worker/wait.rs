//! How a program waits for the next message.

use std::time::Duration;

use iceoryx2::port::listener::Listener;
use iceoryx2::prelude::ipc;
use serde::{Deserialize, Serialize};

/// Looks before an adaptive program begins to yield: about a microsecond.
const SPINS: u32 = 100;
/// Looks between which it yields before it begins to sleep: some 50 µs where nobody else wants the core. Many more would hand
/// core and stream to whatever else runs on a busy machine, where a sleeper is woken at once.
const YIELDS: u32 = 100;
/// How long an adaptive program sleeps between looks; with the kernel's timer slack about 0.1 ms in effect.
const NAP: Duration = Duration::from_micros(50);
/// An event program looks again after this long even if nobody notified it, so that a lost notification costs time, not the
/// run.
const EVENT_TIMEOUT: Duration = Duration::from_millis(100);

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
    /// The word used in configuration and results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Adaptive => "adaptive",
            Self::Event => "event",
        }
    }
}

/// Carries out a [`Wait`] in a loop that alternates looking and waiting.
pub(super) struct Patience {
    wait: Wait,
    listener: Option<Listener<ipc::Service>>,
    looks: u32,
}

impl Patience {
    /// With a listener, [`Wait::Event`] blocks on it; without one it naps as an adaptive program does.
    pub(super) fn new(wait: Wait, listener: Option<Listener<ipc::Service>>) -> Self {
        Self {
            wait,
            listener,
            looks: 0,
        }
    }

    /// How this program waits.
    pub(super) fn strategy(&self) -> Wait {
        self.wait
    }

    /// To be called when a look found something.
    pub(super) fn reset(&mut self) {
        self.looks = 0;
    }

    /// To be called when a look found nothing; returns when it is time to look again.
    pub(super) fn pause(&mut self) {
        match (self.wait, &self.listener) {
            (Wait::Spin, _) => std::hint::spin_loop(),
            (Wait::Event, Some(listener)) => {
                if let Err(error) = listener.timed_wait(|_| (), EVENT_TIMEOUT) {
                    tracing::debug!(%error, "waiting for a notification failed");
                    std::thread::sleep(NAP);
                }
            }
            _ => self.pause_adaptively(),
        }
    }

    fn pause_adaptively(&mut self) {
        self.looks = self.looks.saturating_add(1);
        if self.looks <= SPINS {
            std::hint::spin_loop();
        } else if self.looks <= SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
}
