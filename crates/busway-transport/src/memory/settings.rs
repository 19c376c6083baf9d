//! What the system file says about the memory bus, for one host and one link.
//!
//! Contract: plain data, no system calls. [`HostSettings`] is what stands in the file, [`LinkSettings::validate`] judges
//! the two hosts of a link together, and [`LinkSettings::resolve`] turns them into the two windows of the local host, both
//! forms alike. Called by the registry (reading the file) and by the link (opening).

use std::path::{Path, PathBuf};
use std::time::Duration;

use busway_core::Medium as Ordering;
use serde::{Deserialize, Deserializer, de};

use super::layout::{MINIMUM_WINDOW_BYTES, WINDOW_ALIGNMENT_BYTES};
use super::set_aside::PortBytes;
use crate::registry::{self, SettingError, Site};

/// Length of the device where the file names none, in bytes.
const DEFAULT_LENGTH_BYTES: u64 = 64 << 20;
/// Time between two heartbeats where the file names none.
const DEFAULT_HEARTBEAT: Duration = Duration::from_millis(200);
/// Silence after which the peer counts as gone, where the file names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(1500);

/// Which ordering the mapping of a window needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// Memory that caches keep coherent: `/dev/shm`, a shared-memory device between virtual machines.
    #[default]
    Coherent,
    /// A prefetchable PCI resource (`resource2_wc`): stores are gathered and leave in any order.
    WriteCombining,
    /// Uncached device memory: aligned 8-byte accesses only.
    Device,
}

impl From<Medium> for Ordering {
    fn from(medium: Medium) -> Ordering {
        match medium {
            Medium::Coherent => Ordering::Coherent,
            Medium::WriteCombining => Ordering::WriteCombining,
            Medium::Device => Ordering::Device,
        }
    }
}

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

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    registry::duration(deserializer).map(Some)
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
    /// The ordering that the mapping (long form: of the read window) needs. Default coherent.
    pub medium: Option<Medium>,
    /// The ordering that the mapping of the write window needs. Default: as `medium`.
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

/// The two hosts' tables of one link.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// This host's table.
    pub local: HostSettings,
    /// The peer's table.
    pub peer: HostSettings,
    /// Whether this host stands first in the link's `hosts`.
    pub local_is_first: bool,
    /// Bytes set aside for ports.
    pub ports: PortBytes,
}

/// A window, found: a range of a file or device and what its mapping needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file or device.
    pub path: PathBuf,
    /// Where in it the window begins, in bytes.
    pub offset: u64,
    /// Length of the window in bytes.
    pub length: u64,
    /// Length that the file must have (both windows of the short form), in bytes.
    pub file_length: u64,
    /// The ordering that the mapping needs.
    pub medium: Medium,
}

/// How a host is woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoorbellPlace {
    /// Nothing wakes it.
    None,
    /// FIFO names are this path with a suffix.
    Prefix(PathBuf),
}

/// The settings of one link as the local host uses them.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The window that this host reads.
    pub read: Place,
    /// The window that this host writes.
    pub write: Place,
    /// The end of the window that this host reads, set aside for ports.
    pub read_ports: Place,
    /// The end of the window that this host writes, set aside for ports.
    pub write_ports: Place,
    /// Where this host's own FIFOs are made.
    pub doorbell: DoorbellPlace,
    /// Where the peer's FIFOs would be found.
    pub peer_doorbell: DoorbellPlace,
    /// Time between two heartbeats of this host.
    pub heartbeat: Duration,
    /// Silence after which the peer counts as gone.
    pub timeout: Duration,
}

/// What one host's table says, without regard to the other's.
pub(super) struct Windows {
    pub(super) read: Place,
    pub(super) write: Place,
}

fn error(
    local: bool,
    key: &'static str,
    problem: impl Into<String>,
    mend: impl Into<String>,
) -> SettingError {
    SettingError {
        local,
        key,
        problem: problem.into(),
        mend: mend.into(),
    }
}

impl HostSettings {
    fn heartbeat(&self) -> Duration {
        self.heartbeat.unwrap_or(DEFAULT_HEARTBEAT)
    }

    fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    pub(super) fn windows(&self, local: bool, is_first: bool) -> Result<Windows, SettingError> {
        let medium = self.medium.unwrap_or_default();
        let write_medium = self.write_medium.unwrap_or(medium);
        match (&self.path, &self.read, &self.write) {
            (Some(path), None, None) => self.halves(path, medium, write_medium, local, is_first),
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
            (None, read, _) => {
                let (there, missing) = if read.is_some() {
                    ("read", "write")
                } else {
                    ("write", "read")
                };
                Err(error(
                    local,
                    missing,
                    format!("`{there}` is given but `{missing}` is not"),
                    format!("add `{missing} = {{ path, offset, length }}`"),
                ))
            }
        }
    }

    /// Splits the one device of the short form: the first host reads the first half.
    fn halves(
        &self,
        path: &Path,
        medium: Medium,
        write_medium: Medium,
        local: bool,
        is_first: bool,
    ) -> Result<Windows, SettingError> {
        let offset = self.offset.unwrap_or_default().0;
        let length = self.length.unwrap_or(Size(DEFAULT_LENGTH_BYTES)).0;
        // Halves on page boundaries where the device is large enough for that to cost nothing.
        let unit = if length >= 256 << 10 {
            4096
        } else {
            WINDOW_ALIGNMENT_BYTES
        };
        let half = length / 2 / unit * unit;
        let halves = [
            WindowSettings {
                path: path.into(),
                offset: Size(offset),
                length: Size(half),
            },
            WindowSettings {
                path: path.into(),
                offset: Size(offset.saturating_add(half)),
                length: Size(half),
            },
        ];
        let mut read = halves[usize::from(!is_first)].place(medium, local, "length")?;
        let mut write = halves[usize::from(is_first)].place(write_medium, local, "length")?;
        read.file_length = offset.saturating_add(length);
        write.file_length = read.file_length;
        Ok(Windows { read, write })
    }

    fn doorbell(&self, read: &Place) -> DoorbellPlace {
        match self.doorbell.as_deref() {
            Some("none") => DoorbellPlace::None,
            None | Some("auto") => DoorbellPlace::Prefix(automatic_doorbell(read)),
            Some(path) => DoorbellPlace::Prefix(path.into()),
        }
    }
}

/// Names FIFOs after the window that their owner reads: beside a file, in a run-time directory for a device.
fn automatic_doorbell(read: &Place) -> PathBuf {
    let device = ["/dev", "/sys", "/proc"];
    let in_device_tree =
        device.iter().any(|root| read.path.starts_with(root)) && !read.path.starts_with("/dev/shm");
    let mut name = if in_device_tree {
        let directory =
            std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| PathBuf::from("/run"), PathBuf::from);
        let flat = read.path.to_string_lossy().replace('/', "_");
        directory.join(format!("busway{flat}")).into_os_string()
    } else {
        read.path.clone().into_os_string()
    };
    name.push(format!(".{:x}", read.offset));
    name.into()
}

impl WindowSettings {
    fn place(&self, medium: Medium, local: bool, key: &'static str) -> Result<Place, SettingError> {
        if !self.offset.0.is_multiple_of(WINDOW_ALIGNMENT_BYTES)
            || !self.length.0.is_multiple_of(WINDOW_ALIGNMENT_BYTES)
        {
            return Err(error(
                local,
                key,
                format!(
                    "the window at offset {} with length {} is not aligned to cache lines",
                    self.offset.0, self.length.0
                ),
                format!("make both multiples of {WINDOW_ALIGNMENT_BYTES}"),
            ));
        }
        if self.length.0 < MINIMUM_WINDOW_BYTES {
            return Err(error(
                local,
                key,
                format!("a window of {} bytes is too small", self.length.0),
                format!("give each window at least {} KiB", MINIMUM_WINDOW_BYTES >> 10),
            ));
        }
        let end = self
            .offset
            .0
            .checked_add(self.length.0)
            .filter(|end| *end <= i64::MAX as u64);
        let Some(file_length) = end else {
            return Err(error(
                local,
                key,
                "the window ends beyond the largest file",
                "correct offset or length",
            ));
        };
        Ok(Place {
            path: self.path.clone(),
            offset: self.offset.0,
            length: self.length.0,
            file_length,
            medium,
        })
    }
}

impl LinkSettings {
    /// Joins two hosts' tables; nothing is set aside for ports.
    pub fn new(local: HostSettings, peer: HostSettings, local_is_first: bool) -> LinkSettings {
        LinkSettings {
            local,
            peer,
            local_is_first,
            ports: PortBytes::default(),
        }
    }

    /// Judges both hosts' tables together.
    ///
    /// # Errors
    /// The first mistake found: which host's table, which key, what is wrong and what would be right.
    pub fn validate(&self) -> Result<(), SettingError> {
        self.resolve().map(|_| ())
    }

    /// The local host's windows, doorbells and times.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub fn resolve(&self) -> Result<Resolved, SettingError> {
        let local = self.local.windows(true, self.local_is_first)?;
        let peer = self.peer.windows(false, !self.local_is_first)?;
        for (own, theirs, key, their_key) in [
            (&local.read, &peer.write, "read", "write"),
            (&local.write, &peer.read, "write", "read"),
        ] {
            if own.length != theirs.length {
                return Err(error(
                    true,
                    if self.local.path.is_some() { "length" } else { key },
                    format!(
                        "this host's {key} window has {} bytes, the peer's {their_key} window has {}",
                        own.length, theirs.length
                    ),
                    "give both hosts the same length: they are the two views of one window",
                ));
            }
        }
        if overlap(&local.read, &local.write) {
            return Err(error(
                true,
                "write",
                format!("the two windows overlap in {}", local.read.path.display()),
                "move one of them by its `offset`",
            ));
        }
        registry::validate_heartbeat(
            (self.local.heartbeat(), self.local.timeout()),
            (self.peer.heartbeat(), self.peer.timeout()),
        )?;
        let doorbell = self.local.doorbell(&local.read);
        let peer_doorbell = self.peer.doorbell(&peer.read);
        let (read, read_ports) = local.read.split(self.ports.read);
        let (write, write_ports) = local.write.split(self.ports.write);
        Ok(Resolved {
            doorbell,
            peer_doorbell,
            read,
            write,
            read_ports,
            write_ports,
            heartbeat: self.local.heartbeat(),
            timeout: self.local.timeout(),
        })
    }
}

/// See [`registry::link_lines`]: one file for both directions.
pub(crate) fn link_lines(site: &Site<'_>) -> String {
    let (path, length_mib) = site.window;
    format!(
        "{} = {{ path = {path:?}, length = \"{length_mib}MiB\" }}\n",
        super::NAME
    )
}

fn overlap(a: &Place, b: &Place) -> bool {
    a.path == b.path && a.offset < b.offset + b.length && b.offset < a.offset + a.length
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
