//! Type-erased publisher and subscriber: where messages enter and leave this host's iceoryx2.
//!
//! [`Outgoing`] is a message on its way to a bus: a sample of a local program, held until the bus needs it no more.
//! [`Inlet`] is our publisher: it loans the place where a message lands and sends it. Payloads and user headers are bytes here.
#![allow(unsafe_code)] // Views of samples as bytes, each proved.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use busway_transport::{Head, Message, SegmentId};
use iceoryx2::identifiers::UniqueNodeId;
use iceoryx2::node::Node;
use iceoryx2::port::publisher::{Publisher, PublisherCreateError};
use iceoryx2::port::subscriber::{Subscriber, SubscriberCreateError};
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::port::{BackpressureAction, LoanError, ReceiveError};
use iceoryx2::prelude::{AllocationStrategy, BackpressureStrategy};
use iceoryx2::sample::Sample;
use iceoryx2::sample_mut_uninit::SampleMutUninit;
use iceoryx2::service::header::payload_header::PayloadHeader as _;
use iceoryx2::service::marker::{CustomHeaderMarker, CustomPayloadMarker};
use std::mem::MaybeUninit;

use super::Service;
use super::description::{Factory, ServiceDescription};
use super::queues::SourceQueues;

type ErasedSample = Sample<Service, [CustomPayloadMarker], CustomHeaderMarker>;
type Loan = SampleMutUninit<Service, [MaybeUninit<CustomPayloadMarker>], CustomHeaderMarker>;

/// Sizes that the ports must know to treat samples as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Size of one element of the payload in bytes.
    pub element_bytes: u64,
    /// Whether a message may have any number of elements (slices and flatbuffers).
    pub any_length: bool,
    /// Size of the user header in bytes.
    pub user_header_bytes: u32,
}

impl Shape {
    /// The shape of a service's messages.
    pub fn of(description: &ServiceDescription) -> Shape {
        Shape {
            element_bytes: description.payload.size_bytes,
            any_length: description.payload.slice || description.is_flatbuffer(),
            user_header_bytes: description.user_header.size_bytes as u32,
        }
    }

    /// How many elements a payload of this many bytes has; `None` if no message of this shape has that length.
    pub fn elements(&self, payload_bytes: u64) -> Option<usize> {
        if !self.any_length {
            return (payload_bytes == self.element_bytes).then_some(1);
        }
        match self.element_bytes {
            0 => (payload_bytes == 0).then_some(0),
            element => payload_bytes
                .is_multiple_of(element)
                .then(|| (payload_bytes / element) as usize),
        }
    }
}

/// A sample of a local program, as bytes.
pub struct LocalSample {
    sample: ErasedSample,
    user_header_bytes: u32,
    /// Whether the publisher never replaces its data segment.
    has_one_segment: bool,
}

// SAFETY: through `&LocalSample` the sample's headers and payload are only read, and nobody writes them while the sample is held (iceoryx2's contract
// for samples). Giving it back happens in `drop`, which has the sample alone, under the mutex of the thread-safe service variant.
unsafe impl Sync for LocalSample {}

impl LocalSample {
    /// The publisher's data segment, where it has one only: an id of a publisher is never given twice, and the segment stays mapped while a
    /// sample in it is held.
    fn segment(&self) -> Option<SegmentId> {
        let owner = self.sample.header().publisher_id().value();
        self.has_one_segment.then_some(SegmentId { owner, generation: 0 })
    }

    /// The payload, without the unused front that a flatbuffer leaves.
    pub fn payload(&self) -> &[u8] {
        let offset = self.sample.header().payload_offset() as usize;
        let whole = self.sample.payload();
        // SAFETY: `CustomPayloadMarker` is `repr(C)` around one `u8`, so a slice of it is a slice of bytes of the same length.
        let bytes = unsafe { std::slice::from_raw_parts(whole.as_ptr().cast::<u8>(), whole.len()) };
        bytes.get(offset..).unwrap_or(&[])
    }

    /// The user header.
    pub fn user_header(&self) -> &[u8] {
        let header: *const CustomHeaderMarker = self.sample.user_header();
        // SAFETY: the sample's user header area has the size of the service's user header type, which `Shape` took from the service itself; it stays
        // mapped and unwritten while the sample is held.
        unsafe { std::slice::from_raw_parts(header.cast::<u8>(), self.user_header_bytes as usize) }
    }
}

/// A copy of a message, for history and for several destinations of one sample.
#[derive(Debug)]
pub struct Copied {
    user_header: Box<[u8]>,
    payload: Box<[u8]>,
}

/// What an [`Outgoing`] holds.
enum Body {
    /// The sample itself, for one destination.
    Sample(LocalSample),
    /// The sample, for several destinations.
    Shared(Arc<LocalSample>),
    /// A copy, kept as history.
    Copied(Arc<Copied>),
    /// The beginning of a buffer, with a message of an ARINC 653 port.
    Port(Arc<[u8]>),
    /// Nothing: only events.
    Empty,
}

/// A message on its way to a bus. Dropping it returns the sample to its publisher.
pub struct Outgoing {
    /// Its head, of which sequence and lengths are true.
    pub head: Head,
    body: Body,
}

impl Outgoing {
    /// A message for one destination.
    pub fn sample(head: Head, sample: LocalSample) -> Outgoing {
        Outgoing {
            head,
            body: Body::Sample(sample),
        }
    }

    /// A message that shares its sample with others.
    pub fn shared(head: Head, sample: Arc<LocalSample>) -> Outgoing {
        Outgoing {
            head,
            body: Body::Shared(sample),
        }
    }

    /// A message of the history.
    pub fn copied(head: Head, copy: Arc<Copied>) -> Outgoing {
        Outgoing {
            head,
            body: Body::Copied(copy),
        }
    }

    /// A message of an ARINC 653 port, as long as the head says; `buffer` is at least that long.
    pub fn port(head: Head, buffer: Arc<[u8]>) -> Outgoing {
        Outgoing {
            head,
            body: Body::Port(buffer),
        }
    }

    /// Events without a payload.
    pub fn events(head: Head) -> Outgoing {
        Outgoing {
            head,
            body: Body::Empty,
        }
    }
}

impl Copied {
    /// Copies a sample.
    pub fn of(sample: &LocalSample) -> Copied {
        Copied {
            user_header: sample.user_header().into(),
            payload: sample.payload().into(),
        }
    }
}

impl Message for Outgoing {
    fn head(&self) -> &Head {
        &self.head
    }

    fn user_header(&self) -> &[u8] {
        match &self.body {
            Body::Sample(sample) => sample.user_header(),
            Body::Shared(sample) => sample.user_header(),
            Body::Copied(copy) => &copy.user_header,
            Body::Port(_) | Body::Empty => &[],
        }
    }

    fn payload(&self) -> &[u8] {
        match &self.body {
            Body::Sample(sample) => sample.payload(),
            Body::Shared(sample) => sample.payload(),
            Body::Copied(copy) => &copy.payload,
            Body::Port(buffer) => &buffer[..self.head.payload_bytes as usize],
            Body::Empty => &[],
        }
    }

    fn segment(&self) -> Option<SegmentId> {
        match &self.body {
            Body::Sample(sample) => sample.segment(),
            Body::Shared(sample) => sample.segment(),
            Body::Copied(_) | Body::Port(_) | Body::Empty => None,
        }
    }
}

/// As many samples as a subscriber of the service may hold are on their way to a bus: no more can be taken until one of them has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyHeld;

/// Our subscriber: takes the samples of local programs.
pub struct Outlet {
    subscriber: Subscriber<Service, [CustomPayloadMarker], CustomHeaderMarker>,
    own_node: UniqueNodeId,
    user_header_bytes: u32,
    queues: SourceQueues,
    safe_overflow: bool,
}

impl Outlet {
    /// A subscriber with the service's largest buffer and whole history.
    ///
    /// # Errors
    /// iceoryx2's reason, in words.
    pub fn new(
        factory: &Factory,
        node: &Node<Service>,
        description: &ServiceDescription,
    ) -> Result<Outlet, String> {
        let shape = Shape::of(description);
        let subscriber = factory.subscriber_builder().create().map_err(|e| match e {
            SubscriberCreateError::ExceedsMaxSupportedSubscribers => {
                "all its max_subscribers places are taken".to_string()
            }
            other => format!("{other:?}"),
        })?;
        let queues = SourceQueues::new(node.config(), subscriber.id().value());
        Ok(Outlet {
            subscriber,
            own_node: *node.id(),
            user_header_bytes: shape.user_header_bytes,
            queues,
            safe_overflow: description.settings.safe_overflow,
        })
    }

    /// The id by which publishers know this subscriber.
    pub fn id(&self) -> u128 {
        self.subscriber.id().value()
    }

    /// Whether something waits from a publisher that has sent before: cheap, but blind for new publishers.
    pub fn has_waiting(&self) -> bool {
        self.queues.has_waiting()
    }

    /// The next sample of a *program*: what our own publisher sent into this service is passed over here, so nothing that came from
    /// another host ever leaves again. The number is how many samples were lost to overflow in our queue since the last one.
    ///
    /// # Errors
    /// [`TooManyHeld`]: something may wait all the same.
    pub fn receive(&mut self) -> Result<Option<(LocalSample, u64)>, TooManyHeld> {
        loop {
            let sample = match self.subscriber.receive() {
                Ok(Some(sample)) => sample,
                Err(ReceiveError::ExceedsMaxBorrows) => return Err(TooManyHeld),
                // An error (a publisher whose segment can't be mapped) leaves the others' samples for the next call.
                Ok(None) | Err(_) => return Ok(None),
            };
            if sample.header().node_id() == self.own_node {
                continue;
            }
            let publisher = sample.header().publisher_id().value();
            let taken = self.queues.taken(publisher);
            let lost = if self.safe_overflow { taken.lost } else { 0 };
            let sample = LocalSample {
                has_one_segment: taken.has_one_segment,
                sample,
                user_header_bytes: self.user_header_bytes,
            };
            return Ok(Some((sample, lost)));
        }
    }
}

/// Shared between our publisher and whoever must keep it from waiting.
#[derive(Debug, Default)]
pub struct Patience {
    /// Our own subscriber in the same service, whom the publisher never waits for; both halves are written before the publisher
    /// meets it and read relaxed: a stale value costs one retry.
    own_subscriber: [AtomicU64; 2],
    /// Set when the publisher shall give up waiting (shutdown, the flow is being taken down).
    give_up: AtomicBool,
    /// Samples that a full reader of a service without safe overflow did not get, because the rule says not to wait or waiting was given up.
    pub discarded: AtomicU64,
}

impl Patience {
    /// Names our own subscriber; 0 for none.
    pub fn set_own_subscriber(&self, id: u128) {
        // Relaxed: see the field.
        self.own_subscriber[0].store(id as u64, Ordering::Relaxed);
        self.own_subscriber[1].store((id >> 64) as u64, Ordering::Relaxed);
    }

    /// The publisher gives up waiting, now and from now on.
    pub fn stop_waiting(&self) {
        // Relaxed: looked at again at every retry.
        self.give_up.store(true, Ordering::Relaxed);
    }

    /// What the publisher does when the buffer of `receiver` is full. Called by iceoryx2 at every retry, in the lane's thread.
    fn judge(&self, receiver: u128, wait: bool) -> BackpressureAction {
        if self.is_own(receiver) {
            return BackpressureAction::DiscardData;
        }
        // Relaxed: a flag that is looked at again at every retry; a count that is only read.
        if wait && !self.give_up.load(Ordering::Relaxed) {
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

/// Our publisher: gives local programs what came from other hosts.
pub struct Inlet {
    publisher: Publisher<Service, [CustomPayloadMarker], CustomHeaderMarker>,
    shape: Shape,
    /// Loans of up to so many elements lie in the present data segment, a power of two; how often it was replaced.
    roomy_elements: Cell<usize>,
    generation: Cell<u32>,
}

impl Inlet {
    /// A publisher. With `wait` it waits for slow readers (services without safe overflow) until `patience` says otherwise.
    /// `places` is how many messages may be landing at a time.
    ///
    /// # Errors
    /// iceoryx2's reason, in words.
    pub fn new(
        factory: &Factory,
        shape: Shape,
        wait: bool,
        places: usize,
        patience: Arc<Patience>,
    ) -> Result<Inlet, String> {
        let strategy = if wait {
            BackpressureStrategy::RetryUntilDelivered
        } else {
            BackpressureStrategy::DiscardData
        };
        let mut builder = factory
            .publisher_builder()
            .max_loaned_samples(places.max(1))
            .backpressure_strategy(strategy)
            .set_backpressure_handler(move |info| patience.judge(info.receiver_port_id, wait));
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
        Ok(Inlet {
            publisher,
            shape,
            roomy_elements: Cell::new(1),
            generation: Cell::new(0),
        })
    }

    /// The shape of this service's messages.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Meets subscribers that came since the last message, and gives them the history.
    pub fn meet_subscribers(&self) {
        // An error means one subscriber can't be reached; iceoryx2 has said so, the others are served.
        let _ = self.publisher.update_connections();
    }

    /// Loans a place for a message of this many elements.
    ///
    /// # Errors
    /// No memory for the loan.
    pub fn loan(&self, elements: usize) -> Result<Place, LoanError> {
        if elements > self.roomy_elements.get() {
            // The data segment is replaced here and nowhere else, so that its generation is known: a loan that is not sent makes room for all
            // up to this length.
            let roomy = elements.checked_next_power_of_two().unwrap_or(elements);
            drop(self.loan_elements(roomy)?);
            self.roomy_elements.set(roomy);
            self.generation.set(self.generation.get() + 1);
        }
        let owner = self.publisher.id().value();
        Ok(Place {
            loan: self.loan_elements(elements)?,
            user_header_bytes: self.shape.user_header_bytes,
            segment: SegmentId {
                owner,
                generation: self.generation.get(),
            },
        })
    }

    fn loan_elements(&self, elements: usize) -> Result<Loan, LoanError> {
        // SAFETY: more than one element is asked for only where the service's type allows it (`Shape::elements`).
        unsafe { self.publisher.loan_custom_payload(elements) }
    }
}

/// A loaned sample in which a message lands. Dropping it gives the loan back.
pub struct Place {
    loan: Loan,
    user_header_bytes: u32,
    segment: SegmentId,
}

impl Place {
    /// The data segment that the place lies in.
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// The user header and the payload, to be filled.
    pub fn parts(&mut self) -> (&mut [u8], &mut [u8]) {
        let header: *mut CustomHeaderMarker = self.loan.user_header_mut();
        let payload = self.loan.payload_mut();
        let (payload, length) = (payload.as_mut_ptr().cast::<u8>(), payload.len());
        // SAFETY: both areas lie in the loaned chunk, apart from each other, sized by the service's types; the loan is ours alone until it
        // is sent, and `&mut self` keeps it in place. Every bit pattern is a valid byte, and the mapping is initialised memory.
        unsafe {
            (
                std::slice::from_raw_parts_mut(header.cast::<u8>(), self.user_header_bytes as usize),
                std::slice::from_raw_parts_mut(payload, length),
            )
        }
    }

    /// Sends the message. Returns the number of subscribers that got it; `None` if iceoryx2 failed.
    pub fn send(self) -> Option<usize> {
        // SAFETY: the receiver fills both parts completely before it delivers (contract of `busway_transport::Sink`).
        unsafe { self.loan.assume_init() }.send().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use iceoryx2::service::Service as _;

    use super::*;
    use crate::iox::domain;

    /// The mapping that an address lies in, as the kernel shows it.
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
    fn a_segment_of_the_inlet_is_one_mapping_and_no_other_has_its_name() {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let config = domain::config(&busway_system::Iceoryx2Domain {
            root_path: Some(temporary.path().into()),
            prefix: Some(format!("seg{}_", std::process::id())),
            ..Default::default()
        })
        .expect("valid");
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
        let inlet =
            Inlet::new(&factory, Shape::of(&description), false, 4, Arc::default()).expect("a publisher");
        let mut segments = HashMap::new();
        // Small first, so that the segment grows several times; two places are held at a time.
        let mut previous = None;
        for elements in [1, 1, 2, 3, 4, 3, 5, 100, 128, 127, 1, 129, 1 << 16, 5, 1 << 17] {
            let mut place = inlet.loan(elements).expect("there is memory");
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
        drop((previous, inlet, program));
    }
}
