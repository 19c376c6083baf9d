//! The shape of a landing place: what it consists of and how large its parts are made.
//!
//! ```text
//! 0      one line that the sender writes: whether it has closed, whether it waits for credit
//! 64     the ring: every message of a queuing channel; what does not fit the register of a sampling channel
//! ...    the register of a sampling channel
//! ```
//!
//! Contract: arithmetic only. A shape that came from the peer is hostile until [`Shape::parts`] has judged it. Called by the links.

use busway_core::{register, ring};
use serde::{Deserialize, Serialize};

use super::ENTRY_BYTES;
use crate::link::{ChannelSpec, Keep};
use crate::message::HEAD_BYTES;

/// Longest piece in which a message crosses, in bytes: the receiver copies one while the sender writes the next. Measured
/// with `examples/bus_rate.rs` at 1 MiB: pieces of 16 KiB cost 1.7 times the CPU time, longer ones gain nothing.
const LONGEST_PIECE_BYTES: usize = 256 << 10;
/// The data area is never smaller than this, in bytes.
const SMALLEST_DATA_BYTES: usize = 4 << 10;
/// The data area is never larger than this, in bytes. It is larger than the caches need so that a sender whose receiver does not
/// run at once (few cores, many processes) can hand over a long message without waiting for it.
const LARGEST_DATA_BYTES: usize = 4 << 20;
/// The most lines of a ring.
const MOST_LINES: usize = 8192;
/// Slots of a register. One more than the least, so that a reader hardly ever meets the writer.
const REGISTER_SLOTS: usize = 4;
/// Lines of the ring beside a register.
const SIDE_LINES: usize = 16;

/// Offset of the ring in a place.
const RING_AT: usize = ENTRY_BYTES;

/// The numbers from which the parts of a landing place follow, as the receiver chooses them and tells the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Lines of the ring.
    pub lines: u32,
    /// Data area of the ring in bytes.
    pub data_bytes: u64,
    /// Longest message in the register in bytes; 0 if there is no register.
    pub register_bytes: u64,
}

/// The parts of a place, checked.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Shape of the ring.
    pub ring: ring::Layout,
    /// Where it lies in the place, in bytes.
    pub ring_at: usize,
    /// Shape of the register and where it lies in the place, in bytes.
    pub register: Option<(register::Layout, usize)>,
    /// Length of the whole place in bytes.
    pub total_bytes: usize,
}

impl Shape {
    /// A shape for `spec` that takes about `budget_bytes` at most.
    pub fn plan(spec: &ChannelSpec, budget_bytes: usize) -> Shape {
        let message_bytes = usize::try_from(spec.message_bytes)
            .unwrap_or(usize::MAX)
            .max(HEAD_BYTES);
        let (lines, data_bytes, register_bytes) = match spec.keep {
            Keep::All { depth } => {
                let data_bytes = data_bytes(message_bytes, depth as usize, budget_bytes / 8 * 7);
                let pieces = message_bytes.div_ceil(piece_bytes(data_bytes)).max(1);
                let lines = (depth as usize)
                    .saturating_mul(pieces)
                    .clamp(4, MOST_LINES)
                    .next_power_of_two();
                // Lines never outgrow the data that they are for.
                let most = (budget_bytes / 8 / ENTRY_BYTES).max(16);
                (lines.min(1 << most.ilog2()), data_bytes, 0)
            }
            Keep::Latest => {
                let slots = register::Layout::new(REGISTER_SLOTS, message_bytes);
                let fits = slots.is_ok_and(|slots| slots.required_bytes() <= budget_bytes / 4 * 3);
                let side_depth = if fits { 1 } else { 2 };
                let data_bytes = data_bytes(message_bytes, side_depth, budget_bytes / 4);
                (SIDE_LINES, data_bytes, if fits { message_bytes } else { 0 })
            }
        };
        Shape {
            lines: lines as u32,
            data_bytes: data_bytes as u64,
            register_bytes: register_bytes as u64,
        }
    }

    /// The parts; `None` if the numbers fit no memory of `area_bytes`.
    pub fn parts(&self, area_bytes: usize) -> Option<Parts> {
        let data_bytes = usize::try_from(self.data_bytes)
            .ok()
            .filter(|bytes| *bytes <= area_bytes)?;
        let lines = usize::try_from(self.lines)
            .ok()
            .filter(|lines| *lines <= area_bytes)?;
        let ring = ring::Layout::new(lines, data_bytes, piece_bytes(data_bytes)).ok()?;
        // Every piece but the last of a message must carry the head.
        if ring.max_size_bytes() < HEAD_BYTES {
            return None;
        }
        let mut total_bytes = RING_AT.checked_add(ring.required_bytes())?;
        let mut register = None;
        if self.register_bytes != 0 {
            let longest = usize::try_from(self.register_bytes)
                .ok()
                .filter(|bytes| *bytes <= area_bytes)?;
            let layout = register::Layout::new(REGISTER_SLOTS, longest).ok()?;
            register = Some((layout, total_bytes));
            total_bytes = total_bytes.checked_add(layout.required_bytes())?;
        }
        Some(Parts {
            ring,
            ring_at: RING_AT,
            register,
            total_bytes,
        })
    }
}

/// The longest piece in a data area of `data_bytes`: four find room, so that both sides work at once.
fn piece_bytes(data_bytes: usize) -> usize {
    (data_bytes / 4).min(LONGEST_PIECE_BYTES)
}

/// A data area for `depth` messages within `budget_bytes`, a power of two.
fn data_bytes(message_bytes: usize, depth: usize, budget_bytes: usize) -> usize {
    let padded = message_bytes
        .checked_next_multiple_of(ENTRY_BYTES)
        .unwrap_or(usize::MAX);
    let wanted = padded.saturating_mul(depth.saturating_add(1));
    let most = budget_bytes.clamp(SMALLEST_DATA_BYTES, LARGEST_DATA_BYTES);
    let most = if most.is_power_of_two() {
        most
    } else {
        most.next_power_of_two() / 2
    };
    if wanted >= most {
        most
    } else {
        wanted.next_power_of_two().clamp(SMALLEST_DATA_BYTES, most)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const SPECS: [ChannelSpec; 6] = [
        ChannelSpec {
            keep: Keep::All { depth: 1 },
            message_bytes: 0,
        },
        ChannelSpec {
            keep: Keep::All { depth: 64 },
            message_bytes: 112,
        },
        ChannelSpec {
            keep: Keep::All { depth: u32::MAX },
            message_bytes: u64::MAX,
        },
        ChannelSpec {
            keep: Keep::Latest,
            message_bytes: 0,
        },
        ChannelSpec {
            keep: Keep::Latest,
            message_bytes: 1 << 20,
        },
        ChannelSpec {
            keep: Keep::Latest,
            message_bytes: u64::MAX,
        },
    ];

    #[test]
    fn every_channel_gets_a_place_within_twice_its_budget() {
        for spec in SPECS {
            for budget_bytes in [16 << 10, 100_000, 1 << 20, 64 << 20] {
                let place = Shape::plan(&spec, budget_bytes);
                let parts = place
                    .parts(1 << 30)
                    .unwrap_or_else(|| panic!("{spec:?} {budget_bytes}: {place:?}"));
                assert!(
                    parts.total_bytes <= 2 * budget_bytes,
                    "{spec:?} {budget_bytes}: {parts:?}"
                );
            }
        }
    }
}
