//! Every decoder of a peer's bytes in this crate, for the fuzz targets in `fuzz/`. Only `cargo
//! fuzz` compiles it.
//!
//! Contract: no decoder panics or runs for long, whatever the bytes. Where a function asserts it,
//! what decodes is what its encoder would have written.

/// The first bytes of a connection: a greeting or the opening of a channel, whole or in pieces.
pub fn opening(bytes: &[u8]) {
    crate::stream::decode_opening(bytes);
}

/// Landing places of windows, which the receiving side of a channel describes.
pub fn window_place(bytes: &[u8]) {
    crate::window::decode_place(bytes);
}

/// Events of TIPC's topology service.
pub fn tipc_event(bytes: &[u8]) {
    crate::tipc::decode_event(bytes);
}

/// What RDMA hosts exchange: landing descriptions, requests, pieces of messages, credits.
pub fn rdma(bytes: &[u8]) {
    crate::rdma::decode_all(bytes);
}

/// Datagrams of UDP channels, and what they do to the sender's side of the protocol.
pub fn udp(bytes: &[u8]) {
    crate::udp::decode_all(bytes);
}

/// The head of a message, and what it says of its length.
pub fn head(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk().and_then(crate::Head::decode) {
        assert_eq!(Some(head), crate::Head::decode(&head.encode()));
        let _ = head.total_bytes();
    }
}
