//! What a leader asks of a follower, and what it answers: one line of JSON each.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::sockopt;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::environment::Environment;
use crate::hosts::Host;
use crate::window::Access;
use crate::worker::Role;

/// Where a follower listens by default.
pub const PORT: u16 = 7410;

/// Both sides must be of one version: what they measure depends on it.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Longest line of a request or reply in bytes.
pub(super) const LINE_BYTES: u64 = 1 << 20;

/// How long either side waits for a line.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// What the leader asks for; the first line of a connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    Begin {
        /// The leader's [`VERSION`].
        version: String,
    },
    /// Writes a file into the run's directory.
    Write {
        run: u64,
        /// Letters, digits, `-`, `.`.
        name: String,
        text: String,
    },
    Worker {
        run: u64,
        role: Box<Role>,
    },
    Gateway {
        run: u64,
        system: PathBuf,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reply {
    Begun {
        run: u64,
        host: Host,
        environment: Box<Environment>,
        access: Access,
    },
    Done {
        path: Option<PathBuf>,
    },
    Busy,
    Refused {
        reason: String,
    },
}

/// Lets the system detect a silent end of the other machine, after about half a minute (tcp(7),
/// TCP_KEEPIDLE), so that a run ends.
pub(super) fn notice_silence(connection: &TcpStream) -> std::io::Result<()> {
    sockopt::set_socket_keepalive(connection, true)?;
    sockopt::set_tcp_keepidle(connection, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(connection, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(connection, 4)?;
    Ok(())
}

pub(super) fn send_line(connection: &mut TcpStream, what: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    connection.write_all(&line)
}

/// Takes one line of JSON, byte by byte, so that what follows it stays in the socket.
pub(super) fn receive_line<T: DeserializeOwned>(connection: &TcpStream) -> std::io::Result<T> {
    let mut line = Vec::new();
    // A capacity of one byte reads no further than the line's end.
    BufReader::with_capacity(1, connection.take(LINE_BYTES)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}
