//! `udp-batch`: bare UDP as [`super::udp`], with many messages in a call of the system one way, as
//! Busway's channels have them: sendmmsg(2) and recvmmsg(2). A message is one datagram.
#![allow(unsafe_code)] // recvmmsg(2), which rustix does not have

use std::array::from_fn;
use std::io::IoSlice;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use super::message::{Message, Received};
use super::path::{Description, OneWay, Opening, Path, User};
use super::ready::{Room, sleep_until_ready};
use super::stream::Calls;
use super::udp;
use crate::control::WorkerResult;
use crate::record::Measured;

/// Most messages of a call.
const MESSAGES: usize = 64;

pub(super) fn describe() -> [Description; 1] {
    [Description {
        one_way: Some(OneWay::Lossy),
        max_bytes: udp::DATAGRAM_BYTES,
        ..Description::new("udp-batch", "bare UDP; one way, up to 64 KiB of messages a call")
    }]
}

pub(super) fn with(_: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    let Some(socket) = udp::connected(opening)? else {
        return Ok(Measured::default());
    };
    let payload_bytes = opening.payload_bytes;
    let messages = Calls::ManyMessages.messages(opening).min(MESSAGES);
    user.exchange(UdpBatch {
        socket,
        payload_bytes,
        outgoing: vec![0; messages * payload_bytes],
        ready: 0,
        sent: 0,
        incoming: vec![0; messages * payload_bytes],
        came: [0; MESSAGES],
        taken: (0, 0),
        touched: opening.touched,
        room: Room::for_sender(opening),
    })
}

struct UdpBatch {
    socket: UdpSocket,
    payload_bytes: usize,
    /// Room for the messages of a call.
    outgoing: Vec<u8>,
    /// Messages in `outgoing`, and those of them that have left.
    ready: usize,
    sent: usize,
    incoming: Vec<u8>,
    /// Bytes of each datagram in `incoming`.
    came: [usize; MESSAGES],
    /// The next datagram in `incoming`, and how many there are.
    taken: (usize, usize),
    touched: bool,
    room: Room,
}

impl UdpBatch {
    fn push(&mut self) -> WorkerResult<bool> {
        let bytes = self.payload_bytes;
        while self.sent < self.ready {
            let waiting = &self.outgoing[self.sent * bytes..self.ready * bytes];
            let mut each = waiting.chunks_exact(bytes);
            let slices: [IoSlice<'_>; MESSAGES] = from_fn(|_| IoSlice::new(each.next().unwrap_or_default()));
            let mut controls: [SendAncillaryBuffer<'_, '_, '_>; MESSAGES] = from_fn(|_| Default::default());
            let mut parts = slices.chunks(1).zip(&mut controls);
            let mut messages: [MMsgHdr<'_>; MESSAGES] = from_fn(|_| {
                let (slice, control) = parts.next().expect("as many");
                MMsgHdr::new(slice, control)
            });
            let messages = &mut messages[..self.ready - self.sent];
            match sendmmsg(&self.socket, messages, SendFlags::empty()) {
                Ok(sent) => self.sent += sent,
                // The first is lost, as in `udp`.
                Err(Errno::CONNREFUSED | Errno::NOBUFS) => self.sent += 1,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => return Err(format!("send: {e}")),
            }
        }
        (self.ready, self.sent) = (0, 0);
        Ok(true)
    }

    fn push_all(&mut self) -> WorkerResult<bool> {
        while !self.push()? {
            if let Err(sent) = self.room.awaited() {
                return Ok(sent);
            }
        }
        Ok(true)
    }

    /// Receives datagrams once all earlier ones are taken.
    fn fill(&mut self) -> std::io::Result<()> {
        let mut slots = self.incoming.chunks_exact_mut(self.payload_bytes);
        let count = slots.len();
        let mut slices: [libc::iovec; MESSAGES] = from_fn(|_| {
            let slot = slots.next().unwrap_or_default();
            libc::iovec {
                iov_base: slot.as_mut_ptr().cast(),
                iov_len: slot.len(),
            }
        });
        let mut messages: [libc::mmsghdr; MESSAGES] = from_fn(|index| {
            // SAFETY: all zeros is a valid `mmsghdr`: numbers, and pointers that are null.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = &raw mut slices[index];
            message.msg_hdr.msg_iovlen = 1;
            message
        });
        // SAFETY: the first `count` messages point to a slice each, which lives until the end of
        // this function, of a slot of its own of `incoming`, which is borrowed mutably here.
        let came = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count as _,
                libc::MSG_WAITFORONE as _,
                std::ptr::null_mut(),
            )
        };
        let came = usize::try_from(came).map_err(|_| std::io::Error::last_os_error())?;
        for (bytes, message) in self.came.iter_mut().zip(&messages[..came]) {
            *bytes = message.msg_len as usize;
        }
        self.taken = (0, came);
        Ok(())
    }
}

impl Path for UdpBatch {
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        let is_full = (self.ready + 1) * self.payload_bytes > self.outgoing.len();
        if (self.sent > 0 || is_full) && !self.push()? {
            return Ok(false);
        }
        let begin = self.ready * self.payload_bytes;
        message.fill(
            &mut self.outgoing[begin..begin + self.payload_bytes],
            self.touched,
        );
        self.ready += 1;
        if (self.ready + 1) * self.payload_bytes <= self.outgoing.len() {
            return Ok(true);
        }
        self.push_all()
    }

    fn flush(&mut self) -> WorkerResult<()> {
        self.push_all().map(drop)
    }

    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        if self.room.timed {
            self.push()?;
        }
        loop {
            let (at, came) = self.taken;
            if at < came {
                self.taken.0 += 1;
                let begin = at * self.payload_bytes;
                let message = &self.incoming[begin..begin + self.payload_bytes];
                if self.came[at] == message.len() {
                    return Ok(Message::read(message, self.touched));
                }
                continue;
            }
            match self.fill() {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // Nothing has come, or nobody listened for an earlier datagram.
                Err(e)
                    if matches!(
                        e.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::ConnectionRefused
                    ) =>
                {
                    return Ok(None);
                }
                Err(e) => return Err(format!("receive: {e}")),
            }
        }
    }

    fn wait(&mut self, at_most: Duration) {
        sleep_until_ready(&self.socket, self.sent < self.ready, at_most);
    }
}
