//! Waiting for something to come about. Deadlines are long: they end a test that hangs and say
//! nothing of how fast anything is.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// After this time something that should come about is taken to hang.
pub const DEADLINE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(2);

/// Waits until `look` finds something.
///
/// # Panics
/// It has not within [`DEADLINE`].
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {DEADLINE:?}");
        sleep(STEP);
    }
}

/// Looks again and again for this long.
///
/// # Panics
/// `look` says no.
pub fn holds_for(time: Duration, what: &str, mut look: impl FnMut() -> bool) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(look(), "{what}: no longer");
        sleep(STEP);
    }
}
