//! iceoryx2 ports as an ordinary program makes them: a node in the domain of a configuration file, a publish/subscribe service of
//! `[u64]`, and its companion event service of the same name.
#![allow(unsafe_code)] // one `assume_init` after every word was written

use std::path::Path;

use iceoryx2::config::Config;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::PortFactory as _;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

use super::{Service, Wait, WorkerResult};
use crate::pattern::{Header, fill_uninit};

/// Programs on each host that may join a measured service: the program itself and its gateway, and one spare.
const MAX_PORTS: usize = 3;

/// A node in the domain that `config` describes.
pub(crate) fn node(config: &Path) -> WorkerResult<Node<ipc::Service>> {
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

/// A subscriber and, where the program waits by event, the listener to wait on.
pub(super) type Receiver = (
    Subscriber<ipc::Service, [u64], ()>,
    Option<Listener<ipc::Service>>,
);

/// One open service.
pub(super) struct Endpoint {
    node: Node<ipc::Service>,
    name: ServiceName,
    service: PortFactory<ipc::Service, [u64], ()>,
    words: usize,
    wait: Wait,
}

impl Endpoint {
    /// Opens or makes the service with the settings that were asked for.
    pub(super) fn open(spec: &Service, suffix: &str) -> WorkerResult<Self> {
        let node = node(&spec.config)?;
        let text = format!("{}{suffix}", spec.name);
        let name = ServiceName::new(&text).map_err(|e| format!("service name {text:?}: {e:?}"))?;
        let builder = node.service_builder(&name).publish_subscribe::<[u64]>();
        let builder = match spec.settings {
            None => builder,
            Some(settings) => builder
                .subscriber_max_buffer_size(settings.buffer)
                .enable_safe_overflow(settings.safe_overflow)
                .max_subscribers(MAX_PORTS)
                .max_publishers(MAX_PORTS),
        };
        let service = builder
            .open_or_create()
            .map_err(|e| format!("service {text:?}: {e}"))?;
        Ok(Self {
            node,
            name,
            service,
            words: spec.payload_bytes / 8,
            wait: spec.wait,
        })
    }

    /// How many subscribers the service has on this host, gateways included.
    pub(super) fn subscribers(&self) -> usize {
        self.service.dynamic_config().number_of_subscribers()
    }

    /// A port that sends.
    pub(super) fn sender(&self) -> WorkerResult<Sender> {
        let publisher = self
            .service
            .publisher_builder()
            .initial_max_slice_len(self.words)
            .create()
            .map_err(|e| format!("publisher of {}: {e}", self.name))?;
        let notifier = match self.wait {
            Wait::Event => {
                let event = self.event()?;
                Some(
                    event
                        .notifier_builder()
                        .create()
                        .map_err(|e| format!("notifier of {}: {e}", self.name))?,
                )
            }
            _ => None,
        };
        Ok(Sender {
            publisher,
            notifier,
            words: self.words,
        })
    }

    /// A port that receives, and the listener to wait on.
    pub(super) fn receiver(&self) -> WorkerResult<Receiver> {
        let listener = match self.wait {
            Wait::Event => {
                let event = self.event()?;
                Some(
                    event
                        .listener_builder()
                        .create()
                        .map_err(|e| format!("listener of {}: {e}", self.name))?,
                )
            }
            _ => None,
        };
        let subscriber = self
            .service
            .subscriber_builder()
            .create()
            .map_err(|e| format!("subscriber of {}: {e}", self.name))?;
        Ok((subscriber, listener))
    }

    fn event(&self) -> WorkerResult<iceoryx2::service::port_factory::event::PortFactory<ipc::Service>> {
        self.node
            .service_builder(&self.name)
            .event()
            .open_or_create()
            .map_err(|e| format!("event service {}: {e}", self.name))
    }
}

/// Publishes patterned messages and notifies where the service waits by event.
pub(super) struct Sender {
    publisher: Publisher<ipc::Service, [u64], ()>,
    notifier: Option<Notifier<ipc::Service>>,
    words: usize,
}

impl Sender {
    /// Loans, writes every word, sends, notifies.
    pub(super) fn send(&self, header: Header) -> WorkerResult<()> {
        let mut sample = self
            .publisher
            .loan_slice_uninit(self.words)
            .map_err(|e| format!("loan of {} bytes: {e}", self.words * 8))?;
        fill_uninit(sample.payload_mut(), header);
        // SAFETY: `fill_uninit` wrote every word of the slice.
        let sample = unsafe { sample.assume_init() };
        sample.send().map_err(|e| format!("send: {e}"))?;
        if let Some(notifier) = &self.notifier {
            // A listener whose socket is full is awake already.
            if let Err(error) = notifier.notify() {
                tracing::debug!(%error, "notify");
            }
        }
        Ok(())
    }
}
