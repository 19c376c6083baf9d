//! What a process of a partition and the gateway tell each other.
//!
//! Contract: one message is one packet of the socket, at most [`MAX_BYTES`] long: the version, then
//! postcard. Both sides take what they receive for hostile: another build may run at the other end.

use serde::{Deserialize, Serialize};

/// Counts up with every change here.
const VERSION: u8 = 1;
/// The longest message, in bytes; a description of a register has about a hundred.
pub(super) const MAX_BYTES: usize = 1024;
/// The longest reason, in bytes.
const MAX_REASON_BYTES: usize = 400;

/// The gateway's port of a channel that leaves the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GatewayPort<'a> {
    /// The partition that stands for the other host.
    pub(super) host: &'a str,
    /// The port's name in it.
    pub(super) port: &'a str,
}

/// From a process to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToGateway<'a> {
    /// Whether the process can write the channel's register over this link, index in
    /// `System::links`.
    Ability {
        #[serde(borrow)]
        place: GatewayPort<'a>,
        link: u32,
        why_not: Option<&'a str>,
    },
    /// It writes.
    Connected { place: GatewayPort<'a>, ticket: u64 },
    /// It could not connect, or its queue pair has ended.
    Ended {
        place: GatewayPort<'a>,
        ticket: u64,
        why: &'a str,
    },
}

/// From the gateway to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToPartition<'a> {
    /// Connect to this register. What is connected of the channel ends before.
    Connect {
        #[serde(borrow)]
        place: GatewayPort<'a>,
        /// Names the connection in answers.
        ticket: u64,
        link: u32,
        /// As in `RegisterTicket`.
        channel: u32,
        session: u64,
        peer_session: u64,
        origin: u64,
        landing: &'a [u8],
    },
    /// End that connection.
    End { place: GatewayPort<'a>, ticket: u64 },
}

/// A message in a buffer of its own.
pub(super) struct Packet {
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl Packet {
    /// `None`: it is too long, which only a landing description of another build can be.
    pub(super) fn new(message: &impl Serialize) -> Option<Packet> {
        let mut bytes = [0; MAX_BYTES];
        bytes[0] = VERSION;
        let length = 1 + postcard::to_slice(message, &mut bytes[1..]).ok()?.len();
        Some(Packet { bytes, length })
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Reads a message; `None` if it is none.
pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let (version, bytes) = bytes.split_first()?;
    if *version != VERSION {
        return None;
    }
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// A reason that fits a message.
pub(super) fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: GatewayPort<'_> = GatewayPort {
        host: "/control",
        port: "lab",
    };

    fn connect(landing: &[u8]) -> ToPartition<'_> {
        ToPartition::Connect {
            place: PLACE,
            ticket: 3,
            link: 1,
            channel: 7,
            session: u64::MAX,
            peer_session: 2,
            origin: 9,
            landing,
        }
    }

    #[test]
    fn messages_survive_the_socket_and_every_cut_of_them_is_refused() {
        let landing = [5; 200];
        let packet = Packet::new(&connect(&landing)).expect("it fits");
        assert_eq!(decode(packet.as_bytes()), Some(connect(&landing)));
        let ended = ToGateway::Ended {
            place: PLACE,
            ticket: 3,
            why: "no room",
        };
        let answer = Packet::new(&ended).expect("it fits");
        assert_eq!(decode(answer.as_bytes()), Some(ended));
        for end in 0..packet.as_bytes().len() {
            assert_eq!(
                decode::<ToPartition<'_>>(&packet.as_bytes()[..end]),
                None,
                "{end}"
            );
        }
        let mut longer = packet.as_bytes().to_vec();
        longer.push(0);
        assert_eq!(decode::<ToPartition<'_>>(&longer), None);
    }

    #[test]
    fn another_version_is_refused() {
        let packet = Packet::new(&connect(&[])).expect("it fits");
        let mut bytes = packet.as_bytes().to_vec();
        bytes[0] += 1;
        assert_eq!(decode::<ToPartition<'_>>(&bytes), None);
    }

    #[test]
    fn description_too_long_for_a_message_is_none() {
        assert!(Packet::new(&connect(&[0; MAX_BYTES])).is_none());
    }

    #[test]
    fn long_reason_is_cut_between_characters() {
        let reason = "é".repeat(MAX_REASON_BYTES);
        assert_eq!(cut(&reason).len(), MAX_REASON_BYTES);
        let odd = format!("x{reason}");
        assert_eq!(cut(&odd).len(), MAX_REASON_BYTES - 1);
    }

    proptest! {
        #[test]
        fn peer_may_send_anything(bytes: Vec<u8>) {
            let _ = decode::<ToPartition<'_>>(&bytes);
            let _ = decode::<ToGateway<'_>>(&bytes);
        }
    }
}
