//! How channel ends reach the other host by RDMA WRITE.
//!
//! Contract: see [`crate::remote_write::RemoteAccess`]. Called by the channel ends, on a lane.

use busway_core::{RemoteError, RemoteWrite};

use super::pipe::Handle;
use crate::rdma::lane;
use crate::remote_write::RemoteAccess;

/// Both directions.
#[derive(Debug)]
pub struct OverRdma;

impl RemoteAccess for OverRdma {
    type Memory = Far;
    type WritePermission = Handle;
    type Waker = Handle;
    /// The pipe, which the other parts share, holds the memory.
    type Keep = ();
    const CREDITS_AFTER_POLLS: u32 = lane::CREDITS_AFTER_POLLS;
}

/// A part of the far memory.
#[derive(Clone, Debug)]
pub struct Far {
    handle: Handle,
    base: usize,
    len_bytes: usize,
}

impl Far {
    /// `len_bytes` at `base` of what the pipe writes. Writing a part that is outside fails.
    pub fn new(handle: &Handle, base: usize, len_bytes: usize) -> Far {
        Far {
            handle: handle.clone(),
            base,
            len_bytes,
        }
    }
}

impl RemoteWrite for Far {
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError> {
        let at = self.base.saturating_add(offset);
        self.handle
            .with(|pipe| pipe.write(at, header, parts))
            .unwrap_or(Err(RemoteError::Busy))
    }

    /// Nothing: WRITEs of one queue pair become visible in order, or are checked.
    fn fence(&mut self) {}

    fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        let at = self.base.saturating_add(offset);
        self.handle
            .with(|pipe| pipe.publish(at, word))
            .unwrap_or(Err(RemoteError::Busy))
    }

    fn flush(&mut self) {
        self.handle.with(|pipe| pipe.post());
    }
}
