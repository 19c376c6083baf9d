//! How a service is carried: from the system file's rule and the service's own settings.
//!
//! Plain functions, used by [`super::service_flow`], [`super::routes`] and the shell.

use busway_system::{KeepRule, Link, Policy, ServicePlan};
use busway_transport::{ChannelSpec, HEAD_BYTES, Keep};

use crate::description::ServiceDescription;

pub use crate::lane::WhenFull;

/// What the system file says of a service.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whether it crosses at all.
    pub crosses: bool,
    /// Its rule, if there is one.
    pub keep: Option<KeepRule>,
    /// Index of its lane.
    pub lane: usize,
    /// The buses that may carry it, the best first; empty: all of the links, in their order.
    pub buses: Vec<String>,
}

impl From<ServicePlan<'_>> for Plan {
    fn from(plan: ServicePlan<'_>) -> Plan {
        Plan {
            crosses: plan.crosses,
            keep: plan.keep,
            lane: plan.lane,
            buses: plan.buses.to_vec(),
        }
    }
}

impl Plan {
    /// Whether a bus may carry it at all, where a link has it.
    pub fn may_take(&self, bus: &str) -> bool {
        self.buses.is_empty() || self.buses.iter().any(|named| named == bus)
    }

    /// How well a bus of a link carries messages of at most `max_size_bytes` bytes, less is better;
    /// `None` if it may not.
    pub fn rank_of(
        &self,
        (number, link): (usize, &Link),
        bus: &str,
        max_size_bytes: u64,
    ) -> Option<(usize, usize)> {
        if self.buses.is_empty() {
            let mut buses = link.buses_for(max_size_bytes);
            return Some((number, buses.position(|other| other.name() == bus)?));
        }
        let named = self.buses.iter().position(|named| named == bus)?;
        Some((named, number))
    }

    /// What a full channel does with the next sample.
    pub fn when_full(&self, description: &ServiceDescription) -> WhenFull {
        let by_settings = if description.settings.safe_overflow {
            WhenFull::DropOldest
        } else {
            WhenFull::Wait
        };
        match self.keep {
            None | Some(KeepRule::All { policy: None, .. }) => by_settings,
            Some(KeepRule::Latest) => WhenFull::DropOldest,
            Some(KeepRule::All {
                policy: Some(policy), ..
            }) => match policy {
                Policy::Block => WhenFull::Wait,
                Policy::DropOldest => WhenFull::DropOldest,
                Policy::DropNewest => WhenFull::DropNewest,
            },
        }
    }

    /// Whether our publisher waits for slow local readers, and so needs a lane of its own.
    pub fn publisher_waits(&self, description: &ServiceDescription) -> bool {
        !description.settings.safe_overflow && self.when_full(description) == WhenFull::Wait
    }

    /// The shape of a channel of the service.
    pub fn channel_spec(&self, description: &ServiceDescription) -> ChannelSpec {
        /// Length that a slice or flatbuffer is laid out for before the first has come; longer ones
        /// pass in pieces.
        const UNKNOWN_LENGTH_BYTES: u64 = 64 << 10;
        /// Bytes under way at most, unless a rule asks for more.
        const UNDER_WAY_BYTES: u64 = 8 << 20;
        const DEPTHS: std::ops::RangeInclusive<u64> = 4..=1024;

        let payload_bytes = if is_any_length(description) {
            UNKNOWN_LENGTH_BYTES.max(description.payload.size_bytes)
        } else {
            description.payload.size_bytes
        };
        let message_bytes = HEAD_BYTES as u64 + description.user_header.size_bytes + payload_bytes;
        let by_settings = (UNDER_WAY_BYTES / message_bytes)
            .clamp(*DEPTHS.start(), *DEPTHS.end())
            .max(description.settings.subscriber_max_buffer_size.min(*DEPTHS.end()))
            as u32;
        let keep = match self.keep {
            Some(KeepRule::Latest) => Keep::Latest,
            Some(KeepRule::All {
                depth: Some(depth), ..
            }) => Keep::All { depth },
            None | Some(KeepRule::All { depth: None, .. }) => Keep::All { depth: by_settings },
        };
        ChannelSpec { keep, message_bytes }
    }
}

/// Whether messages of the service may have any length; else all are as long as the longest.
pub fn is_any_length(description: &ServiceDescription) -> bool {
    description.payload.slice || description.is_flatbuffer()
}
