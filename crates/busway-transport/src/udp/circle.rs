//! Up to eight senders of one lane that send the same messages to one multicast group: what several are due next leaves once.
//!
//! Streams stay what they are, each with its own packet numbers, window, answers and repairs. Here only the first transmission is decided: of the
//! senders that can send, those whose next bytes lie lowest (see [`super::seat`]) go first, together where they are several, else
//! alone and as far as the next one; so those that are behind catch up. A receiver without room is waited for as long as an answer of it may take,
//! and then left behind. Called by [`super::sender`]; nothing here allocates but when senders join, and no lock is ever contended.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use arrayvec::ArrayVec;

use super::batch::{BATCH, Batch, HandedOver};
use super::group::GroupPlace;
use super::lock;
use super::near::{Near, run};
use super::seat::{Ledger, Seat};
use super::sending::{Cut, SAFE_DATAGRAM_BYTES};
use super::socket::{MAX_DATAGRAM_BYTES, UdpSocket};
use super::wire::{MAX_SHARED_BYTES, MAX_SHARES, Purpose, Share, encode_shared, shared_bytes};
use crate::contract::Message;

/// The members, locked, by their place in the circle.
type Members<'a, M> = [Option<MutexGuard<'a, Near<M>>>; MAX_SHARES];
/// Those that send together, one after the other.
type Chosen<'a, M> = [Option<&'a mut Near<M>>; MAX_SHARES];
/// Some of them.
type Who = [bool; MAX_SHARES];

/// See the module.
pub(super) struct Circle<M: Message> {
    place: GroupPlace,
    inner: Mutex<Inner<M>>,
}

struct Inner<M: Message> {
    members: Vec<Arc<Mutex<Near<M>>>>,
    ledger: Arc<Mutex<Ledger>>,
    /// Once there are two members.
    way: Option<Way>,
}

/// How datagrams reach the group.
struct Way {
    socket: UdpSocket,
    /// Of the socket and of the group.
    port: u16,
    batch: Batch,
    /// Longest datagram.
    most_bytes: usize,
    /// The socket has no room, until the next flush.
    is_blocked: bool,
}

/// What is to be done next.
enum Step {
    Nothing,
    /// Somebody is waited for until then.
    Wait(u64),
    /// This member sends by itself, up to this offset of its stream.
    Alone(usize, u64),
    /// These send together at most so many bytes.
    Together(Who, u64),
}

impl<M: Message> Circle<M> {
    pub(super) fn new(place: GroupPlace) -> Circle<M> {
        Circle {
            place,
            inner: Mutex::new(Inner {
                members: Vec::with_capacity(MAX_SHARES),
                ledger: Arc::default(),
                way: None,
            }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.inner).members.is_empty()
    }

    /// Takes a sender in; false if it goes elsewhere, or there is no place left.
    pub(super) fn take_in(
        &self,
        place: GroupPlace,
        near: &Arc<Mutex<Near<M>>>,
        deserted: &Arc<AtomicU64>,
    ) -> bool {
        let mut inner = lock(&self.inner);
        if place != self.place || inner.members.len() == MAX_SHARES {
            return false;
        }
        inner.members.push(near.clone());
        if inner.members.len() > 1 {
            // Without a socket each goes on by itself; the next one that joins tries again.
            let way = inner.way.take().or_else(|| Way::open(place).ok());
            if let Some(way) = way {
                inner.seat_all(way.port, deserted);
                inner.way = Some(way);
            }
        }
        true
    }

    /// Lets a sender go, which goes on alone.
    pub(super) fn leave(&self, near: &Arc<Mutex<Near<M>>>) {
        let mut inner = lock(&self.inner);
        inner.members.retain(|member| !Arc::ptr_eq(member, near));
        if let Some(way) = &inner.way {
            lock(near).leave(&way.socket);
        }
    }

    /// Sends what may leave; returns when to come again at the latest. `is_flush`: whoever offers messages has offered the same to all.
    pub(super) fn transmit(&self, is_flush: bool, now_ns: u64) -> Option<u64> {
        let mut inner = lock(&self.inner);
        let Inner { members, way, .. } = &mut *inner;
        let way = way.as_mut()?;
        let mut members: Members<'_, M> = std::array::from_fn(|at| members.get(at).map(|near| lock(near)));
        if is_flush {
            way.is_blocked = false;
            for near in members.iter_mut().flatten().filter(|near| near.failure.is_none()) {
                near.attend(&way.socket, now_ns);
                near.take_pending();
            }
        }
        let mut until_ns = None;
        while !way.is_blocked {
            let has_moved = match plan(&mut members, way.most_bytes, is_flush, now_ns) {
                Step::Nothing => false,
                Step::Wait(at_ns) => {
                    until_ns = Some(at_ns);
                    false
                }
                Step::Alone(at, end) => members[at]
                    .as_mut()
                    .is_some_and(|near| send_alone(near, end, now_ns)),
                Step::Together(who, bytes) => way.send_together(&mut members, &who, bytes, now_ns),
            };
            if !has_moved {
                break;
            }
        }
        for near in members.iter_mut().flatten() {
            near.wake.wait_for_group(&way.socket, way.is_blocked);
            if !is_in(near) && near.failure.is_none() {
                // It may have left just now. A failure is kept and reported by its next call.
                let _ = near.transmit(now_ns, true);
            }
        }
        until_ns
    }
}

impl<M: Message> Inner<M> {
    fn seat_all(&self, port: u16, deserted: &Arc<AtomicU64>) {
        for member in &self.members {
            let mut near = lock(member);
            let end = near.sending.accepted();
            let make = || Seat::new(self.ledger.clone(), port, end, deserted.clone());
            near.seat.get_or_insert_with(make);
        }
    }
}

/// Whether a member sends by the group.
fn is_in<M: Message>(near: &Near<M>) -> bool {
    near.failure.is_none() && near.seat.as_ref().is_some_and(|seat| seat.is_confirmed)
}

/// Sends what lies before this offset by the member's own socket; false if nothing could leave.
fn send_alone<M: Message>(near: &mut Near<M>, end: u64, now_ns: u64) -> bool {
    let before = near.sending.cut();
    near.sending.hold_at(end);
    // As in `transmit`.
    let _ = near.transmit(now_ns, true);
    near.sending.cut() > before
}

/// Decides what leaves next.
fn plan<M: Message>(members: &mut Members<'_, M>, most_bytes: usize, is_flush: bool, now_ns: u64) -> Step {
    let most_bytes = fitting_bytes(members, most_bytes);
    let mut positions = [None; MAX_SHARES];
    let mut able = [false; MAX_SHARES];
    for (at, near) in members.iter_mut().enumerate() {
        let Some(near) = near.as_mut().filter(|near| is_in(near)) else {
            continue;
        };
        let (cut, accepted) = (near.sending.cut(), near.sending.accepted());
        able[at] = cut < accepted && near.sending.allowance(most_bytes) > 0;
        let Some(seat) = &mut near.seat else { continue };
        if able[at] {
            seat.stalled_ns = None;
        }
        if cut >= seat.run_start() {
            positions[at] = Some(seat.position(cut));
        } else if able[at] {
            // Nobody else has these bytes there.
            return Step::Alone(at, seat.run_start());
        }
    }
    let lowest = (0..MAX_SHARES)
        .filter(|at| able[*at])
        .filter_map(|at| positions[at])
        .min();
    let Some(lowest) = lowest else {
        return Step::Nothing;
    };
    let mut limit_bytes = u64::MAX;
    let (mut who, mut count, mut last) = ([false; MAX_SHARES], 0, 0);
    let mut wait_ns: Option<u64> = None;
    for (at, near) in members.iter_mut().enumerate() {
        let (Some(near), Some(position)) = (near, positions[at]) else {
            continue;
        };
        if position > lowest {
            limit_bytes = limit_bytes.min(position - lowest);
        } else if position == lowest && able[at] {
            (who[at], count, last) = (true, count + 1, at);
        } else if position == lowest {
            let has_none = near.sending.cut() == near.sending.accepted() && !near.is_starved();
            if has_none && !is_flush {
                // It is about to be offered what the others have.
                return Step::Nothing;
            }
            let patience_ns = near.sending.patience_ns();
            if let Some(seat) = near.seat.as_mut().filter(|_| !has_none) {
                let until_ns = *seat.stalled_ns.get_or_insert(now_ns) + patience_ns;
                if now_ns < until_ns {
                    wait_ns = Some(wait_ns.map_or(until_ns, |earlier| earlier.min(until_ns)));
                }
            }
        }
    }
    match (wait_ns, count, &members[last]) {
        (Some(until_ns), ..) => Step::Wait(until_ns),
        (None, 1, Some(near)) => {
            let end = near.sending.cut().saturating_add(limit_bytes);
            Step::Alone(last, end.min(near.sending.accepted()))
        }
        _ => Step::Together(who, limit_bytes),
    }
}

/// Bytes of the stream that a datagram to all takes.
fn fitting_bytes<M: Message>(members: &Members<'_, M>, most_bytes: usize) -> u64 {
    let all = members.iter().flatten().filter(|near| is_in(near));
    let lengths = all.clone().map(|near| near.batch.datagram_bytes());
    let datagram_bytes = lengths.min().unwrap_or(most_bytes).min(most_bytes);
    datagram_bytes.saturating_sub(shared_bytes(all.count())) as u64
}

/// Cuts the next bytes of all, as many as each may send; the head of the datagram and the cuts, if there are any.
fn cut<M: Message>(
    chosen: &mut Chosen<'_, M>,
    most_bytes: u64,
    now_ns: u64,
) -> Option<([u8; MAX_SHARED_BYTES], [Option<Cut>; MAX_SHARES])> {
    let allowed = chosen
        .iter_mut()
        .flatten()
        .map(|near| near.sending.allowance(most_bytes));
    let bytes = allowed.min().filter(|bytes| *bytes > 0)?;
    let mut shares = [Share::default(); MAX_SHARES];
    let mut cuts = [None; MAX_SHARES];
    let (mut first, mut receivers) = (None, 0);
    for (near, (cut, share)) in chosen.iter_mut().flatten().zip(cuts.iter_mut().zip(&mut shares)) {
        let next = near.sending.next_shared(bytes, now_ns);
        *cut = Some(next);
        let run = run(&near.outgoing, Purpose::Run, next.packet, next.offset, bytes);
        first = first.or(run.first);
        *share = Share {
            token: near.token,
            packet: run.packet,
            offset: run.offset,
            number: run.number,
        };
        receivers += 1;
    }
    Some((encode_shared(first, &shares[..receivers]), cuts))
}

impl Way {
    fn open(place: GroupPlace) -> std::io::Result<Way> {
        let (socket, port) = place.sending()?;
        Ok(Way {
            most_bytes: socket.path_bytes()?.min(MAX_DATAGRAM_BYTES),
            socket,
            port,
            batch: Batch::new(),
            is_blocked: false,
        })
    }

    /// Sends the next bytes of these members, which are the same; false if nothing could leave.
    fn send_together<M: Message>(
        &mut self,
        members: &mut Members<'_, M>,
        who: &Who,
        mut left_bytes: u64,
        now_ns: u64,
    ) -> bool {
        let most_bytes = fitting_bytes(members, self.most_bytes);
        let mut chosen: Chosen<'_, M> = Default::default();
        let mut receivers = 0;
        for (near, _) in members.iter_mut().zip(who).filter(|(_, is_due)| **is_due) {
            chosen[receivers] = near.as_deref_mut();
            receivers += 1;
        }
        let head_bytes = shared_bytes(receivers);
        let datagram_bytes = head_bytes + most_bytes as usize;
        if self.batch.datagram_bytes() != datagram_bytes {
            self.batch.set_datagram_bytes(datagram_bytes, &self.socket);
        }
        let mut cuts = ArrayVec::<[Option<Cut>; MAX_SHARES], BATCH>::new();
        let most = self.batch.most();
        while cuts.len() < most
            && let Some((head, these)) = cut(&mut chosen, most_bytes.min(left_bytes), now_ns)
            && let (Some(leader), Some(cut)) = (&chosen[0], these[0])
        {
            let datagram = self.batch.add(head_bytes + cut.bytes as usize);
            let (place, rest) = datagram.split_at_mut(head_bytes);
            place.copy_from_slice(&head[..head_bytes]);
            leader.outgoing.walk().read(cut.offset, rest);
            left_bytes -= cut.bytes;
            cuts.push(these);
        }
        let (left, result) = self.batch.hand_over(&self.socket);
        for cuts in cuts[left..].iter().rev() {
            for (near, cut) in chosen.iter_mut().flatten().zip(cuts.iter().flatten()) {
                near.sending.take_back(*cut);
            }
        }
        for near in chosen.iter_mut().flatten() {
            near.outgoing.release(near.sending.released());
        }
        self.judge(result, members) || left > 0
    }

    /// Takes in what the system has said; whether to try again at once.
    fn judge<M: Message>(&mut self, result: HandedOver, members: &mut Members<'_, M>) -> bool {
        match result {
            HandedOver::All => false,
            HandedOver::NoGroups => true,
            HandedOver::Some => {
                self.is_blocked = true;
                false
            }
            HandedOver::Refused(error) => {
                let is_long = error.raw_os_error() == Some(libc::EMSGSIZE);
                let path_bytes = self.socket.path_bytes().unwrap_or(SAFE_DATAGRAM_BYTES);
                let shorter = [path_bytes, SAFE_DATAGRAM_BYTES];
                if let Some(bytes) = shorter
                    .into_iter()
                    .find(|bytes| is_long && *bytes < self.most_bytes)
                {
                    self.most_bytes = bytes;
                    return true;
                }
                // No way for anybody.
                for near in members.iter_mut().flatten() {
                    near.leave(&self.socket);
                }
                false
            }
        }
    }
}
