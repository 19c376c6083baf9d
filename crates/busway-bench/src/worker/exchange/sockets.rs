//! What ports are compared with over a network: a bare TCP connection, polled or blocking.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::Path;
use crate::worker::control::Control;
use crate::worker::{Report, WorkerResult, report};

/// A blocking look ends after this long, so that the program notices that it shall end.
const LOOK_TIMEOUT: Duration = Duration::from_millis(100);

/// One connection; messages follow each other on it.
pub(super) struct Stream {
    stream: TcpStream,
    is_polling: bool,
    /// Bytes of the message under way that have come.
    filled: usize,
}

impl Stream {
    /// The answering program listens and says where; the other one connects. `None` if it shall end before anybody has connected.
    pub(super) fn open(
        address: SocketAddr,
        answers: bool,
        is_polling: bool,
        control: &Control,
    ) -> WorkerResult<Option<Self>> {
        let stream = if answers {
            let Some(stream) = accept(address, control)? else {
                return Ok(None);
            };
            stream
        } else {
            TcpStream::connect(address).map_err(|e| format!("connect to {address}: {e}"))?
        };
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_nonblocking(is_polling))
            .and_then(|()| stream.set_read_timeout((!is_polling).then_some(LOOK_TIMEOUT)))
            .map_err(|e| format!("socket options: {e}"))?;
        Ok(Some(Self {
            stream,
            is_polling,
            filled: 0,
        }))
    }
}

fn accept(address: SocketAddr, control: &Control) -> WorkerResult<Option<TcpStream>> {
    let listening = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    let (listener, address) = listening.map_err(|e| format!("listen on {address}: {e}"))?;
    report(&Report::Ready(Some(address)));
    while !control.ended() {
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(format!("accept on {address}: {e}")),
        }
    }
    Ok(None)
}

impl Path for Stream {
    fn write(&mut self, message: &[u8]) -> WorkerResult<()> {
        let mut rest = message;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.is_polling => std::hint::spin_loop(),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("write: {e}")),
            }
        }
        Ok(())
    }

    fn look(&mut self, message: &mut [u8]) -> WorkerResult<bool> {
        match self.stream.read(&mut message[self.filled..]) {
            // The end of the stream: the other program is done, and the parent will tell this one.
            Ok(0) => {
                std::thread::sleep(Duration::from_millis(1));
                Ok(false)
            }
            Ok(read) => {
                self.filled += read;
                let is_whole = self.filled == message.len();
                if is_whole {
                    self.filled = 0;
                }
                Ok(is_whole)
            }
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(false)
            }
            // As at the end of the stream.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(false),
            Err(e) => Err(format!("read: {e}")),
        }
    }
}
