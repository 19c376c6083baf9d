//! A conversation with the peer, from link up to link down: the control rings and the channels
//! being opened.
//!
//! Contract: everything the peer wrote is checked. Called by [`super::link`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use busway_core::Window;
use busway_core::register::{RegisterReader, RegisterWriter};
use busway_core::ring::{CREDIT_BYTES, RingConsumer, RingProducer};

use super::channel_access::{ReceiverAccess, ReceiverWaker, SenderAccess, SenderWaker};
use super::control_stream::{ControlStream, Incoming};
use super::doorbell::{Doorbells, LaneWaker};
use super::header::{self, PeerPulse};
use super::landing_place::LandingPlace;
use super::landings::{Landings, Lease};
use super::layout::{ENTRY_BYTES, WindowLayout, drawn};
use super::mapping::{Mapped, SourceFault};
use super::pci::error::ALL_ONES;
use super::write_permission::WritePermissions;
use crate::contract::{
    ChannelEnd, ChannelId, ChannelSpec, Direction, Keep, LinkEvent, Message, OpenError, PeerHello, WaitFor,
};
use crate::remote_write::credit_writer::CreditWriter;
use crate::remote_write::receiver::{LatestReceiver, QueueReceiver, ReceiverBase};
use crate::remote_write::sender::{LatestSender, QueueSender, SenderBase};
use crate::remote_write::shape::Parts;
use crate::remote_write::{
    CREDIT_CLOSED_AT, CREDIT_RING_AT, CREDIT_TAKEN_COUNT_AT, CREDIT_TAKEN_SEQUENCE_AT, SENDER_CLOSED_AT,
};

/// Credit entry of the control ring.
const CONTROL_CREDIT: u32 = 0;

/// Both windows, mapped, and what is handed out in them.
#[derive(Debug)]
pub struct WindowPair {
    /// Where things lie in the window that this host reads.
    pub read_layout: WindowLayout,
    /// Where things lie in the window that this host writes.
    pub write_layout: WindowLayout,
    /// The window that this host reads.
    pub read: Mapped,
    /// The window that this host writes.
    pub write: Mapped,
    /// The landing places in the window that this host reads.
    pub landings: Landings,
}

impl WindowPair {
    /// Nothing is handed out yet.
    pub fn new(
        read_layout: WindowLayout,
        write_layout: WindowLayout,
        read: Mapped,
        write: Mapped,
    ) -> WindowPair {
        let landings = Landings::new(&read_layout, &write_layout);
        WindowPair {
            read_layout,
            write_layout,
            read,
            write,
            landings,
        }
    }

    /// Clears the armed words of all of this host's lanes.
    pub fn disarm_all_lanes(&self) {
        for lane in 0..self.write_layout.lanes as u32 {
            if let Some(at) = self.write_layout.lane_at(lane) {
                let _ = self.write.window.store(at, 0);
            }
        }
    }

    /// What has happened to the files, if anything.
    pub fn fault(&self) -> Option<SourceFault> {
        self.read.fault().or_else(|| self.write.fault())
    }

    /// An error text if the read window reads all ones.
    pub fn all_ones(&self) -> Option<String> {
        header::reads_all_ones(&self.read.window)
            .then(|| format!("the window in {} {ALL_ONES}", self.read.source()))
    }

    fn both(&self) -> [Mapped; 2] {
        [self.read.clone(), self.write.clone()]
    }
}

/// The part of `window` at `at`. Offsets are ours or checked, so a failure is our mistake: it is
/// reported.
fn part(window: &Window, at: usize, bytes: usize) -> Result<Window, String> {
    window.sub(at, bytes).map_err(|error| error.to_string())
}

/// A landing place whose sender has not reported yet.
#[derive(Debug)]
struct PendingReceiver {
    spec: ChannelSpec,
    place: LandingPlace,
    parts: Parts,
    lease: Arc<Lease>,
}

/// A conversation that is up.
#[derive(Debug)]
pub struct Conversation<M> {
    /// Ends the channel ends when the link goes down.
    pub permissions: Arc<WritePermissions>,
    /// Whether the peer can ring this host.
    pub is_rung: bool,
    peer_conversation: u64,
    peer_session: u64,
    control: ControlStream,
    expected: HashMap<ChannelId, PendingReceiver>,
    heartbeat: u64,
    last_heartbeat_at: Instant,
    checked_at: Instant,
    _message: std::marker::PhantomData<fn(M)>,
}

/// First position of the control ring that `writer` writes in its conversation with `reader`.
fn control_start(writer: u64, reader: u64) -> u64 {
    drawn(writer.rotate_left(23) ^ reader.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl<M: Message> Conversation<M> {
    /// The conversation `own` with a peer that has answered with `pulse` and `hello`.
    pub fn new(
        pair: &WindowPair,
        own: u64,
        pulse: &PeerPulse,
        hello: &PeerHello,
        now: Instant,
    ) -> Result<Conversation<M>, String> {
        let (read, write) = (&pair.read_layout, &pair.write_layout);
        let credit = |layout: &WindowLayout, window| {
            let at = layout
                .credit_at(CONTROL_CREDIT)
                .ok_or("no entry for the control ring")?;
            part(window, at + CREDIT_RING_AT, CREDIT_BYTES)
        };
        let out = RingProducer::new(
            part(
                &pair.write.window,
                write.control_at,
                write.control.required_bytes(),
            )?,
            write.control,
            control_start(own, pulse.conversation),
            credit(read, &pair.read.window)?,
        );
        let incoming = RingConsumer::new(
            part(&pair.read.window, read.control_at, read.control.required_bytes())?,
            read.control,
            control_start(pulse.conversation, own),
            credit(write, &pair.write.window)?,
        );
        Ok(Conversation {
            permissions: Arc::new(WritePermissions::default()),
            is_rung: pulse.rings == own,
            peer_conversation: pulse.conversation,
            peer_session: hello.session,
            control: ControlStream::new(
                out.map_err(|error| error.to_string())?,
                incoming.map_err(|error| error.to_string())?,
            ),
            expected: HashMap::new(),
            heartbeat: pulse.heartbeat,
            last_heartbeat_at: now,
            checked_at: now,
            _message: std::marker::PhantomData,
        })
    }

    /// Looks whether the peer is still there, in the same conversation.
    pub fn check_pulse(
        &mut self,
        pair: &WindowPair,
        own: u64,
        now: Instant,
        timeout: Duration,
    ) -> Result<(), String> {
        let pulse = PeerPulse::read(&pair.read.window).map_err(|error| error.to_string())?;
        if let Some(why) = pair.all_ones() {
            return Err(why);
        }
        if pulse.conversation == 0 {
            return Err("the peer has closed the link".into());
        }
        if pulse.conversation != self.peer_conversation || pulse.echo != own {
            return Err(format!(
                "the peer (session {:x}) has begun a new conversation, or its header was overwritten",
                self.peer_session
            ));
        }
        let absence = now.saturating_duration_since(self.checked_at);
        self.checked_at = now;
        if pulse.heartbeat != self.heartbeat {
            self.heartbeat = pulse.heartbeat;
            self.last_heartbeat_at = now;
        } else if absence > timeout / 4 {
            // This host was not scheduled: the peer's silence in that time does not count.
            self.last_heartbeat_at += absence;
        }
        let silence = now.saturating_duration_since(self.last_heartbeat_at);
        if silence > timeout {
            return Err(format!(
                "no heartbeat of the peer for {} ms, {} ms are allowed",
                silence.as_millis(),
                timeout.as_millis()
            ));
        }
        Ok(())
    }

    /// Moves control messages both ways.
    pub fn turn(
        &mut self,
        pair: &mut WindowPair,
        doorbells: &mut Doorbells,
        events: &mut VecDeque<LinkEvent<M>>,
    ) -> Result<(), String> {
        loop {
            let (incoming, progress) = self.control.receive()?;
            if progress.ring {
                doorbells.ring_control();
            }
            match incoming {
                None => break,
                Some(Incoming::User(bytes)) => events.push_back(LinkEvent::Control(bytes)),
                Some(Incoming::Attached(channel, lane)) => {
                    let Some(expected) = self.expected.remove(&channel) else {
                        tracing::debug!(?channel, "the peer pair a sender that nobody here waits for");
                        continue;
                    };
                    let end = self.receiver(pair, doorbells, expected, lane);
                    events.push_back(LinkEvent::Channel(Direction::Receive, channel, end));
                }
            }
        }
        self.flush(doorbells)
    }

    fn flush(&mut self, doorbells: &Doorbells) -> Result<(), String> {
        if self.control.flush()?.ring {
            doorbells.ring_control();
        }
        Ok(())
    }

    /// Sends a control message. A failure shows at the next turn.
    pub fn send(&mut self, bytes: &[u8], doorbells: &Doorbells) {
        self.control.send(bytes);
        let _ = self.flush(doorbells);
    }

    /// See [`crate::Link::open_receiver`].
    ///
    /// # Errors
    /// No room.
    pub fn open_receiver(
        &mut self,
        pair: &mut WindowPair,
        doorbells: &mut Doorbells,
        channel: ChannelId,
        spec: &ChannelSpec,
        lane: u32,
        tag: u64,
    ) -> Result<Vec<u8>, OpenError> {
        let (mut place, parts, lease) = pair
            .landings
            .open(channel, spec, tag)
            .map_err(OpenError::NoRoom)?;
        place.lane = self.bell(pair, doorbells, lane);
        let credit = pair.write_layout.credit_at(place.credit).ok_or(OpenError::Down)?;
        for word in [CREDIT_TAKEN_SEQUENCE_AT, CREDIT_TAKEN_COUNT_AT] {
            let _ = pair.write.window.store(credit + word, 0);
        }
        let _ = pair.write.window.store(credit + CREDIT_CLOSED_AT, !tag);
        // Before the description goes out through the control ring.
        pair.write.window.write_fence();
        let landing = place.encode();
        self.expected.insert(
            channel,
            PendingReceiver {
                spec: *spec,
                place,
                parts,
                lease,
            },
        );
        Ok(landing)
    }

    /// See [`crate::Link::open_sender`].
    ///
    /// # Errors
    /// The landing place is impossible, or the peer's lane can't be rung.
    pub fn open_sender(
        &mut self,
        pair: &mut WindowPair,
        doorbells: &mut Doorbells,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
    ) -> Result<ChannelEnd<M>, OpenError> {
        let place = LandingPlace::decode(landing).map_err(OpenError::BadLanding)?;
        let (parts, at) = place.check(&pair.write_layout).map_err(OpenError::BadLanding)?;
        let wake = self.wake(pair, doorbells, place.lane).map_err(OpenError::Io)?;
        let own_lane = self.bell(pair, doorbells, lane);
        let end = self
            .sender(pair, &place, &parts, at, spec, wake, own_lane)
            .map_err(OpenError::BadLanding)?;
        self.control.send_attached(channel, own_lane);
        let _ = self.flush(doorbells);
        Ok(end)
    }

    /// Forgets a landing place whose sender has not reported.
    pub fn forget(&mut self, channel: ChannelId) {
        self.expected.remove(&channel);
    }

    /// The lane, if it can be rung.
    fn bell(&self, pair: &WindowPair, doorbells: &mut Doorbells, lane: u32) -> Option<u32> {
        let can_be_armed = self.is_rung && pair.write_layout.lane_at(lane).is_some();
        (can_be_armed && doorbells.lane(lane).is_some()).then_some(lane)
    }

    /// The waker of the peer's lane; `None` if that lane polls.
    fn wake(
        &self,
        pair: &WindowPair,
        doorbells: &mut Doorbells,
        lane: Option<u32>,
    ) -> Result<Option<LaneWaker>, std::io::Error> {
        let Some(lane) = lane else { return Ok(None) };
        let at = pair
            .read_layout
            .lane_at(lane)
            .ok_or_else(|| std::io::Error::other(format!("the peer's lane {lane} has no entry")))?;
        let armed = part(&pair.read.window, at, ENTRY_BYTES).map_err(std::io::Error::other)?;
        let ringer = doorbells.ringer(lane).map_err(|error| {
            std::io::Error::new(
                error.kind(),
                format!("the doorbell of the peer's lane {lane}: {error}"),
            )
        })?;
        Ok(Some(LaneWaker::new(ringer, armed)))
    }

    #[allow(clippy::too_many_arguments)] // One call, all of different types.
    fn sender(
        &self,
        pair: &WindowPair,
        place: &LandingPlace,
        parts: &Parts,
        at: usize,
        spec: &ChannelSpec,
        wake: Option<LaneWaker>,
        own_lane: Option<u32>,
    ) -> Result<ChannelEnd<M>, String> {
        let window = part(&pair.write.window, at, parts.total_bytes)?;
        let credit_at = pair
            .read_layout
            .credit_at(place.credit)
            .ok_or("a credit entry that does not exist")?;
        let credit = part(&pair.read.window, credit_at, ENTRY_BYTES)?;
        let ring = RingProducer::new(
            part(&window, parts.ring_at, parts.ring.required_bytes())?,
            parts.ring,
            place.tag,
            credit.clone(),
        )
        .map_err(|error| error.to_string())?;
        let line = part(&window, 0, ENTRY_BYTES)?;
        // What an earlier sender left in the line is void; inside, the line is a whole entry.
        let _ = line.store(SENDER_CLOSED_AT, !place.tag);
        let base: SenderBase<SenderAccess> = SenderBase {
            permission: self.permissions.grant(),
            tag: place.tag,
            waker: SenderWaker::new(wake, line.clone()),
            line,
            credit,
            wait_for: wait_for(own_lane),
            keep: pair.both(),
        };
        Ok(ChannelEnd::Sender(match spec.keep {
            Keep::All { depth } => Box::new(QueueSender::new(base, ring, depth)),
            Keep::Latest => {
                let register = parts.register.map(|(layout, at)| {
                    RegisterWriter::new(part(&window, at, layout.required_bytes())?, layout, place.tag)
                        .map_err(|error| error.to_string())
                });
                Box::new(LatestSender::new(base, ring, register.transpose()?))
            }
        }))
    }

    fn receiver(
        &self,
        pair: &WindowPair,
        doorbells: &mut Doorbells,
        expected: PendingReceiver,
        lane: Option<u32>,
    ) -> Result<ChannelEnd<M>, String> {
        let PendingReceiver {
            spec,
            place,
            parts,
            lease,
        } = expected;
        let at = pair.read_layout.landing_at + place.offset as usize;
        let window = part(&pair.read.window, at, parts.total_bytes)?;
        let credit_at = pair
            .write_layout
            .credit_at(place.credit)
            .ok_or("a credit entry that does not exist")?;
        let line = part(&window, 0, ENTRY_BYTES)?;
        let base: ReceiverBase<ReceiverAccess> = ReceiverBase {
            tag: place.tag,
            permission: self.permissions.grant(),
            credit: part(&pair.write.window, credit_at, ENTRY_BYTES)?,
            waker: ReceiverWaker::new(None, line.clone()),
            line: line.clone(),
            wait_for: wait_for(place.lane),
            empty_polls: 0,
            _keep: (pair.both(), lease),
        };
        let wake = self
            .wake(pair, doorbells, lane)
            .map_err(|error| error.to_string())?;
        let bank = CreditWriter {
            permission: self.permissions.grant(),
            credit: base.credit.clone(),
            waker: ReceiverWaker::new(wake, line),
            given: place.tag,
        };
        let ring = RingConsumer::new(
            part(&window, parts.ring_at, parts.ring.required_bytes())?,
            parts.ring,
            place.tag,
            bank,
        )
        .map_err(|error| error.to_string())?;
        Ok(ChannelEnd::Receiver(match spec.keep {
            Keep::All { .. } => Box::new(QueueReceiver::new(base, ring)),
            Keep::Latest => {
                let register = parts.register.map(|(layout, at)| {
                    RegisterReader::new(part(&window, at, layout.required_bytes())?, layout, place.tag)
                        .map_err(|error| error.to_string())
                });
                Box::new(LatestReceiver::new(base, ring, register.transpose()?))
            }
        }))
    }
}

fn wait_for(lane: Option<u32>) -> WaitFor {
    if lane.is_some() {
        WaitFor::Doorbell
    } else {
        WaitFor::Poll
    }
}
