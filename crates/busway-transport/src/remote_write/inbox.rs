//! Takes messages of any length out of a ring and places them where a sink says: the counterpart of
//! [`super::outbox`].
//!
//! Contract: the ring is hostile: a head or piece that does not fit ends the channel. The last
//! entry of a message is released only after the sink has the message, so a credit acknowledges it.
//! Called by the two receivers, on a lane. Does not allocate.
//!
//! A window on a PCI function may read all ones from one load to the next. So an entry counts only
//! if its commit word is unchanged after the copy.

use busway_core::ring::RingConsumer;

use super::RemoteAccess;
use super::credit_writer::CreditWriter;
use crate::contract::{ChannelError, HEAD_BYTES, Head, Landing, Sink, Verdict};

/// A message of which some entries have not been taken.
#[derive(Clone, Copy, Debug)]
struct Open {
    head: Head,
    total_bytes: u64,
    done_bytes: u64,
    /// Whether it lands; otherwise its bytes are thrown away.
    lands: bool,
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There was nothing.
    Empty,
    /// The sink can't take the message yet.
    Later,
    /// An entry was taken, and the message continues.
    Piece,
    /// A message was delivered.
    Delivered,
    /// A message was thrown away.
    Discarded,
}

/// The receiving half of a ring of messages.
#[derive(Debug)]
pub struct Inbox<A: RemoteAccess> {
    ring: RingConsumer<CreditWriter<A>>,
    open: Option<Open>,
    /// Messages landed since the beginning: each was copied once.
    landed: u64,
    failed: Option<&'static str>,
}

impl<A: RemoteAccess> Inbox<A> {
    pub fn new(ring: RingConsumer<CreditWriter<A>>) -> Inbox<A> {
        Inbox {
            ring,
            open: None,
            landed: 0,
            failed: None,
        }
    }

    /// Whether a message is half taken.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Messages landed since the beginning.
    pub fn landed(&self) -> u64 {
        self.landed
    }

    /// How far this end has come, see [`super::Waker`] on marks.
    pub fn mark(&self) -> u64 {
        self.ring.position().line
    }

    /// Discards an incomplete message of which no more will arrive.
    pub fn abandon(&mut self, sink: &mut dyn Sink) {
        if self.open.take().is_some_and(|open| open.lands) {
            sink.abandon();
        }
    }

    /// Gives back the credits that are owed.
    pub fn flush_credits(&mut self) {
        // Fails once the link is down, when credits are void, or while the bus is busy: then the
        // next call writes them.
        let _ = self.ring.flush_credits();
    }

    /// Whether there is something to take.
    pub fn has_entry(&mut self) -> bool {
        // `step` reports what breaks the protocol.
        !matches!(self.ring.peek(), Ok(None))
    }

    /// Takes one entry. `wanted` decides by the mark of a message, before the sink is asked.
    ///
    /// # Errors
    /// The bytes follow no protocol; the same again at every later call.
    pub fn step(
        &mut self,
        sink: &mut dyn Sink,
        wanted: impl FnOnce(&Head, u64) -> bool,
    ) -> Result<Step, ChannelError> {
        if let Some(why) = self.failed {
            return Err(ChannelError::Corrupt(why));
        }
        match self.try_step(sink, wanted) {
            Ok(step) => Ok(step),
            Err(why) => {
                self.abandon(sink);
                self.failed = Some(why);
                Err(ChannelError::Corrupt(why))
            }
        }
    }

    fn try_step(
        &mut self,
        sink: &mut dyn Sink,
        wanted: impl FnOnce(&Head, u64) -> bool,
    ) -> Result<Step, &'static str> {
        let entry = match self.ring.peek() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(Step::Empty),
            Err(_) => return Err("a ring entry with an impossible length or place"),
        };
        let mut open = match self.open {
            Some(open) => open,
            None => {
                let mut head = [0; HEAD_BYTES];
                self.ring
                    .copy(0, &mut head)
                    .map_err(|_| "a ring entry shorter than a head")?;
                let head = Head::decode(&head).ok_or("a head of unknown kind")?;
                let total_bytes = head.total_bytes().ok_or("a head with impossible lengths")?;
                let lands = if wanted(&head, entry.time_ns) {
                    match sink.land(&head) {
                        Verdict::Land => true,
                        Verdict::Discard => false,
                        Verdict::Later => return Ok(Step::Later),
                    }
                } else {
                    false
                };
                Open {
                    head,
                    total_bytes,
                    done_bytes: 0,
                    lands,
                }
            }
        };
        // From here on an error must abandon what the sink has begun.
        self.open = Some(open);
        let piece_bytes = entry.len_bytes as u64;
        if piece_bytes == 0 || piece_bytes > open.total_bytes - open.done_bytes {
            return Err("a piece that exceeds its message");
        }
        if open.lands {
            self.land(&open, piece_bytes, sink)?;
        }
        if !self.ring.stands() {
            return Err("memory that is not what it was a moment ago");
        }
        open.done_bytes += piece_bytes;
        let is_whole = open.done_bytes == open.total_bytes;
        if is_whole && open.lands {
            sink.deliver(&open.head);
            self.landed += 1;
        }
        self.open = (!is_whole).then_some(open);
        // Fails only where credits can't be written any more; the entry is released all the same.
        let _ = self.ring.release();
        Ok(match (is_whole, open.lands) {
            (false, _) => Step::Piece,
            (true, true) => Step::Delivered,
            (true, false) => Step::Discarded,
        })
    }

    /// Copies the front entry, the next `piece_bytes` bytes of `open`, into the landing place.
    fn land(&mut self, open: &Open, piece_bytes: u64, sink: &mut dyn Sink) -> Result<(), &'static str> {
        let Landing { user_header, payload } = sink.landing();
        if user_header.len() as u64 != u64::from(open.head.user_header_bytes)
            || payload.len() as u64 != open.head.payload_bytes
        {
            return Err("a landing place whose lengths are not those of the head");
        }
        // All numbers are below the length of the landing place now, so they fit a usize.
        let from = open.done_bytes as usize;
        let to = from + piece_bytes as usize;
        let mut start = HEAD_BYTES;
        for part in [user_header, payload] {
            let end = start + part.len();
            let (begin, stop) = (from.clamp(start, end), to.clamp(start, end));
            if begin < stop {
                self.ring
                    .copy(begin - from, &mut part[begin - start..stop - start])
                    .map_err(|_| "a piece shorter than its ring entry says")?;
            }
            start = end;
        }
        Ok(())
    }
}
