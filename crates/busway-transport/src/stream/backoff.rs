//! Pauses between attempts to connect or to listen, which grow.

use std::time::Duration;

/// The first pause; each one is twice as long as the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Pauses that grow.
#[derive(Default)]
pub(super) struct BackOff(Option<Duration>);

impl BackOff {
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0.map_or(FIRST_PAUSE, |last| (last * 2).min(LONGEST_PAUSE));
        self.0 = Some(pause);
        pause
    }

    pub(super) fn reset(&mut self) {
        self.0 = None;
    }
}
