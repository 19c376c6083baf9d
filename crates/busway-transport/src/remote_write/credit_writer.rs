//! Writes a receiver's credits into the channel's entry in the sender's memory, as long as the gate
//! allows it, and rings the sender's doorbell.

use busway_core::{RemoteError, RemoteWrite};

use super::{Bell, CREDIT_RING_AT, Gate, Way};

/// See the module.
#[derive(Debug)]
pub struct CreditWriter<W: Way> {
    /// Whether the sender's memory may be written.
    pub gate: W::Gate,
    /// The credit entry.
    pub credit: W::Memory,
    /// Wakes the sender's lane.
    pub bell: W::Bell,
    /// The last credit of the ring that was written: the mark for the doorbell.
    pub given: u64,
}

impl<W: Way> RemoteWrite for CreditWriter<W> {
    fn len_bytes(&self) -> usize {
        self.credit.len_bytes()
    }

    fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError> {
        let _inside = self.gate.enter().map_err(|_| RemoteError::Disconnected)?;
        self.credit.write(offset, header, parts)
    }

    fn fence(&mut self) {
        self.credit.fence();
    }

    fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        let _inside = self.gate.enter().map_err(|_| RemoteError::Disconnected)?;
        self.credit.publish(offset, word)?;
        if offset == CREDIT_RING_AT {
            self.given = word;
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.credit.flush();
        self.bell.wake(self.given);
    }
}
