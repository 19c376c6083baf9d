//! Why a window in a PCI function can't be used.
//!
//! Contract: each text names the function or file, the problem and the remedy; links show it and
//! retry.

use std::io;
use std::path::{Path, PathBuf};

use super::selector::{Address, Selector};

/// The problem of a function that answers reads with ones only.
pub(crate) const ALL_ONES: &str = "reads all ones: the PCI link is down or the function is in reset";

/// Why a PCI function, or a resource of it, can't be used now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no such function.
    #[error(
        "there is no PCI function {selector} in {}: compare `device` with `lspci -nn`; after a hot plug, `echo 1 > /sys/bus/pci/rescan`",
        devices.display()
    )]
    Absent {
        /// What was looked for.
        selector: Selector,
        /// Where.
        devices: PathBuf,
    },
    /// There are several.
    #[error(
        "{selector} names several PCI functions: {all}; write one of these addresses, or \"{selector}#0\" for the first"
    )]
    Ambiguous {
        /// What was looked for.
        selector: Selector,
        /// Their addresses.
        all: String,
    },
    /// The function answers with ones only.
    #[error("PCI function {address} {ALL_ONES}")]
    AllOnes {
        /// The function.
        address: Address,
    },
    /// It is there, but not as it must be.
    #[error("PCI function {address} {problem}: {mend}")]
    Unusable {
        /// The function.
        address: Address,
        /// What is wrong.
        problem: String,
        /// What would be right.
        mend: &'static str,
    },
}

impl FunctionError {
    /// An error of a system call on `path`.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| FunctionError::System {
            action,
            path,
            source: source.into(),
        }
    }
}
