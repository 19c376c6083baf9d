//! Memory that guests see as a PCI function and the host as a file: what stands for an NTB or a
//! switch with shared memory.
//!
//! QEMU's `ivshmem-plain`, or `ivshmem-doorbell` with [`Doorbells`]: function 1af4:1110, its memory
//! is resource 2, at the address that the caller names. Used by [`super::preset`] and by the
//! scenario of PCI windows.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::doorbells::Doorbells;
use super::guest::Plan;

/// Where the file lies: memory, so that QEMU and the host's programs share pages.
const SHARED: &str = "/dev/shm";

#[derive(Debug)]
pub struct Window {
    path: PathBuf,
    file: File,
    length_bytes: u64,
    _directory: tempfile::TempDir,
}

impl Window {
    pub fn new(length_bytes: u64) -> Result<Window> {
        anyhow::ensure!(
            length_bytes.is_power_of_two() && length_bytes >= 4096,
            "a PCI resource of {length_bytes} bytes is none: its length is a power of two, from 4096 on"
        );
        let directory = tempfile::Builder::new()
            .prefix("busway-window-")
            .tempdir_in(SHARED)
            .with_context(|| format!("no directory can be made in {SHARED}"))?;
        let path = directory.path().join("window");
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|file| file.set_len(length_bytes).map(|()| file))
            .with_context(|| format!("{} can't be made", path.display()))?;
        Ok(Window {
            path,
            file,
            length_bytes,
            _directory: directory,
        })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives a guest the window as function 0000:00:SLOT.0, without doorbells.
    pub fn place(&self, plan: &mut Plan, slot: u8) {
        let number = plan.qemu_words.len();
        plan.qemu_words.extend([
            "-object".to_owned(),
            format!(
                "memory-backend-file,id=window{number},share=on,mem-path={},size={}",
                self.path.display(),
                self.length_bytes
            ),
            "-device".to_owned(),
            format!("ivshmem-plain,memdev=window{number},addr={slot:#x}"),
        ]);
    }

    /// The same with doorbells: the guest is the peer `peer` of `doorbells`, whose memory this is.
    pub fn place_with_doorbells(plan: &mut Plan, slot: u8, doorbells: &Doorbells, peer: usize) {
        plan.with_vfio = true;
        let number = plan.qemu_words.len();
        plan.qemu_words.extend([
            "-chardev".to_owned(),
            format!(
                "socket,id=bells{number},path={}",
                doorbells.socket(peer).display()
            ),
            "-device".to_owned(),
            format!(
                "ivshmem-doorbell,vectors={},chardev=bells{number},addr={slot:#x}",
                doorbells.vectors()
            ),
        ]);
    }

    /// Writes `byte` all over it: 0xff is what a processor reads across a dead PCI link.
    pub fn fill(&self, byte: u8) -> Result<()> {
        let page = [byte; 4096];
        for at in (0..self.length_bytes).step_by(page.len()) {
            self.file
                .write_all_at(&page, at)
                .with_context(|| format!("{} can't be written", self.path.display()))?;
        }
        Ok(())
    }
}

#[must_use]
pub fn address(slot: u8) -> String {
    format!("0000:00:{slot:02x}.0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_filled_and_removed_with_owner() {
        let window = Window::new(8192).unwrap();
        let path = window.path().to_owned();
        assert_eq!(std::fs::read(&path).unwrap(), vec![0; 8192]);
        window.fill(0xff).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), vec![0xff; 8192]);
        drop(window);
        assert!(!path.exists());
    }

    #[test]
    fn window_length_that_is_no_power_of_two_is_refused() {
        let error = Window::new(3 << 20).unwrap_err().to_string();
        assert!(error.contains("3145728"), "{error}");
    }
}
