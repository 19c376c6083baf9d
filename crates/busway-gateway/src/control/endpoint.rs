//! What a flow joins on this host: the programs of an iceoryx2 service, or a port of ARINC 653.
//!
//! Contract: the state machine of channels ([`super::inbound`], [`super::outbound`]) asks an
//! endpoint only what is asked here. A new messaging pattern is a new variant and its module.

use busway_transport::ChannelSpec;

use super::link::Link;
use super::port::PortEndpoint;
use super::service::ServiceEndpoint;
use crate::protocol::ControlMessage;

/// See the module.
pub enum Endpoint {
    /// An iceoryx2 publish/subscribe service; its source and destination are made on demand.
    Service(Box<ServiceEndpoint>),
    /// One end of a channel of ARINC 653 ports; it lasts as long as the gateway.
    Port(PortEndpoint),
}

impl Endpoint {
    /// For log lines.
    pub fn describe(&self, name: &str) -> String {
        match self {
            Endpoint::Service(_) => format!("service {name:?}"),
            Endpoint::Port(port) => {
                let way = if port.leaves { "to" } else { "from" };
                format!("channel {name:?} {way} {:?}", port.peer)
            }
        }
    }

    /// Whether a link may carry the flow at all.
    pub fn may_take(&self, index: usize, link: &Link) -> bool {
        match self {
            Endpoint::Service(service) => service.plan.may_take(link.profile.bus),
            Endpoint::Port(port) => port.route_over(index).is_some(),
        }
    }

    /// Whether the source at the end of this link still exists, as far as the peer has told.
    pub fn is_published_over(&self, name: &str, link: &Link) -> bool {
        match self {
            Endpoint::Service(_) => link
                .offers
                .get(name)
                .is_some_and(|offer| offer.longest_bytes.is_some()),
            Endpoint::Port(_) => true,
        }
    }

    /// Whether only one channel at a time may take the source's messages: the store of a port keeps
    /// what is unacknowledged, for one reader.
    pub fn source_is_exclusive(&self) -> bool {
        matches!(self, Endpoint::Port(_))
    }

    /// Whether a failed receiving end is opened anew only after a back-off even where no other link
    /// leads to the host.
    pub fn backs_off_alone(&self) -> bool {
        matches!(self, Endpoint::Port(_))
    }

    /// Asks the peer to send over a channel.
    pub fn open_message(
        &self,
        name: &str,
        channel: u32,
        spec: ChannelSpec,
        landing: Vec<u8>,
        large_from_bytes: Option<u64>,
    ) -> ControlMessage {
        match self {
            Endpoint::Service(_) => ControlMessage::Open {
                channel,
                service: name.to_string(),
                spec: spec.into(),
                landing,
                large_from_bytes,
            },
            Endpoint::Port(_) => ControlMessage::OpenPort {
                channel,
                name: name.to_string(),
                spec: spec.into(),
                landing,
            },
        }
    }
}
