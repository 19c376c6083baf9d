//! The CRC-32C (RFC 3720, section 12.1) that messages carry over media which may flip bits or place
//! bytes out of order.
//!
//! Contract: a digest covers a message's number (sequence or position), length, time and payload,
//! so that bytes of another message at the same place do not fit it. Called by the register and the
//! ring, by both sides.

use crate::window::{OutOfBounds, Window};

/// A digest in progress.
pub(crate) type Digest = crc::Digest<'static, u32, crc::Table<16>>;

static CRC_32C: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);

/// Bytes that [`add_window`] takes at a time: on the stack, and few enough for the first level
/// cache.
const CHUNK_BYTES: usize = 512;

/// The digest of a message's header, to which the payload's bytes are then added.
pub(crate) fn begin(number: u64, len_bytes: u32, time_ns: u64) -> Digest {
    let mut digest = CRC_32C.digest();
    digest.update(&number.to_ne_bytes());
    digest.update(&len_bytes.to_ne_bytes());
    digest.update(&time_ns.to_ne_bytes());
    digest
}

/// Adds the `len_bytes` bytes that lie at `offset` of `window`, in whatever state they are.
///
/// # Errors
/// [`OutOfBounds`].
pub(crate) fn add_window(
    digest: &mut Digest,
    window: &Window,
    offset: usize,
    len_bytes: usize,
) -> Result<(), OutOfBounds> {
    let mut chunk = [0; CHUNK_BYTES];
    let mut done_bytes = 0;
    while done_bytes < len_bytes {
        let piece = &mut chunk[..CHUNK_BYTES.min(len_bytes - done_bytes)];
        window.read(offset + done_bytes, piece)?;
        digest.update(piece);
        done_bytes += piece.len();
    }
    Ok(())
}

/// A word with a length below and a checksum above.
pub(crate) fn join(len_bytes: u32, checksum: u32) -> u64 {
    u64::from(len_bytes) | u64::from(checksum) << 32
}

/// Length and checksum of such a word.
pub(crate) fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}
