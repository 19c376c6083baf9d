//! What one channel end has found in its device's registrations, so that it need not ask for every
//! message.

use std::sync::Arc;

use super::device::Device;
use super::registration::{Purpose, Registration};
use crate::contract::SegmentId;

/// Registrations that an end remembers, so that it need not ask.
const REMEMBERED: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub struct Remembered {
    entries: [Option<(SegmentId, Arc<Registration>)>; REMEMBERED],
    /// The place for the next one.
    next: usize,
}

impl Remembered {
    /// As [`Registrations::find`]; an end always asks for the same purpose.
    pub fn find(
        &mut self,
        device: &Device,
        segment: SegmentId,
        purpose: Purpose,
        bytes: &[u8],
    ) -> Option<Arc<Registration>> {
        let known = self.entries.iter().flatten().find(|(name, _)| *name == segment);
        if let Some((_, registration)) = known {
            return registration.has(bytes).then(|| registration.clone());
        }
        let found = device.find_registration(segment, purpose, bytes)?;
        self.entries[self.next] = Some((segment, found.clone()));
        self.next = (self.next + 1) % REMEMBERED;
        Some(found)
    }
}
