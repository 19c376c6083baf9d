//! How descriptions and requests of the ends are put into bytes.
//!
//! Contract: what comes from a peer is hostile. Here only its shape is checked, the meaning where
//! it is known: [`super::place`], [`super::register`], [`super::ring`].

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A description for the peer, by postcard, of at most `most_bytes`.
pub(super) fn encode(place: &impl Serialize, most_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; most_bytes];
    let length = postcard::to_slice(place, &mut bytes).map_or(0, |used| used.len());
    bytes.truncate(length);
    bytes
}

/// A peer's description of `what` in its port store.
///
/// # Errors
/// In words: what is wrong.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((place, [])) => Ok(place),
        _ => Err(format!(
            "{} bytes that describe no {what} of a port: give both hosts the same system file",
            bytes.len()
        )),
    }
}

/// The bytes of a request, behind which a transport may have added zeros.
///
/// # Errors
/// In words: what is wrong.
pub(super) fn request<const BYTES: usize>(bytes: &[u8]) -> Result<&[u8; BYTES], String> {
    let request = bytes.first_chunk();
    request.ok_or_else(|| format!("a request of {} bytes where {BYTES} belong", bytes.len()))
}

/// The word at `at` of a request, little-endian; 0 behind its end.
pub(super) fn word(request: &[u8], at: usize) -> u64 {
    let bytes = request.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
