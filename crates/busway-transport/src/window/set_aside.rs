//! The settings of a link of windows as its users see them: the memory that it maps, what it needs
//! of this machine, and the end of each window, which is set aside for ports.
//!
//! Contract: arithmetic, the same on both hosts, except `check_here` and `files_here`. The link
//! never uses the end.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;

use super::layout::MINIMUM_WINDOW_BYTES;
use super::mapping::Mapped;
use super::medium::Medium;
use super::region::WindowRegion;
use super::settings::{LinkSettings, PortBytes, Table};
use super::source::Source;
use crate::contract::{
    self, Access, FileUse, Finding, MapError, PortMemory, PortPlace, SettingError, WindowUse,
};

impl<H: Table> contract::LinkSettings for LinkSettings<H> {
    fn validate(&self) -> Result<(), SettingError> {
        self.resolve().map(|_| ())
    }

    fn windows(&self) -> Vec<WindowUse> {
        self.halves().map_or(Vec::new(), |halves| {
            halves
                .map(|(access, whole, ports)| whole.describe(access, ports.length))
                .into()
        })
    }

    fn check_here(&self) -> Vec<Finding> {
        let Some(halves) = self.halves() else {
            return Vec::new();
        };
        let finding = |(access, whole, _): (Access, WindowRegion, WindowRegion)| Finding {
            what: whole.what(access),
            result: whole.check_here(access),
        };
        halves.map(finding).into()
    }

    fn files_here(&self) -> Vec<FileUse> {
        let halves = self.halves().into_iter().flatten();
        halves
            .filter_map(|(access, whole, _)| {
                Some(FileUse {
                    what: whole.what(access),
                    file: whole.source.file_here()?,
                    bytes: whole.offset..whole.offset + whole.length,
                })
            })
            .collect()
    }

    /// Half of the window, so that the messages of everything else keep the other half.
    fn port_room_bytes(&self, access: Access) -> u64 {
        let Ok(windows) = self.local.windows(true, self.local_is_first) else {
            return 0;
        };
        let length = match access {
            Access::Reads => windows.read.length,
            Access::Writes => windows.write.length,
        };
        (length / 2).min(length.saturating_sub(MINIMUM_WINDOW_BYTES)) / 128 * 128
    }

    fn set_port_bytes(&mut self, read_bytes: u64, write_bytes: u64) {
        self.ports = PortBytes {
            read: read_bytes,
            write: write_bytes,
        };
    }

    fn port_place(&self, access: Access) -> Option<PortPlace> {
        let resolved = self.resolve().ok()?;
        let place = match access {
            Access::Reads => resolved.read_ports,
            Access::Writes => resolved.write_ports,
        };
        (place.length > 0).then(|| place.for_ports(access))
    }

    fn silence(&self) -> Duration {
        self.local.timeout()
    }
}

impl<H: Table> LinkSettings<H> {
    /// The window that this host reads and the one that it writes: each whole, and the part for
    /// ports at its end. `None` where the settings are invalid.
    fn halves(&self) -> Option<[(Access, WindowRegion, WindowRegion); 2]> {
        let resolved = self.resolve().ok()?;
        let whole = |place: WindowRegion, ports: &WindowRegion| WindowRegion {
            length: place.length + ports.length,
            ..place
        };
        Some([
            (
                Access::Reads,
                whole(resolved.read, &resolved.read_ports),
                resolved.read_ports,
            ),
            (
                Access::Writes,
                whole(resolved.write, &resolved.write_ports),
                resolved.write_ports,
            ),
        ])
    }
}

impl WindowRegion {
    pub(crate) fn for_ports(self, access: Access) -> PortPlace {
        let path = self.source.path().map(Path::to_owned);
        let (source, range) = (self.source.to_string(), (self.offset, self.length));
        PortPlace::new(access, (source, path), range, move || {
            let mapped = Mapped::open(&self, access).map_err(MapError::new)?;
            Ok(PortMemory::new(mapped.window.clone(), mapped))
        })
    }

    fn describe(&self, access: Access, ports_bytes: u64) -> WindowUse {
        WindowUse {
            access,
            source: self.source.to_string(),
            memory: self.source.memory_name(),
            is_path: self.source.path().is_some(),
            offset_bytes: self.offset,
            length_bytes: self.length,
            ports_bytes,
            medium: match self.medium {
                Medium::Coherent => "coherent",
                Medium::WriteCombining => "write-combining",
                Medium::Device => "device",
            },
        }
    }

    fn what(&self, access: Access) -> String {
        let verb = match access {
            Access::Reads => "reads",
            Access::Writes => "writes",
        };
        format!("{verb} {}", self.source)
    }

    fn check_here(&self, access: Access) -> Result<(), (String, &'static str)> {
        match &self.source {
            Source::File(path) => check_file(path, self.file_length, access),
            Source::Server(server) => fs::metadata(&server.socket)
                .map(drop)
                .map_err(|error| (error.to_string(), "start the server; the gateway waits for it")),
            Source::Resource(resource) => resource
                .check(self.file_length)
                .map_err(|error| (error.to_string(), "the gateway waits for it")),
        }
    }
}

/// The gateway makes a file that is missing; a device must be there.
fn check_file(path: &Path, length_bytes: u64, access: Access) -> Result<(), (String, &'static str)> {
    let is_device = ["/sys", "/proc"].iter().any(|root| path.starts_with(root))
        || (path.starts_with("/dev") && !path.starts_with("/dev/shm"));
    let opened = OpenOptions::new()
        .read(true)
        .write(access == Access::Writes)
        .open(path);
    match opened {
        Ok(file) => {
            let metadata = file
                .metadata()
                .map_err(|error| (error.to_string(), "correct the path"))?;
            if metadata.is_file() && metadata.len() < length_bytes {
                return Err((
                    format!("it has {} bytes, {length_bytes} are needed", metadata.len()),
                    "shorten `length`, or remove the file: it is made anew",
                ));
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_device => match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                Err((format!("there is no folder {}", folder.display()), "create it"))
            }
            _ => Ok(()),
        },
        Err(error) => Err((
            error.to_string(),
            "correct the path, or give this user access to the device",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::LinkSettings as _;
    use crate::memory::settings::{HostSettings, LinkSettings};

    fn link(length: u64, is_first: bool) -> LinkSettings {
        let table = || -> HostSettings {
            toml::from_str(&format!("path = '/dev/shm/x'\nlength = {length}")).expect("right")
        };
        LinkSettings::new(table(), table(), is_first)
    }

    #[test]
    fn port_ranges_of_both_hosts_match() {
        let (mut one, mut other) = (link(1 << 20, true), link(1 << 20, false));
        assert_eq!(one.port_place(Access::Writes), None);
        one.set_port_bytes(128, 1024);
        other.set_port_bytes(1024, 128);
        let range = |link: &LinkSettings, access| {
            let place = link.port_place(access).expect("set aside");
            (place.offset_bytes(), place.length_bytes())
        };
        assert_eq!(range(&one, Access::Writes), range(&other, Access::Reads));
        assert_eq!(range(&one, Access::Reads), range(&other, Access::Writes));
        let written = one.resolve().expect("right").write;
        let (offset, length) = range(&one, Access::Writes);
        assert_eq!(written.offset + written.length, offset);
        assert_eq!((written.length, length), ((512 << 10) - 1024, 1024));
    }

    #[test]
    fn link_keeps_a_usable_window() {
        for length in [64 << 10, 96 << 10, 1 << 20, 64 << 20] {
            let mut link = link(length, true);
            let room = link.port_room_bytes(Access::Reads);
            assert!(room.is_multiple_of(128) && room <= length / 4, "{length}: {room}");
            link.set_port_bytes(room, room);
            let resolved = link.resolve().expect("right");
            assert!(resolved.read.length >= MINIMUM_WINDOW_BYTES, "{length}");
            assert!(resolved.write.length >= MINIMUM_WINDOW_BYTES, "{length}");
        }
    }
}
