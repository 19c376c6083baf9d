//! A complete bus: connections over Unix-domain sockets, for containers of one machine that share a
//! folder. `docs/adding-a-bus.md` explains it.
//!
//! Contract: the first host of a link accepts connections on a path, the second one connects to it.
//! [`stream`] does the rest: the conversation, channels, credits, restarts.

use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use busway_transport::contract::{
    Bus, Link, LinkIdentity, LinkSettings, Message, OpenError, Role, SettingError, Site, Tables, duration,
    validate_heartbeat,
};
use busway_transport::stream::{self, Heartbeat, StreamBus};
use serde::Deserialize;
use socket2::{Domain, SockAddr, Socket, Type};

/// The bus, with this host's table of one link.
pub struct Unix(Table);

/// One host's table in the system file: `unix.vision = { path = "/run/busway/vision" }`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Table {
    /// The socket's path, as this host sees it. Both hosts give it, since containers may mount the
    /// shared folder in different places.
    pub path: Option<String>,
    /// Time between this host's heartbeats; default 200 ms, at least 1 ms.
    #[serde(deserialize_with = "duration")]
    pub heartbeat: Duration,
    /// Silence of the peer after which the link goes down; default 1500 ms, at least two heartbeats
    /// of the peer.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            path: None,
            heartbeat: Duration::from_millis(200),
            timeout: Duration::from_millis(1500),
        }
    }
}

/// The tables of both hosts, as one of them sees them.
#[derive(Clone, Debug)]
pub struct Settings(Tables<Table>);

impl Settings {
    fn role(&self) -> Result<Role<String>, SettingError> {
        let missing = |local| SettingError {
            local,
            key: "path",
            problem: "the socket's path is not given".into(),
            mend: "give `path = \"/run/busway/NAME\"`, in a folder that both hosts see".into(),
        };
        let path = self.0.local.path.clone().ok_or_else(|| missing(true))?;
        self.0.peer.path.as_ref().ok_or_else(|| missing(false))?;
        // struct sockaddr_un has 108 bytes for the path and its end (unix(7)).
        SockAddr::unix(&path).map_err(|error| SettingError {
            local: true,
            key: "path",
            problem: format!("{path} is no path of a socket ({error})"),
            mend: "give a shorter path".into(),
        })?;
        Ok(match self.0.local_is_first {
            true => Role::Accept(path),
            false => Role::Connect(path),
        })
    }
}

impl LinkSettings for Settings {
    fn validate(&self) -> Result<(), SettingError> {
        self.role()?;
        let times = |table: &Table| (table.heartbeat, table.timeout);
        validate_heartbeat(times(&self.0.local), times(&self.0.peer))
    }

    fn details(&self) -> String {
        match self.role() {
            Ok(Role::Accept(path)) => format!("listens on {path}"),
            Ok(Role::Connect(path)) => format!("connects to {path}"),
            Err(error) => error.to_string(),
        }
    }
}

impl Bus for Unix {
    const NAME: &'static str = "unix";

    type HostSettings = Table;
    type LinkSettings = Settings;
    type Shared = stream::Shared<Unix>;

    fn join(local: Table, peer: Table, local_is_first: bool) -> Settings {
        Settings(Tables::new(local, peer, local_is_first))
    }

    fn link_lines(site: &Site<'_>) -> String {
        format!("unix = {{ path = \"{}.socket\" }}\n", site.window.0.display())
    }

    fn open<M: Message>(
        shared: &Self::Shared,
        identity: &LinkIdentity,
        settings: &Settings,
        peer_host: &str,
    ) -> Result<Box<dyn Link<M>>, OpenError> {
        let role = settings.role().map_err(io::Error::other)?;
        let bus = Unix(settings.0.local.clone());
        Ok(Box::new(stream::open(shared, identity, peer_host, role, bus)?))
    }
}

fn socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)
}

impl StreamBus for Unix {
    const NAME: &'static str = <Unix as Bus>::NAME;
    type Address = String;
    type Socket = Connection;
    type Listener = Socket;
    type Origin = &'static str;

    fn connect(to: &String) -> io::Result<Connection> {
        let socket = socket()?;
        socket.connect(&SockAddr::unix(to)?)?;
        Ok(Connection(socket))
    }

    fn listen(path: &String) -> io::Result<Socket> {
        let address = SockAddr::unix(path)?;
        let listener = socket()?;
        if let Err(error) = listener.bind(&address) {
            // A listener that was killed leaves its socket, to which nobody can connect.
            let is_socket = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
            if !is_socket || socket()?.connect(&address).is_ok() {
                return Err(error);
            }
            fs::remove_file(path)?;
            listener.bind(&address)?;
        }
        listener.listen(128)?;
        Ok(listener)
    }

    fn accept(listener: &Socket) -> io::Result<(Connection, &'static str)> {
        let (socket, _) = listener.accept()?;
        socket.set_nonblocking(true)?;
        Ok((Connection(socket), "a process of this machine"))
    }

    fn heartbeat(&self) -> Option<Heartbeat> {
        Some(Heartbeat {
            every: self.0.heartbeat,
            timeout: self.0.timeout,
        })
    }

    fn silence_timeout(&self) -> Duration {
        self.0.timeout
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection(Socket);

impl stream::Socket for Connection {
    // A Unix-domain socket is connected at once, or not at all.
    fn connected(&self) -> Option<io::Result<()>> {
        Some(Ok(()))
    }

    fn finish(&self) {
        // Fails only where the connection has ended already.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    fn end(&self) {
        // As above.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
