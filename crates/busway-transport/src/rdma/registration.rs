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
use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

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
    /// The mapping that the device knows, where it is not the one at `range`. Dropped after the
    /// registration, which `drop` releases.
    writable: Option<WritableMapping>,
    domain: Arc<Domain>,
}

// SAFETY: the registration is only read, and released once.
unsafe impl Send for Registration {}
// SAFETY: as for `Send`.
unsafe impl Sync for Registration {}

impl Registration {
    /// Linux before 6.2 registers a shared mapping only if it is writable, even for reading
    /// (EFAULT), and iceoryx2 maps the samples of others read-only: then the same pages are mapped
    /// once more.
    fn new(domain: &Arc<Domain>, mapping: &Mapping, purpose: Purpose) -> Option<Registration> {
        let registration = |key, writable| Registration {
            key,
            range: mapping.range.clone(),
            writable,
            domain: domain.clone(),
        };
        if let Some(key) = register(domain, mapping.range.clone(), purpose) {
            return Some(registration(key, None));
        }
        if mapping.is_writable || purpose != Purpose::Sending {
            return None;
        }
        let writable = WritableMapping::of(mapping)?;
        let key = register(domain, writable.range(), purpose)?;
        Some(registration(key, Some(writable)))
    }

    /// Where the device finds these bytes, which are registered.
    pub(super) fn device_address(&self, bytes: &[u8]) -> u64 {
        let address = bytes.as_ptr().expose_provenance();
        let device_start = self
            .writable
            .as_ref()
            .map_or(self.range.start, |it| it.range().start);
        (device_start + (address - self.range.start)) as u64
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

fn register(domain: &Domain, range: Range<usize>, purpose: Purpose) -> Option<NonNull<sys::ibv_mr>> {
    let flags = match purpose {
        Purpose::Sending => 0,
        Purpose::Landing => sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_WRITE,
    };
    // SAFETY: a range of this process; the kernel refuses what is not mapped (or not writable,
    // where that is asked for). What the peer may write then is memory into which only devices and
    // other processes write as well: the caller that grants it (`SendReceiver`) holds it as the
    // landing of a message.
    let key = unsafe {
        domain.libraries().verbs.ibv_reg_mr(
            domain.as_ptr(),
            std::ptr::with_exposed_provenance_mut(range.start),
            range.len(),
            flags.cast_signed(),
        )
    };
    NonNull::new(key)
}

/// A second mapping of the pages of a read-only one, which nobody but a device reads, and nobody
/// writes.
#[derive(Debug)]
struct WritableMapping {
    start: NonNull<c_void>,
    len_bytes: usize,
}

// SAFETY: only its address is used, and it is unmapped once.
unsafe impl Send for WritableMapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for WritableMapping {}

impl WritableMapping {
    /// `None` where the file is gone, was replaced, or may not be written.
    fn of(mapping: &Mapping) -> Option<WritableMapping> {
        let file = File::options().read(true).write(true).open(&mapping.path).ok()?;
        if file.metadata().ok()?.ino() != mapping.inode {
            return None;
        }
        let (len_bytes, offset_bytes) = (mapping.range.len(), mapping.offset_bytes);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses; no reference is made to it.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len_bytes,
                protection,
                MapFlags::SHARED,
                &file,
                offset_bytes,
            )
        };
        let start = NonNull::new(start.ok()?)?;
        Some(WritableMapping { start, len_bytes })
    }

    fn range(&self) -> Range<usize> {
        let start = self.start.as_ptr().expose_provenance();
        start..start + self.len_bytes
    }
}

impl Drop for WritableMapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, unmapped once; its registration has been released.
        let _ = unsafe { munmap(self.start.as_ptr(), self.len_bytes) };
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
                    .and_then(|mapping| Registration::new(domain, &mapping, purpose))
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

/// A mapping of this process, as `/proc/self/maps` (proc(5)) describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    range: Range<usize>,
    is_writable: bool,
    /// Where in the file it begins, in bytes.
    offset_bytes: u64,
    inode: u64,
    path: String,
}

/// The mapping of this process that all of these bytes lie in.
fn mapping_of(bytes: &[u8]) -> Option<Mapping> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    mapping_in(&maps, bytes.as_ptr().expose_provenance(), bytes.len())
}

/// The mapping in the text of `/proc/self/maps` that contains a range.
fn mapping_in(maps: &str, start: usize, len_bytes: usize) -> Option<Mapping> {
    let end = start.checked_add(len_bytes)?;
    let found = maps.lines().filter_map(read_mapping);
    let mut containing = found.filter(|it| it.range.start <= start && end <= it.range.end);
    containing.next()
}

/// `FROM-UNTIL PERMISSIONS OFFSET DEVICE INODE [PATH]`.
fn read_mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = behind.trim_start();
        word
    };
    let (from, until) = word().split_once('-')?;
    let [permissions, offset, _device, inode] = [word(), word(), word(), word()];
    Some(Mapping {
        range: usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(until, 16).ok()?,
        is_writable: permissions.as_bytes().get(1) == Some(&b'w'),
        offset_bytes: u64::from_str_radix(offset, 16).ok()?,
        inode: inode.parse().ok()?,
        path: rest.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_found_by_what_lies_in_it_and_only_as_a_whole() {
        let maps =
            "7f00-8000 r--p 00000000 00:01 5 /lib/x\n8000-a000 rw-s 00001000 00:01 6    /dev/shm/y z\n";
        let second = Some(Mapping {
            range: 0x8000..0xa000,
            is_writable: true,
            offset_bytes: 0x1000,
            inode: 6,
            path: "/dev/shm/y z".into(),
        });
        assert_eq!(mapping_in(maps, 0x9000, 0x1000), second);
        assert_eq!(mapping_in(maps, 0x8000, 0x2000), second);
        assert!(!mapping_in(maps, 0x7f00, 1).expect("the first").is_writable);
        assert_eq!(mapping_in(maps, 0x9000, 0x1001), None);
        assert_eq!(mapping_in(maps, 0x7ff0, 0x20), None);
        assert_eq!(mapping_in(maps, usize::MAX, 2), None);
        assert_eq!(mapping_in("nonsense\n-\n", 0, 1), None);
    }

    #[test]
    fn this_process_finds_its_own_memory() {
        let bytes = vec![1u8; 100];
        let mapping = mapping_of(&bytes).expect("it is mapped");
        assert!(mapping.range.contains(&bytes.as_ptr().addr()));
        assert!(mapping.is_writable);
    }

    #[test]
    fn read_only_mapping_is_mapped_again_for_device_unless_its_file_was_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("samples");
        std::fs::write(&path, [7; 8192]).expect("written");
        let inode = std::fs::metadata(&path).expect("there").ino();
        let mapping = Mapping {
            range: 0x10_0000..0x10_1000,
            is_writable: false,
            offset_bytes: 4096,
            inode,
            path: path.to_string_lossy().into_owned(),
        };
        let again = WritableMapping::of(&mapping).expect("the file is there");
        let own = mapping_in(
            &std::fs::read_to_string("/proc/self/maps").expect("Linux"),
            again.range().start,
            again.range().len(),
        );
        let own = own.expect("it is mapped");
        assert!(own.is_writable && own.offset_bytes == 4096 && own.inode == inode);
        let replaced = Mapping {
            inode: inode + 1,
            ..mapping
        };
        assert!(WritableMapping::of(&replaced).is_none());
    }
}
