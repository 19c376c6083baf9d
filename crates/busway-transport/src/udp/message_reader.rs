//! Takes the stream of a channel apart into messages, which land where the sink wants them.
//!
//! Bytes come in order, in pieces of any length. A message that is not complete can be abandoned.
//! Nothing here allocates, locks or waits.

use crate::contract::{ChannelError, HEAD_BYTES, Head, Sink, Verdict};
use crate::stream::rest_of;

#[derive(Clone, Copy, Debug)]
enum State {
    /// To a head; this many of its bytes have arrived.
    Head(usize),
    /// To this message; this many bytes of user header and payload have landed.
    Landing(Head, usize),
    /// To a discarded message; the bytes still to come.
    Discarding(u64),
}

#[derive(Debug)]
pub(super) struct MessageReader {
    state: State,
    head: [u8; HEAD_BYTES],
    /// Messages that the sink has taken or that were abandoned.
    pub(super) taken: u64,
}

/// What one poll may still take.
pub(super) struct Budget {
    /// Messages, delivered or discarded.
    pub(super) left: usize,
    pub(super) delivered: usize,
    /// The sink has answered [`Verdict::Later`].
    pub(super) is_put_off: bool,
}

impl Budget {
    pub(super) fn new(messages: usize) -> Budget {
        Budget {
            left: messages,
            delivered: 0,
            is_put_off: false,
        }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left == 0 || self.is_put_off
    }
}

impl MessageReader {
    pub(super) fn new() -> MessageReader {
        MessageReader {
            state: State::Head(0),
            head: [0; HEAD_BYTES],
            taken: 0,
        }
    }

    pub(super) fn is_between(&self) -> bool {
        matches!(self.state, State::Head(0))
    }

    /// Uses bytes until none are left or the budget is spent; returns how many.
    ///
    /// # Errors
    /// The bytes are no messages.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        sink: &mut dyn Sink,
        budget: &mut Budget,
    ) -> Result<usize, ChannelError> {
        if budget.is_spent() {
            return Ok(0);
        }
        let mut rest = bytes;
        loop {
            match &mut self.state {
                State::Head(there) => {
                    if budget.is_spent() {
                        break;
                    }
                    let (part, after) = rest.split_at(rest.len().min(HEAD_BYTES - *there));
                    self.head[*there..*there + part.len()].copy_from_slice(part);
                    *there += part.len();
                    rest = after;
                    if *there < HEAD_BYTES || !self.land(sink, budget)? {
                        break;
                    }
                }
                State::Landing(head, landed_bytes) => {
                    let mut is_whole = true;
                    for place in rest_of(sink.landing(), head, *landed_bytes)? {
                        let (part, after) = rest.split_at(rest.len().min(place.len()));
                        place[..part.len()].copy_from_slice(part);
                        is_whole &= part.len() == place.len();
                        *landed_bytes += part.len();
                        rest = after;
                    }
                    if !is_whole {
                        break;
                    }
                    sink.deliver(head);
                    budget.delivered += 1;
                    self.is_done(budget);
                }
                State::Discarding(left_bytes) => {
                    let part = usize::try_from(*left_bytes).map_or(rest.len(), |left| left.min(rest.len()));
                    rest = &rest[part..];
                    *left_bytes -= part as u64;
                    if *left_bytes > 0 {
                        break;
                    }
                    self.is_done(budget);
                }
            }
        }
        Ok(bytes.len() - rest.len())
    }

    /// Asks the sink about the message whose head is complete. False: the sink wants it later.
    fn land(&mut self, sink: &mut dyn Sink, budget: &mut Budget) -> Result<bool, ChannelError> {
        let head = Head::decode(&self.head).ok_or(ChannelError::Corrupt("a head of unknown kind"))?;
        let total_bytes = head
            .total_bytes()
            .ok_or(ChannelError::Corrupt("a head whose lengths overflow"))?;
        self.state = match sink.land(&head) {
            Verdict::Later => {
                budget.is_put_off = true;
                return Ok(false);
            }
            Verdict::Land => State::Landing(head, 0),
            Verdict::Discard => State::Discarding(total_bytes - HEAD_BYTES as u64),
        };
        Ok(true)
    }

    fn is_done(&mut self, budget: &mut Budget) {
        self.state = State::Head(0);
        // The number after a gap is the peer's.
        self.taken = self.taken.wrapping_add(1);
        budget.left -= 1;
    }

    /// Abandons the message in progress; the stream continues at another head.
    pub(super) fn abandon(&mut self, sink: &mut dyn Sink) {
        if let State::Landing(..) = self.state {
            sink.abandon();
        }
        self.state = State::Head(0);
    }
}
