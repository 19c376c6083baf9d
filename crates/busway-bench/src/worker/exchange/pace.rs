//! Waiting for the instant at which a message is due.
//!
//! Called by the senders that keep an interval: [`super::one_way`] and [`super::watch`].

use std::time::Duration;

use crate::clock::now_ns;
use crate::technology::Wait;

/// A program that does not spin sleeps through all but the last of a pause.
const AWAKE_NS: u64 = 150_000;

/// Returns at `due_ns`, or at once if that is over.
pub(super) fn wait_until(due_ns: u64, wait: Wait) {
    loop {
        let Some(left_ns) = due_ns.checked_sub(now_ns()).filter(|left_ns| *left_ns > 0) else {
            return;
        };
        match wait {
            Wait::Spin => std::hint::spin_loop(),
            _ if left_ns > AWAKE_NS => std::thread::sleep(Duration::from_nanos(left_ns - AWAKE_NS)),
            _ => std::thread::yield_now(),
        }
    }
}
