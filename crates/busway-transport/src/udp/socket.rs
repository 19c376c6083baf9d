//! Non-blocking UDP sockets that send and receive many datagrams by one system call.
//!
//! The sender hands datagrams of equal length to the kernel in one buffer, which the kernel
//! segments (UDP_SEGMENT, udp(7), Linux 4.18); the receiver gets them joined (UDP_GRO, Linux 5.0).
//! Without either, sendmmsg(2) and recvmmsg(2) still carry many datagrams a call. IP fragments
//! nothing: IP_MTU_DISCOVER is on (ip(7)), and the kernel refuses with EMSGSIZE what is too long
//! for the path.
#![allow(unsafe_code)] // sendmmsg(2), recvmmsg(2) and socket options that no crate we use has

use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::net::sockopt;

/// The most that a datagram carries over IPv4: 65,535 bytes less the headers of IP and UDP (RFC
/// 791, RFC 768).
pub(super) const MAX_DATAGRAM_BYTES: usize = 65_507;
/// Datagrams in one buffer at most (UDP_MAX_SEGMENTS of older kernels).
pub(super) const MAX_SEGMENTS: usize = 64;
/// Buffers that fill a call: with one a bare pair of sockets is 2 to 8 % slower than with two, with
/// eight no faster.
pub(super) const BUFFERS: usize = 2;
/// Datagrams sent by one call at most.
pub(super) const BATCH: usize = BUFFERS * MAX_SEGMENTS;
const SLOTS: usize = 8;
const SLOT_BYTES: usize = 64 * 1024;
/// Requested size of both socket buffers, in bytes.
const BUFFER_BYTES: usize = 4 << 20;
/// Room for a control message with one number, in words: 24 bytes on 64-bit systems.
const CONTROL_WORDS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Buffer {
    pub(super) bytes: usize,
    pub(super) datagrams: usize,
}

#[derive(Debug)]
pub(super) struct UdpSocket {
    socket: std::net::UdpSocket,
    is_void: AtomicBool,
    foreign_datagrams: Arc<AtomicU64>,
}

impl UdpSocket {
    /// A socket on a free port of this address, which counts datagrams of others in
    /// `foreign_datagrams`.
    pub(super) fn bind(address: IpAddr, foreign_datagrams: &Arc<AtomicU64>) -> io::Result<UdpSocket> {
        UdpSocket::new(std::net::UdpSocket::bind((address, 0))?, foreign_datagrams)
    }

    /// The same for a bound socket.
    pub(super) fn new(
        socket: std::net::UdpSocket,
        foreign_datagrams: &Arc<AtomicU64>,
    ) -> io::Result<UdpSocket> {
        socket.set_nonblocking(true)?;
        let (level, name, value) = if socket.local_addr()?.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
        } else {
            (
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_DO,
            )
        };
        set_option(&socket, level, name, value)?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
        }
        sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES)?;
        Ok(UdpSocket {
            socket,
            is_void: AtomicBool::new(false),
            foreign_datagrams: foreign_datagrams.clone(),
        })
    }

    pub(super) fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.socket.connect(to)
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.socket.send(bytes).map(drop)
    }

    /// Receives one datagram from anyone; `None` if there is none.
    pub(super) fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        match self.socket.recv_from(bytes) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_for_later(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Half of the kernel's buffer for this socket, in bytes: the other half is for its bookkeeping
    /// (socket(7), SO_RCVBUF).
    pub(super) fn buffer_bytes(&self) -> u64 {
        sockopt::socket_recv_buffer_size(&self.socket).map_or(0, |bytes| bytes as u64 / 2)
    }

    /// The longest datagram that the path is known to carry, in bytes.
    pub(super) fn path_bytes(&self) -> io::Result<usize> {
        let is_v4 = self.local_address()?.is_ipv4();
        let (level, name, heads_bytes) = if is_v4 {
            (libc::IPPROTO_IP, libc::IP_MTU, 28)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU, 48)
        };
        let mtu = option(&self.socket, level, name)?;
        Ok(usize::try_from(mtu).unwrap_or(0).saturating_sub(heads_bytes))
    }

    /// Sets the length at which the kernel segments buffers; 0: no segmentation. Returns whether
    /// the kernel can.
    pub(super) fn set_segment_bytes(&self, bytes: usize) -> bool {
        c_int::try_from(bytes)
            .is_ok_and(|bytes| set_option(&self.socket, libc::SOL_UDP, libc::UDP_SEGMENT, bytes).is_ok())
    }

    /// Lets the kernel join datagrams that arrive together, if it can.
    pub(super) fn join_segments(&self) {
        // Older kernels refuse; then each datagram is received alone.
        let _ = set_option(&self.socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    }

    /// Sends `buffers`, which lie one behind the other in `bytes`. Returns how many the kernel
    /// took; an error is about the first.
    pub(super) fn send_buffers(&self, bytes: &[u8], buffers: &[Buffer]) -> io::Result<usize> {
        assert!(buffers.len() <= BATCH);
        let mut slices = [const { MaybeUninit::<IoSlice>::uninit() }; BATCH];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        let mut rest = bytes;
        for ((message, slice), buffer) in messages.iter_mut().zip(&mut slices).zip(buffers) {
            let (bytes, after) = rest.split_at(buffer.bytes);
            rest = after;
            let slice = slice.write(IoSlice::new(bytes));
            // SAFETY: all zeros is a valid `mmsghdr`: numbers, and pointers that are null.
            let message = message.write(unsafe { std::mem::zeroed() });
            // An `IoSlice` is an `iovec` (std's documentation); the kernel only reads through it.
            message.msg_hdr.msg_iov = std::ptr::from_mut(slice).cast();
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `buffers.len()` messages are initialised. Each points to its own
        // initialised slice, which lives until the end of this function, of bytes that `bytes`
        // borrows. The kernel writes only the messages' `msg_len`.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr().cast(),
                buffers.len() as _,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    pub(super) fn foreign_datagrams(&self) -> &Arc<AtomicU64> {
        &self.foreign_datagrams
    }

    pub(super) fn count_foreign(&self) {
        // Relaxed: a counter by itself, read by the link.
        self.foreign_datagrams.fetch_add(1, Ordering::Relaxed);
    }

    /// The conversation ended: the ends read what has arrived and then fail.
    pub(super) fn set_void(&self) {
        // Release: pairs with the acquire in `is_void`; a thread that the shutdown wakes sees it.
        self.is_void.store(true, Ordering::Release);
        // Wakes lanes that sleep on the socket. It fails only if the socket is not connected, where
        // none does.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    pub(super) fn is_void(&self) -> bool {
        // Acquire: pairs with the release in `set_void`.
        self.is_void.load(Ordering::Acquire)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub(super) struct Arrivals {
    slots: Box<[u8]>,
    /// Bytes in each slot, and length of the datagrams in it.
    lengths: [(usize, usize); SLOTS],
    count: usize,
    /// Slot of the current datagram, and where it begins there.
    at: (usize, usize),
}

impl Arrivals {
    pub(super) fn new() -> Arrivals {
        Arrivals {
            slots: vec![0; SLOTS * SLOT_BYTES].into_boxed_slice(),
            lengths: [(0, 0); SLOTS],
            count: 0,
            at: (0, 0),
        }
    }

    /// Receives datagrams once all earlier ones are used; false if there are none.
    pub(super) fn fill(&mut self, socket: &UdpSocket) -> io::Result<bool> {
        debug_assert!(self.current().is_none());
        (self.count, self.at) = (0, (0, 0));
        let mut controls = [[0u64; CONTROL_WORDS]; SLOTS];
        let mut slices = [const { MaybeUninit::<libc::iovec>::zeroed() }; SLOTS];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::zeroed() }; SLOTS];
        for (((message, slice), slot), control) in messages
            .iter_mut()
            .zip(&mut slices)
            .zip(self.slots.chunks_exact_mut(SLOT_BYTES))
            .zip(&mut controls)
        {
            let slice = slice.write(libc::iovec {
                iov_base: slot.as_mut_ptr().cast(),
                iov_len: SLOT_BYTES,
            });
            // SAFETY: all zeros is a valid `mmsghdr`: numbers, and pointers that are null.
            let header = &mut unsafe { message.assume_init_mut() }.msg_hdr;
            header.msg_iov = slice;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(control) as _; // size_t or socklen_t, by libc
        }
        // SAFETY: every message points to its own slot and control buffer, both borrowed mutably
        // here, with their lengths.
        let taken = unsafe {
            libc::recvmmsg(
                socket.socket.as_raw_fd(),
                messages.as_mut_ptr().cast(),
                SLOTS as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(taken) = usize::try_from(taken) else {
            let error = io::Error::last_os_error();
            return if is_for_later(&error) {
                Ok(false)
            } else {
                Err(error)
            };
        };
        for (message, lengths) in messages.iter().zip(&mut self.lengths).take(taken) {
            // SAFETY: initialised above; the kernel has written the lengths of the first `taken`.
            let message = unsafe { message.assume_init_ref() };
            let bytes = message.msg_len as usize;
            *lengths = (bytes, segment_bytes(&message.msg_hdr).unwrap_or(bytes));
        }
        self.count = taken;
        self.skip_empty();
        Ok(taken > 0)
    }

    pub(super) fn current(&self) -> Option<&[u8]> {
        let (slot, begin) = self.at;
        let (bytes, datagram_bytes) = *self.lengths[..self.count].get(slot)?;
        let base = slot * SLOT_BYTES;
        Some(&self.slots[base + begin..base + (begin + datagram_bytes).min(bytes)])
    }

    pub(super) fn advance(&mut self) {
        self.at.1 += self.lengths[self.at.0].1;
        self.skip_empty();
    }

    fn skip_empty(&mut self) {
        while self.at.0 < self.count && self.at.1 >= self.lengths[self.at.0].0 {
            self.at = (self.at.0 + 1, 0);
        }
    }
}

/// Length of the datagrams joined into one message, from its control message.
fn segment_bytes(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the header points to a control buffer that lives in the caller; the kernel has
    // written it and its length.
    let control = unsafe { libc::CMSG_FIRSTHDR(header).as_ref() }?;
    if (control.cmsg_level, control.cmsg_type) != (libc::SOL_UDP, libc::UDP_GRO) {
        return None;
    }
    // SAFETY: a control message of this type carries an `int` (udp(7)).
    let bytes = unsafe { libc::CMSG_DATA(control).cast::<c_int>().read_unaligned() };
    usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

/// Whether to try again later: there is nothing now, or no room.
pub(super) fn is_for_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn set_option(socket: impl AsFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_bytes_option(socket, level, name, &value.to_ne_bytes())
}

pub(super) fn set_bytes_option(socket: impl AsFd, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `value.len()` bytes from the pointer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn option(socket: impl AsFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let (mut value, mut bytes): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes at most an `int` to the first pointer, and its length to the
    // second.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut bytes,
        )
    };
    if result == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
    }
}
