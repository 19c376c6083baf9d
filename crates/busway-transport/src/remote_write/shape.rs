//! The shape of a landing place: its parts and their sizes.
//!
//! ```text
//! 0      one line that the sender writes: whether it has closed, whether it waits for credit
//! 64     the ring: all messages of a queuing channel; of a sampling channel, those that do not fit
//!        the register
//! ...    the register of a sampling channel
//! ```
//!
//! Contract: arithmetic only. A peer's shape is hostile until [`Shape::parts`] has checked it.

use busway_core::{register, ring};
use serde::{Deserialize, Serialize};

use super::ENTRY_BYTES;
use crate::contract::{ChannelSpec, HEAD_BYTES, Keep};

/// Longest piece of a message, in bytes: the receiver copies one while the sender writes the next.
/// Measured at 1 MiB: pieces of 16 KiB cost 1.7 times the CPU time, longer pieces gain nothing.
const LONGEST_PIECE_BYTES: usize = 256 << 10;
/// The data area is never smaller than this, in bytes.
const SMALLEST_DATA_BYTES: usize = 4 << 10;
/// Largest data area, in bytes. It is larger than the caches need, so that a sender can hand over a
/// long message although its receiver does not run at once.
const LARGEST_DATA_BYTES: usize = 4 << 20;
const MOST_LINES: usize = 8192;
/// Slots of a register: one more than the minimum, so that a reader seldom reads the slot being
/// written.
const REGISTER_SLOTS: usize = 4;
/// Wide lines take at most this many quarters of a landing place; the data area beside them takes
/// an eighth.
const WIDE_LINES_QUARTERS: usize = 3;
const DATA_BESIDE_WIDE_LINES: usize = 8;
/// No line is believed to be wider, in bytes.
const WIDEST_LINE_BYTES: usize = 64 << 10;
/// Lines of the ring beside a register.
const SIDE_LINES: usize = 16;

/// Offset of the ring in a place.
const RING_AT: usize = ENTRY_BYTES;

/// The sizes in a landing place, as the receiver chooses them and sends them to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub lines: u32,
    /// Width of a line in bytes.
    pub line_bytes: u32,
    /// Data area of the ring in bytes.
    pub data_bytes: u64,
    /// Longest message in the register in bytes; 0 if there is no register.
    pub register_bytes: u64,
}

/// The parts of a place, checked.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
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
            line_bytes: ENTRY_BYTES as u32,
        }
    }

    /// A shape for a bus on which each write is expensive. As [`plan`](Self::plan), but messages of
    /// a queuing channel of at most `widest_bytes` lie in their lines, so each is one write. Longer
    /// ones use the data area, which is at most an eighth of the budget.
    pub fn plan_wide(spec: &ChannelSpec, budget_bytes: usize, widest_bytes: usize) -> Shape {
        let usual = Shape::plan(spec, budget_bytes);
        let Keep::All { depth } = spec.keep else {
            return usual;
        };
        let message_bytes = usize::try_from(spec.message_bytes)
            .unwrap_or(usize::MAX)
            .max(HEAD_BYTES);
        if message_bytes > widest_bytes {
            return usual;
        }
        let line_bytes = (ring::LINE_HEAD_BYTES + message_bytes).next_multiple_of(ENTRY_BYTES);
        let most = (budget_bytes / 4 * WIDE_LINES_QUARTERS / line_bytes).max(4);
        let lines = (depth as usize).clamp(4, MOST_LINES).next_power_of_two();
        Shape {
            lines: lines.min(1 << most.ilog2()) as u32,
            line_bytes: line_bytes as u32,
            data_bytes: data_bytes(
                message_bytes,
                depth as usize,
                budget_bytes / DATA_BESIDE_WIDE_LINES,
            ) as u64,
            register_bytes: 0,
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
        let line_bytes = usize::try_from(self.line_bytes)
            .ok()
            .filter(|bytes| (ENTRY_BYTES..=WIDEST_LINE_BYTES).contains(bytes))?;
        // A message that fits a line is one piece, whatever the data area.
        let piece_bytes = piece_bytes(data_bytes).max(line_bytes - ring::LINE_HEAD_BYTES);
        let ring = ring::Layout::with_wide_lines(lines, line_bytes, data_bytes, piece_bytes).ok()?;
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

/// The longest piece in a data area of `data_bytes`: four fit, so that both sides work at once.
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

    #[test]
    fn wide_lines_hold_short_messages_and_data_area_longer_ones() {
        for (message_bytes, depth) in [(48, 1), (64, 256), (1000, 64), (1096, 256), (4144, 256)] {
            let spec = ChannelSpec {
                keep: Keep::All { depth },
                message_bytes,
            };
            let parts = Shape::plan_wide(&spec, 2 << 20, 4200)
                .parts(1 << 30)
                .expect("a shape");
            assert!(parts.ring.inline_bytes() as u64 >= message_bytes, "{parts:?}");
            assert!(parts.ring.max_size_bytes() as u64 >= 1024, "{parts:?}");
            assert!(parts.total_bytes <= 2 << 20, "{parts:?}");
        }
        for spec in SPECS {
            for budget_bytes in [16 << 10, 2 << 20] {
                let shape = Shape::plan_wide(&spec, budget_bytes, 4200);
                let parts = shape.parts(1 << 30).expect("a shape");
                assert!(parts.total_bytes <= 2 * budget_bytes, "{parts:?}");
            }
        }
    }

    #[test]
    fn lines_of_an_impossible_width_are_refused() {
        let spec = ChannelSpec {
            keep: Keep::All { depth: 4 },
            message_bytes: 100,
        };
        for line_bytes in [0, 23, 24, 63, 65, 128 << 10, u32::MAX] {
            let shape = Shape {
                line_bytes,
                ..Shape::plan(&spec, 1 << 20)
            };
            assert!(shape.parts(1 << 30).is_none(), "{line_bytes}");
        }
    }
}
