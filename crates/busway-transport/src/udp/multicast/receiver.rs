//! The socket on which a receiver gets the datagrams of its sender's multicast group.
//!
//! The datagrams of one stream arrive on two sockets. They must be used in the order in which they
//! were sent, or a difference in delay would look like loss. So a datagram from one socket is used
//! only when the other was read later and holds none with a lower packet number. Joining opens a
//! socket, once; nothing else here allocates, locks or waits.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use super::address::GroupAddress;
use crate::session::poller::{Interest, Poller};
use crate::udp::socket::{Arrivals, UdpSocket};
use crate::udp::wire::{Ack, DataHeader, Datagram, MAX_PROBE, Recipients, decode};

/// Both sockets have this token: which of them woke the lane does not matter.
const ANY: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Unicast,
    Multicast,
}

pub struct GroupReceiver {
    address: GroupAddress,
    sender: IpAddr,
    /// Watches both sockets, so that the channel keeps one descriptor for its whole life.
    poller: Poller,
    pub arrivals: Arrivals,
    /// The group's port, and the socket that has joined it.
    group: Option<(u16, UdpSocket)>,
    /// Number of the last probe that arrived; 0 for none.
    probe: u8,
    /// Only one source has datagrams, and the other was found empty later.
    is_alone: bool,
}

impl GroupReceiver {
    /// For a receiver whose sender has the address `sender`.
    pub fn new(address: GroupAddress, sender: IpAddr, unicast: &UdpSocket) -> io::Result<GroupReceiver> {
        let poller = Poller::new()?;
        poller.add(unicast, ANY, Interest::Read)?;
        Ok(GroupReceiver {
            address,
            sender,
            poller,
            arrivals: Arrivals::new(),
            group: None,
            probe: 0,
            is_alone: false,
        })
    }

    /// Joins the group on this port. If that fails, the sender uses unicast.
    pub fn join(&mut self, port: u16, unicast: &UdpSocket) {
        if self.group.as_ref().is_some_and(|(joined, _)| *joined == port) {
            return;
        }
        let Ok(socket) = self
            .address
            .listen(self.sender, port, unicast.foreign_datagrams())
        else {
            return;
        };
        if self.poller.add(&socket, ANY, Interest::Read).is_ok() {
            (self.group, self.probe) = (Some((port, socket)), 0);
        }
    }

    /// The header of a multicast datagram for the receiver with this token. `None` for a probe,
    /// whose number the next acknowledgement returns, and for a datagram to others.
    pub fn read(&mut self, recipients: &Recipients<'_>, token: u64, bytes: usize) -> Option<DataHeader> {
        let header = recipients.header_for(token, bytes)?;
        if bytes > 0 {
            return Some(header);
        }
        if let Some(probe) = u8::try_from(header.packet)
            .ok()
            .filter(|probe| *probe <= MAX_PROBE)
        {
            self.probe = probe;
        }
        None
    }

    /// Adds to an acknowledgement whether the group reaches this receiver.
    pub fn complete(&self, ack: &mut Ack) {
        (ack.has_joined, ack.probe) = (self.group.is_some(), self.probe);
    }

    /// Which source has the next datagram; `None` if that is unknown before another
    /// [`fill`](Self::fill).
    pub fn next_source(&self, unicast: &Arrivals, token: u64) -> Option<Source> {
        match (unicast.current(), self.arrivals.current()) {
            (Some(one), Some(other)) if packet(one, token) > packet(other, token) => Some(Source::Multicast),
            (Some(_), Some(_)) => Some(Source::Unicast),
            (Some(_), None) if self.is_alone || self.group.is_none() => Some(Source::Unicast),
            (None, Some(_)) if self.is_alone => Some(Source::Multicast),
            _ => None,
        }
    }

    /// Reads each socket whose datagrams are used up; false if both are empty.
    pub fn fill(&mut self, arrivals: &mut Arrivals, unicast: &UdpSocket) -> io::Result<bool> {
        self.is_alone = false;
        let Some((_, group)) = &self.group else {
            return arrivals.fill(unicast);
        };
        let had_multicast = self.arrivals.current().is_some();
        let has_multicast = had_multicast || self.arrivals.fill(group)?;
        let had_unicast = arrivals.current().is_some();
        let has_unicast = had_unicast || arrivals.fill(unicast)?;
        // Alone is what was read before the other socket was found empty.
        self.is_alone = (has_multicast && !has_unicast) || (had_unicast && !has_multicast);
        Ok(has_multicast || has_unicast)
    }
}

impl AsFd for GroupReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

/// The packet number of a datagram; 0 if it has none.
fn packet(bytes: &[u8], token: u64) -> u64 {
    match decode(bytes) {
        Some((_, Datagram::Data(header, _))) => header.packet,
        Some((_, Datagram::Multicast(recipients, stream))) => recipients
            .header_for(token, stream.len())
            .map_or(0, |header| header.packet),
        _ => 0,
    }
}
