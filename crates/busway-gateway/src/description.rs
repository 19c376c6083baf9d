//! Publish/subscribe services as hosts describe them to each other: types, settings and attributes.
//!
//! Plain data, without iceoryx2. Types must agree to the letter. Settings of services that already
//! exist on both hosts may differ and are then reported, since each host's programs chose theirs.
//! Made and used by [`crate::iox::service`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name under which iceoryx2 0.10 registers payloads that are flatbuffers.
pub(crate) const FLATBUFFER_TYPE: &str = "iox2::Flatbuffer";

/// A type as iceoryx2 compares it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TypeDescription {
    pub name: String,
    /// Whether messages are slices of it.
    pub slice: bool,
    /// Size of one element in bytes.
    pub size_bytes: u64,
    pub alignment_bytes: u64,
}

impl fmt::Display for TypeDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.slice { ("[", "]") } else { ("", "") };
        write!(
            f,
            "{open}{}{close} ({} B, alignment {})",
            self.name, self.size_bytes, self.alignment_bytes
        )
    }
}

/// The settings that a program can require when it opens the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub max_publishers: u64,
    pub max_subscribers: u64,
    pub max_nodes: u64,
    /// Samples that a late joiner can get.
    pub history_size: u64,
    /// Most samples waiting in a subscriber.
    pub subscriber_max_buffer_size: u64,
    /// Most samples that a subscriber may hold.
    pub subscriber_max_borrowed_samples: u64,
    /// Whether a full subscriber loses its oldest sample (true) or makes the publisher wait
    /// (false).
    pub safe_overflow: bool,
}

/// A publish/subscribe service, without anything local.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceDescription {
    pub name: String,
    pub payload: TypeDescription,
    /// The user header's type; `()` where there is none.
    pub user_header: TypeDescription,
    pub settings: Settings,
    /// Attributes: key and value, in the order of iceoryx2.
    pub attributes: Vec<(String, String)>,
    /// The binary flatbuffer schema, where the payload is a flatbuffer.
    pub schema: Option<Vec<u8>>,
}

impl ServiceDescription {
    pub fn is_flatbuffer(&self) -> bool {
        self.payload.name == FLATBUFFER_TYPE
    }

    /// Whether the schema that belongs to the payload is missing.
    pub fn lacks_schema(&self) -> bool {
        self.is_flatbuffer() && self.schema.is_none()
    }

    /// Why messages of `self` can't be messages of `other`, in words; `None` if they can.
    pub fn type_conflict(&self, other: &ServiceDescription) -> Option<String> {
        let mut conflicts = Vec::new();
        if self.payload != other.payload {
            conflicts.push(format!("payload {} here, {} there", self.payload, other.payload));
        }
        if self.user_header != other.user_header {
            conflicts.push(format!(
                "user header {} here, {} there",
                self.user_header, other.user_header
            ));
        }
        if self.schema != other.schema {
            conflicts.push("flatbuffer schemas differ".into());
        }
        (!conflicts.is_empty()).then(|| conflicts.join("; "))
    }
}

/// Sizes that a publisher or subscriber needs to treat samples as bytes.
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
    pub fn of(description: &ServiceDescription) -> Shape {
        Shape {
            element_bytes: description.payload.size_bytes,
            any_length: description.payload.slice || description.is_flatbuffer(),
            user_header_bytes: description.user_header.size_bytes as u32,
        }
    }

    /// The number of elements in a payload of this many bytes; `None` if no message of this shape
    /// has that length.
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
