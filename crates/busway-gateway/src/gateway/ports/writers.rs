//! Channels of ports that a process of the source's partition writes, as the control thread sees
//! them: see [`crate::gateway::own_writers`].

use std::os::fd::BorrowedFd;
use std::time::Instant;

use busway_port::PortRef;
use busway_port::carry::PortSource;
use busway_system::Clock;
use busway_transport::{ChannelId, Direction, RegisterTicket, SourceNumbers};

use super::Ports;
use crate::clock::monotonic_ns;
use crate::control::flow::OutPhase;
use crate::control::{Core, Fact};
use crate::counters::add;
use crate::gateway::lanes::Lanes;
use crate::gateway::own_writers::{self, Offer, WriterNews};
use crate::lane::{ChannelKey, FlowId};

impl Ports {
    /// What a process needs to write the channel over this link, if one may.
    pub(super) fn offer(
        &self,
        (flow, key): (FlowId, ChannelKey),
        landing: &[u8],
        source: SourceNumbers,
    ) -> Option<Offer> {
        let channel = self.of(flow)?;
        Some(Offer {
            flow,
            key,
            port: channel.crossing.port.clone(),
            link: channel.route_over(key.link)?.own_writer?,
            register: RegisterTicket {
                channel: ChannelId(key.channel),
                session: self.session,
                peer_session: *self.peer_sessions.get(&key.link)?,
                landing: landing.to_vec(),
                source,
            },
        })
    }

    pub(super) fn is_clock_known(&self, offer: &Offer) -> bool {
        let channel = self.of(offer.flow);
        let route = channel.and_then(|channel| channel.route_over(offer.key.link));
        let estimator = self.clocks.of(offer.key.link);
        route.is_some_and(|route| route.clock == Clock::Ptp)
            || estimator.is_some_and(|estimator| estimator.best(monotonic_ns()).is_some())
    }

    /// The conversation of a link stands, with a peer of this session.
    pub fn link_up(&mut self, link: usize, peer_session: u64) {
        self.peer_sessions.insert(link, peer_session);
    }

    /// The offset of the peer's clock is known: partitions can stamp messages.
    pub fn clock_known(&mut self, link: usize, core: &Core, lanes: &Lanes) -> Vec<Fact> {
        let news = self.own_writers.clock_known(link, Instant::now());
        self.facts_of(news, core, lanes)
    }

    /// Takes what processes of partitions tell that write, or could.
    pub fn poll_writers(&mut self, now: Instant, core: &Core, lanes: &Lanes) -> Vec<Fact> {
        let news = self.own_writers.poll(now);
        self.facts_of(news, core, lanes)
    }

    fn facts_of(&mut self, news: Vec<WriterNews>, core: &Core, lanes: &Lanes) -> Vec<Fact> {
        let fact = |news| match news {
            WriterNews::Open { flow, key, newest } => {
                self.begin_counting(flow, newest);
                Some(Fact::EndReady {
                    direction: Direction::Send,
                    key,
                    result: Ok(()),
                })
            }
            WriterNews::Ended { flow, key, failure } => {
                self.count_written(flow, false);
                Some(Fact::Lane(own_writers::sender_ended(flow, key, failure)))
            }
            WriterNews::Able(port) => {
                self.pass_on(&port, core, lanes);
                None
            }
        };
        news.into_iter().filter_map(fact).collect()
    }

    /// A process writes the messages after the one of this number.
    fn begin_counting(&mut self, flow: FlowId, newest: u64) {
        let Some(channel) = self.of(flow) else { return };
        add(&channel.counters.opened, 1);
        // The newest one may have left before; of a channel that has sent nothing it has not.
        let is_first = channel.counters.snapshot().sent == 0;
        self.counted
            .insert(flow, newest.saturating_sub(u64::from(is_first)));
    }

    /// Counts what the source has written since the last time as sent, if a process has the
    /// channel. `goes_on`: it has it still.
    pub(super) fn count_written(&mut self, flow: FlowId, goes_on: bool) {
        let Some(counted) = self.counted.remove(&flow) else {
            return;
        };
        let Some(channel) = self.of(flow) else { return };
        let (partition, port) = (&channel.partition, &channel.crossing.port.port);
        let numbers = PortSource::numbers(partition, port, self.session);
        let newest = numbers.map_or(counted, |numbers| numbers.newest.max(counted));
        add(&channel.counters.sent, newest - counted);
        if goes_on {
            self.counted.insert(flow, newest);
        }
    }

    /// A process can write this channel: if the gateway does, its end is ended, and the process
    /// gets the next one.
    fn pass_on(&self, port: &PortRef, core: &Core, lanes: &Lanes) {
        for flow in core.flows() {
            let Some(channel) = self.of(flow.id).filter(|it| it.crossing.port == *port) else {
                continue;
            };
            let is_passed = flow.outbound.iter().any(|(key, out)| {
                let route = channel.route_over(key.link);
                out.phase == OutPhase::Active
                    && route.is_some_and(|route| route.own_writer.is_some())
                    && !self.own_writers.has(flow.id, *key)
            });
            if is_passed {
                self.end(flow.id, lanes);
            }
        }
    }

    /// The decision core has forgotten a channel that leaves.
    pub fn forget_sender(&mut self, key: ChannelKey) {
        self.own_writers.forget(key);
    }

    /// Descriptors that wake the control thread for [`poll_writers`](Self::poll_writers).
    pub fn writer_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.own_writers.fds()
    }

    /// When [`poll_writers`](Self::poll_writers) has work although no descriptor is readable.
    pub fn next_writer_look(&self) -> Option<Instant> {
        self.own_writers.next_look()
    }
}
