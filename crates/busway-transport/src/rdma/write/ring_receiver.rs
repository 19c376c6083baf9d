//! The receiving end of a queuing channel whose sender writes the queue in this host's port store.
//!
//! Contract: see [`crate::contract::LandingRing`]. It copies no message and gives none to its sink:
//! it has the store take in what has arrived, and writes the sender what the store has and what
//! programs have released. Dropping it destroys the queue pair, and then nobody reaches the store
//! any more. Made by [`super::ring`]; used on one thread at a time, mostly a lane.
//!
//! # When a message counts as received
//!
//! When this end has found it whole in the store's memory: by its checksum, or, in a ring without
//! checksums, by its commit word, which InfiniBand and RoCE make visible after what was written
//! before it. Only then the sender is told, and only then the source's host gives its room up. A
//! completion at the sender would not do: over iWARP it says that TCP has the bytes (RFC 5040,
//! section 5.5), and over InfiniBand that the other card has them.
#![allow(unsafe_code)] // Ends a queue pair.

use std::sync::Arc;

use busway_core::ring::Position;
use busway_core::{RemoteError, RemoteWrite as _, Window};

use super::access::Far;
use super::far_memory::FarMemory;
use super::pipe::Handle;
use super::place::SENDER_BYTES;
use super::register::PortRegion;
use super::ring_words::{ADDRESS_AT, DATA_AT, KEY_AT, LINES_AT, PLACED_AT};
use crate::contract::{ChannelError, Receiver, RingOwner, Sink, WaitFor};
use crate::rdma::lane::CREDITS_AFTER_POLLS;
use crate::rdma::queue_pair::QueuePair;
use crate::remote_write::{ENTRY_BYTES, SENDER_CLOSED_AT, Waker, WritePermission};

/// See the module.
pub(super) struct RingReceiver {
    handle: Handle,
    /// The sender's memory.
    credit: Far,
    pair: Arc<QueuePair>,
    // After `drop` has ended the queue pair.
    _region: PortRegion,
    /// The control line, and the tag that a closing sender writes there.
    line: Window,
    tag: u64,
    owner: Box<dyn RingOwner>,
    depth: u64,
    /// Told to the sender: line position behind what the store has, and what programs released.
    told_placed: u64,
    told_released: Position,
    /// The sender's memory is known.
    is_connected: bool,
    empty_polls: u32,
}

impl RingReceiver {
    /// `state`: where the sender begins, what it knows to be released, and the queue's depth.
    pub(super) fn new(
        handle: Handle,
        (pair, region): (Arc<QueuePair>, PortRegion),
        (line, tag): (Window, u64),
        (position, released, depth): (Position, Position, u64),
        owner: Box<dyn RingOwner>,
    ) -> RingReceiver {
        RingReceiver {
            credit: Far::new(&handle, 0, ENTRY_BYTES),
            handle,
            pair,
            _region: region,
            line,
            tag,
            owner,
            depth,
            told_placed: position.line,
            told_released: released,
            is_connected: false,
            empty_polls: 0,
        }
    }

    /// Learns where the sender's memory is, from the sender's greeting. Before that nothing may be
    /// written: over iWARP the end that was connected to speaks second.
    ///
    /// # Errors
    /// The address is impossible.
    fn connect(&mut self) -> Result<(), ChannelError> {
        if self.is_connected || self.handle.with(|pipe| pipe.rest.is_greeted()) != Some(true) {
            return Ok(());
        }
        // Acquire: the device wrote the words before it completed the greeting's RECV.
        let word = |at| self.line.load_acquire(at).unwrap_or_default();
        let (address, key) = (word(ADDRESS_AT), word(KEY_AT));
        let is_possible = address != 0 && address.checked_add(SENDER_BYTES as u64).is_some();
        let Some(key) = u32::try_from(key).ok().filter(|_| is_possible) else {
            return Err(ChannelError::Corrupt("credits beyond all memory"));
        };
        let far = FarMemory {
            address,
            key,
            len_bytes: SENDER_BYTES,
        };
        self.handle.with(|pipe| pipe.far().set_first(far));
        self.is_connected = true;
        Ok(())
    }

    /// Why nothing more will come, if that is so. To be asked *before* a last look.
    fn end_reason(&self) -> Option<ChannelError> {
        // Acquire: the look that follows sees all messages sent before. The sender's device wrote
        // the word behind them.
        if self.line.load_acquire(SENDER_CLOSED_AT).unwrap_or_default() == self.tag {
            return Some(ChannelError::Closed);
        }
        self.handle.end_reason()
    }

    /// Takes in what has arrived; returns how many messages, and why none will follow.
    fn take_in(&mut self) -> Result<(u64, Option<ChannelError>), ChannelError> {
        let mut taken = 0;
        loop {
            let over = self.end_reason();
            let messages = self.owner.take_in().map_err(ChannelError::Corrupt)?;
            taken += messages;
            if taken > 0 || over.is_some() {
                return Ok((taken, over));
            }
            if !self.handle.prepare_sleep(self.owner.placed()) {
                return Ok((taken, None));
            }
            self.connect()?;
        }
    }

    /// Whether to tell the sender now, after a poll that was empty or not. As over the other rings,
    /// a few messages wait for the next word, unless the sender may be waiting for room.
    fn should_tell(&mut self, is_empty: bool, placed: u64, released: Position) -> bool {
        self.empty_polls = if is_empty {
            self.empty_polls.saturating_add(1)
        } else {
            0
        };
        let batch = (self.depth / 4).max(1);
        let is_tight = placed.wrapping_sub(self.told_released.line) + batch >= self.depth;
        let has_released = released.line != self.told_released.line;
        self.empty_polls >= CREDITS_AFTER_POLLS
            || placed.wrapping_sub(self.told_placed) >= batch
            || released.line.wrapping_sub(self.told_released.line) >= batch
            || has_released && is_tight
            || self.handle.is_about_to_sleep()
    }

    /// Writes the sender what it does not know yet.
    ///
    /// # Errors
    /// The queue pair has no room now, or has ended; what is not told stays owed.
    fn tell(&mut self, placed: u64, released: Position) -> Result<(), RemoteError> {
        if !self.is_connected || (placed, released) == (self.told_placed, self.told_released) {
            return Ok(());
        }
        if released.data != self.told_released.data {
            self.credit.publish(DATA_AT, released.data)?;
            self.told_released.data = released.data;
        }
        if released.line != self.told_released.line {
            self.credit.publish(LINES_AT, released.line)?;
            self.told_released.line = released.line;
        }
        if placed != self.told_placed {
            self.credit.publish(PLACED_AT, placed)?;
            self.told_placed = placed;
        }
        self.credit.flush();
        // Both only grow, so equal sums mean equal words.
        self.handle.wake(placed.wrapping_add(released.line));
        Ok(())
    }
}

impl Receiver for RingReceiver {
    fn poll(&mut self, _sink: &mut dyn Sink, _budget: usize) -> Result<usize, ChannelError> {
        self.handle.poll();
        self.connect()?;
        let (taken, over) = self.take_in()?;
        // What programs released is read before what the store has: it is never further.
        let (released, placed) = (self.owner.released(), self.owner.placed());
        if self.should_tell(taken == 0, placed, released) {
            // Fails where there is no room now, or where the queue pair's end is reported.
            let _ = self.tell(placed, released);
        }
        match over {
            Some(error) if taken == 0 => Err(error),
            _ => Ok(usize::try_from(taken).unwrap_or(usize::MAX)),
        }
    }

    fn acknowledge(&mut self) {
        let (released, placed) = (self.owner.released(), self.owner.placed());
        let _ = self.tell(placed, released);
    }

    /// No payload is copied here.
    fn copied(&self) -> Option<u64> {
        Some(0)
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Doorbell
    }
}

impl Drop for RingReceiver {
    fn drop(&mut self) {
        // SAFETY: only this end posts, and it has no more to post: the pipe of `handle` goes with
        // it, and has nobody to whom it gives what was not sent.
        unsafe { self.pair.close() };
    }
}
