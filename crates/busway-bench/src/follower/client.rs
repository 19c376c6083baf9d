//! The leader's side.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::protocol::{PORT, Reply, Request, TIMEOUT, VERSION, notice_silence, receive_line, send_line};
use crate::BenchError;
use crate::environment::Environment;
use crate::hosts::Host;
use crate::processes::Worker;
use crate::window::Access;
use crate::worker::Role;

/// A follower that has begun a run for us; the run ends when this is dropped.
#[derive(Debug)]
pub struct Follower {
    address: SocketAddr,
    run: u64,
    host: Host,
    pub(crate) access: Access,
    pub environment: Environment,
    /// Our own address as the follower reaches it.
    local: IpAddr,
    lifeline: TcpStream,
}

impl Follower {
    /// Begins a run at the machine `name` (host name or address, with or without a port).
    ///
    /// # Errors
    ///
    /// Nobody is there, it is of another version, or it serves another run.
    pub fn begin(name: &str) -> Result<Self, BenchError> {
        let address = resolve(name)?;
        let mut connection = connect(address, name)?;
        let local = connection
            .local_addr()
            .map_err(BenchError::io("own address"))?
            .ip();
        let request = Request::Begin {
            version: VERSION.to_owned(),
        };
        let refused = |problem: String, mend: &str| BenchError::Option {
            option: "--follower",
            value: name.to_owned(),
            problem,
            mend: mend.to_owned(),
        };
        match ask(&mut connection, &request, name)? {
            Reply::Begun {
                run,
                host,
                environment,
                access,
            } => Ok(Self {
                address,
                run,
                host,
                access,
                environment: *environment,
                local,
                lifeline: connection,
            }),
            Reply::Busy => Err(refused(
                "serves another run".into(),
                "try again when that has ended",
            )),
            Reply::Refused { reason } => Err(refused(
                format!("refused: {reason}"),
                "use the same version of busway on both machines",
            )),
            Reply::Done { .. } => Err(refused(
                "gave an answer that makes no sense".into(),
                "is it `busway bench follower` that listens there?",
            )),
        }
    }

    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.lifeline, &mut [0; 1], flags) {
            Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Ok(_) | Err(_) => Err(BenchError::FollowerGone(self.address)),
        }
    }

    /// Where its programs run; the paths are those of the other machine.
    pub fn host(&self) -> &Host {
        &self.host
    }

    pub fn address(&self) -> IpAddr {
        self.address.ip()
    }

    pub fn local_address(&self) -> IpAddr {
        self.local
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        let request = Request::Write {
            run: self.run,
            name: name.to_owned(),
            text: text.to_owned(),
        };
        let (_, path) = self.request(&request)?;
        Ok(path.unwrap_or_else(|| self.host.directory.join(name)))
    }

    pub(crate) fn worker(&self, role: &Role) -> Result<Worker, BenchError> {
        let request = Request::Worker {
            run: self.run,
            role: Box::new(role.clone()),
        };
        let (connection, _) = self.request(&request)?;
        Worker::over(connection, format!("{} at {}", role.word(), self.address))
    }

    pub(crate) fn gateway(&self, system: &Path) -> Result<RemoteGateway, BenchError> {
        let request = Request::Gateway {
            run: self.run,
            system: system.to_owned(),
        };
        let (connection, _) = self.request(&request)?;
        Ok(RemoteGateway {
            answers: BufReader::new(connection),
            name: format!("gateway at {}", self.address),
            ended: false,
        })
    }

    fn request(&self, request: &Request) -> Result<(TcpStream, Option<PathBuf>), BenchError> {
        let name = self.address.to_string();
        let mut connection = connect(self.address, &name)?;
        let reason = match ask(&mut connection, request, &name)? {
            Reply::Done { path } => {
                connection
                    .set_read_timeout(None)
                    .map_err(BenchError::io(format!("talk to the follower {name}")))?;
                return Ok((connection, path));
            }
            Reply::Refused { reason } => reason,
            Reply::Busy | Reply::Begun { .. } => "it has ended this run".to_owned(),
        };
        Err(BenchError::Ended {
            program: format!("follower {name}"),
            reason,
            stderr: String::new(),
        })
    }
}

/// A gateway at a follower; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct RemoteGateway {
    answers: BufReader<TcpStream>,
    name: String,
    ended: bool,
}

impl RemoteGateway {
    pub(crate) fn cpu_s(&mut self) -> f64 {
        let mut line = String::new();
        let asked = self.answers.get_mut().write_all(b"cpu\n");
        let read = asked.and_then(|()| self.answers.read_line(&mut line));
        self.ended = !read.is_ok_and(|length| length > 0);
        line.trim().parse().unwrap_or(0.0)
    }

    pub(crate) fn check(&mut self) -> Result<(), BenchError> {
        if self.ended {
            return Err(BenchError::Ended {
                program: self.name.clone(),
                reason: "its connection closed".into(),
                stderr: String::new(),
            });
        }
        Ok(())
    }
}

fn resolve(host: &str) -> Result<SocketAddr, BenchError> {
    let found = host
        .to_socket_addrs()
        .or_else(|_| (host.trim_matches(['[', ']']), PORT).to_socket_addrs());
    found
        .ok()
        .and_then(|mut all| all.next())
        .ok_or_else(|| BenchError::Option {
            option: "--follower",
            value: host.to_owned(),
            problem: "names no machine".into(),
            mend: format!("write a host name or an address, with :PORT unless it is {PORT}"),
        })
}

fn connect(address: SocketAddr, name: &str) -> Result<TcpStream, BenchError> {
    let connection = TcpStream::connect_timeout(&address, TIMEOUT).and_then(|connection| {
        connection.set_nodelay(true)?;
        notice_silence(&connection)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        Ok(connection)
    });
    connection.map_err(BenchError::io(format!(
        "connect to the follower {name} ({address}); is `busway bench follower` running there?"
    )))
}

fn ask(connection: &mut TcpStream, request: &Request, name: &str) -> Result<Reply, BenchError> {
    send_line(connection, request)
        .and_then(|()| receive_line(connection))
        .map_err(BenchError::io(format!("talk to the follower {name}")))
}
