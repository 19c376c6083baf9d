//! The gateway's subscriber in a service: takes the samples of local programs.

use iceoryx2::identifiers::{UniqueNodeId, UniqueServiceId};
use iceoryx2::node::Node;
use iceoryx2::port::ReceiveError;
use iceoryx2::port::subscriber::{Subscriber, SubscriberCreateError};
use iceoryx2::service::header::payload_header::PayloadHeader as _;
use iceoryx2::service::marker::{CustomHeaderMarker, CustomPayloadMarker};
use iceoryx2::service::port_factory::PortFactory as _;

use super::Service;
use super::queues::SourceQueues;
use super::sample::LocalSample;
use super::service::Factory;
use crate::description::{ServiceDescription, Shape};

/// The buses hold as many samples as a subscriber of the service may hold: none can be taken until
/// one is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyHeld;

/// Our subscriber: takes the samples of local programs.
pub struct SampleSubscriber {
    subscriber: Subscriber<Service, [CustomPayloadMarker], CustomHeaderMarker>,
    own_node: UniqueNodeId,
    user_header_bytes: u32,
    queues: SourceQueues,
    service: UniqueServiceId,
    safe_overflow: bool,
}

impl SampleSubscriber {
    /// A subscriber with the service's largest buffer and whole history.
    pub fn new(
        factory: &Factory,
        node: &Node<Service>,
        description: &ServiceDescription,
    ) -> Result<SampleSubscriber, String> {
        let shape = Shape::of(description);
        let subscriber = factory.subscriber_builder().create().map_err(|e| match e {
            SubscriberCreateError::ExceedsMaxSupportedSubscribers => {
                "all its max_subscribers places are taken".to_string()
            }
            other => format!("{other:?}"),
        })?;
        let queues = SourceQueues::new(node.config(), subscriber.id().value());
        Ok(SampleSubscriber {
            subscriber,
            own_node: *node.id(),
            user_header_bytes: shape.user_header_bytes,
            queues,
            service: factory.unique_service_id(),
            safe_overflow: description.settings.safe_overflow,
        })
    }

    /// The id by which publishers know this subscriber.
    pub fn id(&self) -> u128 {
        self.subscriber.id().value()
    }

    /// Meets the publishers that iceoryx2 has connected to with the last
    /// [`receive`](Self::receive): [`has_waiting`](Self::has_waiting) sees their first sample.
    pub fn meet_publishers(&mut self) {
        self.queues.meet_all(self.service, &self.own_node);
    }

    /// Whether a sample waits, of a publisher that was met or has sent before: cheap, but blind to
    /// others.
    pub fn has_waiting(&self) -> bool {
        self.queues.has_waiting()
    }

    /// The next sample of a *program*: samples of our own publisher are skipped here, so no message
    /// of another host leaves this host again. The number is how many samples our queue lost to
    /// overflow since the last one.
    ///
    /// # Errors
    /// [`TooManyHeld`]: a sample may wait all the same.
    pub fn receive(&mut self) -> Result<Option<(LocalSample, u64)>, TooManyHeld> {
        loop {
            let sample = match self.subscriber.receive() {
                Ok(Some(sample)) => sample,
                Err(ReceiveError::ExceedsMaxBorrows) => return Err(TooManyHeld),
                // An error (a publisher whose segment can't be mapped) leaves the others' samples
                // for the next call.
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
