//! Keeps the messages of a sending end as one stream of bytes until they are acknowledged.
//!
//! Small messages are copied into a ring and dropped at once; larger ones are kept as they are.
//! Nothing here allocates after [`SendBuffer::new`], locks or waits.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::contract::{HEAD_BYTES, Message};
use crate::stream::segment_bytes;

/// Messages up to this size in bytes, head included, are copied.
const COPY_MAX_BYTES: usize = 16 * 1024;
const RING_BYTES: usize = 512 * 1024;
const KEPT_MAX: usize = 64;
/// No message is kept uncopied once those kept have this many bytes.
const KEPT_MAX_BYTES: usize = 4 << 20;
/// Heads whose offset is known, at most.
const HEADS_MAX: usize = RING_BYTES / HEAD_BYTES + KEPT_MAX;

struct Segment<M> {
    start: u64,
    bytes: usize,
    storage: Storage<M>,
}

enum Storage<M> {
    /// In the ring, from this index on.
    Copied(usize),
    Kept([u8; HEAD_BYTES], M),
}

pub(super) struct SendBuffer<M> {
    ring: Box<[u8]>,
    set_timer: usize,
    ring_used: usize,
    segments: VecDeque<Segment<M>>,
    kept: usize,
    kept_bytes: usize,
    end: u64,
    /// Offsets where the messages held begin, and the number of the first message.
    heads: VecDeque<u64>,
    first_number: u64,
    /// Index of the segment and of the head found last: hints for the next search.
    last_segment: Cell<usize>,
    last_head: Cell<usize>,
    /// Whether offsets of heads are recorded.
    notes_heads: bool,
}

impl<M: Message> SendBuffer<M> {
    /// `notes_heads`: whether [`first_head`](Self::first_head) will be called.
    pub(super) fn new(notes_heads: bool) -> SendBuffer<M> {
        SendBuffer {
            ring: vec![0; RING_BYTES].into_boxed_slice(),
            set_timer: 0,
            ring_used: 0,
            // At worst, copied segments and kept messages alternate, and one segment wraps in the
            // ring.
            segments: VecDeque::with_capacity(2 * KEPT_MAX + 3),
            kept: 0,
            kept_bytes: 0,
            end: 0,
            heads: VecDeque::with_capacity(if notes_heads { HEADS_MAX } else { 0 }),
            first_number: 0,
            last_segment: Cell::new(0),
            last_head: Cell::new(0),
            notes_heads,
        }
    }

    pub(super) fn fits(&self, total_bytes: usize) -> bool {
        if self.notes_heads && self.heads.len() >= HEADS_MAX {
            return false;
        }
        if total_bytes <= COPY_MAX_BYTES {
            RING_BYTES - self.ring_used >= total_bytes
        } else {
            self.kept < KEPT_MAX && self.kept_bytes < KEPT_MAX_BYTES
        }
    }

    /// Appends a message that [fits](Self::fits); returns its length in bytes.
    pub(super) fn push(&mut self, message: M) -> u64 {
        let head = message.head().encode();
        let bytes = segment_bytes(&message);
        if self.notes_heads {
            self.heads.push_back(self.end);
        }
        if bytes <= COPY_MAX_BYTES {
            for part in [&head, message.user_header(), message.payload()] {
                self.copy(part);
            }
        } else {
            self.segments.push_back(Segment {
                start: self.end,
                bytes,
                storage: Storage::Kept(head, message),
            });
            self.kept += 1;
            self.kept_bytes += bytes;
            self.end += bytes as u64;
        }
        bytes as u64
    }

    fn copy(&mut self, mut part: &[u8]) {
        while !part.is_empty() {
            let (now, rest) = part.split_at(part.len().min(RING_BYTES - self.set_timer));
            self.ring[self.set_timer..self.set_timer + now.len()].copy_from_slice(now);
            match self.segments.back_mut() {
                Some(Segment {
                    bytes,
                    storage: Storage::Copied(at),
                    ..
                }) if *at + *bytes == self.set_timer => *bytes += now.len(),
                _ => self.segments.push_back(Segment {
                    start: self.end,
                    bytes: now.len(),
                    storage: Storage::Copied(self.set_timer),
                }),
            }
            self.set_timer = (self.set_timer + now.len()) % RING_BYTES;
            self.ring_used += now.len();
            self.end += now.len() as u64;
            part = rest;
        }
    }

    pub(super) fn reader(&self) -> Reader<'_, M> {
        Reader {
            outgoing: self,
            at: u64::MAX,
            parts: [&[]; 3],
            next: 0,
        }
    }

    /// The first message that begins among these bytes, or at their end: its offset in them, and
    /// its number from 0.
    pub(super) fn first_head(&self, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        let at = find(&self.heads, &self.last_head, |head| *head < offset);
        match self.heads.get(at) {
            Some(head) => (*head < offset + bytes).then(|| (head - offset, self.first_number + at as u64)),
            None => (bytes == 0 && offset == self.end).then(|| (0, self.first_number + at as u64)),
        }
    }

    pub(super) fn release(&mut self, offset: u64) {
        while let Some(front) = self.segments.front_mut() {
            let done = usize::try_from(offset.saturating_sub(front.start))
                .map_or(front.bytes, |done| done.min(front.bytes));
            if let Storage::Copied(at) = &mut front.storage {
                *at += done;
                front.start += done as u64;
                front.bytes -= done;
                self.ring_used -= done;
                if front.bytes > 0 {
                    break;
                }
            } else {
                if done < front.bytes {
                    break;
                }
                self.kept -= 1;
                self.kept_bytes -= front.bytes;
            }
            self.segments.pop_front();
        }
        while self.heads.front().is_some_and(|head| *head < offset) {
            self.heads.pop_front();
            self.first_number += 1;
        }
    }
}

/// Reads bytes of the stream; mostly each read begins where the one before ended.
pub(super) struct Reader<'a, M> {
    outgoing: &'a SendBuffer<M>,
    /// Offset of the first byte of `parts` in the stream.
    at: u64,
    parts: [&'a [u8]; 3],
    next: usize,
}

impl<M: Message> Reader<'_, M> {
    /// Copies the bytes from `offset` on, which must be held.
    #[inline]
    pub(super) fn read(&mut self, offset: u64, mut to: &mut [u8]) {
        if offset != self.at {
            self.seek(offset);
        }
        self.at += to.len() as u64;
        loop {
            for part in &mut self.parts {
                let (now, rest) = part.split_at(part.len().min(to.len()));
                let (place, after) = std::mem::take(&mut to).split_at_mut(now.len());
                place.copy_from_slice(now);
                (*part, to) = (rest, after);
            }
            if to.is_empty() || !self.enter_next() {
                debug_assert!(to.is_empty(), "the bytes are held");
                return;
            }
        }
    }

    fn seek(&mut self, offset: u64) {
        let segments = &self.outgoing.segments;
        self.next = find(segments, &self.outgoing.last_segment, |segment| {
            segment.start + segment.bytes as u64 <= offset
        });
        self.at = offset;
        let start = segments.get(self.next).map_or(offset, |segment| segment.start);
        self.enter_next();
        let mut skip = (offset - start) as usize;
        for part in &mut self.parts {
            let skipped = skip.min(part.len());
            *part = &part[skipped..];
            skip -= skipped;
        }
    }

    /// Moves to the next segment; false if there is none.
    fn enter_next(&mut self) -> bool {
        let Some(segment) = self.outgoing.segments.get(self.next) else {
            return false;
        };
        self.outgoing.last_segment.set(self.next);
        self.next += 1;
        self.parts = match &segment.storage {
            Storage::Copied(at) => [&self.outgoing.ring[*at..*at + segment.bytes], &[], &[]],
            Storage::Kept(head, message) => [head, message.user_header(), message.payload()],
        };
        true
    }
}

/// As [`VecDeque::partition_point`], but tries the index found last and the next one first.
fn find<T>(sorted: &VecDeque<T>, last: &Cell<usize>, is_before: impl Fn(&T) -> bool) -> usize {
    let is_it = |at: &usize| {
        sorted.get(*at).is_none_or(|it| !is_before(it))
            && at
                .checked_sub(1)
                .is_none_or(|at| sorted.get(at).is_some_and(&is_before))
    };
    let near = [last.get(), last.get() + 1];
    let at = near
        .into_iter()
        .find(is_it)
        .unwrap_or_else(|| sorted.partition_point(&is_before));
    last.set(at);
    at
}
