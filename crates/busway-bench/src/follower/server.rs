//! The follower's side: one thread a connection. When it is stopped, connections are shut
//! down, by which what they started ends and is cleared away.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::protocol::{PORT, Reply, Request, TIMEOUT, VERSION, notice_silence, receive_line, send_line};
use crate::BenchError;
use crate::environment::Environment;
use crate::hosts::{Host, Hosts};
use crate::processes::{Process, spawn_worker, start_gateway};
use crate::technology;
use crate::window::{Access, SharedWindow};
use crate::worker::{Exchange, ExchangePart, Role};

const NAME: &str = "follower";
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Options of `busway bench follower`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from(([0, 0, 0, 0], PORT)))]
    pub listen: SocketAddr,
    /// Memory that both machines share.
    #[command(flatten)]
    pub access: Access,
}

/// Serves until `stop` is set. `program` is the `busway` binary; `listening` gets the address once
/// the follower can be reached.
///
/// # Errors
///
/// The address cannot be listened on.
pub fn serve(
    args: &Args,
    program: &Path,
    stop: &AtomicBool,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), BenchError> {
    let bound = TcpListener::bind(args.listen).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    let (listener, address) = bound.map_err(BenchError::io(format!(
        "listen on {} for a leader (another address: --listen)",
        args.listen
    )))?;
    listening(address);
    let server = Server {
        program: program.to_owned(),
        access: args.access.clone(),
        run: Mutex::new(None),
        runs: AtomicU64::new(0),
        open: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let mut number = 0;
        // Relaxed: the flag orders nothing else.
        while !stop.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((connection, peer)) => {
                    number += 1;
                    if let Ok(other) = connection.try_clone() {
                        server.open().insert(number, other);
                    }
                    let server = &server;
                    scope.spawn(move || {
                        server.answer(connection, peer);
                        server.open().remove(&number);
                    });
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::thread::sleep(LOOK_INTERVAL),
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    std::thread::sleep(LOOK_INTERVAL);
                }
            }
        }
        server.shut_down();
    });
    Ok(())
}

struct Server {
    program: PathBuf,
    access: Access,
    run: Mutex<Option<(u64, Arc<Hosts>)>>,
    runs: AtomicU64,
    open: Mutex<HashMap<u64, TcpStream>>,
}

impl Server {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the run; the threads that serve its connections notice.
    fn shut_down(&self) {
        for connection in self.open().values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn answer(&self, mut connection: TcpStream, peer: SocketAddr) {
        let asked = connection
            .set_nonblocking(false)
            .and_then(|()| connection.set_nodelay(true))
            .and_then(|()| notice_silence(&connection))
            .and_then(|()| connection.set_read_timeout(Some(TIMEOUT)))
            .and_then(|()| receive_line::<Request>(&connection))
            .and_then(|request| {
                connection.set_read_timeout(None)?;
                Ok(request)
            });
        let result = match asked {
            Ok(Request::Begin { version }) => self.begin(&mut connection, &version, peer),
            Ok(Request::Write { run, name, text }) => self
                .hosts(run)
                .and_then(|hosts| write(&hosts, &name, &text))
                .map(|path| Reply::Done { path: Some(path) })
                .and_then(|reply| send_line(&mut connection, &reply).map_err(|e| e.to_string())),
            Ok(Request::Worker { run, role }) => self
                .hosts(run)
                .and_then(|hosts| self.worker(&mut connection, &hosts, &role)),
            Ok(Request::Gateway { run, system }) => self
                .hosts(run)
                .and_then(|hosts| self.gateway(&mut connection, &hosts, &system)),
            Err(error) => Err(format!("that is no request of a leader of this version: {error}")),
        };
        if let Err(reason) = result {
            tracing::warn!(%peer, reason, "refused");
            let _ = send_line(&mut connection, &Reply::Refused { reason });
        }
        let _ = connection.shutdown(Shutdown::Both);
    }

    fn begin(&self, connection: &mut TcpStream, version: &str, peer: SocketAddr) -> Result<(), String> {
        if version != VERSION {
            return Err(format!("this is busway {VERSION}, the leader is {version}"));
        }
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1; // Relaxed: the number must differ, nothing else.
        let hosts = {
            let mut current = self.run.lock().unwrap_or_else(PoisonError::into_inner);
            if current.is_some() {
                return send_line(connection, &Reply::Busy).map_err(|e| e.to_string());
            }
            let hosts = Arc::new(Hosts::domains(&[NAME]).map_err(|e| e.to_string())?);
            *current = Some((run, Arc::clone(&hosts)));
            hosts
        };
        tracing::info!(%peer, "a run begins");
        let begun = Reply::Begun {
            run,
            host: hosts.hosts[0].clone(),
            environment: Box::new(Environment::record(hosts.isolation.describe())),
            access: self.access.clone(),
        };
        let _ = send_line(connection, &begun);
        wait_for_end(connection);
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = None;
        tracing::info!(%peer, "the run has ended");
        Ok(())
    }

    fn hosts(&self, run: u64) -> Result<Arc<Hosts>, String> {
        let current = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some((current, hosts)) if *current == run => Ok(Arc::clone(hosts)),
            _ => Err(format!("run {run} is not under way")),
        }
    }

    fn worker(&self, connection: &mut TcpStream, hosts: &Hosts, role: &Role) -> Result<(), String> {
        let host = &hosts.hosts[0];
        admit(role, host, self.access.window.as_ref())?;
        let (mut process, mut stdin, mut stdout) =
            spawn_worker(&self.program, host, role).map_err(|e| e.to_string())?;
        let mut replies = connection.try_clone().map_err(|e| e.to_string())?;
        let _ = send_line(connection, &Reply::Done { path: None });
        let commands = connection.try_clone().map_err(|e| e.to_string())?;
        let talk = std::thread::spawn(move || {
            // Line by line: a copy would keep back what is too short for its buffer.
            for line in BufReader::new(commands).lines().map_while(Result::ok) {
                if writeln!(stdin, "{line}").is_err() {
                    return;
                }
            }
            // Standard input closes here, and the worker ends by itself.
        });
        let _ = std::io::copy(&mut stdout, &mut replies);
        process.end();
        let _ = connection.shutdown(Shutdown::Both);
        let _ = talk.join();
        Ok(())
    }

    /// A gateway on a leash: each line is answered by its CPU time, and it ends with the
    /// connection.
    fn gateway(&self, connection: &mut TcpStream, hosts: &Hosts, system: &Path) -> Result<(), String> {
        let host = &hosts.hosts[0];
        if system.parent() != Some(&host.directory) {
            return Err(format!("{} is no file of this run", system.display()));
        }
        let mut gateway: Process = start_gateway(&self.program, host, system).map_err(|e| e.to_string())?;
        let _ = send_line(connection, &Reply::Done { path: None });
        let questions = connection.try_clone().map_err(|e| e.to_string())?;
        for _ in BufReader::new(questions).lines().map_while(Result::ok) {
            if gateway.check().is_err() || writeln!(connection, "{}", gateway.cpu_s()).is_err() {
                break;
            }
        }
        Ok(())
    }
}

fn wait_for_end(connection: &mut TcpStream) {
    let mut rest = [0; 64];
    while connection.read(&mut rest).is_ok_and(|read| read > 0) {}
}

fn write(hosts: &Hosts, name: &str, text: &str) -> Result<PathBuf, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(format!("{name:?} is no name for a file of a run"));
    }
    let path = hosts.hosts[0].directory.join(name);
    std::fs::write(&path, text).map_err(|e| format!("write {}: {e}", path.display()))?;
    Ok(path)
}

/// Shortest frame of a computing task in ns: one in which it still sleeps.
const MIN_FRAME_NS: u64 = 10_000;

const MAX_SERVICES: usize = 100;

/// Refuses what no leader asks for.
fn admit(role: &Role, host: &Host, window: Option<&SharedWindow>) -> Result<(), String> {
    let frame_ns = match role {
        Role::Exchange(spec) => {
            admit_program(spec, &host.directory, window)?;
            match spec.part {
                ExchangePart::ReceiveInFrames(frame_ns) => frame_ns,
                _ => return Ok(()),
            }
        }
        Role::Services(spec) if spec.count <= MAX_SERVICES && spec.config == host.iceoryx2_config => {
            return Ok(());
        }
        Role::Compute(spec) => spec.frame_ns,
        _ => return Err(format!("a follower does not start a {}", role.word())),
    };
    if frame_ns < MIN_FRAME_NS {
        return Err(format!("frames of {frame_ns} ns"));
    }
    Ok(())
}

fn admit_program(spec: &Exchange, directory: &Path, window: Option<&SharedWindow>) -> Result<(), String> {
    let (place, payload_bytes) = (&spec.place, spec.payload_bytes);
    let technology = technology::of(&spec.technology)
        .ok_or_else(|| format!("unknown technology {:?}", spec.technology))?;
    if place.window.as_ref() != window {
        return Err("a worker of another window than this follower's".into());
    }
    if !technology.reaches_another_machine(window.is_some()) {
        return Err(format!(
            "{} does not reach another machine; give both sides a window that they share (--window)",
            technology.name
        ));
    }
    let system = place.system.as_deref();
    if place.directory != directory || system.is_some_and(|file| file.parent() != Some(directory)) {
        return Err("a worker of another directory than this run's".into());
    }
    if payload_bytes > technology.max_bytes.min(crate::sizes::MAX_SIZE_BYTES) {
        return Err(format!("messages of {payload_bytes} bytes"));
    }
    Ok(())
}
