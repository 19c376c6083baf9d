//! The channels of one source port to several hosts, as far as one lane serves them.
//!
//! Mostly one channel. Several are together if their buses can send one message to several hosts at
//! once ([`Sender::join`]) and their messages are the same: then each message is read once, handed
//! to every sender and only then sent. Each channel keeps its own source, sender, credits,
//! acknowledgements and counters. None can take memory from the others: it holds at most as many
//! buffers as it contributes.
//!
//! Called by [`super::channels`]; never blocks.
//!
//! [`Sender::join`]: busway_transport::Sender::join

use busway_transport::{ChannelError, SenderGroup};

use super::buffer_pool::BufferPool;
use super::outbound::OutboundPort;
use crate::lane::interface::{FlowId, Report};

/// Most messages that each channel takes before the other channels of the lane get their turn.
const BUDGET: usize = 64;

#[derive(Default)]
pub struct FanOut {
    legs: Vec<Leg>,
    group: SenderGroup,
    /// Whether others may join.
    can_share: bool,
    pool: BufferPool,
}

/// The channel to one host.
struct Leg {
    flow: FlowId,
    port: Box<OutboundPort>,
    /// Messages in this turn.
    taken: usize,
    /// Its messages of this turn should have rung its doorbell.
    awaits_ring: bool,
    failed: Option<ChannelError>,
}

impl FanOut {
    /// Whether the channel's messages can be shared with those here.
    pub fn suits(&self, port: &OutboundPort) -> bool {
        self.can_share && self.legs.iter().all(|leg| leg.port.is_like(port))
    }

    /// Adds a channel; gives it back if others are here and its sender can't share.
    pub fn add(&mut self, flow: FlowId, mut port: Box<OutboundPort>) -> Result<(), Box<OutboundPort>> {
        let can_share = port.join(&mut self.group);
        if !self.legs.is_empty() && !can_share {
            return Err(port);
        }
        self.can_share = can_share;
        self.pool.append(port.take_pool());
        self.legs.push(Leg {
            flow,
            port,
            taken: 0,
            awaits_ring: false,
            failed: None,
        });
        Ok(())
    }

    /// Ends the channel of a flow, if it is here.
    pub fn end(&mut self, flow: FlowId, reports: &mut Vec<Report>) {
        self.remove(reports, |leg| (leg.flow == flow).then_some(None));
    }

    pub fn is_empty(&self) -> bool {
        self.legs.is_empty()
    }

    pub fn ports(&self) -> impl Iterator<Item = &OutboundPort> {
        self.legs.iter().map(|leg| &*leg.port)
    }

    /// The channel of a flow.
    pub fn port_of(&self, flow: FlowId) -> Option<&OutboundPort> {
        let mut legs = self.legs.iter();
        legs.find(|leg| leg.flow == flow).map(|leg| &*leg.port)
    }

    /// Takes messages and sends them; removes channels that have failed. `is_unrung`: the lane woke
    /// up although no doorbell rang. Returns the number of messages taken, and of channels that may
    /// take more.
    pub fn pump(&mut self, is_unrung: bool, reports: &mut Vec<Report>) -> usize {
        let FanOut { legs, pool, .. } = self;
        let is_shared = legs.len() > 1;
        for leg in legs.iter_mut() {
            leg.taken = 0;
            leg.awaits_ring = is_unrung && !leg.port.awaits_credit();
        }
        for_each(legs, OutboundPort::retry);
        for _ in 0..BUDGET {
            let mut has_taken = false;
            for leg in legs.iter_mut().filter(|leg| leg.failed.is_none()) {
                match leg.port.take(pool, is_shared) {
                    Ok(true) => {
                        leg.taken += 1;
                        has_taken = true;
                    }
                    Ok(false) => {}
                    Err(error) => leg.failed = Some(error),
                }
            }
            if !has_taken {
                break;
            }
        }
        // Only now, so that a message which every sender has leaves once.
        for_each(legs, OutboundPort::flush);
        for leg in legs.iter().filter(|leg| leg.awaits_ring && leg.taken > 0) {
            leg.port.note_unrung(leg.taken);
        }
        let taken: usize = legs.iter().map(|leg| leg.taken).sum();
        let continuing = legs.iter().filter(|leg| leg.port.can_continue()).count();
        self.remove(reports, |leg| {
            leg.failed.take().map(|error| Some(error.to_string()))
        });
        taken + continuing
    }

    /// Removes the channels for which `ended` returns why.
    fn remove(
        &mut self,
        reports: &mut Vec<Report>,
        mut ended: impl FnMut(&mut Leg) -> Option<Option<String>>,
    ) {
        let pool = &mut self.pool;
        self.legs.retain_mut(|leg| {
            let Some(failure) = ended(leg) else {
                return true;
            };
            pool.shrink(leg.port.buffers());
            reports.push(Report::SenderEnded {
                flow: leg.flow,
                key: leg.port.key(),
                // The messages stay in their queue until they are acknowledged.
                unacknowledged: 0,
                failure,
            });
            false
        });
    }
}

/// Does something with each channel that has not failed.
fn for_each(legs: &mut [Leg], mut step: impl FnMut(&mut OutboundPort) -> Result<(), ChannelError>) {
    for leg in legs.iter_mut().filter(|leg| leg.failed.is_none()) {
        leg.failed = step(&mut leg.port).err();
    }
}

#[cfg(test)]
mod tests {
    use crate::iox::sample::Outgoing;
    use std::sync::{Arc, Mutex};

    use busway_port::carry::PortSource;
    use busway_port::{
        ChannelConfig, Direction, Discipline, Module, Partition, PartitionConfig, PortConfig, PortKind,
        PortRef, Store, WhenFull,
    };
    use busway_transport::{Flushed, Message as _, Refused, Sender, WaitFor};

    use super::*;
    use crate::clock::{Estimator, Wire};
    use crate::lane::ChannelKey;

    const HOSTS: [&str; 2] = ["one", "two"];
    /// So long that a pool has four buffers.
    const SIZE_BYTES: usize = 1 << 20;
    const DEPTH: usize = 24;

    /// Messages that a bus was given and has not released.
    #[derive(Default)]
    struct Bus {
        held: Vec<Outgoing>,
        /// It takes no more.
        is_full: bool,
        has_failed: bool,
        /// The next flush reads that its reader has taken everything.
        is_taken: bool,
        held_back: usize,
        /// The calls to the buses of all hosts, in order.
        calls: Arc<Mutex<Vec<&'static str>>>,
    }

    struct FakeSender(Arc<Mutex<Bus>>);

    impl FakeSender {
        fn bus(&self) -> std::sync::MutexGuard<'_, Bus> {
            self.0.lock().expect("nobody panics")
        }
    }

    impl Sender<Outgoing> for FakeSender {
        fn send(&mut self, message: Outgoing) -> Result<(), Refused<Outgoing>> {
            let mut bus = self.bus();
            if bus.has_failed {
                return Err(Refused::Failed(message, ChannelError::Closed));
            }
            bus.calls.lock().expect("nobody panics").push("send");
            bus.held.push(message);
            Ok(())
        }
        fn flush(&mut self) -> Result<Flushed, ChannelError> {
            let mut bus = self.bus();
            bus.calls.lock().expect("nobody panics").push("flush");
            if std::mem::take(&mut bus.is_taken) {
                bus.held.clear();
            }
            Ok(Flushed::Idle)
        }
        fn has_room(&mut self, _: u64) -> bool {
            !self.bus().is_full
        }
        fn outstanding(&self) -> u64 {
            self.bus().held.len() as u64
        }
        fn overwritten(&self) -> u64 {
            0
        }
        fn wait_for(&self) -> WaitFor {
            WaitFor::Poll
        }
        fn join(&mut self, _: &mut SenderGroup) -> bool {
            true
        }
        fn hold_back(&mut self) {
            self.bus().held_back += 1;
        }
    }

    /// A source port whose messages go to two hosts.
    struct Host {
        _directory: tempfile::TempDir,
        store: Store,
        source: Partition,
        fan: FanOut,
        buses: [Arc<Mutex<Bus>>; 2],
        reports: Vec<Report>,
    }

    fn partition(name: &str, direction: Direction, kind: PortKind) -> PartitionConfig {
        PartitionConfig {
            name: name.into(),
            identifier: 1,
            ports: vec![PortConfig::new("P", direction, SIZE_BYTES as u32, kind)],
        }
    }

    fn key(channel: u32) -> ChannelKey {
        ChannelKey {
            link: 0,
            conversation: 1,
            channel,
        }
    }

    fn ended(number: u32, failure: Option<String>) -> Report {
        Report::SenderEnded {
            flow: FlowId::Port(number),
            key: key(number),
            unacknowledged: 0,
            failure,
        }
    }

    impl Host {
        fn new(kind: PortKind) -> Host {
            let mut partitions = vec![partition("source", Direction::Source, kind)];
            partitions.extend(HOSTS.map(|name| partition(name, Direction::Destination, kind)));
            let to = HOSTS.map(|name| PortRef::new(name, "P")).to_vec();
            let channel = ChannelConfig {
                when_full: WhenFull::Overflow,
                ..ChannelConfig::new("c", PortRef::new("source", "P"), to)
            };
            let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
            let module = Module {
                partitions,
                channels: vec![channel],
            };
            let store = Store::open(directory.path(), module).expect("a store");
            let calls = Arc::<Mutex<Vec<_>>>::default();
            let bus = |_| {
                Arc::new(Mutex::new(Bus {
                    calls: calls.clone(),
                    ..Bus::default()
                }))
            };
            let mut host = Host {
                source: store.join("source").expect("a place"),
                _directory: directory,
                store,
                fan: FanOut::default(),
                buses: [0, 1].map(bus),
                reports: Vec::new(),
            };
            (0..2).for_each(|at| host.add(at));
            host
        }

        fn add(&mut self, at: usize) {
            let partition = Arc::new(self.store.join(HOSTS[at]).expect("a place"));
            let port_source = PortSource::open(&partition, "P", 7).expect("configured");
            let sender = Box::new(FakeSender(self.buses[at].clone()));
            let wire = Wire::new(busway_system::Clock::Ptp, &Estimator::default());
            let out = OutboundPort::new(
                key(at as u32),
                "c".into(),
                port_source,
                sender,
                wire,
                Arc::default(),
            );
            assert!(self.fan.is_empty() || self.fan.suits(&out));
            assert!(self.fan.add(FlowId::Port(at as u32), Box::new(out)).is_ok());
        }

        fn bus(&self, at: usize) -> std::sync::MutexGuard<'_, Bus> {
            self.buses[at].lock().expect("nobody panics")
        }

        fn send(&self, message: u8) {
            let port = self
                .source
                .queuing_source("P", Discipline::Fifo)
                .expect("configured");
            port.send(&[message], 0).expect("nothing holds it back");
        }

        fn pump(&mut self) -> usize {
            self.fan.pump(false, &mut self.reports)
        }
    }

    const QUEUING: PortKind = PortKind::queuing(DEPTH as u32);

    /// Whether two messages are one to a bus: the same head, at the same place.
    fn are_one(one: &Outgoing, two: &Outgoing) -> bool {
        one.head == two.head && std::ptr::eq(one.payload(), two.payload())
    }

    #[test]
    fn message_for_two_hosts_is_flushed_after_both_senders_have_it() {
        for kind in [PortKind::SAMPLING, QUEUING] {
            let mut host = Host::new(kind);
            for message in 1..=3 {
                match kind {
                    PortKind::Sampling { .. } => {
                        let port = host.source.sampling_source("P").expect("configured");
                        port.write(&[message]).expect("a source port");
                    }
                    PortKind::Queuing { .. } => host.send(message),
                }
                assert_eq!(host.pump(), 2);
            }
            let (one, two) = (host.bus(0), host.bus(1));
            assert_eq!((one.held.len(), two.held.len()), (3, 3));
            for (one, two) in one.held.iter().zip(&two.held) {
                assert!(are_one(one, two), "{:?} {:?}", one.head, two.head);
            }
            let calls = one.calls.lock().expect("nobody panics");
            assert_eq!(*calls, ["send", "send", "flush", "flush"].repeat(3));
        }
    }

    #[test]
    fn stalled_host_takes_no_buffers_from_the_other() {
        let mut host = Host::new(QUEUING);
        let own = BufferPool::new(SIZE_BYTES).len();
        for message in 1..=20 {
            host.send(message);
            host.pump();
            // The first host has it at once, the second none.
            host.bus(0).held.clear();
        }
        assert_eq!(host.bus(1).held.len(), own, "as many as it has brought along");
        assert!(host.bus(1).held_back > 0);
        let sent = |host: &Host| {
            let calls = host.bus(0).calls.lock().expect("nobody panics").clone();
            calls.iter().filter(|call| **call == "send").count()
        };
        assert_eq!(sent(&host), 20 + own);
        host.bus(1).held.clear();
        for _ in 0..20 {
            host.pump();
            host.bus(1).held.clear();
        }
        assert_eq!(sent(&host), 40, "what was kept for it comes");
    }

    #[test]
    fn channel_whose_flush_reads_credits_continues_without_a_wake_up() {
        let mut host = Host::new(QUEUING);
        for message in 1..=20 {
            host.send(message);
        }
        while host.pump() > 0 {}
        assert!(host.bus(1).held_back > 0, "it has no room");
        host.bus(1).is_taken = true;
        let held = host.bus(1).held.len();
        assert_eq!(host.pump(), 1, "no message, and one channel that may take more");
        assert!(held > 0 && host.bus(1).held.is_empty());
        assert!(host.pump() > 0);
    }

    #[test]
    fn lagging_host_shares_the_message_read_for_the_other() {
        let mut host = Host::new(QUEUING);
        host.bus(1).is_full = true;
        for message in 1..=3 {
            host.send(message);
        }
        assert_eq!(host.pump(), 3);
        host.bus(1).is_full = false;
        assert_eq!(host.pump(), 3);
        let (one, two) = (host.bus(0), host.bus(1));
        assert!(one.held.iter().zip(&two.held).all(|(one, two)| are_one(one, two)));
    }

    #[test]
    fn failed_channel_is_reported_and_rejoins_while_the_other_continues() {
        let mut host = Host::new(QUEUING);
        host.bus(1).has_failed = true;
        host.send(1);
        assert_eq!(host.pump(), 1);
        let report = host.reports.pop().expect("it has failed");
        assert_eq!(report, ended(1, Some(ChannelError::Closed.to_string())));
        host.send(2);
        assert_eq!(host.pump(), 1);
        host.bus(1).has_failed = false;
        host.add(1);
        host.send(3);
        assert_eq!(host.pump(), 4, "the third, and what was not confirmed");
        assert!(host.reports.is_empty());
        let (one, two) = (host.bus(0), host.bus(1));
        assert!(are_one(&one.held[2], &two.held[2]));
    }

    #[test]
    fn ended_channel_is_reported_without_failure() {
        let mut host = Host::new(QUEUING);
        host.fan.end(FlowId::Port(0), &mut host.reports);
        assert_eq!(host.reports, [ended(0, None)]);
        assert!(!host.fan.is_empty());
        host.fan.end(FlowId::Port(1), &mut host.reports);
        assert!(host.fan.is_empty());
    }
}
