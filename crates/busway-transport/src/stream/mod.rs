//! Links over connections that carry byte streams: everything but the sockets.
//!
//! Contract: a bus implements [`StreamBus`] and [`Socket`]; [`open`] makes a link of them. One host
//! of a link accepts all its connections and the other one makes them, whichever way the data goes.
//! The first bytes of a connection say what it is: a greeting of the control conversation
//! ([`busway_core::control`]), or the `opening` of a channel, which names both sessions and a token
//! from the landing description, so that a stale or stray connection joins nothing. The `listener`
//! closes and counts everything else. Called by `tcp`, `tipc` and buses in other crates.
//!
//! | module       | what it does                                    | runs on        |
//! |--------------|-------------------------------------------------|----------------|
//! | `bus`        | what a bus brings                               |                |
//! | `listener`   | one for each address; hands connections to links | control thread |
//! | `link`       | the link: its clock, its inbox, its channels    | control thread |
//! | `meeting`    | how it comes up and goes down                   | control thread |
//! | `opens`      | channels that are being opened                  | control thread |
//! | `sender`     | batches, written by one system call             | lanes          |
//! | `receiver`   | reads straight into the landing                 | lanes          |
//!
//! The stream of a channel is a sequence of messages (head, user header, payload) and an end mark.
//! The cumulative count of messages taken flows back, 8 bytes little-endian each time.

mod backoff;
mod bus;
mod conversation;
mod inbox;
mod io;
mod link;
mod listener;
mod meeting;
mod opening;
mod opens;
mod receiver;
mod sender;

pub use bus::{Discovered, Heartbeat, Socket, StreamBus};
pub use link::{StreamLink, open};
pub use listener::Shared;

pub use crate::session::poller::Poller;

pub(crate) use bus::WATCHED;
pub(crate) use io::{again, not_now, write};
pub(crate) use receiver::rest_of;
pub(crate) use sender::segment_bytes;

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn decode_opening(bytes: &[u8]) {
    for end in 0..=bytes.len().min(opening::MAX_OPENING_BYTES) {
        if opening::Opening::decode(&bytes[..end]).is_err() {
            break;
        }
    }
}
