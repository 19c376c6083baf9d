//! `sampling-sockets`: a sampling port over a TCP connection, the rival of the published RDMA
//! sampling port (Lee, Kim, Kim and Jin, "RDMA-based Sampling Port of ARINC-653", section IV).
//!
//! A write never waits: a message that finds no room in the socket is sent later, unless a newer
//! one overwrites it first. At the receiver a thread sleeps in the socket and keeps the newest
//! message, which a read copies. No gateway and no memory that both hosts share.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::message::{Message, Received};
use super::path::{Description, OneWay, Opening, Path, User};
use super::tcp;
use super::wait::Wait;
use crate::control::WorkerResult;
use crate::record::Measured;

pub(super) fn describe() -> [Description; 1] {
    [Description {
        waits: vec![Wait::Spin, Wait::Adaptive],
        one_way: Some(OneWay::Sampling),
        max_bytes: 16 << 20,
        helpers: 1,
        ..Description::new(
            "sampling-sockets",
            "a sampling port over TCP sockets: the newest message, without gateways",
        )
    }]
}

pub(super) fn with(_: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    match tcp::connected(opening)? {
        Some(socket) => user.exchange(SamplingSockets::new(socket, opening)?),
        None => Ok(Measured::default()),
    }
}

/// The newest message that has come.
struct Newest {
    /// Messages so far. Written by the thread that receives, under the lock.
    count: AtomicU64,
    bytes: Mutex<Vec<u8>>,
}

/// What has found no room in the socket.
#[derive(Default)]
struct Waiting {
    /// Whether the thread that sends has a message under way, or is about to.
    is_busy: bool,
    /// A message of which bytes may have left, and how many; nothing overwrites it.
    rest: Option<usize>,
    under_way: Vec<u8>,
    /// The newest behind it.
    has_next: bool,
    next: Vec<u8>,
    failed: Option<String>,
    is_over: bool,
}

#[derive(Default)]
struct Outgoing {
    waiting: Mutex<Waiting>,
    has_work: Condvar,
}

impl Outgoing {
    /// A thread that panicked has shown it; the state is whole after every step.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct SamplingSockets {
    socket: TcpStream,
    newest: Arc<Newest>,
    outgoing: Arc<Outgoing>,
    threads: Vec<JoinHandle<()>>,
    buffer: Vec<u8>,
    /// Of the message that was read last.
    seen: u64,
    touched: bool,
}

impl SamplingSockets {
    fn new(socket: TcpStream, opening: &Opening<'_>) -> WorkerResult<Self> {
        let context = |e: std::io::Error| format!("socket options: {e}");
        socket.set_nonblocking(false).map_err(context)?;
        let buffer = vec![0; opening.payload_bytes];
        let newest = Arc::new(Newest {
            count: 0.into(),
            bytes: Mutex::new(buffer.clone()),
        });
        let outgoing = Arc::new(Outgoing::default());
        outgoing.lock().next.clone_from(&buffer);
        outgoing.lock().under_way.clone_from(&buffer);
        let (to, from) = (
            socket.try_clone().map_err(context)?,
            socket.try_clone().map_err(context)?,
        );
        let (mut sent, mut received) = (buffer.clone(), buffer.clone());
        let (behind, kept) = (Arc::clone(&outgoing), Arc::clone(&newest));
        let threads = vec![
            std::thread::spawn(move || send_late(to, &behind, &mut sent)),
            std::thread::spawn(move || keep_newest(from, &kept, &mut received)),
        ];
        Ok(Self {
            socket,
            newest,
            outgoing,
            threads,
            buffer,
            seen: 0,
            touched: opening.touched,
        })
    }
}

/// Receives until the connection ends.
fn keep_newest(mut socket: TcpStream, newest: &Newest, buffer: &mut Vec<u8>) {
    while socket.read_exact(buffer).is_ok() {
        let mut kept = newest.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *kept, buffer);
        // Release: partner of the acquire in `receive`; the message is in its place.
        newest.count.fetch_add(1, Ordering::Release);
    }
}

/// Sends what found no room: the rest of a message, then the newest of those written meanwhile.
fn send_late(mut socket: TcpStream, outgoing: &Outgoing, buffer: &mut Vec<u8>) {
    let mut waiting = outgoing.lock();
    loop {
        while waiting.rest.is_none() && !waiting.has_next && !waiting.is_over {
            waiting.is_busy = false;
            waiting = outgoing
                .has_work
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.is_over {
            return;
        }
        let rest = waiting.rest.take();
        if rest.is_some() {
            std::mem::swap(&mut waiting.under_way, buffer);
        } else {
            std::mem::swap(&mut waiting.next, buffer);
            waiting.has_next = false;
        }
        drop(waiting);
        let result = socket.write_all(&buffer[rest.unwrap_or(0)..]);
        waiting = outgoing.lock();
        if let Err(e) = result {
            waiting.failed = Some(format!("write: {e}"));
            return;
        }
    }
}

impl Path for SamplingSockets {
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        message.fill(&mut self.buffer, self.touched);
        let mut waiting = self.outgoing.lock();
        if let Some(why) = &waiting.failed {
            return Err(why.clone());
        }
        if waiting.is_busy {
            std::mem::swap(&mut waiting.next, &mut self.buffer);
            waiting.has_next = true;
            return Ok(true);
        }
        let written = match rustix::net::send(&self.socket, &self.buffer, SendFlags::DONTWAIT) {
            Ok(written) => written,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(e) => return Err(format!("write: {e}")),
        };
        if written < self.buffer.len() {
            std::mem::swap(&mut waiting.under_way, &mut self.buffer);
            (waiting.is_busy, waiting.rest) = (true, Some(written));
            self.outgoing.has_work.notify_one();
        }
        Ok(true)
    }

    #[inline]
    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        // Acquire: partner of the release in `keep_newest`.
        if self.newest.count.load(Ordering::Acquire) == self.seen {
            return Ok(None);
        }
        let kept = self.newest.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: the lock orders it.
        self.seen = self.newest.count.load(Ordering::Relaxed);
        self.buffer.copy_from_slice(&kept);
        drop(kept);
        Ok(Message::read(&self.buffer, self.touched))
    }
}

impl Drop for SamplingSockets {
    fn drop(&mut self) {
        self.outgoing.lock().is_over = true;
        self.outgoing.has_work.notify_one();
        // It ends the calls in which the threads sleep. A connection that is gone has ended them.
        let _ = self.socket.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            // A panic has been shown.
            let _ = thread.join();
        }
    }
}
