//! The first bytes of a connection: a greeting, or the opening of a channel. Hostile until decoded.
//!
//! Opening of a channel, little-endian:
//!
//! ```text
//! + 0   magic         "BUSC"
//! + 4   version       u32: PROTOCOL_VERSION
//! + 8   from session  u64: session of the connecting process
//! +16   to session    u64: session of the accepting process, as it said itself
//! +24   token         u64: from the landing place
//! +32   channel       u32
//! +36   direction     u8: 1 the connecting host sends, 2 it receives
//! +37   host length   u8: 1 ..= 255
//! +38   zero          u16
//! +40   host          name of the connecting host, UTF-8
//! ```
//!
//! The accepting side answers [`ANSWER`] when its end is ready, or closes the connection.

use busway_core::control::{self, Body, ByteOrder, Hello, PROTOCOL_VERSION};

use crate::contract::{ChannelId, Direction};

const MAGIC: [u8; 4] = *b"BUSC";
const FIXED_BYTES: usize = 40;

/// Longest opening in bytes, of either kind: a greeting holds two strings of at most 255 bytes.
pub(super) const MAX_OPENING_BYTES: usize = 1024;

/// The answer that accepts a channel's connection.
pub(super) const ANSWER: [u8; 8] = *b"BUSC ok\n";

/// What a host sends about itself in its greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) protocol_version: u32,
    pub(super) byte_order: ByteOrder,
    pub(super) session: u64,
    pub(super) host: String,
    pub(super) application: String,
}

impl From<Hello<'_>> for Greeting {
    fn from(hello: Hello<'_>) -> Self {
        Greeting {
            protocol_version: hello.protocol_version,
            byte_order: hello.byte_order,
            session: hello.session,
            host: hello.host.to_owned(),
            application: hello.iceoryx2_version.to_owned(),
        }
    }
}

/// The opening of a channel's connection, made by the connecting side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChannelOpening {
    pub(super) from_session: u64,
    pub(super) to_session: u64,
    pub(super) token: u64,
    pub(super) channel: ChannelId,
    /// Of the connecting host.
    pub(super) direction: Direction,
    /// Name of the connecting host.
    pub(super) host: String,
}

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// The control conversation.
    Conversation(Greeting),
    /// A channel.
    Channel(ChannelOpening),
}

impl Opening {
    /// The host that made the connection, by its own statement.
    pub(super) fn host(&self) -> &str {
        match self {
            Opening::Conversation(greeting) => &greeting.host,
            Opening::Channel(opening) => &opening.host,
        }
    }

    /// Reads an opening that must be all that has arrived, since its sender waits for an answer.
    /// `None` if more bytes are needed.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<Opening>, String> {
        let known = bytes.len().min(MAGIC.len());
        let (opening, end) = if bytes[..known] == MAGIC[..known] && known == MAGIC.len() {
            match ChannelOpening::decode(bytes)? {
                Some((opening, end)) => (Opening::Channel(opening), end),
                None => return Ok(None),
            }
        } else if bytes[..known] == MAGIC[..known] {
            return Ok(None);
        } else {
            match control::decode(bytes).map_err(|error| error.to_string())? {
                Some((Body::Hello(hello), end)) => (Opening::Conversation(hello.into()), end),
                Some(_) => return Err("a control frame before the greeting".into()),
                None if bytes.len() >= MAX_OPENING_BYTES => return Err("no greeting is so long".into()),
                None => return Ok(None),
            }
        };
        if end < bytes.len() {
            return Err(format!(
                "{} bytes after the opening, before it was answered",
                bytes.len() - end
            ));
        }
        Ok(Some(opening))
    }
}

impl ChannelOpening {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.host.len());
        bytes.extend(MAGIC);
        bytes.extend(PROTOCOL_VERSION.to_le_bytes());
        for word in [self.from_session, self.to_session, self.token] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.channel.0.to_le_bytes());
        bytes.push(match self.direction {
            Direction::Send => 1,
            Direction::Receive => 2,
        });
        // The greeting, which went before, refuses longer names.
        bytes.push(u8::try_from(self.host.len()).unwrap_or(0));
        bytes.extend([0; 2]);
        bytes.extend(self.host.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Option<(ChannelOpening, usize)>, String> {
        let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else {
            return Ok(None);
        };
        let word = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("8 bytes"));
        let half = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().expect("4 bytes"));
        let version = half(4);
        if version != PROTOCOL_VERSION {
            return Err(format!(
                "a channel of protocol version {version}, not {PROTOCOL_VERSION}"
            ));
        }
        let direction = match fixed[36] {
            1 => Direction::Send,
            2 => Direction::Receive,
            other => return Err(format!("a channel of unknown direction {other}")),
        };
        let end = FIXED_BYTES + usize::from(fixed[37]);
        let Some(host) = bytes.get(FIXED_BYTES..end) else {
            return Ok(None);
        };
        let host = std::str::from_utf8(host)
            .map_err(|_| "a host name that is no text")?
            .to_owned();
        let opening = ChannelOpening {
            from_session: word(8),
            to_session: word(16),
            token: word(24),
            channel: ChannelId(half(32)),
            direction,
            host,
        };
        Ok(Some((opening, end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening() -> ChannelOpening {
        ChannelOpening {
            from_session: 1,
            to_session: u64::MAX,
            token: 3,
            channel: ChannelId(4),
            direction: Direction::Receive,
            host: "vision".into(),
        }
    }

    #[test]
    fn an_opening_that_comes_byte_by_byte_is_read_when_it_is_whole() {
        let bytes = opening().encode();
        for end in 0..bytes.len() {
            assert_eq!(Opening::decode(&bytes[..end]), Ok(None), "after {end} bytes");
        }
        assert_eq!(Opening::decode(&bytes), Ok(Some(Opening::Channel(opening()))));
    }

    #[test]
    fn bytes_after_an_opening_are_refused() {
        let mut bytes = opening().encode();
        bytes.push(0);
        assert!(Opening::decode(&bytes).is_err());
    }

    #[test]
    fn garbage_is_refused_at_its_first_byte_that_fits_nothing() {
        assert!(Opening::decode(b"GET / HTTP/1.1\r\n").is_err());
        assert!(Opening::decode(b"BUSX").is_err());
        assert_eq!(Opening::decode(b"BUS"), Ok(None));
    }
}
