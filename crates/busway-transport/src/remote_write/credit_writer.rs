//! Writes a receiver's credits into the sender's memory while the link is up, and wakes the
//! sender's lane.

use busway_core::{RemoteError, RemoteWrite};

use super::{CREDIT_RING_AT, RemoteAccess, Waker, WritePermission};

/// See the module.
#[derive(Debug)]
pub struct CreditWriter<A: RemoteAccess> {
    /// Whether the sender's memory may be written.
    pub permission: A::WritePermission,
    pub credit: A::Memory,
    /// Wakes the sender's lane.
    pub waker: A::Waker,
    /// The last credit of the ring that was written: the mark for the doorbell.
    pub given: u64,
}

impl<A: RemoteAccess> RemoteWrite for CreditWriter<A> {
    fn len_bytes(&self) -> usize {
        self.credit.len_bytes()
    }

    fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError> {
        let _guard = self
            .permission
            .begin_write()
            .map_err(|_| RemoteError::Disconnected)?;
        self.credit.write(offset, header, parts)
    }

    fn fence(&mut self) {
        self.credit.fence();
    }

    fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        let _guard = self
            .permission
            .begin_write()
            .map_err(|_| RemoteError::Disconnected)?;
        self.credit.publish(offset, word)?;
        if offset == CREDIT_RING_AT {
            self.given = word;
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.credit.flush();
        self.waker.wake(self.given);
    }
}
