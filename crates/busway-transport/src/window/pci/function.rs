//! A PCI function and its memory resources, and how the function is found.
//!
//! Contract: [`Function::find`] reads the kernel's list of functions (`/sys/bus/pci/devices`,
//! Documentation/PCI/sysfs-pci.rst; another folder in tests).

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::FunctionError;
use super::selector::{Address, Selector};

/// Where the kernel lists PCI functions.
pub const DEVICES: &str = "/sys/bus/pci/devices";

/// How this host reaches a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// Through the files of its folder in sysfs: no interrupts.
    #[default]
    Sysfs,
    /// Through the kernel's `vfio-pci`, which gives interrupts.
    Vfio,
}

/// A PCI function, not looked for yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Which one.
    pub selector: Selector,
    /// How it is reached.
    pub driver: Driver,
    /// Where functions are listed.
    devices: PathBuf,
}

/// A memory resource (BAR) of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The function.
    pub function: Function,
    /// Number of the resource, 0 to 5.
    pub index: u8,
    /// Whether it is mapped write-combining.
    pub write_combining: bool,
}

/// A function that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it is.
    pub address: Address,
    /// Its folder in sysfs.
    pub folder: PathBuf,
}

impl Function {
    /// The function that the kernel lists.
    #[must_use]
    pub fn new(selector: Selector, driver: Driver) -> Function {
        Function {
            selector,
            driver,
            devices: DEVICES.into(),
        }
    }

    /// The same, listed in another folder.
    #[must_use]
    pub fn listed_in(self, devices: &Path) -> Function {
        Function {
            devices: devices.into(),
            ..self
        }
    }

    /// Finds it in the list.
    ///
    /// # Errors
    /// There is none, or several and no number selects one.
    pub fn find(&self) -> Result<Found, FunctionError> {
        let all = self.list()?;
        let found = match self.selector {
            Selector::Address(address) => all.into_iter().find(|it| *it == address),
            Selector::Kind {
                vendor,
                device,
                number,
            } => {
                let is_kind = |address: &Address| {
                    let folder = self.folder(*address);
                    let id = |name| read_id(&folder.join(name));
                    (id("vendor"), id("device")) == (Some(vendor), Some(device))
                };
                let mut alike: Vec<Address> = all.into_iter().filter(is_kind).collect();
                if alike.len() > 1 && number.is_none() {
                    return Err(FunctionError::Ambiguous {
                        selector: self.selector,
                        all: alike
                            .iter()
                            .map(|it| it.to_string())
                            .collect::<Vec<_>>()
                            .join(", "),
                    });
                }
                let number = number.unwrap_or(0);
                (number < alike.len()).then(|| alike.swap_remove(number))
            }
        };
        let address = found.ok_or_else(|| FunctionError::Absent {
            selector: self.selector,
            devices: self.devices.clone(),
        })?;
        Ok(Found {
            address,
            folder: self.folder(address),
        })
    }

    fn folder(&self, address: Address) -> PathBuf {
        self.devices.join(address.to_string())
    }

    /// All functions, by address.
    fn list(&self) -> Result<Vec<Address>, FunctionError> {
        let entries = std::fs::read_dir(&self.devices);
        let entries = entries.map_err(FunctionError::system("list", &self.devices))?;
        let mut all: Vec<Address> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        all.sort_unstable();
        Ok(all)
    }
}

/// Reads one of sysfs's identifiers, `0x1af4`.
fn read_id(path: &Path) -> Option<u16> {
    let text = std::fs::read_to_string(path).ok()?;
    u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PCI function {} resource {}",
            self.function.selector, self.index
        )
    }
}

#[cfg(test)]
#[path = "function_tests.rs"]
mod tests;
