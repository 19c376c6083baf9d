//! `unix`: a Unix domain socket.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use super::path::{Description, OneWay, Opening, Reach, Stage, User};
use super::stream::{Socket, Stream};
use super::wait::Wait;
use crate::control::WorkerResult;
use crate::record::Measured;

pub(super) fn describe() -> [Description; 1] {
    [Description {
        name: "unix".into(),
        title: "a Unix domain socket (stream)".into(),
        waits: vec![Wait::Event, Wait::Spin],
        reach: Reach::Host,
        one_way: Some(OneWay::Lossless),
        max_bytes: usize::MAX,
        stage: Stage::Bare,
        missing: None,
    }]
}

pub(super) fn with(_: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    let file = SocketFile(
        opening
            .place
            .directory
            .join(format!("{}.sock", opening.place.name)),
    );
    let socket = if opening.answers() {
        let Some(socket) = accept(&file, opening)? else {
            return Ok(Measured::default());
        };
        socket
    } else {
        UnixStream::connect(&file.0).map_err(|e| format!("connect to {}: {e}", file.0.display()))?
    };
    // Both are connected, and the name has served.
    drop(file);
    user.exchange(Stream::new(socket, opening)?)
}

struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Whichever program comes second finds nothing.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn accept(file: &SocketFile, opening: &Opening<'_>) -> WorkerResult<Option<UnixStream>> {
    let path = &file.0;
    let listening = UnixListener::bind(path).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    // Most often the path is longer than the 107 bytes of unix(7).
    let listener = listening.map_err(|e| {
        format!(
            "listen on {}: {e}; the path of a socket has at most 107 bytes: give a shorter directory for temporary files",
            path.display()
        )
    })?;
    (opening.listening)(None);
    while !opening.control.ended() {
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(format!("accept on {}: {e}", path.display())),
        }
    }
    Ok(None)
}

impl Socket for UnixStream {
    fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
        self.set_nonblocking(nonblocking)
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> std::io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }
}
