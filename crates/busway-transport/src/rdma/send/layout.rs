//! How many slots a receiver has, and how long they are. It chooses; the sender reads it, as
//! hostile bytes, from the landing description: `slot_bytes` and `slots`, 4 bytes each,
//! little-endian.
//!
//! Each unacknowledged message takes a slot, however short it is, and a channel laid out for long
//! messages may carry short ones (a service of slices does). So slots are as long as a message only
//! where that leaves one for each of `depth` messages; else they are shorter, and long messages
//! take several.

use super::wire::PIECE_BYTES;
use crate::contract::{ChannelSpec, Keep};

/// Slots are as long as the messages that the channel is laid out for, within these bounds, in
/// bytes.
const MIN_SLOT_BYTES: u32 = 256;
const MAX_SLOT_BYTES: u32 = 64 << 10;
/// Slots are cut no shorter than this for the sake of their number: a payload of 4 KiB, a packet of
/// RoCE at its largest MTU and a page, with what goes before it.
const CUT_SLOT_BYTES: u32 = (4 << 10) + 64;
/// Slots begin at multiples of this.
const ALIGNMENT_BYTES: u32 = 64;
/// The fewest slots: one for the end mark, and these.
const MIN_SLOTS: u32 = 4;
const MAX_SLOTS: u32 = 1024;
/// The most bytes in slots, since locked memory is scarce: 251 short messages in slots of 4 KiB,
/// 5000 a second where a round trip takes 50 ms.
const WINDOW_BYTES: u32 = 1 << 20;
/// But at least this many slots, so that one is filled while others travel and are emptied.
const MIN_LONG_SLOTS: u32 = 8;
/// Unacknowledged messages on a channel that keeps the latest: two, since one lands while the next
/// one crosses. More of short ones, up to these bounds, so that not each needs a credit. Further
/// ones would only be older when they land.
const LATEST_DEPTH: u32 = 2;
const LATEST_SHORT_DEPTH: u32 = 16;
const LATEST_BYTES: u32 = 64 << 10;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Length of a slot, a multiple of 64.
    pub slot_bytes: u32,
    /// Number of slots.
    pub slots: u32,
}

impl Layout {
    /// For such a channel.
    pub fn of(spec: &ChannelSpec) -> Layout {
        let message_bytes = u32::try_from(spec.message_bytes).unwrap_or(u32::MAX);
        let whole_bytes = message_bytes
            .saturating_add(PIECE_BYTES as u32)
            .clamp(MIN_SLOT_BYTES, MAX_SLOT_BYTES)
            .next_multiple_of(ALIGNMENT_BYTES);
        let depth = depth(spec.keep, whole_bytes);
        // One more for the end mark.
        let share_bytes = WINDOW_BYTES / depth.saturating_add(1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        let slot_bytes = share_bytes.max(CUT_SLOT_BYTES).min(whole_bytes);
        let pieces = message_bytes.div_ceil(slot_bytes - PIECE_BYTES as u32).max(1);
        let most = (WINDOW_BYTES / slot_bytes).clamp(MIN_LONG_SLOTS, MAX_SLOTS);
        let slots = depth
            .saturating_mul(pieces)
            .saturating_add(1)
            .clamp(MIN_SLOTS, most);
        Layout { slot_bytes, slots }
    }

    /// With no more slots than a queue of the device has entries.
    pub fn within(self, max_work: u32) -> Layout {
        Layout {
            slots: self.slots.min(max_work.max(MIN_SLOTS)),
            ..self
        }
    }

    /// The most unacknowledged messages, at least 1; both ends compute the same number.
    pub fn depth(self, keep: Keep) -> u64 {
        u64::from(depth(keep, self.slot_bytes))
    }

    /// Bytes of all slots.
    pub fn bytes(self) -> usize {
        self.slot_bytes as usize * self.slots as usize
    }

    /// The landing description.
    pub fn encode(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.slot_bytes.to_le_bytes());
        bytes[4..].copy_from_slice(&self.slots.to_le_bytes());
        bytes
    }

    /// Reads what a peer described.
    ///
    /// # Errors
    /// In words: what can't be right.
    pub fn decode(bytes: &[u8]) -> Result<Layout, String> {
        let [a, b, c, d, e, f, g, h] = *bytes else {
            return Err(format!("{} bytes where 8 belong", bytes.len()));
        };
        let layout = Layout {
            slot_bytes: u32::from_le_bytes([a, b, c, d]),
            slots: u32::from_le_bytes([e, f, g, h]),
        };
        if !(MIN_SLOT_BYTES..=MAX_SLOT_BYTES).contains(&layout.slot_bytes)
            || !layout.slot_bytes.is_multiple_of(ALIGNMENT_BYTES)
        {
            return Err(format!("slots of {} bytes", layout.slot_bytes));
        }
        let most = (WINDOW_BYTES / layout.slot_bytes).clamp(MIN_LONG_SLOTS, MAX_SLOTS);
        if !(MIN_SLOTS..=most).contains(&layout.slots) {
            return Err(format!("{} slots of {} bytes", layout.slots, layout.slot_bytes));
        }
        Ok(layout)
    }
}

/// The most unacknowledged messages, where slots (or whole messages, if those are shorter) have
/// this length.
fn depth(keep: Keep, slot_bytes: u32) -> u32 {
    match keep {
        Keep::Latest => (LATEST_BYTES / slot_bytes).clamp(LATEST_DEPTH, LATEST_SHORT_DEPTH),
        Keep::All { depth } => depth.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::START_BYTES;
    use super::*;
    use crate::contract::HEAD_BYTES;

    #[test]
    fn every_layout_that_a_receiver_chooses_is_one_that_a_sender_takes() {
        let bytes = [0, 1, 48, 200, 4096, 65_000, 65_528, 65_529, 1 << 20, u64::MAX];
        for message_bytes in bytes {
            for depth in [1, 2, 3, 32, 1000, u32::MAX] {
                for keep in [Keep::Latest, Keep::All { depth }] {
                    let layout = Layout::of(&ChannelSpec { keep, message_bytes });
                    assert_eq!(Layout::decode(&layout.encode()), Ok(layout));
                    let small = layout.within(16);
                    assert_eq!(Layout::decode(&small.encode()), Ok(small));
                }
            }
        }
    }

    #[test]
    fn a_deep_channel_for_long_messages_has_a_slot_for_each_of_many_short_ones() {
        for (depth, at_least) in [(8, 8), (15, 15), (100, 100), (250, 250), (1024, 251)] {
            let spec = ChannelSpec {
                keep: Keep::All { depth },
                message_bytes: 64 << 10,
            };
            let layout = Layout::of(&spec);
            assert!(layout.slots > at_least, "depth {depth}: {layout:?}");
            assert!(layout.bytes() <= WINDOW_BYTES as usize, "{layout:?}");
        }
    }

    #[test]
    fn a_deep_channel_for_pages_has_slots_that_hold_one_whole() {
        let spec = ChannelSpec {
            keep: Keep::All { depth: 256 },
            message_bytes: (HEAD_BYTES + 4096) as u64,
        };
        let layout = Layout::of(&spec);
        assert!(layout.slot_bytes as usize >= START_BYTES + 4096, "{layout:?}");
    }

    #[test]
    fn a_channel_that_keeps_the_latest_has_a_slot_for_each_message_on_its_way_and_few_long_ones() {
        for (message_bytes, depth) in [(64, 16), (1000, 16), (8000, 8), (60_000, 2), (1 << 20, 2)] {
            let spec = ChannelSpec {
                keep: Keep::Latest,
                message_bytes,
            };
            let layout = Layout::of(&spec);
            assert_eq!(layout.depth(Keep::Latest), depth, "{message_bytes} bytes");
            assert!(u64::from(layout.slots) > depth, "{layout:?}");
        }
    }

    #[test]
    fn a_message_that_the_channel_is_laid_out_for_fits_one_slot_up_to_the_longest() {
        for message_bytes in [48, 1000, 60_000] {
            let spec = ChannelSpec {
                keep: Keep::Latest,
                message_bytes,
            };
            assert!(u64::from(Layout::of(&spec).slot_bytes) >= message_bytes + PIECE_BYTES as u64);
        }
    }

    #[test]
    fn layouts_that_make_no_sense_are_refused() {
        for (slot_bytes, slots) in [
            (0, 4),
            (100, 4),
            (257, 4),
            (1 << 20, 4),
            (256, 0),
            (256, 3),
            (256, 5000),
            (65536, 17),
        ] {
            let layout = Layout { slot_bytes, slots };
            assert!(Layout::decode(&layout.encode()).is_err(), "{layout:?}");
        }
        assert!(Layout::decode(&[0; 7]).is_err());
        assert!(Layout::decode(&[0xff; 168]).is_err());
    }
}
