//! What a writing side needs of memory that belongs to another host.
//!
//! Contract: writes only. A [`RemoteWrite`] never reads the far memory, since a read across a bus
//! stalls for about a microsecond. The register's writer, the ring's producer and the ring's
//! consumer (for its credits) are generic over it. [`Window`](crate::Window) implements it for
//! mapped memory; an RDMA queue pair can implement it with one WRITE per
//! [`write`](RemoteWrite::write), an inline WRITE per [`publish`](RemoteWrite::publish), nothing in
//! [`fence`](RemoteWrite::fence) (writes of one queue pair are ordered) and the doorbell in
//! [`flush`](RemoteWrite::flush).

use crate::window::OutOfBounds;

/// Why a remote write was not accepted. Nothing of the message is published then, so the caller may
/// try again or abandon it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The far memory is smaller than the caller believes.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// The bus has no room for another write right now.
    #[error("the bus takes no further write now; try again after it reported completions")]
    Busy,
    /// The link is gone.
    #[error("the link to the far memory is down; open a new session")]
    Disconnected,
}

/// Memory of another host that this side only writes.
///
/// An implementation keeps three promises:
/// 1. A [`publish`](Self::publish)ed word becomes visible whole, never in parts.
/// 2. Everything before a [`fence`](Self::fence), reads of local memory included, is ordered before
///    every write after it.
/// 3. After a [`flush`](Self::flush), what was written becomes visible without any further call.
pub trait RemoteWrite {
    /// Size of the far memory in bytes.
    fn len_bytes(&self) -> usize;

    /// Places `header` (words in this host's byte order) and then the bytes of all `parts`, without
    /// gaps, at `offset`.
    ///
    /// `offset` is a multiple of 8. The last word is filled up with zeros, so that up to 7 bytes
    /// behind the payload are overwritten too. Bytes of one call may become visible in any order.
    ///
    /// # Errors
    /// [`RemoteError`]; the bytes of the range are unspecified then.
    fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError>;

    /// Orders everything before it before all writes after it, with what this medium needs for
    /// that.
    fn fence(&mut self);

    /// Stores one `word` at `offset` (a multiple of 8), in one piece.
    ///
    /// # Errors
    /// [`RemoteError`]; the word is not stored then.
    fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError>;

    /// Sends what is still buffered here (a write-combining buffer, a doorbell). Does nothing by
    /// default.
    fn flush(&mut self) {}
}
