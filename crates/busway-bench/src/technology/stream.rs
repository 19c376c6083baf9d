//! Messages one behind the other on a connected byte stream, polled, blocking, or waited for; a
//! call of the system for each, or many messages in one call. Used by the technologies of stream
//! sockets.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use super::message::{Message, Received};
use super::path::{LOOK_TIMEOUT, Opening, Path};
use super::ready::{Room, sleep_until_ready};
use crate::control::WorkerResult;

macro_rules! socket {
    ($socket:ty) => {
        impl Socket for $socket {
            fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.set_nonblocking(nonblocking)
            }

            fn set_timeout(&self, timeout: Option<Duration>) -> std::io::Result<()> {
                self.set_read_timeout(timeout)?;
                self.set_write_timeout(timeout)
            }
        }
    };
}
pub(super) use socket;

pub(super) trait Socket: Read + Write + AsFd {
    fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()>;
    fn set_timeout(&self, timeout: Option<Duration>) -> std::io::Result<()>;
}

/// How many messages [`Stream`] takes to a call of the system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    OneMessage,
    /// One way, as many as [`BATCH_BYTES`] hold; a round trip has one.
    ManyMessages,
}

/// About what one segment of a network card with segmentation offload carries.
pub(super) const BATCH_BYTES: usize = 64 << 10;

impl Calls {
    pub(super) fn of(batches: bool) -> Self {
        if batches {
            Self::ManyMessages
        } else {
            Self::OneMessage
        }
    }

    pub(super) fn messages(self, opening: &Opening<'_>) -> usize {
        let has_many = self == Self::ManyMessages && opening.one_way;
        if has_many {
            (BATCH_BYTES / opening.payload_bytes).max(1)
        } else {
            1
        }
    }
}

pub(super) struct Stream<S> {
    socket: S,
    payload_bytes: usize,
    /// Room for the messages of a call.
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that hold messages, and of these, that have left.
    ready: usize,
    written: usize,
    /// As `outgoing`.
    incoming: Vec<u8>,
    /// Bytes of `incoming` that have come, and of these, that were taken.
    filled: usize,
    taken: usize,
    touched: bool,
    room: Room,
}

impl<S: Socket> Stream<S> {
    pub(super) fn new(socket: S, opening: &Opening<'_>, calls: Calls) -> WorkerResult<Self> {
        let blocks = opening.blocks();
        socket
            .set_nonblocking(!blocks)
            .and_then(|()| socket.set_timeout(blocks.then_some(LOOK_TIMEOUT)))
            .map_err(|e| format!("socket options: {e}"))?;
        let bytes = opening.payload_bytes * calls.messages(opening);
        Ok(Self {
            socket,
            payload_bytes: opening.payload_bytes,
            outgoing: vec![0; bytes],
            ready: 0,
            written: 0,
            incoming: vec![0; bytes],
            filled: 0,
            taken: 0,
            touched: opening.touched,
            room: Room::for_sender(opening),
        })
    }

    fn push(&mut self) -> WorkerResult<bool> {
        while self.written < self.ready {
            match self.socket.write(&self.outgoing[self.written..self.ready]) {
                Ok(written) => self.written += written,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(false);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("write: {e}")),
            }
        }
        (self.ready, self.written) = (0, 0);
        Ok(true)
    }

    /// Pushes until everything has left; otherwise what `send` shall say.
    fn push_all(&mut self) -> WorkerResult<bool> {
        while !self.push()? {
            if let Err(sent) = self.room.awaited() {
                return Ok(sent);
            }
        }
        Ok(true)
    }

    fn take(&mut self) -> Option<Received> {
        let end = self.taken + self.payload_bytes;
        if self.filled < end {
            return None;
        }
        let received = Message::read(&self.incoming[self.taken..end], self.touched);
        self.taken = end;
        if self.taken == self.filled {
            (self.filled, self.taken) = (0, 0);
        }
        received
    }
}

impl<S: Socket> Path for Stream<S> {
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        // What a call before has not sent, or not wholly.
        let is_full = self.ready + self.payload_bytes > self.outgoing.len();
        if (self.written > 0 || is_full) && !self.push()? {
            return Ok(false);
        }
        let end = self.ready + self.payload_bytes;
        message.fill(&mut self.outgoing[self.ready..end], self.touched);
        self.ready = end;
        if end + self.payload_bytes <= self.outgoing.len() {
            return Ok(true);
        }
        self.push_all()
    }

    fn flush(&mut self) -> WorkerResult<()> {
        self.push_all().map(drop)
    }

    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        if self.room.timed {
            self.push()?;
        }
        loop {
            if let Some(received) = self.take() {
                return Ok(Some(received));
            }
            if self.filled == self.incoming.len() {
                self.incoming.copy_within(self.taken.., 0);
                (self.filled, self.taken) = (self.filled - self.taken, 0);
            }
            match self.socket.read(&mut self.incoming[self.filled..]) {
                // The end of the stream: the other program is done; the parent will command this
                // one.
                Ok(0) => {
                    std::thread::sleep(Duration::from_millis(1));
                    return Ok(None);
                }
                Ok(read) => self.filled += read,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                // As at the end of the stream.
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(None),
                Err(e) => return Err(format!("read: {e}")),
            }
        }
    }

    fn wait(&mut self, at_most: Duration) {
        sleep_until_ready(&self.socket, self.written < self.ready, at_most);
    }
}
