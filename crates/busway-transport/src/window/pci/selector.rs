//! How the system file names a PCI function: by its address, or by vendor and device.
//!
//! Contract: parsed without any device.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// WindowRegion of a function in the PCI hierarchy, ordered as `lspci` does.
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
    /// `"1af4:1110"`: the only function of this vendor and device; `"1af4:1110#1"`: the second, by
    /// address.
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
