//! The floor of the TCP bus: one connection, the same messages, every byte filled and checked, no iceoryx2, no gateway.
//!
//! One `write` a message, as a program without a gateway would do; the receiver reads as much as there is.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use super::control::Control;
use super::figures::{Figures, Tally, WarmUp};
use super::{Bare, Part, Report, Wait, WorkerResult, report};
use crate::pattern::{Header, PROBE, check, fill, now_ns};
use crate::record::Recorder;

/// What a receiver reads at once, at least.
const READ_BYTES: usize = 64 * 1024;

/// Runs one of the four parts.
pub(super) fn run(spec: &Bare<SocketAddr>, control: &Control) -> WorkerResult<Figures> {
    match spec.part {
        Part::Echo => echo(&mut Wire::accept(spec, control)?, control),
        Part::Receive => receive(&mut Wire::accept(spec, control)?, control),
        Part::Ping => ping(&mut Wire::connect(spec)?, spec, control),
        Part::Send => send(&mut Wire::connect(spec)?, spec, control),
    }
}

/// A connection and a buffer for whole messages.
struct Wire {
    stream: TcpStream,
    spin: bool,
    message: Vec<u64>,
    /// Holds at least one message; `[..filled]` bytes are valid.
    buffer: Vec<u64>,
    filled: usize,
}

impl Wire {
    fn accept(spec: &Bare<SocketAddr>, control: &Control) -> WorkerResult<Self> {
        let listener = TcpListener::bind(spec.place).map_err(|e| format!("listen on {}: {e}", spec.place))?;
        let address = listener
            .local_addr()
            .map_err(|e| format!("address of the listener: {e}"))?;
        listener
            .set_nonblocking(true)
            .map_err(|e| format!("non-blocking listener: {e}"))?;
        report(&Report::Ready(Some(address)));
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::new(stream, spec),
                Err(e) if e.kind() == ErrorKind::WouldBlock && !control.ended() => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(e) => return Err(format!("accept on {address}: {e}")),
            }
        }
    }

    fn connect(spec: &Bare<SocketAddr>) -> WorkerResult<Self> {
        let stream = TcpStream::connect(spec.place).map_err(|e| format!("connect to {}: {e}", spec.place))?;
        report(&Report::Ready(None));
        Self::new(stream, spec)
    }

    fn new(stream: TcpStream, spec: &Bare<SocketAddr>) -> WorkerResult<Self> {
        let spin = spec.wait == Wait::Spin;
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_nonblocking(spin))
            .map_err(|e| format!("socket options: {e}"))?;
        let words = spec.payload_bytes / 8;
        let buffer_words = words.max(READ_BYTES / 8).next_multiple_of(words);
        Ok(Self {
            stream,
            spin,
            message: vec![0; words],
            buffer: vec![0; buffer_words],
            filled: 0,
        })
    }

    fn send(&mut self, header: Header) -> WorkerResult<()> {
        fill(&mut self.message, header);
        let mut rest = self.message.as_bytes();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.spin => std::hint::spin_loop(),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("write: {e}")),
            }
        }
        Ok(())
    }

    /// Reads until at least one whole message is there, gives each to `take`; false at the end of the stream.
    fn receive(&mut self, mut take: impl FnMut(&[u64])) -> WorkerResult<bool> {
        let bytes = self.message.len() * 8;
        while self.filled < bytes {
            match self.stream.read(&mut self.buffer.as_mut_bytes()[self.filled..]) {
                Ok(0) => return Ok(false),
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.spin => std::hint::spin_loop(),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("read: {e}")),
            }
        }
        let whole = self.filled / bytes;
        for message in self.buffer.chunks_exact(self.message.len()).take(whole) {
            take(message);
        }
        self.buffer
            .as_mut_bytes()
            .copy_within(whole * bytes..self.filled, 0);
        self.filled -= whole * bytes;
        Ok(true)
    }
}

fn echo(wire: &mut Wire, control: &Control) -> WorkerResult<Figures> {
    let mut figures = Figures::default();
    while !control.ended() {
        let mut header = None;
        if !wire.receive(|message| header = check(message))? {
            break;
        }
        match header {
            Some(header) => wire.send(header)?,
            None => figures.corrupt += 1,
        }
        figures.received += 1;
    }
    Ok(figures)
}

fn ping(wire: &mut Wire, spec: &Bare<SocketAddr>, control: &Control) -> WorkerResult<Figures> {
    report(&Report::Arrived);
    let mut figures = Figures::default();
    if !control.wait_for_go() {
        return Ok(figures);
    }
    let mut trips = Recorder::default();
    let warm_up = WarmUp::new(spec.seconds);
    let deadline = Instant::now() + Duration::from_secs_f64(spec.seconds);
    for sequence in 0.. {
        if control.ended() || Instant::now() >= deadline {
            break;
        }
        let started_ns = now_ns();
        wire.send(Header { sequence, sent_ns: 0 })?;
        let mut answer = None;
        if !wire.receive(|message| answer = check(message))? {
            return Err("the other side closed the connection".into());
        }
        let ended_ns = now_ns();
        if warm_up.is_over(sequence, started_ns) {
            figures.sent += 1;
            figures.received += 1;
            figures.corrupt += u64::from(answer.is_none_or(|header| header.sequence != sequence));
            trips.record(ended_ns - started_ns);
        }
    }
    report(&Report::Times(trips.encode()));
    Ok(figures)
}

fn send(wire: &mut Wire, spec: &Bare<SocketAddr>, control: &Control) -> WorkerResult<Figures> {
    wire.send(Header {
        sequence: PROBE,
        sent_ns: 0,
    })?;
    let mut figures = Figures::default();
    if !control.wait_for_go() {
        return Ok(figures);
    }
    figures.first_ns = now_ns();
    let deadline = Instant::now() + Duration::from_secs_f64(spec.seconds);
    while figures.sent & 15 != 0 || Instant::now() < deadline {
        if control.ended() {
            break;
        }
        wire.send(Header {
            sequence: figures.sent,
            sent_ns: 0,
        })?;
        figures.sent += 1;
    }
    figures.last_ns = now_ns();
    wire.stream
        .shutdown(std::net::Shutdown::Write)
        .map_err(|e| format!("end of stream: {e}"))?;
    report(&Report::Sent(figures));
    while !control.ended() {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(figures)
}

fn receive(wire: &mut Wire, control: &Control) -> WorkerResult<Figures> {
    let mut tally = Tally::new(false);
    let mut arrived = false;
    while !control.ended() {
        let before = tally.received();
        let more = wire.receive(|message| arrived |= tally.count(check(message)))?;
        if std::mem::take(&mut arrived) {
            report(&Report::Arrived);
        }
        tally.note_pause(before);
        if !more {
            break;
        }
    }
    Ok(tally.figures())
}
