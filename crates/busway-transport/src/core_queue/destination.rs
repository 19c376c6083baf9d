//! The receiving end: messages of a core to this host.
//!
//! Contract: see [`super`]. Called by the lane that owns it. The ring's consumer checks what the
//! core wrote.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use busway_core::ring::{CREDIT_BYTES, Layout, Message as Front, Position, RingConsumer};
use busway_core::{OutOfBounds, RemoteWrite, Window};

use super::{END_BYTES, Ends, Meeting, Tally, start, too_short};
use crate::contract::{ChannelError, Head, Kind, Receiver, Sink, Verdict, WaitFor};

/// See the module.
#[derive(Debug)]
pub struct Destination {
    layout: Layout,
    meeting: Meeting,
    /// Of the source's session that was answered last.
    consumer: Option<RingConsumer<Window>>,
    /// Where that began; names the pair of sessions, as the origin of its messages.
    start: u64,
    tally: Arc<Tally>,
}

impl Destination {
    /// Resumes where the previous process stopped, if both ends are as it left them; otherwise
    /// begins `session`, which is not 0 and was not used before. `is_fresh` forbids resuming, after
    /// a failure.
    ///
    /// # Errors
    /// [`OutOfBounds`] if a part is shorter than the layout needs.
    pub fn new(
        ends: Ends,
        layout: Layout,
        session: u64,
        is_fresh: bool,
        tally: Arc<Tally>,
    ) -> Result<Destination, OutOfBounds> {
        // So that nothing that follows can fail.
        ends.other.sub(END_BYTES, layout.required_bytes())?;
        ends.own.sub(END_BYTES, CREDIT_BYTES)?;
        let former = if is_fresh { None } else { Meeting::resume(&ends)? };
        let is_resumed = former.is_some();
        let meeting = match former {
            Some(meeting) => meeting,
            None => Meeting::new(ends, session.max(1))?,
        };
        let mut destination = Destination {
            layout,
            meeting,
            consumer: None,
            start: 0,
            tally,
        };
        if is_resumed {
            destination.resume()?;
        }
        Ok(destination)
    }

    /// Takes the ring over behind the last credits.
    fn resume(&mut self) -> Result<(), OutOfBounds> {
        let (ring, credit) = self.parts()?;
        // The credit words as `busway_core::ring` lays them out: lines, then data.
        let position = Position {
            line: credit.load(0)?,
            data: credit.load(8)?,
        };
        self.start = start(self.meeting.answered, self.meeting.session);
        self.consumer = RingConsumer::resume(ring, self.layout, position, credit).ok();
        Ok(())
    }

    fn parts(&self) -> Result<(Window, Window), OutOfBounds> {
        let ends = &self.meeting.ends;
        let ring = ends.other.sub(END_BYTES, self.layout.required_bytes())?;
        Ok((ring, ends.own.sub(END_BYTES, CREDIT_BYTES)?))
    }

    /// Begins the ring of another session of the source.
    fn meet(&mut self, other: u64) -> Result<(), OutOfBounds> {
        let (ring, mut credit) = self.parts()?;
        self.start = start(other, self.meeting.session);
        // Before the echo, since the source uses the credits from then on. The memory is long
        // enough.
        let _ = self.layout.prepare_credits(&mut credit, self.start);
        credit.fence();
        self.consumer = RingConsumer::new(ring, self.layout, self.start, credit).ok();
        self.tally.meetings.fetch_add(1, Ordering::Relaxed);
        self.meeting.answer(other)
    }

    /// The message at the front, if there is one.
    fn front(&mut self) -> Result<Option<Front>, ChannelError> {
        let Some(consumer) = &mut self.consumer else {
            return Ok(None);
        };
        consumer.peek().map_err(|_| {
            ChannelError::Corrupt("the core's ring holds what its source would not have written")
        })
    }

    /// Gives the front message to `sink`; false if the sink can't take it yet.
    fn give(&mut self, front: Front, sink: &mut dyn Sink) -> Result<bool, ChannelError> {
        let Some(consumer) = &mut self.consumer else {
            return Ok(false);
        };
        let head = Head {
            sequence: consumer.position().line.wrapping_sub(self.start).wrapping_add(1),
            origin: self.start.max(1),
            time_ns: front.time_ns,
            payload_bytes: front.len_bytes as u64,
            events: 0,
            user_header_bytes: 0,
            kind: Kind::Data,
        };
        match sink.land(&head) {
            Verdict::Later => return Ok(false),
            Verdict::Discard => {}
            Verdict::Land => {
                consumer.copy(0, sink.landing().payload).map_err(too_short)?;
                sink.deliver(&head);
            }
        }
        let released = consumer.release();
        released.map_err(|_| ChannelError::Corrupt("the window ends before the credits do"))?;
        Ok(true)
    }
}

impl Receiver for Destination {
    fn poll(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<usize, ChannelError> {
        let other = self.meeting.other().map_err(too_short)?;
        let is_new = other != 0 && other != self.meeting.answered;
        let mut moved = 0;
        while moved < budget {
            let front = match self.front() {
                // The new session makes the ring whole again.
                Err(_) if is_new => None,
                front => front?,
            };
            let Some(front) = front else {
                if is_new {
                    self.meet(other).map_err(too_short)?;
                }
                break;
            };
            if !self.give(front, sink)? {
                break;
            }
            moved += 1;
        }
        if let Some(consumer) = self.consumer.as_mut().filter(|_| moved < budget) {
            // The ring is empty: return all credits. The memory is long enough.
            let _ = consumer.flush_credits();
        }
        Ok(moved)
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Poll
    }
}
