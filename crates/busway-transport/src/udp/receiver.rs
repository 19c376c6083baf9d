//! The receiving end of a channel: puts datagrams together in the memory of the sink.
//!
//! The next bytes of the stream go straight to the landing. A reliable channel keeps early bytes in
//! a ring, as large as the window that the sender was given, until the gap before them is closed. A
//! best-effort channel abandons a gap at once: it drops the message in progress and what arrives
//! late, and goes on at the next head. Used by one lane; nothing here allocates after
//! [`UdpReceiver::new`], locks or waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use super::message_reader::{Budget, MessageReader};
use super::multicast::{GroupReceiver, Source};
use super::receiving::{Assembler, Placement, ReceivedPackets};
use super::settings::Delivery;
use super::socket::{Arrivals, UdpSocket, is_for_later};
use super::wire::{DataHeader, Datagram, Purpose, decode};
use crate::contract::{ChannelError, Receiver, Sink, WaitFor};
use crate::stream::again;

/// Errors that one poll may read from the socket.
const MAX_ERRORS: u32 = 8;

/// What has arrived and is not used yet.
enum Order {
    /// All bytes are used, in order.
    Reliable { assembler: Assembler, ring: Box<[u8]> },
    /// Bytes are used as they arrive; gaps are abandoned.
    BestEffort {
        due: u64,
        /// After a gap: the next head is not known yet.
        is_out_of_sync: bool,
        /// Bytes used of the current datagram; `None` before [`skip_gap`].
        used: Option<usize>,
        window_bytes: u64,
    },
}

pub(super) struct UdpReceiver {
    socket: Arc<UdpSocket>,
    token: u64,
    arrivals: Arrivals,
    /// Set where the sender may use a multicast group.
    group: Option<GroupReceiver>,
    messages: MessageReader,
    order: Order,
    received: ReceivedPackets,
    /// Something arrived that must be acknowledged.
    must_ack: bool,
    /// Messages taken and limit of the last acknowledgement.
    last_ack: (u64, u64),
    /// Where the stream ends, once that is known.
    ends_at: Option<u64>,
    /// The sender's socket is gone: the kernel refused an acknowledgement.
    refusal: Option<io::Error>,
    failure: Option<ChannelError>,
}

impl UdpReceiver {
    pub(super) fn new(
        socket: Arc<UdpSocket>,
        token: u64,
        delivery: Delivery,
        window_bytes: u64,
        group: Option<GroupReceiver>,
    ) -> Self {
        let order = match delivery {
            Delivery::Reliable => Order::Reliable {
                assembler: Assembler::new(window_bytes),
                ring: vec![0; window_bytes as usize].into_boxed_slice(),
            },
            Delivery::BestEffort => Order::BestEffort {
                due: 0,
                is_out_of_sync: false,
                used: None,
                // The network loses what does not fit the socket's buffer.
                window_bytes: window_bytes.min(socket.buffer_bytes() / 2),
            },
        };
        UdpReceiver {
            socket,
            token,
            arrivals: Arrivals::new(),
            group,
            messages: MessageReader::new(),
            order,
            received: ReceivedPackets::default(),
            must_ack: false,
            last_ack: (0, 0),
            ends_at: None,
            refusal: None,
            failure: None,
        }
    }

    /// Offsets: all bytes before the first have arrived or are abandoned, all before the second are
    /// used, and the sender may send up to the third.
    fn marks(&self) -> (u64, u64, u64) {
        match &self.order {
            Order::Reliable { assembler, .. } => {
                (assembler.received(), assembler.consumed(), assembler.limit())
            }
            Order::BestEffort {
                due, window_bytes, ..
            } => (*due, *due, due.saturating_add(*window_bytes)),
        }
    }

    fn is_ended(&self) -> bool {
        self.ends_at.is_some_and(|end| self.marks().1 >= end)
    }

    pub(super) fn acknowledge(&mut self) {
        let (received, _, limit) = self.marks();
        let mut ack = self
            .received
            .ack(received, limit, self.messages.taken, self.is_ended());
        if let Some(group) = &self.group {
            group.complete(&mut ack);
        }
        match self.socket.send(&ack.encode(self.token)) {
            Ok(()) => {
                self.must_ack = false;
                self.last_ack = (self.messages.taken, limit);
            }
            // The sender pings again.
            Err(error) if is_for_later(&error) => {}
            Err(error) => self.on_send_error(error),
        }
    }

    fn on_send_error(&mut self, error: io::Error) {
        // Any other error is about the network and passes.
        if error.kind() == io::ErrorKind::ConnectionRefused {
            self.refusal = Some(error);
        }
    }

    /// Whether to acknowledge, without having been asked, what the sink has taken.
    fn should_ack(&self) -> bool {
        let (_, used, limit) = self.marks();
        self.last_ack.0 != self.messages.taken || limit - self.last_ack.1 > (limit - used) / 4
    }

    /// Uses what has arrived until nothing is left or the budget is spent.
    fn take(&mut self, sink: &mut dyn Sink, budget: &mut Budget) -> Result<(), ChannelError> {
        self.use_ring(sink, budget)?;
        let mut errors = 0;
        loop {
            while let Some(source) = self.next_source() {
                if !self.use_source(source, sink, budget)? {
                    return Ok(());
                }
            }
            if self.must_ack {
                self.acknowledge();
            }
            if budget.is_spent() || self.is_ended() {
                return Ok(());
            }
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // The kernel reports each error once, before what has arrived.
                Err(error) if errors < MAX_ERRORS => {
                    self.on_send_error(error);
                    errors += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The socket with the next datagram.
    fn next_source(&self) -> Option<Source> {
        match &self.group {
            Some(group) => group.next_source(&self.arrivals, self.token),
            None => self.arrivals.current().map(|_| Source::Unicast),
        }
    }

    /// Reads sockets whose datagrams are used up; false if they are empty.
    fn fill(&mut self) -> io::Result<bool> {
        match &mut self.group {
            Some(group) => group.fill(&mut self.arrivals, &self.socket),
            None => self.arrivals.fill(&self.socket),
        }
    }

    /// Uses the next datagram; false if some of it must wait.
    fn use_source(
        &mut self,
        source: Source,
        sink: &mut dyn Sink,
        budget: &mut Budget,
    ) -> Result<bool, ChannelError> {
        let swap = |receiver: &mut UdpReceiver| {
            if let (Source::Multicast, Some(group)) = (source, &mut receiver.group) {
                std::mem::swap(&mut receiver.arrivals, &mut group.arrivals);
            }
        };
        swap(self);
        let result = self.use_current(sink, budget);
        if let Ok(true) = result {
            self.arrivals.advance();
        }
        swap(self);
        result
    }

    /// Uses bytes of the ring that come next in the stream.
    fn use_ring(&mut self, sink: &mut dyn Sink, budget: &mut Budget) -> Result<(), ChannelError> {
        let Order::Reliable { assembler, ring } = &mut self.order else {
            return Ok(());
        };
        loop {
            let from = (assembler.consumed() % ring.len() as u64) as usize;
            let due = usize::try_from(assembler.ready_bytes())
                .unwrap_or(usize::MAX)
                .min(ring.len() - from);
            let used = self.messages.take(&ring[from..from + due], sink, budget)?;
            assembler.consume(used as u64);
            if used == 0 || used < due {
                return Ok(());
            }
        }
    }

    fn use_current(&mut self, sink: &mut dyn Sink, budget: &mut Budget) -> Result<bool, ChannelError> {
        let bytes = self.arrivals.current().unwrap_or_default();
        let (header, bytes) = match decode(bytes) {
            Some((token, Datagram::Data(header, bytes))) if token == self.token => (header, bytes),
            // The acknowledgement of the opening was lost.
            Some((token, Datagram::Open(_))) if token == self.token => {
                self.must_ack = true;
                return Ok(true);
            }
            Some((token, Datagram::Invite(port))) if token == self.token => {
                if let Some(group) = &mut self.group {
                    group.join(port, &self.socket);
                }
                self.must_ack = true;
                return Ok(true);
            }
            Some((_, Datagram::Multicast(shares, bytes))) => {
                let group = self.group.as_mut();
                match group.and_then(|group| group.read(&shares, self.token, bytes.len())) {
                    Some(header) => (header, bytes),
                    None => {
                        // A probe, or a datagram to others.
                        self.must_ack |= bytes.is_empty();
                        return Ok(true);
                    }
                }
            }
            _ => {
                self.socket.count_foreign();
                return Ok(true);
            }
        };
        self.must_ack = true;
        if header.purpose == Purpose::End {
            self.ends_at.get_or_insert(header.offset);
        }
        match &mut self.order {
            Order::Reliable { assembler, ring } => {
                let is_kept = assemble(&header, bytes, assembler, ring, &mut self.messages, sink, budget)?;
                if is_kept {
                    self.received.insert(header.packet);
                }
                self.use_ring(sink, budget)?;
                Ok(true)
            }
            Order::BestEffort {
                due,
                is_out_of_sync,
                used,
                ..
            } => {
                self.received.insert(header.packet);
                let mut from = match *used {
                    Some(from) => from,
                    None => {
                        match skip_gap(
                            &header,
                            bytes.len(),
                            due,
                            is_out_of_sync,
                            &mut self.messages,
                            sink,
                        ) {
                            Some(from) => from,
                            None => return Ok(true),
                        }
                    }
                };
                let taken = self.messages.take(&bytes[from..], sink, budget)?;
                *due += taken as u64;
                from += taken;
                let is_done = from == bytes.len();
                *used = (!is_done).then_some(from);
                Ok(is_done)
            }
        }
    }

    /// Why the channel ends, once everything that has arrived is used.
    fn end_reason(&self) -> Option<ChannelError> {
        if self.is_ended() {
            return Some(if self.messages.is_between() {
                ChannelError::Closed
            } else {
                ChannelError::Corrupt("the stream ends within a message")
            });
        }
        if let Some(refusal) = &self.refusal {
            return Some(io::Error::from(refusal.kind()).into());
        }
        self.socket
            .is_void()
            .then(|| io::Error::new(io::ErrorKind::ConnectionAborted, "the link went down").into())
    }
}

impl Receiver for UdpReceiver {
    fn poll(&mut self, sink: &mut dyn Sink, budget: usize) -> Result<usize, ChannelError> {
        if let Some(failure) = &self.failure {
            return Err(again(failure));
        }
        let mut budget = Budget::new(budget);
        // Read before the socket, so that what arrived before the conversation ended is taken.
        let was_void = self.socket.is_void();
        let result = self.take(sink, &mut budget);
        if self.must_ack || self.should_ack() {
            self.acknowledge();
        }
        let failure = match result {
            Err(error) => Some(error),
            Ok(()) if budget.is_spent() || (self.socket.is_void() && !was_void) => None,
            Ok(()) => self.end_reason(),
        };
        if let Some(failure) = failure {
            self.messages.abandon(sink);
            self.failure = Some(again(&failure));
            if budget.delivered == 0 {
                return Err(failure);
            }
        }
        Ok(budget.delivered)
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Fd {
            fd: match &self.group {
                Some(group) => group.as_fd().as_raw_fd(),
                None => self.socket.as_fd().as_raw_fd(),
            },
            writable: false,
        }
    }
}

/// Uses the next bytes of the stream, and keeps those that are early or that the sink puts off.
/// Returns false if they must be sent again.
fn assemble(
    header: &DataHeader,
    bytes: &[u8],
    assembler: &mut Assembler,
    ring: &mut [u8],
    messages: &mut MessageReader,
    sink: &mut dyn Sink,
    budget: &mut Budget,
) -> Result<bool, ChannelError> {
    let (mut offset, mut bytes) = (header.offset, bytes);
    match assembler.classify(offset, bytes.len() as u64) {
        Placement::Old => return Ok(true),
        Placement::NoRoom => return Ok(false),
        Placement::Early => {}
        Placement::Next(skip) => {
            bytes = &bytes[skip..];
            // Bytes in the ring go first; there are some only if the sink has put them off.
            let used = if assembler.ready_bytes() == 0 {
                messages.take(bytes, sink, budget)?
            } else {
                0
            };
            assembler.consume(used as u64);
            bytes = &bytes[used..];
            offset = assembler.consumed();
        }
    }
    if bytes.is_empty() {
        return Ok(true);
    }
    if !assembler.keep(offset, offset + bytes.len() as u64) {
        return Ok(false);
    }
    let from = (offset % ring.len() as u64) as usize;
    let (before_end, rest) = bytes.split_at(bytes.len().min(ring.len() - from));
    ring[from..from + before_end.len()].copy_from_slice(before_end);
    ring[..rest.len()].copy_from_slice(rest);
    Ok(true)
}

/// Abandons the gap before a datagram and finds the next head in it. Returns the index of the first
/// usable byte; `None` if there is none.
fn skip_gap(
    header: &DataHeader,
    len: usize,
    due: &mut u64,
    is_out_of_sync: &mut bool,
    messages: &mut MessageReader,
    sink: &mut dyn Sink,
) -> Option<usize> {
    if header.offset < *due {
        return None;
    }
    if header.offset > *due {
        messages.abandon(sink);
        *due = header.offset;
        *is_out_of_sync = true;
    }
    if !*is_out_of_sync {
        return Some(0);
    }
    match header.first {
        Some(first) => {
            *is_out_of_sync = false;
            messages.taken = header.number;
            *due += u64::from(first);
            Some(usize::from(first))
        }
        None => {
            *due += len as u64;
            None
        }
    }
}
