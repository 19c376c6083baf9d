//! The sending end: messages of this host to a core.
//!
//! Contract: see [`super`]. Called by the lane that owns it. A message counts as sent once it is in
//! the ring: what a restarted core had not taken is counted as lost, never sent again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use busway_core::ring::{CREDIT_BYTES, Layout, PushError, RingProducer};
use busway_core::{OutOfBounds, Window};

use super::{ECHO, END_BYTES, Ends, Meeting, Tally, start, too_short};
use crate::contract::{ChannelError, Flushed, Message, Refused, Sender, WaitFor};

/// See the module.
#[derive(Debug)]
pub struct Source {
    layout: Layout,
    meeting: Meeting,
    /// While the core is there.
    producer: Option<RingProducer<Window>>,
    pub(super) tally: Arc<Tally>,
}

impl Source {
    /// Starts a session of this end, `session`, which is not 0 and no former one.
    ///
    /// # Errors
    /// [`OutOfBounds`] if a part is shorter than the layout needs.
    pub fn new(ends: Ends, layout: Layout, session: u64, tally: Arc<Tally>) -> Result<Source, OutOfBounds> {
        // So that nothing that follows can fail.
        ends.own.sub(END_BYTES, layout.required_bytes())?;
        ends.other.sub(END_BYTES, CREDIT_BYTES)?;
        Ok(Source {
            layout,
            meeting: Meeting::new(ends, session.max(1))?,
            producer: None,
            tally,
        })
    }

    /// Checks whether the core echoes this session, and begins the ring again if the core
    /// restarted.
    fn meet(&mut self) -> Result<(), OutOfBounds> {
        let other = self.meeting.other()?;
        let is_met = other != 0 && self.meeting.ends.other.load_acquire(ECHO)? == self.meeting.session;
        if is_met && other == self.meeting.answered {
            return Ok(());
        }
        if let Some(mut former) = self.producer.take() {
            // The new session may have overwritten the credits: count with those read last.
            let lost = former.unreleased() as u64;
            self.tally.lost.fetch_add(lost, Ordering::Relaxed);
            self.meeting.answered = 0;
        }
        if !is_met {
            return Ok(());
        }
        let ring = self
            .meeting
            .ends
            .own
            .sub(END_BYTES, self.layout.required_bytes())?;
        let credit = self.meeting.ends.other.sub(END_BYTES, CREDIT_BYTES)?;
        let start = start(self.meeting.session, other);
        self.producer = RingProducer::new(ring, self.layout, start, credit).ok();
        self.tally.meetings.fetch_add(1, Ordering::Relaxed);
        self.meeting.answer(other)
    }

    fn ready(&mut self) -> Result<Option<&mut RingProducer<Window>>, OutOfBounds> {
        self.meet()?;
        Ok(self.producer.as_mut())
    }
}

impl<M: Message> Sender<M> for Source {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        let limit_bytes = self.layout.max_size_bytes() as u64;
        let time_ns = message.head().time_ns;
        let Some(producer) = self.producer.as_mut() else {
            return Err(Refused::Full(message));
        };
        let staged = producer.stage(&[message.payload()], time_ns);
        match staged {
            Ok(()) => Ok(()),
            Err(PushError::TooLong { .. }) => Err(Refused::TooLong { message, limit_bytes }),
            Err(_) => Err(Refused::Full(message)),
        }
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        if let Some(producer) = self.ready().map_err(too_short)? {
            let committed = producer.commit();
            committed.map_err(|_| ChannelError::Corrupt("the window ends before the ring does"))?;
        }
        Ok(Flushed::Idle)
    }

    fn has_room(&mut self, _total_bytes: u64) -> bool {
        self.ready()
            .ok()
            .flatten()
            .is_some_and(|producer| producer.free_lines() > 0)
    }

    /// What is in the ring is the core's.
    fn outstanding(&self) -> u64 {
        self.producer
            .as_ref()
            .map_or(0, |producer| producer.staged() as u64)
    }

    fn overwritten(&self) -> u64 {
        0
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Poll
    }
}
