//! The Linux ends of a queuing channel to a core that runs `port.h`.
//!
//! Contract: as `c/include/busway/port.h` describes the place of a queuing channel: a line in each direction with session, echo and
//! key, behind the source's line the ring, behind the destination's the credits. No call waits. Called by tests.

use busway_core::ring::{CREDIT_BYTES, Layout, PushError, RingConsumer, RingProducer};
use busway_core::{LINE_BYTES, OutOfBounds, RemoteWrite, Window};

use crate::Status;

const SESSION: usize = 0;
const ECHO: usize = 8;
const KEY: usize = 16;

/// What the ends do to find each other.
#[derive(Debug)]
struct Meeting {
    own: Window,
    other: Window,
    key: u64,
    session: u64,
    /// The other end's session as it was answered; 0 for none.
    answered: u64,
}

impl Meeting {
    fn new(own: Window, other: Window, key: u64, session: u64) -> Result<Self, OutOfBounds> {
        let mut meeting = Self {
            own,
            other,
            key,
            session,
            answered: 0,
        };
        meeting.tell(ECHO, 0)?;
        meeting.tell(KEY, key)?;
        meeting.tell(SESSION, session)?;
        Ok(meeting)
    }

    /// Stores a word after everything before it. Partner: the fence behind the other end's load.
    fn tell(&mut self, at: usize, word: u64) -> Result<(), OutOfBounds> {
        self.own.write_fence();
        self.own.store(at, word)
    }

    /// The other end's session; 0 if there is none of this channel.
    fn other(&self) -> Result<u64, OutOfBounds> {
        let session = self.other.load_acquire(SESSION)?;
        let is_ours = self.other.load_acquire(KEY)? == self.key;
        Ok(if is_ours { session } else { 0 })
    }

    fn answer(&mut self, session: u64) -> Result<(), OutOfBounds> {
        self.answered = session;
        self.tell(ECHO, session)
    }
}

/// First position of the ring between two sessions.
fn start(source: u64, destination: u64) -> u64 {
    source.rotate_left(23) ^ destination.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The source end.
#[derive(Debug)]
pub struct QueuingSource {
    layout: Layout,
    meeting: Meeting,
    /// While the destination is there.
    producer: Option<RingProducer<Window>>,
}

impl QueuingSource {
    /// Of the channel whose source's part begins with `own` and whose destination's with `other`.
    ///
    /// # Errors
    /// [`OutOfBounds`] if one of them is shorter than a line.
    pub fn new(
        own: Window,
        other: Window,
        layout: Layout,
        key: u64,
        session: u64,
    ) -> Result<Self, OutOfBounds> {
        let meeting = Meeting::new(own, other, key, session)?;
        Ok(Self {
            layout,
            meeting,
            producer: None,
        })
    }

    /// Sends a message: [`Status::Ok`], [`Status::Full`], [`Status::TooLong`], or [`Status::Empty`] while there is no destination.
    ///
    /// # Errors
    /// [`OutOfBounds`] if the memory is shorter than the layout.
    ///
    /// # Panics
    /// If the memory is shorter than the layout.
    pub fn send(&mut self, message: &[u8], time_ns: u64) -> Result<Status, OutOfBounds> {
        let other = self.meeting.other()?;
        if other == 0 || self.meeting.other.load_acquire(ECHO)? != self.meeting.session {
            self.meeting.answered = 0;
            self.producer = None;
            return Ok(Status::Empty);
        }
        if other != self.meeting.answered {
            let ring = self.meeting.own.sub(LINE_BYTES, self.layout.required_bytes())?;
            let credit = self.meeting.other.sub(LINE_BYTES, CREDIT_BYTES)?;
            let start = start(self.meeting.session, other);
            self.producer = RingProducer::new(ring, self.layout, start, credit).ok();
            self.meeting.answer(other)?;
        }
        let producer = self.producer.as_mut().expect("the memory fits the layout");
        Ok(match producer.push(&[message], time_ns) {
            Ok(()) => Status::Ok,
            Err(PushError::TooLong { .. }) => Status::TooLong,
            Err(_) => Status::Full,
        })
    }
}

/// The destination end.
#[derive(Debug)]
pub struct QueuingDestination {
    layout: Layout,
    meeting: Meeting,
    /// While the source is there.
    consumer: Option<RingConsumer<Window>>,
}

impl QueuingDestination {
    /// Of the channel whose destination's part begins with `own` and whose source's with `other`.
    ///
    /// # Errors
    /// [`OutOfBounds`] if one of them is shorter than a line.
    pub fn new(
        own: Window,
        other: Window,
        layout: Layout,
        key: u64,
        session: u64,
    ) -> Result<Self, OutOfBounds> {
        let meeting = Meeting::new(own, other, key, session)?;
        Ok(Self {
            layout,
            meeting,
            consumer: None,
        })
    }

    /// The next message; `None` if none has come or there is no source.
    ///
    /// # Errors
    /// [`OutOfBounds`] if the memory is shorter than the layout.
    ///
    /// # Panics
    /// If the source breaks the protocol.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, OutOfBounds> {
        let other = self.meeting.other()?;
        if other == 0 {
            return Ok(None);
        }
        if other != self.meeting.answered {
            let ring = self.meeting.other.sub(LINE_BYTES, self.layout.required_bytes())?;
            let mut credit = self.meeting.own.sub(LINE_BYTES, CREDIT_BYTES)?;
            let start = start(other, self.meeting.session);
            // The source believes credits from the moment it is answered.
            let prepared = self.layout.prepare_credits(&mut credit, start);
            prepared.expect("the memory fits the layout");
            credit.fence();
            self.consumer = RingConsumer::new(ring, self.layout, start, credit).ok();
            self.meeting.answer(other)?;
        }
        let consumer = self.consumer.as_mut().expect("the memory fits the layout");
        let Some(message) = consumer.peek().expect("a source that keeps the protocol") else {
            consumer.flush_credits().expect("the memory fits the layout");
            return Ok(None);
        };
        let mut bytes = vec![0; message.len_bytes];
        consumer.copy(0, &mut bytes)?;
        consumer.release().expect("the memory fits the layout");
        Ok(Some(bytes))
    }
}
