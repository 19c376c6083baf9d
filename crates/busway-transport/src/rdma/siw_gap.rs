//! Reserves the offset in a device's mapping that libsiw takes for "none", so that nothing gets it.
//!
//! The queues of a process on one device lie behind each other in one mapping, and each has the
//! lowest place that is free. libsiw refuses a queue whose place begins at 0x090000, since that
//! number also means "no place" (`SIW_INVAL_UOBJ_KEY` of `rdma/siw-abi.h`, an offset like any other
//! since Linux 5.5). So a process that has come to exactly 144 pages of queues gets no further one,
//! and no reason. A completion queue that covers that page, and is never used, keeps all others
//! from beginning there.
//!
//! Contract: one a device, made before the queues of channels, for iWARP only. Called by
//! [`super::device`].
#![allow(unsafe_code)] // Foreign functions.

use std::ptr::NonNull;

use super::sys::{self, Libraries};

/// Where no queue may begin, in bytes.
const GAP_BYTES: usize = 0x09_0000;
/// Length of a completion in siw's queue, in bytes (`struct siw_cqe`).
const ENTRY_BYTES: usize = 32;

/// See the module.
#[derive(Debug)]
pub(super) struct SiwGap {
    queue: NonNull<sys::ibv_cq>,
    libraries: &'static Libraries,
}

// SAFETY: the queue is only destroyed, once; verbs may be called from any thread.
unsafe impl Send for SiwGap {}
// SAFETY: as for `Send`; there is nothing to call.
unsafe impl Sync for SiwGap {}

impl SiwGap {
    /// Covers the gap; `None` where there is no room, and then queues may fail there.
    ///
    /// # Safety
    /// `verbs` is an open device, and stays so until this is dropped.
    pub(super) unsafe fn new(libraries: &'static Libraries, verbs: *mut sys::ibv_context) -> Option<SiwGap> {
        let entries = (GAP_BYTES / ENTRY_BYTES + 1) as i32;
        // SAFETY: the caller promises that the device is open; no context, no channel.
        let queue = unsafe {
            libraries
                .verbs
                .ibv_create_cq(verbs, entries, std::ptr::null_mut(), std::ptr::null_mut(), 0)
        };
        NonNull::new(queue).map(|queue| SiwGap { queue, libraries })
    }
}

impl Drop for SiwGap {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once, while the device is open.
        unsafe { self.libraries.verbs.ibv_destroy_cq(self.queue.as_ptr()) };
    }
}
