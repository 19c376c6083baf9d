//! What the two hosts exchange to open a channel: the landing description
//! ([`crate::session::landing`]), which the receiver sends over the conversation, and the private
//! data with which the sender connects. Both are hostile until decoded. All numbers little-endian.
//!
//! ```text
//! private data of the connection
//! + 0   magic         "BUSR"
//! + 4   channel       u32
//! + 8   token         u64: from the landing description
//! +16   from session  u64: of the connecting process
//! +24   to session    u64: of the listening process
//! +32   the kind of channel's request, at most 24 bytes
//! ```
//!
//! Read and written by [`super::link`].

use super::cm::PRIVATE_BYTES;
use crate::contract::ChannelId;

/// Begins the landing description and the private data.
pub const MAGIC: [u8; 4] = *b"BUSR";
const FIXED_BYTES: usize = 32;

/// What a kind of channel may add to the private data of a connection, in bytes.
pub const REQUEST_BYTES: usize = PRIVATE_BYTES - FIXED_BYTES;

/// What the sender sends when it connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The channel.
    pub channel: ChannelId,
    /// From the landing description.
    pub token: u64,
    /// The sender's session.
    pub from_session: u64,
    /// The receiver's session, from its hello.
    pub to_session: u64,
    /// The part of the kind of channel, at most [`REQUEST_BYTES`]; after [`decode`](Self::decode)
    /// followed by padding of the transport.
    pub request: Vec<u8>,
}

impl Request {
    /// The private data.
    ///
    /// # Panics
    /// If the kind's part is too long: a mistake of the caller.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.request.len() <= REQUEST_BYTES);
        let mut bytes = Vec::with_capacity(PRIVATE_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(self.channel.0.to_le_bytes());
        for word in [self.token, self.from_session, self.to_session] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&self.request);
        bytes
    }

    /// Reads the private data of a connection; `None` if it is not of this protocol.
    pub fn decode(bytes: &[u8]) -> Option<Request> {
        let (fixed, request) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let (magic, rest) = fixed.split_first_chunk::<4>()?;
        let channel = rest.first_chunk::<4>()?;
        (*magic == MAGIC).then(|| Request {
            channel: ChannelId(u32::from_le_bytes(*channel)),
            token: word(fixed, 8),
            from_session: word(fixed, 16),
            to_session: word(fixed, 24),
            request: request.to_vec(),
        })
    }
}

/// The number at `at`; its 8 bytes are inside.
fn word(bytes: &[u8; FIXED_BYTES], at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_padding_of_the_transport() {
        let request = Request {
            channel: ChannelId(7),
            token: 1,
            from_session: 2,
            to_session: u64::MAX,
            request: vec![9; REQUEST_BYTES],
        };
        let mut bytes = request.encode();
        assert!(bytes.len() <= PRIVATE_BYTES);
        bytes.extend([0; 40]);
        let decoded = Request::decode(&bytes).expect("it is one of ours");
        assert_eq!(decoded.request[..REQUEST_BYTES], request.request);
        assert_eq!(decoded.to_session, request.to_session);
    }

    #[test]
    fn strangers_private_data_is_no_request() {
        assert_eq!(Request::decode(b""), None);
        assert_eq!(Request::decode(&[0; 196]), None);
        assert_eq!(Request::decode(b"BUSR"), None);
    }
}
