//! Long payload at the sending end: which messages are announced, what the receiver's answer makes
//! of them, and which of them the device still reads.
//!
//! Contract: payload that is long enough, in memory that can be registered, is not cut into pieces
//! but announced; where the receiver grants its landing, one WRITE goes from the message into it.
//! One message at a time: a sink has one landing. The message is held until the piece behind its
//! WRITE has completed, since work completes in order. Called by [`super::stream`] on a lane;
//! nothing here allocates after [`Announcing::new`] or waits.

use std::collections::VecDeque;
use std::sync::Arc;

use super::layout::Layout;
use super::wire::{Grant, START_BYTES};
use crate::contract::Message;
use crate::rdma::device::Device;
use crate::rdma::error::PostError;
use crate::rdma::queue_pair::{Piece, QueuePair, Request, Work};
use crate::rdma::registration::{Purpose, Registration};
use crate::rdma::remembered::Remembered;

/// The most bytes of one WRITE (2^31, InfiniBand Architecture 1.4, 9.3); longer payload takes
/// several.
const WRITE_MAX_BYTES: usize = 1 << 30;

/// How a message goes.
pub(super) enum Way {
    /// In pieces.
    Pieces,
    /// By one WRITE from where it is; to be announced first.
    Announce(Arc<Registration>),
    /// It was announced; the receiver has not answered.
    Announced(Arc<Registration>),
    /// It may be written there.
    Granted(GrantedLanding),
}

/// Where an announced payload goes.
pub(super) struct GrantedLanding {
    registration: Arc<Registration>,
    /// At the peer, from its reply; the peer's device checks them.
    address: u64,
    key: u32,
}

impl GrantedLanding {
    /// Posts the WRITE of `payload`, which must be held until later work has completed.
    ///
    /// # Errors
    /// Full, or failed; the payload is not written then.
    pub(super) fn write(&self, pair: &QueuePair, payload: &[u8]) -> Result<(), PostError> {
        let pieces = [Piece::Foreign {
            registration: &self.registration,
            bytes: payload,
        }];
        let request = Request {
            work: Work::Write {
                address: self.address,
                key: self.key,
            },
            pieces: &pieces,
            number: 0,
            is_signalled: false,
        };
        pair.post(&[request]).map_err(|(_, error)| error)
    }
}

/// See the module.
pub(super) struct Announcing<M> {
    /// Payload is announced from this length on.
    from_bytes: usize,
    /// A user header is announced along, in one slot.
    header_room_bytes: usize,
    remembered: Remembered,
    /// The receiver's landings lie in no memory that can be registered.
    is_refused: bool,
    /// Messages that the device still reads, each with the number of the piece that follows its
    /// WRITE.
    held: VecDeque<(M, u64)>,
}

impl<M: Message> Announcing<M> {
    pub(super) fn new(from_bytes: usize, layout: Layout) -> Announcing<M> {
        Announcing {
            // A message without payload has nothing to write.
            from_bytes: from_bytes.max(1),
            header_room_bytes: layout.slot_bytes as usize - START_BYTES,
            remembered: Remembered::default(),
            is_refused: false,
            // Each is followed by a piece that has a slot.
            held: VecDeque::with_capacity(layout.slots as usize),
        }
    }

    /// Whether a message shall be announced, or cut into pieces.
    pub(super) fn way_of(&mut self, device: &Device, message: &M) -> Way {
        let payload = message.payload();
        if self.is_refused
            || payload.len() < self.from_bytes
            || payload.len() > WRITE_MAX_BYTES
            || message.user_header().len() > self.header_room_bytes
        {
            return Way::Pieces;
        }
        message
            .segment()
            .and_then(|segment| self.remembered.find(device, segment, Purpose::Sending, payload))
            .map_or(Way::Pieces, Way::Announce)
    }

    /// How to continue a message that the receiver has answered; `None` if it is not wanted.
    ///
    /// # Errors
    /// It was not announced: what is wrong, for [`crate::ChannelError::Corrupt`].
    pub(super) fn answered(&mut self, way: &Way, grant: Grant) -> Result<Option<Way>, &'static str> {
        let Way::Announced(registration) = way else {
            return Err("a grant for no announced message");
        };
        Ok(match grant {
            Grant::Write { address, key } => Some(Way::Granted(GrantedLanding {
                registration: registration.clone(),
                address,
                key,
            })),
            Grant::Copy => {
                self.is_refused = true;
                Some(Way::Pieces)
            }
            Grant::Discarded => None,
        })
    }

    /// Holds a message until the piece of that number has completed.
    pub(super) fn hold(&mut self, message: M, number: u64) {
        self.held.push_back((message, number));
    }

    /// Releases the messages that were kept for pieces up to that number.
    pub(super) fn release(&mut self, completed: u64) {
        while self.held.front().is_some_and(|(_, number)| *number <= completed) {
            self.held.pop_front();
        }
    }
}
