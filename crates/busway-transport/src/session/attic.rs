//! Sending ends that were dropped before everything had arrived: their link keeps them a while.
//!
//! Filled by any thread, read by a link's control thread. Used by buses whose ends have more to do
//! than to hand bytes to the system.

use std::os::fd::BorrowedFd;

use crate::stream::Letterbox;

/// A dropped sender whose last bytes have not arrived yet.
pub trait Lingering: Send {
    /// Readable when [`pump`](Self::pump) has something to do.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Does what can be done now; whether it is over.
    fn pump(&mut self) -> bool;
}

/// Where a sender goes that is dropped before everything has arrived. The link keeps it for at most
/// [`LINGER`](crate::contract::LINGER).
pub type Attic = Letterbox<Box<dyn Lingering>>;
