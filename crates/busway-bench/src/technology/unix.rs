//! `unix`: a Unix domain socket.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use super::path::{Description, Opening, Reach, User};
use super::ready::accepted;
use super::stream::{Calls, Socket, Stream, socket};
use crate::control::WorkerResult;
use crate::record::Measured;

pub(super) fn describe() -> [Description; 1] {
    [Description {
        reach: Reach::Host,
        ..Description::new("unix", "a Unix domain socket (stream)")
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
    user.exchange(Stream::new(socket, opening, Calls::OneMessage)?)
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
    accepted(opening, path.display(), || listener.accept())
}

socket!(UnixStream);
