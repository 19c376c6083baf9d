//! The sending end of a channel: messages as runs of one stream of bytes, many datagrams a system call.
//!
//! What may leave when is the business of [`super::sending`]; where the bytes lie is that of [`super::outgoing`]. Datagrams are handed to the
//! kernel from where the messages lie. Their length follows the path: what EMSGSIZE refuses is cut anew, shorter, and so is
//! what vanishes without a word (RFC 8899). Used by one lane; nothing here allocates after [`UdpSender::new`], locks or waits.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use super::outgoing::Outgoing;
use super::sending::{Cut, Due, SAFE_DATAGRAM_BYTES, Sending};
use super::settings::Delivery;
use super::socket::{Arrivals, MAX_DATAGRAM_BYTES, MAX_GROUPS, MAX_SEGMENTS, UdpSocket, is_for_later};
use super::wake::{Wake, now_ns};
use super::wire::{Answer, Datagram, Purpose, RUN_BYTES, Run, decode};
use crate::attic::{Attic, Lingering};
use crate::channel::{ChannelError, Flushed, Refused, Sender, WaitFor};
use crate::link::Keep;
use crate::message::Message;
use crate::stream::{again, segment_bytes};

/// With this many bytes that have not left, `send` sends by itself rather than leave it to `flush`.
const SEND_AT_BYTES: u64 = 64 * 1024;
/// Datagrams handed over by one call at most.
const BATCH: usize = MAX_SEGMENTS;
/// Pieces of memory handed over by one call at most: a head and a few pieces of messages for each.
const SLICES: usize = 256;
/// Messages on their way at most on a channel that keeps the latest: one lands while the next one crosses.
const LATEST_DEPTH: u64 = 2;

/// The sending end of a channel.
pub(super) struct UdpSender<M: Message> {
    /// `None` only after `drop` took it.
    stream: Option<Stream<M>>,
    /// Where the stream goes when this end is dropped.
    attic: Arc<Attic>,
}

/// What a sending end is made of.
pub(super) struct Setup {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) token: u64,
    pub(super) keep: Keep,
    pub(super) delivery: Delivery,
    /// Largest datagram that the settings allow.
    pub(super) most_bytes: usize,
}

/// All state of a sending end, so that it can outlive it until the last message has arrived.
struct Stream<M: Message> {
    socket: Arc<UdpSocket>,
    wake: Wake,
    token: u64,
    keep: Keep,
    /// Messages on their way at most, at least 1.
    depth: u64,
    outgoing: Outgoing<M>,
    sending: Sending,
    answers: Arrivals,
    /// Messages taken into the stream since the start.
    accepted: u64,
    /// The message that waits for a credit on a channel that keeps the latest.
    pending: Option<M>,
    overwritten: u64,
    /// Length of a datagram, and how many of them go as one group.
    datagram_bytes: usize,
    group: usize,
    /// Whether the path takes groups, as far as is known.
    takes_groups: bool,
    /// The socket took less than it was offered: don't try again before the next flush.
    is_blocked: bool,
    /// The end was dropped.
    is_ending: bool,
    failure: Option<ChannelError>,
}

impl<M: Message> UdpSender<M> {
    /// For a receiver that has answered the opening.
    pub(super) fn new(setup: Setup, answer: &Answer, attic: Arc<Attic>) -> Result<Self, ChannelError> {
        let Setup {
            socket,
            token,
            keep,
            delivery,
            most_bytes,
        } = setup;
        let wake = Wake::new(&*socket)?;
        let datagram_bytes = socket.path_bytes()?.min(most_bytes).min(MAX_DATAGRAM_BYTES);
        let mut stream = Stream {
            wake,
            token,
            keep,
            depth: match keep {
                Keep::Latest => LATEST_DEPTH,
                Keep::All { depth } => u64::from(depth.max(1)),
            },
            outgoing: Outgoing::new(delivery == Delivery::BestEffort),
            sending: Sending::new(delivery, datagram_bytes as u64),
            answers: Arrivals::new(),
            accepted: 0,
            pending: None,
            overwritten: 0,
            datagram_bytes: 0,
            group: 1,
            takes_groups: true,
            is_blocked: false,
            is_ending: false,
            failure: None,
            socket,
        };
        stream.set_datagram_bytes(datagram_bytes);
        stream.hear(answer)?;
        Ok(UdpSender {
            stream: Some(stream),
            attic,
        })
    }

    fn stream(&mut self) -> &mut Stream<M> {
        self.stream.as_mut().expect("only drop takes the stream")
    }
}

impl<M: Message> Sender<M> for UdpSender<M> {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        self.stream().send(message)
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        self.stream().flush()
    }

    fn has_room(&mut self, total_bytes: u64) -> bool {
        let stream = self.stream();
        stream.keep == Keep::Latest || stream.make_room(usize::try_from(total_bytes).unwrap_or(usize::MAX))
    }

    fn outstanding(&self) -> u64 {
        self.stream.as_ref().map_or(0, |stream| {
            stream.outstanding() + u64::from(stream.pending.is_some())
        })
    }

    fn overwritten(&self) -> u64 {
        self.stream.as_ref().map_or(0, |stream| stream.overwritten)
    }

    fn needs_flush(&self) -> bool {
        self.stream
            .as_ref()
            .is_some_and(|stream| stream.outstanding() > 0 || stream.sending.is_unconfirmed())
    }

    fn wait_for(&self) -> WaitFor {
        self.stream.as_ref().map_or(WaitFor::Poll, |stream| WaitFor::Fd {
            fd: stream.wake.as_fd().as_raw_fd(),
            writable: false,
        })
    }
}

impl<M: Message> Drop for UdpSender<M> {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        stream.is_ending = true;
        if !stream.pump() {
            self.attic.put(Box::new(stream));
        }
    }
}

impl<M: Message> Stream<M> {
    fn outstanding(&self) -> u64 {
        self.accepted - self.sending.taken()
    }

    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        if let Some(failure) = &self.failure {
            return Err(Refused::Failed(message, again(failure)));
        }
        let total_bytes = segment_bytes(&message);
        if self.keep == Keep::Latest && (self.pending.is_some() || !self.has_credit(total_bytes)) {
            self.overwritten += u64::from(self.pending.replace(message).is_some());
            return Ok(());
        }
        if !self.make_room(total_bytes) {
            return Err(match &self.failure {
                Some(failure) => Refused::Failed(message, again(failure)),
                None => Refused::Full(message),
            });
        }
        self.enqueue(message);
        if self.sending.accepted() - self.sending.cut() >= SEND_AT_BYTES && !self.is_blocked {
            // A failure is kept and reported by the next call: this message was taken.
            let _ = self.transmit(now_ns());
        }
        Ok(())
    }

    fn has_credit(&self, total_bytes: usize) -> bool {
        self.outstanding() < self.depth && self.outgoing.fits(total_bytes)
    }

    /// Whether a message of this size can be taken now, after an attempt to make it so.
    fn make_room(&mut self, total_bytes: usize) -> bool {
        if !self.has_credit(total_bytes) {
            let _ = self.hear_all();
            if !self.outgoing.fits(total_bytes) {
                let _ = self.transmit(now_ns());
            }
        }
        self.failure.is_none() && self.has_credit(total_bytes)
    }

    fn enqueue(&mut self, message: M) {
        let bytes = self.outgoing.push(message);
        self.sending.accept(bytes);
        self.accepted += 1;
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        if let Some(failure) = &self.failure {
            return Err(again(failure));
        }
        if self.socket.is_void() {
            return self.fail(void()).map(|()| Flushed::Idle);
        }
        let now_ns = now_ns();
        self.wake.awake(now_ns);
        self.is_blocked = false;
        if self.outstanding() > 0 || self.sending.is_unconfirmed() {
            self.hear_all()?;
        }
        self.look_at_clock(now_ns)?;
        if let Some(message) = self.pending.take() {
            if self.has_credit(segment_bytes(&message)) {
                self.enqueue(message);
            } else {
                self.pending = Some(message);
            }
        }
        self.transmit(now_ns)?;
        self.wake.wait_for_room(&*self.socket, self.is_blocked);
        if let Some(at_ns) = self.sending.due_ns(self.outstanding() > 0) {
            self.wake.ring_at(at_ns);
        }
        Ok(if self.sending.is_waiting() || self.pending.is_some() {
            Flushed::Waiting
        } else {
            Flushed::Idle
        })
    }

    /// Asks the receiver where it has been silent for too long.
    fn look_at_clock(&mut self, now_ns: u64) -> Result<(), ChannelError> {
        if self.sending.due(self.outstanding() > 0, now_ns) == Due::Nothing {
            return Ok(());
        }
        let is_over = self.is_ending && self.sending.cut() == self.sending.accepted();
        self.ask(if is_over { Purpose::End } else { Purpose::Ping }, now_ns)
    }

    /// Sends a datagram that carries nothing.
    fn ask(&mut self, purpose: Purpose, now_ns: u64) -> Result<(), ChannelError> {
        let Some((packet, offset)) = self.sending.ping(purpose == Purpose::End, now_ns) else {
            return Ok(());
        };
        let run = self.run(purpose, packet, offset, 0);
        match self.socket.send(&run.encode(self.token)) {
            Err(error) if !is_for_later(&error) => self.refused(&error),
            _ => Ok(()),
        }
    }

    fn run(&self, purpose: Purpose, packet: u64, offset: u64, bytes: u64) -> Run {
        let first = self.outgoing.first_head(offset, bytes);
        Run {
            purpose,
            first: first.map(|(at, _)| at as u16), // less than a datagram's length
            packet,
            offset,
            number: first.map_or(0, |(_, number)| number),
        }
    }

    /// Sends what may leave.
    fn transmit(&mut self, now_ns: u64) -> Result<(), ChannelError> {
        if self.sending.suspects_size() && self.datagram_bytes > SAFE_DATAGRAM_BYTES {
            self.set_datagram_bytes(SAFE_DATAGRAM_BYTES);
        }
        while !self.is_blocked && self.sending.is_waiting() {
            let mut cuts = [None; BATCH];
            let mut heads = [[0; RUN_BYTES]; BATCH];
            let most_bytes = (self.datagram_bytes - RUN_BYTES) as u64;
            let mut count = 0;
            while count < BATCH
                && let Some(cut) = self.sending.next(most_bytes, now_ns)
            {
                heads[count] = self
                    .run(Purpose::Run, cut.packet, cut.offset, cut.bytes)
                    .encode(self.token);
                cuts[count] = Some(cut);
                count += 1;
            }
            if count == 0 {
                break;
            }
            self.hand_over(&cuts[..count], &heads[..count])?;
        }
        self.outgoing.release(self.sending.released());
        Ok(())
    }

    /// Gives datagrams to the system; what it does not take was not cut.
    fn hand_over(&mut self, cuts: &[Option<Cut>], heads: &[[u8; RUN_BYTES]]) -> Result<(), ChannelError> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut used = 0;
        let mut batch = Groups::new(self.group, self.datagram_bytes);
        for (cut, head) in cuts.iter().flatten().zip(heads) {
            let before = used;
            let mut push = |part| {
                let is_room = used < SLICES;
                if is_room {
                    slices[used] = IoSlice::new(part);
                    used += 1;
                }
                is_room
            };
            if !(push(head) && self.outgoing.gather(cut.offset, cut.bytes, &mut push)) {
                break;
            }
            batch.push(used - before, RUN_BYTES + cut.bytes as usize);
        }
        let result = self.socket.send_groups(&slices[..used], batch.slices());
        let left = match &result {
            Ok(groups) => batch.datagrams(*groups),
            // What the system drops for reasons of its own has left.
            Err(error) if is_dropped(error) => batch.datagrams(1),
            Err(_) => 0,
        };
        for cut in cuts[left..].iter().rev().flatten() {
            self.sending.take_back(*cut);
        }
        match result {
            Ok(groups) => self.is_blocked = groups < batch.slices().len(),
            Err(error) if is_for_later(&error) => self.is_blocked = true,
            Err(error) if is_dropped(&error) => {}
            Err(error) if self.takes_groups && is_no_group(&error) => {
                self.takes_groups = false;
                self.set_datagram_bytes(self.datagram_bytes);
            }
            Err(error) => self.refused(&error)?,
        }
        Ok(())
    }

    /// The system has said something about this or an earlier datagram.
    fn refused(&mut self, error: &io::Error) -> Result<(), ChannelError> {
        if is_dropped(error) {
            return Ok(());
        }
        if error.raw_os_error() != Some(libc::EMSGSIZE) {
            let error = match error.raw_os_error() {
                _ if self.socket.is_void() => void(),
                Some(code) => io::Error::from_raw_os_error(code).into(),
                None => io::Error::from(error.kind()).into(),
            };
            return self.fail(error);
        }
        let path_bytes = self.socket.path_bytes().unwrap_or(SAFE_DATAGRAM_BYTES);
        let bytes = match path_bytes.min(self.datagram_bytes) {
            // Nobody says what would be short enough.
            unchanged if unchanged == self.datagram_bytes => SAFE_DATAGRAM_BYTES.min(self.datagram_bytes / 2),
            shorter => shorter,
        };
        if bytes <= 2 * RUN_BYTES {
            return self
                .fail(io::Error::other(format!("the path carries datagrams of {bytes} bytes only")).into());
        }
        self.set_datagram_bytes(bytes);
        Ok(())
    }

    fn set_datagram_bytes(&mut self, bytes: usize) {
        self.datagram_bytes = bytes;
        self.sending.set_datagram_bytes((bytes - RUN_BYTES) as u64);
        let group = (MAX_DATAGRAM_BYTES / bytes).min(MAX_SEGMENTS);
        self.group = if group > 1 && self.takes_groups && self.socket.set_segment_bytes(bytes) {
            group
        } else {
            // While a length is set the kernel refuses single datagrams, too (EIO, `udp_send_skb` in net/ipv4/udp.c).
            self.socket.set_segment_bytes(0);
            1
        };
    }

    /// Takes in all answers that have come.
    fn hear_all(&mut self) -> Result<(), ChannelError> {
        loop {
            match self.answers.fill(&self.socket) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    self.refused(&error)?;
                    continue;
                }
            }
            while let Some(bytes) = self.answers.current() {
                let answer = match decode(bytes) {
                    Some((token, Datagram::Answer(answer))) if token == self.token => Some(answer),
                    _ => None,
                };
                self.answers.advance();
                match answer {
                    Some(answer) => self.hear(&answer)?,
                    None => self.socket.note_stranger(),
                }
            }
        }
    }

    fn hear(&mut self, answer: &Answer) -> Result<(), ChannelError> {
        if self.sending.answered(answer, self.accepted, now_ns()).is_err() {
            return self.fail(ChannelError::Corrupt("an answer to what was never sent"));
        }
        self.outgoing.release(self.sending.released());
        Ok(())
    }

    fn fail(&mut self, error: ChannelError) -> Result<(), ChannelError> {
        self.failure = Some(again(&error));
        Err(error)
    }

    /// Goes on after the end was dropped; whether it is over.
    fn go_on(&mut self) -> Result<bool, ChannelError> {
        let is_told = self.sending.is_asked_to_end();
        self.flush()?;
        if !is_told && self.pending.is_none() && self.sending.cut() == self.sending.accepted() {
            self.ask(Purpose::End, now_ns())?;
            // For the timer.
            self.flush()?;
        }
        Ok(self.sending.is_ended())
    }
}

impl<M: Message> Lingering for Stream<M> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn pump(&mut self) -> bool {
        self.failure.is_some() || self.go_on().unwrap_or(true)
    }
}

/// Groups of datagrams: all of a group are equally long, but the last may be shorter.
struct Groups {
    most: usize,
    datagram_bytes: usize,
    /// Slices and datagrams of each group.
    slices: [usize; MAX_GROUPS],
    datagrams: [usize; MAX_GROUPS],
    count: usize,
    is_open: bool,
}

impl Groups {
    fn new(most: usize, datagram_bytes: usize) -> Groups {
        Groups {
            most,
            datagram_bytes,
            slices: [0; MAX_GROUPS],
            datagrams: [0; MAX_GROUPS],
            count: 0,
            is_open: false,
        }
    }

    fn push(&mut self, slices: usize, bytes: usize) {
        if !self.is_open {
            self.count += 1;
        }
        let last = self.count - 1;
        self.slices[last] += slices;
        self.datagrams[last] += 1;
        self.is_open = bytes == self.datagram_bytes && self.datagrams[last] < self.most;
    }

    fn slices(&self) -> &[usize] {
        &self.slices[..self.count]
    }

    /// Datagrams in the first groups.
    fn datagrams(&self, groups: usize) -> usize {
        self.datagrams[..groups].iter().sum()
    }
}

fn void() -> ChannelError {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the link went down").into()
}

/// The datagram is lost, as on any path; the next one may not be.
fn is_dropped(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOBUFS | libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EPERM)
    )
}

/// The device or the path takes no groups (udp(7)): a device without checksum offload, for instance.
fn is_no_group(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}
