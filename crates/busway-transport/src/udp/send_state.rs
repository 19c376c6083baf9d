//! All state of a sending end: the messages as one stream of bytes, and what the receiver has
//! acknowledged of it.
//!
//! [`super::sending`] decides what may leave when, [`super::send_buffer`] keeps the bytes. The
//! length of datagrams follows the path: what the kernel refuses with EMSGSIZE is cut again,
//! shorter, and so is what the path drops silently (RFC 8899). Nothing here allocates after
//! [`SendState::new`], locks or waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use arrayvec::ArrayVec;

use super::batch::{Batch, HandedOver, is_dropped};
use super::multicast::Membership;
use super::send_buffer::SendBuffer;
use super::sending::{Cut, SAFE_DATAGRAM_BYTES, Sending, TimerAction};
use super::settings::Delivery;
use super::socket::{Arrivals, BATCH, BUFFERS, MAX_DATAGRAM_BYTES, UdpSocket, is_for_later};
use super::wake::{Wake, now_ns};
use super::wire::{Ack, DATA_HEADER_BYTES, DataHeader, Datagram, Purpose, decode};
use crate::contract::{ChannelError, Flushed, Keep, Kind, Message, Refused};
use crate::session::mailbox::Linger;
use crate::stream::{again, segment_bytes};

/// Unacknowledged messages at most on a channel that keeps the latest: one lands while the next
/// one crosses.
const LATEST_DEPTH: u64 = 2;

/// The state of a sending end and of the multicast group to which it belongs.
pub(super) type SharedState<M> = Arc<Mutex<SendState<M>>>;

pub(super) struct Setup {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) token: u64,
    pub(super) keep: Keep,
    pub(super) delivery: Delivery,
    pub(super) most_bytes: usize,
}

/// All state of a sending end; it outlives the end until the last message has arrived.
pub(super) struct SendState<M: Message> {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) wake: Wake,
    pub(super) token: u64,
    keep: Keep,
    /// Unacknowledged messages at most; at least 1.
    depth: u64,
    pub(super) buffer: SendBuffer<M>,
    pub(super) sending: Sending,
    acks: Arrivals,
    /// Messages taken into the stream since the start.
    accepted: u64,
    /// The message that waits for credit on a channel that keeps the latest.
    pub(super) pending: Option<M>,
    pub(super) overwritten: u64,
    pub(super) batch: Batch,
    /// The socket is full: no transmission before the next flush.
    pub(super) is_blocked: bool,
    pub(super) is_ending: bool,
    pub(super) failure: Option<ChannelError>,
    /// Set while the sender belongs to a multicast group.
    pub(super) membership: Option<Membership>,
}

impl<M: Message> SendState<M> {
    /// For a receiver that has answered the opening.
    pub(super) fn new(setup: Setup, ack: &Ack) -> Result<Self, ChannelError> {
        let Setup {
            socket,
            token,
            keep,
            delivery,
            most_bytes,
        } = setup;
        let wake = Wake::new(&*socket)?;
        let datagram_bytes = socket.path_bytes()?.min(most_bytes).min(MAX_DATAGRAM_BYTES);
        let mut state = SendState {
            wake,
            token,
            keep,
            depth: match keep {
                Keep::Latest => LATEST_DEPTH,
                Keep::All { depth } => u64::from(depth.max(1)),
            },
            buffer: SendBuffer::new(delivery == Delivery::BestEffort),
            sending: Sending::new(delivery, datagram_bytes as u64),
            acks: Arrivals::new(),
            accepted: 0,
            pending: None,
            overwritten: 0,
            batch: Batch::new(),
            is_blocked: false,
            is_ending: false,
            failure: None,
            membership: None,
            socket,
        };
        state.set_datagram_bytes(datagram_bytes);
        state.on_ack(ack)?;
        Ok(state)
    }

    /// See [`crate::Sender::outstanding`].
    pub(super) fn unacknowledged(&self) -> u64 {
        self.outstanding() + u64::from(self.pending.is_some())
    }

    /// See [`crate::Sender::needs_flush`].
    pub(super) fn needs_flush(&self) -> bool {
        self.outstanding() > 0 || self.sending.is_unacknowledged()
    }

    /// See [`crate::Sender::has_room`].
    pub(super) fn has_room(&mut self, total_bytes: u64) -> bool {
        self.keep == Keep::Latest || self.make_room(usize::try_from(total_bytes).unwrap_or(usize::MAX))
    }

    /// Messages in the stream that the receiver's sink is not known to have taken.
    fn outstanding(&self) -> u64 {
        self.accepted - self.sending.taken()
    }

    pub(super) fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        if let Some(failure) = &self.failure {
            return Err(Refused::Failed(message, again(failure)));
        }
        let total_bytes = segment_bytes(&message);
        if self.keep == Keep::Latest && (self.pending.is_some() || !self.has_credit(total_bytes)) {
            if message.head().kind != Kind::Data {
                // Events replace no message: they wait until there is credit.
                return Err(Refused::Full(message));
            }
            self.overwritten += u64::from(self.pending.replace(message).is_some());
            return Ok(());
        }
        if !self.make_room(total_bytes) {
            if let Some(membership) = &mut self.membership {
                membership.awaits_message = true;
            }
            return Err(match &self.failure {
                Some(failure) => Refused::Failed(message, again(failure)),
                None => Refused::Full(message),
            });
        }
        self.enqueue(message);
        if self.has_whole_buffers(BUFFERS) && !self.is_blocked {
            // This message was taken: a failure is kept, and the next call reports it.
            let _ = self.transmit(now_ns(), false);
        }
        Ok(())
    }

    /// Whether this many offload buffers can be filled. `send` transmits what is worth a system
    /// call and leaves the rest to `flush`: the cost of a buffer depends little on its length.
    pub(super) fn has_whole_buffers(&self, count: usize) -> bool {
        let bytes = count * self.batch.whole_buffer() * (self.batch.datagram_bytes() - DATA_HEADER_BYTES);
        self.sending.accepted() - self.sending.cut() >= bytes as u64
    }

    fn has_credit(&self, total_bytes: usize) -> bool {
        self.outstanding() < self.depth && self.buffer.fits(total_bytes)
    }

    /// Whether a message of this size can be taken now; tries to make room for it.
    fn make_room(&mut self, total_bytes: usize) -> bool {
        if !self.has_credit(total_bytes) {
            let _ = self.receive_acks();
            if !self.buffer.fits(total_bytes) {
                let _ = self.transmit(now_ns(), true);
            }
        }
        self.failure.is_none() && self.has_credit(total_bytes)
    }

    fn enqueue(&mut self, message: M) {
        if let Some(membership) = &mut self.membership {
            membership.take(&message, self.sending.accepted());
        }
        let bytes = self.buffer.push(message);
        self.sending.accept(bytes);
        self.accepted += 1;
    }

    /// The first half of a flush: reads acknowledgements and sends what leaves by unicast.
    pub(super) fn begin_flush(&mut self, now_ns: u64) -> Result<(), ChannelError> {
        if let Some(failure) = &self.failure {
            return Err(again(failure));
        }
        if self.socket.is_void() {
            return self.fail(link_down());
        }
        self.wake.awake(now_ns);
        self.is_blocked = false;
        if self.needs_flush() {
            self.receive_acks()?;
        }
        self.check_timer(now_ns)?;
        self.take_pending();
        self.transmit(now_ns, true)
    }

    /// The second half: arms what wakes the lane, at `until_ns` at the latest.
    pub(super) fn end_flush(&mut self, until_ns: Option<u64>) -> Flushed {
        self.wake.wait_for_room(&*self.socket, self.is_blocked);
        let timer_ns = self.sending.timer_ns(self.outstanding() > 0);
        if let Some(at_ns) = timer_ns.into_iter().chain(until_ns).min() {
            self.wake.set_timer(at_ns);
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

    /// Takes the pending message into the stream if there is credit now.
    pub(super) fn take_pending(&mut self) {
        if let Some(message) = self.pending.take() {
            if self.has_credit(segment_bytes(&message)) {
                self.enqueue(message);
            } else {
                self.pending = Some(message);
            }
        }
    }

    /// Sends a ping if the receiver has been silent for too long.
    fn check_timer(&mut self, now_ns: u64) -> Result<(), ChannelError> {
        if self.sending.on_timer(self.outstanding() > 0, now_ns) == TimerAction::Nothing {
            return Ok(());
        }
        let is_over = self.is_ending && self.sending.cut() == self.sending.accepted();
        self.ping(if is_over { Purpose::End } else { Purpose::Ping }, now_ns)
    }

    /// Sends a datagram without bytes of the stream, which the receiver acknowledges.
    fn ping(&mut self, purpose: Purpose, now_ns: u64) -> Result<(), ChannelError> {
        let Some((packet, offset)) = self.sending.ping(purpose == Purpose::End, now_ns) else {
            return Ok(());
        };
        let header = data_header(&self.buffer, purpose, packet, offset, 0);
        match self.socket.send(&header.encode(self.token)) {
            Err(error) if !is_for_later(&error) => self.on_send_error(&error),
            _ => Ok(()),
        }
    }

    /// Sends what may leave by unicast; if not `all`, only whole offload buffers.
    pub(super) fn transmit(&mut self, now_ns: u64, all: bool) -> Result<(), ChannelError> {
        if self.sending.suspects_size() && self.batch.datagram_bytes() > SAFE_DATAGRAM_BYTES {
            self.set_datagram_bytes(SAFE_DATAGRAM_BYTES);
        }
        while !self.is_blocked && self.sending.is_waiting() && (all || self.has_whole_buffers(BUFFERS)) {
            let mut cuts = ArrayVec::<Cut, BATCH>::new();
            let mut reader = self.buffer.reader();
            let most_bytes = (self.batch.datagram_bytes() - DATA_HEADER_BYTES) as u64;
            let most = self.batch.most();
            while cuts.len() < most
                && let Some(cut) = self.sending.next(most_bytes, now_ns)
            {
                let datagram = self.batch.add(DATA_HEADER_BYTES + cut.bytes as usize);
                let (head, rest) = datagram.split_at_mut(DATA_HEADER_BYTES);
                let header = data_header(&self.buffer, Purpose::Data, cut.packet, cut.offset, cut.bytes);
                header.encode_to(self.token, head);
                reader.read(cut.offset, rest);
                cuts.push(cut);
            }
            if cuts.is_empty() {
                break;
            }
            self.hand_over(&cuts)?;
        }
        self.buffer.release(self.sending.released());
        Ok(())
    }

    /// Hands the datagrams of these cuts to the kernel, and takes back the cuts that it refuses.
    fn hand_over(&mut self, cuts: &[Cut]) -> Result<(), ChannelError> {
        let (sent, result) = self.batch.hand_over(&self.socket);
        for cut in cuts[sent..].iter().rev() {
            self.sending.take_back(*cut);
        }
        match result {
            HandedOver::All | HandedOver::NoOffload => {}
            HandedOver::Some => self.is_blocked = true,
            HandedOver::Refused(error) => self.on_send_error(&error)?,
        }
        Ok(())
    }

    /// Handles an error of the kernel about this or an earlier datagram.
    fn on_send_error(&mut self, error: &io::Error) -> Result<(), ChannelError> {
        if is_dropped(error) {
            return Ok(());
        }
        if !self.batch.is_too_long(error, &self.socket) {
            let error = match error.raw_os_error() {
                _ if self.socket.is_void() => link_down(),
                Some(code) => io::Error::from_raw_os_error(code).into(),
                None => io::Error::from(error.kind()).into(),
            };
            return self.fail(error);
        }
        let path_bytes = self.socket.path_bytes().unwrap_or(SAFE_DATAGRAM_BYTES);
        let bytes = match path_bytes.min(self.batch.datagram_bytes()) {
            // The kernel does not know what would be short enough.
            unchanged if unchanged == self.batch.datagram_bytes() => {
                SAFE_DATAGRAM_BYTES.min(self.batch.datagram_bytes() / 2)
            }
            shorter => shorter,
        };
        if bytes <= 2 * DATA_HEADER_BYTES {
            return self
                .fail(io::Error::other(format!("the path carries datagrams of {bytes} bytes only")).into());
        }
        self.set_datagram_bytes(bytes);
        Ok(())
    }

    fn set_datagram_bytes(&mut self, bytes: usize) {
        self.sending
            .set_datagram_bytes((bytes - DATA_HEADER_BYTES) as u64);
        self.batch.set_datagram_bytes(bytes, &self.socket);
    }

    /// Handles all acknowledgements that have arrived.
    fn receive_acks(&mut self) -> Result<(), ChannelError> {
        loop {
            match self.acks.fill(&self.socket) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    self.on_send_error(&error)?;
                    continue;
                }
            }
            while let Some(bytes) = self.acks.current() {
                let ack = match decode(bytes) {
                    Some((token, Datagram::Ack(ack))) if token == self.token => Some(ack),
                    _ => None,
                };
                self.acks.advance();
                match ack {
                    Some(ack) => self.on_ack(&ack)?,
                    None => self.socket.count_foreign(),
                }
            }
        }
    }

    fn on_ack(&mut self, ack: &Ack) -> Result<(), ChannelError> {
        let now_ns = now_ns();
        if self.sending.on_ack(ack, self.accepted, now_ns).is_err() {
            return self.fail(ChannelError::Corrupt("an answer to what was never sent"));
        }
        self.buffer.release(self.sending.released());
        if self.membership.as_mut().is_some_and(|it| it.on_ack(ack, now_ns)) {
            self.sending.set_unicast_limit(self.sending.cut());
        }
        Ok(())
    }

    fn fail(&mut self, error: ChannelError) -> Result<(), ChannelError> {
        self.failure = Some(again(&error));
        Err(error)
    }

    /// Continues after the end was dropped; whether everything has arrived.
    fn finish(&mut self) -> Result<bool, ChannelError> {
        let has_sent_end = self.sending.has_sent_end();
        self.flush()?;
        if !has_sent_end && self.pending.is_none() && self.sending.cut() == self.sending.accepted() {
            self.ping(Purpose::End, now_ns())?;
            // Sets the timer.
            self.flush()?;
        }
        Ok(self.sending.is_ended())
    }
}

impl<M: Message> Linger for SendState<M> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn pump(&mut self) -> bool {
        self.failure.is_some() || self.finish().unwrap_or(true)
    }
}

/// The header of a datagram with these bytes of the stream.
pub(super) fn data_header<M: Message>(
    buffer: &SendBuffer<M>,
    purpose: Purpose,
    packet: u64,
    offset: u64,
    bytes: u64,
) -> DataHeader {
    let first = buffer.first_head(offset, bytes);
    DataHeader {
        purpose,
        first: first.map(|(at, _)| at as u16), // less than a datagram's length
        packet,
        offset,
        number: first.map_or(0, |(_, number)| number),
    }
}

fn link_down() -> ChannelError {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the link went down").into()
}
