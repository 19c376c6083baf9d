//! `udp`: bare UDP.
//!
//! A message is one datagram as long as it fits into one. A longer one goes in numbered pieces, a
//! system call each, and is whole only if all its pieces come in order: a piece that is missing, or
//! overtaken, loses the message. Nothing holds the sender back but its own socket buffer, so a
//! receiver that is slower loses what its socket buffer has no room for.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg};

use super::message::{Message, Received};
use super::path::{Description, LOOK_TIMEOUT, OneWay, Opening, Path, User};
use super::ready::{Room, sleep_until_ready};
use crate::control::{Control, WorkerResult};
use crate::record::Measured;

/// The most that a datagram over IPv4 carries: 65,535 bytes less the headers of IP and UDP (RFC
/// 791, RFC 768), rounded down to words.
pub(super) const DATAGRAM_BYTES: usize = 65_504;
/// In front of each piece: which message, which piece, in native byte order.
const HEAD_BYTES: usize = 8;
const PIECE_BYTES: usize = DATAGRAM_BYTES - HEAD_BYTES;
/// Requested size of either buffer of a socket: room for a long message each way with the kernel's
/// bookkeeping.
const SOCKET_BUFFER_BYTES: usize = 16 << 20;

pub(super) fn describe() -> [Description; 1] {
    [Description {
        one_way: Some(OneWay::Lossy),
        max_bytes: SOCKET_BUFFER_BYTES / 2,
        ..Description::new(
            "udp",
            format!("bare UDP, in pieces of {PIECE_BYTES} bytes from {DATAGRAM_BYTES} bytes on"),
        )
    }]
}

pub(super) fn with(_: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    match connected(opening)? {
        Some(socket) => user.exchange(Udp::new(socket, opening)),
        None => Ok(Measured::default()),
    }
}

/// Joins both programs, with room for many messages. The answering one binds and says where; it
/// learns from the first datagram whom it talks to. `None` if it shall end before.
pub(super) fn connected(opening: &Opening<'_>) -> WorkerResult<Option<UdpSocket>> {
    let address = opening.place.address;
    let socket = if opening.answers() {
        let bound = UdpSocket::bind(address).and_then(|socket| Ok((socket.local_addr()?, socket)));
        let (address, socket) = bound.map_err(|e| format!("bind {address}: {e}"))?;
        enlarge_buffers(&socket);
        (opening.listening)(Some(address));
        if !meet(&socket, opening.control)? {
            return Ok(None);
        }
        socket
    } else {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)
            .and_then(|socket| {
                socket.connect(address)?;
                Ok(socket)
            })
            .map_err(|e| format!("connect to {address}: {e}"))?;
        enlarge_buffers(&socket);
        socket
    };
    let blocks = opening.blocks();
    let timeout = blocks.then_some(LOOK_TIMEOUT);
    socket
        .set_nonblocking(!blocks)
        .and_then(|()| socket.set_read_timeout(timeout))
        .and_then(|()| socket.set_write_timeout(timeout))
        .map_err(|e| format!("socket options: {e}"))?;
    Ok(Some(socket))
}

/// As far as the system grants it: beyond the limits of the system only with CAP_NET_ADMIN
/// (socket(7)).
fn enlarge_buffers(socket: &UdpSocket) {
    if sockopt::set_socket_recv_buffer_size_force(socket, SOCKET_BUFFER_BYTES).is_err() {
        // Refused above net.core.rmem_max only in part: the most that is allowed is set.
        let _ = sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER_BYTES);
    }
    let _ = sockopt::set_socket_send_buffer_size(socket, SOCKET_BUFFER_BYTES);
}

/// Waits for the first datagram, and stays with its sender. It is left where it is. False if the
/// program shall end before.
fn meet(socket: &UdpSocket, control: &Control) -> WorkerResult<bool> {
    let context = |e: std::io::Error| format!("wait for the first datagram: {e}");
    socket.set_read_timeout(Some(LOOK_TIMEOUT)).map_err(context)?;
    while !control.ended() {
        match socket.peek_from(&mut [0; HEAD_BYTES]) {
            Ok((_, peer)) => {
                socket.connect(peer).map_err(context)?;
                return Ok(true);
            }
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(context(e)),
        }
    }
    Ok(false)
}

struct Udp {
    socket: UdpSocket,
    pieces: Pieces,
    outgoing: Vec<u8>,
    /// Number of the message that leaves, and its next piece; as many as there are when all have
    /// left.
    leaving: (u32, usize),
    incoming: Vec<u8>,
    /// Number of the message that comes, and its next piece.
    coming: (u32, usize),
    touched: bool,
    room: Room,
}

#[derive(Clone, Copy)]
struct Pieces {
    message_bytes: usize,
    count: usize,
}

impl Pieces {
    fn of(message_bytes: usize) -> Self {
        let count = if message_bytes <= DATAGRAM_BYTES {
            1
        } else {
            message_bytes.div_ceil(PIECE_BYTES)
        };
        Self { message_bytes, count }
    }

    fn range(self, piece: usize) -> std::ops::Range<usize> {
        if self.count == 1 {
            return 0..self.message_bytes;
        }
        let begin = piece * PIECE_BYTES;
        begin..self.message_bytes.min(begin + PIECE_BYTES)
    }
}

fn head(number: u32, piece: usize) -> [u8; HEAD_BYTES] {
    (u64::from(number) << 32 | piece as u64).to_ne_bytes()
}

fn of_head(head: [u8; HEAD_BYTES]) -> (u32, usize) {
    let word = u64::from_ne_bytes(head);
    ((word >> 32) as u32, word as u32 as usize)
}

impl Udp {
    fn new(socket: UdpSocket, opening: &Opening<'_>) -> Self {
        let pieces = Pieces::of(opening.payload_bytes);
        Self {
            socket,
            pieces,
            outgoing: vec![0; opening.payload_bytes],
            leaving: (0, pieces.count),
            incoming: vec![0; opening.payload_bytes],
            coming: (0, 0),
            touched: opening.touched,
            room: Room::for_sender(opening),
        }
    }

    fn push(&mut self) -> WorkerResult<bool> {
        while self.leaving.1 < self.pieces.count {
            let (number, piece) = self.leaving;
            let bytes = &self.outgoing[self.pieces.range(piece)];
            let sent = if self.pieces.count == 1 {
                rustix::net::send(&self.socket, bytes, SendFlags::empty())
            } else {
                let head = head(number, piece);
                let parts = [IoSlice::new(&head), IoSlice::new(bytes)];
                sendmsg(
                    &self.socket,
                    &parts,
                    &mut SendAncillaryBuffer::default(),
                    SendFlags::empty(),
                )
            };
            match sent {
                // A refusal concerns an earlier datagram, which no socket received: it is lost, as
                // this one may be.
                Ok(_) | Err(Errno::CONNREFUSED | Errno::NOBUFS) => self.leaving.1 += 1,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => return Err(format!("send: {e}")),
            }
        }
        Ok(true)
    }

    fn take(&mut self) -> Result<bool, Errno> {
        if self.pieces.count == 1 {
            let (bytes, _) =
                rustix::net::recv(&self.socket, self.incoming.as_mut_slice(), RecvFlags::empty())?;
            return Ok(bytes == self.incoming.len());
        }
        let mut found = [0; HEAD_BYTES];
        // Most often it is the piece that is due, and lands in its place.
        let landing = self.pieces.range(self.coming.1);
        let mut parts = [
            IoSliceMut::new(&mut found),
            IoSliceMut::new(&mut self.incoming[landing.clone()]),
        ];
        let came = recvmsg(
            &self.socket,
            &mut parts,
            &mut RecvAncillaryBuffer::default(),
            RecvFlags::empty(),
        )?;
        let (number, piece) = of_head(found);
        if piece == 0 && self.coming.1 != 0 {
            // The message before has lost its rest, and this one with it where what was due is the
            // shorter last piece: that cut it.
            self.incoming.copy_within(landing, 0);
        } else if (number, piece) != self.coming && piece != 0 {
            // The rest of a message that has lost a piece.
            self.coming.1 = 0;
            return Ok(false);
        }
        let is_piece = piece < self.pieces.count && came.bytes == HEAD_BYTES + self.pieces.range(piece).len();
        let is_last = is_piece && piece + 1 == self.pieces.count;
        self.coming = if is_last || !is_piece {
            (number, 0)
        } else {
            (number, piece + 1)
        };
        Ok(is_last)
    }
}

impl Path for Udp {
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        if !self.push()? {
            return Ok(false);
        }
        message.fill(&mut self.outgoing, self.touched);
        self.leaving = (self.leaving.0.wrapping_add(1), 0);
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
            match self.take() {
                Ok(true) => return Ok(Message::read(&self.incoming, self.touched)),
                Ok(false) | Err(Errno::INTR) => {}
                // Nobody listened for an earlier datagram.
                Err(Errno::AGAIN | Errno::CONNREFUSED) => return Ok(None),
                Err(e) => return Err(format!("receive: {e}")),
            }
        }
    }

    fn wait(&mut self, at_most: Duration) {
        sleep_until_ready(&self.socket, self.leaving.1 < self.pieces.count, at_most);
    }
}
