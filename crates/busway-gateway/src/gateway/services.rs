//! The gateway's parts in iceoryx2 services: the service held open, our publisher and subscriber,
//! and what the lanes need of them.
//!
//! Contract: carries out the decision core's actions on services; decides nothing. Called by
//! [`super`], on the control thread alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use busway_transport::{Receiver, Sender};
use iceoryx2::node::Node;

use super::lanes::{InLane, Lanes};
use super::links::Links;
use crate::control::fact::HoldError;
use crate::counters::{ServiceCounters, add};
use crate::description::{ServiceDescription, Shape};
use crate::iox::Service;
use crate::iox::events::{self, EventListener, EventNotifier};
use crate::iox::publisher::{Backpressure, SamplePublisher};
use crate::iox::sample::Outgoing;
use crate::iox::service::{DescriptionError, Factory};
use crate::iox::subscriber::SampleSubscriber;
use crate::lane::destination::LargeSender;
use crate::lane::inbound::{Continuity, InboundSetup};
use crate::lane::outbound::OutboundSetup;
use crate::lane::{ChannelKey, Ending, FlowId, InboundCommand, Lane, LaneCommand, OutboundCommand, WhenFull};

/// Our publisher, seen from the control thread.
struct Inbound {
    /// Keeps it from waiting in vain.
    backpressure: Arc<Backpressure>,
    lane: InLane,
}

/// What the gateway has of one service.
struct Parts {
    name: String,
    /// Index of the lane that sends its messages, and receives them unless our publisher may wait.
    lane: usize,
    factory: Option<(Factory, ServiceDescription)>,
    inbound: Option<Inbound>,
    /// Our subscriber's id, which our own publisher must not wait for.
    subscriber_id: Option<u128>,
    /// The number of the last sample that was sent; outlives our subscriber.
    sequence: Arc<AtomicU64>,
    counters: Arc<ServiceCounters>,
    reported_losses: u64,
    /// By sending host.
    continuity: HashMap<String, Arc<Continuity>>,
}

/// See the module.
pub struct Services {
    node: Arc<Node<Service>>,
    session: u64,
    parts: HashMap<FlowId, Parts>,
}

impl Services {
    /// None yet.
    pub fn new(node: Arc<Node<Service>>, session: u64) -> Services {
        Services {
            node,
            session,
            parts: HashMap::new(),
        }
    }

    /// A flow is a service of this name, on this lane.
    pub fn introduce(&mut self, flow: FlowId, name: &str, lane: usize) {
        self.parts.entry(flow).or_insert_with(|| Parts {
            name: name.to_string(),
            lane,
            factory: None,
            inbound: None,
            subscriber_id: None,
            sequence: Arc::default(),
            counters: Arc::default(),
            reported_losses: 0,
            continuity: HashMap::new(),
        });
    }

    /// Opens or creates the service.
    ///
    /// # Errors
    /// [`HoldError`].
    pub fn hold(&mut self, flow: FlowId, description: &ServiceDescription) -> Result<(), HoldError> {
        let Some(parts) = self.parts.get_mut(&flow) else {
            return Ok(());
        };
        let _ = crate::faults::in_this_thread();
        let opened = description.open_or_create(&self.node).and_then(|factory| {
            if crate::faults::in_this_thread() {
                // Dropping it removes what was only half made.
                return Err(DescriptionError::NoMemory);
            }
            Ok(factory)
        });
        let factory = opened.map_err(|error| HoldError {
            reason: error.to_string(),
            is_type_conflict: error.is_type_conflict(),
        })?;
        parts.factory = Some((factory, description.clone()));
        Ok(())
    }

    /// Closes the service.
    pub fn release(&mut self, flow: FlowId) {
        if let Some(parts) = self.parts.get_mut(&flow) {
            parts.factory = None;
        }
    }

    /// Makes our publisher, and the lane that it needs.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn make_publisher(
        &mut self,
        flow: FlowId,
        waits: bool,
        links: usize,
        lanes: &mut Lanes,
    ) -> Result<(), String> {
        let session = self.session;
        let parts = self.parts.get_mut(&flow).ok_or("the service is unknown")?;
        let backpressure = Arc::new(Backpressure::default());
        if let Some(id) = parts.subscriber_id {
            backpressure.set_own_subscriber(id);
        }
        let publisher = parts.publisher(waits, links, &backpressure)?;
        let lane = if waits {
            lanes
                .start_own(&parts.name, parts.lane)
                .map_err(|error| format!("no thread for it: {error}"))?
        } else {
            InLane::Shared(parts.lane)
        };
        let setup = InboundSetup {
            publisher,
            own_session: session,
            counters: parts.counters.clone(),
            backpressure: backpressure.clone(),
        };
        lane.lane(lanes).send(LaneCommand::Inbound {
            flow,
            command: InboundCommand::Begin(Box::new(setup)),
        });
        parts.inbound = Some(Inbound { backpressure, lane });
        Ok(())
    }

    /// Creates our publisher again, after a fault.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn replace_publisher(&mut self, flow: FlowId, links: usize, lanes: &Lanes) -> Result<(), String> {
        let parts = self.parts.get(&flow).ok_or("the service is unknown")?;
        let inbound = parts.inbound.as_ref().ok_or("there is none to replace")?;
        let waits = matches!(inbound.lane, InLane::Own(..));
        let publisher = parts.publisher(waits, links, &inbound.backpressure)?;
        let command = InboundCommand::ReplacePublisher(Box::new(publisher));
        inbound
            .lane
            .lane(lanes)
            .send(LaneCommand::Inbound { flow, command });
        Ok(())
    }

    /// Drops our publisher, and its lane if it has one of its own.
    pub fn drop_publisher(&mut self, flow: FlowId, lanes: &mut Lanes, links: &mut Links) {
        let inbound = self.parts.get_mut(&flow).and_then(|parts| parts.inbound.take());
        let Some(Inbound { backpressure, lane }) = inbound else {
            return;
        };
        backpressure.stop_waiting();
        match lane {
            InLane::Shared(index) => lanes.shared(index).send(LaneCommand::Inbound {
                flow,
                command: InboundCommand::End,
            }),
            InLane::Own(lane, number) => {
                links.forget_lane(number);
                lanes.end_own(lane, number);
            }
        }
    }

    /// Makes our subscriber.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn make_subscriber(
        &mut self,
        flow: FlowId,
        when_full: WhenFull,
        lanes: &Lanes,
    ) -> Result<(), String> {
        let parts = self.parts.get_mut(&flow).ok_or("the service is unknown")?;
        let (factory, description) = parts.factory.as_ref().ok_or("the service is not open")?;
        let subscriber = SampleSubscriber::new(factory, &self.node, description)?;
        let id = subscriber.id();
        if let Some(inbound) = &parts.inbound {
            inbound.backpressure.set_own_subscriber(id);
        }
        let setup = OutboundSetup {
            subscriber,
            history: description.settings.history_size as usize,
            when_full,
            sequence: parts.sequence.clone(),
            origin: self.session,
            counters: parts.counters.clone(),
        };
        parts.subscriber_id = Some(id);
        lanes.shared(parts.lane).send(LaneCommand::Outbound {
            flow,
            command: OutboundCommand::Begin(Box::new(setup)),
        });
        Ok(())
    }

    /// Drops our subscriber.
    pub fn drop_subscriber(&mut self, flow: FlowId, lanes: &Lanes) {
        let Some(parts) = self.parts.get_mut(&flow) else {
            return;
        };
        parts.subscriber_id = None;
        if let Some(inbound) = &parts.inbound {
            inbound.backpressure.set_own_subscriber(0);
        }
        lanes.shared(parts.lane).send(LaneCommand::Outbound {
            flow,
            command: OutboundCommand::End,
        });
    }

    /// Makes or drops the notifier of the companion event service.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn set_notifier(&self, flow: FlowId, is_wanted: bool, lanes: &Lanes) -> Result<(), String> {
        let Some(parts) = self.parts.get(&flow) else {
            return Ok(());
        };
        let Some(inbound) = &parts.inbound else {
            return Ok(());
        };
        let made = is_wanted.then(|| events::open(&self.node, &parts.name));
        let notifier = made
            .transpose()?
            .map(|factory| EventNotifier::new(&factory))
            .transpose()?;
        tracing::debug!("service {:?}: notifier: {is_wanted}", parts.name);
        inbound.lane.lane(lanes).send(LaneCommand::Inbound {
            flow,
            command: InboundCommand::SetNotifier(notifier),
        });
        Ok(())
    }

    /// Makes or drops the listener of the companion event service.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn set_listener(&self, flow: FlowId, is_wanted: bool, lanes: &Lanes) -> Result<(), String> {
        let Some(parts) = self.parts.get(&flow) else {
            return Ok(());
        };
        let made = is_wanted.then(|| events::open(&self.node, &parts.name));
        let listener = made
            .transpose()?
            .map(|factory| EventListener::new(&factory))
            .transpose()?;
        tracing::debug!("service {:?}: listener: {is_wanted}", parts.name);
        self.command_outbound(flow, lanes, OutboundCommand::SetListener(listener));
        Ok(())
    }

    /// Sends a command to the lane of our publisher, if there is one.
    pub fn command_inbound(&self, flow: FlowId, lanes: &Lanes, command: InboundCommand) {
        if let Some(inbound) = self.parts.get(&flow).and_then(|parts| parts.inbound.as_ref()) {
            inbound
                .lane
                .lane(lanes)
                .send(LaneCommand::Inbound { flow, command });
        }
    }

    /// Sends a command to the lane of our subscriber.
    pub fn command_outbound(&self, flow: FlowId, lanes: &Lanes, command: OutboundCommand) {
        if let Some(parts) = self.parts.get(&flow) {
            lanes
                .shared(parts.lane)
                .send(LaneCommand::Outbound { flow, command });
        }
    }

    /// The number of the lane that receives the service.
    pub fn inbound_lane(&self, flow: FlowId) -> u32 {
        let inbound = self.parts.get(&flow).and_then(|parts| parts.inbound.as_ref());
        inbound.map_or(0, |inbound| inbound.lane.number())
    }

    /// The number of the lane that sends the service.
    pub fn outbound_lane(&self, flow: FlowId) -> u32 {
        self.parts.get(&flow).map_or(0, |parts| parts.lane as u32)
    }

    /// Gives the lane a sending end.
    pub fn add_sender(
        &self,
        (flow, key): (FlowId, ChannelKey),
        sender: Box<dyn Sender<Outgoing>>,
        may_join: bool,
        links: &mut Links,
        lanes: &Lanes,
    ) {
        let number = self.outbound_lane(flow);
        links.set_doorbell(key.link, lanes.shared(number as usize), number, sender.wait_for());
        let command = OutboundCommand::AddSender {
            key,
            sender,
            may_join,
        };
        self.command_outbound(flow, lanes, command);
    }

    /// Gives the lane a second sending end, for large messages, beside the main one.
    pub fn add_large(
        &self,
        flow: FlowId,
        main: ChannelKey,
        large: LargeSender,
        links: &mut Links,
        lanes: &Lanes,
    ) {
        let number = self.outbound_lane(flow);
        let wait_for = large.sender.wait_for();
        links.set_doorbell(large.key.link, lanes.shared(number as usize), number, wait_for);
        self.command_outbound(flow, lanes, OutboundCommand::AddLargeSender { main, large });
    }

    /// Ends a sending end.
    pub fn end_sender(&self, flow: FlowId, key: ChannelKey, ending: Ending, lanes: &Lanes) {
        self.command_outbound(flow, lanes, OutboundCommand::EndSender { key, ending });
    }

    /// Gives the lane a receiving end, from this host.
    pub fn add_receiver(
        &mut self,
        (flow, key): (FlowId, ChannelKey),
        receiver: Box<dyn Receiver>,
        (peer, keeps_all): (String, bool),
        links: &mut Links,
        lanes: &Lanes,
    ) {
        let Some(parts) = self.parts.get_mut(&flow) else {
            return;
        };
        let Some(inbound) = &parts.inbound else { return };
        let (lane, number) = (inbound.lane.lane(lanes), inbound.lane.number());
        links.set_doorbell(key.link, lane, number, receiver.wait_for());
        let continuity = parts.continuity.entry(peer).or_default().clone();
        let command = InboundCommand::AddReceiver {
            key,
            receiver,
            continuity,
            keeps_all,
        };
        lane.send(LaneCommand::Inbound { flow, command });
    }

    /// The next message of this host begins a new count.
    pub fn reset_continuity(&self, flow: FlowId, peer: &str) {
        let parts = self.parts.get(&flow);
        if let Some(continuity) = parts.and_then(|parts| parts.continuity.get(peer)) {
            continuity.reset();
        }
    }

    /// The delivery of these messages is unknown.
    pub fn count_delivery_unknown(&self, flow: FlowId, messages: u64) {
        if let Some(parts) = self.parts.get(&flow) {
            add(&parts.counters.in_doubt, messages);
        }
    }

    /// The lanes of single flows, with their numbers.
    pub fn own_lanes(&self) -> Vec<(&Lane, u32)> {
        let inbound = self.parts.values().filter_map(|parts| parts.inbound.as_ref());
        let own = inbound.filter_map(|inbound| match &inbound.lane {
            InLane::Own(lane, number) => Some((lane, *number)),
            InLane::Shared(_) => None,
        });
        own.collect()
    }

    /// Whether there is any service.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// What a service has counted.
    pub fn counters(&self, flow: FlowId) -> Option<&ServiceCounters> {
        self.parts.get(&flow).map(|parts| &*parts.counters)
    }

    /// Logs the losses since the last report.
    pub fn report_losses(&mut self) {
        for parts in self.parts.values_mut() {
            let snapshot = parts.counters.snapshot();
            let losses = snapshot.losses();
            if losses > parts.reported_losses {
                tracing::warn!(
                    "service {:?}: {} message(s) lost since the last report ({losses} in all: {} missing from other hosts, {} overflowed here, {} channel full, {} link down, {} delivery unknown, {} no memory, {} reader full, {} refused)",
                    parts.name,
                    losses - parts.reported_losses,
                    snapshot.lost,
                    snapshot.overflowed,
                    snapshot.dropped_full,
                    snapshot.dropped_link_down,
                    snapshot.in_doubt,
                    snapshot.dropped_no_memory,
                    snapshot.dropped_reader_full,
                    snapshot.refused,
                );
                parts.reported_losses = losses;
            }
        }
    }

    /// Ends the lanes of single flows and waits for their threads.
    pub fn join_own_lanes(&mut self) {
        for parts in self.parts.values_mut() {
            let Some(inbound) = parts.inbound.take() else {
                continue;
            };
            inbound.backpressure.stop_waiting();
            if let InLane::Own(lane, _) = inbound.lane {
                lane.join();
            }
        }
    }
}

impl Parts {
    fn publisher(
        &self,
        waits: bool,
        links: usize,
        backpressure: &Arc<Backpressure>,
    ) -> Result<SamplePublisher, String> {
        let (factory, description) = self.factory.as_ref().ok_or("the service is not open")?;
        let shape = Shape::of(description);
        let publisher = SamplePublisher::new(factory, shape, waits, links + 1, backpressure.clone());
        if crate::faults::in_this_thread() {
            return Err("its data segment has no memory behind it; is /dev/shm full?".into());
        }
        publisher
    }
}
