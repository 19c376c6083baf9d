//! A PCI function through its folder in sysfs: enabled, checked, its resources opened for mapping.
//!
//! Contract: formats are those of Documentation/PCI/sysfs-pci.rst and drivers/pci/pci-sysfs.c of
//! the kernel, flags those of include/linux/ioport.h, the configuration space that of the PCI Local
//! Bus Specification 3.0, 6.1. The kernel counts the users that enabled a function. This module
//! adds one and removes it at the end, so it never disables another's function.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;

use super::error::{ALL_ONES, FunctionError};
use super::function::{Found, Resource};
use super::selector::Address;
use crate::contract::Access;

/// Memory, not ports (include/linux/ioport.h).
const IORESOURCE_MEM: u64 = 0x200;
/// Reading has no side effect, so that the bus may combine writes.
const IORESOURCE_PREFETCH: u64 = 0x2000;
/// Bit of the command register: the function answers to accesses to its memory.
const COMMAND_MEMORY: u16 = 2;

/// One line of the file `resource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Length in bytes.
    pub length_bytes: u64,
    flags: u64,
}

/// Parses the file `resource`: first and last address and flags of each resource; `None` for an
/// unused one.
fn parse_resources(text: &str) -> Vec<Option<Line>> {
    let line = |line: &str| {
        let mut numbers = line
            .split_ascii_whitespace()
            .map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let (first, last, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let length_bytes = last.checked_sub(first)?.checked_add(1)?;
        (flags != 0).then_some(Line { length_bytes, flags })
    };
    text.lines().map(line).collect()
}

/// The first registers of the configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Configuration {
    vendor: u16,
    command: u16,
}

impl Configuration {
    fn read(folder: &Path) -> Result<Configuration, FunctionError> {
        let path = folder.join("config");
        let mut bytes = [0; 6];
        File::open(&path)
            .and_then(|mut file| file.read_exact(&mut bytes))
            .map_err(FunctionError::system("read", &path))?;
        Ok(Configuration {
            vendor: u16::from_le_bytes([bytes[0], bytes[1]]),
            command: u16::from_le_bytes([bytes[4], bytes[5]]),
        })
    }

    /// No vendor has this number: it is what a bus answers for a function that is silent.
    fn is_all_ones(self) -> bool {
        self.vendor == u16::MAX
    }
}

/// One count of the kernel's users of an enabled function.
#[derive(Debug)]
struct Enabled {
    /// The file `enable`; `None` if another user keeps it enabled and this process may not write
    /// it.
    counted: Option<PathBuf>,
}

impl Enabled {
    fn take(found: &Found) -> Result<Enabled, FunctionError> {
        let path = found.folder.join("enable");
        match write(&path, "1") {
            Ok(()) => Ok(Enabled { counted: Some(path) }),
            // A driver has the function, or this is not root. Being enabled already is enough.
            Err(error) => {
                let count = std::fs::read_to_string(&path).unwrap_or_default();
                let is_enabled = count.trim().parse::<i64>().is_ok_and(|count| count > 0);
                if is_enabled {
                    Ok(Enabled { counted: None })
                } else {
                    Err(FunctionError::system(
                        "enable the function by writing 1 to",
                        &path,
                    )(error))
                }
            }
        }
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        if let Some(path) = &self.counted {
            // Fails where the function has gone, which disables it as well.
            let _ = write(path, "0");
        }
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(text.as_bytes())
}

/// What the resource `index` of the function in `folder` is.
///
/// # Errors
/// There is no such resource, it is no memory, or ends before `end_bytes`.
fn look(found: &Found, index: u8, end_bytes: u64) -> Result<Line, FunctionError> {
    let path = found.folder.join("resource");
    let text = std::fs::read_to_string(&path).map_err(FunctionError::system("read", &path))?;
    let lines = parse_resources(&text);
    let unusable = |problem: String, mend| FunctionError::Unusable {
        address: found.address,
        problem,
        mend,
    };
    let memory = |line: &Option<Line>| line.filter(|line| line.flags & IORESOURCE_MEM != 0);
    let Some(line) = lines.get(usize::from(index)).and_then(memory) else {
        let there: Vec<String> = (0..6)
            .filter(|at| lines.get(*at).and_then(memory).is_some())
            .map(|at| at.to_string())
            .collect();
        return Err(unusable(
            format!("has no memory resource {index} (it has {})", there.join(", ")),
            "correct `resource`; `lspci -vv` shows them as regions",
        ));
    };
    if line.length_bytes < end_bytes {
        return Err(unusable(
            format!(
                "has a resource {index} of {} bytes, the windows in it need {end_bytes}",
                line.length_bytes
            ),
            "correct `offset` or `length`, or give the function a larger resource",
        ));
    }
    Ok(line)
}

/// What keeps a mapped resource in order, and notices when it no longer is.
#[derive(Debug)]
pub struct SysfsHandle {
    address: Address,
    folder: PathBuf,
    /// The resource file, and its number: another function at the same address has another.
    file: PathBuf,
    inode: u64,
    _enabled: Enabled,
}

impl SysfsHandle {
    /// Where the function is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Why the mapping can't be used any more; `None` while it can.
    pub fn fault(&self) -> Option<String> {
        match std::fs::metadata(&self.file) {
            Ok(metadata) if metadata.ino() != self.inode => {
                return Some(format!(
                    "PCI function {} was replaced by another one",
                    self.address
                ));
            }
            Ok(_) => {}
            Err(error) => return Some(format!("PCI function {} was removed ({error})", self.address)),
        }
        match Configuration::read(&self.folder) {
            Ok(configuration) if configuration.is_all_ones() => {
                Some(format!("PCI function {} {ALL_ONES}", self.address))
            }
            Ok(configuration) if configuration.command & COMMAND_MEMORY == 0 => Some(format!(
                "PCI function {} was reset: its memory is switched off",
                self.address
            )),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        }
    }
}

impl Resource {
    /// Finds the function, enables it, and opens the resource, which must have `end_bytes` bytes.
    pub(super) fn open_sysfs(
        &self,
        access: Access,
        end_bytes: u64,
    ) -> Result<(OwnedFd, SysfsHandle), FunctionError> {
        let found = self.function.find()?;
        self.judge(&found, end_bytes)?;
        let enabled = Enabled::take(&found)?;
        let configuration = Configuration::read(&found.folder)?;
        if configuration.is_all_ones() {
            return Err(FunctionError::AllOnes {
                address: found.address,
            });
        }
        if configuration.command & COMMAND_MEMORY == 0 {
            return Err(FunctionError::Unusable {
                address: found.address,
                problem: "has its memory switched off although it is enabled: it was reset".into(),
                mend: "unbind and bind its driver, or remove it and rescan the bus",
            });
        }
        let suffix = if self.write_combining { "_wc" } else { "" };
        let path = found.folder.join(format!("resource{}{suffix}", self.index));
        let mut options = OpenOptions::new();
        options.read(true);
        let file = match options.clone().write(true).open(&path) {
            Err(error) if access == Access::Reads && error.kind() == io::ErrorKind::PermissionDenied => {
                options.open(&path)
            }
            other => other,
        };
        let file = file.map_err(FunctionError::system("open", &path))?;
        let metadata = file.metadata().map_err(FunctionError::system("examine", &path))?;
        let handle = SysfsHandle {
            address: found.address,
            folder: found.folder,
            file: path,
            inode: metadata.ino(),
            _enabled: enabled,
        };
        Ok((file.into(), handle))
    }

    /// Checks the resource against the settings; changes nothing.
    fn judge(&self, found: &Found, end_bytes: u64) -> Result<(), FunctionError> {
        let line = look(found, self.index, end_bytes)?;
        if self.write_combining && line.flags & IORESOURCE_PREFETCH == 0 {
            return Err(FunctionError::Unusable {
                address: found.address,
                problem: format!(
                    "has a resource {} that is not prefetchable, so that it can't be mapped write-combining",
                    self.index
                ),
                mend: "say `write_combining = false`",
            });
        }
        Ok(())
    }

    /// Whether the function and the first `end_bytes` bytes of the resource exist, for `busway
    /// check --here`. Changes nothing.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn check(&self, end_bytes: u64) -> Result<(), FunctionError> {
        self.judge(&self.function.find()?, end_bytes)
    }
}

#[cfg(test)]
#[path = "sysfs_tests.rs"]
pub(super) mod tests;
