//! The end of each window, set aside for programs with ports.
//!
//! Contract: plain arithmetic on settings, the same on both hosts. The link uses what comes before, and never looks at the end. Called by
//! the settings (where the link's windows end) and, through [`OneSided`], by the system file and the ports.

use std::time::Duration;

use super::layout::MINIMUM_WINDOW_BYTES;
use super::tables::{LinkSettings, Place, Table};
use crate::network::Network;
use crate::one_sided::{OneSided, PortPlace, Role};

/// Bytes at the end of a link's windows that the programs with ports write and read themselves; multiples of 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortBytes {
    /// In the window that this host reads.
    pub read: u64,
    /// In the window that this host writes.
    pub write: u64,
}

impl Place {
    /// Cuts the last `bytes` bytes off: what is left, and they.
    pub(super) fn split(self, bytes: u64) -> (Place, Place) {
        let length = self.length.saturating_sub(bytes);
        let end = Place {
            offset: self.offset + length,
            length: self.length - length,
            ..self.clone()
        };
        (Place { length, ..self }, end)
    }
}

impl<H: Table> Network for LinkSettings<H> {}

impl<H: Table> OneSided for LinkSettings<H> {
    const IS_ONE_SIDED: bool = true;

    /// Half of the window, so that the messages of everything else keep the other half.
    fn port_room_bytes(&self, role: Role) -> u64 {
        let Ok(windows) = self.local.windows(true, self.local_is_first) else {
            return 0;
        };
        let length = match role {
            Role::Reads => windows.read.length,
            Role::Writes => windows.write.length,
        };
        (length / 2).min(length.saturating_sub(MINIMUM_WINDOW_BYTES)) / 128 * 128
    }

    fn set_port_bytes(&mut self, read_bytes: u64, write_bytes: u64) {
        self.ports = PortBytes {
            read: read_bytes,
            write: write_bytes,
        };
    }

    fn port_place(&self, role: Role) -> Option<PortPlace> {
        let resolved = self.resolve().ok()?;
        let place = match role {
            Role::Reads => resolved.read_ports,
            Role::Writes => resolved.write_ports,
        };
        (place.length > 0).then_some(PortPlace { place, role })
    }

    fn silence(&self) -> Duration {
        self.local.timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::{HostSettings, LinkSettings};
    use super::*;

    fn link(length: u64, is_first: bool) -> LinkSettings {
        let table = || -> HostSettings {
            toml::from_str(&format!("path = '/dev/shm/x'\nlength = {length}")).expect("right")
        };
        LinkSettings::new(table(), table(), is_first)
    }

    #[test]
    fn what_one_host_writes_is_what_the_other_reads_behind_the_links_own_part() {
        let (mut one, mut other) = (link(1 << 20, true), link(1 << 20, false));
        assert_eq!(one.port_place(Role::Writes), None);
        one.set_port_bytes(128, 1024);
        other.set_port_bytes(1024, 128);
        let place = |link: &LinkSettings, role| link.port_place(role).expect("set aside").place;
        assert_eq!(place(&one, Role::Writes), place(&other, Role::Reads));
        assert_eq!(place(&one, Role::Reads), place(&other, Role::Writes));
        let written = one.resolve().expect("right").write;
        let ports = place(&one, Role::Writes);
        assert_eq!(written.offset + written.length, ports.offset);
        assert_eq!((written.length, ports.length), ((512 << 10) - 1024, 1024));
    }

    #[test]
    fn the_link_always_keeps_a_window_that_it_can_use() {
        for length in [64 << 10, 96 << 10, 1 << 20, 64 << 20] {
            let mut link = link(length, true);
            let room = link.port_room_bytes(Role::Reads);
            assert!(room.is_multiple_of(128) && room <= length / 4, "{length}: {room}");
            link.set_port_bytes(room, room);
            let resolved = link.resolve().expect("right");
            assert!(resolved.read.length >= MINIMUM_WINDOW_BYTES, "{length}");
            assert!(resolved.write.length >= MINIMUM_WINDOW_BYTES, "{length}");
        }
    }
}
