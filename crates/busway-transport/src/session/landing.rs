//! Where a receiver waits for its sender, as one host describes it to the other over the
//! conversation: an address and a token. Hostile until decoded. All numbers little-endian.
//!
//! ```text
//! + 0   magic    4 bytes: names the bus
//! + 4   family   u8: 4 or 6
//! + 5   zero     u8
//! + 6   port     u16
//! + 8   address  16 bytes, unused ones 0
//! +24   token    u64
//! +32   what the bus has to add
//! ```
//!
//! Used by the buses whose channels have an address of their own: [`crate::rdma`] and
//! [`crate::udp`].

use std::net::{IpAddr, SocketAddr};

const FIXED_BYTES: usize = 32;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Landing {
    /// Where it waits.
    pub(crate) address: SocketAddr,
    /// Names the receiver.
    pub(crate) token: u64,
    /// What the bus adds.
    pub(crate) description: Vec<u8>,
}

impl Landing {
    /// The bytes for the conversation.
    pub(crate) fn encode(&self, magic: [u8; 4]) -> Vec<u8> {
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
        bytes.extend(magic);
        bytes.extend([family, 0]);
        bytes.extend(self.address.port().to_le_bytes());
        bytes.extend(address);
        bytes.extend(self.token.to_le_bytes());
        bytes.extend(&self.description);
        bytes
    }

    /// Reads what a peer described; the bus checks what it adds.
    ///
    /// # Errors
    /// In words: what is wrong.
    pub(crate) fn decode(bytes: &[u8], magic: [u8; 4]) -> Result<Landing, String> {
        let Some((fixed, description)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
            return Err(format!(
                "{} bytes where at least {FIXED_BYTES} belong",
                bytes.len()
            ));
        };
        if fixed[..4] != magic {
            return Err("it is none of this bus".into());
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
/// The number at `at`; its 8 bytes are inside.
fn word(bytes: &[u8; FIXED_BYTES], at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn decode_landing(bytes: &[u8], magic: [u8; 4]) {
    if let Ok(landing) = Landing::decode(bytes, magic) {
        assert_eq!(
            Landing::decode(&landing.encode(magic), magic).as_ref(),
            Ok(&landing)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; 4] = *b"BUSX";

    fn landings() -> [Landing; 2] {
        ["192.0.2.1:7400", "[2001:db8::1]:65535"].map(|address| Landing {
            address: address.parse().expect("an address"),
            token: u64::MAX - 1,
            description: b"what the bus adds".to_vec(),
        })
    }

    #[test]
    fn a_landing_survives_the_conversation() {
        for landing in landings() {
            assert_eq!(Landing::decode(&landing.encode(MAGIC), MAGIC), Ok(landing));
        }
    }

    #[test]
    fn every_cut_of_a_landing_is_refused_or_shorter_in_the_part_of_the_bus_only() {
        for landing in landings() {
            let bytes = landing.encode(MAGIC);
            for end in 0..bytes.len() {
                match Landing::decode(&bytes[..end], MAGIC) {
                    Err(_) => assert!(end < FIXED_BYTES),
                    Ok(cut) => assert_eq!(cut.description, landing.description[..end - FIXED_BYTES]),
                }
            }
        }
    }

    #[test]
    fn a_landing_that_nobody_can_connect_to_is_refused() {
        let mut landing = landings()[0].clone();
        assert!(Landing::decode(&landing.encode(*b"BUSY"), MAGIC).is_err());
        landing.address.set_port(0);
        assert!(Landing::decode(&landing.encode(MAGIC), MAGIC).is_err());
        landing.address = "0.0.0.0:7400".parse().expect("an address");
        assert!(Landing::decode(&landing.encode(MAGIC), MAGIC).is_err());
        let mut bytes = landings()[0].encode(MAGIC);
        bytes[4] = 5;
        assert!(Landing::decode(&bytes, MAGIC).is_err());
    }
}
