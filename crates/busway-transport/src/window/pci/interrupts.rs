//! Interrupts that wake this host, as descriptors that become readable.

use std::fmt::Debug;
use std::sync::Arc;

use rustix::fd::OwnedFd;

/// Most interrupts of a host: one for the control thread and one a lane of a window.
pub const MOST_VECTORS: u32 = 65;

/// Interrupts of a function.
#[derive(Debug)]
pub struct Interrupts {
    /// Each becomes readable when its interrupt comes.
    pub eventfds: Vec<OwnedFd>,
    /// To be kept as long as they are used.
    pub lease: Arc<Lease>,
}

/// The use of a function's interrupts.
#[derive(Debug)]
pub struct Lease {
    _owner: Arc<dyn Debug + Send + Sync>,
    _token: Arc<()>,
}

impl Lease {
    /// Keeps the interrupts' `owner`, and `token`, by which the owner knows that they are in use.
    pub(crate) fn new(owner: Arc<dyn Debug + Send + Sync>, token: Arc<()>) -> Lease {
        Lease {
            _owner: owner,
            _token: token,
        }
    }
}
