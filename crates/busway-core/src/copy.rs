//! Copies and barriers that the language has no word for.
//!
//! Contract: nothing here checks bounds; [`crate::window`], the only caller, has. A copy is
//! assembly, opaque to the compiler, because a peer may write to the memory at the same time and
//! `memcpy` on racing memory is undefined behaviour. Miri, loom and other processors get word loops
//! in `window` instead.
#![allow(unsafe_code)] // Inline assembly.

#[cfg(not(loom))]
use crate::sync::AtomicU64;
use crate::window::Medium;

/// From this length on [`bulk`] beats a loop of word accesses (measured: `benches/core.rs`, group
/// `copy`).
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
pub(crate) const BULK_BYTES: usize = 64;

/// From this length on the string instruction beats the loop of 16-byte moves.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
const STRING_BYTES: usize = 1024;

/// From this length on the loop wins again: the string instruction pays for source and target that
/// differ in their place within a line, as a user's buffer and the payload of a slot do (measured
/// on an AMD EPYC, loop against instruction: 6.5 and 8.3 us at 256 KiB, 27 and 25 us at 1 MiB, 159
/// and 268 us at 4 MiB).
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
const LONG_BYTES: usize = 256 << 10;

/// Copies `len_bytes` bytes, in no particular order among themselves.
///
/// Ordered against what comes before and after as any load or store is: x86 keeps string and vector
/// moves in program order with later publishing stores and later loads (weakly ordered are only
/// moves with a non-temporal hint).
///
/// # Safety
/// `from` is readable and `into` is writable for `len_bytes` bytes; they do not overlap;
/// `len_bytes >= 16`.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
#[inline]
pub(crate) unsafe fn bulk(into: *mut u8, from: *const u8, len_bytes: usize) {
    if !(STRING_BYTES..LONG_BYTES).contains(&len_bytes) {
        // SAFETY: passed on.
        return unsafe { vectors(into, from, len_bytes) };
    }
    // SAFETY: reads and writes exactly the ranges that the caller vouches for; the direction flag
    // is clear by the ABI.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len_bytes => _, inout("rdi") into => _, inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}

/// As [`bulk`], by moves of 16 bytes at every length, for memory that no cache holds. Each load of
/// it is a round trip on the bus, so loads should be wide, and the string instruction moves single
/// bytes wherever the processor has no fast path (an emulated one never has: 0.9 GB/s, against 2
/// GB/s).
///
/// # Safety
/// As for [`bulk`].
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
#[inline]
pub(crate) unsafe fn vectors(into: *mut u8, from: *const u8, len_bytes: usize) {
    // SAFETY: the loop moves blocks of 64 and then of 16 bytes below `len_bytes`; the last move
    // ends exactly at it and starts at `len_bytes - 16 >= 0`. All of it lies in the ranges that the
    // caller vouches for.
    unsafe {
        core::arch::asm!(
            "xor {at:e}, {at:e}",
            "lea {next}, [{at} + 64]",
            "2:",
            "cmp {next}, {len}",
            "ja 3f",
            "movdqu {a}, [{from} + {at}]",
            "movdqu {b}, [{from} + {at} + 16]",
            "movdqu {c}, [{from} + {at} + 32]",
            "movdqu {d}, [{from} + {at} + 48]",
            "movdqu [{into} + {at}], {a}",
            "movdqu [{into} + {at} + 16], {b}",
            "movdqu [{into} + {at} + 32], {c}",
            "movdqu [{into} + {at} + 48], {d}",
            "mov {at}, {next}",
            "add {next}, 64",
            "jmp 2b",
            "3:",
            "lea {next}, [{at} + 16]",
            "cmp {next}, {len}",
            "ja 4f",
            "movdqu {a}, [{from} + {at}]",
            "movdqu [{into} + {at}], {a}",
            "mov {at}, {next}",
            "jmp 3b",
            "4:",
            "movdqu {a}, [{from} + {len} - 16]",
            "movdqu [{into} + {len} - 16], {a}",
            at = out(reg) _, next = out(reg) _, len = in(reg) len_bytes,
            from = in(reg) from, into = in(reg) into,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack)
        );
    }
}

/// What `medium` needs, beyond a release fence, between earlier accesses and later stores.
#[inline]
pub(crate) fn write_barrier(medium: Medium) {
    match medium {
        Medium::Coherent => {}
        // Loads never pass later stores on x86, so a store fence is enough for write-combining
        // buffers.
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        // SAFETY: SSE2 is part of x86_64; the instruction touches no memory or register.
        Medium::WriteCombining => unsafe { core::arch::asm!("sfence", options(nostack, preserves_flags)) },
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        // SAFETY: as above.
        Medium::Device => unsafe { core::arch::asm!("mfence", options(nostack, preserves_flags)) },
        #[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
        // SAFETY: a barrier touches no memory or register. The full system domain is needed: the
        // peer is no core of ours.
        Medium::WriteCombining | Medium::Device => unsafe {
            core::arch::asm!("dsb sy", options(nostack, preserves_flags));
        },
        #[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        Medium::WriteCombining | Medium::Device => crate::sync::fence(crate::sync::Ordering::SeqCst),
    }
}

/// What `medium` needs, beyond an acquire fence, between earlier loads and later accesses.
#[inline]
pub(crate) fn read_barrier(medium: Medium) {
    match medium {
        Medium::Coherent => {}
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        // SAFETY: SSE2 is part of x86_64; the instruction touches no memory or register.
        Medium::WriteCombining | Medium::Device => unsafe {
            core::arch::asm!("lfence", options(nostack, preserves_flags));
        },
        #[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
        // SAFETY: a barrier touches no memory or register.
        Medium::WriteCombining | Medium::Device => unsafe {
            core::arch::asm!("dsb ld", options(nostack, preserves_flags));
        },
        #[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        Medium::WriteCombining | Medium::Device => crate::sync::fence(crate::sync::Ordering::SeqCst),
    }
}

/// A hint to bring the line of `word` near; harmless at any address.
#[cfg(not(loom))]
#[inline]
pub(crate) fn prefetch(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults and changes nothing that a program can observe.
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) word.as_ptr(), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = word;
}
