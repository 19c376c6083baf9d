//! The layout of a window.
//!
//! Contract: a pure function of the window's length, so both hosts compute the same. One host, the
//! *writer*, writes a window, and the other, the *reader*, reads it; the writer never reads it.
//!
//! ```text
//! 0            header: words (below), then the hello
//! lanes        one line a lane of the writer: its armed word
//! credits      one line a channel that the writer RECEIVES; entry 0 is the control ring's
//! control      the control ring: messages from the writer to the reader
//! landing      landing places of the channels that the writer SENDS, allocated by the reader
//! ```

use busway_core::ring;

/// Version of this layout and of the protocols in it; both hosts must have the same.
pub const PROTOCOL_VERSION: u64 = 2;

/// Conversation numbers, tags and first positions of rings and registers are below this, never 0.
///
/// So no word that is compared for equality is all ones, as a dead PCI link reads. From below 2^62,
/// a ring reaches a commit word `(position << 1) | 1` of all ones only after 2^62 messages, and so
/// does a register's sequence.
pub const MOST_DRAWN: u64 = 1 << 62;

/// Makes a number that anything may be one below [`MOST_DRAWN`], and not 0.
#[must_use]
pub const fn drawn(number: u64) -> u64 {
    let below = number & (MOST_DRAWN - 1);
    if below == 0 { 1 } else { below }
}

/// Smallest window in bytes.
pub const MINIMUM_WINDOW_BYTES: u64 = 32 << 10;
/// Offsets and lengths of windows are multiples of this, in bytes.
pub const WINDOW_ALIGNMENT_BYTES: u64 = 64;

/// First word of a window; reveals the other byte order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BUSWAYmw");

/// Offset of the magic number. Written by the link, as all words of the header.
pub const MAGIC_AT: usize = 0;
/// Offset of [`PROTOCOL_VERSION`].
pub const VERSION_AT: usize = 8;
/// Offset of the window's length in bytes as the writer has mapped it.
pub const LENGTH_AT: usize = 16;
/// Offset of the length of the hello in bytes, at most [`HELLO_MAX_BYTES`].
pub const HELLO_LENGTH_AT: usize = 24;
/// Offset of the checksum over conversation, length of the hello and the hello.
pub const HELLO_CHECK_AT: usize = 32;
/// Offset of the writer's conversation number, 0 while the header is being written.
pub const CONVERSATION_AT: usize = 40;
/// Offset of the reader's conversation number as the writer last saw it: 0 before.
pub const ECHO_AT: usize = 64;
/// Offset of a counter that the writer advances at every heartbeat.
pub const HEARTBEAT_AT: usize = 72;
/// Offset of the reader's conversation in which the writer can ring it; 0 if it can't.
pub const RINGS_AT: usize = 80;
/// Offset of the hello's bytes.
pub const HELLO_AT: usize = 128;
pub const HELLO_MAX_BYTES: usize = HEADER_BYTES - HELLO_AT;

const HEADER_BYTES: usize = 2048;
/// Bytes of one entry of the lane and credit tables: a cache line.
pub const ENTRY_BYTES: usize = crate::remote_write::ENTRY_BYTES;

/// Offsets in a window of a certain length, all in bytes, all multiples of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLayout {
    /// The lane table.
    pub lanes_at: usize,
    /// Entries of the lane table.
    pub lanes: usize,
    /// The credit table.
    pub credits_at: usize,
    /// Entries of the credit table.
    pub credits: usize,
    /// The control ring.
    pub control_at: usize,
    /// The control ring's shape.
    pub control: ring::Layout,
    /// The landing area.
    pub landing_at: usize,
    /// Length of the landing area.
    pub landing_bytes: usize,
}

impl WindowLayout {
    /// Lays out a window of `length_bytes`; `None` if that is less than [`MINIMUM_WINDOW_BYTES`].
    #[must_use]
    pub fn new(length_bytes: usize) -> Option<WindowLayout> {
        if (length_bytes as u64) < MINIMUM_WINDOW_BYTES {
            return None;
        }
        let lanes = (length_bytes >> 13).next_power_of_two().clamp(4, 64);
        let credits = (length_bytes >> 12).next_power_of_two().clamp(8, 2048);
        let control_bytes = (length_bytes >> 6).next_power_of_two().clamp(4096, 64 << 10);
        let control = ring::Layout::new(64, control_bytes, control_bytes / 4).ok()?;
        let lanes_at = HEADER_BYTES;
        let credits_at = lanes_at + lanes * ENTRY_BYTES;
        let control_at = credits_at + credits * ENTRY_BYTES;
        let landing_at = (control_at + control.required_bytes()).next_multiple_of(ENTRY_BYTES);
        let landing_bytes = (length_bytes & !(ENTRY_BYTES - 1)).checked_sub(landing_at)?;
        Some(WindowLayout {
            lanes_at,
            lanes,
            credits_at,
            credits,
            control_at,
            control,
            landing_at,
            landing_bytes,
        })
    }

    /// Offset of the entry of lane `lane`; `None` if the table has no such entry.
    #[must_use]
    pub fn lane_at(&self, lane: u32) -> Option<usize> {
        let lane = lane as usize;
        (lane < self.lanes).then(|| self.lanes_at + lane * ENTRY_BYTES)
    }

    /// Offset of credit entry `index`; `None` if the table has no such entry.
    #[must_use]
    pub fn credit_at(&self, index: u32) -> Option<usize> {
        let index = index as usize;
        (index < self.credits).then(|| self.credits_at + index * ENTRY_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_from_the_minimum_on_has_room_for_landing_places() {
        for length in [
            MINIMUM_WINDOW_BYTES as usize,
            65_536,
            100_032,
            1 << 20,
            32 << 20,
            1 << 30,
        ] {
            let layout = WindowLayout::new(length).expect("long enough");
            assert!(layout.landing_bytes >= length / 4, "{length}: {layout:?}");
            assert!(
                layout.landing_at + layout.landing_bytes <= length,
                "{length}: {layout:?}"
            );
            assert!(
                layout.landing_at.is_multiple_of(ENTRY_BYTES),
                "{length}: {layout:?}"
            );
        }
    }

    #[test]
    fn a_window_below_the_minimum_has_no_layout() {
        assert_eq!(WindowLayout::new(MINIMUM_WINDOW_BYTES as usize - 64), None);
        assert_eq!(WindowLayout::new(0), None);
    }

    #[test]
    fn drawn_numbers_are_neither_0_nor_near_all_ones() {
        for number in [0, 1, MOST_DRAWN - 1, MOST_DRAWN, u64::MAX - 1, u64::MAX] {
            let drawn = drawn(number);
            assert!((1..MOST_DRAWN).contains(&drawn), "{number:x}: {drawn:x}");
        }
    }

    #[test]
    fn entries_outside_the_tables_do_not_exist() {
        let layout = WindowLayout::new(1 << 20).expect("long enough");
        assert!(layout.lane_at(layout.lanes as u32 - 1).is_some());
        assert_eq!(layout.lane_at(layout.lanes as u32), None);
        assert_eq!(layout.credit_at(u32::MAX), None);
    }
}
