//! Memory that the programs of a measurement share with another machine: a PCI resource, or a file
//! that two virtual machines have.
//!
//! Contract: each side names its own path to it, on its own command line: `--window` of the leader,
//! and of `busway bench follower`; nobody else decides what a program maps. The first half belongs
//! to the buses, as the table of each host in the system file says; the second half to the
//! technologies that go over bare memory, so that none meets what the other left. Read by the
//! experiments, used by [`crate::technology`].

use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;

use busway_buses::{BUS_NAMES, needs_window};
use memmap2::{MmapOptions, MmapRaw};
use serde::{Deserialize, Serialize};

use crate::sizes::size_within;

/// What both halves of a window must be multiples of, so that they can be mapped, in bytes.
const HALF_STEP_BYTES: u64 = 4096;

/// By what one side reaches memory that it shares with the other machine: options of the leader,
/// and of the follower.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct Access {
    /// Memory that both machines share: a file, or a resource of a PCI function that is enabled.
    /// Its first half is for the buses `memory` and `pci`, its second for the technologies of bare
    /// memory. The other side names its own
    #[arg(long, value_name = "PATH[:OFFSET:LENGTH]")]
    pub window: Option<SharedWindow>,
    /// This host's table of a bus, as in a system file, such as 'pci={ device = "1af4:1110", length
    /// = "8MiB" }', instead of one that follows from --window. The other side names its own
    #[arg(long = "table", value_name = "BUS=TABLE", value_parser = parse_table)]
    pub tables: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedWindow {
    /// A file, a device, or a resource of a PCI function that is enabled.
    pub path: PathBuf,
    /// Where in it the window begins, in bytes.
    pub offset_bytes: u64,
    /// Its length in bytes.
    pub length_bytes: u64,
}

impl Access {
    pub(crate) fn table(&self, bus: &str) -> Option<String> {
        let given = self.tables.iter().rev().find(|(name, _)| name == bus);
        let follows = || {
            self.window
                .as_ref()
                .filter(|_| needs_window(bus))
                .map(SharedWindow::table)
        };
        given.map(|(_, table)| table.clone()).or_else(follows)
    }
}

fn parse_table(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((bus, table)) if BUS_NAMES.contains(&bus.trim()) => {
            Ok((bus.trim().to_owned(), table.trim().to_owned()))
        }
        _ => Err(format!(
            "{text:?} names no bus; write BUS={{ KEY = VALUE, … }}, where BUS is one of {}",
            BUS_NAMES.join(", ")
        )),
    }
}

impl FromStr for SharedWindow {
    type Err = String;

    /// Reads `PATH:OFFSET:LENGTH`; without offset and length it is all of the file. An address of a
    /// PCI function has colons, too, so the last two count.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |problem: String| {
            format!("{text:?} {problem}; write PATH or PATH:OFFSET:LENGTH, such as /dev/shm/window:0:64MiB")
        };
        let length_of = |path: &str| {
            let metadata = std::fs::metadata(path);
            metadata
                .map(|it| it.len())
                .map_err(|e| wrong(format!("names what can't be opened ({e})")))
        };
        let bytes = |size: &str| match size {
            "0" => Some(0),
            _ => size_within(size, 1, usize::MAX).ok().map(|bytes| bytes as u64),
        };
        let mut parts = text.rsplitn(3, ':');
        let ends = (parts.next().and_then(bytes), parts.next().and_then(bytes));
        let window = match (ends, parts.next()) {
            ((Some(length_bytes), Some(offset_bytes)), Some(path)) => Self {
                path: path.into(),
                offset_bytes,
                length_bytes,
            },
            _ => Self {
                path: text.into(),
                offset_bytes: 0,
                length_bytes: length_of(text)?,
            },
        };
        let is_even = window.offset_bytes.is_multiple_of(HALF_STEP_BYTES)
            && window.length_bytes.is_multiple_of(2 * HALF_STEP_BYTES)
            && window.length_bytes > 0;
        if !is_even {
            return Err(wrong(format!(
                "is no window: from {} on {} bytes, where the offset must be a multiple of {HALF_STEP_BYTES} and the length one of twice that",
                window.offset_bytes, window.length_bytes
            )));
        }
        Ok(window)
    }
}

impl SharedWindow {
    /// What a host's table of a bus says of the half that belongs to buses.
    pub(crate) fn table(&self) -> String {
        format!(
            "{{ path = {:?}, offset = {}, length = {} }}",
            self.path,
            self.offset_bytes,
            self.length_bytes / 2
        )
    }

    /// Maps a part of the half that belongs to bare memory.
    ///
    /// # Errors
    /// In words: it is too short, or the system refuses.
    pub(crate) fn map(&self, at_bytes: usize, len_bytes: usize) -> Result<MmapRaw, String> {
        let half_bytes = self.length_bytes / 2;
        let end = at_bytes.checked_add(len_bytes);
        if end.is_none_or(|end| end as u64 > half_bytes) {
            return Err(format!(
                "window {}: {len_bytes} bytes from {at_bytes} on don't fit into its second half of {half_bytes} bytes; \
                 give a longer one by --window, or send smaller messages",
                self.path.display()
            ));
        }
        let file = File::options().read(true).write(true).open(&self.path);
        let mapped = file.and_then(|file| {
            MmapOptions::new()
                .offset(self.offset_bytes + half_bytes + at_bytes as u64)
                .len(len_bytes)
                .map_raw(&file)
        });
        mapped.map_err(|e| {
            format!(
                "window {}: {e}; is the PCI function enabled, and the window this long?",
                self.path.display()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_parsed_with_colons_in_its_path() {
        let part: SharedWindow = "/sys/bus/pci/devices/0000:00:10.0/resource2:4096:16MiB"
            .parse()
            .unwrap();
        assert_eq!(
            (part.path.to_str(), part.offset_bytes, part.length_bytes),
            (
                Some("/sys/bus/pci/devices/0000:00:10.0/resource2"),
                4096,
                16 << 20
            )
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0000:00:10.0");
        std::fs::write(&path, vec![0; 32768]).unwrap();
        let whole: SharedWindow = path.to_str().unwrap().parse().unwrap();
        assert_eq!(
            (whole.path, whole.offset_bytes, whole.length_bytes),
            (path, 0, 32768)
        );
    }

    #[test]
    fn wrong_window_is_refused_with_an_example() {
        for wrong in [
            "/dev/shm/no-such-window",
            "/dev/null",
            "/dev/shm/window:1:64MiB",
            "/dev/shm/window:0:0",
        ] {
            let error = wrong.parse::<SharedWindow>().unwrap_err();
            assert!(error.contains(wrong) && error.contains(":0:64MiB"), "{error}");
        }
    }

    #[test]
    fn bare_memory_has_the_second_half_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("window");
        std::fs::write(&path, vec![0; 32768]).unwrap();
        let window: SharedWindow = path.to_str().unwrap().parse().unwrap();
        assert!(window.table().contains("offset = 0, length = 16384"));
        assert!(window.map(4096, 12288).is_ok());
        assert!(window.map(4096, 12289).unwrap_err().contains("16384"));
    }
}
