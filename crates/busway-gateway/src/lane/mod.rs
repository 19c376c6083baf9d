//! Lanes: the threads that move data.
//!
//! A lane owns flows. A [`Flow`] is one service's data on this host: the [`outbound::Outbound`] half takes samples of local programs to other
//! hosts, the [`inbound::Inbound`] half gives messages of other hosts to local programs. The control thread makes and ends them by
//! [`Command`]s and hears [`Report`]s; nothing else is shared but counters. After start a lane allocates, locks and logs
//! nothing on the data path.
//!
//! A flow whose publisher may have to wait for slow local readers (services without safe overflow) has its inbound half in a lane of its
//! own, so that it delays nobody else.

mod command;
pub mod inbound;
pub mod out;
pub mod outbound;
mod port_fan;
pub mod port_in;
pub mod port_out;
mod port_pool;
mod ports;
pub mod schedule;
pub mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use busway_system::{Lane as LaneSettings, Wait};
use busway_transport::WaitFor;
use rustix::fd::OwnedFd;

pub use command::{Command, Ending, PortEnd, Report, ReportKind};
use inbound::Inbound;
use outbound::Outbound;
use ports::Ports;
use wait::{Sleeper, Woken};

/// Names a service within this gateway.
pub type FlowId = u32;

/// Names a channel within this gateway: the link's number and the channel's number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelKey {
    /// Index of the link.
    pub link: usize,
    /// See [`busway_transport::ChannelId`].
    pub channel: u32,
}

/// One service's data in one lane.
pub struct Flow {
    id: FlowId,
    outbound: Option<Outbound>,
    inbound: Option<Inbound>,
    last_moved: Option<Instant>,
}

/// The control thread's handle of a lane.
pub struct Lane {
    commands: mpsc::Sender<Command>,
    mail: Arc<AtomicBool>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Where lanes put their reports.
#[derive(Clone)]
pub struct ReportBox {
    /// The queue.
    pub sender: mpsc::Sender<Report>,
    /// Rung after a report was put in.
    pub bell: Arc<OwnedFd>,
}

impl Lane {
    /// Starts a lane's thread.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn start(settings: LaneSettings, reports: ReportBox) -> std::io::Result<Lane> {
        let (commands, inbox) = mpsc::channel();
        let mail = Arc::new(AtomicBool::new(false));
        let bell = Arc::new(wait::bell()?);
        let sleeper = Sleeper::new(&bell)?;
        let worker = Worker {
            wait: settings.wait,
            inbox,
            mail: mail.clone(),
            reports,
            outgoing_reports: Vec::new(),
            flows: Vec::new(),
            ports: Ports::default(),
            cursor: 0,
            last_moved: None,
            gap_ns: u64::from(u32::MAX),
            is_unrung: false,
            sleeper,
        };
        let thread = std::thread::Builder::new()
            .name(format!("lane {}", settings.name))
            .spawn(move || {
                schedule::apply(&settings);
                worker.run();
            })?;
        Ok(Lane {
            commands,
            mail,
            bell,
            thread: Some(thread),
        })
    }

    /// Tells the lane something.
    pub fn tell(&self, command: Command) {
        // A lane that has ended (its thread panicked) hears nothing; the control thread sees that at its end.
        let _ = self.commands.send(command);
        // Release: pairs with the acquire in `Worker::read_mail`, so that who sees the flag sees the command.
        self.mail.store(true, Ordering::Release);
        wait::ring(&self.bell);
    }

    /// Ends the lane without waiting for its thread.
    pub fn stop(&self) {
        self.tell(Command::Stop);
    }

    /// Ends the lane and waits for its thread.
    pub fn join(mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

/// A flow that moved something within this time is served at every turn.
const HOT_FOR: Duration = Duration::from_millis(2);
/// Flows that are not hot get their turn in slices of this many.
const COLD_SLICE: usize = 32;
/// An adaptive lane looks for more for this long before it sleeps.
const SPIN_FOR: Duration = Duration::from_micros(50);
/// The same while traffic is dense: waking up costs more than looking, and throughput then hangs on being awake.
const SPIN_DENSE: Duration = Duration::from_micros(500);
/// Traffic is dense while messages come this close together, on average.
const DENSE_GAP_NS: u64 = 200_000;
/// An adaptive lane that moved fewer messages than this in a turn lets others run before it looks again: where programs and lanes share
/// cores it then finds more at once, and with a core to itself it loses nothing.
const FEW: usize = 32;
/// A spinning lane asks the kernel about quiet descriptors every so many idle turns.
const SPIN_ASK: u32 = 256;

struct Worker {
    wait: Wait,
    inbox: mpsc::Receiver<Command>,
    mail: Arc<AtomicBool>,
    reports: ReportBox,
    outgoing_reports: Vec<Report>,
    flows: Vec<Flow>,
    ports: Ports,
    cursor: usize,
    last_moved: Option<Instant>,
    /// Moving average of the time between turns that moved something.
    gap_ns: u64,
    /// The sleep before this turn ran its time.
    is_unrung: bool,
    sleeper: Sleeper,
}

impl Worker {
    fn run(mut self) {
        let mut idle_turns: u32 = 0;
        let mut has_slept = false;
        loop {
            if !self.read_mail() {
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

    /// Gives every hot flow and a slice of the others their turn. Returns the number of messages moved.
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
            let waiting = flow.inbound.iter().flat_map(Inbound::kept_waiting);
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

    /// What came between the last look and the arming of the doorbells rings no bell: messages and credits are looked for once more.
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

    /// How long to sleep at most: iceoryx2 wakes nobody by itself, so flows without companion events must be looked at. Ports ring; but one who is
    /// killed before it could is noticed after the longest sleep.
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
                flow.last_moved = Some(Instant::now());
                if let Some(inbound) = &mut flow.inbound {
                    inbound.set_ready();
                }
                if let Some(outbound) = &mut flow.outbound {
                    outbound.set_ready();
                }
            }
        }
    }

    fn send_reports(&mut self) {
        if self.outgoing_reports.is_empty() {
            return;
        }
        for report in self.outgoing_reports.drain(..) {
            // The control thread is gone only when the process ends.
            let _ = self.reports.sender.send(report);
        }
        wait::ring(&self.reports.bell);
    }

    /// Returns false when the lane shall end.
    fn read_mail(&mut self) -> bool {
        // Acquire: pairs with the release in `Lane::tell`.
        if !self.mail.load(Ordering::Relaxed) || !self.mail.swap(false, Ordering::Acquire) {
            return true;
        }
        while let Ok(command) = self.inbox.try_recv() {
            if !self.obey(command) {
                return false;
            }
        }
        true
    }

    fn flow(&mut self, id: FlowId) -> &mut Flow {
        let index = self
            .flows
            .iter()
            .position(|flow| flow.id == id)
            .unwrap_or_else(|| {
                self.flows.push(Flow {
                    id,
                    outbound: None,
                    inbound: None,
                    last_moved: None,
                });
                self.flows.len() - 1
            });
        &mut self.flows[index]
    }

    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::SetOutbound(id, setup) => {
                self.flow(id).outbound = Some(Outbound::new(*setup));
                self.rewatch(id);
            }
            Command::DropOutbound(id) => {
                self.flow(id).outbound = None;
                self.forget_if_empty(id);
            }
            Command::AddSender(id, key, sender, may_join) => {
                if let Some(outbound) = &mut self.flow(id).outbound {
                    outbound.add(key, sender, may_join);
                }
            }
            Command::AddLarge(id, main, large) => {
                let mut reports = std::mem::take(&mut self.outgoing_reports);
                if let Some(outbound) = &mut self.flow(id).outbound {
                    outbound.add_large(main, large, &mut reports, id);
                }
                self.outgoing_reports = reports;
                self.send_reports();
            }
            Command::EndSender(id, key, ending) => {
                if let Some(outbound) = &mut self.flow(id).outbound {
                    outbound.end(key, ending, Instant::now());
                }
            }
            Command::SetInbound(id, setup) => self.flow(id).inbound = Some(Inbound::new(*setup)),
            Command::DropInbound(id) => {
                self.flow(id).inbound = None;
                self.forget_if_empty(id);
            }
            Command::AddReceiver(id, key, receiver, continuity, keeps_all) => {
                if let Some(inbound) = &mut self.flow(id).inbound {
                    inbound.add(key, receiver, continuity, keeps_all);
                }
                self.rewatch(id);
                self.outgoing_reports.push(Report {
                    flow: id,
                    key,
                    kind: ReportKind::ReceiverAdded,
                    reason: None,
                });
                self.send_reports();
            }
            Command::ConfirmReceiver(id, key) => {
                if let Some(inbound) = &mut self.flow(id).inbound {
                    inbound.confirm(key);
                }
            }
            Command::EndReceiver(id, key) => {
                if let Some(inbound) = &mut self.flow(id).inbound {
                    inbound.end(key, Instant::now());
                }
            }
            Command::SetInlet(id, inlet) => {
                if let Some(inbound) = &mut self.flow(id).inbound {
                    inbound.set_inlet(*inlet);
                }
            }
            Command::SetVoice(id, voice) => {
                if let Some(inbound) = &mut self.flow(id).inbound {
                    inbound.set_voice(voice);
                }
            }
            Command::SetEar(id, ear) => {
                if let Some(outbound) = &mut self.flow(id).outbound {
                    outbound.set_ear(ear);
                }
                self.rewatch(id);
            }
            Command::MeetSubscribers(id) => {
                if let Some(inbound) = &self.flow(id).inbound {
                    inbound.meet_subscribers();
                }
            }
            Command::MeetPublishers(id) => {
                if let Some(outbound) = &mut self.flow(id).outbound {
                    outbound.meet_publishers();
                }
            }
            Command::AddPort(id, port) => {
                match &port {
                    PortEnd::Out(out) => self.sleeper.watch_flow(id, out.bell_fd(), std::iter::empty()),
                    PortEnd::In(input) => {
                        self.sleeper
                            .watch_flow(id, input.bell_fd(), std::iter::once(input.wait_for()));
                    }
                }
                self.ports.add(id, port);
                self.find_polled();
            }
            Command::EndPort(id) => {
                self.ports.end(id, &mut self.outgoing_reports);
                self.send_reports();
                self.find_polled();
            }
            Command::SetDoorbell(link, bell) => self.sleeper.set_doorbell(link, bell),
            Command::Stop => return false,
        }
        true
    }

    fn forget_if_empty(&mut self, id: FlowId) {
        self.flows
            .retain(|flow| flow.id != id || flow.outbound.is_some() || flow.inbound.is_some());
        self.rewatch(id);
    }

    /// Watches the flow's descriptors, as they are now. (A closed descriptor has left epoll by itself.)
    fn rewatch(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.iter().find(|flow| flow.id == id) {
            let ear = flow.outbound.as_ref().and_then(Outbound::ear_fd);
            let channels = flow.inbound.iter().flat_map(Inbound::wait_for);
            self.sleeper.watch_flow(id, ear, channels);
        }
        self.find_polled();
    }

    /// Finds out whether some channel can wake nobody.
    fn find_polled(&mut self) {
        let services = self.flows.iter().flat_map(|flow| &flow.inbound);
        let mut channels = services.flat_map(Inbound::wait_for).chain(self.ports.arrivals());
        self.sleeper.must_poll = channels.any(|wait_for| wait_for == WaitFor::Poll);
    }
}

impl Flow {
    fn turn(&mut self, now: Instant, time_ns: u64, eager: bool, reports: &mut Vec<Report>) -> usize {
        let mut moved = 0;
        if let Some(inbound) = &mut self.inbound {
            moved += inbound.pump(now, eager, reports, self.id);
        }
        if let Some(outbound) = &mut self.outbound {
            moved += outbound.pump(now, time_ns, reports, self.id);
        }
        moved
    }
}
