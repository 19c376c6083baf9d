//! The receiving partition: reads what has come once in each frame, in a window of its own.
//!
//! It never waits for a message: between windows nothing of it runs, so that what the computing
//! partition feels is the communication, not the program.

use serde::{Deserialize, Serialize};

use super::frames::{next_window_ns, sleep_until};
use crate::clock::now_ns;
use crate::conditions::{self, Wanted};
use crate::control::{Control, WorkerResult};
use crate::record::Measured;
use crate::technology::{
    self, MeetingPoint, NUMBERS, Opening, PROBE, Path, Received, SHORT_BYTES, Side, User, Wait, Widened,
};
use crate::worker::report::{Report, report, stay};

/// Windows for the last messages, once the sender has ended.
const LAST_WINDOWS: u32 = 50;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Partition {
    pub technology: String,
    pub place: MeetingPoint,
    pub payload_bytes: usize,
    pub touched: bool,
    pub wanted: Wanted,
    pub base: u64,
    pub frame_ns: u64,
}

pub(crate) fn run(spec: &Partition, control: &Control) -> WorkerResult<Measured> {
    let (_granted, conditions) = conditions::apply(&spec.wanted);
    report(&Report::Conditions(conditions));
    let opening = Opening {
        side: Side::Answers,
        place: &spec.place,
        payload_bytes: spec.payload_bytes,
        // Looks never block.
        wait: Wait::Spin,
        touched: spec.touched,
        timed: false,
        one_way: true,
        overwrites: false,
        control,
        listening: &|address| report(&Report::Ready(address)),
    };
    technology::with_path(&spec.technology, &opening, Reader { spec, control })
}

struct Reader<'a> {
    spec: &'a Partition,
    control: &'a Control,
}

impl User for Reader<'_> {
    fn exchange(self, mut path: impl Path) -> WorkerResult<Measured> {
        if self.spec.payload_bytes == SHORT_BYTES {
            let base = self.spec.base;
            return self.read(Widened::new(&mut path, base));
        }
        self.read(path)
    }
}

impl Reader<'_> {
    fn read(self, mut path: impl Path) -> WorkerResult<Measured> {
        let Self { spec, control } = self;
        let mut measured = Measured::default();
        let (mut has_arrived, mut next, mut last_windows) = (false, spec.base, 0);
        report(&Report::Ready(None));
        while !control.ended() {
            sleep_until(next_window_ns(now_ns(), spec.frame_ns));
            while let Some(Received { message, intact }) = path.receive()? {
                let is_ours = (spec.base..spec.base + NUMBERS).contains(&(message.number & !PROBE));
                if intact && !is_ours {
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
}
