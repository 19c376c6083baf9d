//! The C libraries libibverbs and librdmacm, opened when the first RDMA link is, and never needed
//! to build.
//!
//! Contract: types and functions as in rdma-core's headers, nothing is checked; the safe layer is
//! [`super::device`], [`super::queue_pair`], [`super::completion`] and [`super::cm`], the only
//! callers. `verbs.rs` and `cma.rs` are made by `generate.sh` with bindgen from
//! `infiniband/verbs.h` and `rdma/rdma_cma.h` of rdma-core 44; both libraries keep these layouts
//! for all versions with the suffix `.so.1`. The few verbs that the headers define as `static
//! inline` go through the device's table of functions, as there.
#![allow(unsafe_code)] // Foreign functions.

#[rustfmt::skip]
#[allow(non_camel_case_types, non_snake_case, dead_code, missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
pub(super) mod cma;
#[rustfmt::skip]
#[allow(non_camel_case_types, non_snake_case, dead_code, missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
pub(super) mod verbs;

use std::ffi::c_int;
use std::sync::OnceLock;

pub(super) use cma::*;
pub(super) use verbs::*;

use super::error::RdmaError;

/// Both libraries.
pub(super) struct Libraries {
    pub(super) verbs: Libibverbs,
    pub(super) cm: Librdmacm,
}

/// The libraries, opened by the first call and then kept.
///
/// # Errors
/// [`RdmaError::Missing`]; the next call looks again.
pub(super) fn libraries() -> Result<&'static Libraries, RdmaError> {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    if let Some(libraries) = LIBRARIES.get() {
        return Ok(libraries);
    }
    let missing = |library| {
        move |error: libloading::Error| RdmaError::Missing {
            library,
            why: error.to_string(),
        }
    };
    // SAFETY: both are the system's own libraries, whose constructors only set up tables of their
    // own.
    let opened = unsafe {
        Libraries {
            verbs: Libibverbs::new("libibverbs.so.1").map_err(missing("libibverbs.so.1"))?,
            cm: Librdmacm::new("librdmacm.so.1").map_err(missing("librdmacm.so.1"))?,
        }
    };
    // Another thread may have been faster: its libraries are the same.
    Ok(LIBRARIES.get_or_init(|| opened))
}

/// `ibv_post_send` of the header.
///
/// # Safety
/// As there: `pair` lives, `first` begins a list of requests that live during the call.
pub(super) unsafe fn ibv_post_send(
    pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: &mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a queue pair that lives has a context, whose table is filled by its driver.
    match unsafe { (*(*pair).context).ops.post_send } {
        // SAFETY: what the caller promises.
        Some(post) => unsafe { post(pair, first, bad) },
        None => rustix::io::Errno::NOSYS.raw_os_error(),
    }
}

/// `ibv_post_recv` of the header.
///
/// # Safety
/// As there: `pair` lives, `first` begins a list of requests that live during the call.
pub(super) unsafe fn ibv_post_recv(
    pair: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a queue pair that lives has a context, whose table is filled by its driver.
    match unsafe { (*(*pair).context).ops.post_recv } {
        // SAFETY: what the caller promises.
        Some(post) => unsafe { post(pair, first, bad) },
        None => rustix::io::Errno::NOSYS.raw_os_error(),
    }
}

/// `ibv_poll_cq` of the header: how many of `count` completions were written to `into`; negative is
/// a failure.
///
/// # Safety
/// As there: `queue` lives, `into` has room for `count`.
pub(super) unsafe fn ibv_poll_cq(queue: *mut ibv_cq, count: c_int, into: *mut ibv_wc) -> c_int {
    // SAFETY: a completion queue that lives has a context, whose table is filled by its driver.
    match unsafe { (*(*queue).context).ops.poll_cq } {
        // SAFETY: what the caller promises.
        Some(poll) => unsafe { poll(queue, count, into) },
        None => -1,
    }
}

/// `ibv_req_notify_cq` of the header, for any completion; a positive result is an error code.
///
/// # Safety
/// As there: `queue` lives.
pub(super) unsafe fn ibv_req_notify_cq(queue: *mut ibv_cq) -> c_int {
    // SAFETY: a completion queue that lives has a context, whose table is filled by its driver.
    match unsafe { (*(*queue).context).ops.req_notify_cq } {
        // SAFETY: what the caller promises.
        Some(notify) => unsafe { notify(queue, 0) },
        None => rustix::io::Errno::NOSYS.raw_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What this program allocates for the libraries; sizes by `infiniband/verbs.h` and
    /// `rdma/rdma_cma.h` on 64-bit Linux.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn what_we_hand_over_is_laid_out_as_in_c() {
        assert_eq!(size_of::<ibv_sge>(), 16);
        assert_eq!(size_of::<ibv_recv_wr>(), 32);
        assert_eq!(size_of::<ibv_send_wr>(), 128);
        assert_eq!(size_of::<ibv_wc>(), 48);
        assert_eq!(size_of::<ibv_qp_init_attr>(), 64);
        assert_eq!(size_of::<ibv_qp_attr>(), 144);
        assert_eq!(size_of::<ibv_device_attr>(), 232);
        assert_eq!(size_of::<rdma_conn_param>(), 24);
        assert_eq!(std::mem::offset_of!(rdma_cm_event, param), 24);
    }
}
