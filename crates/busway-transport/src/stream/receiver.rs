//! The receiving end of a channel: reads a stream of messages, large ones straight into the
//! landing.
//!
//! It reads into a staging buffer and copies from there to the landing. It reads the rest of a
//! message that is not whole straight into the landing, together with the start of what follows.
//! Counts of messages taken go back over the same connection. Used by one lane; nothing here
//! allocates after [`StreamReceiver::new`], locks or waits.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use super::bus::Socket;
use super::io::END_MARK;
use crate::contract::{ChannelError, HEAD_BYTES, Head, Keep, Landing, Receiver, Sink, Verdict, WaitFor};

/// Size of the staging buffer in bytes.
const STAGING_BYTES: usize = 256 * 1024;
/// After a message longer than this, only the next head and a little more go into staging, so that
/// the bulk of an equally long message goes straight to its landing.
const DIRECT_BYTES: u64 = 16 * 1024;
/// What is read into staging beside such messages.
const AHEAD_BYTES: usize = 1024;
/// Up to this depth every poll returns its credits: without them the sender would soon stop.
const SHALLOW_DEPTH: u64 = 8;
/// After this many polls without a message the last credits are returned, however few.
const IDLE_POLLS: u32 = 16;

/// Where in the stream the next byte belongs.
enum State {
    /// To a head.
    Head,
    /// To this message, of which this many bytes (user header and payload) have landed.
    Landing(Head, usize),
    /// To a discarded message: the bytes still to come.
    Discarding(u64),
}

/// What became of one step.
enum Step {
    /// A message was delivered.
    Delivered,
    /// A message was discarded.
    Discarded,
    /// More bytes are needed.
    Hungry,
    /// The sink answered [`Verdict::Later`].
    Later,
}

/// The receiving end of a channel over a connection.
pub(super) struct StreamReceiver<S: Socket> {
    socket: Arc<S>,
    state: State,
    staging: Box<[u8]>,
    /// `staging[start..end]` is read and not used.
    start: usize,
    end: usize,
    /// Size of the last message in bytes, which decides how much to read ahead.
    last_bytes: u64,
    /// Messages taken by the sink (delivered or discarded).
    taken: u64,
    /// The part of `taken` that was reported to the sender.
    credited: u64,
    /// Credits are given back at the latest when this many are due.
    credit_every: u64,
    shallow: bool,
    idle_polls: u32,
    /// Rest of a credit that the socket did not take: the last `credit_rest` bytes of `credit`.
    credit: [u8; 8],
    credit_rest: usize,
    failure: Option<ChannelError>,
}

impl<S: Socket> StreamReceiver<S> {
    pub(super) fn new(socket: Arc<S>, keep: Keep) -> Self {
        let depth = match keep {
            Keep::Latest => 1,
            Keep::All { depth } => u64::from(depth.max(1)),
        };
        StreamReceiver {
            socket,
            state: State::Head,
            staging: vec![0; STAGING_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            last_bytes: 0,
            taken: 0,
            credited: 0,
            credit_every: (depth / 4).max(1),
            shallow: depth <= SHALLOW_DEPTH,
            idle_polls: 0,
            credit: [0; 8],
            credit_rest: 0,
            failure: None,
        }
    }

    /// Uses staged bytes for one message.
    fn step(&mut self, sink: &mut dyn Sink) -> Result<Step, ChannelError> {
        if let State::Head = self.state {
            let Some(bytes) = self.staging[self.start..self.end].first_chunk::<HEAD_BYTES>() else {
                return Ok(Step::Hungry);
            };
            let Some(head) = Head::decode(bytes) else {
                return Err(if *bytes == END_MARK {
                    ChannelError::Closed
                } else {
                    ChannelError::Corrupt("a head of unknown kind")
                });
            };
            let Some(total_bytes) = head.total_bytes() else {
                return Err(ChannelError::Corrupt("a head whose lengths overflow"));
            };
            self.state = match sink.land(&head) {
                Verdict::Later => return Ok(Step::Later),
                Verdict::Land => State::Landing(head, 0),
                Verdict::Discard => State::Discarding(total_bytes - HEAD_BYTES as u64),
            };
            self.start += HEAD_BYTES;
            self.last_bytes = total_bytes;
        }
        match &mut self.state {
            State::Head => Ok(Step::Hungry),
            State::Landing(head, landed_bytes) => {
                let [user_header, payload] = rest_of(sink.landing(), head, *landed_bytes)?;
                let rest_bytes = user_header.len() + payload.len();
                let mut used_bytes = 0;
                for place in [user_header, payload] {
                    let bytes = place.len().min(self.end - self.start);
                    place[..bytes].copy_from_slice(&self.staging[self.start..self.start + bytes]);
                    self.start += bytes;
                    used_bytes += bytes;
                }
                *landed_bytes += used_bytes;
                if used_bytes < rest_bytes {
                    return Ok(Step::Hungry);
                }
                sink.deliver(head);
                self.state = State::Head;
                Ok(Step::Delivered)
            }
            State::Discarding(left_bytes) => {
                let staged_bytes = self.end - self.start;
                let bytes = usize::try_from(*left_bytes).map_or(staged_bytes, |left| left.min(staged_bytes));
                self.start += bytes;
                *left_bytes -= bytes as u64;
                if *left_bytes > 0 {
                    return Ok(Step::Hungry);
                }
                self.state = State::Head;
                Ok(Step::Discarded)
            }
        }
    }

    /// Reads what is there: into the landing of the message in progress first, then into staging.
    /// Returns whether there may be more, or `None` if nothing came.
    fn fill(&mut self, sink: &mut dyn Sink) -> Result<Option<bool>, ChannelError> {
        // Every step uses staging up, or leaves part of a head.
        self.staging.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let ahead_bytes = if self.last_bytes > DIRECT_BYTES && !matches!(self.state, State::Discarding(_)) {
            AHEAD_BYTES
        } else {
            STAGING_BYTES
        };
        let staging = &mut self.staging[self.end..ahead_bytes];
        let staging_bytes = staging.len();
        let State::Landing(head, landed_bytes) = &mut self.state else {
            return match self.socket.read(staging)? {
                None => Ok(None),
                Some(0) => Err(ended_early()),
                Some(bytes) => {
                    self.end += bytes;
                    Ok(Some(bytes == staging_bytes))
                }
            };
        };
        let [user_header, payload] = rest_of(sink.landing(), head, *landed_bytes)?;
        let rest_bytes = user_header.len() + payload.len();
        let mut slices = [
            IoSliceMut::new(user_header),
            IoSliceMut::new(payload),
            IoSliceMut::new(staging),
        ];
        match self.socket.read_vectored(&mut slices)? {
            None => Ok(None),
            Some(0) => Err(ended_early()),
            Some(bytes) => {
                *landed_bytes += bytes.min(rest_bytes);
                self.end += bytes.saturating_sub(rest_bytes);
                Ok(Some(bytes == rest_bytes + staging_bytes))
            }
        }
    }

    /// Moves messages into the sink until there are no more, or the budget is used up.
    fn take(&mut self, sink: &mut dyn Sink, budget: usize) -> (usize, Result<(), ChannelError>) {
        let (mut delivered, mut discarded) = (0, 0);
        let mut may_be_more = true;
        while delivered + discarded < budget {
            match self.step(sink) {
                Ok(Step::Delivered) => delivered += 1,
                Ok(Step::Discarded) => discarded += 1,
                Ok(Step::Later) => break,
                Ok(Step::Hungry) if !may_be_more => break,
                Ok(Step::Hungry) => {
                    match self.fill(sink) {
                        Ok(Some(more)) => may_be_more = more,
                        Ok(None) => break,
                        Err(error) => return (delivered, Err(error)),
                    }
                    continue;
                }
                Err(error) => return (delivered, Err(error)),
            }
            self.taken += 1;
            self.idle_polls = 0;
            if self.taken - self.credited >= self.credit_every {
                // A sender that is gone needs no credit; what it sent before is still to be read.
                let _ = self.give_credits();
            }
        }
        if delivered + discarded == 0 {
            self.idle_polls = self.idle_polls.saturating_add(1);
        }
        (delivered, Ok(()))
    }

    /// Sends the count of messages taken. What the socket refuses now goes with a later count.
    fn give_credits(&mut self) -> Result<(), ChannelError> {
        while self.credit_rest > 0 || self.credited < self.taken {
            if self.credit_rest == 0 {
                self.credit = self.taken.to_le_bytes();
                self.credit_rest = self.credit.len();
                self.credited = self.taken;
            }
            let rest = &self.credit[self.credit.len() - self.credit_rest..];
            match self.socket.write(&[IoSlice::new(rest)])? {
                Some(bytes) => self.credit_rest -= bytes,
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

impl<S: Socket> Receiver for StreamReceiver<S> {
    fn acknowledge(&mut self) {
        // A sender that is gone needs none.
        let _ = self.give_credits();
    }

    fn poll(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<usize, ChannelError> {
        if let Some(failure) = &self.failure {
            return Err(super::io::again(failure));
        }
        let (delivered, mut result) = self.take(sink, budget);
        if result.is_ok() && (self.shallow || self.idle_polls >= IDLE_POLLS) {
            let _ = self.give_credits();
        }
        if let Err(error) = &result {
            if let State::Landing(..) = self.state {
                sink.abandon();
                self.state = State::Head;
            }
            self.failure = Some(super::io::again(error));
            if delivered > 0 {
                result = Ok(());
            }
        }
        result.map(|()| delivered)
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Fd {
            fd: self.socket.as_fd().as_raw_fd(),
            writable: false,
        }
    }
}

/// The parts of a landing that are still to be filled.
pub(crate) fn rest_of<'a>(
    landing: Landing<'a>,
    head: &Head,
    landed_bytes: usize,
) -> Result<[&'a mut [u8]; 2], ChannelError> {
    let Landing { user_header, payload } = landing;
    if user_header.len() as u64 != u64::from(head.user_header_bytes)
        || payload.len() as u64 != head.payload_bytes
    {
        return Err(ChannelError::Corrupt(
            "the sink's place is not as long as the message",
        ));
    }
    let in_user_header = landed_bytes.min(user_header.len());
    Ok([
        &mut user_header[in_user_header..],
        &mut payload[landed_bytes - in_user_header..],
    ])
}

fn ended_early() -> ChannelError {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the connection ended without the channel's end mark",
    )
    .into()
}
