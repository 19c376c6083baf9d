//! The pauses of a program between two looks for a message.

use std::time::Duration;

use crate::technology::Wait;

const SPINS: u32 = 100;
/// Polls between which it yields before it begins to sleep: some 50 µs on a free core. Many more
/// would leave the core to other programs on a busy machine, where a sleeper is woken at once.
const YIELDS: u32 = 100;
const NAP: Duration = Duration::from_micros(50);

pub(super) struct Waiter {
    wait: Wait,
    looks: u32,
}

impl Waiter {
    pub(super) fn new(wait: Wait) -> Self {
        Self { wait, looks: 0 }
    }

    pub(super) fn strategy(&self) -> Wait {
        self.wait
    }

    pub(super) fn reset(&mut self) {
        self.looks = 0;
    }

    /// To be called when a look found nothing; returns when it is time to look again. An event
    /// program has blocked in its look already.
    pub(super) fn pause(&mut self) {
        self.looks = self.looks.saturating_add(1);
        if self.wait == Wait::Spin || self.looks <= SPINS {
            std::hint::spin_loop();
        } else if self.looks <= SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
}
