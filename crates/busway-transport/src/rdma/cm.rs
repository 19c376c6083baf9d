//! Connections by librdmacm: addresses, listening, connecting, and their events; nothing here
//! waits.
//!
//! Contract: a link has one [`EventChannel`], which the control thread polls. An event names its
//! [`CmId`] by a number (`context`) that the caller has chosen. It is copied and acknowledged
//! before it is returned, so that destroying an id, which waits for unacknowledged events, waits
//! for at most one copy. Private data of a peer is returned as bytes for [`super::landing`] to
//! check. Called by [`super::link`] and [`super::device`].
#![allow(unsafe_code)] // Foreign functions.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::error::RdmaError;
use super::sys::{self, Libraries};

/// Private data that both sides may give at most: 92 bytes of the InfiniBand CM's REQ less 36 of
/// the IP addressing header (InfiniBand Architecture 1.4, 12.7 and annex A11).
pub const PRIVATE_BYTES: usize = 56;
/// Private data that a peer's REP may carry at most, padding included (InfiniBand Architecture 1.4,
/// 12.7: 196 bytes; iWARP: 512).
const RECEIVED_BYTES: usize = 512;
/// How long the kernel looks for an address or a route.
const RESOLVE: Duration = Duration::from_millis(2000);
/// Local ACK time-out of a connection over a card, 4.096 µs · 2^14 = 67 ms: a packet lost on RoCE
/// is sent again after that, not after the seconds that the kernel would choose.
pub(super) const ACK_TIMEOUT: u8 = 14;
/// The same over soft RoCE (`rdma_rxe`), 0.27 s. That of Linux 6.1 may go wrong when it sends again
/// what was not lost: the receiving device refuses it ("remote invalid request") and breaks the
/// queue pair without a word, or the receiver gets bytes that are no message. With a time-out of
/// 1 ms that happened in five of eight runs of two gateways, with this one in none; with 67 ms now
/// and then, in virtual machines that were paused for longer. A frame that was lost waits longer.
pub(super) const SOFT_ACK_TIMEOUT: u8 = 16;
/// At most this many local ports are tried. Over iWARP by the kernel's TCP (siw) they are TCP's
/// ports, but librdmacm chooses one at random that only RDMA does not use: some socket may have it
/// (EADDRINUSE), and then the next try gets another.
pub(super) const MOST_PORTS: u32 = 32;
/// Retransmissions before a connection fails, and (7 is "for ever") after "receiver not ready".
/// Three bits each, so 7 is the most: a card fails after half a second at least, soft RoCE never
/// (`rxe_comp.c` takes 7 for "for ever" in both places). On a wire that loses packets the
/// conversation declares the link lost, by the `timeout` of the settings.
const RETRIES: u8 = 7;

/// Where the events of a link's ids arrive.
#[derive(Debug)]
pub struct EventChannel {
    channel: NonNull<sys::rdma_event_channel>,
    libraries: &'static Libraries,
}

// SAFETY: librdmacm may be called from any thread; the channel is only passed to it.
unsafe impl Send for EventChannel {}
// SAFETY: as for `Send`.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    /// # Errors
    /// Libraries missing, no RDMA in the kernel, no descriptors left.
    pub fn new() -> Result<Arc<EventChannel>, RdmaError> {
        let libraries = sys::libraries()?;
        // SAFETY: no argument.
        let channel = NonNull::new(unsafe { libraries.cm.rdma_create_event_channel() }).ok_or_else(|| {
            RdmaError::NoRdma {
                error: io::Error::last_os_error(),
            }
        })?;
        let channel = EventChannel { channel, libraries };
        rustix::io::ioctl_fionbio(&channel, true).map_err(|error| RdmaError::Call {
            call: "fcntl",
            error: error.into(),
        })?;
        Ok(Arc::new(channel))
    }

    /// The next event, `None` if there is none.
    pub fn next(self: &Arc<Self>) -> Option<CmEvent> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the channel lives; the library writes a pointer, or fails.
        let code = unsafe {
            self.libraries
                .cm
                .rdma_get_cm_event(self.channel.as_ptr(), &raw mut event)
        };
        // It fails when there is none (the descriptor does not block), and for events of ids that
        // are gone.
        let event = NonNull::new(event).filter(|_| code == 0)?;
        // SAFETY: valid until it is acknowledged below.
        let raw = unsafe { *event.as_ptr() };
        let kind = CmEventKind::of(raw.event);
        let mut copy = CmEvent {
            // SAFETY: an id lives until its events are acknowledged.
            context: unsafe { (*raw.id).context } as u64,
            kind,
            status: raw.status,
            data: Vec::new(),
            request: None,
        };
        if matches!(
            kind,
            CmEventKind::Request | CmEventKind::Established | CmEventKind::Rejected
        ) {
            // SAFETY: these events have connection parameters.
            let param = unsafe { raw.param.conn };
            let data = param.private_data.cast::<u8>();
            let bytes = usize::from(param.private_data_len).min(RECEIVED_BYTES);
            if !data.is_null() {
                // SAFETY: the library gives a buffer of that length, which lives as long as the
                // event.
                copy.data = unsafe { std::slice::from_raw_parts(data, bytes) }.to_vec();
            }
        }
        if kind == CmEventKind::Request
            && let Some(id) = NonNull::new(raw.id)
        {
            copy.request = Some(CmId {
                id,
                events: self.clone(),
            });
        }
        // SAFETY: got above, acknowledged once, not used after.
        unsafe { self.libraries.cm.rdma_ack_cm_event(event.as_ptr()) };
        Some(copy)
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel owns its descriptor for as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: every id holds the channel, so none is left.
        unsafe {
            self.libraries
                .cm
                .rdma_destroy_event_channel(self.channel.as_ptr())
        };
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmEventKind {
    /// The address leads to a device: resolve the route next.
    AddressResolved,
    /// The way is known: make the queue pair and connect.
    RouteResolved,
    /// Somebody connects to a listening id; the new id is in the event.
    Request,
    /// The connection stands.
    Established,
    /// The peer does not want it.
    Rejected,
    /// It came to nothing: no address, no route, no answer.
    Failed(&'static str),
    /// The peer has closed, or is gone.
    Disconnected,
    /// The device is being removed: everything on it must be released.
    DeviceRemoved,
    /// Nothing that concerns us.
    Other,
}

impl CmEventKind {
    fn of(event: sys::rdma_cm_event_type) -> CmEventKind {
        match event {
            sys::RDMA_CM_EVENT_ADDR_RESOLVED => CmEventKind::AddressResolved,
            sys::RDMA_CM_EVENT_ROUTE_RESOLVED => CmEventKind::RouteResolved,
            sys::RDMA_CM_EVENT_CONNECT_REQUEST => CmEventKind::Request,
            sys::RDMA_CM_EVENT_ESTABLISHED => CmEventKind::Established,
            sys::RDMA_CM_EVENT_REJECTED => CmEventKind::Rejected,
            sys::RDMA_CM_EVENT_ADDR_ERROR => CmEventKind::Failed("the address is not reachable over RDMA"),
            sys::RDMA_CM_EVENT_ROUTE_ERROR => CmEventKind::Failed("there is no route"),
            sys::RDMA_CM_EVENT_CONNECT_ERROR => CmEventKind::Failed("the connection could not be made"),
            sys::RDMA_CM_EVENT_UNREACHABLE => CmEventKind::Failed("the peer does not answer"),
            sys::RDMA_CM_EVENT_DISCONNECTED => CmEventKind::Disconnected,
            sys::RDMA_CM_EVENT_DEVICE_REMOVAL => CmEventKind::DeviceRemoved,
            _ => CmEventKind::Other,
        }
    }
}

/// An event, on its own.
#[derive(Debug)]
pub struct CmEvent {
    /// The number given to the id; for [`CmEventKind::Request`] that of the listening id.
    pub context: u64,
    /// What happened.
    pub kind: CmEventKind,
    /// The kernel's reason, 0 or a negative error code (for a rejection: the transport's reason).
    pub status: i32,
    /// Private data of the peer, hostile; padded with zeros by some transports.
    pub data: Vec<u8>,
    /// The new id of a request.
    pub request: Option<CmId>,
}

/// A communication identifier: one connection, or a listener.
#[derive(Debug)]
pub struct CmId {
    id: NonNull<sys::rdma_cm_id>,
    events: Arc<EventChannel>,
}

// SAFETY: librdmacm may be called from any thread; the id is only passed to it, and fields that it
// sets before the id is shared are read.
unsafe impl Send for CmId {}
// SAFETY: as for `Send`.
unsafe impl Sync for CmId {}

impl CmId {
    /// # Errors
    /// No resources.
    pub fn new(events: &Arc<EventChannel>, context: u64) -> Result<CmId, RdmaError> {
        let mut id = std::ptr::null_mut();
        // SAFETY: the channel lives as long as the id holds it; the context is a number and never
        // followed.
        let code = unsafe {
            events.libraries.cm.rdma_create_id(
                events.channel.as_ptr(),
                &raw mut id,
                std::ptr::without_provenance_mut(context as usize),
                sys::RDMA_PS_TCP,
            )
        };
        match NonNull::new(id) {
            Some(id) if code == 0 => Ok(CmId {
                id,
                events: events.clone(),
            }),
            _ => Err(RdmaError::last("rdma_create_id")),
        }
    }

    /// Gives a requested id a number of its own.
    pub fn set_context(&mut self, context: u64) {
        // SAFETY: the field is the user's; events are handed out by the same thread.
        unsafe { (*self.id.as_ptr()).context = std::ptr::without_provenance_mut(context as usize) };
    }

    /// Binds to a local address; port 0 lets the system choose.
    ///
    /// # Errors
    /// No RDMA device has it, or the port is taken.
    pub fn bind(&self, address: SocketAddr) -> Result<(), RdmaError> {
        let mut raw = RawAddress::new(address);
        // SAFETY: the id lives; the address is a copy that the library reads during the call.
        check("rdma_bind_addr", unsafe {
            self.events
                .libraries
                .cm
                .rdma_bind_addr(self.as_ptr(), raw.as_mut_ptr())
        })
    }

    /// Listens; [`port`](Self::port) returns the port.
    ///
    /// # Errors
    /// No resources.
    pub fn listen(&self, backlog: i32) -> Result<(), RdmaError> {
        // SAFETY: the id lives.
        check("rdma_listen", unsafe {
            self.events.libraries.cm.rdma_listen(self.as_ptr(), backlog)
        })
    }

    /// The local port, 0 if it has none.
    pub fn port(&self) -> u16 {
        // SAFETY: the id lives.
        u16::from_be(unsafe { self.events.libraries.cm.rdma_get_src_port(self.as_ptr()) })
    }

    /// Begins to look for the device that leads from `local` to `peer`.
    ///
    /// # Errors
    /// What is known at once.
    pub fn resolve_address(&self, local: IpAddr, peer: SocketAddr) -> Result<(), RdmaError> {
        let (mut local, mut peer) = (RawAddress::new(SocketAddr::new(local, 0)), RawAddress::new(peer));
        // SAFETY: the id lives; the addresses are copies that the library reads during the call.
        check("rdma_resolve_addr", unsafe {
            self.events.libraries.cm.rdma_resolve_addr(
                self.as_ptr(),
                local.as_mut_ptr(),
                peer.as_mut_ptr(),
                RESOLVE.as_millis() as i32,
            )
        })
    }

    /// Begins to look for the route, after [`CmEventKind::AddressResolved`].
    ///
    /// # Errors
    /// What is known at once.
    pub fn resolve_route(&self) -> Result<(), RdmaError> {
        // SAFETY: the id lives.
        check("rdma_resolve_route", unsafe {
            self.events
                .libraries
                .cm
                .rdma_resolve_route(self.as_ptr(), RESOLVE.as_millis() as i32)
        })
    }

    /// Asks the peer for the connection; its queue pair must have been made. `ack_timeout`: see
    /// [`Device::ack_timeout`](super::device::Device::ack_timeout).
    ///
    /// # Errors
    /// What is known at once.
    ///
    /// # Panics
    /// If `data` is longer than [`PRIVATE_BYTES`]: a mistake of the caller.
    pub fn connect(&self, data: &[u8], ack_timeout: u8) -> Result<(), RdmaError> {
        self.set_ack_timeout(ack_timeout);
        let mut parameters = parameters(data);
        // SAFETY: the id lives; parameters and data are read during the call.
        check("rdma_connect", unsafe {
            self.events
                .libraries
                .cm
                .rdma_connect(self.as_ptr(), &raw mut parameters)
        })
    }

    /// Takes a requested connection; its queue pair must have been made. `ack_timeout`: as for
    /// [`connect`](Self::connect).
    ///
    /// # Errors
    /// What is known at once.
    ///
    /// # Panics
    /// If `data` is longer than [`PRIVATE_BYTES`]: a mistake of the caller.
    pub fn accept(&self, data: &[u8], ack_timeout: u8) -> Result<(), RdmaError> {
        self.set_ack_timeout(ack_timeout);
        let mut parameters = parameters(data);
        // SAFETY: the id lives; parameters and data are read during the call.
        check("rdma_accept", unsafe {
            self.events
                .libraries
                .cm
                .rdma_accept(self.as_ptr(), &raw mut parameters)
        })
    }

    /// Refuses a requested connection. Where that fails the peer finds out by itself.
    pub fn reject(&self) {
        // SAFETY: the id lives; no data.
        let _ = unsafe {
            self.events
                .libraries
                .cm
                .rdma_reject(self.as_ptr(), std::ptr::null(), 0)
        };
    }

    /// Ends the connection: all work on the queue pair completes with an error. Where there is none
    /// any more, all is well.
    pub fn disconnect(&self) {
        // SAFETY: the id lives.
        let _ = unsafe { self.events.libraries.cm.rdma_disconnect(self.as_ptr()) };
    }

    /// Not every transport has the option (iWARP retransmits by TCP), and then none is needed.
    fn set_ack_timeout(&self, mut timeout: u8) {
        // SAFETY: the id lives; the value is one byte, read during the call.
        let _ = unsafe {
            self.events.libraries.cm.rdma_set_option(
                self.as_ptr(),
                sys::RDMA_OPTION_ID.cast_signed(),
                sys::RDMA_OPTION_ID_ACK_TIMEOUT.cast_signed(),
                (&raw mut timeout).cast(),
                1,
            )
        };
    }

    /// The device, null while it is not known.
    pub(super) fn verbs(&self) -> *mut sys::ibv_context {
        // SAFETY: the id lives; the field is set before the id is handed out, or by an event that
        // has been taken.
        unsafe { self.id.as_ref().verbs }
    }

    pub(super) fn as_ptr(&self) -> *mut sys::rdma_cm_id {
        self.id.as_ptr()
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: made by the library, destroyed once; its queue pair, if any, went before
        // (`QueuePair::drop`).
        unsafe { self.events.libraries.cm.rdma_destroy_id(self.id.as_ptr()) };
    }
}

fn check(call: &'static str, code: i32) -> Result<(), RdmaError> {
    if code == 0 {
        Ok(())
    } else {
        Err(RdmaError::last(call))
    }
}

fn parameters(data: &[u8]) -> sys::rdma_conn_param {
    assert!(
        data.len() <= PRIVATE_BYTES,
        "{} bytes of private data",
        data.len()
    );
    sys::rdma_conn_param {
        private_data: data.as_ptr().cast(),
        private_data_len: data.len() as u8,
        // No READs and atomics are used, but some iWARP peers want at least one to begin with.
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        srq: 0,
        qp_num: 0,
    }
}

/// An address as the kernel wants it.
struct RawAddress(socket2::SockAddr);

impl RawAddress {
    fn new(address: SocketAddr) -> RawAddress {
        RawAddress(address.into())
    }

    fn as_mut_ptr(&mut self) -> *mut sys::sockaddr {
        self.0.as_ptr().cast_mut().cast()
    }
}

impl CmEvent {
    /// The kernel's reason in words, empty if it gave none.
    pub fn reason(&self) -> String {
        match self.status {
            0 => String::new(),
            code if code < 0 => format!(" ({})", io::Error::from_raw_os_error(-code)),
            code => format!(" (reason {code})"),
        }
    }
}
