//! Allocates landing places in the window that this host reads.
//!
//! Contract: state in ordinary memory; first fit; free neighbours merge; offsets are multiples of
//! 64 bytes. Called by the control thread.

use super::layout::ENTRY_BYTES;

/// The free ranges of an area.
#[derive(Debug)]
pub struct Allocator {
    /// `(offset, length)` in bytes, sorted by offset, never adjacent, never empty.
    free: Vec<(usize, usize)>,
    area_bytes: usize,
}

impl Allocator {
    /// An area of `area_bytes`, all of it free.
    pub fn new(area_bytes: usize) -> Allocator {
        let area_bytes = area_bytes & !(ENTRY_BYTES - 1);
        let free = if area_bytes == 0 {
            Vec::new()
        } else {
            vec![(0, area_bytes)]
        };
        Allocator { free, area_bytes }
    }

    /// Length of the area in bytes.
    pub fn area_bytes(&self) -> usize {
        self.area_bytes
    }

    /// Bytes that are free, in one piece or several.
    pub fn free_bytes(&self) -> usize {
        self.free.iter().map(|(_, length)| length).sum()
    }

    /// Takes `bytes` (rounded up to 64) and returns their offset; `None` if no free range is that
    /// long.
    pub fn allocate(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.max(1).checked_next_multiple_of(ENTRY_BYTES)?;
        let at = self.free.iter().position(|(_, length)| *length >= bytes)?;
        let (offset, length) = self.free[at];
        if length == bytes {
            self.free.remove(at);
        } else {
            self.free[at] = (offset + bytes, length - bytes);
        }
        Some(offset)
    }

    /// Takes back what [`allocate`](Self::allocate) returned for `bytes`.
    pub fn free(&mut self, offset: usize, bytes: usize) {
        let bytes = bytes.max(1).next_multiple_of(ENTRY_BYTES);
        let at = self.free.partition_point(|(start, _)| *start < offset);
        debug_assert!(
            at == 0 || self.free[at - 1].0 + self.free[at - 1].1 <= offset,
            "freed twice"
        );
        debug_assert!(
            self.free.get(at).is_none_or(|next| offset + bytes <= next.0),
            "freed twice"
        );
        self.free.insert(at, (offset, bytes));
        if self.free.get(at + 1).is_some_and(|next| offset + bytes == next.0) {
            self.free[at].1 += self.free.remove(at + 1).1;
        }
        if at > 0 && self.free[at - 1].0 + self.free[at - 1].1 == offset {
            self.free[at - 1].1 += self.free.remove(at).1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_stay_inside() {
        let mut allocator = Allocator::new(1000);
        let places: Vec<usize> = std::iter::from_fn(|| allocator.allocate(100)).collect();
        assert_eq!(places, [0, 128, 256, 384, 512, 640, 768]);
        assert_eq!(allocator.free_bytes(), 64);
    }

    #[test]
    fn freed_neighbours_merge_in_every_order() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut allocator = Allocator::new(192);
            let places = [64, 64, 64].map(|bytes| allocator.allocate(bytes).expect("room"));
            assert_eq!(allocator.allocate(1), None);
            for at in order {
                allocator.free(places[at], 64);
            }
            assert_eq!(
                allocator.allocate(192),
                Some(0),
                "after freeing in the order {order:?}"
            );
        }
    }

    #[test]
    fn what_is_longer_than_the_area_is_refused() {
        let mut allocator = Allocator::new(4096);
        assert_eq!(allocator.allocate(4097), None);
        assert_eq!(allocator.allocate(usize::MAX), None);
        assert_eq!(Allocator::new(0).allocate(0), None);
    }
}
