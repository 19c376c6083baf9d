//! The module of software iWARP (`siw`), which Debian's kernels leave out, built from Debian's source for one of them.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::store::Store;

/// The module for a kernel.
///
/// # Errors
/// It can't be built.
pub fn module(_store: &Store, _release: &str, _version: &str) -> Result<PathBuf> {
    bail!("siw is not built yet")
}
