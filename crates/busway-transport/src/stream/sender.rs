//! The sending end of a channel: one connection, written in batches.
//!
//! It copies small messages into a batch buffer and drops them at once; it keeps larger ones and
//! writes them from where they are. One `sendmsg` sends a batch, in order. The receiver answers
//! with the cumulative count of messages that it has taken (8 bytes, little-endian), which bounds
//! how many are unacknowledged. Used by one lane; nothing here allocates after
//! [`StreamSender::new`], locks or waits.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use super::bus::Socket;
use super::inbox::{Inbox, Incoming};
use super::io::END_MARK;
use crate::contract::{ChannelError, Flushed, HEAD_BYTES, Keep, Kind, Message, Refused, Sender, WaitFor};
use crate::session::mailbox::Linger;

/// Messages up to this size in bytes, head included, are copied into the batch.
pub(super) const COPY_MAX_BYTES: usize = 16 * 1024;
/// Size of the batch buffer in bytes.
const BATCH_BYTES: usize = 256 * 1024;
/// With this many bytes queued, `send` writes by itself rather than leave it to `flush`.
const WRITE_AT_BYTES: usize = 64 * 1024;
/// Messages kept uncopied at most.
const KEPT_MAX: usize = 16;
/// With this many bytes queued the sender keeps no further message: samples that wait for the
/// socket are missing elsewhere, and leave the caches.
const KEPT_MAX_BYTES: usize = 1024 * 1024;
/// Pieces of memory handed to one system call at most.
const SLICES: usize = 48;
/// Unacknowledged messages on a channel that keeps the latest: one lands while the next crosses.
const LATEST_DEPTH: u64 = 2;

/// A run of the byte stream that waits for the socket.
enum Segment<M> {
    /// This many bytes of the batch buffer.
    Copied(usize),
    /// A message that stays where it is, with its encoded head.
    Kept([u8; HEAD_BYTES], M),
}

impl<M: Message> Segment<M> {
    fn bytes(&self) -> usize {
        match self {
            Segment::Copied(bytes) => *bytes,
            Segment::Kept(head, message) => {
                head.len() + message.user_header().len() + message.payload().len()
            }
        }
    }
}

/// The sending end of a channel over a connection.
pub(super) struct StreamSender<S: Socket, M: Message> {
    /// `None` only after `drop` took it.
    stream: Option<Stream<S, M>>,
    /// Where the stream goes when this end is dropped before everything has left.
    inbox: Arc<Inbox<S>>,
}

/// All state of a sending end, so that it can outlive it until the last byte has left.
struct Stream<S: Socket, M: Message> {
    socket: Arc<S>,
    keep: Keep,
    /// The most unacknowledged messages, at least 1.
    depth: u64,
    batch: Box<[u8]>,
    /// `batch[batch_start..batch_end]` is copied but not written.
    batch_start: usize,
    batch_end: usize,
    queue: VecDeque<Segment<M>>,
    /// Bytes of the queue's first segment that are written.
    front_done: usize,
    /// Bytes in the queue that are not written.
    queued_bytes: usize,
    /// [`Segment::Kept`]s in the queue.
    kept: usize,
    /// The socket took less than it was offered: don't try again before the next flush.
    blocked: bool,
    /// Messages taken into the queue since the start.
    accepted: u64,
    /// The receiver's last count of messages that it has taken.
    credited: u64,
    /// Start of a credit whose rest has not arrived.
    credit_part: [u8; 8],
    credit_part_bytes: usize,
    /// The message that waits for a credit on a channel that keeps the latest.
    pending: Option<M>,
    overwritten: u64,
    failure: Option<ChannelError>,
}

impl<S: Socket, M: Message> StreamSender<S, M> {
    pub(super) fn new(socket: Arc<S>, keep: Keep, inbox: Arc<Inbox<S>>) -> Self {
        let depth = match keep {
            Keep::Latest => LATEST_DEPTH,
            Keep::All { depth } => u64::from(depth.max(1)),
        };
        StreamSender {
            stream: Some(Stream {
                socket,
                keep,
                depth,
                batch: vec![0; BATCH_BYTES].into_boxed_slice(),
                batch_start: 0,
                batch_end: 0,
                // Copied runs and kept messages alternate at worst, and the end mark may follow.
                queue: VecDeque::with_capacity(2 * KEPT_MAX + 2),
                front_done: 0,
                queued_bytes: 0,
                kept: 0,
                blocked: false,
                accepted: 0,
                credited: 0,
                credit_part: [0; 8],
                credit_part_bytes: 0,
                pending: None,
                overwritten: 0,
                failure: None,
            }),
            inbox,
        }
    }

    fn stream(&mut self) -> &mut Stream<S, M> {
        self.stream.as_mut().expect("only drop takes the stream")
    }
}

impl<S: Socket, M: Message> Sender<M> for StreamSender<S, M> {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        self.stream().send(message)
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        self.stream().flush()
    }

    fn has_room(&mut self, total_bytes: u64) -> bool {
        self.stream().has_room(total_bytes)
    }

    fn outstanding(&self) -> u64 {
        self.stream.as_ref().map_or(0, |stream| {
            stream.outstanding() + u64::from(stream.pending.is_some())
        })
    }

    fn overwritten(&self) -> u64 {
        self.stream.as_ref().map_or(0, |stream| stream.overwritten)
    }

    fn wait_for(&self) -> WaitFor {
        self.stream.as_ref().map_or(WaitFor::Poll, |stream| WaitFor::Fd {
            fd: stream.socket.as_fd().as_raw_fd(),
            writable: !stream.queue.is_empty(),
        })
    }
}

impl<S: Socket, M: Message> Drop for StreamSender<S, M> {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        if stream.failure.is_none() && !stream.finish() {
            self.inbox.put(Incoming::Linger(Box::new(stream)));
        }
    }
}

impl<S: Socket, M: Message> Stream<S, M> {
    fn outstanding(&self) -> u64 {
        self.accepted - self.credited
    }

    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        if let Some(failure) = &self.failure {
            return Err(Refused::Failed(message, super::io::again(failure)));
        }
        if self.keep == Keep::Latest && (self.pending.is_some() || self.outstanding() >= self.depth) {
            if message.head().kind != Kind::Data {
                // Events replace no message: they wait until there is credit.
                return Err(Refused::Full(message));
            }
            self.overwritten += u64::from(self.pending.replace(message).is_some());
            return Ok(());
        }
        let total_bytes = segment_bytes(&message);
        if !self.make_room(total_bytes) {
            return Err(match &self.failure {
                Some(failure) => Refused::Failed(message, super::io::again(failure)),
                None => Refused::Full(message),
            });
        }
        self.enqueue(message, total_bytes);
        if self.queued_bytes >= WRITE_AT_BYTES && !self.blocked {
            // A failure is kept and reported by the next call: this message was taken.
            let _ = self.write();
        }
        Ok(())
    }

    fn has_room(&mut self, total_bytes: u64) -> bool {
        if self.keep == Keep::Latest {
            return true;
        }
        self.make_room(usize::try_from(total_bytes).unwrap_or(usize::MAX))
    }

    /// Whether a message of this size can be taken now, after an attempt to make it so.
    fn make_room(&mut self, total_bytes: usize) -> bool {
        if self.outstanding() >= self.depth {
            let _ = self.read_credits();
            if self.outstanding() >= self.depth {
                return false;
            }
        }
        if !self.fits(total_bytes) {
            let _ = self.write();
        }
        self.failure.is_none() && self.fits(total_bytes)
    }

    fn fits(&self, total_bytes: usize) -> bool {
        if total_bytes <= COPY_MAX_BYTES {
            BATCH_BYTES - (self.batch_end - self.batch_start) >= total_bytes
        } else {
            self.kept < KEPT_MAX && self.queued_bytes < KEPT_MAX_BYTES
        }
    }

    /// Puts a message, for which there is room, into the queue.
    fn enqueue(&mut self, message: M, total_bytes: usize) {
        let head = message.head().encode();
        if total_bytes <= COPY_MAX_BYTES {
            self.copy([&head, message.user_header(), message.payload()], total_bytes);
        } else {
            self.queue.push_back(Segment::Kept(head, message));
            self.kept += 1;
        }
        self.queued_bytes += total_bytes;
        self.accepted += 1;
    }

    fn copy(&mut self, parts: [&[u8]; 3], total_bytes: usize) {
        if BATCH_BYTES - self.batch_end < total_bytes {
            self.batch.copy_within(self.batch_start..self.batch_end, 0);
            self.batch_end -= self.batch_start;
            self.batch_start = 0;
        }
        for part in parts {
            self.batch[self.batch_end..self.batch_end + part.len()].copy_from_slice(part);
            self.batch_end += part.len();
        }
        match self.queue.back_mut() {
            Some(Segment::Copied(bytes)) => *bytes += total_bytes,
            _ => self.queue.push_back(Segment::Copied(total_bytes)),
        }
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        if let Some(failure) = &self.failure {
            return Err(super::io::again(failure));
        }
        let had_nothing_to_write = self.queue.is_empty();
        self.write()?;
        let waits = !self.queue.is_empty() || self.pending.is_some();
        // Reads credits only when they matter: unread ones must not wake a sleeping lane again.
        if self.outstanding() > 0 && (waits || had_nothing_to_write) {
            self.read_credits()?;
        }
        if self.outstanding() < self.depth
            && let Some(message) = self.pending.take()
        {
            let total_bytes = segment_bytes(&message);
            if self.fits(total_bytes) {
                self.enqueue(message, total_bytes);
                self.write()?;
            } else {
                self.pending = Some(message);
            }
        }
        Ok(if self.queue.is_empty() && self.pending.is_none() {
            Flushed::Idle
        } else {
            Flushed::Waiting
        })
    }

    /// Writes the queue as far as the socket takes it.
    fn write(&mut self) -> Result<(), ChannelError> {
        self.blocked = false;
        while !self.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let (count, offered_bytes) = self.gather(&mut slices);
            match self.socket.write(&slices[..count]) {
                Ok(written) => {
                    let written_bytes = written.unwrap_or(0);
                    self.written(written_bytes);
                    if written_bytes < offered_bytes {
                        self.blocked = true;
                        return Ok(());
                    }
                }
                Err(error) => return self.fail(error.into()),
            }
        }
        Ok(())
    }

    /// Lists the unwritten bytes from the queue's front; returns the number of slices and of bytes.
    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES]) -> (usize, usize) {
        let (mut count, mut bytes) = (0, 0);
        let mut skip = self.front_done;
        let mut batch = &self.batch[self.batch_start..self.batch_end];
        for segment in &self.queue {
            if count + 3 > SLICES {
                break;
            }
            let parts: [&[u8]; 3] = match segment {
                Segment::Copied(length) => {
                    // The batch begins at what is not written, so there is nothing of it to skip.
                    let (run, rest) = batch.split_at(*length - std::mem::take(&mut skip));
                    batch = rest;
                    [run, &[], &[]]
                }
                Segment::Kept(head, message) => [head, message.user_header(), message.payload()],
            };
            for part in parts {
                let rest = &part[skip.min(part.len())..];
                skip -= part.len() - rest.len();
                if !rest.is_empty() {
                    slices[count] = IoSlice::new(rest);
                    count += 1;
                    bytes += rest.len();
                }
            }
        }
        (count, bytes)
    }

    /// Takes note of written bytes, and drops the messages that have left.
    fn written(&mut self, mut bytes: usize) {
        self.queued_bytes -= bytes;
        while let Some(front) = self.queue.front() {
            let step = bytes.min(front.bytes() - self.front_done);
            let is_copied = matches!(front, Segment::Copied(_));
            if is_copied {
                self.batch_start += step;
            }
            self.front_done += step;
            bytes -= step;
            if self.front_done < front.bytes() {
                break;
            }
            self.kept -= usize::from(!is_copied);
            self.queue.pop_front();
            self.front_done = 0;
        }
        if self.batch_start == self.batch_end {
            (self.batch_start, self.batch_end) = (0, 0);
        }
    }

    /// Takes in the receiver's counts of taken messages.
    fn read_credits(&mut self) -> Result<(), ChannelError> {
        let mut buffer = [0; 512];
        loop {
            let kept_bytes = self.credit_part_bytes;
            buffer[..kept_bytes].copy_from_slice(&self.credit_part[..kept_bytes]);
            let read_bytes = match self.socket.read(&mut buffer[kept_bytes..]) {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => return self.fail(ChannelError::Closed),
                Ok(Some(bytes)) => bytes,
                Err(error) => return self.fail(error.into()),
            };
            let (credits, part) = buffer[..kept_bytes + read_bytes].as_chunks::<8>();
            for credit in credits {
                let credit = u64::from_le_bytes(*credit);
                if credit < self.credited || credit > self.accepted {
                    return self.fail(ChannelError::Corrupt(
                        "a credit for messages that were never sent",
                    ));
                }
                self.credited = credit;
            }
            self.credit_part[..part.len()].copy_from_slice(part);
            self.credit_part_bytes = part.len();
            if kept_bytes + read_bytes < buffer.len() {
                return Ok(());
            }
        }
    }

    fn fail(&mut self, error: ChannelError) -> Result<(), ChannelError> {
        self.failure = Some(super::io::again(&error));
        Err(error)
    }

    /// Queues the end mark and writes; whether nothing remains to be done for this stream.
    fn finish(&mut self) -> bool {
        if let Some(message) = self.pending.take() {
            let total_bytes = segment_bytes(&message);
            self.enqueue_at_end(message, total_bytes);
        }
        if BATCH_BYTES - (self.batch_end - self.batch_start) < END_MARK.len() {
            // A torn end, which the receiver reports, is better than one that waits endlessly.
            return true;
        }
        self.copy([&END_MARK, &[], &[]], END_MARK.len());
        self.queued_bytes += END_MARK.len();
        self.pump()
    }

    fn enqueue_at_end(&mut self, message: M, total_bytes: usize) {
        if self.fits(total_bytes) {
            self.enqueue(message, total_bytes);
        } else {
            self.overwritten += 1;
        }
    }
}

impl<S: Socket, M: Message> Linger for Stream<S, M> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether everything has arrived. Closing earlier, with credits unread, makes the system
    /// discard what has not arrived.
    fn pump(&mut self) -> bool {
        if self.failure.is_none() && self.write().is_ok() && self.queue.is_empty() {
            self.socket.finish();
        }
        self.failure.is_some() || self.read_credits().is_err()
    }

    fn waits_for_room(&self) -> bool {
        !self.queue.is_empty()
    }
}

/// Bytes of a message on the wire. Its slices lie in memory, so the sum can't overflow.
pub(crate) fn segment_bytes<M: Message>(message: &M) -> usize {
    debug_assert_eq!(
        message.user_header().len() as u64,
        u64::from(message.head().user_header_bytes)
    );
    debug_assert_eq!(message.payload().len() as u64, message.head().payload_bytes);
    HEAD_BYTES + message.user_header().len() + message.payload().len()
}
