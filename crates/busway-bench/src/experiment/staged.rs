//! What stands between two programs: a system file, and gateways or tunnels.

use std::path::PathBuf;

use super::site::Gateway;
use crate::BenchError;

pub(super) const PROGRAMS: u32 = 2;

pub(crate) struct Staged {
    /// The system file as each side sees it: asking, answering.
    pub(crate) system: [Option<PathBuf>; 2],
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) gateways_carry: bool,
    pub(super) ports: Vec<PathBuf>,
}

impl Staged {
    pub(crate) fn threads(&self) -> u32 {
        PROGRAMS
            + if self.gateways_carry {
                self.gateways.len() as u32
            } else {
                0
            }
    }

    pub(crate) fn check(&mut self) -> Result<(), BenchError> {
        self.gateways.iter_mut().try_for_each(Gateway::check)
    }

    pub(crate) fn cpu_s(&mut self) -> Vec<f64> {
        self.gateways.iter_mut().map(Gateway::cpu_s).collect()
    }

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
