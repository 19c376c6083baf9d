//! TCP: one control connection a link, one connection a channel.
//!
//! The host with a `listen` address accepts all connections of a link, the other one makes them, whichever way the data goes.
//! The first bytes of a connection say what it is: a greeting of the control conversation ([`busway_core::control`]), or the
//! `opening` of a channel, which names both sessions and a token from the landing place, so that a stale or stray
//! connection joins nothing. Everything else is closed and counted by the `listener`, and disturbs nobody.
//!
//! | module         | what it does                                                         | runs on        |
//! |----------------|----------------------------------------------------------------------|----------------|
//! | [`settings`]   | the tables in the system file                                        | start          |
//! | `listener`   | one a listening address; hands connections to links                  | control thread |
//! | `link`       | the link: its clock, its mail, its channels                          | control thread |
//! | `meeting`    | how it comes up and goes down                                        | control thread |
//! | `opens`      | channels on their way to being open                                  | control thread |
//! | `sender`     | batches, written by one system call                                  | lanes          |
//! | `receiver`   | reads straight into the landing                                      | lanes          |
//!
//! The stream of a channel is a sequence of messages (head, user header, payload) and `END_MARK`; what flows back is the
//! cumulative count of messages taken, 8 bytes little-endian each time.

mod conversation;
mod link;
mod listener;
mod mailbox;
mod meeting;
mod opening;
mod opens;
mod poller;
mod receiver;
mod sender;
pub mod settings;
mod socket;

pub(crate) use link::open;
pub(crate) use listener::Shared;

use crate::channel::ChannelError;
use crate::message::HEAD_BYTES;

/// The bus's name in the system file.
pub(crate) const NAME: &str = "tcp";

/// Every Linux has it.
pub(crate) fn missing() -> Option<String> {
    None
}

/// Ends the stream of a channel that was closed in an orderly way; no head, since its kind is unknown.
const END_MARK: [u8; HEAD_BYTES] = *b"the end of this busway channel, in good order\0\0\0";

/// The same error once more: an end that has failed goes on saying why.
fn again(error: &ChannelError) -> ChannelError {
    match error {
        ChannelError::Closed => ChannelError::Closed,
        ChannelError::Corrupt(what) => ChannelError::Corrupt(what),
        ChannelError::Io(error) => ChannelError::Io(match error.raw_os_error() {
            Some(code) => std::io::Error::from_raw_os_error(code),
            None => std::io::Error::new(error.kind(), error.to_string()),
        }),
    }
}
