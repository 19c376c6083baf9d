//! Messages one behind the other on a connected byte stream, polled, blocking, or waited for. Used
//! by the technologies of stream sockets.

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

pub(super) struct Stream<S> {
    socket: S,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that have left; all of them when nothing is under way.
    written: usize,
    incoming: Vec<u8>,
    /// Bytes of the message under way that have come.
    filled: usize,
    touched: bool,
    room: Room,
}

impl<S: Socket> Stream<S> {
    pub(super) fn new(socket: S, opening: &Opening<'_>) -> WorkerResult<Self> {
        let blocks = opening.blocks();
        socket
            .set_nonblocking(!blocks)
            .and_then(|()| socket.set_timeout(blocks.then_some(LOOK_TIMEOUT)))
            .map_err(|e| format!("socket options: {e}"))?;
        Ok(Self {
            socket,
            outgoing: vec![0; opening.payload_bytes],
            written: opening.payload_bytes,
            incoming: vec![0; opening.payload_bytes],
            filled: 0,
            touched: opening.touched,
            room: Room::for_sender(opening),
        })
    }

    fn push(&mut self) -> WorkerResult<bool> {
        while self.written < self.outgoing.len() {
            match self.socket.write(&self.outgoing[self.written..]) {
                Ok(written) => self.written += written,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(false);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("write: {e}")),
            }
        }
        Ok(true)
    }
}

impl<S: Socket> Path for Stream<S> {
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        if !self.push()? {
            return Ok(false);
        }
        message.fill(&mut self.outgoing, self.touched);
        self.written = 0;
        while !self.push()? {
            if let Err(sent) = self.room.awaited() {
                return Ok(sent);
            }
        }
        Ok(true)
    }

    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        if self.room.timed {
            self.push()?;
        }
        loop {
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
            if self.filled == self.incoming.len() {
                self.filled = 0;
                return Ok(Message::read(&self.incoming, self.touched));
            }
        }
    }

    fn wait(&mut self, at_most: Duration) {
        sleep_until_ready(&self.socket, self.written < self.outgoing.len(), at_most);
    }
}
