//! The time table that computing and receiving partition share: frames of one length on the
//! machine's monotonic clock, which both read.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};

use crate::clock::now_ns;

const WINDOW_SHARE: (u64, u64) = (3, 4);

pub(super) fn next_frame_ns(now_ns: u64, frame_ns: u64) -> u64 {
    (now_ns / frame_ns + 1) * frame_ns
}

/// When the receiving partition's window begins in each frame; it ends with the frame.
pub(super) fn window_begin_ns(frame_ns: u64) -> u64 {
    frame_ns * WINDOW_SHARE.0 / WINDOW_SHARE.1
}

pub(super) fn next_window_ns(now_ns: u64, frame_ns: u64) -> u64 {
    let offset_ns = window_begin_ns(frame_ns);
    let this_ns = now_ns / frame_ns * frame_ns + offset_ns;
    if this_ns > now_ns {
        this_ns
    } else {
        this_ns + frame_ns
    }
}

pub(super) fn sleep_until(at_ns: u64) {
    let at = Timespec {
        tv_sec: (at_ns / 1_000_000_000) as i64,
        tv_nsec: (at_ns % 1_000_000_000) as _,
    };
    // A signal may wake the program early.
    while now_ns() < at_ns {
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_windows_take_turns_and_are_always_ahead() {
        for now_ns in [0, 1, 999, 1000, 1749, 1750, 1751, 1999, 123_456] {
            let (frame, window) = (next_frame_ns(now_ns, 1000), next_window_ns(now_ns, 1000));
            assert!(frame > now_ns && window > now_ns, "{now_ns}");
            assert_eq!((frame % 1000, window % 1000), (0, 750));
            assert!(frame - now_ns <= 1000 && window - now_ns <= 1000, "{now_ns}");
        }
    }

    #[test]
    fn sleep_ends_no_earlier_than_asked() {
        let at_ns = now_ns() + 2_000_000;
        sleep_until(at_ns);
        assert!(now_ns() >= at_ns);
    }
}
