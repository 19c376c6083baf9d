//! What two gateways say to each other over the control conversation of a link.
//!
//! Offers tell which services live on a host; the receiving side of a service opens the channel, since it owns the landing place.
//! Encoded with postcard. A peer's bytes are hostile: decoding checks them, and every use checks again what it names.

use busway_transport::{ChannelSpec, Keep};
use serde::{Deserialize, Serialize};

use crate::description::ServiceDescription;

/// Said of itself in the hello; peers that say something else carry nothing with us.
pub fn application() -> String {
    format!(
        "iceoryx2 {} gateway-protocol {PROTOCOL_VERSION}",
        crate::iox::domain::ICEORYX2_VERSION
    )
}

/// Raised whenever a message below changes.
pub const PROTOCOL_VERSION: u32 = 5;

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Say {
    /// Programs on my host have this service open; sent again when something of it changes.
    Offer {
        /// Types and settings.
        description: ServiceDescription,
        /// If a program there publishes: length in bytes of its longest messages, by which the receiver chooses a bus. Of slices it is the length for
        /// which the publisher was made; one that grows later is not seen to.
        longest_bytes: Option<u64>,
    },
    /// No program on my host has this service open any more.
    Withdraw {
        /// The service's name.
        service: String,
    },
    /// Send me this service's messages.
    Open {
        /// Names the channel, chosen by the receiver.
        channel: u32,
        /// The service's name.
        service: String,
        /// Depth and size of the channel.
        spec: Spec,
        /// Where the messages land, as the bus describes it.
        landing: Vec<u8>,
        /// If this is a second channel beside the service's main one to me: it is for messages with so many bytes of payload and more.
        large_from_bytes: Option<u64>,
    },
    /// My end of this second channel is in use: send by it.
    Use {
        /// The channel.
        channel: u32,
    },
    /// I want no more of this channel's messages.
    Close {
        /// The channel.
        channel: u32,
        /// What becomes of the messages that programs have published before. One of ports makes no difference: what was not confirmed comes again.
        parting: Parting,
    },
    /// My end of this channel, that sends, is gone; its landing place is free.
    Closed {
        /// The channel.
        channel: u32,
        /// Why, if the receiver did not ask for it.
        reason: Option<String>,
    },
    /// Send me the messages of this channel of ARINC 653 ports, whose source is on your host.
    OpenPort {
        /// Names the bus's channel, chosen by the receiver, of the same numbers as those of services.
        channel: u32,
        /// The channel's name in the system file.
        name: String,
        /// Depth and size.
        spec: Spec,
        /// Where the messages land, as the bus describes it.
        landing: Vec<u8>,
    },
    /// What time is it?
    AskTime {
        /// My `CLOCK_MONOTONIC` in ns.
        asked_ns: i64,
    },
    /// The answer.
    TellTime {
        /// As in the question.
        asked_ns: i64,
        /// The answerer's `CLOCK_MONOTONIC` in ns when it heard the question.
        heard_ns: i64,
        /// The same when it answered.
        answered_ns: i64,
    },
}

/// How a receiver leaves a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parting {
    /// Nobody on its host wants what is left.
    Unwanted,
    /// What programs have published before shall still come.
    Drained,
    /// Its end has failed: what it had not confirmed may be lost, and it asks anew.
    Failed,
}

/// [`ChannelSpec`] as it is told to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Messages on their way at most; `None` for a channel that keeps the latest.
    pub depth: Option<u32>,
    /// See [`ChannelSpec::message_bytes`].
    pub message_bytes: u64,
}

impl From<ChannelSpec> for Spec {
    fn from(spec: ChannelSpec) -> Self {
        let depth = match spec.keep {
            Keep::Latest => None,
            Keep::All { depth } => Some(depth),
        };
        Spec {
            depth,
            message_bytes: spec.message_bytes,
        }
    }
}

impl From<Spec> for ChannelSpec {
    fn from(spec: Spec) -> Self {
        let keep = spec
            .depth
            .map_or(Keep::Latest, |depth| Keep::All { depth: depth.max(1) });
        ChannelSpec {
            keep,
            message_bytes: spec.message_bytes,
        }
    }
}

impl Say {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data always encodes")
    }

    /// From a peer's bytes; `None` if they are no message.
    pub fn decode(bytes: &[u8]) -> Option<Say> {
        postcard::from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_survive_the_wire() {
        for say in [
            Say::Withdraw { service: "a".into() },
            Say::Open {
                channel: 1,
                service: "b".into(),
                spec: Spec {
                    depth: None,
                    message_bytes: 3,
                },
                landing: vec![1, 2],
                large_from_bytes: Some(65536),
            },
            Say::Use { channel: 2 },
            Say::Close {
                channel: 3,
                parting: Parting::Failed,
            },
            Say::Closed {
                channel: 7,
                reason: Some("why".into()),
            },
        ] {
            assert_eq!(Say::decode(&say.encode()), Some(say));
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_read_but_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = Say::decode(&bytes);
        }
    }
}
