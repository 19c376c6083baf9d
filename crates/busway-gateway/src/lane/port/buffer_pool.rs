//! Memory for messages of ports that go to other hosts.
//!
//! A buffer is free while no bus holds it. The message in one can be found until the buffer is used
//! again, so that channels to several hosts share it. Called by [`super::outbound`] and by
//! [`super::fan_out`], which owns it; after [`BufferPool::new`] only [`BufferPool::append`]
//! allocates, which is called when a host joins.

use std::sync::Arc;

use busway_port::carry::Carried;
use busway_transport::Head;

use crate::iox::sample::Outgoing;

/// Size of all buffers of a new pool together, in bytes; small messages get more buffers.
const POOL_BYTES: usize = 4 << 20;
/// Most buffers of a new pool.
const MAX_BUFFERS: usize = 32;

#[derive(Default)]
pub struct BufferPool {
    slots: Vec<Slot>,
    /// Where the search for a free buffer starts: they are used in turn.
    cursor: usize,
    /// Highest number that was ever read.
    newest: u64,
}

struct Slot {
    buffer: Arc<[u8]>,
    /// The message in the buffer: as it was read, and the head under which it leaves.
    message: Option<(Carried, Head)>,
}

impl BufferPool {
    /// Buffers for messages up to this length.
    pub fn new(size_bytes: usize) -> BufferPool {
        let count = (POOL_BYTES / size_bytes).clamp(2, MAX_BUFFERS);
        let slot = |_| Slot {
            buffer: vec![0; size_bytes].into(),
            message: None,
        };
        BufferPool {
            slots: (0..count).map(slot).collect(),
            ..BufferPool::default()
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Adds another pool's buffers.
    pub fn append(&mut self, mut other: BufferPool) {
        self.slots.append(&mut other.slots);
    }

    /// Removes `count` buffers, first those that a bus still holds: a host that ended leaves some
    /// of them.
    pub fn shrink(&mut self, count: usize) {
        self.slots
            .sort_unstable_by_key(|slot| Arc::strong_count(&slot.buffer) > 1);
        self.slots.truncate(self.slots.len().saturating_sub(count));
        self.cursor = 0;
    }

    /// A free buffer.
    pub fn free(&mut self) -> Option<usize> {
        let count = self.slots.len();
        let mut indices = (0..count).map(|step| (self.cursor + step) % count);
        indices.find(|index| Arc::get_mut(&mut self.slots[*index].buffer).is_some())
    }

    /// Has `read` put a message into a [free](Self::free) buffer, and returns it as it leaves.
    pub fn fill(
        &mut self,
        index: usize,
        read: impl FnOnce(&mut [u8]) -> Option<(Carried, Head)>,
    ) -> Option<Outgoing> {
        let slot = &mut self.slots[index];
        slot.message = None;
        let (carried, head) = read(Arc::get_mut(&mut slot.buffer)?)?;
        slot.message = Some((carried, head));
        self.cursor = index + 1;
        self.newest = self.newest.max(carried.sequence);
        Some(Outgoing::port(head, slot.buffer.clone()))
    }

    /// Highest number that was ever read.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The message with this number, if it is still known and `is_same` accepts it.
    pub fn find(&self, number: u64, is_same: impl FnOnce(&Carried, &[u8]) -> bool) -> Option<Outgoing> {
        let found = self.slots.iter().find_map(|slot| {
            let (carried, head) = slot.message.as_ref()?;
            (carried.sequence == number).then_some((slot, carried, head))
        });
        let (slot, carried, head) = found?;
        is_same(carried, &slot.buffer[..carried.len_bytes])
            .then(|| Outgoing::port(*head, slot.buffer.clone()))
    }
}

#[cfg(test)]
mod tests {
    use busway_transport::{Kind, Message as _};

    use super::*;

    const SIZE_BYTES: usize = 1 << 20;

    fn read(number: u64) -> impl FnOnce(&mut [u8]) -> Option<(Carried, Head)> {
        move |buffer| {
            buffer[0] = number as u8;
            let carried = Carried {
                len_bytes: 1,
                time_ns: 0,
                sequence: number,
                lost: 0,
            };
            let head = Head {
                sequence: number,
                origin: 1,
                time_ns: 0,
                payload_bytes: 1,
                events: 0,
                user_header_bytes: 0,
                kind: Kind::Data,
            };
            Some((carried, head))
        }
    }

    fn take(pool: &mut BufferPool, number: u64) -> Outgoing {
        let index = pool.free().expect("one is free");
        pool.fill(index, read(number)).expect("it was read")
    }

    #[test]
    fn message_is_found_until_its_buffer_is_reused() {
        let mut pool = BufferPool::new(SIZE_BYTES);
        let first = take(&mut pool, 1);
        let again = pool.find(1, |_, bytes| bytes == [1]).expect("it is known");
        assert_eq!(again.payload().as_ptr(), first.payload().as_ptr());
        assert_eq!(again.head(), first.head());
        drop((first, again));
        assert!(
            pool.find(1, |_, _| true).is_some(),
            "nobody holds it, but it is there"
        );
        for number in 2..=1 + pool.len() as u64 {
            take(&mut pool, number);
        }
        assert!(pool.find(1, |_, _| true).is_none());
        assert_eq!(pool.newest(), 1 + pool.len() as u64);
    }

    #[test]
    fn read_without_message_leaves_its_buffer_empty() {
        let mut pool = BufferPool::new(SIZE_BYTES);
        for number in 1..=pool.len() as u64 {
            take(&mut pool, number);
        }
        let index = pool.free().expect("all are free");
        assert!(pool.fill(index, |_| None).is_none());
        assert!(
            pool.find(1, |_, _| true).is_none(),
            "its buffer may be half overwritten"
        );
        assert_eq!(pool.free(), Some(index), "it is as good as before");
    }

    #[test]
    fn shrinking_removes_held_buffers_first() {
        let mut pool = BufferPool::new(SIZE_BYTES);
        let count = pool.len();
        pool.append(BufferPool::new(SIZE_BYTES));
        let held: Vec<Outgoing> = (0..count as u64).map(|number| take(&mut pool, number)).collect();
        pool.shrink(count);
        let others: Vec<Outgoing> = (0..count as u64).map(|number| take(&mut pool, number)).collect();
        assert!(pool.free().is_none());
        drop((held, others));
    }
}
