//! What stands between two programs: a system file, and gateways or tunnels.

use std::path::PathBuf;

use super::site::Gateway;
use crate::BenchError;

/// Programs that exchange messages, and gateways that carry them.
pub(super) const PROGRAMS: u32 = 2;

/// What stands; it goes when this is dropped.
pub(crate) struct Staged {
    /// The system file as each side sees it: asking, answering.
    pub(crate) system: [Option<PathBuf>; 2],
    /// In the same order; none where none is needed.
    pub(crate) gateways: Vec<Gateway>,
    /// Whether messages go through the gateways.
    pub(crate) gateways_carry: bool,
    /// Where the state of ports lies on this machine.
    pub(super) ports: Vec<PathBuf>,
}

impl Staged {
    /// Threads that may be busy at once.
    pub(crate) fn threads(&self) -> u32 {
        PROGRAMS
            + if self.gateways_carry {
                self.gateways.len() as u32
            } else {
                0
            }
    }

    /// An error if a gateway has ended.
    pub(crate) fn check(&mut self) -> Result<(), BenchError> {
        self.gateways.iter_mut().try_for_each(Gateway::check)
    }

    /// CPU time of each gateway so far in s.
    pub(crate) fn cpu_s(&mut self) -> Vec<f64> {
        self.gateways.iter_mut().map(Gateway::cpu_s).collect()
    }

    /// CPU time of each gateway since then in s.
    pub(crate) fn cpu_since(&mut self, before_s: &[f64]) -> Vec<f64> {
        let now_s = self.cpu_s();
        now_s.iter().zip(before_s).map(|(now, then)| now - then).collect()
    }

    pub(super) fn bare() -> Self {
        Self {
            system: [None, None],
            gateways: Vec::new(),
            gateways_carry: false,
            ports: Vec::new(),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.gateways.clear();
        for directory in &self.ports {
            // Memory; what a program that was killed still holds open goes with it.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}
