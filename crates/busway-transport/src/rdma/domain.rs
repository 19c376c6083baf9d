//! A protection domain of an open device, shared by everything that is made in it.
#![allow(unsafe_code)] // Foreign functions.

use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::cm::CmId;
use super::siw_gap::SiwGap;
use super::sys::{self, Libraries};

/// An open device's protection domain.
#[derive(Debug)]
pub(super) struct Domain {
    domain: NonNull<sys::ibv_pd>,
    libraries: &'static Libraries,
    /// Before the device is closed.
    _gap: Option<SiwGap>,
    /// Bound to the address: keeps the library's device open. Goes last.
    keeper: CmId,
    /// The device is being removed.
    is_removed: AtomicBool,
}

/// Domains that live, by the address of their open device.
static DOMAINS: Mutex<BTreeMap<usize, u32>> = Mutex::new(BTreeMap::new());

// SAFETY: the domain is only handed to verbs, which may be called from any thread at once (ibv(7):
// the library is thread-safe).
unsafe impl Send for Domain {}
// SAFETY: as for `Send`.
unsafe impl Sync for Domain {}

impl Domain {
    /// `domain` is of the device that `keeper` is bound to.
    pub(super) fn new(
        domain: NonNull<sys::ibv_pd>,
        libraries: &'static Libraries,
        gap: Option<SiwGap>,
        keeper: CmId,
    ) -> Domain {
        let mut domains = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
        *domains.entry(keeper.verbs().addr()).or_default() += 1;
        Domain {
            domain,
            libraries,
            _gap: gap,
            keeper,
            is_removed: AtomicBool::new(false),
        }
    }

    pub(super) fn verbs(&self) -> *mut sys::ibv_context {
        self.keeper.verbs()
    }

    /// The device is being removed: the last of its domains that is dropped closes it.
    pub(super) fn set_removed(&self) {
        // Relaxed: see `Drop`.
        self.is_removed.store(true, Ordering::Relaxed);
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ibv_pd {
        self.domain.as_ptr()
    }

    pub(super) fn libraries(&self) -> &'static Libraries {
        self.libraries
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: everything made in the domain holds it, so nothing of it is left.
        unsafe { self.libraries.verbs.ibv_dealloc_pd(self.domain.as_ptr()) };
        let verbs = self.keeper.verbs();
        let mut domains = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = match domains.get_mut(&verbs.addr()) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            _ => domains.remove(&verbs.addr()).is_some(),
        };
        // Relaxed: the flag was set before the last holder dropped it, which orders it.
        if is_last && self.is_removed.load(Ordering::Relaxed) {
            // SAFETY: the library keeps the device open while `keeper` lives.
            unsafe { close(verbs) };
        }
    }
}

/// Lets the kernel finish the removal of a device that nothing of this process uses any more.
///
/// librdmacm (44) keeps every device that it has opened open until another one appears, and the
/// kernel delays a removal until no process has the device open. So the device's descriptors are
/// made to refer to /dev/null: that closes the kernel's device, and the library may close the
/// numbers later.
///
/// # Safety
/// `verbs` is an open device of librdmacm.
unsafe fn close(verbs: *mut sys::ibv_context) {
    let Ok(nothing) = std::fs::File::open("/dev/null") else {
        return;
    };
    // SAFETY: what the caller promises.
    let numbers = unsafe { [(*verbs).cmd_fd, (*verbs).async_fd] };
    for number in numbers {
        if number < 0 {
            continue;
        }
        // SAFETY: the number belongs to the library's device and stays its own: nothing is closed
        // when this value is forgotten.
        let mut owned = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        // It can't fail: both descriptors are open.
        let _ = rustix::io::dup3(&nothing, &mut owned, rustix::io::DupFlags::CLOEXEC);
    }
}
