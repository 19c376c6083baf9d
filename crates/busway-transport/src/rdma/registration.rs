//! Memory of others, registered once: the segments that messages and landings lie in.
//!
//! Contract: [`Registrations::find`] returns the registration of the whole mapping that contains
//! some bytes, and makes it at the first use of the segment's name. That one call takes as long as
//! the kernel needs to pin the pages; all others read a table. An entry is never stale: a name
//! means one shared mapping, always the same, while any message or landing of it exists, and is
//! never used for another ([`SegmentId`]). The mapping is looked up while the caller holds such
//! bytes, so it is the one that the name means. The registration pins its pages: even after the
//! mapping is gone, a device with the old key reaches pages that no other owner got under this
//! name. Each call checks that the bytes are inside the registered range. Where registering fails
//! (locked memory is limited) the caller copies; [`Registrations::refused`] counts that for the
//! link, which logs it.
//!
//! Called by channel ends, on lanes: no call waits for another ([`Registrations::find`] returns
//! `None` where a lock is held).
#![allow(unsafe_code)] // Foreign functions.

use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::domain::Domain;
use super::sys;
use crate::contract::SegmentId;

/// Registrations that a device keeps at most; the oldest goes first.
const MAX_KEPT: usize = 64;

/// What memory is registered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The device reads it; the mapping may be read-only.
    Sending,
    /// The peer writes it with the key that it was given.
    Landing,
}

/// A mapping of this process, registered with a device.
#[derive(Debug)]
pub struct Registration {
    key: NonNull<sys::ibv_mr>,
    range: Range<usize>,
    domain: Arc<Domain>,
}

// SAFETY: the registration is only read, and released once.
unsafe impl Send for Registration {}
// SAFETY: as for `Send`.
unsafe impl Sync for Registration {}

impl Registration {
    fn new(domain: &Arc<Domain>, range: Range<usize>, purpose: Purpose) -> Option<Registration> {
        let flags = match purpose {
            Purpose::Sending => 0,
            Purpose::Landing => sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_WRITE,
        };
        // SAFETY: a range of this process; the kernel refuses what is not mapped (or not writable,
        // where that is asked for). What the peer may write then is memory into which only devices
        // and other processes write as well: the caller that grants it (`SendReceiver`) holds it as
        // the landing of a message.
        let key = unsafe {
            domain.libraries().verbs.ibv_reg_mr(
                domain.as_ptr(),
                std::ptr::with_exposed_provenance_mut(range.start),
                range.len(),
                flags.cast_signed(),
            )
        };
        NonNull::new(key).map(|key| Registration {
            key,
            range,
            domain: domain.clone(),
        })
    }

    /// Whether these bytes are registered.
    pub fn has(&self, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr().addr();
        start >= self.range.start && bytes.len() <= self.range.end.saturating_sub(start)
    }

    /// For a peer that writes it.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: registered until `drop`.
        unsafe { self.key.as_ref().rkey }
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: registered until `drop`.
        unsafe { self.key.as_ref().lkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered by `new`, released once. Work that still names it fails and reaches no
        // memory.
        unsafe { self.domain.libraries().verbs.ibv_dereg_mr(self.key.as_ptr()) };
    }
}

type Entry = (SegmentId, Purpose, Option<Arc<Registration>>);

/// The registrations of a device.
#[derive(Debug, Default)]
pub struct Registrations {
    /// In the order of their making.
    kept: Mutex<VecDeque<Entry>>,
    refused: AtomicU64,
}

impl Registrations {
    /// The registration of the mapping that `bytes`, which have this name and are held by the
    /// caller, lie in. `None` where it could not be made, or another thread is about to make one.
    pub(super) fn find(
        &self,
        domain: &Arc<Domain>,
        segment: SegmentId,
        purpose: Purpose,
        bytes: &[u8],
    ) -> Option<Arc<Registration>> {
        let mut kept = self.kept.try_lock().ok()?;
        let known = kept
            .iter()
            .find(|(name, for_purpose, _)| *name == segment && *for_purpose == purpose);
        let found = match known {
            Some((_, _, registration)) => registration.clone(),
            None => {
                let made = mapping_of(bytes)
                    .and_then(|range| Registration::new(domain, range, purpose))
                    .map(Arc::new);
                if made.is_none() {
                    // Relaxed: a count for people, which orders nothing.
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                if kept.len() == MAX_KEPT {
                    kept.pop_front();
                }
                kept.push_back((segment, purpose, made.clone()));
                made
            }
        };
        found.filter(|registration| registration.has(bytes))
    }

    /// Segments that could not be registered so far.
    pub fn refused(&self) -> u64 {
        // Relaxed: a count for people, which orders nothing.
        self.refused.load(Ordering::Relaxed)
    }
}

/// The mapping of this process that all of these bytes lie in.
fn mapping_of(bytes: &[u8]) -> Option<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    mapping_in(&maps, bytes.as_ptr().expose_provenance(), bytes.len())
}

/// The mapping in the text of `/proc/self/maps` (proc(5)) that contains a range.
fn mapping_in(maps: &str, start: usize, len_bytes: usize) -> Option<Range<usize>> {
    let end = start.checked_add(len_bytes)?;
    maps.lines().find_map(|line| {
        let (from, rest) = line.split_once('-')?;
        let (until, _) = rest.split_once(' ')?;
        let range = usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(until, 16).ok()?;
        (range.start <= start && end <= range.end).then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_found_by_what_lies_in_it_and_only_as_a_whole() {
        let maps = "7f00-8000 r--p 00000000 00:01 5 /lib/x\n8000-a000 rw-s 00000000 00:01 6 /dev/shm/y\n";
        assert_eq!(mapping_in(maps, 0x9000, 0x1000), Some(0x8000..0xa000));
        assert_eq!(mapping_in(maps, 0x8000, 0x2000), Some(0x8000..0xa000));
        assert_eq!(mapping_in(maps, 0x9000, 0x1001), None);
        assert_eq!(mapping_in(maps, 0x7ff0, 0x20), None);
        assert_eq!(mapping_in(maps, usize::MAX, 2), None);
        assert_eq!(mapping_in("nonsense\n-\n", 0, 1), None);
    }

    #[test]
    fn this_process_finds_its_own_memory() {
        let bytes = vec![1u8; 100];
        let range = mapping_of(&bytes).expect("it is mapped");
        assert!(range.contains(&bytes.as_ptr().addr()));
    }
}
