//! Numbers for channels: secret ones for peers to name, and those of a link's poller.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::contract::{ChannelId, Direction};

/// A channel of a link, in this host's role.
pub(crate) type Key = (Direction, ChannelId);

/// A random number that a stranger does not guess.
pub(crate) fn draw_token() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The poller's token of a channel's socket; at least 2^32.
pub(crate) fn token_of((direction, channel): Key) -> u64 {
    let role = match direction {
        Direction::Send => 1,
        Direction::Receive => 2,
    };
    role << 32 | u64::from(channel.0)
}

/// The channel of a poller's token; `None` where it is none of [`token_of`]'s.
pub(crate) fn key_of(token: u64) -> Option<Key> {
    let direction = match token >> 32 {
        1 => Direction::Send,
        2 => Direction::Receive,
        _ => return None,
    };
    Some((direction, ChannelId(token as u32)))
}
