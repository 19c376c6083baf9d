//! Sleeping until a descriptor has something, and what a sender does that finds no room. Used by
//! the technologies whose ends are descriptors.

use std::fmt::Display;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::path::Opening;
use crate::control::{Control, WorkerResult};

/// Sleeps until `end` can be read, or written too if `writable`, for `at_most` at most. An
/// interrupted wait is a short one.
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

/// What a sender does with a message that did not leave whole.
pub(super) struct Room {
    /// See [`Opening::timed`].
    pub(super) timed: bool,
    control: Control,
}

impl Room {
    pub(super) fn for_sender(opening: &Opening<'_>) -> Self {
        Self {
            timed: opening.timed,
            control: opening.control.clone(),
        }
    }

    /// Try again; or what `send` shall say: true of a program that sends at instants of its own,
    /// whose rest leaves with the next calls, false of one that its parent has ended.
    pub(super) fn awaited(&self) -> Result<(), bool> {
        if self.timed {
            return Err(true);
        }
        if self.control.ended() {
            return Err(false);
        }
        std::hint::spin_loop();
        Ok(())
    }
}

/// Waits until somebody connects to a listener that does not block; `None` if the program shall end
/// before.
pub(super) fn accepted<S, A>(
    opening: &Opening<'_>,
    address: impl Display,
    mut accept: impl FnMut() -> io::Result<(S, A)>,
) -> WorkerResult<Option<S>> {
    while !opening.control.ended() {
        match accept() {
            Ok((socket, _)) => return Ok(Some(socket)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(format!("accept on {address}: {e}")),
        }
    }
    Ok(None)
}
