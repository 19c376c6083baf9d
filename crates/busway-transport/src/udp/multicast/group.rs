//! Senders of one lane that send the same messages to one multicast group: at most eight, since a
//! datagram names at most eight recipients.
//!
//! This module decides first transmissions only. Of the senders that can send, those with the
//! lowest next position (see [`super::membership`]) go first: by multicast if they are several,
//! otherwise by unicast up to the position of the next one. So a stream that lags behind catches
//! up. The others wait for a receiver without credit as long as an acknowledgement of it may take
//! (at most 10 ms) and then go on without it. Memory is allocated only when a sender joins, and
//! no lock is ever contended: all senders belong to one lane.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use arrayvec::ArrayVec;

use super::address::GroupAddress;
use super::membership::{CommonStream, Membership, Request};
use crate::contract::Message;
use crate::udp::batch::{Batch, HandedOver};
use crate::udp::lock::lock;
use crate::udp::send_state::{SendState, SharedState, data_header};
use crate::udp::sending::{Cut, SAFE_DATAGRAM_BYTES};
use crate::udp::socket::{BATCH, MAX_DATAGRAM_BYTES, UdpSocket};
use crate::udp::wire::{
    MAX_MULTICAST_HEADER_BYTES, MAX_RECIPIENTS, Purpose, Recipient, encode_invite, encode_multicast,
    multicast_header_bytes,
};

/// The locked members, by their index in the group.
type Members<'a, M> = [Option<MutexGuard<'a, SendState<M>>>; MAX_RECIPIENTS];
/// The members that share a datagram, without gaps.
type Chosen<'a, M> = [Option<&'a mut SendState<M>>; MAX_RECIPIENTS];
/// Which members share a datagram.
type Subset = [bool; MAX_RECIPIENTS];

/// The multicast groups of one [`SenderGroup`](crate::contract::SenderGroup).
pub struct MulticastGroups<M: Message>(Vec<Arc<MulticastGroup<M>>>);

impl<M: Message> Default for MulticastGroups<M> {
    fn default() -> Self {
        MulticastGroups(Vec::new())
    }
}

impl<M: Message> MulticastGroups<M> {
    /// Adds a sender to a group with this address that has room, or else to a new one.
    /// `failures` counts how often the group did not reach the sender's receiver.
    pub fn join(
        &mut self,
        address: GroupAddress,
        state: &SharedState<M>,
        failures: &Arc<AtomicU64>,
    ) -> Arc<MulticastGroup<M>> {
        self.0.retain(|group| !lock(&group.inner).members.is_empty());
        if let Some(group) = self.0.iter().find(|group| group.add(address, state, failures)) {
            return group.clone();
        }
        let group = Arc::new(MulticastGroup::new(address));
        group.add(address, state, failures);
        self.0.push(group.clone());
        group
    }
}

pub struct MulticastGroup<M: Message> {
    address: GroupAddress,
    inner: Mutex<Inner<M>>,
}

struct Inner<M: Message> {
    members: Vec<SharedState<M>>,
    common: Arc<Mutex<CommonStream>>,
    /// Opened when the second member joins.
    path: Option<Path>,
}

struct Path {
    socket: UdpSocket,
    port: u16,
    batch: Batch,
    most_bytes: usize,
    /// The socket is full: no transmission before the next flush.
    is_blocked: bool,
}

enum Step {
    Nothing,
    /// Wait until then for a receiver's credit.
    Wait(u64),
    /// This member sends by unicast, up to this offset of its stream.
    Unicast(usize, u64),
    /// These members share datagrams, with at most this many bytes of the stream.
    Multicast(Subset, u64),
}

impl<M: Message> MulticastGroup<M> {
    fn new(address: GroupAddress) -> MulticastGroup<M> {
        MulticastGroup {
            address,
            inner: Mutex::new(Inner {
                members: Vec::with_capacity(MAX_RECIPIENTS),
                common: Arc::default(),
                path: None,
            }),
        }
    }

    /// Adds a sender; false if it has another address or the group is full.
    fn add(&self, address: GroupAddress, state: &SharedState<M>, failures: &Arc<AtomicU64>) -> bool {
        let mut inner = lock(&self.inner);
        if address != self.address || inner.members.len() == MAX_RECIPIENTS {
            return false;
        }
        inner.members.push(state.clone());
        if inner.members.len() > 1 {
            // Without a socket all use unicast; the next sender that joins tries again.
            let path = inner.path.take().or_else(|| Path::open(address).ok());
            if let Some(path) = path {
                inner.enroll(path.port, failures);
                inner.path = Some(path);
            }
        }
        true
    }

    /// Removes a sender, which uses unicast from then on.
    pub fn remove(&self, state: &SharedState<M>) {
        let mut inner = lock(&self.inner);
        inner.members.retain(|member| !Arc::ptr_eq(member, state));
        if let Some(path) = &inner.path {
            leave(&mut lock(state), &path.socket);
        }
    }

    /// Sends what may leave and returns when to call again at the latest. `is_flush`: the caller
    /// has offered the same messages to all members.
    pub fn transmit(&self, is_flush: bool, now_ns: u64) -> Option<u64> {
        let mut inner = lock(&self.inner);
        let Inner { members, path, .. } = &mut *inner;
        let path = path.as_mut()?;
        let mut members: Members<'_, M> = std::array::from_fn(|at| members.get(at).map(|state| lock(state)));
        if is_flush {
            path.is_blocked = false;
            for state in members.iter_mut().flatten().filter(|it| it.failure.is_none()) {
                maintain(state, &path.socket, now_ns);
                state.take_pending();
            }
        }
        let mut until_ns = None;
        while !path.is_blocked {
            let has_moved = match plan(&mut members, path.most_bytes, is_flush, now_ns) {
                Step::Nothing => false,
                Step::Wait(at_ns) => {
                    until_ns = Some(at_ns);
                    false
                }
                Step::Unicast(at, end) => members[at]
                    .as_mut()
                    .is_some_and(|state| send_unicast(state, end, now_ns)),
                Step::Multicast(subset, bytes) => path.send(&mut members, &subset, bytes, now_ns),
            };
            if !has_moved {
                break;
            }
        }
        for state in members.iter_mut().flatten() {
            state.wake.wait_for_group_room(&path.socket, path.is_blocked);
            if !is_active(state) && state.failure.is_none() {
                // It may have left just now. The state keeps a failure; its next call reports it.
                let _ = state.transmit(now_ns, true);
            }
        }
        until_ns
    }
}

impl<M: Message> Inner<M> {
    fn enroll(&self, port: u16, failures: &Arc<AtomicU64>) {
        for member in &self.members {
            let mut state = lock(member);
            let end = state.sending.accepted();
            let make = || Membership::new(self.common.clone(), port, end, failures.clone());
            state.membership.get_or_insert_with(make);
        }
    }
}

/// Invites or probes the receiver, and suspends a membership whose datagrams all seem lost.
fn maintain<M: Message>(state: &mut SendState<M>, group: &UdpSocket, now_ns: u64) {
    let Some(membership) = &mut state.membership else {
        return;
    };
    if membership.is_active && state.sending.suspects_multicast() {
        membership.suspend(now_ns);
        state.sending.trust_multicast();
        state.sending.set_unicast_limit(u64::MAX);
    }
    // A request that fails is repeated.
    let _ = match membership.request(now_ns) {
        None => Ok(()),
        Some(Request::Invite(port)) => state.socket.send(&encode_invite(state.token, port)),
        Some(Request::Probe(number)) => {
            let recipient = Recipient {
                token: state.token,
                packet: u64::from(number),
                ..Default::default()
            };
            group.send(&encode_multicast(None, &[recipient])[..multicast_header_bytes(1)])
        }
    };
}

/// Ends a membership: the sender uses unicast from then on.
fn leave<M: Message>(state: &mut SendState<M>, group: &UdpSocket) {
    state.wake.wait_for_group_room(group, false);
    state.membership = None;
    state.sending.set_unicast_limit(u64::MAX);
}

/// Whether a member sends by multicast.
fn is_active<M: Message>(state: &SendState<M>) -> bool {
    state.failure.is_none() && state.membership.as_ref().is_some_and(|it| it.is_active)
}

/// Whether a member lacks the credit to take the message that the others get.
fn awaits_message<M: Message>(state: &SendState<M>) -> bool {
    state.pending.is_some() || state.membership.as_ref().is_some_and(|it| it.awaits_message)
}

/// Sends by unicast what lies before this offset; false if nothing could leave.
fn send_unicast<M: Message>(state: &mut SendState<M>, end: u64, now_ns: u64) -> bool {
    let before = state.sending.cut();
    state.sending.set_unicast_limit(end);
    // The state keeps a failure and its next call reports it.
    let _ = state.transmit(now_ns, true);
    state.sending.cut() > before
}

fn plan<M: Message>(members: &mut Members<'_, M>, most_bytes: usize, is_flush: bool, now_ns: u64) -> Step {
    let most_bytes = fitting_bytes(members, most_bytes);
    let mut positions = [None; MAX_RECIPIENTS];
    let mut able = [false; MAX_RECIPIENTS];
    for (at, state) in members.iter_mut().enumerate() {
        let Some(state) = state.as_mut().filter(|state| is_active(state)) else {
            continue;
        };
        let (cut, accepted) = (state.sending.cut(), state.sending.accepted());
        able[at] = cut < accepted && state.sending.multicast_allowance(most_bytes) > 0;
        let Some(membership) = &mut state.membership else {
            continue;
        };
        if able[at] {
            membership.stalled_since_ns = None;
        }
        if cut >= membership.run_start() {
            positions[at] = Some(membership.position(cut));
        } else if able[at] {
            // No other stream has these bytes at this position.
            return Step::Unicast(at, membership.run_start());
        }
    }
    let lowest = (0..MAX_RECIPIENTS)
        .filter(|at| able[*at])
        .filter_map(|at| positions[at])
        .min();
    match lowest {
        Some(lowest) => plan_from(members, lowest, &positions, &able, is_flush, now_ns),
        None => Step::Nothing,
    }
}

/// Decides what the members at the lowest position send.
fn plan_from<M: Message>(
    members: &mut Members<'_, M>,
    lowest: u64,
    positions: &[Option<u64>; MAX_RECIPIENTS],
    able: &Subset,
    is_flush: bool,
    now_ns: u64,
) -> Step {
    let mut limit_bytes = u64::MAX;
    let (mut subset, mut count, mut last) = ([false; MAX_RECIPIENTS], 0, 0);
    let mut wait_ns: Option<u64> = None;
    for (at, state) in members.iter_mut().enumerate() {
        let (Some(state), Some(position)) = (state, positions[at]) else {
            continue;
        };
        if position > lowest {
            limit_bytes = limit_bytes.min(position - lowest);
        } else if position == lowest && able[at] {
            (subset[at], count, last) = (true, count + 1, at);
        } else if position == lowest {
            let is_idle = state.sending.cut() == state.sending.accepted() && !awaits_message(state);
            if is_idle && !is_flush {
                // The caller is about to offer it what the others have.
                return Step::Nothing;
            }
            let timeout_ns = state.sending.stall_timeout_ns();
            if let Some(membership) = state.membership.as_mut().filter(|_| !is_idle) {
                let until_ns = *membership.stalled_since_ns.get_or_insert(now_ns) + timeout_ns;
                if now_ns < until_ns {
                    wait_ns = Some(wait_ns.map_or(until_ns, |earlier| earlier.min(until_ns)));
                }
            }
        }
    }
    match (wait_ns, count, &members[last]) {
        (Some(until_ns), ..) => Step::Wait(until_ns),
        (None, 1, Some(state)) => {
            let end = state.sending.cut().saturating_add(limit_bytes);
            Step::Unicast(last, end.min(state.sending.accepted()))
        }
        _ => Step::Multicast(subset, limit_bytes),
    }
}

/// Bytes of the stream that fit a datagram to all members.
fn fitting_bytes<M: Message>(members: &Members<'_, M>, most_bytes: usize) -> u64 {
    let all = members.iter().flatten().filter(|state| is_active(state));
    let lengths = all.clone().map(|state| state.batch.datagram_bytes());
    let datagram_bytes = lengths.min().unwrap_or(most_bytes).min(most_bytes);
    datagram_bytes.saturating_sub(multicast_header_bytes(all.count())) as u64
}

/// Cuts as many bytes as every chosen member may send. Returns the datagram's header and the cuts,
/// or `None` if no member may send.
fn cut<M: Message>(
    chosen: &mut Chosen<'_, M>,
    most_bytes: u64,
    now_ns: u64,
) -> Option<([u8; MAX_MULTICAST_HEADER_BYTES], [Option<Cut>; MAX_RECIPIENTS])> {
    let allowed = chosen
        .iter_mut()
        .flatten()
        .map(|state| state.sending.multicast_allowance(most_bytes));
    let bytes = allowed.min().filter(|bytes| *bytes > 0)?;
    let mut recipients = [Recipient::default(); MAX_RECIPIENTS];
    let mut cuts = [None; MAX_RECIPIENTS];
    let (mut first, mut count) = (None, 0);
    for (state, (cut, recipient)) in chosen
        .iter_mut()
        .flatten()
        .zip(cuts.iter_mut().zip(&mut recipients))
    {
        let next = state.sending.next_multicast(bytes, now_ns);
        *cut = Some(next);
        let header = data_header(&state.buffer, Purpose::Data, next.packet, next.offset, bytes);
        first = first.or(header.first);
        *recipient = Recipient {
            token: state.token,
            packet: header.packet,
            offset: header.offset,
            number: header.number,
        };
        count += 1;
    }
    Some((encode_multicast(first, &recipients[..count]), cuts))
}

impl Path {
    fn open(address: GroupAddress) -> std::io::Result<Path> {
        let (socket, port) = address.connect()?;
        Ok(Path {
            most_bytes: socket.path_bytes()?.min(MAX_DATAGRAM_BYTES),
            socket,
            port,
            batch: Batch::new(),
            is_blocked: false,
        })
    }

    /// Sends the next bytes of these members, which are the same; false if nothing could leave.
    fn send<M: Message>(
        &mut self,
        members: &mut Members<'_, M>,
        subset: &Subset,
        mut left_bytes: u64,
        now_ns: u64,
    ) -> bool {
        let most_bytes = fitting_bytes(members, self.most_bytes);
        let mut chosen: Chosen<'_, M> = Default::default();
        let mut count = 0;
        for (state, _) in members
            .iter_mut()
            .zip(subset)
            .filter(|(_, is_chosen)| **is_chosen)
        {
            chosen[count] = state.as_deref_mut();
            count += 1;
        }
        let header_bytes = multicast_header_bytes(count);
        let datagram_bytes = header_bytes + most_bytes as usize;
        if self.batch.datagram_bytes() != datagram_bytes {
            self.batch.set_datagram_bytes(datagram_bytes, &self.socket);
        }
        let mut cuts = ArrayVec::<[Option<Cut>; MAX_RECIPIENTS], BATCH>::new();
        let most = self.batch.most();
        while cuts.len() < most
            && let Some((header, these)) = cut(&mut chosen, most_bytes.min(left_bytes), now_ns)
            && let (Some(leader), Some(cut)) = (&chosen[0], these[0])
        {
            let datagram = self.batch.add(header_bytes + cut.bytes as usize);
            let (start, rest) = datagram.split_at_mut(header_bytes);
            start.copy_from_slice(&header[..header_bytes]);
            leader.buffer.reader().read(cut.offset, rest);
            left_bytes -= cut.bytes;
            cuts.push(these);
        }
        let (sent, result) = self.batch.hand_over(&self.socket);
        for cuts in cuts[sent..].iter().rev() {
            for (state, cut) in chosen.iter_mut().flatten().zip(cuts.iter().flatten()) {
                state.sending.take_back(*cut);
            }
        }
        for state in chosen.iter_mut().flatten() {
            state.buffer.release(state.sending.released());
        }
        self.handle(result, members) || sent > 0
    }

    /// Handles the kernel's answer to a batch; whether to try again at once.
    fn handle<M: Message>(&mut self, result: HandedOver, members: &mut Members<'_, M>) -> bool {
        match result {
            HandedOver::All => false,
            HandedOver::NoOffload => true,
            HandedOver::Some => {
                self.is_blocked = true;
                false
            }
            HandedOver::Refused(error) => {
                let is_too_long = error.raw_os_error() == Some(libc::EMSGSIZE);
                let path_bytes = self.socket.path_bytes().unwrap_or(SAFE_DATAGRAM_BYTES);
                let shorter = [path_bytes, SAFE_DATAGRAM_BYTES]
                    .into_iter()
                    .find(|bytes| is_too_long && *bytes < self.most_bytes);
                if let Some(bytes) = shorter {
                    self.most_bytes = bytes;
                    return true;
                }
                for state in members.iter_mut().flatten() {
                    leave(state, &self.socket);
                }
                false
            }
        }
    }
}
