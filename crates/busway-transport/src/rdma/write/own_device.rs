//! The RDMA device of a program that writes registers of the other host's port store itself.
//!
//! Contract: see [`RegisterDevice`]. It has what a link has to connect sending ends (an event
//! channel, the device, the openings) and no conversation: sessions and landing descriptions come
//! from the gateway, in tickets. Called on a thread of the program.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channels::{ByTransport, WriteChannels};
use super::register;
use crate::contract::{
    ChannelEnd, ChannelId, ChannelSpec, Dialled, Direction, Keep, NoMessage, OpenError, RegisterDevice,
    RegisterTicket,
};
use crate::rdma::cm::{CmEventKind, EventChannel};
use crate::rdma::device::Device;
use crate::rdma::landing::MAGIC;
use crate::rdma::lane::{Lane, Lanes};
use crate::rdma::opens::{Context, Done, Opens};
use crate::session::landing::Landing;
use crate::session::mailbox::DroppedSenders;

/// Numbers of connection identifiers.
const KEEPER: u64 = 0;
const FIRST_CONNECTION: u64 = 1;

/// See the module.
pub(super) struct OwnDevice {
    address: IpAddr,
    events: Arc<EventChannel>,
    /// `None` once it was removed.
    device: Option<Arc<Device>>,
    /// Takes what dropped senders have left; registers leave nothing.
    dropped: Arc<DroppedSenders>,
    /// Wakes nobody: ends of registers have a descriptor of their own.
    lane: Arc<Lane>,
    opens: Opens<WriteChannels<ByTransport>, NoMessage>,
    done: VecDeque<Dialled>,
}

impl OwnDevice {
    /// Opens the device that has this address.
    ///
    /// # Errors
    /// Libraries missing, no such device, no permission, no resources.
    pub(super) fn open(address: IpAddr) -> Result<Box<dyn RegisterDevice>, OpenError> {
        let events = EventChannel::new()?;
        let device = Device::open(&events, address, KEEPER)?;
        Ok(Box::new(OwnDevice {
            address,
            events,
            device: Some(device),
            dropped: Arc::new(DroppedSenders::new()?),
            lane: Lanes::default().lane(0)?,
            opens: Opens::new(FIRST_CONNECTION),
            done: VecDeque::new(),
        }))
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.events.next() {
            if event.kind == CmEventKind::DeviceRemoved {
                self.removed();
                continue;
            }
            let Some(device) = &self.device else { continue };
            let context = Context {
                events: &self.events,
                device,
                dropped: &self.dropped,
                // A ticket has the sessions.
                session: 0,
                peer_session: 0,
                now,
            };
            let done = self.opens.event(&event, &context);
            self.done.extend(done.and_then(dialled));
        }
    }

    fn removed(&mut self) {
        if let Some(device) = self.device.take() {
            device.set_removed();
        }
        self.opens.void(&format!(
            "the RDMA device with address {} was removed",
            self.address
        ));
    }
}

fn dialled(((direction, channel), result): Done<NoMessage>) -> Option<Dialled> {
    let result = match result {
        Ok(ChannelEnd::Sender(sender)) if direction == Direction::Send => Ok(sender),
        // Nothing is received here.
        Ok(_) => return None,
        Err(why) => Err(why),
    };
    Some((channel, result))
}

impl RegisterDevice for OwnDevice {
    fn dial(&mut self, ticket: &RegisterTicket) -> Result<(), OpenError> {
        let Some(device) = &self.device else {
            return Err(OpenError::Down);
        };
        let landing = Landing::decode(&ticket.landing, MAGIC).map_err(OpenError::BadLanding)?;
        let place = register::judge(&landing.description, ticket.source, &self.lane)
            .map_err(OpenError::BadLanding)?;
        let context = Context {
            events: &self.events,
            device,
            dropped: &self.dropped,
            session: ticket.session,
            peer_session: ticket.peer_session,
            now: Instant::now(),
        };
        // The register says how long messages may be.
        let spec = ChannelSpec {
            keep: Keep::Latest,
            message_bytes: 0,
        };
        let place = super::channels::CheckedLanding::Register(place);
        self.opens
            .dial(ticket.channel, &spec, &landing, place, self.address, &context)?;
        Ok(())
    }

    fn abandon(&mut self, channel: ChannelId) {
        self.opens.close((Direction::Send, channel));
        self.done.retain(|(of, _)| *of != channel);
    }

    fn poll(&mut self, now: Instant) -> Option<Dialled> {
        if self.done.is_empty() {
            self.take_events(now);
            let late = self.opens.tick(now);
            self.done.extend(late.into_iter().filter_map(dialled));
        }
        self.done.pop_front()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn poll_within(&self, now: Instant) -> Option<Duration> {
        let due = self.opens.due()?;
        Some(due.saturating_duration_since(now))
    }

    fn is_removed(&self) -> bool {
        self.device.is_none()
    }
}
