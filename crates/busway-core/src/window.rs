//! A piece of memory that another process or another host accesses at the same time.
//!
//! Contract: every access is an aligned 64-bit atomic word or an assembly copy, so that a peer that
//! writes at any time makes wrong bytes but never undefined behaviour. Every offset is checked.
//! Called by the register and the ring, and by the memory bus, which maps the file or the PCI
//! resource and says what ordering the mapping needs.
//!
//! A reading role (register reader, ring consumer, the producer for its credits) calls only
//! [`Window::load`], [`Window::read`] and [`Window::read_fence`], which never store; a read-only
//! mapping is enough for it.
#![allow(unsafe_code)] // Raw shared memory enters the program here; this module and `copy` are the only unsafe ones.

use crate::WORD_BYTES;
use crate::copy;
use crate::remote::{RemoteError, RemoteWrite};
use crate::sync::{AtomicU64, Ordering, fence};

/// Which ordering a mapping needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Ordinary memory that caches keep coherent: a file in `/dev/shm`, memory into which a device
    /// writes.
    Coherent,
    /// Stores are gathered in buffers and leave in any order: a prefetchable PCI resource mapped
    /// write-combining.
    WriteCombining,
    /// Uncached device memory: aligned 8-byte accesses only.
    Device,
}

/// An access that lies outside its window, or whose offset is not a multiple of 8 where it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "access to {len_bytes} bytes at offset {offset_bytes} of a window of {window_bytes} bytes: \
     keep it inside, at an offset that is a multiple of 8"
)]
pub struct OutOfBounds {
    /// Where the access begins, in bytes from the window's start.
    pub offset_bytes: usize,
    /// How long it is, in bytes.
    pub len_bytes: usize,
    /// How long the window is, in bytes.
    pub window_bytes: usize,
}

#[cfg(not(loom))]
type Base = core::ptr::NonNull<u64>;
#[cfg(loom)]
type Base = (std::sync::Arc<[AtomicU64]>, usize);

/// Base address, length and medium of shared memory. Cloning it makes another handle to the same
/// memory.
#[derive(Debug, Clone)]
pub struct Window {
    /// First word; under loom an array of words and the index of the first.
    base: Base,
    /// Multiple of 8.
    len_bytes: usize,
    medium: Medium,
}

// SAFETY: a window is an address, a length and a medium. All access to what lies there is by atomic
// words or by assembly that the compiler cannot look into, so it may come from any number of
// threads at once; `from_raw_parts` obliges its caller to keep the memory mapped for all clones in
// all threads.
#[cfg(not(loom))]
unsafe impl Send for Window {}
// SAFETY: as for `Send`; no method hands out a reference to the memory.
#[cfg(not(loom))]
unsafe impl Sync for Window {}

impl Window {
    /// A window onto `len_bytes` bytes at `base`. A rest of less than 8 bytes at the end is left
    /// out.
    ///
    /// # Safety
    /// - `base` is not null and a multiple of 8.
    /// - While this window, a clone or a part of it lives, `len_bytes` bytes at `base` are mapped
    ///   for reading and, unless only reading roles get it, for writing.
    /// - Meanwhile this program reaches the memory in no other way than through windows: no
    ///   reference, no slice, no plain access. (Other processes and devices may do what they like.)
    #[cfg(not(loom))]
    #[must_use]
    pub unsafe fn from_raw_parts(base: *mut u8, len_bytes: usize, medium: Medium) -> Self {
        debug_assert!(
            base.addr().is_multiple_of(WORD_BYTES),
            "window base {base:p} is not a multiple of 8"
        );
        Self {
            // SAFETY: the caller promises that `base` is not null.
            base: unsafe { core::ptr::NonNull::new_unchecked(base.cast()) },
            len_bytes: len_bytes & !(WORD_BYTES - 1),
            medium,
        }
    }

    /// A window onto `words` fresh zero words that loom watches.
    #[cfg(loom)]
    #[must_use]
    pub fn for_loom(words: usize) -> Self {
        let memory = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self {
            base: (memory, 0),
            len_bytes: words * WORD_BYTES,
            medium: Medium::Coherent,
        }
    }

    /// Length in bytes, a multiple of 8.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Where it begins, for a device that is to access the memory too.
    #[cfg(not(loom))]
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        self.base.as_ptr().cast()
    }

    /// Which ordering the mapping needs.
    #[must_use]
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// The part of `len_bytes` bytes at `offset` (a multiple of 8).
    ///
    /// # Errors
    /// [`OutOfBounds`] if that is not inside this window.
    pub fn sub(&self, offset: usize, len_bytes: usize) -> Result<Self, OutOfBounds> {
        self.check_aligned(offset, len_bytes)?;
        let index = offset / WORD_BYTES;
        #[cfg(not(loom))]
        // SAFETY: `offset` is within the mapping, as just checked, so the sum stays inside one
        // allocation.
        let base = unsafe { self.base.add(index) };
        #[cfg(loom)]
        let base = (self.base.0.clone(), self.base.1 + index);
        Ok(Self {
            base,
            len_bytes: len_bytes & !(WORD_BYTES - 1),
            medium: self.medium,
        })
    }

    /// Loads the word at `offset`, with nothing ordered: pair it with
    /// [`read_fence`](Self::read_fence).
    ///
    /// # Errors
    /// [`OutOfBounds`].
    #[inline]
    pub fn load(&self, offset: usize) -> Result<u64, OutOfBounds> {
        self.check_aligned(offset, WORD_BYTES)?;
        Ok(self.word(offset / WORD_BYTES).load(Ordering::Relaxed))
    }

    /// Loads the word at `offset`; whatever was written before it was published is visible to all
    /// reads that follow.
    ///
    /// This is a relaxed load and then a fence, since atomics promise no more than relaxed loads on
    /// a read-only mapping. Partner: the [`fence`](RemoteWrite::fence) that the writer calls before
    /// it publishes the word.
    ///
    /// # Errors
    /// [`OutOfBounds`].
    #[inline]
    pub fn load_acquire(&self, offset: usize) -> Result<u64, OutOfBounds> {
        let word = self.load(offset)?;
        self.read_fence();
        Ok(word)
    }

    /// Stores `word` at `offset`, with nothing ordered: pair it with
    /// [`write_fence`](Self::write_fence).
    ///
    /// # Errors
    /// [`OutOfBounds`].
    #[inline]
    pub fn store(&self, offset: usize, word: u64) -> Result<(), OutOfBounds> {
        self.check_aligned(offset, WORD_BYTES)?;
        self.word(offset / WORD_BYTES).store(word, Ordering::Relaxed);
        Ok(())
    }

    /// Copies the bytes from `offset` (any) on into `buffer`. A peer may write meanwhile: the bytes
    /// may be a mixture of old and new.
    ///
    /// # Errors
    /// [`OutOfBounds`]; `buffer` is untouched then.
    #[inline]
    pub fn read(&self, offset: usize, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        self.check(offset, buffer.len())?;
        let head = offset % WORD_BYTES;
        let mut index = offset / WORD_BYTES;
        let mut rest = buffer;
        if head != 0 && !rest.is_empty() {
            let bytes = self.word(index).load(Ordering::Relaxed).to_ne_bytes();
            let (first, behind) = rest.split_at_mut(rest.len().min(WORD_BYTES - head));
            first.copy_from_slice(&bytes[head..head + first.len()]);
            rest = behind;
            index += 1;
        }
        let (words, tail) = rest.split_at_mut(rest.len() & !(WORD_BYTES - 1));
        self.read_words(index, words);
        if !tail.is_empty() {
            let bytes = self
                .word(index + words.len() / WORD_BYTES)
                .load(Ordering::Relaxed)
                .to_ne_bytes();
            tail.copy_from_slice(&bytes[..tail.len()]);
        }
        Ok(())
    }

    /// Places `header` and then all `parts` without gaps at `offset` (a multiple of 8); fills the
    /// last word with zeros.
    ///
    /// # Errors
    /// [`OutOfBounds`]; nothing is written then.
    #[inline]
    pub fn write(&self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), OutOfBounds> {
        let payload_bytes = parts
            .iter()
            .fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        self.check_aligned(offset, payload_bytes.saturating_add(header.len() * WORD_BYTES))?;
        let mut index = offset / WORD_BYTES;
        for word in header {
            self.word(index).store(*word, Ordering::Relaxed);
            index += 1;
        }
        // Bytes of a word that two or more parts share, and how many they are.
        let (mut carry, mut carried) = (0, 0);
        for part in parts {
            let mut rest: &[u8] = part;
            if carried != 0 {
                let (first, behind) = rest.split_at(rest.len().min(WORD_BYTES - carried));
                carry |= pack(first, carried);
                carried += first.len();
                rest = behind;
                if carried < WORD_BYTES {
                    continue;
                }
                self.word(index).store(carry, Ordering::Relaxed);
                index += 1;
            }
            let (words, tail) = rest.split_at(rest.len() & !(WORD_BYTES - 1));
            self.write_words(index, words);
            index += words.len() / WORD_BYTES;
            carry = pack(tail, 0);
            carried = tail.len();
        }
        if carried != 0 {
            self.word(index).store(carry, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Orders all loads and stores before it before all stores after it, on this medium.
    ///
    /// Partner: [`read_fence`](Self::read_fence) of a thread that reads what is stored after it.
    #[inline]
    pub fn write_fence(&self) {
        fence(Ordering::Release);
        copy::write_barrier(self.medium);
    }

    /// Orders all loads before it before all loads and stores after it, on this medium.
    ///
    /// Partner: [`write_fence`](Self::write_fence) of the thread that wrote what was loaded before
    /// it.
    #[inline]
    pub fn read_fence(&self) {
        fence(Ordering::Acquire);
        copy::read_barrier(self.medium);
    }

    /// Asks the CPU to fetch the line at `offset`; does nothing if that is outside, or not memory
    /// that a cache holds.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        #[cfg(not(loom))]
        if offset < self.len_bytes && self.medium == Medium::Coherent {
            copy::prefetch(self.word(offset / WORD_BYTES));
        }
        #[cfg(loom)]
        let _ = offset;
    }

    #[inline]
    fn check(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), OutOfBounds> {
        if len_bytes <= self.len_bytes && offset_bytes <= self.len_bytes - len_bytes {
            Ok(())
        } else {
            Err(OutOfBounds {
                offset_bytes,
                len_bytes,
                window_bytes: self.len_bytes,
            })
        }
    }

    #[inline]
    fn check_aligned(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), OutOfBounds> {
        if offset_bytes.is_multiple_of(WORD_BYTES) {
            self.check(offset_bytes, len_bytes)
        } else {
            Err(OutOfBounds {
                offset_bytes,
                len_bytes,
                window_bytes: self.len_bytes,
            })
        }
    }

    /// The word number `index`, which the caller has checked to lie inside.
    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < self.len_bytes / WORD_BYTES);
        #[cfg(loom)]
        return &self.base.0[self.base.1 + index];
        #[cfg(not(loom))]
        // SAFETY: every caller has passed `check` for this word, so it is mapped and aligned (the
        // base is a multiple of 8); all access by this program is atomic or by assembly, as
        // `from_raw_parts` demands. The reference does not outlive `self`.
        unsafe {
            AtomicU64::from_ptr(self.base.as_ptr().add(index))
        }
    }

    /// Reads whole words; `into` is a multiple of 8 bytes long.
    #[inline]
    fn read_words(&self, index: usize, into: &mut [u8]) {
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        if into.len() >= copy::BULK_BYTES && self.medium != Medium::Device {
            let copy = match self.medium {
                Medium::Coherent => copy::bulk,
                Medium::WriteCombining | Medium::Device => copy::vectors,
            };
            // SAFETY: the caller checked `into.len()` bytes from `index` on; `into` is private
            // memory, so they are apart.
            unsafe {
                copy(
                    into.as_mut_ptr(),
                    self.base.as_ptr().add(index).cast(),
                    into.len(),
                )
            };
            return;
        }
        for (i, chunk) in into.chunks_exact_mut(WORD_BYTES).enumerate() {
            chunk.copy_from_slice(&self.word(index + i).load(Ordering::Relaxed).to_ne_bytes());
        }
    }

    /// Writes whole words; `from` is a multiple of 8 bytes long.
    #[inline]
    fn write_words(&self, index: usize, from: &[u8]) {
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        // Where stores are gathered before they leave, words are as good as anything wider.
        if from.len() >= copy::BULK_BYTES && self.medium == Medium::Coherent {
            // SAFETY: the caller checked `from.len()` bytes from `index` on; `from` is private
            // memory, so they are apart.
            unsafe { copy::bulk(self.base.as_ptr().add(index).cast(), from.as_ptr(), from.len()) };
            return;
        }
        for (i, chunk) in from.as_chunks::<WORD_BYTES>().0.iter().enumerate() {
            self.word(index + i)
                .store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
    }
}

/// The word whose bytes from `at` on are `bytes` (fewer than 8 - `at`, or as many), and else zeros.
/// Byte by byte: a `memcpy` of so few bytes of unknown number costs more than all else that a small
/// message needs.
#[inline]
fn pack(bytes: &[u8], at: usize) -> u64 {
    let shift = |index: usize| {
        8 * if cfg!(target_endian = "little") {
            index
        } else {
            WORD_BYTES - 1 - index
        }
    };
    bytes
        .iter()
        .enumerate()
        .fold(0, |word, (i, byte)| word | u64::from(*byte) << shift(at + i))
}

impl RemoteWrite for Window {
    #[inline]
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    #[inline]
    fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError> {
        Ok(Window::write(self, offset, header, parts)?)
    }

    #[inline]
    fn fence(&mut self) {
        self.write_fence();
    }

    #[inline]
    fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        Ok(self.store(offset, word)?)
    }

    #[inline]
    fn flush(&mut self) {
        if self.medium != Medium::Coherent {
            copy::write_barrier(self.medium);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "window_tests.rs"]
pub(crate) mod tests;
