//! System calls that rustix has no word for, and the mapping of files.
//!
//! Contract: safe functions around `fcntl` with open-file-description locks, the futex call on
//! words of a shared mapping, `CLOCK_TAI`, and [`Mapping`]. Called by the store and by the
//! partition.
#![allow(unsafe_code)] // System calls and mapped memory enter here.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use busway_core::{Medium, Window};
use busway_transport::contract::PortMemory;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::sync::{AtomicU64, Ordering};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("busway-port needs a 64-bit Linux: its shared words are 64 bits wide");

/// Nanoseconds of `CLOCK_TAI`.
pub(crate) fn tai_ns() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for one timespec. CLOCK_TAI exists since Linux 3.10; a
    // failure leaves 0.
    unsafe { libc::clock_gettime(libc::CLOCK_TAI, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Takes the lock on byte `offset` of `file` for this open file description; `false` if another one
/// has it.
///
/// The kernel gives it back when the last descriptor of this open file description is closed: at
/// the latest when the process, and every child that it forked without exec, has ended.
pub(crate) fn try_lock_byte(file: &File, offset: u64) -> io::Result<bool> {
    match lock_call(file, libc::F_OFD_SETLK, libc::F_WRLCK, offset) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// As [`try_lock_byte`], but waits.
pub(crate) fn lock_byte(file: &File, offset: u64) -> io::Result<()> {
    loop {
        match lock_call(file, libc::F_OFD_SETLKW, libc::F_WRLCK, offset) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Gives the lock on byte `offset` back.
pub(crate) fn unlock_byte(file: &File, offset: u64) -> io::Result<()> {
    lock_call(file, libc::F_OFD_SETLK, libc::F_UNLCK, offset).map(|_| ())
}

/// Whether another open file description holds the lock on byte `offset`.
pub(crate) fn is_byte_locked(file: &File, offset: u64) -> io::Result<bool> {
    lock_call(file, libc::F_OFD_GETLK, libc::F_WRLCK, offset).map(|found| i32::from(found) != libc::F_UNLCK)
}

fn lock_call(file: &File, command: i32, kind: i32, offset: u64) -> io::Result<libc::c_short> {
    let mut range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset as libc::off_t,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed; `range` is a valid flock, which
    // the call may change.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(range.l_type),
    }
}

/// Sleeps until `word` is woken, if its low half still is that of `expected`, at most until
/// `deadline_ns` of `CLOCK_MONOTONIC`. May return for no reason. `false` if nobody can sleep at
/// this word: it lies in the memory of a device.
pub(crate) fn futex_wait(word: &AtomicU64, expected: u64, deadline_ns: i64) -> bool {
    let until = libc::timespec {
        tv_sec: deadline_ns.max(0) / 1_000_000_000,
        tv_nsec: deadline_ns.max(0) % 1_000_000_000,
    };
    // SAFETY: the address is that of an aligned 32-bit word of a live mapping, or of any memory,
    // which the kernel checks; `until` lives through the call. The word is compared by the kernel
    // atomically. Not FUTEX_PRIVATE_FLAG, since other processes wake it. Every result, an error
    // included, means: look again.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            low_half(word),
            libc::FUTEX_WAIT_BITSET,
            expected as u32,
            &raw const until,
            ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    let error = || io::Error::last_os_error().raw_os_error();
    result == 0 || matches!(error(), Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT))
}

/// Wakes up to `count` sleepers of `word`, in all processes.
pub(crate) fn futex_wake(word: &AtomicU64, count: i32) {
    // SAFETY: as for `futex_wait`; the kernel does not touch the word.
    unsafe {
        libc::syscall(libc::SYS_futex, low_half(word), libc::FUTEX_WAKE, count);
    }
}

/// The half of `word` that changes when it counts up: futexes have 32 bits.
fn low_half(word: &AtomicU64) -> *const u32 {
    let address = ptr::from_ref(word).cast::<u32>();
    if cfg!(target_endian = "big") {
        address.wrapping_add(1)
    } else {
        address
    }
}

/// A mapped file, or memory that hosts share; unmapped when the last holder drops it.
#[derive(Debug)]
struct Mapping {
    base: NonNull<c_void>,
    len_bytes: usize,
    /// Memory that hosts share unmaps itself.
    owner: Option<PortMemory>,
}

// SAFETY: the mapping is an address range; access to it goes through atomic words and windows,
// which any thread may use.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.owner.is_some() {
            return;
        }
        // SAFETY: without an owner, `base` and `len_bytes` are what mmap returned. Every window and
        // word reference into it lives beside or borrows from a `View`, which holds the mapping, so
        // none is left.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.len_bytes) };
    }
}

/// A part of a mapped file that this process only reads.
///
/// [`window`](Self::window) hands out a window that does not hold the mapping: its user keeps the
/// view beside it.
#[derive(Debug, Clone)]
pub(crate) struct View {
    mapping: Arc<Mapping>,
    /// From the mapping's base in bytes, a multiple of 8.
    offset: usize,
    len_bytes: usize,
}

/// A part of a mapped file that this process reads and writes.
#[derive(Debug, Clone)]
pub(crate) struct Area(View);

impl View {
    /// Maps `len_bytes` bytes of `file` read-only. The file must be at least as long.
    pub(crate) fn map(file: &File, len_bytes: usize) -> io::Result<Self> {
        Self::map_with(file, len_bytes, ProtFlags::READ)
    }

    fn map_with(file: &File, len_bytes: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of this
        // program. All pages are faulted in now rather than on the data path.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len_bytes,
                protection,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                0,
            )
        }?;
        let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self {
            mapping: Arc::new(Mapping {
                base,
                len_bytes,
                owner: None,
            }),
            offset: 0,
            len_bytes,
        })
    }

    /// The part of `len_bytes` bytes at `offset` of memory that hosts share; `None` if that lies
    /// outside, or the memory is not coherent: then its words are no words of [`word`](Self::word).
    pub(crate) fn of(memory: &PortMemory, offset: usize, len_bytes: usize) -> Option<Self> {
        let window = memory.window();
        let all_bytes = window.len_bytes();
        let is_inside = offset.is_multiple_of(8) && offset <= all_bytes && len_bytes <= all_bytes - offset;
        if !is_inside || window.medium() != Medium::Coherent {
            return None;
        }
        let mapping = Arc::new(Mapping {
            base: NonNull::new(window.address().cast())?,
            len_bytes: all_bytes,
            owner: Some(memory.clone()),
        });
        Some(Self {
            mapping,
            offset,
            len_bytes,
        })
    }

    /// The part of `len_bytes` bytes at `offset`, a multiple of 8. Both come from this crate's own
    /// layouts.
    pub(crate) fn part(&self, offset: usize, len_bytes: usize) -> Self {
        assert!(
            offset.is_multiple_of(8) && offset <= self.len_bytes && len_bytes <= self.len_bytes - offset,
            "part of {len_bytes} bytes at {offset} of {}",
            self.len_bytes
        );
        Self {
            mapping: self.mapping.clone(),
            offset: self.offset + offset,
            len_bytes,
        }
    }

    /// A window onto this part, valid while this view or a clone lives.
    pub(crate) fn window(&self) -> Window {
        // SAFETY: the range lies in the mapping, whose base is page-aligned, and the offset is a
        // multiple of 8. The callers, all in this crate, keep the view beside the window. This
        // program reaches the memory through windows and atomic words only.
        unsafe { Window::from_raw_parts(self.address(0), self.len_bytes, Medium::Coherent) }
    }

    /// The word at `offset`, a multiple of 8. In a read-only mapping it may be loaded (relaxed) and
    /// waited for, not stored to.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && self.len_bytes >= 8 && offset <= self.len_bytes - 8,
            "word at {offset} of {}",
            self.len_bytes
        );
        // SAFETY: the word lies in the mapping and is aligned, as just checked; all access to it by
        // this program is atomic; the reference does not outlive `self`, which holds the mapping.
        unsafe { AtomicU64::from_ptr(self.address(offset).cast()) }
    }

    #[inline]
    fn address(&self, offset: usize) -> *mut u8 {
        self.mapping
            .base
            .as_ptr()
            .cast::<u8>()
            .wrapping_add(self.offset + offset)
    }
}

impl Area {
    /// Maps `len_bytes` bytes of `file` for reading and writing. The file must be at least as long.
    pub(crate) fn map(file: &File, len_bytes: usize) -> io::Result<Self> {
        View::map_with(file, len_bytes, ProtFlags::READ | ProtFlags::WRITE).map(Self)
    }

    /// As [`View::of`], of memory that this host writes.
    pub(crate) fn of(memory: &PortMemory, offset: usize, len_bytes: usize) -> Option<Self> {
        View::of(memory, offset, len_bytes).map(Self)
    }

    /// The same part, for reading.
    pub(crate) fn view(&self) -> View {
        self.0.clone()
    }

    /// As [`View::part`].
    pub(crate) fn part(&self, offset: usize, len_bytes: usize) -> Self {
        Self(self.0.part(offset, len_bytes))
    }

    /// As [`View::window`], writable.
    pub(crate) fn window(&self) -> Window {
        self.0.window()
    }

    /// As [`View::word`], writable.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        self.0.word(offset)
    }
}

/// Bytes of the page of a [`ForkMark`].
const MARK_BYTES: usize = 4096;

/// Tells a process from the children that it forks without exec: a word that they find cleared.
#[derive(Debug)]
pub(crate) struct ForkMark {
    page: NonNull<c_void>,
}

// SAFETY: the page is one atomic word, which any thread may use.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// Marks this process.
    pub(crate) fn new() -> io::Result<ForkMark> {
        // SAFETY: a new private mapping at an address of the kernel's choice touches no memory of
        // this program; the advice is for that mapping alone.
        let page = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let page =
                rustix::mm::mmap_anonymous(ptr::null_mut(), MARK_BYTES, protection, MapFlags::PRIVATE)?;
            // In Linux since 4.14. Where it fails, children count as their parent.
            let _ = rustix::mm::madvise(page, MARK_BYTES, Advice::LinuxWipeOnFork);
            page
        };
        let page = NonNull::new(page).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mark = ForkMark { page };
        // Relaxed: the word orders nothing, a child gets its own.
        mark.word().store(1, Ordering::Relaxed);
        Ok(mark)
    }

    /// Whether this process is a child of the one that was marked.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.word().load(Ordering::Relaxed) == 0
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped until `drop`, aligned, and holds this word alone.
        unsafe { AtomicU64::from_ptr(self.page.as_ptr().cast()) }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; no reference to the word outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.page.as_ptr(), MARK_BYTES) };
    }
}

impl crate::waiters::Words for Area {
    fn word(&self, index: usize) -> &AtomicU64 {
        Area::word(self, index * 8)
    }
}
