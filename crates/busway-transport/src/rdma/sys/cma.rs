//! librdmacm, as far as it is used. Made by `generate.sh`: do not edit.
use super::verbs::*;
pub type sockaddr = ::core::ffi::c_void;
pub type __be16 = u16;

pub type rdma_cm_event_type = ::core::ffi::c_uint;
pub type rdma_port_space = ::core::ffi::c_uint;
pub type _bindgen_ty_25 = ::core::ffi::c_uint;
pub type _bindgen_ty_26 = ::core::ffi::c_uint;
#[derive(PartialEq, Eq, Copy, Clone, Debug, Hash)]
#[repr(C, align(8))]
pub struct __BindgenOpaqueArray8<T>(pub T);
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct rdma_route {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 312usize]>,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct rdma_event_channel {
    pub fd: ::core::ffi::c_int,
}
#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut ::core::ffi::c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: rdma_port_space,
    pub port_num: u8,
    pub event: *mut rdma_cm_event,
    pub send_cq_channel: *mut ibv_comp_channel,
    pub send_cq: *mut ibv_cq,
    pub recv_cq_channel: *mut ibv_comp_channel,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub pd: *mut ibv_pd,
    pub qp_type: ibv_qp_type,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct rdma_conn_param {
    pub private_data: *const ::core::ffi::c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct rdma_ud_param {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 56usize]>,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: rdma_cm_event_type,
    pub status: ::core::ffi::c_int,
    pub param: rdma_cm_event__bindgen_ty_1,
}
pub struct Librdmacm {
    __library: ::libloading::Library,
    pub rdma_create_event_channel: unsafe extern "C" fn() -> *mut rdma_event_channel,
    pub rdma_destroy_event_channel: unsafe extern "C" fn(channel: *mut rdma_event_channel),
    pub rdma_create_id: unsafe extern "C" fn(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut ::core::ffi::c_void,
        ps: rdma_port_space,
    ) -> ::core::ffi::c_int,
    pub rdma_destroy_id: unsafe extern "C" fn(id: *mut rdma_cm_id) -> ::core::ffi::c_int,
    pub rdma_bind_addr: unsafe extern "C" fn(id: *mut rdma_cm_id, addr: *mut sockaddr) -> ::core::ffi::c_int,
    pub rdma_resolve_addr: unsafe extern "C" fn(
        id: *mut rdma_cm_id,
        src_addr: *mut sockaddr,
        dst_addr: *mut sockaddr,
        timeout_ms: ::core::ffi::c_int,
    ) -> ::core::ffi::c_int,
    pub rdma_resolve_route:
        unsafe extern "C" fn(id: *mut rdma_cm_id, timeout_ms: ::core::ffi::c_int) -> ::core::ffi::c_int,
    pub rdma_create_qp: unsafe extern "C" fn(
        id: *mut rdma_cm_id,
        pd: *mut ibv_pd,
        qp_init_attr: *mut ibv_qp_init_attr,
    ) -> ::core::ffi::c_int,
    pub rdma_destroy_qp: unsafe extern "C" fn(id: *mut rdma_cm_id),
    pub rdma_connect:
        unsafe extern "C" fn(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> ::core::ffi::c_int,
    pub rdma_listen:
        unsafe extern "C" fn(id: *mut rdma_cm_id, backlog: ::core::ffi::c_int) -> ::core::ffi::c_int,
    pub rdma_accept:
        unsafe extern "C" fn(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> ::core::ffi::c_int,
    pub rdma_reject: unsafe extern "C" fn(
        id: *mut rdma_cm_id,
        private_data: *const ::core::ffi::c_void,
        private_data_len: u8,
    ) -> ::core::ffi::c_int,
    pub rdma_disconnect: unsafe extern "C" fn(id: *mut rdma_cm_id) -> ::core::ffi::c_int,
    pub rdma_get_cm_event: unsafe extern "C" fn(
        channel: *mut rdma_event_channel,
        event: *mut *mut rdma_cm_event,
    ) -> ::core::ffi::c_int,
    pub rdma_ack_cm_event: unsafe extern "C" fn(event: *mut rdma_cm_event) -> ::core::ffi::c_int,
    pub rdma_get_src_port: unsafe extern "C" fn(id: *mut rdma_cm_id) -> __be16,
    pub rdma_set_option: unsafe extern "C" fn(
        id: *mut rdma_cm_id,
        level: ::core::ffi::c_int,
        optname: ::core::ffi::c_int,
        optval: *mut ::core::ffi::c_void,
        optlen: usize,
    ) -> ::core::ffi::c_int,
}
pub const RDMA_CM_EVENT_ADDR_RESOLVED: rdma_cm_event_type = 0;
pub const RDMA_CM_EVENT_ADDR_ERROR: rdma_cm_event_type = 1;
pub const RDMA_CM_EVENT_ROUTE_RESOLVED: rdma_cm_event_type = 2;
pub const RDMA_CM_EVENT_ROUTE_ERROR: rdma_cm_event_type = 3;
pub const RDMA_CM_EVENT_CONNECT_REQUEST: rdma_cm_event_type = 4;
pub const RDMA_CM_EVENT_CONNECT_RESPONSE: rdma_cm_event_type = 5;
pub const RDMA_CM_EVENT_CONNECT_ERROR: rdma_cm_event_type = 6;
pub const RDMA_CM_EVENT_UNREACHABLE: rdma_cm_event_type = 7;
pub const RDMA_CM_EVENT_REJECTED: rdma_cm_event_type = 8;
pub const RDMA_CM_EVENT_ESTABLISHED: rdma_cm_event_type = 9;
pub const RDMA_CM_EVENT_DISCONNECTED: rdma_cm_event_type = 10;
pub const RDMA_CM_EVENT_DEVICE_REMOVAL: rdma_cm_event_type = 11;
pub const RDMA_CM_EVENT_MULTICAST_JOIN: rdma_cm_event_type = 12;
pub const RDMA_CM_EVENT_MULTICAST_ERROR: rdma_cm_event_type = 13;
pub const RDMA_CM_EVENT_ADDR_CHANGE: rdma_cm_event_type = 14;
pub const RDMA_CM_EVENT_TIMEWAIT_EXIT: rdma_cm_event_type = 15;
pub const RDMA_PS_IPOIB: rdma_port_space = 2;
pub const RDMA_PS_TCP: rdma_port_space = 262;
pub const RDMA_PS_UDP: rdma_port_space = 273;
pub const RDMA_PS_IB: rdma_port_space = 319;
pub const RDMA_OPTION_ID: _bindgen_ty_25 = 0;
pub const RDMA_OPTION_IB: _bindgen_ty_25 = 1;
pub const RDMA_OPTION_ID_TOS: _bindgen_ty_26 = 0;
pub const RDMA_OPTION_ID_REUSEADDR: _bindgen_ty_26 = 1;
pub const RDMA_OPTION_ID_AFONLY: _bindgen_ty_26 = 2;
pub const RDMA_OPTION_ID_ACK_TIMEOUT: _bindgen_ty_26 = 3;
#[repr(C)]
#[derive(Copy, Clone)]
pub union rdma_cm_event__bindgen_ty_1 {
    pub conn: rdma_conn_param,
    pub ud: rdma_ud_param,
}
impl Librdmacm {
    pub unsafe fn new<P>(path: P) -> Result<Self, ::libloading::Error>
    where
        P: AsRef<::std::ffi::OsStr>,
    {
        let path = path.as_ref();
        let library = unsafe { ::libloading::Library::new(path) }?;
        unsafe { Self::from_library(library) }
    }
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let rdma_create_event_channel =
            unsafe { __library.get(b"rdma_create_event_channel\0") }.map(|sym| *sym)?;
        let rdma_destroy_event_channel =
            unsafe { __library.get(b"rdma_destroy_event_channel\0") }.map(|sym| *sym)?;
        let rdma_create_id = unsafe { __library.get(b"rdma_create_id\0") }.map(|sym| *sym)?;
        let rdma_destroy_id = unsafe { __library.get(b"rdma_destroy_id\0") }.map(|sym| *sym)?;
        let rdma_bind_addr = unsafe { __library.get(b"rdma_bind_addr\0") }.map(|sym| *sym)?;
        let rdma_resolve_addr = unsafe { __library.get(b"rdma_resolve_addr\0") }.map(|sym| *sym)?;
        let rdma_resolve_route = unsafe { __library.get(b"rdma_resolve_route\0") }.map(|sym| *sym)?;
        let rdma_create_qp = unsafe { __library.get(b"rdma_create_qp\0") }.map(|sym| *sym)?;
        let rdma_destroy_qp = unsafe { __library.get(b"rdma_destroy_qp\0") }.map(|sym| *sym)?;
        let rdma_connect = unsafe { __library.get(b"rdma_connect\0") }.map(|sym| *sym)?;
        let rdma_listen = unsafe { __library.get(b"rdma_listen\0") }.map(|sym| *sym)?;
        let rdma_accept = unsafe { __library.get(b"rdma_accept\0") }.map(|sym| *sym)?;
        let rdma_reject = unsafe { __library.get(b"rdma_reject\0") }.map(|sym| *sym)?;
        let rdma_disconnect = unsafe { __library.get(b"rdma_disconnect\0") }.map(|sym| *sym)?;
        let rdma_get_cm_event = unsafe { __library.get(b"rdma_get_cm_event\0") }.map(|sym| *sym)?;
        let rdma_ack_cm_event = unsafe { __library.get(b"rdma_ack_cm_event\0") }.map(|sym| *sym)?;
        let rdma_get_src_port = unsafe { __library.get(b"rdma_get_src_port\0") }.map(|sym| *sym)?;
        let rdma_set_option = unsafe { __library.get(b"rdma_set_option\0") }.map(|sym| *sym)?;
        Ok(Librdmacm {
            __library,
            rdma_create_event_channel,
            rdma_destroy_event_channel,
            rdma_create_id,
            rdma_destroy_id,
            rdma_bind_addr,
            rdma_resolve_addr,
            rdma_resolve_route,
            rdma_create_qp,
            rdma_destroy_qp,
            rdma_connect,
            rdma_listen,
            rdma_accept,
            rdma_reject,
            rdma_disconnect,
            rdma_get_cm_event,
            rdma_ack_cm_event,
            rdma_get_src_port,
            rdma_set_option,
        })
    }
    pub unsafe fn rdma_create_event_channel(&self) -> *mut rdma_event_channel {
        unsafe { (self.rdma_create_event_channel)() }
    }
    pub unsafe fn rdma_destroy_event_channel(&self, channel: *mut rdma_event_channel) {
        unsafe { (self.rdma_destroy_event_channel)(channel) }
    }
    pub unsafe fn rdma_create_id(
        &self,
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut ::core::ffi::c_void,
        ps: rdma_port_space,
    ) -> ::core::ffi::c_int {
        unsafe { (self.rdma_create_id)(channel, id, context, ps) }
    }
    pub unsafe fn rdma_destroy_id(&self, id: *mut rdma_cm_id) -> ::core::ffi::c_int {
        unsafe { (self.rdma_destroy_id)(id) }
    }
    pub unsafe fn rdma_bind_addr(&self, id: *mut rdma_cm_id, addr: *mut sockaddr) -> ::core::ffi::c_int {
        unsafe { (self.rdma_bind_addr)(id, addr) }
    }
    pub unsafe fn rdma_resolve_addr(
        &self,
        id: *mut rdma_cm_id,
        src_addr: *mut sockaddr,
        dst_addr: *mut sockaddr,
        timeout_ms: ::core::ffi::c_int,
    ) -> ::core::ffi::c_int {
        unsafe { (self.rdma_resolve_addr)(id, src_addr, dst_addr, timeout_ms) }
    }
    pub unsafe fn rdma_resolve_route(
        &self,
        id: *mut rdma_cm_id,
        timeout_ms: ::core::ffi::c_int,
    ) -> ::core::ffi::c_int {
        unsafe { (self.rdma_resolve_route)(id, timeout_ms) }
    }
    pub unsafe fn rdma_create_qp(
        &self,
        id: *mut rdma_cm_id,
        pd: *mut ibv_pd,
        qp_init_attr: *mut ibv_qp_init_attr,
    ) -> ::core::ffi::c_int {
        unsafe { (self.rdma_create_qp)(id, pd, qp_init_attr) }
    }
    pub unsafe fn rdma_destroy_qp(&self, id: *mut rdma_cm_id) {
        unsafe { (self.rdma_destroy_qp)(id) }
    }
    pub unsafe fn rdma_connect(
        &self,
        id: *mut rdma_cm_id,
        conn_param: *mut rdma_conn_param,
    ) -> ::core::ffi::c_int {
        unsafe { (self.rdma_connect)(id, conn_param) }
    }
    pub unsafe fn rdma_listen(&self, id: *mut rdma_cm_id, backlog: ::core::ffi::c_int) -> ::core::ffi::c_int {
        unsafe { (self.rdma_listen)(id, backlog) }
    }
    pub unsafe fn rdma_accept(
        &self,
        id: *mut rdma_cm_id,
        conn_param: *mut rdma_conn_param,
    ) -> ::core::ffi::c_int {
        unsafe { (self.rdma_accept)(id, conn_param) }
    }
    pub unsafe fn rdma_reject(
        &self,
        id: *mut rdma_cm_id,
        private_data: *const ::core::ffi::c_void,
        private_data_len: u8,
    ) -> ::core::ffi::c_int {
        unsafe { (self.rdma_reject)(id, private_data, private_data_len) }
    }
    pub unsafe fn rdma_disconnect(&self, id: *mut rdma_cm_id) -> ::core::ffi::c_int {
        unsafe { (self.rdma_disconnect)(id) }
    }
    pub unsafe fn rdma_get_cm_event(
        &self,
        channel: *mut rdma_event_channel,
        event: *mut *mut rdma_cm_event,
    ) -> ::core::ffi::c_int {
        unsafe { (self.rdma_get_cm_event)(channel, event) }
    }
    pub unsafe fn rdma_ack_cm_event(&self, event: *mut rdma_cm_event) -> ::core::ffi::c_int {
        unsafe { (self.rdma_ack_cm_event)(event) }
    }
    pub unsafe fn rdma_get_src_port(&self, id: *mut rdma_cm_id) -> __be16 {
        unsafe { (self.rdma_get_src_port)(id) }
    }
    pub unsafe fn rdma_set_option(
        &self,
        id: *mut rdma_cm_id,
        level: ::core::ffi::c_int,
        optname: ::core::ffi::c_int,
        optval: *mut ::core::ffi::c_void,
        optlen: usize,
    ) -> ::core::ffi::c_int {
        unsafe { (self.rdma_set_option)(id, level, optname, optval, optlen) }
    }
}
