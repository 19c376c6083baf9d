//! Survives a full `/dev/shm` and truncated windows.
//!
//! Files in `/dev/shm` get their memory at the first write. If the file system is full then (or the
//! file was truncated), the kernel sends SIGBUS to the writing thread. The gateway must survive
//! that: its handler maps private memory in place of the faulting page and sets a flag of the
//! thread, and the lane discards the message that it was writing. (libwayland treats truncated
//! buffers of its clients in the same way.)
#![allow(unsafe_code)] // A signal handler and one mmap in it.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

thread_local! {
    /// Written by the handler, in the thread that faulted, and by that thread itself. An atomic,
    /// since a compiler may assume that nothing else changes a thread's own cell; relaxed with
    /// compiler fences, since only this thread reads it.
    static FAULTED: AtomicBool = const { AtomicBool::new(false) };
}

/// Installs the handler for the whole process, once.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a zeroed sigaction is a valid one; the handler is async-signal-safe (below) and
        // has the three-argument signature that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    });
}

/// Whether this thread had a fault since the last call; clears it.
pub fn in_this_thread() -> bool {
    // Pairs with the fence in the handler: a write before this call that faulted has set the flag.
    compiler_fence(Ordering::SeqCst);
    FAULTED.with(|faulted| faulted.swap(false, Ordering::Relaxed))
}

extern "C" fn on_bus_error(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo. mmap and sigaction are plain system calls here and
    // safe in a handler; the page that is replaced is one that can't be accessed at all, so nothing
    // valid is lost.
    unsafe {
        let address = (*info).si_addr() as usize;
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let replaced = (*info).si_code == libc::BUS_ADRERR
            && libc::mmap(
                (address & !(page - 1)) as *mut libc::c_void,
                page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            ) != libc::MAP_FAILED;
        if !replaced {
            // Not ours to mend: die of it as if there were no handler.
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
            return;
        }
    }
    FAULTED.with(|faulted| faulted.store(true, Ordering::Relaxed));
    compiler_fence(Ordering::SeqCst); // see `in_this_thread`
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    #[test]
    fn a_write_beyond_the_end_of_a_cut_file_is_survived_and_noticed() {
        install();
        let file = tempfile::tempfile().expect("a file");
        file.set_len(8192).expect("grown");
        // SAFETY: a fresh shared mapping of our own file, unmapped below.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                8192,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        }
        .expect("mapped")
        .cast::<u8>();
        file.set_len(4096).expect("cut");
        assert!(!in_this_thread());
        // SAFETY: inside the mapping; the second page has no file behind it, which is what this
        // test is about.
        unsafe { base.add(4096).write_volatile(1) };
        assert!(in_this_thread());
        assert!(!in_this_thread());
        // SAFETY: mapped above, not used any more.
        unsafe { munmap(base.cast(), 8192) }.expect("unmapped");
    }
}
