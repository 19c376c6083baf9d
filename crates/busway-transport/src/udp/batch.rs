//! Datagrams that leave by one call, put together one behind the other.
//!
//! The bytes are copied here from where the messages lie, and once more by the kernel. That is no slower than a list of two pieces of memory for
//! each datagram, which the kernel would copy piece by piece, and 8 % faster where sender and receiver share no cache (docs/decisions/012). What
//! the system does not take is told, so that it can be cut anew. Filled by [`super::near`] for one receiver and by [`super::circle`] for several;
//! nothing here allocates after [`Batch::new`], locks or waits.

use std::io;

use arrayvec::ArrayVec;

use super::socket::{Group, MAX_DATAGRAM_BYTES, MAX_SEGMENTS, UdpSocket, is_for_later};

/// Datagrams that leave by one call at most.
pub(super) const BATCH: usize = GROUPS * MAX_SEGMENTS;
/// Whole groups that are worth a call: with one a bare pair of sockets is 2 to 8 % slower than with two, with eight no faster.
pub(super) const GROUPS: usize = 2;

/// See the module.
pub(super) struct Batch {
    datagram_bytes: usize,
    /// How many of them are handed over as one.
    group: usize,
    /// Whether the way takes groups, as far as is known.
    takes_groups: bool,
    place: Box<[u8]>,
    used: usize,
    /// All datagrams of a group are equally long, but the last may be shorter.
    groups: ArrayVec<Group, BATCH>,
    /// The last group may have another datagram.
    is_open: bool,
}

/// What became of a batch.
pub(super) enum HandedOver {
    All,
    /// The socket has no more room.
    Some,
    /// The way takes no groups; it has been told, and single ones will do.
    NoGroups,
    /// The system has said something about the first that did not leave, or an earlier one.
    Refused(io::Error),
}

impl Batch {
    /// For datagrams of a length that is [set](Self::set_datagram_bytes) before any is added.
    pub(super) fn new() -> Batch {
        Batch {
            datagram_bytes: 0,
            group: 1,
            takes_groups: true,
            place: vec![0; GROUPS * MAX_DATAGRAM_BYTES].into_boxed_slice(),
            used: 0,
            groups: ArrayVec::new(),
            is_open: false,
        }
    }

    /// Length of the datagrams of this way, head included, but for the last of a group.
    pub(super) fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }

    /// Datagrams are so long from now on.
    pub(super) fn set_datagram_bytes(&mut self, bytes: usize, socket: &UdpSocket) {
        self.datagram_bytes = bytes;
        let group = self.whole_group();
        self.group = if group > 1 && self.takes_groups && socket.set_segment_bytes(bytes) {
            group
        } else {
            // While a length is set the kernel refuses single datagrams, too (EIO, `udp_send_skb` in net/ipv4/udp.c).
            socket.set_segment_bytes(0);
            1
        };
    }

    /// How many of these datagrams the kernel takes as one, where the way takes groups.
    pub(super) fn whole_group(&self) -> usize {
        (MAX_DATAGRAM_BYTES / self.datagram_bytes).min(MAX_SEGMENTS)
    }

    /// Datagrams that leave by one call at most: whole groups, where there are any.
    pub(super) fn most(&self) -> usize {
        (self.place.len() / self.datagram_bytes).min(BATCH) / self.group * self.group
    }

    /// Adds a datagram of so many bytes, which the caller writes; at most [as many](Self::most) as leave by one call, and none longer than was set.
    #[inline]
    pub(super) fn add(&mut self, bytes: usize) -> &mut [u8] {
        if !self.is_open {
            self.groups.push(Group::default());
        }
        let place = &mut self.place[self.used..self.used + bytes];
        self.used += bytes;
        if let Some(group) = self.groups.last_mut() {
            group.bytes += bytes;
            group.datagrams += 1;
            self.is_open = bytes == self.datagram_bytes && group.datagrams < self.group;
        }
        place
    }

    /// Gives all to the system, and begins anew; returns how many need not be given again.
    pub(super) fn hand_over(&mut self, socket: &UdpSocket) -> (usize, HandedOver) {
        let groups = std::mem::take(&mut self.groups);
        let result = socket.send_groups(&self.place[..self.used], &groups);
        (self.used, self.is_open) = (0, false);
        let datagrams = |first: usize| groups[..first].iter().map(|group| group.datagrams).sum();
        match result {
            Ok(sent) if sent < groups.len() => (datagrams(sent), HandedOver::Some),
            Ok(sent) => (datagrams(sent), HandedOver::All),
            Err(error) if is_for_later(&error) => (0, HandedOver::Some),
            // What the system drops for reasons of its own has left.
            Err(error) if is_dropped(&error) => (datagrams(1), HandedOver::All),
            Err(error) if self.takes_groups && is_no_group(&error) => {
                self.takes_groups = false;
                self.set_datagram_bytes(self.datagram_bytes, socket);
                (0, HandedOver::NoGroups)
            }
            Err(error) => (0, HandedOver::Refused(error)),
        }
    }
}

/// The datagram is lost, as on any path; the next one may not be.
pub(super) fn is_dropped(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOBUFS | libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EPERM)
    )
}

/// The device or the path takes no groups (udp(7)): a device without checksum offload, for instance.
fn is_no_group(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}
