//! The gateway's publisher in a service: loans the samples in which messages land, and sends them.
//!
//! Payloads and user headers are bytes here.
#![allow(unsafe_code)] // Views of samples as bytes, each proved.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use busway_transport::SegmentId;
use iceoryx2::port::publisher::{Publisher, PublisherCreateError};
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::port::{BackpressureAction, LoanError};
use iceoryx2::prelude::{AllocationStrategy, BackpressureStrategy};
use iceoryx2::sample_mut_uninit::SampleMutUninit;
use iceoryx2::service::marker::{CustomHeaderMarker, CustomPayloadMarker};

use super::Service;
use super::events::EventNotifier;
use super::service::Factory;
use crate::description::Shape;

type Loan = SampleMutUninit<Service, [MaybeUninit<CustomPayloadMarker>], CustomHeaderMarker>;

/// Decides whether our publisher waits for a full subscriber; shared with those who end the wait.
#[derive(Debug, Default)]
pub struct Backpressure {
    /// Our own subscriber in the same service, for which the publisher never waits. Both halves are
    /// written before the publisher connects to it and read relaxed: a stale value costs one retry.
    own_subscriber: [AtomicU64; 2],
    /// Set when the publisher must not wait any more (shutdown, the flow ends).
    has_stopped: AtomicBool,
    /// Samples that a full reader of a service without safe overflow did not get, since the
    /// publisher does not wait.
    pub discarded: AtomicU64,
    /// Raises the events that announced the samples at home, if the service has a companion here.
    notifier: Mutex<Option<EventNotifier>>,
    /// Events of delivered messages that are raised at the end of the turn. Only the lane's thread
    /// uses it and the next field: relaxed.
    due_events: AtomicU64,
    /// Whether the message that waits for room has had the due events raised.
    has_woken_readers: AtomicBool,
}

impl Backpressure {
    /// Replaces the notifier.
    pub fn set_notifier(&self, notifier: Option<EventNotifier>) {
        *self.notifier.lock().unwrap_or_else(PoisonError::into_inner) = notifier;
    }

    /// The next message comes with these events, which are due from now on. If it must wait for
    /// room they are raised at once, since readers that sleep until an event make none.
    pub fn add_events(&self, events: u64) {
        let due = self.due_events.load(Ordering::Relaxed);
        self.due_events.store(due | events, Ordering::Relaxed);
        self.has_woken_readers.store(false, Ordering::Relaxed);
    }

    /// Raises the events that are due.
    pub fn raise_events(&self) {
        self.raise(self.due_events.load(Ordering::Relaxed));
        self.due_events.store(0, Ordering::Relaxed);
    }

    fn raise(&self, events: u64) {
        if events == 0 {
            return;
        }
        let notifier = self.notifier.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notifier) = &*notifier {
            notifier.raise(events);
        }
    }

    /// Names our own subscriber; 0 for none.
    pub fn set_own_subscriber(&self, id: u128) {
        // Relaxed: see the field.
        self.own_subscriber[0].store(id as u64, Ordering::Relaxed);
        self.own_subscriber[1].store((id >> 64) as u64, Ordering::Relaxed);
    }

    /// The publisher does not wait any more.
    pub fn stop_waiting(&self) {
        // Relaxed: looked at again at every retry.
        self.has_stopped.store(true, Ordering::Relaxed);
    }

    /// What the publisher does when the buffer of `receiver` is full. iceoryx2 calls it at every
    /// retry, in the lane's thread.
    fn when_full(&self, receiver: u128, wait: bool) -> BackpressureAction {
        if self.is_own(receiver) {
            return BackpressureAction::DiscardData;
        }
        // Relaxed: a flag that is looked at again at every retry; a count that is only read.
        if wait && !self.has_stopped.load(Ordering::Relaxed) {
            if !self.has_woken_readers.load(Ordering::Relaxed) {
                self.has_woken_readers.store(true, Ordering::Relaxed);
                // They stay due: the message that waits must be announced as well.
                self.raise(self.due_events.load(Ordering::Relaxed));
            }
            return BackpressureAction::Retry;
        }
        self.discarded.fetch_add(1, Ordering::Relaxed);
        BackpressureAction::DiscardData
    }

    fn is_own(&self, id: u128) -> bool {
        // Relaxed: see the field.
        self.own_subscriber[0].load(Ordering::Relaxed) == id as u64
            && self.own_subscriber[1].load(Ordering::Relaxed) == (id >> 64) as u64
    }
}

/// Our publisher: sends messages of other hosts to local programs.
pub struct SamplePublisher {
    publisher: Publisher<Service, [CustomPayloadMarker], CustomHeaderMarker>,
    shape: Shape,
    /// Loans of up to this many elements, a power of two, lie in the present data segment.
    roomy_elements: Cell<usize>,
    /// How often the data segment was replaced.
    generation: Cell<u32>,
}

impl SamplePublisher {
    /// A publisher. With `wait` it waits for slow readers (services without safe overflow) until
    /// `backpressure` stops that. `loans`: most messages that may be landing at a time.
    pub fn new(
        factory: &Factory,
        shape: Shape,
        wait: bool,
        loans: usize,
        backpressure: Arc<Backpressure>,
    ) -> Result<SamplePublisher, String> {
        let strategy = if wait {
            BackpressureStrategy::RetryUntilDelivered
        } else {
            BackpressureStrategy::DiscardData
        };
        let mut builder = factory
            .publisher_builder()
            .max_loaned_samples(loans.max(1))
            .backpressure_strategy(strategy)
            .set_backpressure_handler(move |info| backpressure.when_full(info.receiver_port_id, wait));
        if shape.any_length {
            builder = builder.allocation_strategy(AllocationStrategy::PowerOfTwo);
        }
        let publisher = builder.create().map_err(|e| match e {
            PublisherCreateError::ExceedsMaxSupportedPublishers => {
                "all its max_publishers places are taken".to_string()
            }
            PublisherCreateError::UnableToCreateDataSegment => {
                "its data segment can't be made; is /dev/shm full?".to_string()
            }
            other => format!("{other:?}"),
        })?;
        Ok(SamplePublisher {
            publisher,
            shape,
            roomy_elements: Cell::new(1),
            generation: Cell::new(0),
        })
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Connects to subscribers that came since the last message, and gives them the history.
    pub fn meet_subscribers(&self) {
        // An error means one subscriber can't be reached; iceoryx2 has logged it, and serves the
        // others.
        let _ = self.publisher.update_connections();
    }

    /// Loans a sample for a message of this many elements.
    pub fn loan(&self, elements: usize) -> Result<LoanedSample, LoanError> {
        if elements > self.roomy_elements.get() {
            // The data segment is replaced only here, so that its generation is known: a loan that
            // is not sent makes room for all messages up to this length.
            let roomy = elements.checked_next_power_of_two().unwrap_or(elements);
            drop(self.loan_elements(roomy)?);
            self.roomy_elements.set(roomy);
            self.generation.set(self.generation.get() + 1);
        }
        let owner = self.publisher.id().value();
        Ok(LoanedSample {
            loan: self.loan_elements(elements)?,
            user_header_bytes: self.shape.user_header_bytes,
            segment: SegmentId {
                owner,
                generation: self.generation.get(),
            },
        })
    }

    fn loan_elements(&self, elements: usize) -> Result<Loan, LoanError> {
        // SAFETY: the service's type allows more than one element wherever that is asked for
        // (`Shape::elements`).
        unsafe { self.publisher.loan_custom_payload(elements) }
    }
}

/// A loaned sample in which a message lands. Dropping it gives the loan back.
pub struct LoanedSample {
    loan: Loan,
    user_header_bytes: u32,
    segment: SegmentId,
}

impl LoanedSample {
    /// Its data segment.
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// The user header and the payload, to be filled.
    pub fn parts(&mut self) -> (&mut [u8], &mut [u8]) {
        let header: *mut CustomHeaderMarker = self.loan.user_header_mut();
        let payload = self.loan.payload_mut();
        let (payload, length) = (payload.as_mut_ptr().cast::<u8>(), payload.len());
        // SAFETY: both areas lie in the loaned chunk, apart from each other, sized by the service's
        // types; the loan is ours alone until it is sent, and `&mut self` keeps it in place. Every
        // bit pattern is a valid byte, and the mapping is initialised memory.
        unsafe {
            (
                std::slice::from_raw_parts_mut(header.cast::<u8>(), self.user_header_bytes as usize),
                std::slice::from_raw_parts_mut(payload, length),
            )
        }
    }

    /// Sends the message. Returns the number of subscribers that got it; `None` if iceoryx2 failed.
    pub fn send(self) -> Option<usize> {
        // SAFETY: the receiver fills both parts completely before it delivers (contract of
        // `busway_transport::Sink`).
        unsafe { self.loan.assume_init() }.send().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use iceoryx2::service::Service as _;

    use super::*;
    use crate::description::ServiceDescription;
    use crate::iox::domain;

    /// The mapping that contains an address, from the kernel's list.
    fn mapping_of(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel shows mappings");
        let holds = |line: &&str| {
            let (start, end) = line
                .split_once(' ')
                .and_then(|(range, _)| range.split_once('-'))
                .expect("a range");
            let number = |text| usize::from_str_radix(text, 16).expect("hexadecimal");
            (number(start)..number(end)).contains(&address)
        };
        maps.lines()
            .find(holds)
            .expect("the address is mapped")
            .to_owned()
    }

    #[test]
    fn data_segment_is_one_mapping_with_an_id_of_its_own() {
        let (_temporary, config) = domain::tests::temporary("seg");
        let node = domain::create_node(&config, "test").expect("a node");
        let name = "A".try_into().expect("valid");
        let program = node
            .service_builder(&name)
            .publish_subscribe::<[u64]>()
            .create()
            .expect("a service");
        let mut description = None;
        let _ = Service::list(&config, |service| {
            description = ServiceDescription::from_static(&config, &service.static_details);
            iceoryx2::prelude::CallbackProgression::Continue
        });
        let description = description.expect("the service is described");
        let factory = description.open(&node).expect("it opens");
        let publisher = SamplePublisher::new(&factory, Shape::of(&description), false, 4, Arc::default())
            .expect("a publisher");
        let mut segments = HashMap::new();
        // Small first, so that the segment grows several times; two loans are held at a time.
        let mut previous = None;
        for elements in [1, 1, 2, 3, 4, 3, 5, 100, 128, 127, 1, 129, 1 << 16, 5, 1 << 17] {
            let mut place = publisher.loan(elements).expect("there is memory");
            let (_, payload) = place.parts();
            let ends = [
                payload.as_ptr() as usize,
                payload.as_ptr() as usize + payload.len() - 1,
            ];
            let [mapping, other] = ends.map(mapping_of);
            assert_eq!(mapping, other, "{elements} elements lie in two mappings");
            let known = segments.entry(place.segment()).or_insert_with(|| mapping.clone());
            assert_eq!(*known, mapping, "{elements} elements");
            previous.replace(place);
        }
        assert!(segments.len() > 3, "{segments:?}");
        drop((previous, publisher, program));
    }
}
