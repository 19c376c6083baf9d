//! The receiving end of a channel: datagrams, put together in the places of the sink.
//!
//! Bytes that are due go straight to the landing. On a reliable channel what comes early is kept in a ring, as large as the window
//! that the sender was given, until the gap before it is closed. Otherwise a gap is given up at once: the message in progress is
//! abandoned, what comes late is dropped, and the stream goes on at the next head. Used by one lane; nothing here
//! allocates after [`UdpReceiver::new`], locks or waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use super::hearing::{Hearing, Way};
use super::incoming::{Budget, Incoming};
use super::receiving::{Gaps, Placed, Seen};
use super::settings::Delivery;
use super::socket::{Arrivals, UdpSocket, is_for_later};
use super::wire::{Datagram, Purpose, Run, decode};
use crate::contract::{ChannelError, Receiver, Sink, WaitFor};
use crate::stream::again;

/// Errors that one look at the socket may bring.
const ERRORS: u32 = 8;

/// What has come and is not used.
enum Order {
    /// Everything is used, in order.
    Reliable { gaps: Gaps, ring: Box<[u8]> },
    /// What comes next is used.
    BestEffort {
        /// Offset of the byte that is due.
        due: u64,
        /// The stream was torn: no head is known.
        is_torn: bool,
        /// Bytes of the current datagram that are used; `None` before it was looked at.
        used: Option<usize>,
        window_bytes: u64,
    },
}

/// The receiving end of a channel.
pub(super) struct UdpReceiver {
    socket: Arc<UdpSocket>,
    token: u64,
    arrivals: Arrivals,
    /// What the sender sends to several comes another way.
    hearing: Option<Hearing>,
    incoming: Incoming,
    order: Order,
    seen: Seen,
    /// Something came that is to be answered.
    is_asked: bool,
    /// The last answer said so much of messages taken, and of the limit.
    told: (u64, u64),
    /// Where the stream ends, once that is known.
    ends_at: Option<u64>,
    /// Nobody is there any more: the system says so when answers are sent.
    refusal: Option<io::Error>,
    failure: Option<ChannelError>,
}

impl UdpReceiver {
    pub(super) fn new(
        socket: Arc<UdpSocket>,
        token: u64,
        delivery: Delivery,
        window_bytes: u64,
        hearing: Option<Hearing>,
    ) -> Self {
        let order = match delivery {
            Delivery::Reliable => Order::Reliable {
                gaps: Gaps::new(window_bytes),
                ring: vec![0; window_bytes as usize].into_boxed_slice(),
            },
            Delivery::BestEffort => Order::BestEffort {
                due: 0,
                is_torn: false,
                used: None,
                // What does not fit the socket's buffer would be lost.
                window_bytes: window_bytes.min(socket.buffer_bytes() / 2),
            },
        };
        UdpReceiver {
            socket,
            token,
            arrivals: Arrivals::new(),
            hearing,
            incoming: Incoming::new(),
            order,
            seen: Seen::default(),
            is_asked: false,
            told: (0, 0),
            ends_at: None,
            refusal: None,
            failure: None,
        }
    }

    /// All bytes before have arrived or are given up, those before are used, and so far goes the room.
    fn marks(&self) -> (u64, u64, u64) {
        match &self.order {
            Order::Reliable { gaps, .. } => (gaps.received(), gaps.used(), gaps.limit()),
            Order::BestEffort {
                due, window_bytes, ..
            } => (*due, *due, due.saturating_add(*window_bytes)),
        }
    }

    fn is_ended(&self) -> bool {
        self.ends_at.is_some_and(|end| self.marks().1 >= end)
    }

    /// Tells the sender what has come and been taken.
    pub(super) fn answer(&mut self) {
        let (received, _, limit) = self.marks();
        let mut answer = self
            .seen
            .answer(received, limit, self.incoming.taken, self.is_ended());
        if let Some(hearing) = &self.hearing {
            hearing.tell(&mut answer);
        }
        match self.socket.send(&answer.encode(self.token)) {
            Ok(()) => {
                self.is_asked = false;
                self.told = (self.incoming.taken, limit);
            }
            // The sender asks again.
            Err(error) if is_for_later(&error) => {}
            Err(error) => self.refused(error),
        }
    }

    fn refused(&mut self, error: io::Error) {
        // Anything else is the network's, and passes.
        if error.kind() == io::ErrorKind::ConnectionRefused {
            self.refusal = Some(error);
        }
    }

    /// Whether the sender should hear of what was taken, though it has not asked.
    fn has_news(&self) -> bool {
        let (_, used, limit) = self.marks();
        self.told.0 != self.incoming.taken || limit - self.told.1 > (limit - used) / 4
    }

    /// Uses what is there until there is no more, or the budget is spent.
    fn take(&mut self, sink: &mut dyn Sink, budget: &mut Budget) -> Result<(), ChannelError> {
        self.use_kept(sink, budget)?;
        let mut errors = 0;
        loop {
            while let Some(way) = self.due_way() {
                if !self.use_way(way, sink, budget)? {
                    return Ok(());
                }
            }
            if self.is_asked {
                self.answer();
            }
            if budget.is_spent() || self.is_ended() {
                return Ok(());
            }
            match self.look() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // Each is told once, and what has arrived lies behind it.
                Err(error) if errors < ERRORS => {
                    self.refused(error);
                    errors += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Which way has the datagram that is due.
    fn due_way(&self) -> Option<Way> {
        match &self.hearing {
            Some(hearing) => hearing.due(&self.arrivals, self.token),
            None => self.arrivals.current().map(|_| Way::Own),
        }
    }

    /// Takes what is there, where nothing is left to use; false if nothing is.
    fn look(&mut self) -> io::Result<bool> {
        match &mut self.hearing {
            Some(hearing) => hearing.look(&mut self.arrivals, &self.socket),
            None => self.arrivals.fill(&self.socket),
        }
    }

    /// Uses the datagram that is due; false if some of it must wait.
    fn use_way(&mut self, way: Way, sink: &mut dyn Sink, budget: &mut Budget) -> Result<bool, ChannelError> {
        let swap = |receiver: &mut UdpReceiver| {
            if let (Way::Group, Some(hearing)) = (way, &mut receiver.hearing) {
                std::mem::swap(&mut receiver.arrivals, &mut hearing.arrivals);
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

    /// Uses kept bytes that are due.
    fn use_kept(&mut self, sink: &mut dyn Sink, budget: &mut Budget) -> Result<(), ChannelError> {
        let Order::Reliable { gaps, ring } = &mut self.order else {
            return Ok(());
        };
        loop {
            let from = (gaps.used() % ring.len() as u64) as usize;
            let due = usize::try_from(gaps.due())
                .unwrap_or(usize::MAX)
                .min(ring.len() - from);
            let used = self.incoming.take(&ring[from..from + due], sink, budget)?;
            gaps.use_bytes(used as u64);
            if used == 0 || used < due {
                return Ok(());
            }
        }
    }

    /// Uses the datagram that is due; false if some of it must wait.
    fn use_current(&mut self, sink: &mut dyn Sink, budget: &mut Budget) -> Result<bool, ChannelError> {
        let bytes = self.arrivals.current().unwrap_or_default();
        let (run, bytes) = match decode(bytes) {
            Some((token, Datagram::Run(run, bytes))) if token == self.token => (run, bytes),
            // The sender has not heard the answer to its opening.
            Some((token, Datagram::Open(_))) if token == self.token => {
                self.is_asked = true;
                return Ok(true);
            }
            Some((token, Datagram::Invite(port))) if token == self.token => {
                if let Some(hearing) = &mut self.hearing {
                    hearing.join(port, &self.socket);
                }
                self.is_asked = true;
                return Ok(true);
            }
            Some((_, Datagram::Shared(shares, bytes))) => {
                let hearing = self.hearing.as_mut();
                match hearing.and_then(|hearing| hearing.read(&shares, self.token, bytes.len())) {
                    Some(run) => (run, bytes),
                    None => {
                        // A call, or what is for others.
                        self.is_asked |= bytes.is_empty();
                        return Ok(true);
                    }
                }
            }
            _ => {
                self.socket.note_stranger();
                return Ok(true);
            }
        };
        self.is_asked = true;
        if run.purpose == Purpose::End {
            self.ends_at.get_or_insert(run.offset);
        }
        match &mut self.order {
            Order::Reliable { gaps, ring } => {
                let is_kept = sort(&run, bytes, gaps, ring, &mut self.incoming, sink, budget)?;
                if is_kept {
                    self.seen.note(run.packet);
                }
                self.use_kept(sink, budget)?;
                Ok(true)
            }
            Order::BestEffort {
                due, is_torn, used, ..
            } => {
                self.seen.note(run.packet);
                let mut from = match *used {
                    Some(from) => from,
                    None => match meet(&run, bytes.len(), due, is_torn, &mut self.incoming, sink) {
                        Some(from) => from,
                        None => return Ok(true),
                    },
                };
                let taken = self.incoming.take(&bytes[from..], sink, budget)?;
                *due += taken as u64;
                from += taken;
                let is_done = from == bytes.len();
                *used = (!is_done).then_some(from);
                Ok(is_done)
            }
        }
    }

    /// Why the channel can't go on, once everything that has arrived is used.
    fn ending(&self) -> Option<ChannelError> {
        if self.is_ended() {
            return Some(if self.incoming.is_between() {
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
        // Before the look at the socket, so that what came before the end of the conversation is taken.
        let ending = self.socket.is_void();
        let result = self.take(sink, &mut budget);
        if self.is_asked || self.has_news() {
            self.answer();
        }
        let failure = match result {
            Err(error) => Some(error),
            Ok(()) if budget.is_spent() || (self.socket.is_void() && !ending) => None,
            Ok(()) => self.ending(),
        };
        if let Some(failure) = failure {
            self.incoming.give_up(sink);
            self.failure = Some(again(&failure));
            if budget.delivered == 0 {
                return Err(failure);
            }
        }
        Ok(budget.delivered)
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Fd {
            fd: match &self.hearing {
                Some(hearing) => hearing.as_fd().as_raw_fd(),
                None => self.socket.as_fd().as_raw_fd(),
            },
            writable: false,
        }
    }
}

/// Uses bytes that are due, and keeps those that are early or can't be used now. Whether they need not come again.
fn sort(
    run: &Run,
    bytes: &[u8],
    gaps: &mut Gaps,
    ring: &mut [u8],
    incoming: &mut Incoming,
    sink: &mut dyn Sink,
    budget: &mut Budget,
) -> Result<bool, ChannelError> {
    let (mut offset, mut bytes) = (run.offset, bytes);
    match gaps.place(offset, bytes.len() as u64) {
        Placed::Old => return Ok(true),
        Placed::NoRoom => return Ok(false),
        Placed::Early => {}
        Placed::Due(skip) => {
            bytes = &bytes[skip..];
            // Kept bytes that are due go first; only where the sink puts them off there are any.
            let used = if gaps.due() == 0 {
                incoming.take(bytes, sink, budget)?
            } else {
                0
            };
            gaps.use_bytes(used as u64);
            bytes = &bytes[used..];
            offset = gaps.used();
        }
    }
    if bytes.is_empty() {
        return Ok(true);
    }
    if !gaps.keep(offset, offset + bytes.len() as u64) {
        return Ok(false);
    }
    let from = (offset % ring.len() as u64) as usize;
    let (before_end, rest) = bytes.split_at(bytes.len().min(ring.len() - from));
    ring[from..from + before_end.len()].copy_from_slice(before_end);
    ring[..rest.len()].copy_from_slice(rest);
    Ok(true)
}

/// Looks at a datagram of a stream with gaps: gives up what will not come, and finds the next head. Returns which bytes can be used from; `None`
/// if none can.
fn meet(
    run: &Run,
    len: usize,
    due: &mut u64,
    is_torn: &mut bool,
    incoming: &mut Incoming,
    sink: &mut dyn Sink,
) -> Option<usize> {
    if run.offset < *due {
        return None;
    }
    if run.offset > *due {
        incoming.give_up(sink);
        *due = run.offset;
        *is_torn = true;
    }
    if !*is_torn {
        return Some(0);
    }
    match run.first {
        Some(first) => {
            *is_torn = false;
            incoming.taken = run.number;
            *due += u64::from(first);
            Some(usize::from(first))
        }
        None => {
            *due += len as u64;
            None
        }
    }
}
