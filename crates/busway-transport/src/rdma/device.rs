//! One RDMA device as a link uses it, and memory registered with it.
//!
//! Contract: a [`Device`] is found by a local address, and lives as long as anything made with it.
//! A [`Region`] is memory that the device reads and, for completed work or for a peer that was
//! given its key, writes; it is registered without relaxed ordering, since the protocols rely on
//! writes of one queue pair becoming visible in order. Made by the control thread ([`super::link`])
//! and by the kinds of channel when a channel opens; never in the data path.
#![allow(unsafe_code)] // Foreign functions; memory that a device writes.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::Arc;

use busway_core::Window;
use busway_core::window::{Medium, OutOfBounds};

use super::cm::{ACK_TIMEOUT, CmId, EventChannel, SOFT_ACK_TIMEOUT};
use super::domain::Domain;
use super::error::RdmaError;
use super::registration::{Purpose, Registration, Registrations};
use super::siw_gap::SiwGap;
use super::sys::{self, Libraries};
use crate::contract::SegmentId;

/// Memory is registered in whole pages.
const PAGE_BYTES: usize = 4096;
/// `ibv_device_attr.vendor_id` of soft RoCE (Linux, `drivers/infiniband/sw/rxe/rxe_param.h`).
const SOFT_ROCE_VENDOR: u32 = 0xff_ffff;

impl std::fmt::Debug for Libraries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Libraries")
    }
}

/// An RDMA device with a protection domain of its own.
#[derive(Debug)]
pub struct Device {
    domain: Arc<Domain>,
    registrations: Registrations,
    is_iwarp: bool,
    ack_timeout: u8,
    max_work: u32,
    max_completions: u32,
}

impl Device {
    /// The device that has this address. Events of the device (its removal) come through `events`
    /// with `context`.
    ///
    /// # Errors
    /// Libraries missing, no such device, no resources.
    pub(super) fn open(
        events: &Arc<EventChannel>,
        address: IpAddr,
        context: u64,
    ) -> Result<Arc<Device>, RdmaError> {
        let libraries = sys::libraries()?;
        let keeper = CmId::new(events, context)?;
        keeper
            .bind(SocketAddr::new(address, 0))
            .map_err(|error| no_device(address, error))?;
        let Some(verbs) = NonNull::new(keeper.verbs()) else {
            return Err(no_device(
                address,
                RdmaError::code("rdma_bind_addr", rustix::io::Errno::NODEV.raw_os_error()),
            ));
        };
        let mut attributes = std::mem::MaybeUninit::<sys::ibv_device_attr>::zeroed();
        // SAFETY: the device is open as long as `keeper` lives; plain numbers may be zero.
        let code = unsafe {
            libraries
                .verbs
                .ibv_query_device(verbs.as_ptr(), attributes.as_mut_ptr())
        };
        if code != 0 {
            return Err(RdmaError::code("ibv_query_device", code));
        }
        // SAFETY: zeroed is initialised.
        let attributes = unsafe { attributes.assume_init() };
        // SAFETY: the device is open.
        let domain = NonNull::new(unsafe { libraries.verbs.ibv_alloc_pd(verbs.as_ptr()) })
            .ok_or_else(|| RdmaError::last("ibv_alloc_pd"))?;
        // SAFETY: an open device has its description.
        let transport = unsafe { (*(*verbs.as_ptr()).device).transport_type };
        let is_iwarp = transport == sys::IBV_TRANSPORT_IWARP;
        // SAFETY: the device is open as long as `keeper` lives, which is dropped after the gap.
        let gap = is_iwarp.then(|| unsafe { SiwGap::new(libraries, verbs.as_ptr()) });
        Ok(Arc::new(Device {
            domain: Arc::new(Domain::new(domain, libraries, gap.flatten(), keeper)),
            registrations: Registrations::default(),
            is_iwarp,
            ack_timeout: if attributes.vendor_id == SOFT_ROCE_VENDOR {
                SOFT_ACK_TIMEOUT
            } else {
                ACK_TIMEOUT
            },
            max_work: u32::try_from(attributes.max_qp_wr).unwrap_or(0),
            max_completions: u32::try_from(attributes.max_cqe).unwrap_or(0),
        }))
    }

    /// Whether it speaks iWARP: no placement order between two WRITEs by the letter of RFC 5040, no
    /// retry where no RECV is posted.
    #[must_use]
    pub fn is_iwarp(&self) -> bool {
        self.is_iwarp
    }

    /// How long a queue pair waits for an acknowledgement before it sends again: 4.096 µs · 2^n
    /// (InfiniBand Architecture 1.4, 9.7.6.1.3).
    #[must_use]
    pub(super) fn ack_timeout(&self) -> u8 {
        self.ack_timeout
    }

    /// Work requests that one queue of a queue pair holds at most.
    #[must_use]
    pub fn max_work(&self) -> u32 {
        self.max_work
    }

    /// Completions that a completion queue holds at most.
    pub(super) fn max_completions(&self) -> u32 {
        self.max_completions
    }

    pub(super) fn verbs(&self) -> *mut sys::ibv_context {
        self.domain.verbs()
    }

    pub(super) fn domain(&self) -> *mut sys::ibv_pd {
        self.domain.as_ptr()
    }

    pub(super) fn libraries(&self) -> &'static Libraries {
        self.domain.libraries()
    }

    /// The device is being removed: it is closed when this process drops its last use of it.
    pub(super) fn set_removed(&self) {
        self.domain.set_removed();
    }

    /// See [`Registrations::find`].
    pub(super) fn find_registration(
        &self,
        segment: SegmentId,
        purpose: Purpose,
        bytes: &[u8],
    ) -> Option<Arc<Registration>> {
        self.registrations.find(&self.domain, segment, purpose, bytes)
    }

    /// Segments of messages that could not be registered, so that their payload is copied.
    #[must_use]
    pub fn unregistered(&self) -> u64 {
        self.registrations.refused()
    }
}

fn no_device(address: IpAddr, error: RdmaError) -> RdmaError {
    match error {
        RdmaError::Call { error, .. } => RdmaError::NoDevice { address, error },
        other => other,
    }
}

/// Who may use a region, beside this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The device, for RECVs of this host.
    Local,
    /// The peer too, which writes and reads it with the region's key.
    RemoteReadWrite,
}

/// Memory of this process, zeroed at first, registered with a device.
#[derive(Debug)]
pub struct Region {
    /// `None` only where registering failed.
    key: NonNull<sys::ibv_mr>,
    window: Window,
    base: NonNull<u8>,
    layout: Layout,
    device: Arc<Device>,
}

// SAFETY: the memory is reached through a window only, which is made for that; the registration is
// only read and released once.
unsafe impl Send for Region {}
// SAFETY: as for `Send`.
unsafe impl Sync for Region {}

impl Region {
    /// Allocates and registers at least `len_bytes` bytes (whole pages).
    ///
    /// # Errors
    /// [`RdmaError::Registration`]: no memory, or more locked memory than this process may have.
    pub fn new(device: &Arc<Device>, len_bytes: usize, access: Access) -> Result<Region, RdmaError> {
        let refused = |error: std::io::Error| RdmaError::Registration { len_bytes, error };
        let no_memory = || refused(std::io::ErrorKind::OutOfMemory.into());
        let size = len_bytes
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .ok_or_else(no_memory)?;
        let layout = Layout::from_size_align(size, PAGE_BYTES).map_err(|_| no_memory())?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(no_memory)?;
        let flags = sys::IBV_ACCESS_LOCAL_WRITE
            | match access {
                Access::Local => 0,
                Access::RemoteReadWrite => sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_READ,
            };
        // SAFETY: the memory was just allocated with that size, and is freed only after the
        // registration is gone.
        let key = unsafe {
            device.libraries().verbs.ibv_reg_mr(
                device.domain(),
                base.as_ptr().cast(),
                size,
                flags.cast_signed(),
            )
        };
        let Some(key) = NonNull::new(key) else {
            let error = std::io::Error::last_os_error();
            // SAFETY: allocated above with this layout, and nothing else has the pointer.
            unsafe { dealloc(base.as_ptr(), layout) };
            return Err(refused(error));
        };
        // SAFETY: page-aligned, allocated above, freed only in `drop`; reached through this window
        // and the device alone, and clones of the window are given out only by the unsafe `window`.
        let window = unsafe { Window::from_raw_parts(base.as_ptr(), size, Medium::Coherent) };
        Ok(Region {
            key,
            window,
            base,
            layout,
            device: device.clone(),
        })
    }

    /// Length in bytes, a multiple of the page.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.layout.size()
    }

    /// Where it begins, as a peer that writes it must say (with [`remote_key`](Self::remote_key)).
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// The key that a peer writes it with; good for nothing where access is [`Access::Local`].
    #[must_use]
    pub fn remote_key(&self) -> u32 {
        // SAFETY: registered until `drop`.
        unsafe { self.key.as_ref().rkey }
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: registered until `drop`.
        unsafe { self.key.as_ref().lkey }
    }

    /// Copies bytes out. A device may write them meanwhile: check the copy.
    ///
    /// # Errors
    /// [`OutOfBounds`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfBounds> {
        self.window.read(offset, into)
    }

    /// Writes `header` and then `parts` without gaps at `offset`, a multiple of 8 (see
    /// [`Window::write`]).
    ///
    /// # Errors
    /// [`OutOfBounds`].
    pub fn write(&self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), OutOfBounds> {
        self.window.write(offset, header, parts)
    }

    /// The whole region, for the protocols of the core.
    ///
    /// # Safety
    /// The window and its clones are dropped before the region is.
    pub unsafe fn window(&self) -> Window {
        self.window.clone()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered by `new` and released once. Work that still names it fails and reaches
        // no memory.
        let code = unsafe { self.device.libraries().verbs.ibv_dereg_mr(self.key.as_ptr()) };
        if code == 0 {
            // SAFETY: allocated by `new` with this layout; no device knows it any more.
            unsafe { dealloc(self.base.as_ptr(), self.layout) };
        }
        // Else a device may still write there: the memory is left to it.
    }
}
