//! Control messages: what two gateways send each other over the control conversation of a link.
//!
//! A host offers the services that live there; the receiving side of a service opens the channel,
//! since it owns the landing place. Encoded with postcard. A peer's bytes are hostile: decoding
//! checks them, and every use checks again what they name.

use busway_transport::{ChannelSpec, Keep};
use serde::{Deserialize, Serialize};

use crate::description::ServiceDescription;

/// This gateway's version line in the hello; nothing is carried to a peer whose line differs.
pub fn application() -> String {
    format!(
        "iceoryx2 {} gateway-protocol {PROTOCOL_VERSION}",
        crate::iox::domain::ICEORYX2_VERSION
    )
}

/// Raised whenever a message below changes.
pub const PROTOCOL_VERSION: u32 = 5;

/// One control message, from the point of view of its sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlMessage {
    /// Programs on my host have this service open; sent again when something of it changes.
    Offer {
        /// Types and settings.
        description: ServiceDescription,
        /// If a program there publishes: length in bytes of its longest message, by which the
        /// receiver chooses a bus. For slices it is the length for which the publisher was made;
        /// one that grows later is not followed.
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
        /// If this is a second channel beside the service's main one to me: the bytes of payload
        /// from which on a message takes it.
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
        /// Whether to deliver messages published before. For ports it makes no difference: the
        /// sender repeats what is unacknowledged.
        reason: CloseReason,
    },
    /// My end of this channel, that sends, is gone; its landing place is free.
    Closed {
        /// The channel.
        channel: u32,
        /// Why, if the receiver did not ask for it.
        reason: Option<String>,
    },
    /// Send me the messages of this channel of ARINC 653 ports; its source is on your host.
    OpenPort {
        /// Names the bus's channel, chosen by the receiver; one numbering with channels of
        /// services.
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
        /// The answerer's `CLOCK_MONOTONIC` in ns when the question arrived.
        heard_ns: i64,
        /// The same when it answered.
        answered_ns: i64,
    },
}

/// Why a receiver closes a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CloseReason {
    /// No program on its host wants the messages that are left.
    Unwanted,
    /// Messages published before shall still come.
    Drained,
    /// Its end has failed: unacknowledged messages may be lost, and it opens a new channel.
    Failed,
}

/// [`ChannelSpec`] as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The most unacknowledged messages; `None` for a channel that keeps the latest.
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

impl ControlMessage {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data always encodes")
    }

    /// From a peer's bytes; `None` if they are no message.
    pub fn decode(bytes: &[u8]) -> Option<ControlMessage> {
        postcard::from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encoded_messages_decode_to_themselves() {
        for message in [
            ControlMessage::Withdraw { service: "a".into() },
            ControlMessage::Open {
                channel: 1,
                service: "b".into(),
                spec: Spec {
                    depth: None,
                    message_bytes: 3,
                },
                landing: vec![1, 2],
                large_from_bytes: Some(65536),
            },
            ControlMessage::Use { channel: 2 },
            ControlMessage::Close {
                channel: 3,
                reason: CloseReason::Failed,
            },
            ControlMessage::Closed {
                channel: 7,
                reason: Some("why".into()),
            },
        ] {
            assert_eq!(ControlMessage::decode(&message.encode()), Some(message));
        }
    }

    proptest! {
        #[test]
        fn decoding_garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = ControlMessage::decode(&bytes);
        }
    }
}
