//! Sleeping until a descriptor has something. Used by the technologies whose ends are descriptors.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Sleeps until `end` can be read, or written too if `writable`, for `at_most` at most. An interrupted wait is a short one.
pub(super) fn sleep_until_ready(end: &impl AsFd, writable: bool, at_most: Duration) {
    let wanted = if writable {
        PollFlags::IN | PollFlags::OUT
    } else {
        PollFlags::IN
    };
    let timeout = Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let _ = poll(&mut [PollFd::new(end, wanted)], Some(&timeout));
}
