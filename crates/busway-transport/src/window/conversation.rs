//! What stands while a link is up: the control rings and the channels that are being opened.
//!
//! Contract: lives from link up to link down; everything the peer says is checked. Called by [`super::link`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use busway_core::Window;
use busway_core::register::{RegisterReader, RegisterWriter};
use busway_core::ring::{CREDIT_BYTES, RingConsumer, RingProducer};

use super::doorbell::{Belfry, Wake};
use super::gate::Conversation;
use super::header::{self, PeerPulse};
use super::landing_place::LandingPlace;
use super::landings::{Landings, Lease};
use super::layout::{ENTRY_BYTES, WindowLayout, drawn};
use super::mapping::{Mapped, Trouble};
use super::pci::error::ALL_ONES;
use super::talk::{Heard, Talk};
use super::way::{Homeward, Outward, ReceiverBell, SenderBell};
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
pub struct Opened {
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

impl Opened {
    /// Nothing is handed out yet.
    pub fn new(read_layout: WindowLayout, write_layout: WindowLayout, read: Mapped, write: Mapped) -> Opened {
        let landings = Landings::new(&read_layout, &write_layout);
        Opened {
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
    pub fn trouble(&self) -> Option<Trouble> {
        self.read.trouble().or_else(|| self.write.trouble())
    }

    /// What to say if the window that this host reads answers with ones only; `None` if it does not.
    pub fn all_ones(&self) -> Option<String> {
        header::reads_all_ones(&self.read.window)
            .then(|| format!("the window in {} {ALL_ONES}", self.read.source()))
    }

    fn both(&self) -> [Mapped; 2] {
        [self.read.clone(), self.write.clone()]
    }
}

/// The part of `window` at `at`; offsets come from layouts and checked places, so a failure is a mistake of ours or of a
/// checked number, and is said, not assumed away.
fn part(window: &Window, at: usize, bytes: usize) -> Result<Window, String> {
    window.sub(at, bytes).map_err(|error| error.to_string())
}

/// A landing place whose sender has not reported yet.
#[derive(Debug)]
struct Expected {
    spec: ChannelSpec,
    place: LandingPlace,
    parts: Parts,
    lease: Arc<Lease>,
}

/// A conversation that stands.
#[derive(Debug)]
pub struct Up<M> {
    /// Ends the channel ends when the link goes down.
    pub conversation: Arc<Conversation>,
    /// Whether the peer can ring this host.
    pub is_rung: bool,
    peer_conversation: u64,
    peer_session: u64,
    talk: Talk,
    expected: HashMap<ChannelId, Expected>,
    heartbeat: u64,
    heard_at: Instant,
    checked_at: Instant,
    _message: std::marker::PhantomData<fn(M)>,
}

/// First position of the control ring that `writer` writes in its conversation with `reader`.
fn control_start(writer: u64, reader: u64) -> u64 {
    drawn(writer.rotate_left(23) ^ reader.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl<M: Message> Up<M> {
    /// The conversation `own` with a peer that has answered with `pulse` and `hello`.
    ///
    /// # Errors
    /// In words.
    pub fn new(
        opened: &Opened,
        own: u64,
        pulse: &PeerPulse,
        hello: &PeerHello,
        now: Instant,
    ) -> Result<Up<M>, String> {
        let (read, write) = (&opened.read_layout, &opened.write_layout);
        let credit = |layout: &WindowLayout, window| {
            let at = layout
                .credit_at(CONTROL_CREDIT)
                .ok_or("no entry for the control ring")?;
            part(window, at + CREDIT_RING_AT, CREDIT_BYTES)
        };
        let out = RingProducer::new(
            part(
                &opened.write.window,
                write.control_at,
                write.control.required_bytes(),
            )?,
            write.control,
            control_start(own, pulse.conversation),
            credit(read, &opened.read.window)?,
        );
        let incoming = RingConsumer::new(
            part(
                &opened.read.window,
                read.control_at,
                read.control.required_bytes(),
            )?,
            read.control,
            control_start(pulse.conversation, own),
            credit(write, &opened.write.window)?,
        );
        Ok(Up {
            conversation: Arc::new(Conversation::default()),
            is_rung: pulse.rings == own,
            peer_conversation: pulse.conversation,
            peer_session: hello.session,
            talk: Talk::new(
                out.map_err(|error| error.to_string())?,
                incoming.map_err(|error| error.to_string())?,
            ),
            expected: HashMap::new(),
            heartbeat: pulse.heartbeat,
            heard_at: now,
            checked_at: now,
            _message: std::marker::PhantomData,
        })
    }

    /// Looks whether the peer is still there, in the same conversation.
    ///
    /// # Errors
    /// In words: it is not.
    pub fn check_pulse(
        &mut self,
        opened: &Opened,
        own: u64,
        now: Instant,
        timeout: Duration,
    ) -> Result<(), String> {
        let pulse = PeerPulse::read(&opened.read.window).map_err(|error| error.to_string())?;
        if let Some(why) = opened.all_ones() {
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
            self.heard_at = now;
        } else if absence > timeout / 4 {
            // While this host did not look (it was not scheduled, or stopped), the peer's silence says nothing.
            self.heard_at += absence;
        }
        let silence = now.saturating_duration_since(self.heard_at);
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
    ///
    /// # Errors
    /// In words: why the conversation is over.
    pub fn turn(
        &mut self,
        opened: &mut Opened,
        belfry: &mut Belfry,
        events: &mut VecDeque<LinkEvent<M>>,
    ) -> Result<(), String> {
        loop {
            let (heard, moved) = self.talk.hear()?;
            if moved.ring {
                belfry.ring_control();
            }
            match heard {
                None => break,
                Some(Heard::User(bytes)) => events.push_back(LinkEvent::Control(bytes)),
                Some(Heard::Attached(channel, lane)) => {
                    let Some(expected) = self.expected.remove(&channel) else {
                        tracing::debug!(?channel, "the peer opened a sender that nobody here waits for");
                        continue;
                    };
                    let end = self.receiver(opened, belfry, expected, lane);
                    events.push_back(LinkEvent::Channel(Direction::Receive, channel, end));
                }
            }
        }
        self.flush(belfry)
    }

    fn flush(&mut self, belfry: &Belfry) -> Result<(), String> {
        if self.talk.flush()?.ring {
            belfry.ring_control();
        }
        Ok(())
    }

    /// Sends a control message. A failure shows at the next turn.
    pub fn say(&mut self, bytes: &[u8], belfry: &Belfry) {
        self.talk.say(bytes);
        let _ = self.flush(belfry);
    }

    /// See [`crate::Link::open_receiver`].
    ///
    /// # Errors
    /// No room.
    pub fn open_receiver(
        &mut self,
        opened: &mut Opened,
        belfry: &mut Belfry,
        channel: ChannelId,
        spec: &ChannelSpec,
        lane: u32,
        tag: u64,
    ) -> Result<Vec<u8>, OpenError> {
        let (mut place, parts, lease) = opened
            .landings
            .open(channel, spec, tag)
            .map_err(OpenError::NoRoom)?;
        place.lane = self.bell(opened, belfry, lane);
        let credit = opened
            .write_layout
            .credit_at(place.credit)
            .ok_or(OpenError::Down)?;
        for word in [CREDIT_TAKEN_SEQUENCE_AT, CREDIT_TAKEN_COUNT_AT] {
            let _ = opened.write.window.store(credit + word, 0);
        }
        let _ = opened.write.window.store(credit + CREDIT_CLOSED_AT, !tag);
        // Before the description goes out through the control ring.
        opened.write.window.write_fence();
        let landing = place.encode();
        self.expected.insert(
            channel,
            Expected {
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
        opened: &mut Opened,
        belfry: &mut Belfry,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
    ) -> Result<ChannelEnd<M>, OpenError> {
        let place = LandingPlace::decode(landing).map_err(OpenError::BadLanding)?;
        let (parts, at) = place.check(&opened.write_layout).map_err(OpenError::BadLanding)?;
        let wake = self.wake(opened, belfry, place.lane).map_err(OpenError::Io)?;
        let own_lane = self.bell(opened, belfry, lane);
        let end = self
            .sender(opened, &place, &parts, at, spec, wake, own_lane)
            .map_err(OpenError::BadLanding)?;
        self.talk.say_attached(channel, own_lane);
        let _ = self.flush(belfry);
        Ok(end)
    }

    /// Forgets a landing place whose sender has not reported.
    pub fn forget(&mut self, channel: ChannelId) {
        self.expected.remove(&channel);
    }

    /// The lane, if it can be rung.
    fn bell(&self, opened: &Opened, belfry: &mut Belfry, lane: u32) -> Option<u32> {
        let can_be_armed = self.is_rung && opened.write_layout.lane_at(lane).is_some();
        (can_be_armed && belfry.lane(lane).is_some()).then_some(lane)
    }

    /// The means to wake the peer's lane, if it wants to be woken.
    fn wake(
        &self,
        opened: &Opened,
        belfry: &mut Belfry,
        lane: Option<u32>,
    ) -> Result<Option<Wake>, std::io::Error> {
        let Some(lane) = lane else { return Ok(None) };
        let at = opened
            .read_layout
            .lane_at(lane)
            .ok_or_else(|| std::io::Error::other(format!("the peer's lane {lane} has no entry")))?;
        let armed = part(&opened.read.window, at, ENTRY_BYTES).map_err(std::io::Error::other)?;
        let ringer = belfry.ringer(lane).map_err(|error| {
            std::io::Error::new(
                error.kind(),
                format!("the doorbell of the peer's lane {lane}: {error}"),
            )
        })?;
        Ok(Some(Wake::new(ringer, armed)))
    }

    #[allow(clippy::too_many_arguments)] // One call, all of different types.
    fn sender(
        &self,
        opened: &Opened,
        place: &LandingPlace,
        parts: &Parts,
        at: usize,
        spec: &ChannelSpec,
        wake: Option<Wake>,
        own_lane: Option<u32>,
    ) -> Result<ChannelEnd<M>, String> {
        let window = part(&opened.write.window, at, parts.total_bytes)?;
        let credit_at = opened
            .read_layout
            .credit_at(place.credit)
            .ok_or("a credit entry that does not exist")?;
        let credit = part(&opened.read.window, credit_at, ENTRY_BYTES)?;
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
        let base: SenderBase<Outward> = SenderBase {
            gate: self.conversation.gate(),
            tag: place.tag,
            bell: SenderBell::new(wake, line.clone()),
            line,
            credit,
            wait_for: wait_for(own_lane),
            keep: opened.both(),
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
        opened: &Opened,
        belfry: &mut Belfry,
        expected: Expected,
        lane: Option<u32>,
    ) -> Result<ChannelEnd<M>, String> {
        let Expected {
            spec,
            place,
            parts,
            lease,
        } = expected;
        let at = opened.read_layout.landing_at + place.offset as usize;
        let window = part(&opened.read.window, at, parts.total_bytes)?;
        let credit_at = opened
            .write_layout
            .credit_at(place.credit)
            .ok_or("a credit entry that does not exist")?;
        let line = part(&window, 0, ENTRY_BYTES)?;
        let base: ReceiverBase<Homeward> = ReceiverBase {
            tag: place.tag,
            gate: self.conversation.gate(),
            credit: part(&opened.write.window, credit_at, ENTRY_BYTES)?,
            bell: ReceiverBell::new(None, line.clone()),
            line: line.clone(),
            wait_for: wait_for(place.lane),
            empty_polls: 0,
            _keep: (opened.both(), lease),
        };
        let wake = self
            .wake(opened, belfry, lane)
            .map_err(|error| error.to_string())?;
        let bank = CreditWriter {
            gate: self.conversation.gate(),
            credit: base.credit.clone(),
            bell: ReceiverBell::new(wake, line),
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
