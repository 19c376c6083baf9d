//! Which PCI function, and which of its resources, a window lies in; how the function is found.
//!
//! Contract: names are parsed without any device; [`Function::find`] looks through the kernel's list of functions
//! (`/sys/bus/pci/devices`, Documentation/PCI/sysfs-pci.rst in the kernel's source; another folder in tests). Called by the settings (parsing) and by
//! `sysfs.rs` and `vfio.rs` (opening).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;

use super::error::FunctionError;

/// Where the kernel lists PCI functions.
pub const DEVICES: &str = "/sys/bus/pci/devices";

/// Place of a function in the PCI hierarchy, ordered as `lspci` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// What names a function in the system file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `"1af4:1110"`: the only function of this vendor and device; `"1af4:1110#1"`: the second one, by address.
    Kind {
        /// PCI vendor.
        vendor: u16,
        /// PCI device.
        device: u16,
        /// Which of several, from 0.
        number: Option<usize>,
    },
    /// `"0000:03:00.0"` or `"03:00.0"`.
    Address(Address),
}

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

fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (digits.contains(&text.len()) && is_hex)
        .then(|| u32::from_str_radix(text, 16).ok())
        .flatten()
}

impl FromStr for Address {
    type Err = ();

    /// `[domain:]bus:device.function` in hexadecimal digits, as `lspci` writes it.
    fn from_str(text: &str) -> Result<Address, ()> {
        let (slot, function) = text.rsplit_once('.').ok_or(())?;
        let (bus, device) = slot.rsplit_once(':').ok_or(())?;
        let (domain, bus) = bus.split_once(':').unwrap_or(("0", bus));
        let number = |text, digits, most: u32| hex(text, digits).filter(|number| *number <= most).ok_or(());
        Ok(Address {
            domain: number(domain, 1..=8, u32::MAX)?,
            bus: number(bus, 1..=2, 0xff)? as u8,
            device: number(device, 1..=2, 0x1f)? as u8,
            function: number(function, 1..=1, 7)? as u8,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Selector, String> {
        if let Ok(address) = text.parse() {
            return Ok(Selector::Address(address));
        }
        let (kind, number) = match text.split_once('#') {
            Some((kind, number)) => (kind, Some(number.parse().ok())),
            None => (text, None),
        };
        let parsed = kind
            .split_once(':')
            .and_then(|(vendor, device)| Some((hex(vendor, 4..=4)?, hex(device, 4..=4)?)));
        match (parsed, number) {
            (Some((vendor, device)), None | Some(Some(_))) => Ok(Selector::Kind {
                vendor: vendor as u16,
                device: device as u16,
                number: number.flatten(),
            }),
            _ => Err(format!(
                "`{text}` names no PCI function; write vendor and device as \"1af4:1110\" (\"1af4:1110#1\" for the second of \
                 several), or an address as \"0000:03:00.0\"; `lspci -nn` shows both"
            )),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Address(address) => address.fmt(f),
            Selector::Kind {
                vendor,
                device,
                number,
            } => {
                write!(f, "{vendor:04x}:{device:04x}")?;
                number.map_or(Ok(()), |number| write!(f, "#{number}"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Selector, D::Error> {
        let text = <std::borrow::Cow<'de, str> as Deserialize>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
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

    /// Looks for it.
    ///
    /// # Errors
    /// There is none, or several and no number says which.
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

impl Resource {}

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
