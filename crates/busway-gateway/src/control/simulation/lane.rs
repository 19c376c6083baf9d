//! Lanes of one simulated host: how they take commands, move numbered messages and report.
//!
//! A model of [`crate::lane`] as the core sees it: what each [`Ending`] does with messages, which
//! losses each side counts, and when it reports. Commands take effect at the lane's next turn,
//! which may be late; reports of one lane keep their order.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::pipe::{Message, PipeId, Pipes};
use crate::control::plan::WhenFull;
use crate::lane::{ChannelKey, Ending, FlowId, Report};

/// As `END_LIMIT` of [`crate::lane::inbound`].
const END_LIMIT: Duration = Duration::from_millis(500);
/// As `DRAIN_LIMIT` of [`crate::lane::out`].
const DRAIN_LIMIT: Duration = Duration::from_millis(500);
/// As `MOVE_LIMIT` of [`crate::lane::outbound`].
const MOVE_LIMIT: Duration = Duration::from_secs(2);

/// What a lane is commanded.
#[derive(Debug)]
pub enum Command {
    SetOutbound(FlowId, WhenFull),
    DropOutbound(FlowId),
    AddSender(FlowId, ChannelKey, PipeId),
    AddLarge(FlowId, ChannelKey, PipeId),
    EndSender(FlowId, ChannelKey, Ending),
    SetInbound(FlowId),
    DropInbound(FlowId),
    AddReceiver(FlowId, ChannelKey, PipeId, usize),
    EndReceiver(FlowId, ChannelKey),
}

/// Losses that a host counts of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Gaps seen by the receiver, by sending host.
    pub lost_from: [u64; 16],
    pub dropped_link_down: u64,
    pub delivery_unknown: u64,
    pub overflowed: u64,
    pub dropped_full: u64,
    pub duplicates: u64,
}

/// A source's messages that no lane has taken yet, and its numbering.
#[derive(Debug, Default)]
pub struct Source {
    /// Whether the gateway has its subscriber in the service.
    pub has_subscriber: bool,
    pub waiting: VecDeque<u64>,
    /// Overflowed since the lane last took a message.
    pub overflowed: u64,
    /// The number of the last message taken.
    pub sequence: u64,
    /// Ports: all messages of the store; those up to `acknowledged` are done.
    pub store: Vec<u64>,
    pub acknowledged: usize,
}

#[derive(Debug)]
struct Out {
    key: ChannelKey,
    pipe: PipeId,
    is_large: bool,
    pending: Option<Message>,
    drain: Option<Drain>,
    has_failed: bool,
    /// Ports: index in the store of the next message.
    next: usize,
    /// Ports: index of the first message of this channel.
    first: usize,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    until: Option<Duration>,
    is_move: bool,
}

#[derive(Debug)]
struct Outbound {
    when_full: WhenFull,
    outs: Vec<Out>,
    is_lost: bool,
    moves_until: Option<Duration>,
}

#[derive(Debug)]
struct In {
    key: ChannelKey,
    pipe: PipeId,
    from: usize,
    ending_at: Option<Duration>,
}

/// The lanes of a host.
#[derive(Default)]
pub struct Lanes {
    pub commands: [VecDeque<Command>; 4],
    outbound: BTreeMap<FlowId, Outbound>,
    inbound: BTreeMap<FlowId, Vec<In>>,
    /// By flow and sending host: session and last number.
    pub continuity: BTreeMap<(FlowId, usize), (u64, u64)>,
    pub counters: BTreeMap<FlowId, Counters>,
    pub sources: BTreeMap<FlowId, Source>,
    /// Ports: number of the last message that was accepted.
    pub accepted: BTreeMap<FlowId, u64>,
}

/// What a turn brings about.
#[derive(Default)]
pub struct Turn {
    pub reports: Vec<Report>,
    /// Messages given to programs, with their flow, sending host, and the losses that the receiver
    /// had counted by then.
    pub delivered: Vec<(FlowId, usize, Message, u64)>,
    /// Messages that left, to arrive later.
    pub sent: Vec<(PipeId, Message)>,
    /// Acknowledgements that left.
    pub acknowledged: Vec<PipeId>,
    pub violations: Vec<String>,
    /// It has work at a later time even without news.
    pub is_busy: bool,
}

/// The lane of one half of a flow.
pub fn lane_of(flow: FlowId, is_outbound: bool) -> usize {
    let number = match flow {
        FlowId::Service(number) | FlowId::Port(number) | FlowId::Core(number) => number,
    };
    number as usize % 2 + if is_outbound { 0 } else { 2 }
}

fn is_port(flow: FlowId) -> bool {
    matches!(flow, FlowId::Port(_))
}

impl Lanes {
    /// Whether any half is left of services.
    pub fn leftovers(&self) -> Vec<FlowId> {
        let mut left: Vec<_> = self.outbound.keys().chain(self.inbound.keys()).copied().collect();
        left.retain(|flow| !is_port(*flow));
        left
    }

    /// Gives a lane its turn.
    pub fn turn(&mut self, lane: usize, now: Duration, session: u64, pipes: &mut Pipes) -> Turn {
        let mut turn = Turn::default();
        while let Some(command) = self.commands[lane].pop_front() {
            self.execute(command, now, pipes, &mut turn);
        }
        let flows: Vec<_> = self.inbound.keys().copied().collect();
        for flow in flows.into_iter().filter(|flow| lane_of(*flow, false) == lane) {
            self.pump_inbound(flow, now, pipes, &mut turn);
        }
        let flows: Vec<_> = self.outbound.keys().copied().collect();
        for flow in flows.into_iter().filter(|flow| lane_of(*flow, true) == lane) {
            if is_port(flow) {
                self.pump_port(flow, session, pipes, &mut turn);
            } else {
                self.pump_outbound(flow, now, session, pipes, &mut turn);
            }
        }
        turn
    }

    fn execute(&mut self, command: Command, now: Duration, pipes: &mut Pipes, turn: &mut Turn) {
        match command {
            Command::SetOutbound(flow, when_full) => {
                let outbound = Outbound {
                    when_full,
                    outs: Vec::new(),
                    is_lost: false,
                    moves_until: None,
                };
                self.outbound.insert(flow, outbound);
            }
            Command::DropOutbound(flow) => {
                let is_in_use = |out: &Out| out.drain.is_none() && !out.has_failed;
                let outbound = self.outbound.remove(&flow);
                if outbound.is_some_and(|outbound| outbound.outs.iter().any(is_in_use)) {
                    turn.violations
                        .push(format!("{flow:?}: subscriber dropped with channels in it"));
                }
            }
            Command::AddSender(flow, key, pipe) => self.add_sender(flow, key, pipe, turn),
            Command::AddLarge(flow, key, pipe) => self.add_large(flow, key, pipe, pipes, turn),
            Command::EndSender(flow, key, ending) => self.end_sender(flow, key, ending, now, pipes, turn),
            Command::SetInbound(flow) => {
                self.inbound.insert(flow, Vec::new());
            }
            Command::DropInbound(flow) => {
                // A channel of a lost link may still be draining.
                let is_in_use = |ins: Vec<In>| ins.iter().any(|input| input.ending_at.is_none());
                if self.inbound.remove(&flow).is_some_and(is_in_use) {
                    turn.violations
                        .push(format!("{flow:?}: publisher dropped with channels in it"));
                }
            }
            Command::AddReceiver(flow, key, pipe, from) => {
                let Some(ins) = self.inbound.get_mut(&flow) else {
                    turn.violations
                        .push(format!("{flow:?}: receiver without a publisher"));
                    return;
                };
                ins.push(In {
                    key,
                    pipe,
                    from,
                    ending_at: None,
                });
                turn.reports.push(Report::ReceiverAdded { flow, key });
            }
            Command::EndReceiver(flow, key) => {
                if is_port(flow) {
                    self.end_port_receiver(flow, key, turn);
                    return;
                }
                let ins = self.inbound.entry(flow).or_default();
                for input in ins.iter_mut().filter(|input| input.key == key) {
                    input.ending_at = Some(now + END_LIMIT);
                }
            }
        }
    }

    fn add_sender(&mut self, flow: FlowId, key: ChannelKey, pipe: PipeId, turn: &mut Turn) {
        let Some(outbound) = self.outbound.get_mut(&flow) else {
            turn.violations
                .push(format!("{flow:?}: sender without a subscriber"));
            return;
        };
        if is_port(flow) && !outbound.outs.is_empty() {
            turn.violations
                .push(format!("{flow:?}: two channels take one port's messages"));
        }
        let next = self.sources.entry(flow).or_default().acknowledged;
        outbound.outs.push(Out {
            key,
            pipe,
            is_large: false,
            pending: None,
            drain: None,
            has_failed: false,
            next,
            first: next,
        });
        outbound.is_lost = false;
        outbound.moves_until = None;
    }

    fn add_large(&mut self, flow: FlowId, key: ChannelKey, pipe: PipeId, pipes: &mut Pipes, turn: &mut Turn) {
        let outs = self.outbound.get_mut(&flow).map(|outbound| &mut outbound.outs);
        let Some(outs) = outs.filter(|outs| !outs.is_empty()) else {
            pipes.drop_sender(pipe);
            turn.reports.push(sender_ended(flow, key, 0));
            return;
        };
        outs.push(Out {
            key,
            pipe,
            is_large: true,
            pending: None,
            drain: None,
            has_failed: false,
            next: 0,
            first: 0,
        });
    }

    fn end_sender(
        &mut self,
        flow: FlowId,
        key: ChannelKey,
        ending: Ending,
        now: Duration,
        pipes: &mut Pipes,
        turn: &mut Turn,
    ) {
        let Some(outbound) = self.outbound.get_mut(&flow) else {
            return;
        };
        if is_port(flow) {
            for out in std::mem::take(&mut outbound.outs) {
                pipes.drop_sender(out.pipe);
                turn.reports.push(sender_ended(flow, out.key, 0));
            }
            return;
        }
        outbound.is_lost |= ending == Ending::Lost;
        let waits = outbound.when_full == WhenFull::Wait;
        for out in outbound.outs.iter_mut().filter(|out| out.key == key) {
            let (until, is_move) = match ending {
                Ending::Now => (Some(now), false),
                Ending::Drained | Ending::Moved if !waits => (Some(now + DRAIN_LIMIT), false),
                Ending::Drained => (None, false),
                Ending::Moved => (None, true),
                Ending::Lost | Ending::Replaced => {
                    out.has_failed = true;
                    continue;
                }
            };
            out.drain = Some(Drain { until, is_move });
        }
    }

    fn end_port_receiver(&mut self, flow: FlowId, key: ChannelKey, turn: &mut Turn) {
        let ins = self.inbound.entry(flow).or_default();
        let before = ins.len();
        ins.retain(|input| input.key != key);
        if ins.len() < before {
            let failure = None;
            turn.reports.push(Report::ReceiverEnded { flow, key, failure });
        }
    }

    fn pump_outbound(
        &mut self,
        flow: FlowId,
        now: Duration,
        session: u64,
        pipes: &mut Pipes,
        turn: &mut Turn,
    ) {
        let counters = self.counters.entry(flow).or_default();
        let source = self.sources.entry(flow).or_default();
        let Some(outbound) = self.outbound.get_mut(&flow) else {
            return;
        };
        outbound.retry(pipes, turn);
        outbound.remove_ended(flow, now, false, counters, pipes, turn);
        let emptied = outbound.take(now, session, source, counters, pipes, turn);
        outbound.remove_ended(flow, now, emptied, counters, pipes, turn);
        turn.is_busy |= outbound
            .outs
            .iter()
            .any(|out| out.drain.is_some() || out.pending.is_some())
            || (!source.waiting.is_empty() && !outbound.outs.is_empty());
    }

    fn pump_port(&mut self, flow: FlowId, session: u64, pipes: &mut Pipes, turn: &mut Turn) {
        let source = self.sources.entry(flow).or_default();
        let Some(outbound) = self.outbound.get_mut(&flow) else {
            return;
        };
        for out in &mut outbound.outs {
            let acknowledged = out.first + pipes.acknowledged(out.pipe) as usize;
            source.acknowledged = source.acknowledged.max(acknowledged);
            while out.next < source.store.len() && pipes.has_room(out.pipe) {
                let number = source.store[out.next];
                out.next += 1;
                let message = Message {
                    sequence: out.next as u64,
                    number,
                    session,
                };
                pipes.accept(out.pipe);
                turn.sent.push((out.pipe, message));
            }
            turn.is_busy |= source.acknowledged < source.store.len();
        }
    }

    fn pump_inbound(&mut self, flow: FlowId, now: Duration, pipes: &mut Pipes, turn: &mut Turn) {
        let Some(ins) = self.inbound.get_mut(&flow) else {
            return;
        };
        let mut ended = Vec::new();
        for input in ins.iter_mut() {
            let mut moved = false;
            while let Some(message) = pipes.take(input.pipe) {
                moved = true;
                turn.acknowledged.push(input.pipe);
                let delivered = if is_port(flow) {
                    accept(self.accepted.entry(flow).or_default(), &message, turn)
                } else {
                    let counters = self.counters.entry(flow).or_default();
                    let continuity = self.continuity.entry((flow, input.from)).or_default();
                    advance(continuity, &message, &mut counters.lost_from[input.from])
                };
                let counters = self.counters.entry(flow).or_default();
                if delivered {
                    let lost = counters.lost_from[input.from];
                    turn.delivered.push((flow, input.from, message, lost));
                } else {
                    counters.duplicates += 1;
                }
            }
            if moved {
                input.ending_at = input.ending_at.map(|_| now + END_LIMIT);
            }
            let is_over = input.ending_at.is_some_and(|at| now >= at) || pipes.has_closed(input.pipe);
            if is_over {
                ended.push(input.key);
            }
            turn.is_busy |= input.ending_at.is_some();
        }
        ins.retain(|input| !ended.contains(&input.key));
        for key in ended {
            let failure = None;
            turn.reports.push(Report::ReceiverEnded { flow, key, failure });
        }
    }
}

fn sender_ended(flow: FlowId, key: ChannelKey, unacknowledged: u64) -> Report {
    Report::SenderEnded {
        flow,
        key,
        unacknowledged,
        failure: None,
    }
}

/// As `Continuity::advance`: returns whether the message is new, and counts the gap before it.
fn advance(continuity: &mut (u64, u64), message: &Message, lost: &mut u64) -> bool {
    if continuity.0 == message.session {
        if message.sequence <= continuity.1 {
            return false;
        }
        *lost += message.sequence - continuity.1 - 1;
    }
    *continuity = (message.session, message.sequence);
    true
}

/// A queuing port accepts each message once and in order.
fn accept(accepted: &mut u64, message: &Message, turn: &mut Turn) -> bool {
    if message.sequence <= *accepted {
        return false;
    }
    if message.sequence > *accepted + 1 {
        turn.violations
            .push(format!("queue: message {} follows {accepted}", message.sequence));
    }
    *accepted = message.sequence;
    true
}

impl Outbound {
    fn retry(&mut self, pipes: &mut Pipes, turn: &mut Turn) {
        for out in &mut self.outs {
            if pipes.has_room(out.pipe)
                && let Some(message) = out.pending.take()
            {
                pipes.accept(out.pipe);
                turn.sent.push((out.pipe, message));
            }
        }
    }

    /// Takes messages of programs; returns whether none is left.
    fn take(
        &mut self,
        now: Duration,
        session: u64,
        source: &mut Source,
        counters: &mut Counters,
        pipes: &mut Pipes,
        turn: &mut Turn,
    ) -> bool {
        let is_moving = |out: &Out| out.drain.is_some_and(|drain| drain.is_move);
        let awaits_channel = if self.outs.is_empty() {
            !self.is_lost
        } else {
            self.moves_until.is_some_and(|until| now < until) || self.outs.iter().any(is_moving)
        };
        if awaits_channel {
            return false;
        }
        loop {
            let is_full = self.outs.iter().any(|out| out.pending.is_some());
            if self.when_full == WhenFull::Wait && is_full {
                return false;
            }
            let overflowed = std::mem::take(&mut source.overflowed);
            source.sequence += overflowed;
            counters.overflowed += overflowed;
            let Some(number) = source.waiting.pop_front() else {
                return true;
            };
            source.sequence += 1;
            if self.outs.is_empty() {
                counters.dropped_link_down += 1;
            }
            let message = Message {
                sequence: source.sequence,
                number,
                session,
            };
            for out in self.outs.iter_mut().filter(|out| !out.is_large) {
                out.offer(message, counters, pipes, turn);
            }
        }
    }

    fn remove_ended(
        &mut self,
        flow: FlowId,
        now: Duration,
        emptied: bool,
        counters: &mut Counters,
        pipes: &mut Pipes,
        turn: &mut Turn,
    ) {
        let has_failed = self.outs.iter().any(|out| out.has_failed);
        let mut moves_until = self.moves_until;
        self.outs.retain_mut(|out| {
            let is_move = out.drain.is_some_and(|drain| drain.is_move);
            let idle = out.pending.is_none() && (emptied || is_move || out.is_large);
            let is_over = out.drain.is_some_and(|drain| match drain.until {
                Some(until) => idle || now >= until,
                None => idle && pipes.outstanding(out.pipe) == 0,
            });
            if !is_over && !out.has_failed {
                return true;
            }
            let mut unacknowledged = pipes.outstanding(out.pipe);
            if out.has_failed {
                counters.delivery_unknown += std::mem::take(&mut unacknowledged);
            } else if is_move {
                moves_until = Some(now + MOVE_LIMIT);
            }
            counters.dropped_link_down += u64::from(out.pending.take().is_some());
            pipes.drop_sender(out.pipe);
            turn.reports.push(sender_ended(flow, out.key, unacknowledged));
            false
        });
        self.moves_until = moves_until;
        // A large-message channel goes with its main one.
        if self.outs.iter().all(|out| out.is_large) {
            for out in self.outs.drain(..) {
                pipes.drop_sender(out.pipe);
                turn.reports.push(sender_ended(flow, out.key, 0));
            }
        }
        self.is_lost |= has_failed && self.outs.is_empty();
    }
}

impl Out {
    fn offer(&mut self, message: Message, counters: &mut Counters, pipes: &mut Pipes, turn: &mut Turn) {
        if self.has_failed {
            counters.dropped_link_down += 1;
        } else if self.pending.is_none() && pipes.has_room(self.pipe) {
            pipes.accept(self.pipe);
            turn.sent.push((self.pipe, message));
        } else {
            counters.dropped_full += u64::from(self.pending.replace(message).is_some());
        }
    }
}
