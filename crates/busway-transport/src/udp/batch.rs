//! Collects datagrams that one system call sends.
//!
//! The bytes are copied into the batch, and again by the kernel. A list of two pieces of memory for
//! each datagram is not faster, and 8 % slower where sender and receiver share no cache
//! (docs/decisions/012). Nothing here allocates after [`Batch::new`], locks or waits.

use std::io;

use arrayvec::ArrayVec;

use super::socket::{BATCH, BUFFERS, Buffer, MAX_DATAGRAM_BYTES, MAX_SEGMENTS, UdpSocket, is_for_later};

pub(super) struct Batch {
    datagram_bytes: usize,
    /// Datagrams in a full buffer; 1 without offload.
    buffer: usize,
    /// False once the kernel has refused a buffer of several datagrams.
    has_offload: bool,
    bytes: Box<[u8]>,
    used: usize,
    /// All datagrams of a buffer have the same length; the last may be shorter.
    buffers: ArrayVec<Buffer, BATCH>,
    /// The last buffer can take another datagram.
    is_open: bool,
}

pub(super) enum HandedOver {
    All,
    Some,
    /// The device or path refuses offload. From now on each datagram is a buffer.
    NoOffload,
    /// The kernel reported an error about the first datagram not sent, or an earlier one.
    Refused(io::Error),
}

impl Batch {
    /// An empty batch; [set](Self::set_datagram_bytes) the length before the first datagram.
    pub(super) fn new() -> Batch {
        Batch {
            datagram_bytes: 0,
            buffer: 1,
            has_offload: true,
            bytes: vec![0; BUFFERS * MAX_DATAGRAM_BYTES].into_boxed_slice(),
            used: 0,
            buffers: ArrayVec::new(),
            is_open: false,
        }
    }

    /// Length of a datagram, header included; the last of a buffer may be shorter.
    pub(super) fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }

    pub(super) fn set_datagram_bytes(&mut self, bytes: usize, socket: &UdpSocket) {
        self.datagram_bytes = bytes;
        let buffer = self.whole_buffer();
        self.buffer = if buffer > 1 && self.has_offload && socket.set_segment_bytes(bytes) {
            buffer
        } else {
            // With a segment length set, the kernel refuses single datagrams (EIO, `udp_send_skb`
            // in net/ipv4/udp.c).
            socket.set_segment_bytes(0);
            1
        };
    }

    pub(super) fn whole_buffer(&self) -> usize {
        (MAX_DATAGRAM_BYTES / self.datagram_bytes).min(MAX_SEGMENTS)
    }

    /// Datagrams that one call sends at most: whole buffers, if offload works.
    pub(super) fn most(&self) -> usize {
        (self.bytes.len() / self.datagram_bytes).min(BATCH) / self.buffer * self.buffer
    }

    /// Adds a datagram, which the caller writes; at most [`most`](Self::most) of them, none longer
    /// than was set.
    #[inline]
    pub(super) fn add(&mut self, bytes: usize) -> &mut [u8] {
        if !self.is_open {
            self.buffers.push(Buffer::default());
        }
        let datagram = &mut self.bytes[self.used..self.used + bytes];
        self.used += bytes;
        if let Some(buffer) = self.buffers.last_mut() {
            buffer.bytes += bytes;
            buffer.datagrams += 1;
            self.is_open = bytes == self.datagram_bytes && buffer.datagrams < self.buffer;
        }
        datagram
    }

    /// Hands everything to the kernel and empties the batch. Returns how many datagrams must not be
    /// sent again.
    pub(super) fn hand_over(&mut self, socket: &UdpSocket) -> (usize, HandedOver) {
        let buffers = std::mem::take(&mut self.buffers);
        let result = socket.send_buffers(&self.bytes[..self.used], &buffers);
        (self.used, self.is_open) = (0, false);
        let datagrams = |first: usize| buffers[..first].iter().map(|buffer| buffer.datagrams).sum();
        match result {
            Ok(sent) if sent < buffers.len() => (datagrams(sent), HandedOver::Some),
            Ok(sent) => (datagrams(sent), HandedOver::All),
            Err(error) if is_for_later(&error) => (0, HandedOver::Some),
            // A datagram that the kernel dropped counts as sent.
            Err(error) if is_dropped(&error) => (datagrams(1), HandedOver::All),
            Err(error) if self.is_too_long(&error, socket) => (0, HandedOver::Refused(too_long())),
            Err(error) if self.has_offload && lacks_offload(&error) => {
                self.has_offload = false;
                self.set_datagram_bytes(self.datagram_bytes, socket);
                (0, HandedOver::NoOffload)
            }
            Err(error) => (0, HandedOver::Refused(error)),
        }
    }

    /// Whether an error means that the datagrams are too long for the path. Older kernels answer
    /// EINVAL, even to a short datagram while the segment length is larger (`udp_send_skb` in
    /// net/ipv4/udp.c).
    pub(super) fn is_too_long(&self, error: &io::Error, socket: &UdpSocket) -> bool {
        let is_shorter = || socket.path_bytes().is_ok_and(|bytes| bytes < self.datagram_bytes);
        match error.raw_os_error() {
            Some(libc::EMSGSIZE) => true,
            Some(libc::EINVAL) => is_shorter(),
            _ => false,
        }
    }
}

/// EMSGSIZE: the datagram is longer than the path carries.
fn too_long() -> io::Error {
    io::Error::from_raw_os_error(libc::EMSGSIZE)
}

/// Whether the kernel dropped the datagram, as any path may; the next one may pass.
pub(super) fn is_dropped(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOBUFS | libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EPERM)
    )
}

/// Whether the device or path refuses offload (udp(7)), for example for lack of checksum offload.
fn lacks_offload(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use super::*;
    use crate::udp::socket::set_bytes_option;

    fn pair() -> [UdpSocket; 2] {
        let [near, far] =
            [1, 2].map(|_| UdpSocket::bind(IpAddr::from([127, 0, 0, 1]), &Arc::default()).expect("loopback"));
        near.connect(far.local_address().expect("bound"))
            .expect("loopback");
        [near, far]
    }

    /// Adds datagrams of these lengths; the bytes of each are its number.
    fn add(batch: &mut Batch, lengths: &[usize]) {
        for (number, bytes) in (1..).zip(lengths) {
            batch.add(*bytes).fill(number);
        }
    }

    fn arrived(far: &UdpSocket) -> Vec<(usize, u8)> {
        let mut bytes = [0; 2000];
        let mut next = || {
            far.receive(&mut bytes)
                .expect("loopback")
                .map(|(count, _)| (count, bytes[0]))
        };
        std::iter::from_fn(&mut next).collect()
    }

    #[test]
    fn batch_arrives_as_datagrams_in_order_with_their_lengths() {
        let [near, far] = pair();
        let mut batch = Batch::new();
        batch.set_datagram_bytes(1000, &near);
        // A shorter datagram ends a buffer.
        let lengths = [1000, 1000, 300, 1000, 20, 40, 1000];
        add(&mut batch, &lengths);
        let (left, result) = batch.hand_over(&near);
        assert!(matches!(result, HandedOver::All));
        assert_eq!(left, lengths.len());
        let expected: Vec<_> = lengths.into_iter().zip(1..).collect();
        assert_eq!(arrived(&far), expected);
    }

    #[test]
    fn path_without_offload_gets_single_datagrams() {
        let [near, far] = pair();
        // The kernel offers no offload without checksums (`udp_send_skb` in net/ipv4/udp.c).
        set_bytes_option(&near, libc::SOL_SOCKET, libc::SO_NO_CHECK, &1i32.to_ne_bytes()).expect("an option");
        let mut batch = Batch::new();
        batch.set_datagram_bytes(1000, &near);
        add(&mut batch, &[1000, 1000, 300]);
        let (left, result) = batch.hand_over(&near);
        assert!(matches!(result, HandedOver::NoOffload) && left == 0);
        assert_eq!(arrived(&far), []);
        add(&mut batch, &[1000, 1000, 300]);
        let (left, result) = batch.hand_over(&near);
        assert!(matches!(result, HandedOver::All) && left == 3);
        assert_eq!(arrived(&far), [(1000, 1), (1000, 2), (300, 3)]);
    }

    #[test]
    fn batch_holds_most_datagrams_of_any_length() {
        let [near, _far] = pair();
        for bytes in [41, 512, 1023, 1024, 1472, 8972, MAX_DATAGRAM_BYTES] {
            let mut batch = Batch::new();
            batch.set_datagram_bytes(bytes, &near);
            let most = batch.most();
            assert!(most >= BUFFERS, "{most} of {bytes} bytes");
            add(&mut batch, &vec![bytes; most]);
            let (left, _) = batch.hand_over(&near);
            assert!(left <= most);
        }
    }
}
