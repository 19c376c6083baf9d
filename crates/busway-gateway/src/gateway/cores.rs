//! Queuing channels between this host and real-time cores, on which no gateway runs.
//!
//! Contract: the system file alone decides which there are and where they are; nothing is
//! negotiated with the core. A lane gets each channel as soon as its memory can be mapped, and
//! again a second after its ring was found damaged. The memory shows whether the core is alive
//! ([`Watch`]). That goes to status and log, and does not influence the data: a stopped core leaves
//! full queues, and the ends themselves meet a restarted one ([`busway_transport::core_queue`]).
//!
//! Called by the control thread; lanes move the messages.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use busway_port::carry::{PortReceiver, PortSource};
use busway_port::system::{CoreQueue, Crossing, core_queue_of, crossings_of, module_of, root_of};
use busway_port::{Partition, Store};
use busway_system::{Carrier, System};
use busway_transport::core_queue::{Destination, Ends, Source, State, Tally, Watch};

use crate::GatewayError;
use crate::clock::{Estimator, Wire};
use crate::counters::PortCounters;
use crate::lane::port::InboundPort;
use crate::lane::port::OutboundPort;
use crate::lane::{ChannelKey, FlowId, Lane, LaneCommand, PortCommand, PortEnd};
use crate::status::PortStatus;

/// No link has this number: lanes need a key for each channel.
const NO_LINK: usize = usize::MAX;
/// A failed channel is opened again after this time.
const RETRY: Duration = Duration::from_secs(1);

/// See the module.
pub struct Cores {
    channels: Vec<Channel>,
    next_look: Option<Instant>,
}

struct Channel {
    crossing: Crossing,
    queue: CoreQueue,
    flow: FlowId,
    partition: Arc<Partition>,
    /// Of this end; another one after each failure.
    session: u64,
    failures: u64,
    /// While the lane has the end.
    watch: Option<Watch>,
    state: State,
    retry_at: Option<Instant>,
    complaint: Option<String>,
    counters: Arc<PortCounters>,
    tally: Arc<Tally>,
    reported_losses: u64,
}

impl Cores {
    /// Takes the gateway's place in the store of this host, if a queuing channel joins it with a
    /// core.
    ///
    /// # Errors
    /// The store can't be had.
    pub fn new(system: &System, host: &str, session: u64) -> Result<Cores, GatewayError> {
        let mut cores = Cores {
            channels: Vec::new(),
            next_look: None,
        };
        let mut crossings = crossings_of(system, host);
        crossings.retain(|crossing| crossing.carrier == Carrier::Core);
        if crossings.is_empty() {
            return Ok(cores);
        }
        let store = Store::open(root_of(system, host), module_of(system, host))?;
        for crossing in crossings {
            let queue = core_queue_of(system, host, &crossing)
                .expect("a System's channels with cores have been validated: they have a place");
            let name = &crossing.port.partition;
            let known = cores
                .channels
                .iter()
                .find(|channel| channel.crossing.port.partition == *name);
            let partition = match known {
                Some(channel) => channel.partition.clone(),
                None => Arc::new(store.join(name)?),
            };
            cores.channels.push(Channel {
                flow: FlowId::Core(cores.channels.len() as u32),
                crossing,
                queue,
                partition,
                session,
                failures: 0,
                watch: None,
                state: State::Absent,
                retry_at: None,
                complaint: None,
                counters: Arc::default(),
                tally: Arc::default(),
                reported_losses: 0,
            });
        }
        cores.next_look = Some(Instant::now());
        Ok(cores)
    }

    /// When [`look`](Self::look) has something to do.
    pub fn next_look(&self) -> Option<Instant> {
        self.next_look
    }

    /// Opens what is not open, and asks whether the cores run.
    pub fn look(&mut self, now: Instant, lanes: &[Lane]) {
        if self.next_look.is_none_or(|at| now < at) {
            return;
        }
        let mut period = RETRY;
        for channel in &mut self.channels {
            channel.open_if_due(now, lanes);
            channel.ask(now);
            channel.report_losses();
            period = channel
                .watch
                .as_ref()
                .map_or(period, |watch| period.min(watch.period()));
        }
        self.next_look = Some(now + period);
    }

    /// A lane has dropped an end.
    pub fn end_reported(&mut self, number: u32, reason: Option<String>) {
        if let Some(channel) = self.channels.get_mut(number as usize) {
            channel.fail(reason.unwrap_or_else(|| "its lane has ended".to_string()));
        }
    }

    /// For the status file.
    pub fn status(&self) -> impl Iterator<Item = PortStatus> {
        self.channels.iter().map(|channel| {
            // Relaxed: each is independent. No other thread writes them on such a channel.
            let (lost, meetings) = (channel.tally.lost(), channel.tally.meetings());
            channel.counters.lost.store(lost, Ordering::Relaxed);
            channel.counters.opened.store(meetings, Ordering::Relaxed);
            PortStatus {
                channel: channel.crossing.channel.clone(),
                peer: channel.crossing.peer.clone(),
                leaves: channel.crossing.leaves,
                bus: channel.crossing.bus.to_string(),
                open: channel.state == State::Up,
                writer: None,
                writer_reason: None,
                core: Some(match channel.state {
                    State::Absent => "absent",
                    State::Waiting => "waiting",
                    State::Up => "up",
                    State::Stopped => "stopped",
                }),
                complaint: channel.complaint.clone(),
                clock_error_ns: None,
                counters: channel.counters.snapshot(),
            }
        })
    }
}

impl Channel {
    fn open_if_due(&mut self, now: Instant, lanes: &[Lane]) {
        if self.watch.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        match self.open() {
            Ok((watch, end)) => {
                self.watch = Some(watch);
                self.complaint = None;
                lanes[self.crossing.lane].send(LaneCommand::Port {
                    flow: self.flow,
                    command: PortCommand::Add(end),
                });
            }
            Err(reason) => self.fail(reason),
        }
    }

    fn open(&self) -> Result<(Watch, PortEnd), String> {
        let queue = &self.queue;
        let (own, other) = if self.crossing.leaves {
            (&queue.source, &queue.destination)
        } else {
            (&queue.destination, &queue.source)
        };
        let ends = Ends::open(own, other, queue.key).map_err(|error| error.to_string())?;
        let watch = Watch::new(ends.clone(), queue.timeout);
        let session = self.session.wrapping_add(self.failures).max(1);
        let wire = Wire::new(self.crossing.clock, &Estimator::default());
        let key = ChannelKey {
            link: NO_LINK,
            conversation: 0,
            channel: 0,
        };
        let (tally, counters) = (self.tally.clone(), self.counters.clone());
        let name = &self.crossing.port.port;
        let is_ours = "the crossing's port is in the module that it comes from";
        let end = if self.crossing.leaves {
            let source = Source::new(ends, queue.layout, session, tally);
            let source = source.map_err(|error| error.to_string())?;
            let of = self.crossing.channel.as_str().into();
            let port_source = PortSource::open(&self.partition, name, self.session).expect(is_ours);
            PortEnd::Outbound(Box::new(OutboundPort::new(
                key,
                of,
                port_source,
                Box::new(source),
                wire,
                counters,
            )))
        } else {
            let destination = Destination::new(ends, queue.layout, session, self.failures > 0, tally);
            let destination = destination.map_err(|error| error.to_string())?;
            let port_receiver = PortReceiver::open(&self.partition, name).expect(is_ours);
            PortEnd::Inbound(Box::new(InboundPort::new(
                key,
                port_receiver,
                Box::new(destination),
                wire,
                counters,
            )))
        };
        Ok((watch, end))
    }

    fn ask(&mut self, now: Instant) {
        let Some(watch) = &mut self.watch else { return };
        // Its ends have been found long enough.
        let Ok(state) = watch.look(now) else { return };
        if state == self.state {
            return;
        }
        self.state = state;
        let (name, core) = (&self.crossing.channel, &self.crossing.peer);
        self.complaint = match state {
            State::Up => {
                tracing::info!("channel {name:?}: core {core:?} is up");
                None
            }
            State::Absent => None,
            State::Waiting => {
                tracing::info!("channel {name:?}: core {core:?} has opened its end");
                None
            }
            State::Stopped => {
                let complaint = format!(
                    "core {core:?} has not answered within {:?}: it has stopped, or uses the channel too seldom; give the link's bus a longer `timeout` if so",
                    self.queue.timeout
                );
                tracing::warn!("channel {name:?}: {complaint}");
                Some(complaint)
            }
        };
    }

    fn report_losses(&mut self) {
        let lost = self.tally.lost();
        if lost > self.reported_losses {
            tracing::warn!(
                "channel {:?}: {} message(s) lost in the ring, since core {:?} started anew ({lost} in all)",
                self.crossing.channel,
                lost - self.reported_losses,
                self.crossing.peer
            );
            self.reported_losses = lost;
        }
    }

    fn fail(&mut self, reason: String) {
        let complaint = format!("{reason}; trying again");
        if self.complaint.as_ref() != Some(&complaint) {
            tracing::warn!(
                "channel {:?} of core {:?}: {complaint}",
                self.crossing.channel,
                self.crossing.peer
            );
        }
        self.complaint = Some(complaint);
        if self.watch.take().is_some() {
            self.failures += 1;
        }
        self.state = State::Absent;
        self.retry_at = Some(Instant::now() + RETRY);
    }
}
