//! The thread of a lane: gives every flow its turn, and sleeps when there is nothing to do.

use std::time::{Duration, Instant};

use busway_system::Wait;
use busway_transport::WaitFor;

use super::command::{LaneCommand, PortCommand, PortEnd};
use super::flow::Flow;
use super::queues::{Inbox, ReportSender};

use super::inbound::Inbound;
use super::interface::{FlowId, Report};
use super::outbound::Outbound;
use super::port::PortChannels;
use super::wait::{self, Sleeper, Woken};

/// A flow that moved something within this time is served at every turn.
const HOT_FOR: Duration = Duration::from_millis(2);
/// Flows that are not hot get their turn in slices of this many.
const COLD_SLICE: usize = 32;
/// An adaptive lane looks for more for this long before it sleeps.
const SPIN_FOR: Duration = Duration::from_micros(50);
/// The same while traffic is dense: waking up costs more than looking, and throughput then hangs on
/// being awake.
const SPIN_DENSE: Duration = Duration::from_micros(500);
/// Traffic is dense while messages come this close together, on average.
const DENSE_GAP_NS: u64 = 200_000;
/// An adaptive lane that moved fewer messages than this in a turn lets others run before it looks
/// again: where programs and lanes share cores it then finds more at once, and with a core to
/// itself it loses nothing.
const FEW: usize = 32;
/// A spinning lane asks the kernel about quiet descriptors once in this many idle turns.
const SPIN_ASK: u32 = 256;

pub(super) struct Worker {
    wait: Wait,
    inbox: Inbox,
    reports: ReportSender,
    outgoing_reports: Vec<Report>,
    flows: Vec<Flow>,
    ports: PortChannels,
    cursor: usize,
    last_moved: Option<Instant>,
    /// Moving average of the time between turns that moved something.
    gap_ns: u64,
    /// The sleep before this turn ran its time.
    is_unrung: bool,
    sleeper: Sleeper,
}

impl Worker {
    pub(super) fn new(wait: Wait, inbox: Inbox, reports: ReportSender, sleeper: Sleeper) -> Worker {
        Worker {
            wait,
            inbox,
            reports,
            outgoing_reports: Vec::new(),
            flows: Vec::new(),
            ports: PortChannels::default(),
            cursor: 0,
            last_moved: None,
            gap_ns: u64::from(u32::MAX),
            is_unrung: false,
            sleeper,
        }
    }

    pub(super) fn run(mut self) {
        let mut idle_turns: u32 = 0;
        let mut has_slept = false;
        loop {
            if !self.read_commands() {
                return;
            }
            let now = Instant::now();
            let moved = self.turn(now, has_slept);
            if moved > 0 {
                self.note_progress(now);
                idle_turns = 0;
                has_slept = false;
                if self.wait == Wait::Adaptive && moved < FEW {
                    std::thread::yield_now();
                }
                continue;
            }
            idle_turns = idle_turns.wrapping_add(1);
            let idle = self.last_moved.map_or(Duration::MAX, |moved| now - moved);
            match self.wait {
                Wait::Spin => {
                    if idle_turns.is_multiple_of(SPIN_ASK) {
                        let woken = self.sleeper.ask(Duration::ZERO);
                        self.wake(woken);
                    }
                    std::hint::spin_loop();
                }
                Wait::Adaptive if idle < self.spin_for() => std::thread::yield_now(),
                Wait::Adaptive | Wait::Event => {
                    self.sleep(now, idle);
                    has_slept = true;
                }
            }
        }
    }

    fn note_progress(&mut self, now: Instant) {
        let gap = self
            .last_moved
            .map_or(u64::from(u32::MAX), |moved| (now - moved).as_nanos() as u64);
        self.gap_ns = self.gap_ns - self.gap_ns / 8 + gap.min(u64::from(u32::MAX)) / 8;
        self.last_moved = Some(now);
    }

    fn spin_for(&self) -> Duration {
        if self.gap_ns < DENSE_GAP_NS {
            SPIN_DENSE
        } else {
            SPIN_FOR
        }
    }

    /// Gives every hot flow and a slice of the others their turn. Returns the number of messages
    /// moved.
    fn turn(&mut self, now: Instant, everything: bool) -> usize {
        let eager = self.wait == Wait::Spin || self.last_moved.is_some_and(|moved| now - moved < SPIN_DENSE);
        let time_ns = wait::realtime_ns();
        let count = self.flows.len();
        let mut moved = 0;
        let mut cold_left = if everything { usize::MAX } else { COLD_SLICE };
        let mut next_cursor = self.cursor;
        for step in 0..count {
            let index = (self.cursor + step) % count;
            let flow = &mut self.flows[index];
            let is_hot = flow.last_moved.is_some_and(|moved| now - moved < HOT_FOR);
            if !is_hot {
                if cold_left == 0 {
                    continue;
                }
                cold_left -= 1;
                next_cursor = index + 1;
            }
            let flow_moved = flow.turn(now, time_ns, eager && is_hot, &mut self.outgoing_reports);
            if flow_moved > 0 {
                flow.last_moved = Some(now);
                moved += flow_moved;
            }
        }
        self.cursor = if count == 0 { 0 } else { next_cursor % count };
        moved += self.turn_ports(eager);
        self.send_reports();
        moved
    }

    fn turn_ports(&mut self, eager: bool) -> usize {
        let is_unrung = std::mem::take(&mut self.is_unrung);
        self.ports.turn(is_unrung, eager, &mut self.outgoing_reports)
    }

    fn sleep(&mut self, now: Instant, idle: Duration) {
        self.sleeper.arm();
        self.ports.arm();
        if self.look_again(now) > 0 {
            self.note_progress(now);
            self.disarm();
            return;
        }
        for flow in &self.flows {
            self.sleeper
                .watch_blocked(flow.outbound.iter().flat_map(Outbound::blocked));
        }
        self.sleeper.watch_blocked(self.ports.blocked());
        for flow in &self.flows {
            let waiting = flow.inbound.iter().flat_map(Inbound::waiting);
            self.sleeper.ignore(flow.id, waiting);
        }
        let woken = self.sleeper.ask(self.sleep_for(idle));
        self.disarm();
        self.is_unrung = !woken.is_by_event;
        self.wake(woken);
    }

    fn disarm(&mut self) {
        self.sleeper.disarm();
        self.ports.disarm();
    }

    /// What came between the last look and the arming of the doorbells rings no bell: messages and
    /// credits are looked for once more.
    fn look_again(&mut self, now: Instant) -> usize {
        let mut moved = self.turn_ports(false);
        if !self.sleeper.has_doorbells() {
            self.send_reports();
            return moved;
        }
        for flow in &mut self.flows {
            if let Some(inbound) = &mut flow.inbound {
                moved += inbound.pump(now, false, &mut self.outgoing_reports, flow.id);
            }
            if let Some(outbound) = flow.outbound.as_mut().filter(|outbound| outbound.is_blocked()) {
                moved += outbound.pump(now, wait::realtime_ns(), &mut self.outgoing_reports, flow.id);
            }
        }
        self.send_reports();
        moved
    }

    /// The longest sleep. iceoryx2 itself wakes no subscriber, so the lane must poll flows without
    /// companion events. Ports ring; but a message of a process that was killed before it could
    /// ring is noticed after the longest sleep.
    fn sleep_for(&self, idle: Duration) -> Duration {
        const LONG: Duration = Duration::from_millis(500);
        const WOKEN: Duration = Duration::from_millis(20);
        const SHORTEST: Duration = Duration::from_micros(30);
        let cap = (idle / 200).clamp(Duration::from_millis(1), Duration::from_millis(10));
        let mut longest = LONG;
        for flow in &self.flows {
            if let Some(outbound) = &flow.outbound {
                let limit = if outbound.is_woken() { WOKEN } else { cap };
                longest = longest.min(limit);
                if longest == cap {
                    break;
                }
            }
        }
        if self.sleeper.must_poll || self.ports.is_polled() {
            longest = longest.min(cap);
        }
        if longest > cap {
            longest
        } else {
            (idle / 6).clamp(SHORTEST, longest)
        }
    }

    fn wake(&mut self, woken: Woken) {
        for &flow in woken.flows() {
            self.ports.set_ready(flow);
            if let Some(flow) = self.flows.iter_mut().find(|candidate| candidate.id == flow) {
                flow.set_ready();
            }
        }
    }

    fn send_reports(&mut self) {
        self.reports.send_all(&mut self.outgoing_reports);
    }

    /// Returns false when the lane shall end.
    fn read_commands(&mut self) -> bool {
        if !self.inbox.has_new() {
            return true;
        }
        while let Ok(command) = self.inbox.commands.try_recv() {
            if !self.obey(command) {
                return false;
            }
        }
        true
    }

    fn flow(&mut self, id: FlowId) -> &mut Flow {
        let known = self.flows.iter().position(|flow| flow.id == id);
        let index = known.unwrap_or_else(|| {
            self.flows.push(Flow::new(id));
            self.flows.len() - 1
        });
        &mut self.flows[index]
    }

    /// Returns false when the lane shall end.
    fn obey(&mut self, command: LaneCommand) -> bool {
        // Taken out, so that a half can add to it while the lane is borrowed.
        let mut reports = std::mem::take(&mut self.outgoing_reports);
        match command {
            LaneCommand::Outbound { flow, command } => {
                self.flow(flow).command_outbound(command, &mut reports);
                self.halves_changed(flow);
            }
            LaneCommand::Inbound { flow, command } => {
                self.flow(flow).command_inbound(command, &mut reports);
                self.halves_changed(flow);
            }
            LaneCommand::Port { flow, command } => self.command_port(flow, command, &mut reports),
            LaneCommand::SetDoorbell { link, doorbell } => self.sleeper.set_doorbell(link, doorbell),
            LaneCommand::Stop => return false,
        }
        self.outgoing_reports = reports;
        self.send_reports();
        true
    }

    fn command_port(&mut self, flow: FlowId, command: PortCommand, reports: &mut Vec<Report>) {
        match command {
            PortCommand::Add(end) => {
                let (doorbell, channel) = match &end {
                    PortEnd::Outbound(port) => (port.doorbell_fd(), None),
                    PortEnd::Inbound(port) => (port.doorbell_fd(), Some(port.wait_for())),
                };
                self.sleeper.watch_flow(flow, doorbell, channel.into_iter());
                match end {
                    PortEnd::Outbound(port) => self.ports.add_outbound(flow, port),
                    PortEnd::Inbound(port) => self.ports.add_inbound(flow, port),
                }
            }
            PortCommand::End => self.ports.end(flow, reports),
        }
        self.find_polled();
    }

    /// Forgets a flow without halves; watches the descriptors of others as they are now. (A closed
    /// descriptor has left epoll by itself.)
    fn halves_changed(&mut self, id: FlowId) {
        self.flows.retain(|flow| flow.id != id || !flow.is_empty());
        if let Some(flow) = self.flows.iter().find(|flow| flow.id == id) {
            let listener = flow.outbound.as_ref().and_then(Outbound::listener_fd);
            let channels = flow.inbound.iter().flat_map(Inbound::wait_for);
            self.sleeper.watch_flow(id, listener, channels);
        }
        self.find_polled();
    }

    /// Finds out whether some channel has no descriptor and no doorbell.
    fn find_polled(&mut self) {
        let services = self.flows.iter().flat_map(|flow| &flow.inbound);
        let mut channels = services.flat_map(Inbound::wait_for).chain(self.ports.arrivals());
        self.sleeper.must_poll = channels.any(|wait_for| wait_for == WaitFor::Poll);
    }
}
