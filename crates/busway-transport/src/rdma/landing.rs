//! What the two hosts tell each other of a channel before its connection stands: the landing description, which the receiver
//! sends over the conversation, and the private data with which the sender connects. Both are hostile until proven
//! otherwise. All numbers little-endian.
//!
//! ```text
//! landing description                       private data of the connection
//! + 0   magic    "BUSR"                     + 0   magic         "BUSR"
//! + 4   family   u8: 4 or 6                 + 4   channel       u32
//! + 5   zero     u8                         + 8   token         u64: from the landing description
//! + 6   port     u16                        +16   from session  u64: of the connecting process
//! + 8   address  16 bytes, unused ones 0    +24   to session    u64: of the listening process
//! +24   token    u64                        +32   the flavour's request, at most 24 bytes
//! +32   the flavour's description
//! ```
//!
//! Read and written by [`super::link`].

use std::net::{IpAddr, SocketAddr};

use super::cm::PRIVATE_BYTES;
use crate::link::ChannelId;

const MAGIC: [u8; 4] = *b"BUSR";
const FIXED_BYTES: usize = 32;

/// What a flavour may add to the private data of a connection, in bytes.
pub const REQUEST_BYTES: usize = PRIVATE_BYTES - FIXED_BYTES;

/// Where a receiver waits for its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landing {
    /// Where it listens.
    pub address: SocketAddr,
    /// Names the receiver.
    pub token: u64,
    /// What the flavour says of its memory.
    pub description: Vec<u8>,
}

impl Landing {
    /// The bytes for the conversation.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.description.len());
        let mut address = [0; 16];
        let family = match self.address.ip() {
            IpAddr::V4(ip) => {
                address[..4].copy_from_slice(&ip.octets());
                4
            }
            IpAddr::V6(ip) => {
                address = ip.octets();
                6
            }
        };
        bytes.extend(MAGIC);
        bytes.extend([family, 0]);
        bytes.extend(self.address.port().to_le_bytes());
        bytes.extend(address);
        bytes.extend(self.token.to_le_bytes());
        bytes.extend(&self.description);
        bytes
    }

    /// Reads what a peer described; the flavour's part is judged by the flavour.
    ///
    /// # Errors
    /// In words: what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Landing, String> {
        let Some((fixed, description)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
            return Err(format!(
                "{} bytes where at least {FIXED_BYTES} belong",
                bytes.len()
            ));
        };
        if fixed[..4] != MAGIC {
            return Err("it is none of RDMA".into());
        }
        let port = u16::from_le_bytes([fixed[6], fixed[7]]);
        let ip = match (fixed[4], fixed[8..24].first_chunk::<16>()) {
            (4, Some(&[a, b, c, d, ..])) => IpAddr::from([a, b, c, d]),
            (6, Some(octets)) => IpAddr::from(*octets),
            (family, _) => return Err(format!("an address of family {family}")),
        };
        if port == 0 || ip.is_unspecified() || ip.is_multicast() {
            return Err(format!("nobody can connect to {ip}, port {port}"));
        }
        Ok(Landing {
            address: SocketAddr::new(ip, port),
            token: word(fixed, 24),
            description: description.to_vec(),
        })
    }
}

/// What the sender says when it connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The channel.
    pub channel: ChannelId,
    /// From the landing description.
    pub token: u64,
    /// The sender's session.
    pub from_session: u64,
    /// The receiver's session, as it said itself.
    pub to_session: u64,
    /// The flavour's part, [`REQUEST_BYTES`] at most; after [`decode`](Self::decode) with whatever the transport added.
    pub request: Vec<u8>,
}

impl Request {
    /// The private data.
    ///
    /// # Panics
    /// If the flavour's part is too long: a mistake of the flavour.
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

    /// Reads the private data of whoever connects; `None` if it is none of ours.
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

/// The number at `at`, which with its 8 bytes lies inside.
fn word(bytes: &[u8; FIXED_BYTES], at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn landings() -> [Landing; 2] {
        ["192.0.2.1:7400", "[2001:db8::1]:65535"].map(|address| Landing {
            address: address.parse().expect("an address"),
            token: u64::MAX - 1,
            description: b"what the flavour says".to_vec(),
        })
    }

    #[test]
    fn a_landing_survives_the_conversation() {
        for landing in landings() {
            assert_eq!(Landing::decode(&landing.encode()), Ok(landing));
        }
    }

    #[test]
    fn every_cut_of_a_landing_is_refused_or_shorter_in_the_flavours_part_only() {
        for landing in landings() {
            let bytes = landing.encode();
            for end in 0..bytes.len() {
                match Landing::decode(&bytes[..end]) {
                    Err(_) => assert!(end < FIXED_BYTES),
                    Ok(cut) => assert_eq!(cut.description, landing.description[..end - FIXED_BYTES]),
                }
            }
        }
    }

    #[test]
    fn a_landing_that_nobody_can_connect_to_is_refused() {
        let mut landing = landings()[0].clone();
        landing.address.set_port(0);
        assert!(Landing::decode(&landing.encode()).is_err());
        landing.address = "0.0.0.0:7400".parse().expect("an address");
        assert!(Landing::decode(&landing.encode()).is_err());
        let mut bytes = landings()[0].encode();
        bytes[4] = 5;
        assert!(Landing::decode(&bytes).is_err());
    }

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
