//! A reliable connected queue pair with its completion queue: work requests in, completions out.
//!
//! Contract: every posted range is inside a [`Region`] or is copied into the request (inline). A
//! region must not be dropped before its work has completed, else that work fails (it never reaches
//! freed memory: a region is deregistered before it is freed). Requests of one queue pair start in
//! the order posted. InfiniBand and RoCE make the bytes of an earlier WRITE visible before those of
//! a later one; iWARP does not promise that ([`Device::is_iwarp`]). A full queue is a value,
//! [`PostError::Full`]. A channel end on a lane and the link on the control thread share the pair;
//! the link ends it ([`QueuePair::disconnect`]). Posting and polling never block.
#![allow(unsafe_code)] // Foreign functions.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::cm::CmId;
use super::device::{Device, Region};
use super::error::{PostError, RdmaError};
use super::registration::Registration;
use super::sys;

/// Requests posted by one call at most.
pub const POST_MAX: usize = 16;
/// Pieces of one request at most; every device has as many (rxe 32, siw 6).
pub const PIECES_MAX: usize = 3;
/// Completions taken by one call at most.
pub const POLL_MAX: usize = 16;
/// Inline bytes asked for, best first: drivers differ in what they refuse (siw takes 88, rxe some
/// 400).
const INLINE_WISHES: [u32; 5] = [256, 128, 88, 32, 0];
/// Why a queue pair is [ended](QueuePair::disconnect) that the peer has disconnected.
pub const ENDED_BY_PEER: &str = "the peer closed the connection, or its process has ended";
/// Marks the work number of a RECV, since a failed completion does not say what it was.
const RECV: u64 = 1 << 63;

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// SENDs and WRITEs that have not completed, at most.
    pub sends: u32,
    /// RECVs that have not completed, at most.
    pub recvs: u32,
}

/// A piece of what is sent or written.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Part of registered memory, read by the device until the work has completed.
    Registered {
        /// Where it is.
        region: &'a Region,
        /// From there on, in bytes.
        offset: usize,
        /// Its length in bytes.
        len_bytes: usize,
    },
    /// Bytes in registered memory of another owner. The device reads them until the work has
    /// completed, so the caller keeps them until then; else other bytes are sent.
    Foreign {
        /// The registration that they lie in.
        registration: &'a Registration,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Bytes that are copied at once; all pieces of the request together are at most
    /// [`QueuePair::max_inline_bytes`] long.
    Inline(&'a [u8]),
}

impl Piece<'_> {
    /// How long it is.
    pub fn len_bytes(&self) -> usize {
        match self {
            Piece::Registered { len_bytes, .. } => *len_bytes,
            Piece::Foreign { bytes, .. } | Piece::Inline(bytes) => bytes.len(),
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Fills the peer's next RECV.
    Send,
    /// Writes the peer's memory.
    Write {
        /// Address at the peer ([`Region::address`]), bytes.
        address: u64,
        /// The peer's key ([`Region::remote_key`]).
        key: u32,
    },
    /// Reads the peer's memory into registered pieces. One at a time: the connection asks for no
    /// more.
    Read {
        /// Address at the peer, bytes.
        address: u64,
        /// The peer's key.
        key: u32,
    },
}

/// One work request of the send queue.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to do.
    pub work: Work,
    /// With what, at most [`PIECES_MAX`] pieces.
    pub pieces: &'a [Piece<'a>],
    /// Comes back with the completion; below 2^63.
    pub number: u64,
    /// Whether it completes visibly. What is not signalled has completed when a later request has.
    pub is_signalled: bool,
}

/// A finished piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number given to it.
    pub number: u64,
    /// Whether it was a RECV.
    pub is_recv: bool,
    /// Bytes that a RECV has got.
    pub len_bytes: usize,
    /// `IBV_WC_SUCCESS` or why not: see [`QueuePair::failure`].
    pub status: u32,
}

impl Completion {
    /// Whether the work was done.
    pub fn is_success(&self) -> bool {
        self.status == sys::IBV_WC_SUCCESS
    }
}

/// See the module.
#[derive(Debug)]
pub struct QueuePair {
    pair: NonNull<sys::ibv_qp>,
    completions: CompletionQueue,
    max_inline_bytes: usize,
    /// Why the link ended it.
    ended: OnceLock<String>,
    /// The pair is destroyed. Locked by [`close`](Self::close) and [`disconnect`](Self::disconnect)
    /// only.
    is_closed: Mutex<bool>,
    /// After the pair and the completion queue.
    id: CmId,
    device: Arc<Device>,
}

// SAFETY: verbs on one queue pair may be called from any thread at once (the drivers lock each
// queue).
unsafe impl Send for QueuePair {}
// SAFETY: as for `Send`.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Makes the queue pair of a connection that is not made yet.
    ///
    /// # Errors
    /// The device has no room for it, or `id` leads over another device; `id` is gone then.
    pub fn new(id: CmId, device: &Arc<Device>, capacity: Capacity) -> Result<QueuePair, RdmaError> {
        if id.verbs() != device.verbs() {
            return Err(RdmaError::code(
                "rdma_create_qp (the way to the peer leads over another device)",
                rustix::io::Errno::XDEV.raw_os_error(),
            ));
        }
        let most = device.max_work();
        if capacity.sends > most || capacity.recvs > most {
            return Err(RdmaError::code(
                "rdma_create_qp (more work than the device takes)",
                rustix::io::Errno::INVAL.raw_os_error(),
            ));
        }
        let completions = CompletionQueue::new(device, capacity.sends + capacity.recvs)?;
        let mut error = None;
        for inline_bytes in INLINE_WISHES {
            let mut attributes = sys::ibv_qp_init_attr {
                qp_context: std::ptr::null_mut(),
                send_cq: completions.queue.as_ptr(),
                recv_cq: completions.queue.as_ptr(),
                srq: std::ptr::null_mut(),
                cap: sys::ibv_qp_cap {
                    max_send_wr: capacity.sends,
                    max_recv_wr: capacity.recvs,
                    max_send_sge: PIECES_MAX as u32,
                    max_recv_sge: 1,
                    max_inline_data: inline_bytes,
                },
                qp_type: sys::IBV_QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: id, domain and completion queue live; the attributes are read and written
            // during the call.
            let code = unsafe {
                device
                    .libraries()
                    .cm
                    .rdma_create_qp(id.as_ptr(), device.domain(), &raw mut attributes)
            };
            // SAFETY: the id lives; the call has set the field.
            let pair = unsafe { (*id.as_ptr()).qp };
            match NonNull::new(pair) {
                Some(pair) if code == 0 => {
                    return Ok(QueuePair {
                        pair,
                        completions,
                        // Drivers may grant more; no more than was asked for is relied on.
                        max_inline_bytes: attributes.cap.max_inline_data.min(inline_bytes) as usize,
                        ended: OnceLock::new(),
                        is_closed: Mutex::new(false),
                        id,
                        device: device.clone(),
                    });
                }
                _ => error = Some(RdmaError::last("rdma_create_qp")),
            }
        }
        Err(error.unwrap_or_else(|| RdmaError::last("rdma_create_qp")))
    }

    /// The connection.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Bytes that a request may carry inline.
    pub fn max_inline_bytes(&self) -> usize {
        self.max_inline_bytes
    }

    /// Posts a RECV for `range` of `region`; the completion has `number`, below 2^63.
    ///
    /// # Errors
    /// Full, failed, or the range is outside.
    pub fn post_recv(
        &self,
        region: &Region,
        offset: usize,
        len_bytes: usize,
        number: u64,
    ) -> Result<(), PostError> {
        let mut place = registered(region, offset, len_bytes)?;
        let mut request = sys::ibv_recv_wr {
            wr_id: number | RECV,
            next: std::ptr::null_mut(),
            sg_list: &raw mut place,
            num_sge: 1,
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the pair lives; request and list live during the call, which copies them. The
        // memory is registered.
        match unsafe { sys::ibv_post_recv(self.pair.as_ptr(), &raw mut request, &mut bad) } {
            0 => Ok(()),
            code => Err(PostError::code(code)),
        }
    }

    /// Posts requests, at most [`POST_MAX`], by one call of the driver.
    ///
    /// # Errors
    /// The number of those posted, and why the next one was not.
    ///
    /// # Panics
    /// If there are more than [`POST_MAX`], or one has more than [`PIECES_MAX`] pieces: a mistake
    /// of the caller.
    pub fn post(&self, requests: &[Request<'_>]) -> Result<(), (usize, PostError)> {
        assert!(requests.len() <= POST_MAX, "{} requests at once", requests.len());
        const NO_PIECE: sys::ibv_sge = sys::ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        };
        let mut pieces = [[NO_PIECE; PIECES_MAX]; POST_MAX];
        let mut raw = [const { std::mem::MaybeUninit::<sys::ibv_send_wr>::zeroed() }; POST_MAX];
        for (at, request) in requests.iter().enumerate() {
            let is_inline = self.fill(request, &mut pieces[at]).map_err(|error| (0, error))?;
            let mut flags = 0;
            if request.is_signalled {
                flags |= sys::IBV_SEND_SIGNALED;
            }
            if is_inline {
                flags |= sys::IBV_SEND_INLINE;
            }
            let next = if at + 1 < requests.len() {
                raw[at + 1].as_mut_ptr()
            } else {
                std::ptr::null_mut()
            };
            // SAFETY: numbers, null pointers and unions of numbers may be zero.
            let entry = unsafe { raw[at].assume_init_mut() };
            entry.wr_id = request.number & !RECV;
            entry.next = next;
            entry.sg_list = pieces[at].as_mut_ptr();
            entry.num_sge = request.pieces.len() as i32;
            entry.send_flags = flags;
            entry.opcode = match request.work {
                Work::Send => sys::IBV_WR_SEND,
                Work::Write { address, key } => {
                    entry.wr.rdma.remote_addr = address;
                    entry.wr.rdma.rkey = key;
                    sys::IBV_WR_RDMA_WRITE
                }
                Work::Read { address, key } => {
                    entry.wr.rdma.remote_addr = address;
                    entry.wr.rdma.rkey = key;
                    sys::IBV_WR_RDMA_READ
                }
            };
        }
        if requests.is_empty() {
            return Ok(());
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: the pair lives; requests and lists live during the call, which copies them.
        // Memory is registered or inline.
        match unsafe { sys::ibv_post_send(self.pair.as_ptr(), raw[0].as_mut_ptr(), &mut bad) } {
            0 => Ok(()),
            code => {
                let posted = raw[..requests.len()]
                    .iter()
                    .position(|entry| std::ptr::eq(entry.as_ptr(), bad))
                    .unwrap_or(0);
                Err((posted, PostError::code(code)))
            }
        }
    }

    /// Describes a request's pieces; whether they are all to be copied inline.
    fn fill(&self, request: &Request<'_>, into: &mut [sys::ibv_sge; PIECES_MAX]) -> Result<bool, PostError> {
        assert!(
            request.pieces.len() <= PIECES_MAX,
            "{} pieces",
            request.pieces.len()
        );
        let total_bytes: usize = request.pieces.iter().map(Piece::len_bytes).sum();
        let is_read = matches!(request.work, Work::Read { .. });
        let fits_inline = total_bytes <= self.max_inline_bytes && !is_read;
        for (piece, into) in request.pieces.iter().zip(into) {
            *into = match piece {
                Piece::Registered {
                    region,
                    offset,
                    len_bytes,
                } => registered(region, *offset, *len_bytes)?,
                Piece::Foreign { registration, bytes } => foreign(registration, bytes)?,
                Piece::Inline(bytes) if fits_inline => sys::ibv_sge {
                    addr: bytes.as_ptr().expose_provenance() as u64,
                    length: bytes.len() as u32,
                    lkey: 0,
                },
                Piece::Inline(_) => return Err(outside("more bytes inline than the queue pair takes")),
            };
        }
        Ok(fits_inline)
    }

    /// Takes finished work, without waiting; returns how much.
    ///
    /// # Errors
    /// The completion queue has failed.
    pub fn poll(&self, into: &mut [Completion; POLL_MAX]) -> std::io::Result<usize> {
        let mut raw = [const { std::mem::MaybeUninit::<sys::ibv_wc>::uninit() }; POLL_MAX];
        // SAFETY: the queue lives; there is room for `count` completions.
        let count = unsafe {
            sys::ibv_poll_cq(
                self.completions.queue.as_ptr(),
                POLL_MAX as i32,
                raw[0].as_mut_ptr(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            return Err(std::io::Error::other("the completion queue has failed"));
        };
        for (into, raw) in into.iter_mut().zip(&raw[..count.min(POLL_MAX)]) {
            // SAFETY: the driver has filled `count` entries as far as they mean something.
            let (number, status, len_bytes) = unsafe {
                let raw = raw.as_ptr();
                ((*raw).wr_id, (*raw).status, (*raw).byte_len)
            };
            let is_recv = number & RECV != 0;
            let is_success = status == sys::IBV_WC_SUCCESS;
            *into = Completion {
                number: number & !RECV,
                is_recv,
                len_bytes: if is_recv && is_success {
                    len_bytes as usize
                } else {
                    0
                },
                status,
            };
        }
        Ok(count)
    }

    /// What to say of work that failed with this status.
    pub fn failure(&self, status: u32) -> std::io::Error {
        if let Some(why) = self.ended.get() {
            return std::io::Error::new(std::io::ErrorKind::ConnectionAborted, why.as_str());
        }
        if status == sys::IBV_WC_WR_FLUSH_ERR {
            return std::io::Error::new(
                std::io::ErrorKind::ConnectionReset,
                "the queue pair broke: the peer closed it, or the device here refused what the peer sent",
            );
        }
        // SAFETY: the library returns a constant string for every number.
        let text = unsafe {
            let text = self.device.libraries().verbs.ibv_wc_status_str(status);
            (!text.is_null()).then(|| std::ffi::CStr::from_ptr(text))
        };
        let text = text.map_or("unknown status".into(), std::ffi::CStr::to_string_lossy);
        std::io::Error::other(format!("work on the queue pair failed: {text} ({status})"))
    }

    /// Ends the connection for a reason that the channel end shall report; the first reason stays.
    /// All work completes with an error, which wakes who waits for completions.
    pub fn disconnect(&self, why: &str) {
        let _ = self.ended.set(why.to_owned());
        let is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        self.id.disconnect();
        if *is_closed {
            return;
        }
        let mut attributes = std::mem::MaybeUninit::<sys::ibv_qp_attr>::zeroed();
        // SAFETY: numbers may be zero; only the state is looked at. The pair lives.
        unsafe {
            (*attributes.as_mut_ptr()).qp_state = sys::IBV_QPS_ERR;
            // Where it is in error already, all is well.
            self.device.libraries().verbs.ibv_modify_qp(
                self.pair.as_ptr(),
                attributes.as_mut_ptr(),
                sys::IBV_QP_STATE.cast_signed(),
            );
        }
    }

    /// Whether the peer has ended the connection.
    pub fn is_ended_by_peer(&self) -> bool {
        self.ended.get().is_some_and(|why| why == ENDED_BY_PEER)
    }

    /// Destroys the pair: when this returns, neither the device nor the peer can reach memory
    /// through it, whatever was granted. May be called again. The connection's other resources go
    /// when the last holder drops them.
    ///
    /// # Safety
    /// Nothing is posted from now on: who calls this is the end that posts, and it has no more to
    /// post.
    pub unsafe fn close(&self) {
        let mut is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *is_closed, true) {
            // SAFETY: made by `new`, destroyed once (the flag), before the id and the completion
            // queue; no call posts after this.
            unsafe { self.device.libraries().cm.rdma_destroy_qp(self.id.as_ptr()) };
        }
    }

    pub(super) fn completion_queue(&self) -> &CompletionQueue {
        &self.completions
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: this was the last holder, so no call posts.
        unsafe { self.close() };
    }
}

fn outside(what: &'static str) -> PostError {
    PostError::Failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, what))
}

fn registered(region: &Region, offset: usize, len_bytes: usize) -> Result<sys::ibv_sge, PostError> {
    let is_inside = offset
        .checked_add(len_bytes)
        .is_some_and(|end| end <= region.len_bytes());
    match u32::try_from(len_bytes) {
        Ok(length) if is_inside => Ok(sys::ibv_sge {
            addr: region.address() + offset as u64,
            length,
            lkey: region.local_key(),
        }),
        _ => Err(outside("a range outside its region")),
    }
}

fn foreign(registration: &Registration, bytes: &[u8]) -> Result<sys::ibv_sge, PostError> {
    match u32::try_from(bytes.len()) {
        Ok(length) if registration.has(bytes) => Ok(sys::ibv_sge {
            addr: registration.device_address(bytes),
            length,
            lkey: registration.local_key(),
        }),
        _ => Err(outside("bytes outside their registration")),
    }
}

/// A completion queue with the channel of its events.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    queue: NonNull<sys::ibv_cq>,
    channel: NonNull<sys::ibv_comp_channel>,
    device: Arc<Device>,
}

impl CompletionQueue {
    fn new(device: &Arc<Device>, entries: u32) -> Result<CompletionQueue, RdmaError> {
        let libraries = device.libraries();
        // SAFETY: the device is open.
        let channel = NonNull::new(unsafe { libraries.verbs.ibv_create_comp_channel(device.verbs()) })
            .ok_or_else(|| RdmaError::last("ibv_create_comp_channel"))?;
        let entries = entries.clamp(1, device.max_completions());
        // SAFETY: device and channel live; no context.
        let queue = unsafe {
            libraries.verbs.ibv_create_cq(
                device.verbs(),
                entries.cast_signed(),
                std::ptr::null_mut(),
                channel.as_ptr(),
                0,
            )
        };
        let Some(queue) = NonNull::new(queue) else {
            let error = RdmaError::last("ibv_create_cq");
            // SAFETY: made above, and no queue uses it.
            unsafe { libraries.verbs.ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(error);
        };
        let made = CompletionQueue {
            queue,
            channel,
            device: device.clone(),
        };
        rustix::io::ioctl_fionbio(made.fd(), true).map_err(|error| RdmaError::Call {
            call: "fcntl",
            error: error.into(),
        })?;
        Ok(made)
    }

    /// Readable when an event waits.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel owns its descriptor for as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }

    /// The next completion makes an event.
    pub(super) fn request_event(&self) -> std::io::Result<()> {
        // SAFETY: the queue lives.
        match unsafe { sys::ibv_req_notify_cq(self.queue.as_ptr()) } {
            0 => Ok(()),
            code if code < 0 => Err(std::io::Error::last_os_error()),
            code => Err(std::io::Error::from_raw_os_error(code)),
        }
    }

    /// Takes an event, if there is one.
    pub(super) fn take_event(&self) -> bool {
        let (mut queue, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the channel lives, its descriptor does not block; an event is acknowledged once.
        unsafe {
            let verbs = &self.device.libraries().verbs;
            if verbs.ibv_get_cq_event(self.channel.as_ptr(), &raw mut queue, &raw mut context) != 0 {
                return false;
            }
            verbs.ibv_ack_cq_events(queue, 1);
        }
        true
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: the queue pair went before; all events are acknowledged. Destroyed once, the
        // queue before its channel.
        unsafe {
            let verbs = &self.device.libraries().verbs;
            verbs.ibv_destroy_cq(self.queue.as_ptr());
            verbs.ibv_destroy_comp_channel(self.channel.as_ptr());
        }
    }
}
