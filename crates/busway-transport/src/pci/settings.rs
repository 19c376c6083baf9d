//! A link through PCI functions in the system file, for one host.
//!
//! Contract: plain data, no system calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::contract::{SettingError, Size, optional_duration};
use crate::window::ivshmem::Server;
use crate::window::medium::Medium;
use crate::window::pci::doorbell::{Ring, Vectors};
use crate::window::pci::function::{Driver, Function, Resource};
use crate::window::pci::interrupts::MOST_VECTORS;
use crate::window::pci::selector::Selector;
use crate::window::region::{WindowRegion, error};
use crate::window::settings::{self, DEFAULT_HEARTBEAT, DEFAULT_TIMEOUT, DoorbellKind, Table, Windows};
use crate::window::source::Source;

/// The two hosts' tables of one link.
pub type LinkSettings = settings::LinkSettings<HostSettings>;

/// Memory resources of a function: base address registers 0 to 5 (PCI Local Bus Specification 3.0,
/// 6.2.5).
const RESOURCES: u8 = 6;
/// Where QEMU's shared-memory device has its doorbell register, in resource 0.
const IVSHMEM_DOORBELL_AT: u64 = 12;

/// Where one window lies, in the long form. The keys mean what they mean in [`HostSettings`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSettings {
    /// The PCI function.
    pub device: Option<Selector>,
    /// Instead of it: a file or device that is mapped by its path.
    pub path: Option<PathBuf>,
    /// Which memory resource of the function.
    pub resource: Option<u8>,
    /// Where in the resource or file the window begins, in bytes; a multiple of 64. Default 0.
    pub offset: Option<Size>,
    /// Its length in bytes; a multiple of 64.
    pub length: Option<Size>,
    /// Whether the resource is mapped write-combining.
    pub write_combining: Option<bool>,
    /// How the function is reached.
    pub driver: Option<Driver>,
    /// The ordering that the mapping needs.
    pub medium: Option<Medium>,
}

/// One host's table of the bus, for one link.
///
/// Short form: `device` (or `path`), `resource`, `offset` and `length` name one shared memory; the
/// first host of the link reads its first half. Long form: `read` and `write` name two windows, as
/// of a non-transparent bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSettings {
    /// Short form: the PCI function: `"1af4:1110"` (vendor and device), `"1af4:1110#1"` (the second
    /// of several, by address) or `"0000:03:00.0"` (an address).
    pub device: Option<Selector>,
    /// Short form, instead of `device`: a file or device to map, for a process beside a virtual
    /// machine.
    pub path: Option<PathBuf>,
    /// Short form: which memory resource of the function, 0 to 5.
    pub resource: Option<u8>,
    /// Short form: where the two windows begin, in bytes. Default 0.
    pub offset: Option<Size>,
    /// Short form: length of both windows together, in bytes.
    pub length: Option<Size>,
    /// Instead of `device`, on a host beside virtual machines: the socket of the ivshmem server
    /// whose memory is the window. This host rings the machines through the server's eventfds (no
    /// `ring`), and is woken by them if it sets `wake`.
    pub server: Option<PathBuf>,
    /// Short form: whether to map the resource, which must be prefetchable, write-combining.
    /// Default false.
    pub write_combining: Option<bool>,
    /// Short form: `"sysfs"` (default), or `"vfio"` for a function bound to vfio-pci, which has
    /// interrupts.
    pub driver: Option<Driver>,
    /// The ordering that the mapping needs. Default: `"device"` (uncached) for a function,
    /// `"write-combining"` where that is asked for, `"coherent"` for any other path. For a
    /// shared-memory device between virtual machines, `"coherent"` is right.
    pub medium: Option<Medium>,
    /// Long form: the window that this host reads and the peer writes.
    pub read: Option<WindowSettings>,
    /// Long form: the window that this host writes and the peer reads.
    pub write: Option<WindowSettings>,
    /// How this host rings the other: a register in the function of the window that it writes.
    /// Default: it does not, and the other polls.
    pub ring: Option<RingSettings>,
    /// How this host is woken: interrupts of the function of the window that it reads (long form:
    /// if that is a path, of the other window). Default: it polls.
    pub wake: Option<WakeSettings>,
    /// Time between two heartbeats that this host writes. Default 200 ms.
    #[serde(default, deserialize_with = "optional_duration")]
    pub heartbeat: Option<Duration>,
    /// Silence after which this host takes the peer for gone. Default 1500 ms.
    #[serde(default, deserialize_with = "optional_duration")]
    pub timeout: Option<Duration>,
}

/// A register that rings the other host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingSettings {
    /// Which memory resource of the function it lies in.
    pub resource: u8,
    /// Where in the resource, in bytes; a multiple of 4.
    pub offset: Size,
    /// What is stored there for the other host's vector 0; one more for vector 1, and so on.
    pub value: u32,
}

/// Interrupts that wake a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeSettings {
    /// Number of MSI-X vectors: one for the control thread and one a lane; further lanes poll.
    pub vectors: u32,
}

/// A window's keys, checked alone.
struct Named {
    source: Source,
    medium: Medium,
    range: (u64, u64),
}

impl WindowSettings {
    /// Whether any key is given that the short form has too.
    fn is_empty(&self) -> bool {
        *self == WindowSettings::default()
    }

    /// Checks the keys; an error about all of them names `key`.
    fn name(&self, local: bool, key: &'static str) -> Result<Named, SettingError> {
        let source = match (&self.device, &self.path) {
            (Some(device), None) => self.resource(*device, local)?,
            (None, Some(path)) => {
                self.refuse_device_keys(local)?;
                Source::File(path.clone())
            }
            (Some(_), Some(_)) => {
                return Err(error(
                    local,
                    key,
                    "`device` and `path` stand side by side",
                    "name the PCI function, or a file, not both",
                ));
            }
            (None, None) => {
                return Err(error(
                    local,
                    key,
                    "no window is named",
                    "say `device = \"1af4:1110\", resource = 2, length = \"4MiB\"`, or name two windows by `read` and `write`",
                ));
            }
        };
        let Some(length) = self.length else {
            return Err(error(
                local,
                "length",
                format!("it is not said how much of {source} is used"),
                "say `length = \"4MiB\"`, the same on both hosts",
            ));
        };
        Ok(Named {
            medium: self.medium.unwrap_or(source.default_medium()),
            source,
            range: (self.offset.unwrap_or_default().0, length.0),
        })
    }

    fn resource(&self, device: Selector, local: bool) -> Result<Source, SettingError> {
        let index = self.resource.filter(|index| *index < RESOURCES).ok_or_else(|| {
            error(
                local,
                "resource",
                match self.resource {
                    None => format!("it is not said which memory resource of {device} is the window"),
                    Some(index) => format!("{index} is no number of a memory resource"),
                },
                "say `resource = 2` or another number from 0 to 5, as `lspci -vv` shows regions",
            )
        })?;
        let driver = self.driver.unwrap_or_default();
        let write_combining = self.write_combining.unwrap_or(false);
        if write_combining && driver == Driver::Vfio {
            return Err(error(
                local,
                "write_combining",
                "vfio maps resources uncached only",
                "leave it away, or say `driver = \"sysfs\"` and do without interrupts",
            ));
        }
        if write_combining && self.medium.is_some_and(|medium| medium != Medium::WriteCombining) {
            return Err(error(
                local,
                "medium",
                "a write-combining mapping needs the ordering of one",
                "leave `medium` away, or `write_combining`",
            ));
        }
        let resource = Resource {
            function: Function::new(device, driver),
            index,
            write_combining,
        };
        Ok(Source::Resource(resource))
    }

    fn refuse_device_keys(&self, local: bool) -> Result<(), SettingError> {
        let keys = [
            ("resource", self.resource.is_some()),
            ("write_combining", self.write_combining.is_some()),
            ("driver", self.driver.is_some()),
        ];
        match keys.into_iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => Err(error(
                local,
                key,
                format!("`{key}` says something of a PCI function, but a `path` is named"),
                format!("leave `{key}` away, or name the function by `device`"),
            )),
            None => Ok(()),
        }
    }

    fn place(&self, local: bool, key: &'static str) -> Result<WindowRegion, SettingError> {
        let named = self.name(local, key)?;
        WindowRegion::new(&named.source, named.range, named.medium, local, key)
    }
}

impl HostSettings {
    /// The keys of the short form.
    fn short(&self) -> WindowSettings {
        WindowSettings {
            device: self.device,
            path: self.path.clone(),
            resource: self.resource,
            offset: self.offset,
            length: self.length,
            write_combining: self.write_combining,
            driver: self.driver,
            medium: self.medium,
        }
    }
}

impl Table for HostSettings {
    fn heartbeat(&self) -> Duration {
        self.heartbeat.unwrap_or(DEFAULT_HEARTBEAT)
    }

    fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    fn is_short(&self) -> bool {
        self.length.is_some()
    }

    fn windows(&self, local: bool, is_first: bool) -> Result<Windows, SettingError> {
        let short = self.short();
        if let Some(socket) = &self.server {
            return self.served_windows(socket, local, is_first);
        }
        match (&self.read, &self.write) {
            (None, None) => {
                let named = short.name(local, "device")?;
                Windows::halves(&named.source, named.range, [named.medium; 2], local, is_first)
            }
            (Some(read), Some(write)) if short.is_empty() => Ok(Windows {
                read: read.place(local, "read")?,
                write: write.place(local, "write")?,
            }),
            (read, _) if short.is_empty() => Err(settings::lacks_one(
                read.is_some(),
                local,
                "device, resource, offset, length",
            )),
            _ => Err(error(
                local,
                "device",
                "keys of one window stand beside `read` or `write`",
                "name one memory by `device`, `resource`, `length`, or put these keys inside `read` and `write`",
            )),
        }
    }

    fn doorbells(
        &self,
        windows: &Windows,
        peer: &HostSettings,
        peer_windows: &Windows,
    ) -> Result<[DoorbellKind; 2], SettingError> {
        for (local, wakes, rings, rings_through_server) in [
            (false, &self.wake, &peer.ring, peer.server.is_some()),
            (true, &peer.wake, &self.ring, self.server.is_some()),
        ] {
            let (key, problem) = match (wakes, rings) {
                (Some(_), None) if rings_through_server => continue,
                (Some(_), None) => (
                    "ring",
                    "the other host waits for interrupts (`wake`), and nothing says how they are caused",
                ),
                (None, Some(_)) => ("ring", "a register is named, but the other host has no `wake`"),
                _ => continue,
            };
            let mend = "give one host `ring` and the other `wake`, or neither";
            return Err(error(local, key, problem, mend));
        }
        peer.vectors(peer_windows, false, self)?;
        peer.register(peer_windows, false, self)?;
        Ok([
            self.vectors(windows, true, peer)?,
            self.register(windows, true, peer)?,
        ])
    }
}

impl RingSettings {
    /// Whether it is the doorbell register of QEMU's shared-memory device.
    fn is_of_ivshmem(&self) -> bool {
        self.resource == 0 && self.offset.0 == IVSHMEM_DOORBELL_AT
    }
}

impl HostSettings {
    /// The server at `socket`, and what the host of this table needs of it.
    fn named(&self, socket: &Path) -> Server {
        Server {
            socket: socket.into(),
            vectors: self.wake.as_ref().map_or(0, |wake| wake.vectors),
            expected_number: None,
        }
    }

    /// Both halves of what the server at `socket` shares.
    fn served_windows(&self, socket: &Path, local: bool, is_first: bool) -> Result<Windows, SettingError> {
        let strangers = [
            ("device", self.device.is_some()),
            ("path", self.path.is_some()),
            ("resource", self.resource.is_some()),
            ("write_combining", self.write_combining.is_some()),
            ("driver", self.driver.is_some()),
            ("read", self.read.is_some()),
            ("write", self.write.is_some()),
            ("ring", self.ring.is_some()),
        ];
        if let Some((key, _)) = strangers.into_iter().find(|(_, is_given)| *is_given) {
            return Err(error(
                local,
                key,
                format!("`{key}` stands beside `server`, which names the memory and rings the others"),
                format!("leave `{key}` away, or `server`"),
            ));
        }
        let Some(length) = self.length else {
            return Err(error(
                local,
                "length",
                format!(
                    "it is not said how much of the memory of {} is used",
                    socket.display()
                ),
                "say `length = \"4MiB\"`, the same on both hosts",
            ));
        };
        let range = (self.offset.unwrap_or_default().0, length.0);
        let source = Source::Server(self.named(socket));
        let medium = self.medium.unwrap_or(source.default_medium());
        Windows::halves(&source, range, [medium; 2], local, is_first)
    }

    /// What wakes the host of this table.
    fn vectors(
        &self,
        windows: &Windows,
        local: bool,
        other: &HostSettings,
    ) -> Result<DoorbellKind, SettingError> {
        let Some(wake) = &self.wake else {
            return Ok(DoorbellKind::None);
        };
        if !(1..=MOST_VECTORS).contains(&wake.vectors) {
            return Err(error(
                local,
                "wake",
                format!("{} vectors wake nobody", wake.vectors),
                format!("give 1 for the control thread and 1 a lane, {MOST_VECTORS} at most"),
            ));
        }
        if let Some(socket) = &self.server {
            // A ring of QEMU's device names the peer that it wakes.
            let expected_number = other.ring.as_ref().filter(|ring| ring.is_of_ivshmem());
            return Ok(DoorbellKind::Server(Server {
                expected_number: expected_number.map(|ring| (ring.value >> 16) as u16),
                ..self.named(socket)
            }));
        }
        match function_of([&windows.read, &windows.write]) {
            Some(resource) if resource.function.driver == Driver::Vfio => {
                Ok(DoorbellKind::Vectors(Vectors {
                    function: resource.function.clone(),
                    count: wake.vectors,
                }))
            }
            _ => Err(error(
                local,
                "wake",
                "interrupts come from a PCI function through vfio only",
                "say `driver = \"vfio\"` beside `device`, and bind the function to vfio-pci",
            )),
        }
    }

    /// What the host of this table rings the other one with.
    fn register(
        &self,
        windows: &Windows,
        local: bool,
        other: &HostSettings,
    ) -> Result<DoorbellKind, SettingError> {
        if let Some(socket) = self.server.as_ref().filter(|_| other.wake.is_some()) {
            return Ok(DoorbellKind::Server(self.named(socket)));
        }
        let Some(ring) = &self.ring else {
            return Ok(DoorbellKind::None);
        };
        let Some(resource) = function_of([&windows.write, &windows.read]) else {
            return Err(error(
                local,
                "ring",
                "a register lies in a PCI function, and none is named",
                "name the function by `device`",
            ));
        };
        if ring.resource >= RESOURCES || !ring.offset.0.is_multiple_of(4) {
            return Err(error(
                local,
                "ring",
                format!(
                    "there is no register at offset {} of resource {}",
                    ring.offset.0, ring.resource
                ),
                "name a resource from 0 to 5 and an offset that is a multiple of 4",
            ));
        }
        Ok(DoorbellKind::Register(Ring {
            resource: Resource {
                index: ring.resource,
                write_combining: false,
                ..resource.clone()
            },
            offset: ring.offset.0,
            value: ring.value,
        }))
    }
}

/// The first of the windows that lies in a function.
fn function_of(places: [&WindowRegion; 2]) -> Option<&Resource> {
    places.into_iter().find_map(|place| match &place.source {
        Source::Resource(resource) => Some(resource),
        Source::File(_) | Source::Server(_) => None,
    })
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
