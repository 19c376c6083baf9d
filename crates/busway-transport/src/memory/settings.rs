//! The memory bus in the system file, for one host and one link.
//!
//! Contract: plain data, no system calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::contract::{SettingError, Size, optional_duration};
use crate::window::medium::Medium;
use crate::window::region::{WindowRegion, error};
use crate::window::settings::{self, DEFAULT_HEARTBEAT, DEFAULT_TIMEOUT, DoorbellKind, Table, Windows};
use crate::window::source::Source;

/// The two hosts' tables of one link.
pub type LinkSettings = settings::LinkSettings<HostSettings>;

/// Length of the device where the file names none, in bytes.
const DEFAULT_LENGTH_BYTES: u64 = 64 << 20;

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
/// Short form: `path`, `offset` and `length` name one device that both hosts share; the first host
/// of the link reads its first half. Long form: `read` and `write` name two windows.
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
    /// The ordering that the mapping (long form: of the read window) needs. Default: that of the
    /// kernel's mapping: `device` for `resourceN` in sysfs, `write-combining` for `resourceN_wc`,
    /// `coherent` otherwise.
    pub medium: Option<Medium>,
    /// The ordering that the write window's mapping needs. Default: `medium`, or else as above.
    pub write_medium: Option<Medium>,
    /// How this host is woken: `"auto"` (default; a FIFO beside the window, for two hosts on one
    /// kernel), `"none"` (it polls), or a path with which FIFO names begin.
    pub doorbell: Option<String>,
    /// Time between two heartbeats that this host writes. Default 200 ms.
    #[serde(default, deserialize_with = "optional_duration")]
    pub heartbeat: Option<Duration>,
    /// Silence after which this host takes the peer for gone. Default 1500 ms.
    #[serde(default, deserialize_with = "optional_duration")]
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
            (None, read, _) => Err(settings::lacks_one(read.is_some(), local, "path, offset, length")),
        }
    }

    fn doorbells(
        &self,
        windows: &Windows,
        peer: &HostSettings,
        peer_windows: &Windows,
    ) -> Result<[DoorbellKind; 2], SettingError> {
        Ok([self.doorbell(&windows.read), peer.doorbell(&peer_windows.read)])
    }
}

impl HostSettings {
    fn doorbell(&self, read: &WindowRegion) -> DoorbellKind {
        match (self.doorbell.as_deref(), &read.source) {
            (Some("none"), _) | (_, Source::Resource(_) | Source::Server(_)) => DoorbellKind::None,
            (None | Some("auto"), Source::File(path)) => {
                DoorbellKind::Prefix(automatic_doorbell(path, read.offset))
            }
            (Some(prefix), _) => DoorbellKind::Prefix(prefix.into()),
        }
    }
}

/// Names FIFOs after the window that their owner reads: beside a file, in a run-time directory for
/// a device.
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
    ) -> Result<WindowRegion, SettingError> {
        let source = Source::File(self.path.clone());
        let medium = medium(&source);
        WindowRegion::new(&source, (self.offset.0, self.length.0), medium, local, key)
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
