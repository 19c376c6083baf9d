//! The receiving partition of the interference experiment: reads what has come once in each frame,
//! in a window of its own.
//!
//! It never waits for a message: between windows nothing of it runs, so that what the computing
//! partition feels is the communication, not the program.

use super::spec::Exchange;
use crate::clock::now_ns;
use crate::control::{Control, WorkerResult};
use crate::record::Measured;
use crate::technology::{PROBE, Path, Received};
use crate::worker::frames::{next_window_ns, sleep_until};
use crate::worker::report::{Report, report, stay};

/// Windows for the last messages, once the sender has ended.
const LAST_WINDOWS: u32 = 50;

pub(super) fn receive(
    path: &mut dyn Path,
    spec: &Exchange,
    frame_ns: u64,
    control: &Control,
) -> WorkerResult<Measured> {
    let mut measured = Measured::default();
    let (mut has_arrived, mut next, mut last_windows) = (false, spec.base, 0);
    report(&Report::Ready(None));
    while !control.ended() {
        sleep_until(next_window_ns(now_ns(), frame_ns));
        while let Some(Received { message, intact }) = path.receive()? {
            if intact && !spec.is_ours(message.number) {
                continue;
            }
            if intact && message.number & PROBE != 0 {
                if !std::mem::replace(&mut has_arrived, true) {
                    report(&Report::Arrived);
                }
                continue;
            }
            measured.received += 1;
            if !intact || message.number < next {
                measured.corrupt += 1;
            } else {
                next = message.number + 1;
            }
        }
        if let Some(total) = control.total() {
            last_windows += 1;
            if next - spec.base >= total || last_windows > LAST_WINDOWS {
                break;
            }
        }
    }
    stay(&measured, control);
    Ok(measured)
}
