//! How each end describes its memory to the other.
//!
//! ```text
//! receiver's memory (the landing place)            sender's memory
//! + 0    the sender's line, and the receiver's      + 0    the credit entry
//!        own words of the bell                      + 64   the bell line
//! + 64   ring, register: see `remote_write::shape`
//! ```
//!
//! postcard encodes the landing place; the request is the address (8 bytes) and the key (4 bytes)
//! of the sender's memory, little-endian. Contract: both are hostile until
//! [`LandingMemory::decode`] and [`decode_request`] have checked them. Called by `channels`.

use serde::{Deserialize, Serialize};

use super::described;
use super::pipe::FarMemory;
use crate::remote_write::ENTRY_BYTES;
use crate::remote_write::shape::{Parts, Shape};

/// Where the wake-up line is in the receiver's memory: in the sender's line.
pub const RECEIVER_BELL_AT: usize = 0;
/// Where the wake-up line is in the sender's memory.
pub const SENDER_BELL_AT: usize = ENTRY_BYTES;
/// Length of the sender's memory in bytes.
pub const SENDER_BYTES: usize = 2 * ENTRY_BYTES;

/// No landing place is believed to be longer, in bytes: a sender makes its staging area by it.
const LONGEST_PLACE_BYTES: usize = 64 << 20;
/// Checked messages of at most this many bytes, head included, are one WRITE each. Longer ones take
/// several packets, of which the word that publishes should be the last: a receiver that finds it
/// first reads the whole message at each poll.
pub const ONE_WRITE_BYTES: usize = 1200;
/// Bytes of a request.
const REQUEST_BYTES: usize = 12;

/// A landing place, as the receiver describes it to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandingMemory {
    /// First position of ring and register, drawn at random, never 0.
    pub tag: u64,
    /// Its parts.
    pub shape: Shape,
    /// Whether messages carry checksums, since the medium places WRITEs in any order.
    pub is_checked: bool,
    /// Address of the memory at the receiver.
    pub address: u64,
    /// Its key.
    pub key: u32,
}

impl LandingMemory {
    /// The description for the peer.
    pub fn encode(&self) -> Vec<u8> {
        // At most 10 + 2 * 5 + 2 * 10 + 1 + 10 + 5 bytes.
        described::encode(self, 64)
    }

    /// Decodes and checks a peer's description: the place and its parts.
    ///
    /// # Errors
    /// In words: what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<(LandingMemory, Parts), String> {
        let place: LandingMemory = match postcard::take_from_bytes(bytes) {
            Ok((place, [])) => place,
            Ok(_) => return Err(format!("{} bytes are more than a description has", bytes.len())),
            Err(error) => return Err(format!("{} bytes that are no description: {error}", bytes.len())),
        };
        let parts = place
            .parts()
            .ok_or_else(|| format!("{place:?} fits no memory of {LONGEST_PLACE_BYTES} bytes"))?;
        let is_in_address_space = place.address.checked_add(parts.total_bytes as u64).is_some();
        if place.tag == 0 || !is_in_address_space {
            return Err(format!("{place:?} is impossible"));
        }
        Ok((place, parts))
    }

    /// The parts; `None` if the numbers are impossible.
    pub fn parts(&self) -> Option<Parts> {
        let mut parts = self
            .shape
            .parts(LONGEST_PLACE_BYTES)
            .filter(|parts| parts.total_bytes <= LONGEST_PLACE_BYTES)?;
        if self.is_checked {
            parts.ring = parts.ring.with_checksum().ok()?.with_commit_in_line();
            let is_short = self.shape.register_bytes <= ONE_WRITE_BYTES as u64;
            parts.register = parts.register.map(|(layout, at)| {
                let layout = layout.with_checksum();
                (
                    if is_short {
                        layout.with_index_in_slots()
                    } else {
                        layout
                    },
                    at,
                )
            });
        }
        Some(parts)
    }
}

/// The sender's request.
pub fn encode_request(address: u64, key: u32) -> Vec<u8> {
    [&address.to_le_bytes()[..], &key.to_le_bytes()].concat()
}

/// Reads a request, behind which a transport may have added zeros.
///
/// # Errors
/// In words: what is wrong.
pub fn decode_request(bytes: &[u8]) -> Result<FarMemory, String> {
    let request: &[u8; REQUEST_BYTES] = described::request(bytes)?;
    let (address, key) = request.split_at(8);
    let address = u64::from_le_bytes(address.try_into().map_err(|_| "no address")?);
    let key = u32::from_le_bytes(key.try_into().map_err(|_| "no key")?);
    if address.checked_add(SENDER_BYTES as u64).is_none() {
        return Err(format!("credits at {address:#x}, beyond all memory"));
    }
    Ok(FarMemory {
        address,
        key,
        len_bytes: SENDER_BYTES,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{ChannelSpec, Keep};

    fn place() -> LandingMemory {
        let spec = ChannelSpec {
            keep: Keep::Latest,
            message_bytes: 4096,
        };
        LandingMemory {
            tag: u64::MAX,
            shape: Shape::plan(&spec, 1 << 20),
            is_checked: true,
            address: u64::MAX >> 1,
            key: u32::MAX,
        }
    }

    #[test]
    fn a_description_survives_the_wire() {
        let (decoded, parts) = LandingMemory::decode(&place().encode()).expect("a good one");
        assert_eq!(decoded, place());
        assert!(parts.ring.has_checksum());
        assert!(parts.register.is_some_and(|(layout, _)| layout.has_checksum()));
    }

    #[test]
    fn impossible_descriptions_are_refused() {
        let with = |change: fn(&mut LandingMemory)| {
            let mut place = place();
            change(&mut place);
            place
        };
        for bad in [
            with(|place| place.tag = 0),
            with(|place| place.address = u64::MAX),
            with(|place| place.shape.lines = 3),
            with(|place| place.shape.line_bytes = 20),
            with(|place| place.shape.data_bytes = 1 << 40),
            with(|place| place.shape.register_bytes = 1 << 40),
            with(|place| place.shape.register_bytes = 32 << 20),
        ] {
            assert!(LandingMemory::decode(&bad.encode()).is_err(), "{bad:?}");
        }
        let bytes = place().encode();
        for end in 0..bytes.len() {
            assert!(LandingMemory::decode(&bytes[..end]).is_err(), "{end}");
        }
        assert!(LandingMemory::decode(&[0xff; 64]).is_err());
    }

    #[test]
    fn a_request_survives_the_padding_of_the_transport_and_a_short_or_impossible_one_is_refused() {
        let mut bytes = encode_request(0x1234, 7);
        assert!(decode_request(&bytes[..11]).is_err());
        bytes.extend([0; 12]);
        let far = decode_request(&bytes).expect("a good one");
        assert_eq!((far.address, far.key), (0x1234, 7));
        assert!(decode_request(&encode_request(u64::MAX, 7)).is_err());
    }
}
