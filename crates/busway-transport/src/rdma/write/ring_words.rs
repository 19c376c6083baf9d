//! Words that the ends of a queue in the port store write for each other, as [`super::ring`] draws
//! them.
//!
//! Contract: offsets within the sender's memory, which the receiver writes, and within the
//! receiver's control line, which the sender writes. All words are u64.

use busway_core::ring::CREDIT_BYTES;

use crate::remote_write::ENTRY_BYTES;

/// Sender's memory: line position behind what programs have released.
pub(super) const LINES_AT: usize = 0;
/// Sender's memory: data position behind what programs have released.
pub(super) const DATA_AT: usize = 8;
/// Sender's memory: line position behind the last message that the store has.
pub(super) const PLACED_AT: usize = 16;
/// Control line: address of the sender's memory.
pub(super) const ADDRESS_AT: usize = 32;
/// Control line: key of the sender's memory.
pub(super) const KEY_AT: usize = 40;
const _: () = assert!(PLACED_AT + 8 <= CREDIT_BYTES && KEY_AT + 8 <= ENTRY_BYTES);
