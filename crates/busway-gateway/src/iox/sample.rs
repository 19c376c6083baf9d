//! Messages for a bus: samples of local programs, copies of them, and messages of ports.
//!
//! Payloads and user headers are bytes here.
#![allow(unsafe_code)] // Views of samples as bytes, each proved.

use std::sync::Arc;

use busway_transport::{Head, Message, SegmentId};
use iceoryx2::sample::Sample;
use iceoryx2::service::marker::{CustomHeaderMarker, CustomPayloadMarker};

use super::Service;

pub(super) type ErasedSample = Sample<Service, [CustomPayloadMarker], CustomHeaderMarker>;

/// A sample of a local program, as bytes.
pub struct LocalSample {
    pub(super) sample: ErasedSample,
    pub(super) user_header_bytes: u32,
    /// Whether the publisher never replaces its data segment.
    pub(super) has_one_segment: bool,
}

// SAFETY: through `&LocalSample` the sample's headers and payload are only read, and nobody writes
// them while the sample is held (iceoryx2's contract for samples). `drop` returns it, which has the
// sample alone, under the mutex of the thread-safe service variant.
unsafe impl Sync for LocalSample {}

impl LocalSample {
    /// The publisher's data segment, if it has only one: no two publishers ever have the same id,
    /// and the segment stays mapped while a sample in it is held.
    fn segment(&self) -> Option<SegmentId> {
        let owner = self.sample.header().publisher_id().value();
        self.has_one_segment.then_some(SegmentId { owner, generation: 0 })
    }

    /// The payload, without the unused front that a flatbuffer leaves.
    pub fn payload(&self) -> &[u8] {
        let offset = self.sample.header().payload_offset() as usize;
        let whole = self.sample.payload();
        // SAFETY: `CustomPayloadMarker` is `repr(C)` around one `u8`, so a slice of it is a slice
        // of bytes of the same length.
        let bytes = unsafe { std::slice::from_raw_parts(whole.as_ptr().cast::<u8>(), whole.len()) };
        bytes.get(offset..).unwrap_or(&[])
    }

    pub fn user_header(&self) -> &[u8] {
        let header: *const CustomHeaderMarker = self.sample.user_header();
        // SAFETY: the sample's user header area has the size of the service's user header type,
        // which `Shape` took from the service itself; it stays mapped and unwritten while the
        // sample is held.
        unsafe { std::slice::from_raw_parts(header.cast::<u8>(), self.user_header_bytes as usize) }
    }
}

/// A copy of a message, for history and for several destinations of one sample.
#[derive(Debug)]
pub struct CopiedSample {
    user_header: Box<[u8]>,
    payload: Box<[u8]>,
}

/// The contents of an [`Outgoing`].
enum Body {
    /// The sample itself, for one destination.
    Sample(LocalSample),
    /// The sample, for several destinations.
    Shared(Arc<LocalSample>),
    /// A copy, kept as history.
    Copied(Arc<CopiedSample>),
    /// The beginning of a buffer, with a message of an ARINC 653 port.
    Port(Arc<[u8]>),
    /// No payload: only events.
    Empty,
}

/// A message for a bus. Dropping it returns the sample to its publisher.
pub struct Outgoing {
    pub head: Head,
    body: Body,
}

impl Outgoing {
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

    pub fn copied(head: Head, copy: Arc<CopiedSample>) -> Outgoing {
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

    pub fn events(head: Head) -> Outgoing {
        Outgoing {
            head,
            body: Body::Empty,
        }
    }
}

impl CopiedSample {
    pub fn of(sample: &LocalSample) -> CopiedSample {
        CopiedSample {
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
