//! The links to the peers: polled for events, sent control messages, asked for channel ends.
//!
//! Contract: what a link's events mean is for the decision core; here they become facts. Called by
//! [`super`], on the control thread alone.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use busway_buses::Buses;
use busway_system::System;
use busway_transport::{
    ChannelId, ChannelSpec, Direction, LandingRegister, LandingRing, Link, LinkEvent, LinkIdentity,
    QueueNumbers, SourceNumbers, WaitFor,
};

use super::lanes::Lanes;
use crate::GatewayError;
use crate::control::Fact;
use crate::control::link::LinkProfile;
use crate::iox::sample::Outgoing;
use crate::lane::{ChannelKey, Lane, LaneCommand};
use crate::protocol::{self, ControlMessage};

/// One link over one bus.
pub struct OpenLink {
    /// Which one it is.
    pub profile: LinkProfile,
    link: Box<dyn Link<Outgoing>>,
    lanes_with_doorbell: HashSet<u32>,
}

/// All links of this host; their indices are those of the decision core.
#[derive(Default)]
pub struct Links(Vec<OpenLink>);

impl Links {
    /// The links of a host, all of them down.
    ///
    /// # Errors
    /// One can't be opened.
    pub fn open(system: &System, host: &str, session: u64) -> Result<Links, GatewayError> {
        let buses = Buses::new(LinkIdentity {
            host: host.to_string(),
            session,
            application: protocol::application(),
        });
        let mut links = Links::default();
        for link in system.links_of(host).filter(|link| !system.is_core(&link.peer)) {
            for bus in &link.buses {
                let opened = buses.open(bus, &link.peer).map_err(|error| GatewayError::Link {
                    bus: bus.name(),
                    peer: link.peer.clone(),
                    reason: error.to_string(),
                })?;
                let profile = LinkProfile {
                    number: link.index,
                    peer: link.peer.clone(),
                    bus: opened.bus(),
                };
                links.push(profile, opened);
            }
        }
        Ok(links)
    }

    fn push(&mut self, profile: LinkProfile, link: Box<dyn Link<Outgoing>>) {
        self.0.push(OpenLink {
            profile,
            link,
            lanes_with_doorbell: HashSet::new(),
        });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Which links there are.
    pub fn profiles(&self) -> Vec<LinkProfile> {
        self.0.iter().map(|link| link.profile.clone()).collect()
    }

    /// The next event of a link.
    pub fn poll(&mut self, index: usize, now: Instant) -> Option<LinkEvent<Outgoing>> {
        self.0[index].link.poll(now)
    }

    /// The link's conversation stands, and the peer sent this version line.
    pub fn up(&self, index: usize, application: String) -> Fact {
        let link = &self.0[index].link;
        Fact::LinkUp {
            link: index,
            application,
            may_lose: link.may_lose(),
            silence_timeout: link.silence_timeout(),
        }
    }

    /// Sends a control message. A link that goes down meanwhile reports it by an event.
    pub fn send(&mut self, index: usize, message: &ControlMessage) {
        let _ = self.0[index].link.send_control(&message.encode());
    }

    /// The peer sent bytes that are no control message.
    pub fn warn_of_garbage(&self, index: usize, length_bytes: usize) {
        let peer = &self.0[index].profile.peer;
        tracing::warn!("{peer:?} sent {length_bytes} bytes that are no control message; ignored");
    }

    /// Makes a landing place, for a lane of this number.
    ///
    /// # Errors
    /// Why the bus can't, in words.
    pub fn open_receiver(
        &mut self,
        key: ChannelKey,
        spec: &ChannelSpec,
        lane: u32,
    ) -> Result<Vec<u8>, String> {
        let link = &mut self.0[key.link].link;
        link.open_receiver(ChannelId(key.channel), spec, lane)
            .map_err(|error| error.to_string())
    }

    /// Opens a sending end towards a peer's landing place.
    ///
    /// # Errors
    /// Why the bus can't, in words.
    pub fn open_sender(
        &mut self,
        key: ChannelKey,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
    ) -> Result<(), String> {
        let link = &mut self.0[key.link].link;
        link.open_sender(ChannelId(key.channel), spec, landing, lane)
            .map_err(|error| error.to_string())
    }

    /// Lets the peer write a register of this host's port store.
    ///
    /// # Errors
    /// Why the bus can't, in words.
    pub fn open_register(&mut self, key: ChannelKey, register: LandingRegister) -> Result<Vec<u8>, String> {
        let link = &mut self.0[key.link].link;
        link.open_register(ChannelId(key.channel), register)
            .map_err(|error| error.to_string())
    }

    /// Opens a sending end towards a register of the peer's port store.
    ///
    /// # Errors
    /// Why the bus can't, in words.
    pub fn open_register_sender(
        &mut self,
        key: ChannelKey,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
        source: SourceNumbers,
    ) -> Result<(), String> {
        let link = &mut self.0[key.link].link;
        link.open_register_sender(ChannelId(key.channel), spec, landing, lane, source)
            .map_err(|error| error.to_string())
    }

    /// Opens the receiving end of a channel whose sender writes this queue itself.
    ///
    /// # Errors
    /// Why the bus can't, in words.
    pub fn open_ring(&mut self, key: ChannelKey, ring: LandingRing, lane: u32) -> Result<Vec<u8>, String> {
        let link = &mut self.0[key.link].link;
        link.open_ring(ChannelId(key.channel), ring, lane)
            .map_err(|error| error.to_string())
    }

    /// Opens a sending end towards a queue of the peer's port store.
    ///
    /// # Errors
    /// Why the bus can't, in words.
    pub fn open_ring_sender(
        &mut self,
        key: ChannelKey,
        spec: &ChannelSpec,
        landing: &[u8],
        lane: u32,
        source: QueueNumbers,
    ) -> Result<(), String> {
        let link = &mut self.0[key.link].link;
        link.open_ring_sender(ChannelId(key.channel), spec, landing, lane, source)
            .map_err(|error| error.to_string())
    }

    /// Forgets a channel.
    pub fn close(&mut self, direction: Direction, key: ChannelKey) {
        self.0[key.link].link.close(direction, ChannelId(key.channel));
    }

    /// Gives the lane the link's doorbell, if a channel end needs it and the lane has none.
    pub fn set_doorbell(&mut self, index: usize, lane: &Lane, number: u32, wait_for: WaitFor) {
        let link = &mut self.0[index];
        if wait_for == WaitFor::Doorbell
            && !link.lanes_with_doorbell.contains(&number)
            && let Some(doorbell) = link.link.doorbell(number)
        {
            link.lanes_with_doorbell.insert(number);
            lane.send(LaneCommand::SetDoorbell {
                link: index,
                doorbell: Some(doorbell),
            });
        }
    }

    /// The link is down: its doorbells are void. After the ends of its channels, so that lanes
    /// drain what has arrived first.
    pub fn drop_doorbells(&mut self, index: usize, lanes: &Lanes, own: &[(&Lane, u32)]) {
        for number in std::mem::take(&mut self.0[index].lanes_with_doorbell) {
            let of_flow = own.iter().find(|(_, own)| *own == number).map(|(lane, _)| *lane);
            if let Some(lane) = lanes.shared_by_number(number).or(of_flow) {
                lane.send(LaneCommand::SetDoorbell {
                    link: index,
                    doorbell: None,
                });
            }
        }
    }

    /// The lane of this number has ended.
    pub fn forget_lane(&mut self, number: u32) {
        for link in &mut self.0 {
            link.lanes_with_doorbell.remove(&number);
        }
    }

    /// Readable when a link has an event.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().filter_map(|link| link.link.fd()).collect()
    }

    /// How long no link needs to be polled although all descriptors are quiet.
    pub fn poll_within(&self, now: Instant) -> Option<Duration> {
        self.0.iter().map(|link| link.link.poll_within(now)).min()
    }
}
