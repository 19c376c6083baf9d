//! The companion event service: an event service of the same name, by which programs wake their
//! subscribers.
//!
//! Many iceoryx2 programs notify an event after they have sent a sample, and sleep on a listener
//! instead of polling. If a service has such a companion, the gateway sleeps on it as well, and
//! raises on the other host the same events that announced the samples at home. Events travel only
//! with samples of local programs, so none returns to its origin; our own notifications skip our
//! own listener.

use iceoryx2::node::Node;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::prelude::{EventId, FileDescriptorBased, ServiceName};
use iceoryx2::service::port_factory::event::PortFactory;
use std::os::fd::RawFd;

use super::Service;

/// The largest event that can cross: a message's head has one bit for each.
pub const MAX_EVENT: usize = 63;

/// A companion event service, opened.
pub type Factory = PortFactory<Service>;

/// Opens the companion of a publish/subscribe service.
pub fn open(node: &Node<Service>, service: &str) -> Result<Factory, String> {
    let name = ServiceName::new(service).map_err(|error| format!("{error:?}"))?;
    node.service_builder(&name)
        .event()
        .open()
        .map_err(|error| format!("its companion event service: {error:?}"))
}

/// Receives the events of local programs.
pub struct EventListener {
    listener: Listener<Service>,
}

impl EventListener {
    /// A listener on the companion.
    ///
    /// # Errors
    /// iceoryx2's reason, in words; most likely all `max_listeners` places are taken.
    pub fn new(factory: &Factory) -> Result<EventListener, String> {
        let listener = factory.listener_builder().create();
        listener
            .map(|listener| EventListener { listener })
            .map_err(|error| format!("its companion event service: {error:?}"))
    }

    /// Becomes readable when an event is raised; valid as long as the listener.
    pub fn fd(&self) -> RawFd {
        // SAFETY: the number is only watched with epoll, never closed.
        #[allow(unsafe_code)]
        unsafe {
            self.listener.file_descriptor().native_handle()
        }
    }

    /// The events raised since the last call, a bit each. Those above [`MAX_EVENT`] wake the lane
    /// but can't cross.
    pub fn take_events(&self) -> u64 {
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
#[derive(Debug)]
pub struct EventNotifier {
    notifier: Notifier<Service>,
}

impl EventNotifier {
    /// A notifier on the companion.
    ///
    /// # Errors
    /// iceoryx2's reason, in words; most likely all `max_notifiers` places are taken.
    pub fn new(factory: &Factory) -> Result<EventNotifier, String> {
        let notifier = factory.notifier_builder().create();
        notifier
            .map(|notifier| EventNotifier { notifier })
            .map_err(|error| format!("its companion event service: {error:?}"))
    }

    /// Raises the events of this set, for all listeners but our own.
    pub fn raise(&self, events: u64) {
        let mut rest = events;
        while rest != 0 {
            let id = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            const SKIP_OURSELVES: bool = true;
            // An event id beyond this service's maximum, or a listener that has just died: the
            // sample is there all the same.
            let _ = self.notifier.__internal_notify(EventId::new(id), SKIP_OURSELVES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iox::domain;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::BorrowedFd;

    fn is_readable(listener: &EventListener) -> bool {
        // SAFETY: the listener outlives the borrow.
        #[allow(unsafe_code)]
        let fd = unsafe { BorrowedFd::borrow_raw(listener.fd()) };
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .expect("poll")
            == 1
    }

    #[test]
    fn program_event_makes_the_listener_readable_and_our_own_does_not() {
        let (_temporary, config) = domain::tests::temporary("listener");
        let ours = domain::create_node(&config, "test").expect("our node");
        let node = domain::tests::program(&config);
        let service = node
            .service_builder(&"A".try_into().expect("valid"))
            .event()
            .create()
            .expect("created");
        let notifier = service.notifier_builder().create().expect("notifier");
        let factory = open(&ours, "A").expect("opened");
        let listener = EventListener::new(&factory).expect("a listener");
        let own_notifier = EventNotifier::new(&factory).expect("a notifier");
        assert!(!is_readable(&listener));
        assert_eq!(listener.take_events(), 0);
        for _ in 0..5 {
            notifier
                .notify_with_custom_event_id(EventId::new(3))
                .expect("notified");
            notifier
                .notify_with_custom_event_id(EventId::new(5))
                .expect("notified");
            assert!(is_readable(&listener));
            assert_eq!(listener.take_events(), (1 << 3) | (1 << 5));
            assert!(!is_readable(&listener));
        }
        let program = service.listener_builder().create().expect("listener");
        own_notifier.raise(1 << 4);
        assert!(!is_readable(&listener));
        assert_eq!(listener.take_events(), 0);
        let mut received = Vec::new();
        program
            .try_wait(|activation| received.push(activation.id.as_value()))
            .expect("received");
        assert_eq!(received, [4]);
    }
}
