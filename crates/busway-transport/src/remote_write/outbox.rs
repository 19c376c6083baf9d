//! Writes messages of any length into a ring, in pieces, and counts those that the receiver has
//! taken.
//!
//! Contract: a message is one or more ring entries: head, user header and payload without gaps, cut
//! every `piece_bytes`. Only the first entry carries a head. Called by the two senders, on a lane,
//! while they may write. Never waits, does not allocate after construction.

use std::collections::VecDeque;

use busway_core::RemoteError;
use busway_core::ring::{PushError, RingProducer};

use super::{RemoteAccess, Waker};
use crate::contract::{ChannelError, HEAD_BYTES, Message};

/// At most this many messages or bytes are staged before they are published, so that the receiver
/// works meanwhile.
const BATCH_MESSAGES: usize = 32;
const BATCH_BYTES: usize = 32 << 10;

/// The most messages in flight, however deep the channel.
const MOST_UNDER_WAY: usize = 1 << 16;
/// Room is set aside for this many of them.
const USUALLY_UNDER_WAY: usize = 1 << 10;

/// A message of which some bytes are not in the ring yet.
#[derive(Debug)]
struct Held<M> {
    message: M,
    /// Goes with every entry of the message.
    mark: u64,
    total_bytes: usize,
    done_bytes: usize,
}

/// The ring, and the waker of the lane that reads it.
#[derive(Debug)]
struct Publisher<A: RemoteAccess> {
    ring: RingProducer<A::Memory>,
    /// Wakes the receiver's lane.
    waker: A::Waker,
    /// Publications that went past the ring, see [`Waker`] on marks.
    beside: u64,
    /// Bytes staged and not yet published.
    staged_bytes: usize,
}

impl<A: RemoteAccess> Publisher<A> {
    fn publish(&mut self) -> Result<(), ChannelError> {
        if self.ring.staged() == 0 {
            return Ok(());
        }
        self.staged_bytes = 0;
        match self.ring.commit() {
            // What the bus did not take stays staged.
            Ok(()) | Err(RemoteError::Busy) => {}
            Err(error) => return Err(std::io::Error::other(error).into()),
        }
        self.wake();
        Ok(())
    }

    fn wake(&mut self) {
        let committed = self.ring.position().line.wrapping_sub(self.ring.staged() as u64);
        self.waker.wake(committed.wrapping_add(self.beside));
    }
}

/// The sending half of a ring of messages.
#[derive(Debug)]
pub struct Outbox<M, A: RemoteAccess> {
    out: Publisher<A>,
    /// Messages that wait for the ring; of the first, some bytes may be there.
    held: VecDeque<Held<M>>,
    piece_bytes: usize,
    /// Entries staged since the beginning.
    entries: u64,
    /// Messages taken over since the beginning: each is copied once.
    begun: u64,
    /// For each message that the receiver has not taken: `entries` after its last one. At most
    /// `most` of them.
    ends: VecDeque<u64>,
    most: usize,
}

impl<M: Message, A: RemoteAccess> Outbox<M, A> {
    /// An outbox with at most `most` messages in flight.
    pub fn new(ring: RingProducer<A::Memory>, waker: A::Waker, most: usize) -> Outbox<M, A> {
        let most = most.clamp(1, MOST_UNDER_WAY);
        Outbox {
            piece_bytes: ring.layout().max_size_bytes(),
            ends: VecDeque::with_capacity(most.min(USUALLY_UNDER_WAY)),
            held: VecDeque::with_capacity(most.min(USUALLY_UNDER_WAY)),
            out: Publisher {
                ring,
                waker,
                beside: 0,
                staged_bytes: 0,
            },
            entries: 0,
            begun: 0,
            most,
        }
    }

    /// Messages taken over whose receipt is not confirmed.
    pub fn outstanding(&self) -> usize {
        self.ends.len() + self.held.len()
    }

    /// Messages taken over since the beginning.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Takes in credits.
    pub fn refresh(&mut self) {
        if self.ends.is_empty() {
            return;
        }
        let released = self.entries - self.out.ring.unreleased() as u64;
        while self.ends.front().is_some_and(|end| *end <= released) {
            self.ends.pop_front();
        }
    }

    /// Whether [`begin`](Self::begin) would take a message now.
    pub fn has_room(&mut self) -> bool {
        if self.outstanding() >= self.most {
            self.refresh();
        }
        self.outstanding() < self.most
    }

    /// Whether a message is held of which not all bytes are in the ring.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether something that was taken over waits for the receiver or for the bus.
    pub fn is_waiting(&self) -> bool {
        self.is_holding() || self.out.ring.staged() > 0 || self.out.waker.has_backlog()
    }

    /// Takes over `message`, if [`has_room`](Self::has_room), and writes as much of it as fits into
    /// the ring. The receiver gets `mark` with it.
    pub fn begin(&mut self, message: M, mark: u64) -> Result<(), ChannelError> {
        let total_bytes = HEAD_BYTES + message.user_header().len() + message.payload().len();
        self.begun += 1;
        self.held.push_back(Held {
            message,
            mark,
            total_bytes,
            done_bytes: 0,
        });
        self.advance()
    }

    /// Writes on with the messages that are held.
    pub fn advance(&mut self) -> Result<(), ChannelError> {
        while let Some(held) = self.held.front_mut() {
            let head = held.message.head().encode();
            while held.done_bytes < held.total_bytes {
                let end = held.total_bytes.min(held.done_bytes + self.piece_bytes);
                let parts = cut(&head, &held.message, held.done_bytes, end);
                match self.out.ring.stage(&parts, held.mark) {
                    Ok(()) => {}
                    Err(PushError::Full | PushError::Remote(RemoteError::Busy)) => {
                        return self.out.publish();
                    }
                    Err(error) => return Err(std::io::Error::other(error).into()),
                }
                self.entries += 1;
                self.out.staged_bytes += end - held.done_bytes;
                held.done_bytes = end;
                if self.out.staged_bytes >= BATCH_BYTES || self.out.ring.staged() >= BATCH_MESSAGES {
                    self.out.publish()?;
                }
            }
            self.held.pop_front();
            self.ends.push_back(self.entries);
        }
        Ok(())
    }

    /// Makes everything written visible to the receiver, and wakes it.
    pub fn publish(&mut self) -> Result<(), ChannelError> {
        self.out.publish()
    }

    /// Wakes the receiver for the `beside` publications that did not go through this outbox.
    pub fn wake_beside(&mut self, beside: u64) {
        self.out.beside = beside;
        self.out.wake();
    }

    /// Reads what the receiver asks for.
    pub fn poll_waker(&mut self) {
        self.out.waker.poll();
    }

    /// Has this lane woken at the next credit. True: the caller must look at its credits once more.
    pub fn request_wakeup(&mut self) -> bool {
        let released = self
            .out
            .ring
            .position()
            .line
            .wrapping_sub(self.out.ring.unreleased() as u64);
        self.out.waker.prepare_sleep(released)
    }

    /// Need not be woken.
    pub fn cancel_wakeup(&mut self) {
        self.out.waker.cancel_sleep();
    }
}

/// The bytes `from..to` of a message, in its three parts.
fn cut<'a, M: Message>(head: &'a [u8; HEAD_BYTES], message: &'a M, from: usize, to: usize) -> [&'a [u8]; 3] {
    let mut start = 0;
    [&head[..], message.user_header(), message.payload()].map(|part| {
        let range =
            from.clamp(start, start + part.len()) - start..to.clamp(start, start + part.len()) - start;
        start += part.len();
        &part[range]
    })
}
