//! Channels of ARINC 653 ports between this host and others: which are open.
//!
//! What crosses follows from the system file alone, so nothing is offered: the receiving side opens each of its channels as soon as the link of
//! its route is up (and, where the link estimates the clocks' offset, an estimate is there), and again whenever it fails. What a channel carries
//! is kept in the store ([`busway_port::carry`]), so a channel can end at any moment without a loss.
//!
//! Called by the control thread; lanes move the messages (`lane::port_out`, `lane::port_in`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use busway_port::carry::{Spout, Tap};
use busway_port::peer_clock::PeerClock;
use busway_port::system::{crossings_of, module_of, root_of};
use busway_port::{Partition, Store};
use busway_system::{Carrier, Clock, System};
use busway_transport::{ChannelEnd, ChannelId, Direction, Keep};

use super::clocks::Clocks;
use super::links::LinkState;
use super::port_channel::{Asked, Channel, Phase, ways_of};
use crate::GatewayError;
use crate::clock::{Estimator, Wire, monotonic_ns};
use crate::counters::add;
use crate::iox::sample::Outgoing;
use crate::lane::port::InboundPort;
use crate::lane::port::OutboundPort;
use crate::lane::{ChannelKey, FlowId, Lane, LaneCommand, PortCommand, PortEnd};
use crate::protocol::{Parting, Say};
use crate::status::PortStatus;

/// See the module.
pub struct Ports {
    channels: Vec<Channel>,
    by_key: HashMap<(Direction, ChannelKey), usize>,
    clocks: Clocks,
    session: u64,
}

impl Ports {
    /// Takes the gateway's place in the store of this host, if any channel crosses.
    ///
    /// # Errors
    /// The store can't be had.
    pub fn new(
        system: &System,
        host: &str,
        session: u64,
        links: &[LinkState],
    ) -> Result<Ports, GatewayError> {
        let mut ports = Ports {
            channels: Vec::new(),
            by_key: HashMap::new(),
            clocks: Clocks::new(),
            session,
        };
        let mut crossings = crossings_of(system, host);
        // What this host's partitions write into another host's memory is no business of its gateway.
        crossings.retain(|crossing| crossing.carrier == Carrier::Gateways || !crossing.leaves);
        // With a core there is no conversation, see `super::cores`.
        crossings.retain(|crossing| !system.is_core(&crossing.peer));
        if crossings.is_empty() {
            return Ok(ports);
        }
        let root = root_of(system, host);
        tracing::info!(
            "{} channel(s) of ports cross; state in {}",
            crossings.len(),
            root.display()
        );
        let store = Store::open(root, module_of(system, host))?;
        let mut joined: BTreeMap<String, Arc<Partition>> = BTreeMap::new();
        for crossing in crossings {
            let partition = match joined.get(&crossing.port.partition) {
                Some(partition) => partition.clone(),
                None => {
                    let partition = Arc::new(store.join(&crossing.port.partition)?);
                    joined.insert(crossing.port.partition.clone(), partition.clone());
                    partition
                }
            };
            let ways = ways_of(&crossing, links);
            for way in ways.iter().filter(|way| way.clock == Clock::Estimated) {
                if crossing.carrier == Carrier::Partition {
                    ports.clocks.need_for(way.link, &partition);
                } else if !crossing.leaves {
                    ports.clocks.need(way.link);
                }
            }
            if crossing.carrier == Carrier::Gateways {
                let flow = FlowId::Port(ports.channels.len() as u32);
                if crossing.leaves {
                    // All at once, so that the messages of one source have the same origin whichever host comes first.
                    Tap::claim(&partition, &crossing.port.port, session);
                }
                let channel = Channel::new(crossing, flow, partition, ways);
                ports.channels.push(channel);
            }
        }
        Ok(ports)
    }

    /// Whether a channel is one of ports.
    pub fn owns(&self, direction: Direction, key: ChannelKey) -> bool {
        self.by_key.contains_key(&(direction, key))
    }

    /// Whether [`tick`](Self::tick) has something to do soon.
    pub fn needs_tick(&self) -> bool {
        !self.clocks.is_empty()
            || self.channels.iter().any(|channel| match channel.phase {
                Phase::Closed => channel.rests.needs_tick(),
                Phase::Open => channel.at > 0 && !channel.crossing.leaves,
                _ => false,
            })
    }

    /// A link came up: its peer may be another process than before.
    pub fn link_up(&mut self, index: usize, links: &mut [LinkState], now: Instant) {
        self.clocks.link_up(index, &mut links[index]);
        for channel in &mut self.channels {
            channel.rests.came_up(index, now);
        }
        self.open_receivers(now, links);
    }

    /// A link that had `stood` for so long went down, and its channels with it: those that have another way take it.
    pub fn link_down(
        &mut self,
        (index, stood): (usize, Duration),
        links: &mut [LinkState],
        lanes: &[Lane],
        now: Instant,
    ) {
        for number in 0..self.channels.len() {
            let channel = &mut self.channels[number];
            if channel.has_other(index, links) {
                channel.rests.went_down(index, stood, now);
            }
            if channel
                .asked
                .as_ref()
                .is_some_and(|asked| asked.key.link == index)
            {
                channel.asked = None;
            }
            if channel.key.is_none_or(|key| key.link != index) {
                continue;
            }
            if matches!(channel.phase, Phase::Open | Phase::Ending | Phase::Leaving) {
                lanes[channel.crossing.lane].send(LaneCommand::Port {
                    flow: channel.flow,
                    command: PortCommand::End,
                });
            }
            self.forget(number, links);
            self.open_asked(number, links);
        }
        self.open_receivers(now, links);
    }

    /// Closes this side's end and begins anew.
    fn forget(&mut self, number: usize, links: &mut [LinkState]) {
        let channel = &mut self.channels[number];
        let direction = channel.direction();
        channel.phase = Phase::Closed;
        if let Some(key) = channel.key.take() {
            self.by_key.remove(&(direction, key));
            links[key.link].link.close(direction, ChannelId(key.channel));
        }
    }

    /// Does what time brings about.
    pub fn tick(&mut self, now: Instant, links: &mut [LinkState], lanes: &[Lane]) {
        self.clocks.tick(now, links);
        for channel in &mut self.channels {
            channel.rests.tick(now);
        }
        self.leave_worse_ways(now, links, lanes);
        self.open_receivers(now, links);
    }

    /// The best way of a channel over which it can be received now, if that is not to rest.
    fn best_way(&self, channel: &Channel, links: &[LinkState], now: Instant) -> Option<usize> {
        channel.ways.iter().position(|way| {
            let has_clock = way.clock != Clock::Estimated
                || self
                    .clocks
                    .of(way.link)
                    .is_some_and(|clock| clock.best(monotonic_ns()).is_some());
            links[way.link].is_usable() && has_clock && !channel.rests.has(way.link, now)
        })
    }

    /// Ends what is received over a way while a better one is there. What was sent and not confirmed comes again over that one.
    fn leave_worse_ways(&mut self, now: Instant, links: &[LinkState], lanes: &[Lane]) {
        for number in 0..self.channels.len() {
            let channel = &self.channels[number];
            if channel.crossing.leaves || channel.phase != Phase::Open || channel.at == 0 {
                continue;
            }
            if self
                .best_way(channel, links, now)
                .is_some_and(|best| best < channel.at)
            {
                lanes[channel.crossing.lane].send(LaneCommand::Port {
                    flow: channel.flow,
                    command: PortCommand::End,
                });
                self.channels[number].phase = Phase::Leaving;
            }
        }
    }

    /// A peer has answered.
    pub fn hear_time(&mut self, index: usize, measured: Option<PeerClock>, links: &mut [LinkState]) {
        if self.clocks.hear(index, measured) {
            self.open_receivers(Instant::now(), links);
        }
    }

    /// Asks for every channel that should come and does not.
    fn open_receivers(&mut self, now: Instant, links: &mut [LinkState]) {
        for number in 0..self.channels.len() {
            let channel = &self.channels[number];
            if channel.crossing.leaves || channel.phase != Phase::Closed {
                continue;
            }
            let Some(best) = self.best_way(channel, links, now) else {
                continue;
            };
            let channel = &mut self.channels[number];
            channel.at = best;
            let index = channel.way().link;
            let link = &mut links[index];
            let id = link.new_channel();
            let key = ChannelKey {
                link: index,
                channel: id.0,
            };
            let spec = channel.spec();
            match link.link.open_receiver(id, &spec, channel.crossing.lane as u32) {
                Ok(landing) => {
                    link.say(&Say::OpenPort {
                        channel: id.0,
                        name: channel.crossing.channel.clone(),
                        spec: spec.into(),
                        landing,
                    });
                    channel.phase = Phase::Opening;
                    channel.key = Some(key);
                    self.by_key.insert((Direction::Receive, key), number);
                }
                Err(error) => channel.fail(format!("can't be opened: {error}; trying again"), links),
            }
        }
    }

    /// A peer wants the messages of the channel `name`.
    pub fn open_sender(&mut self, asked: Asked, name: &str, links: &mut [LinkState], lanes: &[Lane]) {
        let key = asked.key;
        if let Err(reason) = self.try_open_sender(asked, name, links, lanes) {
            refuse(key, name, reason, &mut links[key.link]);
        }
    }

    fn try_open_sender(
        &mut self,
        asked: Asked,
        name: &str,
        links: &mut [LinkState],
        lanes: &[Lane],
    ) -> Result<(), String> {
        let key = asked.key;
        if self.owns(Direction::Send, key) {
            return Err("that channel number is taken".into());
        }
        let found = self.channels.iter().position(|channel| {
            channel.crossing.leaves
                && channel.crossing.channel == name
                && channel.way_over(key.link).is_some()
        });
        let number = found.ok_or("by this host's system file it does not go that way")?;
        let channel = &mut self.channels[number];
        let ours = channel.spec();
        let is_alike = ours.message_bytes == asked.spec.message_bytes
            && (ours.keep == Keep::Latest) == (asked.spec.keep == Keep::Latest);
        if !is_alike {
            return Err("it has another kind or size by this host's system file".into());
        }
        match channel.key {
            None => return self.begin_sender(number, asked, links),
            Some(present) if present.link == key.link => return Err("it is still open; try again".into()),
            // The receiving side has left that way, be it that this side has not noticed yet.
            Some(_) => channel.asked = Some(asked),
        }
        match channel.phase {
            Phase::Open => {
                channel.phase = Phase::Ending;
                lanes[channel.crossing.lane].send(LaneCommand::Port {
                    flow: channel.flow,
                    command: PortCommand::End,
                });
            }
            Phase::Opening => self.ended(number, None, links),
            _ => {}
        }
        Ok(())
    }

    /// Has the bus make the sending end of a channel that has none.
    fn begin_sender(&mut self, number: usize, asked: Asked, links: &mut [LinkState]) -> Result<(), String> {
        let channel = &mut self.channels[number];
        let Asked { key, spec, landing } = asked;
        let lane = channel.crossing.lane as u32;
        links[key.link]
            .link
            .open_sender(ChannelId(key.channel), &spec, &landing, lane)
            .map_err(|error| error.to_string())?;
        channel.at = channel.way_over(key.link).unwrap_or(channel.at);
        channel.phase = Phase::Opening;
        channel.key = Some(key);
        self.by_key.insert((Direction::Send, key), number);
        Ok(())
    }

    /// Goes on with what a peer asked for over another way, now that the former end is gone.
    fn open_asked(&mut self, number: usize, links: &mut [LinkState]) {
        let Some(asked) = self.channels[number].asked.take() else {
            return;
        };
        let key = asked.key;
        if let Err(reason) = self.begin_sender(number, asked, links) {
            let name = &self.channels[number].crossing.channel;
            refuse(key, name, reason, &mut links[key.link]);
        }
    }

    /// The bus has made an end, or could not.
    pub fn channel_ready(
        &mut self,
        direction: Direction,
        key: ChannelKey,
        end: Result<ChannelEnd<Outgoing>, String>,
        links: &mut [LinkState],
        lanes: &[Lane],
    ) {
        let Some(&number) = self.by_key.get(&(direction, key)) else {
            return;
        };
        let channel = &mut self.channels[number];
        let end = match end {
            Ok(end) => end,
            Err(reason) => return self.ended(number, Some(reason), links),
        };
        if channel.phase != Phase::Opening {
            return;
        }
        let no_clock = Estimator::default();
        let clock = self.clocks.of(key.link).unwrap_or(&no_clock);
        let wire = Wire::new(channel.way().clock, clock);
        let (partition, name) = (&channel.partition, &channel.crossing.port.port);
        let of = channel.crossing.channel.as_str().into();
        let counters = channel.counters.clone();
        let link = &mut links[key.link];
        let number_of_lane = channel.crossing.lane;
        let lane = &lanes[number_of_lane];
        let made = match end {
            ChannelEnd::Sender(sender) => {
                link.give_doorbell(key.link, lane, number_of_lane as u32, sender.wait_for());
                Tap::open(partition, name, self.session).map(|tap| {
                    PortEnd::Outbound(Box::new(OutboundPort::new(key, of, tap, sender, wire, counters)))
                })
            }
            ChannelEnd::Receiver(receiver) => {
                link.give_doorbell(key.link, lane, number_of_lane as u32, receiver.wait_for());
                Spout::open(partition, name).map(|spout| {
                    PortEnd::Inbound(Box::new(InboundPort::new(key, spout, receiver, wire, counters)))
                })
            }
        };
        channel.phase = Phase::Open;
        channel.complaint = None;
        add(&channel.counters.opened, 1);
        let made = made.expect("the crossing's port is in the module that it comes from");
        lane.send(LaneCommand::Port {
            flow: channel.flow,
            command: PortCommand::Add(made),
        });
    }

    /// The peer asks to end a channel that this host sends.
    pub fn close_sender(&mut self, key: ChannelKey, links: &mut [LinkState], lanes: &[Lane]) {
        let Some(&number) = self.by_key.get(&(Direction::Send, key)) else {
            return;
        };
        match self.channels[number].phase {
            Phase::Open => {
                self.channels[number].phase = Phase::Ending;
                let channel = &self.channels[number];
                lanes[channel.crossing.lane].send(LaneCommand::Port {
                    flow: channel.flow,
                    command: PortCommand::End,
                });
            }
            Phase::Ending => {}
            _ => self.ended(number, None, links),
        }
    }

    /// The peer has given its sending end up.
    pub fn sender_closed(
        &mut self,
        key: ChannelKey,
        reason: Option<String>,
        links: &mut [LinkState],
        lanes: &[Lane],
    ) {
        let Some(&number) = self.by_key.get(&(Direction::Receive, key)) else {
            return;
        };
        let channel = &mut self.channels[number];
        // What we leave may fail at the other end before it hears that we do: no reason to wait with the next one.
        let is_left = matches!(channel.phase, Phase::Leaving | Phase::Closing);
        if let Some(reason) = reason.filter(|_| !is_left) {
            channel.fail(format!("{reason}; trying again"), links);
        }
        match channel.phase {
            Phase::Open => {
                channel.phase = Phase::Ending;
                lanes[channel.crossing.lane].send(LaneCommand::Port {
                    flow: channel.flow,
                    command: PortCommand::End,
                });
            }
            Phase::Ending => {}
            // The lane will tell.
            Phase::Leaving => channel.phase = Phase::Ending,
            _ => {
                self.forget(number, links);
                self.open_receivers(Instant::now(), links);
            }
        }
    }

    /// A lane has given an end up.
    pub fn hear_report(
        &mut self,
        number: u32,
        key: ChannelKey,
        reason: Option<String>,
        links: &mut [LinkState],
    ) {
        let number = number as usize;
        // It may tell of a channel that went with its link.
        if self
            .channels
            .get(number)
            .is_some_and(|channel| channel.key == Some(key))
        {
            self.ended(number, reason, links);
        }
    }

    /// This side's end is gone.
    fn ended(&mut self, number: usize, reason: Option<String>, links: &mut [LinkState]) {
        let channel = &mut self.channels[number];
        let Some(key) = channel.key else { return };
        if let Some(reason) = &reason {
            channel.fail(format!("{reason}; trying again"), links);
        }
        if channel.crossing.leaves {
            self.forget(number, links);
            links[key.link].say(&Say::Closed {
                channel: key.channel,
                reason,
            });
            self.open_asked(number, links);
        } else if channel.phase == Phase::Ending {
            // The peer has given its end up before.
            self.forget(number, links);
            self.open_receivers(Instant::now(), links);
        } else {
            // The landing place is free when the peer says so.
            channel.phase = Phase::Closing;
            links[key.link].say(&Say::Close {
                channel: key.channel,
                parting: Parting::Failed,
            });
        }
    }

    /// For the status file.
    pub fn status(&self) -> Vec<PortStatus> {
        let now_ns = monotonic_ns();
        let status = |channel: &Channel| PortStatus {
            channel: channel.crossing.channel.clone(),
            peer: channel.crossing.peer.clone(),
            leaves: channel.crossing.leaves,
            bus: channel.way().bus.to_string(),
            open: channel.phase == Phase::Open,
            core: None,
            complaint: channel.complaint.clone(),
            clock_error_ns: self
                .clocks
                .of(channel.way().link)
                .filter(|_| !channel.crossing.leaves)
                .and_then(|clock| clock.best(now_ns))
                .map(|best| best.error_at_ns(now_ns)),
            counters: channel.counters.snapshot(),
        };
        self.channels.iter().map(status).collect()
    }
}

/// Tells a peer that it does not get the messages of a channel.
fn refuse(key: ChannelKey, name: &str, reason: String, link: &mut LinkState) {
    tracing::warn!("{:?} asks for channel {name:?}: {reason}", link.peer);
    link.say(&Say::Closed {
        channel: key.channel,
        reason: Some(reason),
    });
}
