//! UDP: a conversation over TCP, a pair of connected sockets a channel, messages in datagrams as long as the path carries.
//!
//! Sampling channels and queuing channels with `delivery = "best-effort"` send nothing twice: what the network loses is a gap in the numbers of
//! the messages. Queuing channels are reliable by default. Either way the receiver says what has come and how much room it
//! has, and the sender gives way to others on the path (docs/decisions/012).
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
//! | `batch`       | datagrams handed over by one call                                         | lanes          |
//! | `near`        | all state of a sending end                                                | lanes          |
//! | `sender`, `receiver` | the ends of a channel                                              | lanes          |
//! | `company`, `circle`, `seat` | senders of the same messages, which leave once               | lanes          |
//! | `group`, `hearing` | sockets of a multicast group, a receiver's ear for it                  | lanes          |
//! | `path`        | whether datagrams pass at all                                            | control thread |
//! | `opens`       | channels on their way to being open                                       | control thread |
//! | `link`        | the link                                                                  | control thread |

mod batch;
mod circle;
mod company;
mod congestion;
mod group;
mod hearing;
mod incoming;
mod link;
mod near;
mod opens;
mod outgoing;
mod path;
#[cfg(test)]
mod protocol_tests;
mod receiver;
mod receiving;
mod seat;
mod sender;
mod sending;
pub mod settings;
mod socket;
mod wake;
mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::contract::{self, Link, LinkIdentity, Message, OpenError, Site};
use settings::{HostSettings, LinkSettings};

/// The bus.
pub struct Udp;

impl contract::Bus for Udp {
    const NAME: &'static str = "udp";

    type HostSettings = HostSettings;
    type LinkSettings = LinkSettings;
    type Shared = link::Shared;

    fn join(local: HostSettings, peer: HostSettings, local_is_first: bool) -> LinkSettings {
        LinkSettings::new(local, peer, local_is_first)
    }

    /// Both hosts have an address; the first accepts the conversation.
    fn link_lines(site: &Site<'_>) -> String {
        site.listen_lines(Self::NAME)
    }

    fn open<M: Message>(
        shared: &link::Shared,
        identity: &LinkIdentity,
        settings: &LinkSettings,
        peer_host: &str,
    ) -> Result<Box<dyn Link<M>>, OpenError> {
        link::open(shared, identity, settings, peer_host)
    }
}

/// Locks what one lane alone uses.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn decode_all(bytes: &[u8]) {
    crate::session::landing::decode_landing(bytes, link::MAGIC);
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
        wire::Datagram::Shared(shares, rest) => {
            let table: Vec<wire::Share> = shares.iter().collect();
            let head = wire::encode_shared(shares.first, &table);
            assert_eq!([&head[..wire::shared_bytes(table.len())], rest].concat(), bytes);
            for share in table {
                let _ = shares.run_of(share.token, rest.len());
            }
        }
        wire::Datagram::Invite(port) => {
            assert_eq!(
                wire::decode(&wire::encode_invite(token, port)),
                Some((token, datagram))
            );
        }
    }
}
