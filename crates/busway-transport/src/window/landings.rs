//! The landing places that this host has given to its peer.
//!
//! Contract: a place is reused only after the link has closed its channel *and* the receiving end
//! was dropped, since that may still deliver what had arrived. The caller ensures that no former
//! sender writes there (see [`crate::Link::close`] and [`super::write_permission`]). Called by the
//! control thread.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use range_alloc::RangeAllocator;

use super::landing_place::LandingPlace;
use super::layout::{ENTRY_BYTES, WindowLayout};
use crate::contract::{ChannelId, ChannelSpec};
use crate::remote_write::shape::{Parts, Shape};

/// No place gets a smaller budget than this, in bytes.
const SMALLEST_BUDGET_BYTES: usize = 8 << 10;
/// With n places in use, the next one's budget is the area / this / (n + 2), or less if no such
/// range is free.
const FIRST_SHARE: usize = 3;
/// This many places get the first share.
const FIRST_PLACES: usize = 8;
/// The same for further places. At most 0.6 of the area is used by then; the next two hundred take
/// less than 0.4.
const FURTHER_SHARE: usize = 8;

/// The use of a landing place and a credit entry.
#[derive(Debug)]
pub struct Lease {
    /// In the landing area, in bytes, multiples of 64.
    range: Range<usize>,
    credit: u32,
}

/// All places of one window.
#[derive(Debug)]
pub struct Landings {
    allocator: RangeAllocator<usize>,
    /// Whether an entry of the credit table is in use; entry 0 is the control ring's.
    credits: Vec<bool>,
    live: HashMap<ChannelId, Arc<Lease>>,
    /// Closed, but perhaps still held by an end.
    retired: Vec<Arc<Lease>>,
}

impl Landings {
    /// Places in the window that this host reads, with credit entries in the one that it writes.
    pub fn new(read: &WindowLayout, write: &WindowLayout) -> Landings {
        let mut credits = vec![false; write.credits];
        credits[0] = true;
        Landings {
            allocator: RangeAllocator::new(0..read.landing_bytes & !(ENTRY_BYTES - 1)),
            credits,
            live: HashMap::new(),
            retired: Vec::new(),
        }
    }

    /// A place for a channel; `tag` names it. The lane is still to be filled in.
    pub fn open(
        &mut self,
        channel: ChannelId,
        spec: &ChannelSpec,
        tag: u64,
    ) -> Result<(LandingPlace, Parts, Arc<Lease>), String> {
        self.sweep();
        if self.live.contains_key(&channel) {
            return Err(format!("{channel:?} is open already"));
        }
        let credit = self
            .credits
            .iter()
            .position(|used| !used)
            .ok_or_else(|| format!("all {} channels of the window are in use", self.credits.len() - 1))?;
        let places = self.live.len() + self.retired.len();
        let share = if places < FIRST_PLACES {
            FIRST_SHARE
        } else {
            FURTHER_SHARE
        };
        let area_bytes = self.allocator.initial_range().end;
        let share_bytes = area_bytes / share / (places + 2);
        let mut budget_bytes = share_bytes.max(SMALLEST_BUDGET_BYTES);
        loop {
            let shape = Shape::plan(spec, budget_bytes);
            let parts = shape.parts(area_bytes);
            if let Some(parts) = parts
                && let bytes = parts.total_bytes.next_multiple_of(ENTRY_BYTES)
                && let Ok(range) = self.allocator.allocate_range(bytes)
            {
                self.credits[credit] = true;
                let place = LandingPlace {
                    offset: range.start as u64,
                    tag,
                    shape,
                    credit: credit as u32,
                    lane: None,
                };
                let lease = Arc::new(Lease {
                    range,
                    credit: credit as u32,
                });
                self.live.insert(channel, Arc::clone(&lease));
                return Ok((place, parts, lease));
            }
            if budget_bytes <= SMALLEST_BUDGET_BYTES {
                return Err(format!(
                    "{} of {} bytes of the landing area are free: lengthen the window",
                    self.allocator.total_available(),
                    area_bytes
                ));
            }
            budget_bytes = (budget_bytes / 2).max(SMALLEST_BUDGET_BYTES);
        }
    }

    pub fn close(&mut self, channel: ChannelId) {
        self.retired.extend(self.live.remove(&channel));
        self.sweep();
    }

    /// Forgets all channels.
    pub fn close_all(&mut self) {
        self.retired.extend(self.live.drain().map(|(_, lease)| lease));
        self.sweep();
    }

    /// Takes back what no end holds any more.
    fn sweep(&mut self) {
        let (allocator, credits) = (&mut self.allocator, &mut self.credits);
        self.retired.retain(|lease| {
            let held = Arc::strong_count(lease) > 1;
            if !held {
                allocator.free_range(lease.range.clone());
                credits[lease.credit as usize] = false;
            }
            held
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Keep;

    fn landings(length: usize) -> Landings {
        let layout = WindowLayout::new(length).expect("long enough");
        Landings::new(&layout, &layout)
    }

    const SPEC: ChannelSpec = ChannelSpec {
        keep: Keep::All { depth: 16 },
        message_bytes: 1 << 20,
    };

    #[test]
    fn two_hundred_channels_of_long_messages_find_room_in_32_mib() {
        let mut landings = landings(32 << 20);
        for id in 0..200 {
            landings
                .open(ChannelId(id), &SPEC, 1)
                .unwrap_or_else(|error| panic!("channel {id}: {error}"));
        }
    }

    #[test]
    fn a_place_is_free_again_only_when_closed_and_dropped() {
        let mut landings = landings(64 << 10);
        let free = landings.allocator.total_available();
        let (_, _, lease) = landings.open(ChannelId(1), &SPEC, 1).expect("room");
        landings.close(ChannelId(1));
        assert!(landings.allocator.total_available() < free);
        drop(lease);
        landings.sweep();
        assert_eq!(landings.allocator.total_available(), free);
    }

    #[test]
    fn a_full_window_says_so_and_recovers() {
        let mut landings = landings(32 << 10);
        let ids = (0..).map(ChannelId);
        let full = ids
            .map(|id| landings.open(id, &SPEC, 1).map(|_| ()))
            .find_map(Result::err);
        assert!(full.is_some());
        landings.close_all();
        assert!(landings.open(ChannelId(0), &SPEC, 1).is_ok());
    }
}
