//! What the system file says about the memory bus, for one host and one link.
//!
//! Contract: plain data, no system calls. [`HostSettings`] is what stands in the file; [`super::tables`] judges the two hosts of a
//! link together. Called by the registry (reading the file).

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use super::source::Source;
use super::tables::{self, DEFAULT_HEARTBEAT, DEFAULT_TIMEOUT, Table, error};
use crate::contract::{self, SettingError};

pub use super::tables::{DoorbellPlace, Medium, Place, Resolved, Windows};

/// The two hosts' tables of one link.
pub type LinkSettings = tables::LinkSettings<HostSettings>;

/// Length of the device where the file names none, in bytes.
const DEFAULT_LENGTH_BYTES: u64 = 64 << 20;

/// A length or offset in bytes, written as an integer or as a string with the unit KiB, MiB or GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size(pub u64);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let text = text.trim();
        let digits_end = text
            .find(|c: char| !c.is_ascii_digit() && c != '_')
            .unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        let factor: u64 = match unit.trim() {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            other => {
                return Err(format!(
                    "`{text}` has the unknown unit `{other}`; use KiB, MiB or GiB, as in \"64MiB\""
                ));
            }
        };
        let number: u64 = digits
            .replace('_', "")
            .parse()
            .map_err(|_| format!("`{text}` is no size; write an integer or a string like \"64MiB\""))?;
        number
            .checked_mul(factor)
            .map(Size)
            .ok_or_else(|| format!("`{text}` is more than 64 bits can count"))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a size: an integer of bytes, or a string like \"64MiB\"")
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes)
                    .map(Size)
                    .map_err(|_| E::custom(format!("{bytes} is negative; a size is not")))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Serde helper for durations that may be left away.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    contract::duration(deserializer).map(Some)
}

/// Where one window lies, in the long form.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSettings {
    /// The file or device.
    pub path: PathBuf,
    /// Where in it the window begins, in bytes; a multiple of 64.
    #[serde(default)]
    pub offset: Size,
    /// Its length in bytes; a multiple of 64.
    pub length: Size,
}

/// One host's table of the memory bus, for one link.
///
/// Short form: `path`, `offset`, `length` name one device that both hosts share; the first host of the link reads its first
/// half. Long form: `read` and `write` name two windows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSettings {
    /// Short form: the file or device.
    pub path: Option<PathBuf>,
    /// Short form: where in the device the two windows begin, in bytes. Default 0.
    pub offset: Option<Size>,
    /// Short form: length of both windows together, in bytes. Default 64 MiB.
    pub length: Option<Size>,
    /// Long form: the window that this host reads and the peer writes.
    pub read: Option<WindowSettings>,
    /// Long form: the window that this host writes and the peer reads.
    pub write: Option<WindowSettings>,
    /// The ordering that the mapping (long form: of the read window) needs. Default: what the kernel maps there: `device` for a PCI function's `resourceN` in
    /// sysfs, `write-combining` for `resourceN_wc`, `coherent` otherwise.
    pub medium: Option<Medium>,
    /// The ordering that the mapping of the write window needs. Default: as `medium`, and where that is missing what the kernel maps there.
    pub write_medium: Option<Medium>,
    /// How this host can be woken: `"auto"` (a FIFO beside the window, where both hosts run on one kernel), `"none"` (it
    /// polls), or a path that FIFO names begin with. Default auto.
    pub doorbell: Option<String>,
    /// Time between two heartbeats that this host writes. Default 200 ms.
    #[serde(default, deserialize_with = "duration")]
    pub heartbeat: Option<Duration>,
    /// Silence after which this host takes the peer for gone. Default 1500 ms.
    #[serde(default, deserialize_with = "duration")]
    pub timeout: Option<Duration>,
}

impl Table for HostSettings {
    fn heartbeat(&self) -> Duration {
        self.heartbeat.unwrap_or(DEFAULT_HEARTBEAT)
    }

    fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    fn is_short(&self) -> bool {
        self.path.is_some()
    }

    fn windows(&self, local: bool, is_first: bool) -> Result<Windows, SettingError> {
        let medium = |source: &Source| self.medium.unwrap_or(source.default_medium());
        let write_medium = |source: &Source| self.write_medium.unwrap_or_else(|| medium(source));
        match (&self.path, &self.read, &self.write) {
            (Some(path), None, None) => {
                let offset = self.offset.unwrap_or_default().0;
                let length = self.length.unwrap_or(Size(DEFAULT_LENGTH_BYTES)).0;
                let source = Source::File(path.clone());
                let mediums = [medium(&source), write_medium(&source)];
                Windows::halves(&source, (offset, length), mediums, local, is_first)
            }
            (None, Some(read), Some(write)) => {
                if self.offset.is_some() || self.length.is_some() {
                    return Err(error(
                        local,
                        "offset",
                        "`offset` and `length` stand beside `read` and `write`",
                        "put them inside `read` and `write`",
                    ));
                }
                Ok(Windows {
                    read: read.place(medium, local, "read")?,
                    write: write.place(write_medium, local, "write")?,
                })
            }
            (Some(_), _, _) => Err(error(
                local,
                "path",
                "`path` stands beside `read` or `write`",
                "name one device by `path`, or two windows by `read` and `write`",
            )),
            (None, None, None) => Err(error(
                local,
                "path",
                "no window is named",
                "say `path = \"/dev/shm/NAME\"`, or name two windows by `read` and `write`",
            )),
            (None, read, _) => Err(tables::lacks_one(read.is_some(), local, "path, offset, length")),
        }
    }

    fn doorbells(
        &self,
        windows: &Windows,
        peer: &HostSettings,
        peer_windows: &Windows,
    ) -> Result<[DoorbellPlace; 2], SettingError> {
        Ok([self.doorbell(&windows.read), peer.doorbell(&peer_windows.read)])
    }
}

impl HostSettings {
    fn doorbell(&self, read: &Place) -> DoorbellPlace {
        match (self.doorbell.as_deref(), &read.source) {
            (Some("none"), _) | (_, Source::Resource(_) | Source::Server(_)) => DoorbellPlace::None,
            (None | Some("auto"), Source::File(path)) => {
                DoorbellPlace::Prefix(automatic_doorbell(path, read.offset))
            }
            (Some(prefix), _) => DoorbellPlace::Prefix(prefix.into()),
        }
    }
}

/// Names FIFOs after the window that their owner reads: beside a file, in a run-time directory for a device.
fn automatic_doorbell(path: &Path, offset: u64) -> PathBuf {
    let device = ["/dev", "/sys", "/proc"];
    let in_device_tree = device.iter().any(|root| path.starts_with(root)) && !path.starts_with("/dev/shm");
    let mut name = if in_device_tree {
        let directory =
            std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| PathBuf::from("/run"), PathBuf::from);
        let flat = path.to_string_lossy().replace('/', "_");
        directory.join(format!("busway{flat}")).into_os_string()
    } else {
        path.as_os_str().to_owned()
    };
    name.push(format!(".{offset:x}"));
    name.into()
}

impl WindowSettings {
    fn place(
        &self,
        medium: impl Fn(&Source) -> Medium,
        local: bool,
        key: &'static str,
    ) -> Result<Place, SettingError> {
        let source = Source::File(self.path.clone());
        let medium = medium(&source);
        Place::new(&source, (self.offset.0, self.length.0), medium, local, key)
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
