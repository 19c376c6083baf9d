//! The bus UDP: messages in datagrams as long as the path carries.
//!
//! A link is a conversation over TCP; a channel is a pair of connected UDP sockets. Queuing
//! channels are reliable by default. Sampling channels, and queuing channels with
//! `delivery = "best-effort"`, retransmit nothing: a lost message is a gap in the numbers. Every
//! receiver acknowledges what has arrived and grants credit, and every sender gives way to other
//! traffic on the path (docs/decisions/012).
//!
//! | module                             | what it does                                           |
//! |------------------------------------|--------------------------------------------------------|
//! | `wire`                             | encodes and decodes datagrams                          |
//! | `sending`                          | the sender's side of the protocol, pure                |
//! | `receiving`                        | the receiver's side, pure                              |
//! | `congestion`                       | round-trip times and the congestion window, pure       |
//! | `send_buffer`                      | keeps messages as a stream of bytes until acknowledged |
//! | `message_reader`                   | takes the stream apart into messages                   |
//! | `socket`, `batch`                  | many datagrams by one system call, the path's MTU      |
//! | `wake`                             | one descriptor for a socket and a timer                |
//! | `sender`, `send_state`, `receiver` | the ends of a channel                                  |
//! | `multicast`                        | sends what several hosts receive once                  |
//! | `path`                             | checks whether datagrams pass at all                   |
//! | `opens`                            | opens channels                                         |
//! | `link`                             | the link                                               |
//!
//! `link`, `opens` and `path` run on the control thread, the ends of a channel on lanes.

mod batch;
mod congestion;
mod link;
mod lock;
mod message_reader;
mod multicast;
mod opens;
mod path;
#[cfg(test)]
mod protocol_tests;
mod receiver;
mod receiving;
mod send_buffer;
mod send_state;
mod sender;
mod sending;
pub mod settings;
mod socket;
mod wake;
mod wire;

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

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn decode_all(bytes: &[u8]) {
    crate::session::landing::decode_landing(bytes, link::MAGIC);
    let Some((token, datagram)) = wire::decode(bytes) else {
        return;
    };
    match datagram {
        wire::Datagram::Data(header, rest) => {
            let again = [&header.encode(token)[..], rest].concat();
            assert_eq!(wire::decode(&again), Some((token, datagram)));
        }
        wire::Datagram::Ack(ack) => {
            assert_eq!(wire::decode(&ack.encode(token)), Some((token, datagram)));
            let mut sending = sending::Sending::new(settings::Delivery::Reliable, 1000);
            sending.accept(10_000);
            while sending.next(1000, 1).is_some() {}
            let _ = sending.on_ack(&ack, 10, 2);
        }
        wire::Datagram::Open(open) => {
            assert_eq!(wire::decode(&open.encode(token)), Some((token, datagram)));
        }
        wire::Datagram::Multicast(recipients, rest) => {
            let table: Vec<wire::Recipient> = recipients.iter().collect();
            let head = wire::encode_multicast(recipients.first, &table);
            assert_eq!(
                [&head[..wire::multicast_header_bytes(table.len())], rest].concat(),
                bytes
            );
            for recipient in table {
                let _ = recipients.header_for(recipient.token, rest.len());
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
