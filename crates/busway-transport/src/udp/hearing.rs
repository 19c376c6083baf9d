//! A receiver's ear for the group to which its sender sends what goes to several: beside its own socket, from the first invitation on.
//!
//! Both sockets hold datagrams of one stream. They are taken in the order in which they were sent, so that neither looks like a loss: what came one
//! way is used only when the other way was looked at later and has nothing earlier. Owned by [`super::receiver`]; on its lane. Joining makes a
//! socket, once; else nothing here allocates, locks or waits.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use super::group::GroupPlace;
use super::socket::{Arrivals, UdpSocket};
use super::wire::{Answer, Datagram, MAX_CALL, Run, Shares, decode};
use crate::stream::{Interest, Poller};

/// The lane is woken by either socket; which one, nobody asks.
const ANY: u64 = 0;

/// The ways by which datagrams come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Own,
    Group,
}

/// See the module.
pub(super) struct Hearing {
    place: GroupPlace,
    source: IpAddr,
    /// Of both sockets, so that the lane has one descriptor for the channel's life.
    poller: Poller,
    /// What has come from the group.
    pub(super) arrivals: Arrivals,
    group: Option<(u16, UdpSocket)>,
    /// The last call.
    heard: u8,
    /// Only one way has something, and the other one was looked at later.
    is_alone: bool,
}

impl Hearing {
    /// For a receiver whose datagrams come from `source`.
    pub(super) fn new(place: GroupPlace, source: IpAddr, own: &UdpSocket) -> io::Result<Hearing> {
        let poller = Poller::new()?;
        poller.add(own, ANY, Interest::Read)?;
        Ok(Hearing {
            place,
            source,
            poller,
            arrivals: Arrivals::new(),
            group: None,
            heard: 0,
            is_alone: false,
        })
    }

    /// The sender's group has this port.
    pub(super) fn join(&mut self, port: u16, own: &UdpSocket) {
        if self.group.as_ref().is_some_and(|(joined, _)| *joined == port) {
            return;
        }
        // What can't be joined is not heard, and the sender goes on without.
        let Ok(socket) = self.place.listening(self.source, port, own.strangers()) else {
            return;
        };
        if self.poller.add(&socket, ANY, Interest::Read).is_ok() {
            (self.group, self.heard) = (Some((port, socket)), 0);
        }
    }

    /// What a shared datagram is for the receiver with this token; a call is only noted.
    pub(super) fn read(&mut self, shares: &Shares<'_>, token: u64, bytes: usize) -> Option<Run> {
        let run = shares.run_of(token, bytes)?;
        if bytes > 0 {
            return Some(run);
        }
        if let Some(call) = u8::try_from(run.packet).ok().filter(|call| *call <= MAX_CALL) {
            self.heard = call;
        }
        None
    }

    /// Adds to an answer whether the group is heard.
    pub(super) fn tell(&self, answer: &mut Answer) {
        (answer.is_listening, answer.heard) = (self.group.is_some(), self.heard);
    }

    /// Which way has what is due; `None` if that can't be told before another [look](Self::look).
    pub(super) fn due(&self, own: &Arrivals, token: u64) -> Option<Way> {
        match (own.current(), self.arrivals.current()) {
            (Some(own), Some(shared)) if number(own, token) > number(shared, token) => Some(Way::Group),
            (Some(_), Some(_)) => Some(Way::Own),
            (Some(_), None) if self.is_alone || self.group.is_none() => Some(Way::Own),
            (None, Some(_)) if self.is_alone => Some(Way::Group),
            _ => None,
        }
    }

    /// Looks at whichever way has nothing; false if then neither has.
    pub(super) fn look(&mut self, arrivals: &mut Arrivals, own: &UdpSocket) -> io::Result<bool> {
        self.is_alone = false;
        let Some((_, group)) = &self.group else {
            return arrivals.fill(own);
        };
        let had_shared = self.arrivals.current().is_some();
        let has_shared = had_shared || self.arrivals.fill(group)?;
        let had_own = arrivals.current().is_some();
        let has_own = had_own || arrivals.fill(own)?;
        // What was there before the other way was found empty is alone.
        self.is_alone = (has_shared && !has_own) || (had_own && !has_shared);
        Ok(has_shared || has_own)
    }
}

impl AsFd for Hearing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

/// The number of the packet in a datagram; 0 if it has none.
fn number(bytes: &[u8], token: u64) -> u64 {
    match decode(bytes) {
        Some((_, Datagram::Run(run, _))) => run.packet,
        Some((_, Datagram::Shared(shares, stream))) => {
            shares.run_of(token, stream.len()).map_or(0, |run| run.packet)
        }
        _ => 0,
    }
}
