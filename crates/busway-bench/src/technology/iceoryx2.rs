//! `iceoryx2`: publish and subscribe of iceoryx2 inside one domain. `gateway-BUS` for each bus of
//! the registry: the same programs on two hosts, whose gateways carry the services over that bus.
//! `zenoh-tunnel`: the same over iceoryx2's own tunnel.
//!
//! Payloads are written into the loaned sample and read where they are: no copy at either end.
//! Where every message counts the publisher waits for room; what iceoryx2's own benchmark does (one
//! publisher, one subscriber, no history, `ipc`) is the same for the rest. Each loan allocates an
//! object, in iceoryx2 itself.
#![allow(unsafe_code)] // `assume_init` of shared memory

use std::ffi::OsStr;
use std::path::Path as StdPath;
use std::time::Duration;

use busway_buses::{BUS_NAMES, missing};
use iceoryx2::config::Config;
use iceoryx2::port::BackpressureAction;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::event::PortFactory as EventFactory;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory as PublishSubscribeFactory;

use super::message::{MIN_MESSAGE_BYTES, Message, Received};
use super::path::{Description, LOOK_TIMEOUT, OneWay, Opening, Path, Reach, Stage, User, reach_of};
use super::wait::Wait;
use crate::control::WorkerResult;
use crate::environment::TUNNEL;
use crate::hosts::find_on_path;
use crate::record::Measured;

/// Queues of lossless services hold about this much, from 8 to 256 messages.
const QUEUE_BYTES: usize = 1 << 20;
/// iceoryx2's own setting for a service that says nothing.
pub(crate) const DEFAULT_QUEUE_DEPTH: usize = 2;
/// Programs on each host that may join a service: the program itself, its gateway, and one spare.
const MAX_PORTS: usize = 3;
/// Of the start of a payload, in bytes.
const ALIGNMENT_BYTES: usize = 8;

pub(super) fn describe() -> Vec<Description> {
    let alone = Description {
        waits: vec![Wait::Spin, Wait::Event, Wait::Adaptive],
        reach: Reach::Host,
        least_bytes: MIN_MESSAGE_BYTES,
        ..Description::new("iceoryx2", "iceoryx2 publish/subscribe in one domain")
    };
    let mut all = vec![alone.clone()];
    all.extend(BUS_NAMES.iter().map(|bus| Description {
        name: format!("gateway-{bus}"),
        title: format!("iceoryx2 programs of two hosts, through gateways over {bus}"),
        waits: vec![Wait::Event, Wait::Adaptive, Wait::Spin],
        reach: reach_of(bus),
        stage: Stage::Gateways(bus),
        missing: missing(bus),
        ..alone.clone()
    }));
    all.push(Description {
        name: "zenoh-tunnel".into(),
        title: "iceoryx2 programs of two hosts, through iceoryx2's own tunnel over Zenoh".into(),
        waits: vec![Wait::Event, Wait::Adaptive, Wait::Spin],
        reach: Reach::Machine,
        // The tunnel carries services with default settings only, and those overwrite.
        one_way: Some(OneWay::Lossy),
        stage: Stage::Tunnel,
        missing: find_on_path(OsStr::new(TUNNEL))
            .is_none()
            .then(|| format!("{TUNNEL} on PATH")),
        ..alone
    });
    all
}

pub(crate) fn queue_depth(payload_bytes: usize) -> usize {
    (QUEUE_BYTES / payload_bytes).clamp(8, 256)
}

/// A node in the domain that the configuration file `config` describes.
pub(crate) fn node(config: &StdPath) -> WorkerResult<Node<ipc::Service>> {
    let path = config.to_str().unwrap_or_default();
    let file =
        FilePath::new(path.as_bytes()).map_err(|e| format!("iceoryx2 configuration {path:?}: {e:?}"))?;
    let config = Config::from_file(&file).map_err(|e| format!("iceoryx2 configuration {path:?}: {e}"))?;
    NodeBuilder::new()
        .config(&config)
        .signal_handling_mode(SignalHandlingMode::Disabled)
        .create::<ipc::Service>()
        .map_err(|e| format!("iceoryx2 node in {path:?}: {e}"))
}

pub(super) fn with(name: &str, opening: &Opening<'_>, user: impl User) -> WorkerResult<Measured> {
    let node = node(&opening.place.iceoryx2)?;
    let settings = match name {
        "zenoh-tunnel" => None,
        _ if opening.overwrites => None,
        "iceoryx2" => Some(1),
        _ => Some(MAX_PORTS),
    };
    let service = |direction| Service::open(&node, direction, opening, settings);
    let (to, from) = opening.ends(service("there")?, service("back")?);
    user.exchange(Iceoryx2 {
        publisher: to.publisher(opening)?,
        notifier: to.notifier()?,
        subscriber: from.subscriber()?,
        listener: from.listener()?,
        payload_bytes: opening.payload_bytes,
        touched: opening.touched,
        blocks: opening.blocks(),
    })
}

struct Service {
    name: ServiceName,
    messages: PublishSubscribeFactory<ipc::Service, [u8], ()>,
    events: Option<EventFactory<ipc::Service>>,
}

impl Service {
    /// `max_ports`: how many publishers and subscribers a lossless service has; none: iceoryx2's
    /// default settings.
    fn open(
        node: &Node<ipc::Service>,
        direction: &str,
        opening: &Opening<'_>,
        max_ports: Option<usize>,
    ) -> WorkerResult<Self> {
        let text = format!("bench/{}/{direction}", opening.place.name);
        let name = ServiceName::new(&text).map_err(|e| format!("service name {text:?}: {e:?}"))?;
        let alignment = Alignment::new(ALIGNMENT_BYTES).ok_or("an alignment is a power of two")?;
        let builder = node
            .service_builder(&name)
            .publish_subscribe::<[u8]>()
            .payload_alignment(alignment);
        let builder = match max_ports {
            None => builder,
            Some(ports) => builder
                .subscriber_max_buffer_size(queue_depth(opening.payload_bytes))
                .enable_safe_overflow(false)
                .history_size(0)
                .max_publishers(ports)
                .max_subscribers(ports),
        };
        let messages = builder
            .open_or_create()
            .map_err(|e| format!("service {text:?}: {e}"))?;
        let events = (opening.wait == Wait::Event)
            .then(|| node.service_builder(&name).event().open_or_create())
            .transpose()
            .map_err(|e| format!("event service {text:?}: {e}"))?;
        Ok(Self {
            name,
            messages,
            events,
        })
    }

    fn publisher(&self, opening: &Opening<'_>) -> WorkerResult<Publisher<ipc::Service, [u8], ()>> {
        let control = opening.control.clone();
        let timed = opening.timed;
        self.messages
            .publisher_builder()
            .initial_max_slice_len(opening.payload_bytes)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .set_backpressure_handler(move |_| {
                if timed || control.ended() {
                    BackpressureAction::DiscardData
                } else {
                    BackpressureAction::Retry
                }
            })
            .create()
            .map_err(|e| format!("publisher of {}: {e}", self.name))
    }

    fn subscriber(&self) -> WorkerResult<Subscriber<ipc::Service, [u8], ()>> {
        self.messages
            .subscriber_builder()
            .create()
            .map_err(|e| format!("subscriber of {}: {e}", self.name))
    }

    fn notifier(&self) -> WorkerResult<Option<Notifier<ipc::Service>>> {
        let create = |events: &EventFactory<ipc::Service>| events.notifier_builder().create();
        self.events
            .as_ref()
            .map(create)
            .transpose()
            .map_err(|e| format!("notifier of {}: {e}", self.name))
    }

    fn listener(&self) -> WorkerResult<Option<Listener<ipc::Service>>> {
        let create = |events: &EventFactory<ipc::Service>| events.listener_builder().create();
        self.events
            .as_ref()
            .map(create)
            .transpose()
            .map_err(|e| format!("listener of {}: {e}", self.name))
    }
}

struct Iceoryx2 {
    publisher: Publisher<ipc::Service, [u8], ()>,
    notifier: Option<Notifier<ipc::Service>>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    listener: Option<Listener<ipc::Service>>,
    payload_bytes: usize,
    touched: bool,
    blocks: bool,
}

impl Iceoryx2 {
    #[inline]
    fn take(&self) -> WorkerResult<Option<Received>> {
        let sample = self.subscriber.receive().map_err(|e| format!("receive: {e}"))?;
        Ok(sample.and_then(|sample| Message::read(sample.payload(), self.touched)))
    }

    fn sleep(&self, at_most: Duration) {
        // The listener waits by SO_RCVTIMEO, in whole microseconds: 0 waits forever (socket(7)).
        if at_most < Duration::from_micros(1) {
            return;
        }
        match &self.listener {
            Some(listener) => {
                // If the announcement fails, the next poll finds the message.
                if let Err(error) = listener.timed_wait(|_| (), at_most) {
                    tracing::debug!(%error, "waiting for a notification failed");
                }
            }
            None => std::thread::sleep(at_most.min(Duration::from_micros(50))),
        }
    }
}

impl Path for Iceoryx2 {
    #[inline]
    fn send(&mut self, message: Message) -> WorkerResult<bool> {
        let mut sample = self
            .publisher
            .loan_slice_uninit(self.payload_bytes)
            .map_err(|e| format!("loan of {} bytes: {e}", self.payload_bytes))?;
        message.fill_uninit(sample.payload_mut(), self.touched);
        // SAFETY: with `touched` every byte has just been written. Without, the header has, and the
        // rest lies in shared memory that the kernel gave out as zeroes, that no allocation of this
        // language was ever in, and into which nobody writes but programs that call this function:
        // each byte is a zero or what an earlier message wrote there.
        let sample = unsafe { sample.assume_init() };
        let recipients = sample.send().map_err(|e| format!("send: {e}"))?;
        if let Some(notifier) = &self.notifier {
            // A listener whose queue is full is awake already.
            if let Err(error) = notifier.notify() {
                tracing::debug!(%error, "notify");
            }
        }
        Ok(recipients > 0)
    }

    #[inline]
    fn receive(&mut self) -> WorkerResult<Option<Received>> {
        let received = self.take()?;
        if received.is_some() || !self.blocks {
            return Ok(received);
        }
        self.sleep(LOOK_TIMEOUT);
        self.take()
    }

    fn wait(&mut self, at_most: Duration) {
        self.sleep(at_most);
    }
}
