//! All that a sending end knows: its messages as one stream of bytes, what of it has left, and what the receiver says.
//!
//! What may leave when is the business of [`super::sending`]; where the bytes lie is that of [`super::outgoing`]. The length of datagrams follows the path: what EMSGSIZE refuses is cut anew, shorter, and so is
//! what vanishes without a word (RFC 8899). Driven by [`super::sender`], and by [`super::company`] where several receivers get the same;
//! nothing here allocates after [`Near::new`], locks or waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::batch::{BATCH, Batch, GROUPS, HandedOver, is_dropped};
use super::outgoing::Outgoing;
use super::seat::{Overture, Seat};
use super::sender::Setup;
use super::sending::{Cut, Due, SAFE_DATAGRAM_BYTES, Sending};
use super::settings::Delivery;
use super::socket::{Arrivals, MAX_DATAGRAM_BYTES, UdpSocket, is_for_later};
use super::wake::{Wake, now_ns};
use super::wire::{
    Answer, Datagram, Purpose, RUN_BYTES, Run, Share, decode, encode_invite, encode_shared, shared_bytes,
};
use crate::contract::{ChannelError, Flushed, Keep, Message, Refused};
use crate::session::attic::Lingering;
use crate::stream::{again, segment_bytes};

/// Messages on their way at most on a channel that keeps the latest: one lands while the next one crosses.
const LATEST_DEPTH: u64 = 2;

/// All state of a sending end, so that it can outlive it until the last message has arrived.
pub(super) struct Near<M: Message> {
    socket: Arc<UdpSocket>,
    pub(super) wake: Wake,
    pub(super) token: u64,
    keep: Keep,
    /// Messages on their way at most, at least 1.
    depth: u64,
    pub(super) outgoing: Outgoing<M>,
    pub(super) sending: Sending,
    answers: Arrivals,
    /// Messages taken into the stream since the start.
    accepted: u64,
    /// The message that waits for a credit on a channel that keeps the latest.
    pending: Option<M>,
    pub(super) overwritten: u64,
    pub(super) batch: Batch,
    /// The socket took less than it was offered: don't try again before the next flush.
    pub(super) is_blocked: bool,
    /// The end was dropped.
    pub(super) is_ending: bool,
    pub(super) failure: Option<ChannelError>,
    /// Its place beside other receivers of the same messages.
    pub(super) seat: Option<Seat>,
}

impl<M: Message> Near<M> {
    /// For a receiver that has answered the opening.
    pub(super) fn new(setup: Setup, answer: &Answer) -> Result<Self, ChannelError> {
        let Setup {
            socket,
            token,
            keep,
            delivery,
            most_bytes,
            ..
        } = setup;
        let wake = Wake::new(&*socket)?;
        let datagram_bytes = socket.path_bytes()?.min(most_bytes).min(MAX_DATAGRAM_BYTES);
        let mut near = Near {
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
            batch: Batch::new(),
            is_blocked: false,
            is_ending: false,
            failure: None,
            seat: None,
            socket,
        };
        near.set_datagram_bytes(datagram_bytes);
        near.hear(answer)?;
        Ok(near)
    }

    /// Messages that the far end's sink is not known to have, of those that are in the stream or wait before it.
    pub(super) fn unconfirmed(&self) -> u64 {
        self.outstanding() + u64::from(self.pending.is_some())
    }

    /// See [`crate::Sender::needs_flush`].
    pub(super) fn needs_flush(&self) -> bool {
        self.outstanding() > 0 || self.sending.is_unconfirmed()
    }

    /// See [`crate::Sender::has_room`].
    pub(super) fn has_room(&mut self, total_bytes: u64) -> bool {
        self.keep == Keep::Latest || self.make_room(usize::try_from(total_bytes).unwrap_or(usize::MAX))
    }

    fn outstanding(&self) -> u64 {
        self.accepted - self.sending.taken()
    }

    pub(super) fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        if let Some(failure) = &self.failure {
            return Err(Refused::Failed(message, again(failure)));
        }
        let total_bytes = segment_bytes(&message);
        if self.keep == Keep::Latest && (self.pending.is_some() || !self.has_credit(total_bytes)) {
            self.overwritten += u64::from(self.pending.replace(message).is_some());
            return Ok(());
        }
        if !self.make_room(total_bytes) {
            if let Some(seat) = &mut self.seat {
                seat.is_starved = true;
            }
            return Err(match &self.failure {
                Some(failure) => Refused::Failed(message, again(failure)),
                None => Refused::Full(message),
            });
        }
        self.enqueue(message);
        if self.has_whole_groups(GROUPS) && !self.is_blocked {
            // A failure is kept and reported by the next call: this message was taken.
            let _ = self.transmit(now_ns(), false);
        }
        Ok(())
    }

    /// Whether as much waits as goes in so many groups: `send` sends what is worth a call by itself, and leaves crumbs to `flush`, since what a
    /// group costs depends little on its length.
    pub(super) fn has_whole_groups(&self, count: usize) -> bool {
        let bytes = count * self.batch.whole_group() * (self.batch.datagram_bytes() - RUN_BYTES);
        self.sending.accepted() - self.sending.cut() >= bytes as u64
    }

    fn has_credit(&self, total_bytes: usize) -> bool {
        self.outstanding() < self.depth && self.outgoing.fits(total_bytes)
    }

    /// Whether a message of this size can be taken now, after an attempt to make it so.
    fn make_room(&mut self, total_bytes: usize) -> bool {
        if !self.has_credit(total_bytes) {
            let _ = self.hear_all();
            if !self.outgoing.fits(total_bytes) {
                let _ = self.transmit(now_ns(), true);
            }
        }
        self.failure.is_none() && self.has_credit(total_bytes)
    }

    fn enqueue(&mut self, message: M) {
        if let Some(seat) = &mut self.seat {
            seat.place(&message, self.sending.accepted());
        }
        let bytes = self.outgoing.push(message);
        self.sending.accept(bytes);
        self.accepted += 1;
    }

    /// The first half of a flush: hears the receiver, and sends what leaves by itself.
    pub(super) fn begin_flush(&mut self, now_ns: u64) -> Result<(), ChannelError> {
        if let Some(failure) = &self.failure {
            return Err(again(failure));
        }
        if self.socket.is_void() {
            return self.fail(void());
        }
        self.wake.awake(now_ns);
        self.is_blocked = false;
        if self.needs_flush() {
            self.hear_all()?;
        }
        self.look_at_clock(now_ns)?;
        self.take_pending();
        self.transmit(now_ns, true)
    }

    /// The second half: what wakes the lane; `until_ns` is when it is to come again in any case.
    pub(super) fn end_flush(&mut self, until_ns: Option<u64>) -> Flushed {
        self.wake.wait_for_room(&*self.socket, self.is_blocked);
        let due_ns = self.sending.due_ns(self.outstanding() > 0);
        if let Some(at_ns) = due_ns.into_iter().chain(until_ns).min() {
            self.wake.ring_at(at_ns);
        }
        if self.sending.is_waiting() || self.pending.is_some() {
            Flushed::Waiting
        } else {
            Flushed::Idle
        }
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        self.begin_flush(now_ns())?;
        Ok(self.end_flush(None))
    }

    /// Takes the message that waited into the stream, if there is credit now.
    pub(super) fn take_pending(&mut self) {
        if let Some(message) = self.pending.take() {
            if self.has_credit(segment_bytes(&message)) {
                self.enqueue(message);
            } else {
                self.pending = Some(message);
            }
        }
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
        let run = run(&self.outgoing, purpose, packet, offset, 0);
        match self.socket.send(&run.encode(self.token)) {
            Err(error) if !is_for_later(&error) => self.refused(&error),
            _ => Ok(()),
        }
    }

    /// Sends what may leave by itself; where it is not to be `all`, whole groups only.
    pub(super) fn transmit(&mut self, now_ns: u64, all: bool) -> Result<(), ChannelError> {
        if self.sending.suspects_size() && self.batch.datagram_bytes() > SAFE_DATAGRAM_BYTES {
            self.set_datagram_bytes(SAFE_DATAGRAM_BYTES);
        }
        while !self.is_blocked && self.sending.is_waiting() && (all || self.has_whole_groups(GROUPS)) {
            let mut cuts = ArrayVec::<Cut, BATCH>::new();
            let mut walk = self.outgoing.walk();
            let most_bytes = (self.batch.datagram_bytes() - RUN_BYTES) as u64;
            let most = self.batch.most();
            while cuts.len() < most
                && let Some(cut) = self.sending.next(most_bytes, now_ns)
            {
                let datagram = self.batch.add(RUN_BYTES + cut.bytes as usize);
                let (head, rest) = datagram.split_at_mut(RUN_BYTES);
                let run = run(&self.outgoing, Purpose::Run, cut.packet, cut.offset, cut.bytes);
                run.encode_to(self.token, head);
                walk.read(cut.offset, rest);
                cuts.push(cut);
            }
            if cuts.is_empty() {
                break;
            }
            self.hand_over(&cuts)?;
        }
        self.outgoing.release(self.sending.released());
        Ok(())
    }

    /// Gives the datagrams of these cuts to the system; what it does not take was not cut.
    fn hand_over(&mut self, cuts: &[Cut]) -> Result<(), ChannelError> {
        let (left, result) = self.batch.hand_over(&self.socket);
        for cut in cuts[left..].iter().rev() {
            self.sending.take_back(*cut);
        }
        match result {
            HandedOver::All | HandedOver::NoGroups => {}
            HandedOver::Some => self.is_blocked = true,
            HandedOver::Refused(error) => self.refused(&error)?,
        }
        Ok(())
    }

    /// The system has said something about this or an earlier datagram.
    fn refused(&mut self, error: &io::Error) -> Result<(), ChannelError> {
        if is_dropped(error) {
            return Ok(());
        }
        if !self.batch.is_too_long(error, &self.socket) {
            let error = match error.raw_os_error() {
                _ if self.socket.is_void() => void(),
                Some(code) => io::Error::from_raw_os_error(code).into(),
                None => io::Error::from(error.kind()).into(),
            };
            return self.fail(error);
        }
        let path_bytes = self.socket.path_bytes().unwrap_or(SAFE_DATAGRAM_BYTES);
        let bytes = match path_bytes.min(self.batch.datagram_bytes()) {
            // Nobody says what would be short enough.
            unchanged if unchanged == self.batch.datagram_bytes() => {
                SAFE_DATAGRAM_BYTES.min(self.batch.datagram_bytes() / 2)
            }
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
        self.sending.set_datagram_bytes((bytes - RUN_BYTES) as u64);
        self.batch.set_datagram_bytes(bytes, &self.socket);
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
        let now_ns = now_ns();
        if self.sending.answered(answer, self.accepted, now_ns).is_err() {
            return self.fail(ChannelError::Corrupt("an answer to what was never sent"));
        }
        self.outgoing.release(self.sending.released());
        if self.seat.as_mut().is_some_and(|seat| seat.hear(answer, now_ns)) {
            self.sending.hold_at(self.sending.cut());
        }
        Ok(())
    }

    /// Tells the receiver of the group, calls it there, and gives the group up for a while where it seems to carry nothing.
    pub(super) fn attend(&mut self, group: &UdpSocket, now_ns: u64) {
        let Some(seat) = &mut self.seat else { return };
        if seat.is_confirmed && self.sending.suspects_group() {
            seat.desert(now_ns);
            self.sending.trust_group();
            self.sending.hold_at(u64::MAX);
        }
        // What fails is repeated.
        let _ = match seat.due(now_ns) {
            None => Ok(()),
            Some(Overture::Invite(port)) => self.socket.send(&encode_invite(self.token, port)),
            Some(Overture::Call(call)) => {
                let share = Share {
                    token: self.token,
                    packet: u64::from(call),
                    ..Default::default()
                };
                group.send(&encode_shared(None, &[share])[..shared_bytes(1)])
            }
        };
    }

    /// Whether it is refused what the others get, for want of credit.
    pub(super) fn is_starved(&self) -> bool {
        self.pending.is_some() || self.seat.as_ref().is_some_and(|seat| seat.is_starved)
    }

    /// Goes on alone.
    pub(super) fn leave(&mut self, group: &UdpSocket) {
        self.wake.wait_for_group(group, false);
        self.seat = None;
        self.sending.hold_at(u64::MAX);
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

impl<M: Message> Lingering for Near<M> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn pump(&mut self) -> bool {
        self.failure.is_some() || self.go_on().unwrap_or(true)
    }
}

/// The head of a datagram with so many bytes of the stream.
pub(super) fn run<M: Message>(
    outgoing: &Outgoing<M>,
    purpose: Purpose,
    packet: u64,
    offset: u64,
    bytes: u64,
) -> Run {
    let first = outgoing.first_head(offset, bytes);
    Run {
        purpose,
        first: first.map(|(at, _)| at as u16), // less than a datagram's length
        packet,
        offset,
        number: first.map_or(0, |(_, number)| number),
    }
}

fn void() -> ChannelError {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the link went down").into()
}
