//! The companion event service: an event service of the same name, by which programs wake their subscribers.
//!
//! Many iceoryx2 programs notify an event after they have sent a sample, and sleep on a listener instead of polling. The gateway
//! takes part on both sides: where a service has such a companion it sleeps on it, and it raises on the far host the
//! same events that announced the samples at home. Events travel only with samples of local programs, so an event can't
//! run in circles; our own notifications skip our own listener.

use iceoryx2::node::Node;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::prelude::{EventId, FileDescriptorBased, ServiceName};
use iceoryx2::service::port_factory::event::PortFactory;
use std::os::fd::RawFd;

use super::Service;

/// Events above this can't cross: a message's head has one bit for each.
pub const MAX_EVENT: usize = 63;

/// A companion event service, opened.
pub type Factory = PortFactory<Service>;

/// Opens the companion of a publish/subscribe service, where there is one that can be opened.
pub fn open(node: &Node<Service>, service: &str) -> Option<Factory> {
    let name = ServiceName::new(service).ok()?;
    node.service_builder(&name).event().open().ok()
}

/// Hears the events of local programs.
pub struct Ear {
    listener: Listener<Service>,
}

impl Ear {
    /// A listener on the companion; `None` if it has no place for one more.
    pub fn new(factory: &Factory) -> Option<Ear> {
        factory.listener_builder().create().ok().map(|listener| Ear { listener })
    }

    /// Becomes readable when an event is raised; valid as long as the ear.
    pub fn fd(&self) -> RawFd {
        // SAFETY: the number is only watched with epoll, never closed.
        #[allow(unsafe_code)]
        unsafe {
            self.listener.file_descriptor().native_handle()
        }
    }

    /// The events raised since the last call, a bit each. Events above [`MAX_EVENT`] are heard (they wake) but can't cross.
    pub fn hear(&self) -> u64 {
        let mut events = 0;
        // An error leaves the events as they are; the next sample or timer looks again.
        let _ = self.listener.try_wait(|activation| {
            let id = activation.id.as_value();
            if id <= MAX_EVENT {
                events |= 1 << id;
            }
        });
        events
    }
}

/// Raises events towards local programs.
pub struct Voice {
    notifier: Notifier<Service>,
}

impl Voice {
    /// A notifier on the companion; `None` if it has no place for one more.
    pub fn new(factory: &Factory) -> Option<Voice> {
        factory.notifier_builder().create().ok().map(|notifier| Voice { notifier })
    }

    /// Raises the events of this set, for all listeners but our own.
    pub fn raise(&self, events: u64) {
        let mut rest = events;
        while rest != 0 {
            let id = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            const SKIP_OURSELVES: bool = true;
            // An event id beyond this service's maximum, or a listener that just died: the sample is there all the same.
            let _ = self.notifier.__internal_notify(EventId::new(id), SKIP_OURSELVES);
        }
    }
}
