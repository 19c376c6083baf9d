//! The sending end of a queuing channel that writes the queue in the receiver's port store.
//!
//! Contract: messages carry their source's numbers, one after the other from the first on; a
//! message that the receiver has already is left out. It counts as unacknowledged until the
//! receiving host has said that its store has it. A full queue, or a queue pair without room, is
//! [`Refused::Full`]. Made by [`super::ring`], used on a lane; nothing here blocks.

use std::io;
use std::marker::PhantomData;

use busway_core::ring::{PushError, RingProducer};
use busway_core::{RemoteError, RemoteWrite as _, Window};

use super::access::Far;
use super::pipe::Handle;
use super::ring_words::{LINES_AT, PLACED_AT};
use crate::contract::{
    ChannelError, Flushed, HEAD_BYTES, Kind, Message, QueueNumbers, Refused, Sender, WaitFor,
};
use crate::remote_write::{SENDER_CLOSED_AT, Waker, WritePermission};

/// Looks for the credit of a payload whose line has credit: far more than a store takes to become
/// visible.
const CREDIT_SPINS: u32 = 1000;

/// The memories of an end, beside the ring.
pub(super) struct Wiring {
    pub(super) handle: Handle,
    /// The receiver's control line.
    pub(super) control: Far,
    /// Written there when this end closes.
    pub(super) tag: u64,
    /// Written by the receiver.
    pub(super) credit: Window,
}

/// See the module.
pub(super) struct RingSender<M> {
    wiring: Wiring,
    ring: RingProducer<Far>,
    /// Number of the message that was written last.
    written: u64,
    /// Losses at the source that the receiver was told of.
    lost: u64,
    /// Line position behind what the receiver's store is known to have.
    placed: u64,
    /// Most messages that are unacknowledged, and that wait in the queue.
    most: u64,
    depth: u64,
    copied: u64,
    /// The last message found no room: the next word of the receiver is to wake this end.
    is_refused: bool,
    _message: PhantomData<fn(M)>,
}

impl<M: Message> RingSender<M> {
    /// `source` has the number before the first message to be written, at the ring's position;
    /// `limits` the most messages that are unacknowledged, and the queue's depth.
    pub(super) fn new(
        wiring: Wiring,
        ring: RingProducer<Far>,
        source: QueueNumbers,
        (most, depth): (u32, u32),
    ) -> Self {
        RingSender {
            wiring,
            placed: ring.position().line,
            ring,
            written: source.newest,
            lost: source.lost,
            most: most.max(1).into(),
            depth: depth.into(),
            copied: 0,
            is_refused: false,
            _message: PhantomData,
        }
    }

    fn failure(&self) -> Option<ChannelError> {
        self.wiring.handle.end_reason()
    }

    /// Line position behind what was published.
    fn committed(&self) -> u64 {
        self.ring.position().line.wrapping_sub(self.ring.staged() as u64)
    }

    /// Takes in what the receiver says to have. Impossible values are ignored.
    fn refresh(&mut self) {
        // Acquire: what the receiver's device wrote before this word is seen, too.
        let placed = self.wiring.credit.load_acquire(PLACED_AT).unwrap_or(self.placed);
        if placed.wrapping_sub(self.placed) <= self.committed().wrapping_sub(self.placed) {
            self.placed = placed;
        }
    }

    /// Whether queue and acknowledgements have room for one more message.
    fn has_place(&mut self) -> bool {
        self.refresh();
        self.outstanding_lines() < self.most && (self.ring.unreleased() as u64) < self.depth
    }

    fn outstanding_lines(&self) -> u64 {
        self.ring.position().line.wrapping_sub(self.placed)
    }

    /// What this end has seen of the receiver's words: see [`super::ring_receiver`] on marks.
    fn seen(&self) -> u64 {
        let word = |at| self.wiring.credit.load(at).unwrap_or_default();
        word(PLACED_AT).wrapping_add(word(LINES_AT))
    }

    /// Publishes what was written.
    fn commit(&mut self) -> Result<(), ChannelError> {
        match self.ring.commit() {
            Ok(()) | Err(RemoteError::Busy) => {}
            Err(error) => return Err(self.failure().unwrap_or_else(|| io::Error::other(error).into())),
        }
        let committed = self.committed();
        self.wiring.handle.wake(committed);
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        self.is_refused || self.ring.staged() > 0 || self.wiring.handle.has_backlog()
    }

    /// Writes a message that is the next one; `false` if there is no room now.
    fn write(&mut self, message: &M) -> Result<bool, ChannelError> {
        self.is_refused = true;
        if !self.has_place() {
            return Ok(false);
        }
        // Room in lines is room for the payload too, but its credit may become visible a moment
        // later.
        for _ in 0..CREDIT_SPINS {
            match self.ring.stage(&[message.payload()], message.head().time_ns) {
                Ok(()) => {
                    self.is_refused = false;
                    self.written += 1;
                    self.copied += 1;
                    return Ok(true);
                }
                Err(PushError::Full) => std::hint::spin_loop(),
                Err(PushError::Remote(RemoteError::Busy)) => return Ok(false),
                Err(error) => return Err(self.failure().unwrap_or_else(|| io::Error::other(error).into())),
            }
        }
        Ok(false)
    }
}

impl<M: Message> Sender<M> for RingSender<M> {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        let limit_bytes = self.ring.layout().max_size_bytes();
        let (head, len_bytes) = (*message.head(), message.payload().len());
        if head.kind != Kind::Data || len_bytes == 0 || len_bytes > limit_bytes {
            let limit_bytes = (HEAD_BYTES + limit_bytes) as u64;
            return Err(Refused::TooLong { message, limit_bytes });
        }
        if let Some(failure) = self.failure() {
            return Err(Refused::Failed(message, failure));
        }
        // The receiver has it.
        if head.sequence <= self.written {
            return Ok(());
        }
        // The ring says nothing of losses: the next channel tells the receiver.
        if head.sequence != self.written + 1 || head.events != self.lost {
            let why = "the source's queue was damaged and lost messages: opens the channel anew";
            return Err(Refused::Failed(message, io::Error::other(why).into()));
        }
        match self.write(&message) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refused::Full(message)),
            Err(error) => Err(Refused::Failed(message, error)),
        }
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        self.wiring.handle.poll();
        loop {
            let seen = self.seen();
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            self.commit()?;
            self.refresh();
            if !self.is_waiting() {
                return Ok(Flushed::Idle);
            }
            if !self.wiring.handle.prepare_sleep(seen) {
                return Ok(Flushed::Waiting);
            }
        }
    }

    fn has_room(&mut self, _total_bytes: u64) -> bool {
        // After a failure `send` says so.
        let has_failed = self.failure().is_some();
        loop {
            let seen = self.seen();
            if has_failed || self.has_place() {
                return true;
            }
            if !self.wiring.handle.prepare_sleep(seen) {
                return false;
            }
        }
    }

    fn outstanding(&self) -> u64 {
        self.outstanding_lines()
    }

    fn overwritten(&self) -> u64 {
        0
    }

    fn copied(&self) -> Option<u64> {
        Some(self.copied)
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Doorbell
    }
}

impl<M> Drop for RingSender<M> {
    fn drop(&mut self) {
        let _ = self.ring.commit();
        // Behind all messages. Fails only where the receiver learns it from the bus.
        let Wiring {
            control, tag, handle, ..
        } = &mut self.wiring;
        let _ = control.publish(SENDER_CLOSED_AT, *tag);
        control.flush();
        handle.wake(self.ring.position().line.wrapping_add(1));
    }
}
