//! The ordering that accesses to a window need.

use busway_core::Medium as Ordering;
use serde::Deserialize;

/// Which ordering the mapping of a window needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// Cache-coherent memory: `/dev/shm`, a shared-memory device between virtual machines.
    #[default]
    Coherent,
    /// A prefetchable PCI resource (`resource2_wc`): stores are gathered and leave in any order.
    WriteCombining,
    /// Uncached device memory: aligned 8-byte accesses only.
    Device,
}

impl From<Medium> for Ordering {
    fn from(medium: Medium) -> Ordering {
        match medium {
            Medium::Coherent => Ordering::Coherent,
            Medium::WriteCombining => Ordering::WriteCombining,
            Medium::Device => Ordering::Device,
        }
    }
}
