//! The landing place of a channel: what it consists of, how large it is made, and how it is described to the peer.
//!
//! A place lies in the window that the receiver reads:
//!
//! ```text
//! 0      one line that the sender writes: whether it has closed, whether it waits for credit
//! 64     the ring: every message of a queuing channel; what does not fit the register of a sampling channel
//! ...    the register of a sampling channel
//! ```
//!
//! Contract: arithmetic and encoding only. A description that came from the peer is hostile until [`LandingPlace::decode`]
//! and [`LandingPlace::check`] have judged it. Called by the link.

use busway_core::{register, ring};
use serde::{Deserialize, Serialize};

use super::layout::{ENTRY_BYTES, WindowLayout};
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

/// Word of the sender's line: the place's tag once the sender has closed in good order.
pub const SENDER_CLOSED_AT: usize = 0;
/// Word of the sender's line: not 0 while the sender waits for credit.
pub const SENDER_WANTS_AT: usize = 8;

/// Offset of the ring in a place.
const RING_AT: usize = ENTRY_BYTES;

/// A landing place, as the receiver makes it and tells the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandingPlace {
    /// Where in the landing area it begins, in bytes, a multiple of 64.
    pub offset: u64,
    /// First position of ring and register, drawn at random: names this place among all that ever lay there.
    pub tag: u64,
    /// Lines of the ring.
    pub lines: u32,
    /// Data area of the ring in bytes.
    pub data_bytes: u64,
    /// Longest message in the register in bytes; 0 if there is no register.
    pub register_bytes: u64,
    /// Entry of the receiver's credit table.
    pub credit: u32,
    /// The receiver's lane, if it can be rung.
    pub lane: Option<u32>,
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

impl LandingPlace {
    /// A place for `spec` that takes about `budget_bytes` at most; offset, tag, credit and lane are still to be filled in.
    pub fn plan(spec: &ChannelSpec, budget_bytes: usize) -> LandingPlace {
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
        LandingPlace {
            offset: 0,
            tag: 0,
            lines: lines as u32,
            data_bytes: data_bytes as u64,
            register_bytes: register_bytes as u64,
            credit: 0,
            lane: None,
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

    /// The description for the peer.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        // At most 1 + 2 * 5 + 4 * 10 bytes and the lane's 6.
        let length = postcard::to_slice(self, &mut bytes).map_or(0, |used| used.len());
        bytes.truncate(length);
        bytes
    }

    /// Reads a peer's description.
    ///
    /// # Errors
    /// In words: why it is none.
    pub fn decode(bytes: &[u8]) -> Result<LandingPlace, String> {
        match postcard::take_from_bytes(bytes) {
            Ok((place, [])) => Ok(place),
            Ok(_) => Err(format!("{} bytes are more than a description has", bytes.len())),
            Err(error) => Err(format!("{} bytes that are no description: {error}", bytes.len())),
        }
    }

    /// Judges a peer's description: the parts, and where in the window the place begins.
    ///
    /// # Errors
    /// In words: what is impossible.
    pub fn check(&self, layout: &WindowLayout) -> Result<(Parts, usize), String> {
        let parts = self
            .parts(layout.landing_bytes)
            .ok_or_else(|| format!("{self:?} fits no landing area of {} bytes", layout.landing_bytes))?;
        let offset = usize::try_from(self.offset)
            .ok()
            .filter(|offset| offset.is_multiple_of(ENTRY_BYTES))
            .filter(|offset| {
                offset
                    .checked_add(parts.total_bytes)
                    .is_some_and(|end| end <= layout.landing_bytes)
            })
            .ok_or_else(|| {
                format!(
                    "{} bytes at {} lie outside the landing area",
                    parts.total_bytes, self.offset
                )
            })?;
        if self.credit == 0 || layout.credit_at(self.credit).is_none() {
            return Err(format!("credit entry {} does not exist", self.credit));
        }
        Ok((parts, layout.landing_at + offset))
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
mod tests {
    use super::*;

    const SPECS: [ChannelSpec; 6] = [
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
                let place = LandingPlace::plan(&spec, budget_bytes);
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
    fn a_description_survives_the_wire() {
        let place = LandingPlace {
            offset: 64,
            tag: u64::MAX,
            credit: u32::MAX,
            lane: Some(u32::MAX),
            ..LandingPlace::plan(&SPECS[2], 1 << 20)
        };
        assert_eq!(LandingPlace::decode(&place.encode()), Ok(place));
    }

    #[test]
    fn an_impossible_description_is_refused() {
        let layout = WindowLayout::new(1 << 20).expect("long enough");
        let good = LandingPlace {
            credit: 1,
            ..LandingPlace::plan(&SPECS[1], 64 << 10)
        };
        assert!(good.check(&layout).is_ok());
        for bad in [
            LandingPlace { offset: 1, ..good },
            LandingPlace {
                offset: u64::MAX - 63,
                ..good
            },
            LandingPlace {
                offset: layout.landing_bytes as u64,
                ..good
            },
            LandingPlace { lines: 0, ..good },
            LandingPlace {
                lines: u32::MAX,
                ..good
            },
            LandingPlace {
                lines: 1 << 31,
                ..good
            },
            LandingPlace {
                data_bytes: 0,
                ..good
            },
            LandingPlace {
                data_bytes: 1 << 40,
                ..good
            },
            LandingPlace {
                register_bytes: u64::MAX,
                ..good
            },
            LandingPlace { credit: 0, ..good },
            LandingPlace {
                credit: u32::MAX,
                ..good
            },
        ] {
            assert!(bad.check(&layout).is_err(), "{bad:?}");
        }
        for garbage in [&[][..], &[0xff; 64], &[0; 3]] {
            assert!(LandingPlace::decode(garbage).is_err(), "{garbage:?}");
        }
    }
}
