//! A path of messages that have no room for their whole number. Used by the programs around any
//! path.

use std::time::Duration;

use super::message::{Message, PROBE, Received};
use super::path::Path;
use crate::control::WorkerResult;

pub(crate) struct Widened<'p> {
    path: &'p mut dyn Path,
    base: u64,
    /// The last number that came.
    near: u64,
}

impl<'p> Widened<'p> {
    /// Numbers of messages are those from `base` on.
    pub(crate) fn new(path: &'p mut dyn Path, base: u64) -> Self {
        Self {
            path,
            base,
            near: base,
        }
    }
}

impl Path for Widened<'_> {
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        self.path.send(message)
    }

    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        let Some(Received { message, intact }) = self.path.receive()? else {
            return Ok(None);
        };
        // Probes have numbers of their own.
        let near = if message.number & PROBE == 0 {
            self.near
        } else {
            self.base
        };
        let Some(number) = message.widened(self.base, near) else {
            return Ok(None);
        };
        if number >> 62 == 0 {
            self.near = number;
        }
        Ok(Some(Received {
            message: Message::numbered(number),
            intact,
        }))
    }

    fn flush(&mut self) -> WorkerResult<()> {
        self.path.flush()
    }

    fn wait(&mut self, at_most: Duration) {
        self.path.wait(at_most);
    }
}
