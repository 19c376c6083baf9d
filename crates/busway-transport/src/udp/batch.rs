//! A batch of datagrams, handed over by one call from where the messages lie.
//!
//! What the system does not take is told, so that it can be cut anew. Called by [`super::near`] for one receiver and by [`super::company`]
//! for several; nothing here allocates, locks or waits.

use std::io::{self, IoSlice};

use super::outgoing::Outgoing;
use super::socket::{MAX_DATAGRAM_BYTES, MAX_GROUPS, MAX_SEGMENTS, UdpSocket, is_for_later};
use crate::message::Message;

/// Datagrams handed over by one call at most.
pub(super) const BATCH: usize = MAX_SEGMENTS;
/// Pieces of memory handed over by one call at most: a head and a few pieces of messages for each.
const SLICES: usize = 256;

/// A datagram: its head, and the bytes of the stream behind it.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) head: &'a [u8],
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// How long datagrams of one way are, and how many of them are handed over as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub(super) datagram_bytes: usize,
    group: usize,
    /// Whether the path takes groups, as far as is known.
    takes_groups: bool,
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

impl Lengths {
    pub(super) fn new() -> Lengths {
        Lengths {
            datagram_bytes: 0,
            group: 1,
            takes_groups: true,
        }
    }

    /// Datagrams are so long from now on, but for the last of a group.
    pub(super) fn set(&mut self, bytes: usize, socket: &UdpSocket) {
        self.datagram_bytes = bytes;
        let group = datagrams_of_group(bytes);
        self.group = if group > 1 && self.takes_groups && socket.set_segment_bytes(bytes) {
            group
        } else {
            // While a length is set the kernel refuses single datagrams, too (EIO, `udp_send_skb` in net/ipv4/udp.c).
            socket.set_segment_bytes(0);
            1
        };
    }

    /// Datagrams of one batch: whole groups, where there are any.
    pub(super) fn batch(&self) -> usize {
        BATCH / self.group * self.group
    }
}

/// How many datagrams of this length the kernel takes as one.
pub(super) fn datagrams_of_group(datagram_bytes: usize) -> usize {
    (MAX_DATAGRAM_BYTES / datagram_bytes).min(MAX_SEGMENTS)
}

/// Gives datagrams to the system; returns how many it need not be given again.
pub(super) fn hand_over<'a, M: Message>(
    socket: &UdpSocket,
    lengths: &mut Lengths,
    outgoing: &'a Outgoing<M>,
    pieces: impl Iterator<Item = Piece<'a>>,
) -> (usize, HandedOver) {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let mut used = 0;
    let mut batch = Groups::new(lengths.group, lengths.datagram_bytes);
    for piece in pieces {
        let before = used;
        let mut push = |part| {
            let is_room = used < SLICES;
            if is_room {
                slices[used] = IoSlice::new(part);
                used += 1;
            }
            is_room
        };
        if !(push(piece.head) && outgoing.gather(piece.offset, piece.bytes, &mut push)) {
            break;
        }
        batch.push(used - before, piece.head.len() + piece.bytes as usize);
    }
    match socket.send_groups(&slices[..used], batch.slices()) {
        Ok(groups) if groups < batch.slices().len() => (batch.datagrams(groups), HandedOver::Some),
        Ok(groups) => (batch.datagrams(groups), HandedOver::All),
        Err(error) if is_for_later(&error) => (0, HandedOver::Some),
        // What the system drops for reasons of its own has left.
        Err(error) if is_dropped(&error) => (batch.datagrams(1), HandedOver::All),
        Err(error) if lengths.takes_groups && is_no_group(&error) => {
            lengths.takes_groups = false;
            lengths.set(lengths.datagram_bytes, socket);
            (0, HandedOver::NoGroups)
        }
        Err(error) => (0, HandedOver::Refused(error)),
    }
}

/// Groups of datagrams: all of a group are equally long, but the last may be shorter.
struct Groups {
    most: usize,
    datagram_bytes: usize,
    /// Slices and datagrams of each group.
    slices: [usize; MAX_GROUPS],
    datagrams: [usize; MAX_GROUPS],
    count: usize,
    is_open: bool,
}

impl Groups {
    fn new(most: usize, datagram_bytes: usize) -> Groups {
        Groups {
            most,
            datagram_bytes,
            slices: [0; MAX_GROUPS],
            datagrams: [0; MAX_GROUPS],
            count: 0,
            is_open: false,
        }
    }

    fn push(&mut self, slices: usize, bytes: usize) {
        if !self.is_open {
            self.count += 1;
        }
        let last = self.count - 1;
        self.slices[last] += slices;
        self.datagrams[last] += 1;
        self.is_open = bytes == self.datagram_bytes && self.datagrams[last] < self.most;
    }

    fn slices(&self) -> &[usize] {
        &self.slices[..self.count]
    }

    /// Datagrams in the first groups.
    fn datagrams(&self, groups: usize) -> usize {
        self.datagrams[..groups].iter().sum()
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
