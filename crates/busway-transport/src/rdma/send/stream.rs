//! All of a sending end that can outlive it: messages are cut into pieces, each laid into a
//! registered slot and sent from there.
//!
//! A slot is written again when the SEND from it has completed and its credit has arrived, so that
//! neither the device nor the receiver can still need it. The queue pair takes small pieces inline,
//! which saves the device a read. Long payload in registered memory is written from where it is, as
//! [`super::announcing`] describes. One call of the driver posts a run of staged pieces. A message
//! that does not fit the free slots is kept, at most one, and continues with the next flush. Used
//! by [`super::sender`] on one lane, after that by the link; nothing here allocates after
//! [`Stream::new`], locks or waits.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::announcing::{Announcing, Way};
use super::layout::Layout;
use super::wire::{ANNOUNCE, Credit, DONE, END, Grant, MORE, PIECE_BYTES, REPLY_BYTES, Reply, START};
use crate::contract::{ChannelError, Flushed, HEAD_BYTES, Keep, Kind, Message, Refused};
use crate::rdma::completion::{Completions, NOTHING};
use crate::rdma::device::{Access, Region};
use crate::rdma::error::{PostError, RdmaError};
use crate::rdma::lane::Lane;
use crate::rdma::queue_pair::{POST_MAX, Piece, QueuePair, Request, Work};
use crate::session::mailbox::Linger;
use crate::stream::again;

/// With this many staged pieces `send` posts them, and does not wait for `flush`.
const POST_AT: u64 = 8;

/// A message that is being put into slots.
struct Current<M> {
    message: M,
    head: [u8; HEAD_BYTES],
    /// Bytes of user header and payload that are staged.
    staged_bytes: usize,
    /// Whether its first piece is.
    is_begun: bool,
    way: Way,
}

/// All state of a sending end, so that it can outlive it until the last message has arrived.
pub(super) struct Stream<M: Message> {
    completions: Completions,
    /// Knows when to ask for a wake-up.
    lane: Arc<Lane>,
    layout: Layout,
    /// RECVs for replies, [`REPLY_BYTES`] each, as many as there are slots.
    replies: Region,
    slots: Region,
    /// Lengths of the pieces in the slots.
    lengths: Box<[u32]>,
    keep: Keep,
    /// The most unacknowledged messages, at least 1.
    depth: u64,
    /// Pieces laid into slots, posted, and completed, since the start.
    staged: u64,
    posted: u64,
    completed: u64,
    /// Messages taken since the start.
    accepted: u64,
    /// The receiver's last word.
    credit: Credit,
    current: Option<Current<M>>,
    announcing: Announcing<M>,
    /// The message that waits for a credit on a channel that keeps the latest.
    pending: Option<M>,
    overwritten: u64,
    copied: u64,
    is_ended: bool,
    failure: Option<ChannelError>,
}

impl<M: Message> Stream<M> {
    /// Registers memory, and posts the RECVs for credits. Payload of `zero_copy_from_bytes` and
    /// more is announced.
    pub(super) fn new(
        pair: Arc<QueuePair>,
        layout: Layout,
        keep: Keep,
        zero_copy_from_bytes: usize,
        lane: Arc<Lane>,
    ) -> Result<Self, RdmaError> {
        let device = pair.device().clone();
        let replies = Region::new(&device, REPLY_BYTES * layout.slots as usize, Access::Local)?;
        for at in 0..layout.slots as usize {
            pair.post_recv(&replies, at * REPLY_BYTES, REPLY_BYTES, at as u64)?;
        }
        Ok(Stream {
            completions: Completions::new(pair),
            lane,
            layout,
            replies,
            slots: Region::new(&device, layout.bytes(), Access::Local)?,
            lengths: vec![0; layout.slots as usize].into_boxed_slice(),
            keep,
            depth: layout.depth(keep),
            staged: 0,
            posted: 0,
            completed: 0,
            accepted: 0,
            credit: Credit::default(),
            current: None,
            announcing: Announcing::new(zero_copy_from_bytes, layout),
            pending: None,
            overwritten: 0,
            copied: 0,
            is_ended: false,
            failure: None,
        })
    }

    /// Messages accepted that the receiver has not confirmed.
    pub(super) fn outstanding(&self) -> u64 {
        self.accepted - self.credit.taken
    }

    /// Whether a message waits beside those, which the next one replaces.
    pub(super) fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    pub(super) fn overwritten(&self) -> u64 {
        self.overwritten
    }

    /// Messages whose payload was laid into slots.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// Whether [`send`](Self::send) takes a message now.
    pub(super) fn has_room(&mut self) -> bool {
        self.keep == Keep::Latest || self.make_room()
    }

    /// No more messages come: the one that waits leaves now, if it may.
    pub(super) fn take_last(&mut self) {
        if let Some(message) = self.pending.take() {
            if self.current.is_none() {
                self.accept(message);
            } else {
                self.overwritten += 1;
            }
        }
    }

    /// See [`crate::Sender::send`].
    pub(super) fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        if let Some(failure) = &self.failure {
            return Err(Refused::Failed(message, again(failure)));
        }
        if self.keep == Keep::Latest
            && (self.pending.is_some() || self.current.is_some() || self.outstanding() >= self.depth)
        {
            if message.head().kind != Kind::Data {
                // Events replace no message: they wait until there is credit.
                return Err(Refused::Full(message));
            }
            self.overwritten += u64::from(self.pending.replace(message).is_some());
            return Ok(());
        }
        if !self.make_room() {
            return Err(match &self.failure {
                Some(failure) => Refused::Failed(message, again(failure)),
                None => Refused::Full(message),
            });
        }
        self.accept(message);
        if self.staged - self.posted >= POST_AT {
            // A failure is kept and reported by the next call: this message was taken.
            let _ = self.post();
        }
        Ok(())
    }

    /// Whether a message can be taken now, after an attempt to make it so.
    fn make_room(&mut self) -> bool {
        let has_room = |stream: &Self| stream.current.is_none() && stream.outstanding() < stream.depth;
        if self.failure.is_none() && !has_room(self) {
            // A failure is kept.
            let _ = self.take_completions().and_then(|_| self.advance());
        }
        self.failure.is_none() && has_room(self)
    }

    fn accept(&mut self, message: M) {
        self.accepted += 1;
        let device = self.completions.pair().device();
        let way = self.announcing.way_of(device, &message);
        if let Way::Pieces = way {
            self.copied += u64::from(!message.payload().is_empty());
        }
        self.current = Some(Current {
            head: message.head().encode(),
            message,
            staged_bytes: 0,
            is_begun: false,
            way,
        });
        self.stage();
    }

    /// Whether a slot is free for one more piece; the last one is kept for the end mark.
    fn has_slot(&self, is_end: bool) -> bool {
        let slots = u64::from(self.layout.slots);
        let on_their_way = self.staged - self.credit.freed;
        self.staged - self.completed < slots && on_their_way + u64::from(!is_end) < slots
    }

    /// Lays the current message into slots, as far as they are free.
    fn stage(&mut self) {
        while self.has_slot(false)
            && let Some(mut current) = self.current.take()
        {
            match current.way {
                Way::Pieces => {
                    if self.lay_part(&mut current) {
                        continue;
                    }
                    self.current = Some(current);
                }
                Way::Announce(registration) => {
                    let user_header = current.message.user_header();
                    self.lay(ANNOUNCE, &[&current.head, user_header]);
                    current.staged_bytes = user_header.len();
                    current.is_begun = true;
                    current.way = Way::Announced(registration);
                    self.current = Some(current);
                    return;
                }
                // These wait for the receiver, or for `write`.
                Way::Announced(_) | Way::Granted(..) => {
                    self.current = Some(current);
                    return;
                }
            }
        }
    }

    /// Lays the next piece of a message; whether it was the last.
    fn lay_part(&mut self, current: &mut Current<M>) -> bool {
        let (user_header, payload) = (current.message.user_header(), current.message.payload());
        let total_bytes = user_header.len() + payload.len();
        let (kind, head): (u64, &[u8]) = if current.is_begun {
            (MORE, &[])
        } else {
            (START, &current.head)
        };
        let room_bytes = self.layout.slot_bytes as usize - PIECE_BYTES - head.len();
        let from = current.staged_bytes;
        let until = total_bytes.min(from + room_bytes);
        let in_header = user_header.len();
        let parts = [
            head,
            &user_header[from.min(in_header)..until.min(in_header)],
            &payload[from.saturating_sub(in_header)..until.saturating_sub(in_header)],
        ];
        self.lay(kind, &parts);
        current.staged_bytes = until;
        current.is_begun = true;
        until == total_bytes
    }

    /// Writes a granted message's payload to its landing, and reports that it is done.
    fn write(&mut self) -> Result<(), ChannelError> {
        if !self.has_slot(false) || self.posted < self.staged {
            return Ok(());
        }
        let Some(current) = self.current.take() else {
            return Ok(());
        };
        let Way::Granted(place) = &current.way else {
            self.current = Some(current);
            return Ok(());
        };
        match place.write(self.completions.pair(), current.message.payload()) {
            Ok(()) => {
                self.lay(DONE, &[]);
                self.announcing.hold(current.message, self.staged);
                self.post()
            }
            Err(PostError::Full) => {
                self.current = Some(current);
                Ok(())
            }
            Err(PostError::Failed(error)) => self.fail(error.into()),
        }
    }

    /// Continues an announced message as the receiver's reply asks.
    fn granted(&mut self, grant: Grant) -> Result<(), ChannelError> {
        let Some(current) = &mut self.current else {
            return self.fail(ChannelError::Corrupt("a grant without a message"));
        };
        match self.announcing.answered(&current.way, grant) {
            Ok(Some(way)) => {
                self.copied += u64::from(matches!(way, Way::Pieces));
                current.way = way;
            }
            Ok(None) => self.current = None,
            Err(what) => return self.fail(ChannelError::Corrupt(what)),
        }
        Ok(())
    }

    /// Lays a piece into the next slot, which is free.
    fn lay(&mut self, kind: u64, parts: &[&[u8]]) {
        let slot = (self.staged % u64::from(self.layout.slots)) as usize;
        let offset = slot * self.layout.slot_bytes as usize;
        let len_bytes = PIECE_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
        if self.slots.write(offset, &[kind.to_le()], parts).is_err() {
            unreachable!("slots lie in their region, and pieces are cut to fit them");
        }
        self.lengths[slot] = len_bytes as u32;
        self.staged += 1;
    }

    /// Posts what is staged.
    fn post(&mut self) -> Result<(), ChannelError> {
        let slots = u64::from(self.layout.slots);
        // At least one of any run of `slots` must be signalled, else none of them is known to have
        // completed.
        let signal_every = (slots / 4).max(1);
        while self.posted < self.staged {
            let count = (self.staged - self.posted).min(POST_MAX as u64) as usize;
            let region = &self.slots;
            let lengths = &self.lengths;
            let slot_bytes = self.layout.slot_bytes as usize;
            let first = self.posted;
            let pieces: [[Piece<'_>; 1]; POST_MAX] = std::array::from_fn(|at| {
                let slot = ((first + at as u64) % slots) as usize;
                [Piece::Registered {
                    region,
                    offset: slot * slot_bytes,
                    len_bytes: if at < count { lengths[slot] as usize } else { 0 },
                }]
            });
            let requests: [Request<'_>; POST_MAX] = std::array::from_fn(|at| {
                let number = first + at as u64 + 1;
                // A piece that is nothing but its kind follows a WRITE, whose message is held until
                // then, or is the end.
                let is_awaited = pieces[at][0].len_bytes() == PIECE_BYTES;
                Request {
                    work: Work::Send,
                    pieces: &pieces[at],
                    number,
                    is_signalled: is_awaited || number.is_multiple_of(signal_every),
                }
            });
            match self.completions.pair().post(&requests[..count]) {
                Ok(()) => self.posted += count as u64,
                Err((posted, error)) => {
                    self.posted += posted as u64;
                    match error {
                        PostError::Full => return Ok(()),
                        PostError::Failed(error) => return self.fail(error.into()),
                    }
                }
            }
        }
        Ok(())
    }

    /// Continues what waits: the current message, the pending one, and what is staged.
    fn advance(&mut self) -> Result<(), ChannelError> {
        self.stage();
        self.post()?;
        self.write()?;
        if self.current.is_none()
            && self.outstanding() < self.depth
            && let Some(message) = self.pending.take()
        {
            self.accept(message);
        }
        self.post()
    }

    fn is_waiting(&self) -> bool {
        self.current.is_some() || self.pending.is_some() || self.posted < self.staged
    }

    /// See [`crate::Sender::flush`].
    pub(super) fn flush(&mut self) -> Result<Flushed, ChannelError> {
        if let Some(failure) = &self.failure {
            return Err(again(failure));
        }
        self.advance()?;
        if self.is_waiting() {
            self.settle()?;
        } else if self.settle().is_err() {
            // Everything was handed to the bus before the receiver went; the next call reports it.
            return Ok(Flushed::Idle);
        }
        Ok(if self.is_waiting() {
            Flushed::Waiting
        } else {
            Flushed::Idle
        })
    }

    /// Handles completions until there are no more. If something is still awaited and the lane is
    /// about to sleep, the next completion wakes it.
    fn settle(&mut self) -> Result<(), ChannelError> {
        loop {
            if self.take_completions()? {
                self.advance()?;
                continue;
            }
            // With nothing under way no credit comes; the next message notices a receiver that
            // left.
            if !self.lane.is_about_to_sleep() || self.outstanding() == 0 && !self.is_waiting() {
                return Ok(());
            }
            match self.completions.arm() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => return self.fail(error.into()),
            }
        }
    }

    /// Takes completions; whether there were any.
    fn take_completions(&mut self) -> Result<bool, ChannelError> {
        let mut batch = NOTHING;
        let count = match self.completions.poll(&mut batch) {
            Ok(count) => count,
            Err(error) => return self.fail(error.into()).map(|()| false),
        };
        for completion in &batch[..count] {
            if !completion.is_success() {
                let error = self.completions.pair().failure(completion.status);
                return self.fail(error.into()).map(|()| false);
            }
            if completion.is_recv {
                self.take_reply(completion.number, completion.len_bytes)?;
            } else {
                // Work completes in order: nothing before this one is under way.
                self.completed = self.completed.max(completion.number);
            }
        }
        self.announcing.release(self.completed);
        Ok(count > 0)
    }

    /// Handles a reply, and posts its RECV again before its credit is used.
    fn take_reply(&mut self, number: u64, len_bytes: usize) -> Result<(), ChannelError> {
        let offset = number as usize * REPLY_BYTES;
        let mut bytes = [0; REPLY_BYTES];
        if self.replies.read(offset, &mut bytes).is_err() {
            unreachable!("this end numbered its RECVs by their places");
        }
        if let Err(error) = self
            .completions
            .pair()
            .post_recv(&self.replies, offset, REPLY_BYTES, number)
        {
            return self.fail(std::io::Error::from(error).into());
        }
        let sent = Credit {
            freed: self.posted,
            taken: self.accepted,
        };
        match Reply::decode(&bytes, len_bytes, self.credit, sent) {
            Ok(Reply { credit, grant }) => {
                self.credit = credit;
                grant.map_or(Ok(()), |grant| self.granted(grant))
            }
            Err(what) => self.fail(ChannelError::Corrupt(what)),
        }
    }

    fn fail(&mut self, error: ChannelError) -> Result<(), ChannelError> {
        self.failure = Some(again(&error));
        Err(error)
    }

    /// After the end was dropped: sends what is left and the end mark; whether it has all arrived,
    /// or never will.
    fn finish(&mut self) -> Result<bool, ChannelError> {
        if let Some(failure) = &self.failure {
            return Err(again(failure));
        }
        loop {
            self.advance()?;
            if !self.is_ended && self.current.is_none() && self.has_slot(true) {
                self.lay(END, &[]);
                self.is_ended = true;
                self.post()?;
            }
            if self.is_ended && self.credit.freed == self.staged {
                return Ok(true);
            }
            if !self.take_completions()? {
                match self.completions.arm() {
                    Ok(true) => {}
                    Ok(false) => return Ok(false),
                    Err(error) => return self.fail(error.into()).map(|()| true),
                }
            }
        }
    }
}

impl<M: Message> Drop for Stream<M> {
    fn drop(&mut self) {
        #[allow(unsafe_code)]
        // SAFETY: this end posts no more. After this the device reads no message that is dropped
        // with it.
        unsafe {
            self.completions.pair().close();
        }
    }
}

impl<M: Message> Linger for Stream<M> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.completions.pair().completion_queue().fd()
    }

    fn pump(&mut self) -> bool {
        self.finish().unwrap_or(true)
    }
}
