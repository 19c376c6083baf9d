//! The link: maps the windows, finds the peer, watches it, and opens channels.
//!
//! Each host draws a number for a conversation, writes it into its header, and echoes the number in
//! the other's header. A host whose number is echoed is up. A host that loses the other (silence,
//! another number, an error) revokes its write permissions, waits until no channel end writes, and
//! only then begins a new conversation. So when both are up again, neither writes into memory of
//! the old one.
//!
//! Contract: no call blocks or panics, whatever the peer writes. Called by the control thread.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::conversation::{Conversation, WindowPair};
use super::doorbell::{Doorbells, LaneDoorbell};
use super::header::{OwnHeader, PeerHeader, PeerPulse};
use super::layout::{WindowLayout, drawn};
use super::mapping::{MapError, Mapped, SourceFault};
use super::settings::{LinkSettings, Resolved, Table};
use super::write_permission::WritePermissions;
use crate::contract::Access;
use crate::contract::{
    ChannelId, ChannelSpec, Direction, Doorbell, Link, LinkEvent, LinkIdentity, Message, OpenError,
};

/// First wait after the windows could not be mapped; doubles up to [`LONGEST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_millis(500);
/// How often to look for a peer that is not there, or that can't ring, while nothing happens.
const SEARCH_PERIOD: Duration = Duration::from_millis(20);
/// How often to poll soon after an event, without doorbells.
const BUSY_PERIOD: Duration = Duration::from_millis(1);
/// How long after the last event that goes on.
const BUSY_FOR: Duration = Duration::from_millis(100);

/// A link through two windows.
#[derive(Debug)]
pub struct WindowLink<M: Message> {
    bus: &'static str,
    settings: Resolved,
    identity: LinkIdentity,
    peer_host: String,
    doorbells: Doorbells,
    state: State<M>,
    events: VecDeque<LinkEvent<M>>,
    /// The last refusal reported.
    refusal: Option<String>,
    retry: Duration,
    last_event: Option<Instant>,
    random: RandomState,
    draws: u64,
}

#[derive(Debug)]
enum State<M: Message> {
    /// The windows are not mapped; try again at this time.
    Unmapped(Option<Instant>),
    /// Waits for channel ends of the conversation before to finish a write.
    Ending(Windows, Arc<WritePermissions>),
    /// Looks for the peer; its conversation that was echoed (0: none).
    Greeting(Windows, u64),
    Up(Windows, Box<Conversation<M>>),
}

/// Both windows and what this host writes at regular times.
#[derive(Debug)]
struct Windows {
    pair: WindowPair,
    header: OwnHeader,
    next_beat: Instant,
}

impl<M: Message> WindowLink<M> {
    /// A link over `bus` to the host `peer_host`. Nothing is mapped before the first poll.
    ///
    /// # Errors
    /// The settings are wrong.
    pub(crate) fn open<H: Table>(
        bus: &'static str,
        settings: &LinkSettings<H>,
        identity: &LinkIdentity,
        peer_host: &str,
    ) -> Result<Box<dyn Link<M>>, OpenError> {
        let settings = settings.resolve().map_err(std::io::Error::other)?;
        Ok(Box::new(WindowLink {
            bus,
            doorbells: Doorbells::new(settings.doorbell.clone(), settings.peer_doorbell.clone()),
            settings,
            identity: identity.clone(),
            peer_host: peer_host.into(),
            state: State::Unmapped(None),
            events: VecDeque::new(),
            refusal: None,
            retry: FIRST_RETRY,
            last_event: None,
            random: RandomState::new(),
            draws: 0,
        }))
    }

    /// A number that no earlier conversation or landing place had, never 0.
    fn draw(&mut self) -> u64 {
        self.draws += 1;
        drawn(self.random.hash_one((self.identity.session, self.draws)))
    }

    fn refuse(&mut self, why: String) {
        if self.refusal.as_ref() != Some(&why) {
            self.refusal = Some(why.clone());
            self.events.push_back(LinkEvent::Refused(why));
        }
    }

    fn map(&mut self, now: Instant) -> Result<Windows, String> {
        let text = |error: MapError| error.to_string();
        let write = Mapped::open(&self.settings.write, Access::Writes).map_err(text)?;
        let read = Mapped::open(&self.settings.read, Access::Reads).map_err(text)?;
        let layout = |mapped: &Mapped| {
            WindowLayout::new(mapped.window.len_bytes()).ok_or_else(|| "the window is too small".to_owned())
        };
        self.doorbells.make_control();
        let mut header = OwnHeader::new(write.window.clone(), &self.identity)?;
        header.begin(self.draw());
        let pair = WindowPair::new(layout(&read)?, layout(&write)?, read, write);
        // Lanes of a killed process may have been armed.
        pair.disarm_all_lanes();
        Ok(Windows {
            pair,
            header,
            next_beat: now,
        })
    }

    /// Does what is due, once.
    fn work(&mut self, now: Instant) {
        if let Some(bell) = self.doorbells.control() {
            bell.clear();
        }
        let state = std::mem::replace(&mut self.state, State::Unmapped(None));
        self.state = match state {
            State::Unmapped(at) if at.is_some_and(|at| at > now) => State::Unmapped(at),
            State::Unmapped(_) => match self.map(now) {
                Ok(windows) => {
                    self.retry = FIRST_RETRY;
                    self.greet(windows, 0, now)
                }
                Err(why) => {
                    self.refuse(why);
                    let at = now + self.retry;
                    self.retry = (self.retry * 2).min(LONGEST_RETRY);
                    State::Unmapped(Some(at))
                }
            },
            State::Ending(windows, conversation) => self.finish(windows, conversation, now),
            State::Greeting(windows, answered) => self.greet(windows, answered, now),
            State::Up(windows, up) => self.attend(windows, up, now),
        };
    }

    /// Begins a new conversation once no channel end of the old one writes.
    fn finish(&mut self, mut windows: Windows, old: Arc<WritePermissions>, now: Instant) -> State<M> {
        if !old.has_no_writer() {
            return State::Ending(windows, old);
        }
        windows.header.begin(self.draw());
        windows.next_beat = now;
        self.doorbells.ring_control();
        self.greet(windows, 0, now)
    }

    fn greet(&mut self, mut windows: Windows, mut answered: u64, now: Instant) -> State<M> {
        if windows.beat(now, self.settings.heartbeat)
            && let Some(SourceFault::Unusable(why) | SourceFault::Replaced(why)) = windows.pair.fault()
        {
            // Perhaps the peer waits in the new file.
            tracing::info!(%why, "mapping the windows anew");
            self.doorbells.release_functions();
            return State::Unmapped(None);
        }
        if let Some(why) = windows.pair.all_ones() {
            self.refuse(why);
            return State::Greeting(windows, answered);
        }
        let window = &windows.pair.read.window;
        let (Ok(header), Ok(pulse)) = (PeerHeader::read(window, &self.peer_host), PeerPulse::read(window))
        else {
            return State::Greeting(windows, answered);
        };
        let (conversation, hello) = match header {
            PeerHeader::Absent => return State::Greeting(windows, answered),
            PeerHeader::Unusable(why) => {
                self.refuse(why);
                return State::Greeting(windows, answered);
            }
            PeerHeader::Present { conversation, hello } => (conversation, hello),
        };
        if answered != conversation {
            let rings = self.doorbells.find_peer();
            windows.header.answer(conversation, rings);
            answered = conversation;
            self.doorbells.ring_control();
        }
        let own = windows.header.conversation();
        if pulse.echo != own || pulse.conversation != conversation {
            return State::Greeting(windows, answered);
        }
        match Conversation::new(&windows.pair, own, &pulse, &hello, now) {
            Ok(up) => {
                self.refusal = None;
                self.events.push_back(LinkEvent::Up(hello));
                State::Up(windows, Box::new(up))
            }
            Err(why) => {
                self.refuse(why);
                State::Greeting(windows, answered)
            }
        }
    }

    /// One step of a conversation that is up.
    fn attend(&mut self, mut windows: Windows, mut up: Box<Conversation<M>>, now: Instant) -> State<M> {
        let mut result = Ok(());
        if windows.beat(now, self.settings.heartbeat)
            && let Some(SourceFault::Unusable(why)) = windows.pair.fault()
        {
            result = Err(why);
        }
        let result = result
            .and_then(|()| {
                up.check_pulse(
                    &windows.pair,
                    windows.header.conversation(),
                    now,
                    self.settings.timeout,
                )
            })
            .and_then(|()| up.turn(&mut windows.pair, &mut self.doorbells, &mut self.events));
        match result {
            Ok(()) => State::Up(windows, up),
            Err(why) => {
                // If so, the cause of whatever failed first.
                let why = windows.pair.all_ones().unwrap_or(why);
                self.events.push_back(LinkEvent::Down(why));
                windows.pair.landings.close_all();
                up.permissions.revoke();
                let old = Arc::clone(&up.permissions);
                drop(up);
                self.finish(windows, old, now)
            }
        }
    }

    fn up(&mut self) -> Result<(&mut Windows, &mut Conversation<M>, &mut Doorbells), OpenError> {
        match &mut self.state {
            State::Up(windows, up) => Ok((windows, up, &mut self.doorbells)),
            _ => Err(OpenError::Down),
        }
    }

    fn is_rung(&self) -> bool {
        self.doorbells.control().is_some() && matches!(&self.state, State::Up(_, up) if up.is_rung)
    }
}

impl Windows {
    /// Writes a heartbeat if one is due; whether it was.
    fn beat(&mut self, now: Instant, period: Duration) -> bool {
        if now < self.next_beat {
            return false;
        }
        self.header.beat();
        self.next_beat = now + period;
        true
    }
}

impl<M: Message> Link<M> for WindowLink<M> {
    fn bus(&self) -> &'static str {
        self.bus
    }

    fn silence_timeout(&self) -> Duration {
        self.settings.timeout
    }

    fn poll(&mut self, now: Instant) -> Option<LinkEvent<M>> {
        if self.events.is_empty() {
            self.work(now);
            if !self.events.is_empty() {
                self.last_event = Some(now);
            }
        }
        self.events.pop_front()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.doorbells.fd()
    }

    fn poll_within(&self, now: Instant) -> Duration {
        if !self.events.is_empty() {
            return Duration::ZERO;
        }
        let windows = match &self.state {
            State::Unmapped(at) => return at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now)),
            State::Ending(..) => return BUSY_PERIOD,
            State::Greeting(windows, _) | State::Up(windows, _) => windows,
        };
        let beat = windows.next_beat.saturating_duration_since(now);
        if self.is_rung() {
            return beat.min(self.settings.timeout / 4);
        }
        let is_busy = self
            .last_event
            .is_some_and(|at| now.saturating_duration_since(at) < BUSY_FOR);
        beat.min(if is_busy { BUSY_PERIOD } else { SEARCH_PERIOD })
    }

    fn send_control(&mut self, bytes: &[u8]) -> Result<(), OpenError> {
        let (_, up, doorbells) = self.up()?;
        up.send(bytes, doorbells);
        Ok(())
    }

    fn open_receiver(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        lane: u32,
    ) -> Result<Vec<u8>, OpenError> {
        let tag = self.draw();
        let (windows, up, doorbells) = self.up()?;
        up.open_receiver(&mut windows.pair, doorbells, channel, spec, lane, tag)
    }

    fn open_sender(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
    ) -> Result<(), OpenError> {
        let (windows, up, doorbells) = self.up()?;
        let end = up.open_sender(&mut windows.pair, doorbells, channel, spec, landing, lane)?;
        self.events
            .push_back(LinkEvent::Channel(Direction::Send, channel, Ok(end)));
        Ok(())
    }

    fn close(&mut self, direction: Direction, channel: ChannelId) {
        if let (Direction::Receive, Ok((windows, up, _))) = (direction, self.up()) {
            up.forget(channel);
            windows.pair.landings.close(channel);
        }
    }

    fn doorbell(&mut self, lane: u32) -> Option<Box<dyn Doorbell>> {
        let (windows, up, doorbells) = self.up().ok()?;
        let bell = up.is_rung.then(|| doorbells.lane(lane)).flatten()?;
        let pair = &windows.pair;
        LaneDoorbell::new(bell, &pair.write, &pair.write_layout, lane)
            .map(|bell| Box::new(bell) as Box<dyn Doorbell>)
    }
}

impl<M: Message> Drop for WindowLink<M> {
    fn drop(&mut self) {
        let (windows, conversation) = match &mut self.state {
            State::Unmapped(_) => return,
            State::Greeting(windows, _) => (windows, None),
            State::Ending(windows, conversation) => (windows, Some(Arc::clone(conversation))),
            State::Up(windows, up) => (windows, Some(Arc::clone(&up.permissions))),
        };
        if let Some(conversation) = conversation {
            conversation.revoke();
            // A write lasts one copy; wait, so that the next user of the windows finds them quiet.
            let started = Instant::now();
            while !conversation.has_no_writer() && started.elapsed() < LONGEST_RETRY {
                std::thread::yield_now();
            }
        }
        windows.header.leave();
        self.doorbells.ring_control();
    }
}
