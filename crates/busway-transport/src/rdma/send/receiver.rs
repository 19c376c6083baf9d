//! The receiving end: a RECV is posted for every slot; pieces are copied from the slots to the
//! sink's places.
//!
//! A slot whose piece was used gets its RECV posted again, and then counts as freed; credits report
//! freed slots and taken messages to the sender. The peer writes an announced message's payload
//! into its landing, whose memory is registered once for each segment
//! ([`crate::rdma::registration`]). A granted landing is released only after the queue pair is
//! destroyed, so that the peer can't write it after that. Arrived pieces wait in order while the
//! sink answers [`Verdict::Later`]. Used by one lane; nothing here allocates after
//! [`SendReceiver::new`], locks or waits.

use std::collections::VecDeque;
use std::sync::Arc;

use super::layout::Layout;
use super::wire::{Credit, Grant, PIECE_BYTES, Piece, REPLY_BYTES, Reply, START_BYTES};
use crate::contract::{ChannelError, Head, Keep, Landing, Receiver, Sink, Verdict, WaitFor};
use crate::rdma::completion::{Completions, NOTHING};
use crate::rdma::device::{Access, Region};
use crate::rdma::error::{PostError, RdmaError};
use crate::rdma::lane::{CREDITS_AFTER_POLLS, Lane};
use crate::rdma::queue_pair::{self, QueuePair, Request, Work};
use crate::rdma::registration::Purpose;
use crate::rdma::remembered::Remembered;
use crate::stream::again;

/// Where the next piece belongs.
enum State {
    /// It begins a message.
    Between,
    /// To this message, of which this many bytes (user header and payload) have landed.
    Landing(Head, usize),
    /// To a discarded message: the bytes still to come.
    Discarding(u64),
    /// The peer writes this message's payload to its landing.
    Granted(Head),
}

/// What became of one piece.
enum Step {
    /// A message was delivered, or discarded.
    Taken(bool),
    /// More pieces are needed.
    Partly,
    /// The sink answered [`Verdict::Later`]: the piece stays.
    Later,
}

/// The receiving end of a channel.
pub(super) struct SendReceiver {
    completions: Completions,
    /// Knows when to ask for a wake-up.
    lane: Arc<Lane>,
    layout: Layout,
    slots: Region,
    /// Replies under way, [`REPLY_BYTES`] each, as many as there are slots.
    replies: Region,
    /// Pieces that have arrived: slot and length.
    arrived: VecDeque<(u32, u32)>,
    state: State,
    /// What was done, and what of it was reported to the sender.
    done: Credit,
    told: Credit,
    /// The answer to an announced message that the sender was not given yet.
    grant: Option<Grant>,
    remembered: Remembered,
    /// Replies posted and completed since the start.
    posted: u64,
    completed: u64,
    /// Messages and slots after which a credit is due: a quarter of what the sender may have on its
    /// way, so that one that has to wait waits for messages that are still to be taken, and never
    /// for a credit that is held back.
    credit_every: Credit,
    idle_polls: u32,
    copied: u64,
    /// Why nothing more arrives; reported when everything that has arrived is delivered.
    broken: Option<ChannelError>,
    failure: Option<ChannelError>,
}

impl SendReceiver {
    /// Posts a RECV for every slot.
    pub(super) fn new(
        pair: Arc<QueuePair>,
        layout: Layout,
        keep: Keep,
        slots: Region,
        lane: Arc<Lane>,
    ) -> Result<Self, RdmaError> {
        let device = pair.device().clone();
        let receiver = SendReceiver {
            completions: Completions::new(pair),
            lane,
            layout,
            slots,
            replies: Region::new(&device, REPLY_BYTES * layout.slots as usize, Access::Local)?,
            arrived: VecDeque::with_capacity(layout.slots as usize),
            state: State::Between,
            done: Credit::default(),
            told: Credit::default(),
            grant: None,
            remembered: Remembered::default(),
            posted: 0,
            completed: 0,
            credit_every: Credit {
                freed: u64::from(layout.slots / 4).max(1),
                taken: (layout.depth(keep) / 4).max(1),
            },
            idle_polls: 0,
            copied: 0,
            broken: None,
            failure: None,
        };
        for slot in 0..layout.slots {
            receiver.post_slot(slot)?;
        }
        Ok(receiver)
    }

    fn post_slot(&self, slot: u32) -> Result<(), PostError> {
        let slot_bytes = self.layout.slot_bytes as usize;
        self.completions.pair().post_recv(
            &self.slots,
            slot as usize * slot_bytes,
            slot_bytes,
            u64::from(slot),
        )
    }

    /// Takes completions; whether there were any.
    fn take_completions(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let mut batch = NOTHING;
        let count = match self.completions.poll(&mut batch) {
            Ok(count) => count,
            Err(error) => {
                self.broken = Some(error.into());
                return false;
            }
        };
        for completion in &batch[..count] {
            if !completion.is_success() {
                self.broken = Some(self.completions.pair().failure(completion.status).into());
                return false;
            }
            if completion.is_recv {
                // A slot is posted once until it is taken from here, so there is room without
                // allocation.
                self.arrived
                    .push_back((completion.number as u32, completion.len_bytes as u32));
            } else {
                self.completed = self.completed.max(completion.number);
            }
        }
        count > 0
    }

    /// Uses the first piece that waits, if the sink lets it.
    fn step(&mut self, slot: u32, len_bytes: usize, sink: &mut dyn Sink) -> Result<Step, ChannelError> {
        let base = slot as usize * self.layout.slot_bytes as usize;
        let mut first = [0; START_BYTES];
        self.copy_out(base, &mut first);
        match (
            Piece::decode(&first, len_bytes).map_err(ChannelError::Corrupt)?,
            &self.state,
        ) {
            (Piece::Start(head, carried_bytes), State::Between) => match sink.land(&head) {
                Verdict::Later => Ok(Step::Later),
                Verdict::Land => {
                    self.state = State::Landing(head, 0);
                    self.land(base + START_BYTES, carried_bytes, sink)
                }
                Verdict::Discard => {
                    let body_bytes = u64::from(head.user_header_bytes).saturating_add(head.payload_bytes);
                    self.state = State::Discarding(body_bytes);
                    self.discard(carried_bytes)
                }
            },
            (Piece::Announce(head), State::Between) => match sink.land(&head) {
                Verdict::Later => Ok(Step::Later),
                Verdict::Land => self.grant(base + START_BYTES, head, sink),
                Verdict::Discard => {
                    self.grant = Some(Grant::Discarded);
                    Ok(Step::Taken(false))
                }
            },
            (Piece::Done, State::Granted(head)) => {
                sink.deliver(head);
                self.state = State::Between;
                Ok(Step::Taken(true))
            }
            (Piece::More(carried_bytes), State::Landing(..)) => {
                self.land(base + PIECE_BYTES, carried_bytes, sink)
            }
            (Piece::More(carried_bytes), State::Discarding(_)) => self.discard(carried_bytes),
            (Piece::End, State::Between) => Err(ChannelError::Closed),
            _ => Err(ChannelError::Corrupt(
                "a piece that does not follow the one before",
            )),
        }
    }

    fn copy_out(&self, from: usize, into: &mut [u8]) {
        // The first bytes of the last slot's piece are shorter than any slot, and a piece is no
        // longer than its slot.
        if self.slots.read(from, into).is_err() {
            unreachable!("a device writes no more than the slot that was posted");
        }
    }

    /// Copies bytes of the message in progress to its landing.
    fn land(&mut self, from: usize, carried_bytes: usize, sink: &mut dyn Sink) -> Result<Step, ChannelError> {
        let State::Landing(head, landed_bytes) = self.state else {
            return Ok(Step::Partly);
        };
        let Landing { user_header, payload } = sink.landing();
        if user_header.len() as u64 != u64::from(head.user_header_bytes)
            || payload.len() as u64 != head.payload_bytes
        {
            return Err(ChannelError::Corrupt(
                "the sink's place is not as long as the message",
            ));
        }
        let total_bytes = user_header.len() + payload.len();
        let until = landed_bytes + carried_bytes;
        if until > total_bytes {
            return Err(ChannelError::Corrupt("more bytes than the message has"));
        }
        let in_header = user_header.len();
        let header_part = &mut user_header[landed_bytes.min(in_header)..until.min(in_header)];
        let payload_part =
            &mut payload[landed_bytes.saturating_sub(in_header)..until.saturating_sub(in_header)];
        self.copy_out(from, header_part);
        self.copy_out(from + header_part.len(), payload_part);
        if until < total_bytes {
            self.state = State::Landing(head, until);
            return Ok(Step::Partly);
        }
        self.copied += u64::from(head.payload_bytes > 0);
        sink.deliver(&head);
        self.state = State::Between;
        Ok(Step::Taken(true))
    }

    /// Takes an announced message's user header, and answers where its payload may be written.
    fn grant(&mut self, from: usize, head: Head, sink: &mut dyn Sink) -> Result<Step, ChannelError> {
        let header_bytes = head.user_header_bytes as usize;
        self.state = State::Landing(head, 0);
        let step = self.land(from, header_bytes, sink)?;
        if let Step::Taken(_) = step {
            return Err(ChannelError::Corrupt("a message without payload was announced"));
        }
        let segment = sink.segment();
        let payload = sink.landing().payload;
        let registration = segment.and_then(|segment| {
            let device = self.completions.pair().device();
            self.remembered.find(device, segment, Purpose::Landing, payload)
        });
        self.grant = Some(match registration {
            Some(registration) => {
                self.state = State::Granted(head);
                Grant::Write {
                    address: payload.as_mut_ptr().expose_provenance() as u64,
                    key: registration.remote_key(),
                }
            }
            None => Grant::Copy,
        });
        Ok(Step::Partly)
    }

    fn discard(&mut self, carried_bytes: usize) -> Result<Step, ChannelError> {
        let State::Discarding(left_bytes) = &mut self.state else {
            return Ok(Step::Partly);
        };
        *left_bytes = left_bytes
            .checked_sub(carried_bytes as u64)
            .ok_or(ChannelError::Corrupt("more bytes than the message has"))?;
        if *left_bytes > 0 {
            return Ok(Step::Partly);
        }
        self.state = State::Between;
        Ok(Step::Taken(false))
    }

    /// Moves messages into the sink until there are no more, or the budget is used up. Where it
    /// stops for want of messages, a lane that goes to sleep is woken by the next.
    fn take(&mut self, sink: &mut dyn Sink, budget: usize) -> (usize, Result<(), ChannelError>) {
        let (mut delivered, mut taken) = (0, 0);
        while taken < budget {
            let Some(&(slot, len_bytes)) = self.arrived.front() else {
                if self.take_completions() {
                    continue;
                }
                if let Some(broken) = &self.broken {
                    return (delivered, Err(again(broken)));
                }
                if !self.lane.is_about_to_sleep() {
                    break;
                }
                match self.completions.arm() {
                    Ok(true) => continue,
                    Ok(false) => break,
                    Err(error) => return (delivered, Err(error.into())),
                }
            };
            let step = self.step(slot, len_bytes as usize, sink);
            if let Ok(Step::Later) = step {
                break;
            }
            self.arrived.pop_front();
            let freed = self.free(slot);
            match step {
                Ok(Step::Taken(is_delivered)) => {
                    taken += 1;
                    delivered += usize::from(is_delivered);
                    self.done.taken += 1;
                }
                Ok(_) => {}
                Err(error) => {
                    // The end was taken, too: the sender waits for that.
                    self.give_credit();
                    return (delivered, Err(error));
                }
            }
            if let Err(error) = freed {
                return (delivered, Err(error));
            }
            self.credit_if_due();
        }
        if taken > 0 {
            self.idle_polls = 0;
        } else {
            self.idle_polls = self.idle_polls.saturating_add(1);
        }
        (delivered, Ok(()))
    }

    /// Posts the slot's RECV again.
    fn free(&mut self, slot: u32) -> Result<(), ChannelError> {
        match self.post_slot(slot) {
            Ok(()) => {
                self.done.freed += 1;
                Ok(())
            }
            // Deliver what has arrived before reporting the failure: completions will report it.
            Err(PostError::Failed(_)) if self.broken.is_none() && !self.arrived.is_empty() => Ok(()),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    fn credit_if_due(&mut self) {
        if self.grant.is_some()
            || self.done.freed - self.told.freed >= self.credit_every.freed
            || self.done.taken - self.told.taken >= self.credit_every.taken
        {
            self.give_credit();
        }
    }

    /// Sends credits. What the queue does not take now goes with a later reply; a completion
    /// reports a failure.
    fn give_credit(&mut self) {
        let places = u64::from(self.layout.slots);
        if self.done.freed == self.told.freed || self.posted - self.completed >= places {
            return;
        }
        let reply = Reply {
            credit: self.done,
            grant: self.grant,
        };
        let (words, len_bytes) = reply.encode();
        let place = (self.posted % places) as usize * REPLY_BYTES;
        if self.replies.write(place, &words, &[]).is_err() {
            unreachable!("there is a place for each reply");
        }
        let pieces = [queue_pair::Piece::Registered {
            region: &self.replies,
            offset: place,
            len_bytes,
        }];
        let number = self.posted + 1;
        let request = Request {
            work: Work::Send,
            pieces: &pieces,
            number,
            is_signalled: number.is_multiple_of((places / 4).max(1)),
        };
        if self.completions.pair().post(&[request]).is_ok() {
            self.posted = number;
            self.told = self.done;
            self.grant = None;
        }
    }

    /// From now on the peer can't write a landing, whatever was granted.
    fn close(&self) {
        #[allow(unsafe_code)]
        // SAFETY: this end posts no more: it has failed or is being dropped.
        unsafe {
            self.completions.pair().close();
        }
    }
}

impl Drop for SendReceiver {
    fn drop(&mut self) {
        self.close();
    }
}

impl Receiver for SendReceiver {
    fn acknowledge(&mut self) {
        self.give_credit();
    }

    fn poll(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<usize, ChannelError> {
        if let Some(failure) = &self.failure {
            return Err(again(failure));
        }
        let (delivered, mut result) = self.take(sink, budget);
        let is_idle = self.idle_polls >= CREDITS_AFTER_POLLS || self.lane.is_about_to_sleep();
        if result.is_ok() && (self.grant.is_some() || is_idle) {
            self.give_credit();
        }
        if let Err(error) = &result {
            let was_granted = matches!(self.state, State::Granted(_));
            if was_granted {
                // Before the sink may give the place to another message.
                self.close();
            }
            if was_granted || matches!(self.state, State::Landing(..)) {
                sink.abandon();
                self.state = State::Between;
            }
            self.failure = Some(again(error));
            if delivered > 0 {
                result = Ok(());
            }
        }
        result.map(|()| delivered)
    }

    fn copied(&self) -> Option<u64> {
        Some(self.copied)
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Doorbell
    }
}
