//! UDP: a conversation over TCP, a pair of connected sockets a channel, messages in datagrams as long as the path carries.
//!
//! Sampling channels and queuing channels with `delivery = "best-effort"` send nothing twice: what the network loses is a gap in the numbers of
//! the messages. Queuing channels are reliable by default. Either way the receiver says what has come and how much room it
//! has, and the sender gives way to others on the path (docs/decisions/012). Opened by [`crate::registry`].
//!
//! | module          | what it does                                                              | runs on        |
//! |-----------------|---------------------------------------------------------------------------|----------------|
//! | `wire`        | datagrams, encoded and decoded                                            | any            |
//! | `sending`     | the sender's side of the protocol, pure                                   | lanes          |
//! | `receiving`   | the receiver's side, pure                                                 | lanes          |
//! | `congestion`  | round-trip times and the window, pure                                     | lanes          |
//! | `outgoing`    | messages as a stream of bytes, held until they are needed no more         | lanes          |
//! | `incoming`    | the stream taken apart into the sink's places                             | lanes          |
//! | `socket`      | batches of datagrams, offload, the path's MTU                             | lanes          |
//! | `wake`        | a descriptor that is a socket and a timer                                 | lanes          |
//! | `sender`, `receiver` | the ends of a channel                                              | lanes          |
//! | `opens`       | channels on their way to being open                                       | control thread |
//! | `link`        | the link                                                                  | control thread |

mod congestion;
mod incoming;
mod link;
mod opens;
mod outgoing;
#[cfg(test)]
mod protocol_tests;
mod receiver;
mod receiving;
mod sender;
mod sending;
pub mod settings;
mod socket;
mod wake;
mod wire;

pub(crate) use link::{Shared, open};

/// The bus's name in the system file.
pub(crate) const NAME: &str = "udp";

/// Every Linux has it.
pub(crate) fn missing() -> Option<String> {
    None
}

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn decode_all(bytes: &[u8]) {
    crate::place::decode_landing(bytes, link::MAGIC);
    let Some((token, datagram)) = wire::decode(bytes) else {
        return;
    };
    match datagram {
        wire::Datagram::Run(run, rest) => {
            let again = [&run.encode(token)[..], rest].concat();
            assert_eq!(wire::decode(&again), Some((token, datagram)));
        }
        wire::Datagram::Answer(answer) => {
            assert_eq!(wire::decode(&answer.encode(token)), Some((token, datagram)));
            let mut sending = sending::Sending::new(settings::Delivery::Reliable, 1000);
            sending.accept(10_000);
            while sending.next(1000, 1).is_some() {}
            let _ = sending.answered(&answer, 10, 2);
        }
        wire::Datagram::Open(open) => {
            assert_eq!(wire::decode(&open.encode(token)), Some((token, datagram)));
        }
    }
}
