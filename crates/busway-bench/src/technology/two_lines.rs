//! `two-lines`: the least that any exchange between two processors costs: a word each way, in a
//! cache line of its own, and no payload.

use super::message::{MIN_MESSAGE_BYTES, Message, Received};
use super::path::{Description, Opening, Path, Reach, User};
use super::shared::{APART_BYTES, Memory, outside, sides};
use super::wait::Wait;
use crate::control::WorkerResult;
use crate::record::Measured;

pub(super) fn describe() -> [Description; 1] {
    [Description {
        waits: vec![Wait::Spin],
        reach: Reach::Machine,
        one_way: None,
        // There is nothing whose size could matter.
        least_bytes: MIN_MESSAGE_BYTES,
        max_bytes: MIN_MESSAGE_BYTES,
        ..Description::new("two-lines", "floor: a bare word each way, no payload")
    }]
}

pub(super) fn with(_: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    user.exchange(TwoLines {
        memory: Memory::open(opening, 2 * APART_BYTES)?,
        lines: sides(opening, APART_BYTES),
        last: 0,
    })
}

struct TwoLines {
    memory: Memory,
    lines: [usize; 2],
    last: u64,
}

impl Path for TwoLines {
    #[inline]
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        let window = &self.memory.window;
        window.write_fence();
        window.store(self.lines[0], message.number).map_err(outside)?;
        Ok(true)
    }

    #[inline]
    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        let found = self.memory.window.load_acquire(self.lines[1]).map_err(outside)?;
        if found == self.last {
            return Ok(None);
        }
        self.last = found;
        Ok(Some(Received {
            message: Message::numbered(found),
            intact: true,
        }))
    }
}
