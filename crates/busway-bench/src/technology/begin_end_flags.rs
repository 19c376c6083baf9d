//! `begin-end-flags`: the register of the published RDMA sampling port (Lee, Kim, Kim and Jin,
//! section III-C) in shared memory: flag, message, flag, one behind the other.
//!
//! Equal flags around a copy are taken for a whole message, as published. Copies do not run in
//! ascending order on every CPU, so some are torn or old all the same: the programs find out and
//! count them.

use super::message::{MIN_MESSAGE_BYTES, Message, Received};
use super::path::{Description, OneWay, Opening, Path, Reach, User};
use super::shared::{APART_BYTES, Memory, outside, sides};
use super::wait::Wait;
use crate::control::WorkerResult;
use crate::record::Measured;

const FLAG_BYTES: usize = 8;

pub(super) fn describe() -> [Description; 1] {
    [Description {
        waits: vec![Wait::Spin],
        reach: Reach::Machine,
        one_way: Some(OneWay::Sampling),
        least_bytes: MIN_MESSAGE_BYTES,
        ..Description::new(
            "begin-end-flags",
            "the published RDMA sampling port's register, in shared memory",
        )
    }]
}

pub(super) fn with(_: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    let stride_bytes = (opening.payload_bytes + 2 * FLAG_BYTES).next_multiple_of(APART_BYTES);
    user.exchange(Flags {
        memory: Memory::open(opening, 2 * stride_bytes)?,
        registers: sides(opening, stride_bytes),
        buffer: vec![0; opening.payload_bytes],
        touched: opening.touched,
        written: 0,
        last: 0,
    })
}

struct Flags {
    memory: Memory,
    /// Offsets in bytes of the register to write and the register to read.
    registers: [usize; 2],
    buffer: Vec<u8>,
    touched: bool,
    written: u64,
    last: u64,
}

impl Path for Flags {
    #[inline]
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        message.fill(&mut self.buffer, self.touched);
        let (window, begin) = (&self.memory.window, self.registers[0]);
        self.written += 1;
        // Sequence and size together, as published.
        let flag = self.written << 32 | self.buffer.len() as u64;
        let result = (|| {
            window.store(begin, flag)?;
            window.write_fence();
            window.write(begin + FLAG_BYTES, &[], &[&self.buffer])?;
            window.write_fence();
            window.store(begin + FLAG_BYTES + self.buffer.len(), flag)
        })();
        result.map_err(outside)?;
        Ok(true)
    }

    #[inline]
    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        let (window, begin) = (&self.memory.window, self.registers[1]);
        let result = (|| {
            let flag = window.load_acquire(begin)?;
            if flag == self.last {
                return Ok(false);
            }
            window.read(begin + FLAG_BYTES, &mut self.buffer)?;
            window.read_fence();
            let is_whole = window.load(begin + FLAG_BYTES + self.buffer.len())? == flag;
            if is_whole {
                self.last = flag;
            }
            Ok(is_whole)
        })();
        let is_whole = result.map_err(outside)?;
        Ok(is_whole
            .then(|| Message::read(&self.buffer, self.touched))
            .flatten())
    }
}
