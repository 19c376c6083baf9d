//! Where the lab keeps what it has downloaded and built, and logs: `target/lab`, or the directory
//! that `BUSWAY_LAB` names.
//!
//! Everything in it can be made again. Several runs may share it: who prepares something holds its
//! lock.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    pub fn open() -> Result<Store> {
        let root = match std::env::var_os("BUSWAY_LAB") {
            Some(named) => PathBuf::from(named),
            None => target_directory().join("lab"),
        };
        fs::create_dir_all(&root).with_context(|| format!("{} can't be made", root.display()))?;
        let root = fs::canonicalize(&root).with_context(|| format!("{} can't be read", root.display()))?;
        Ok(Store { root })
    }

    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    pub fn once(&self, relative: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let wanted = self.path(relative);
        if wanted.exists() {
            return Ok(wanted);
        }
        let parent = wanted.parent().context("a path in the store has a parent")?;
        fs::create_dir_all(parent).with_context(|| format!("{} can't be made", parent.display()))?;
        let scratch = tempfile::Builder::new().prefix(".new-").tempdir_in(parent)?;
        let made = scratch.path().join("made");
        make(&made).with_context(|| format!("{} can't be made", wanted.display()))?;
        // Another run may have been faster: its work is as good.
        if let Err(error) = fs::rename(&made, &wanted)
            && !wanted.exists()
        {
            return Err(error).with_context(|| format!("{} can't be put in place", wanted.display()));
        }
        Ok(wanted)
    }

    pub fn lock(&self) -> Result<File> {
        let path = self.path("lock");
        let file = File::create(&path).with_context(|| format!("{} can't be made", path.display()))?;
        flock(&file, FlockOperation::LockExclusive)
            .with_context(|| format!("{} can't be locked", path.display()))?;
        Ok(file)
    }
}

pub fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

pub fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}
