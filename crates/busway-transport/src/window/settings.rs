//! The settings of a link of windows: both hosts' tables, and the windows that follow from them.
//!
//! Contract: plain data, no system calls. A bus has a table of its own keys, a [`Table`];
//! [`LinkSettings::resolve`] checks both tables together and returns the local host's windows.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use super::ivshmem::Server;
use super::layout::WINDOW_ALIGNMENT_BYTES;
use super::medium::Medium;
use super::pci::doorbell::{Ring, Vectors};
use super::region::{WindowRegion, error};
use super::source::Source;
use crate::contract::{self, SettingError};

/// Time between two heartbeats where the file names none.
pub(crate) const DEFAULT_HEARTBEAT: Duration = Duration::from_millis(200);
/// Silence after which the peer counts as gone, where the file names none.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_millis(1500);

/// One host's table of a bus that is made of windows.
pub trait Table: Clone + Debug {
    /// The windows of this table alone. `local` is whose table it is, for the error; `is_first`
    /// whether its host is first in the link's `hosts`.
    fn windows(&self, local: bool, is_first: bool) -> Result<Windows, SettingError>;

    /// How the host of this table is woken, and how it wakes the host of `peer`.
    fn doorbells(
        &self,
        windows: &Windows,
        peer: &Self,
        peer_windows: &Windows,
    ) -> Result<[DoorbellKind; 2], SettingError>;

    /// Time between two heartbeats that the host writes.
    fn heartbeat(&self) -> Duration;

    /// Silence after which the host takes the other for gone.
    fn timeout(&self) -> Duration;

    /// Whether one key `length` sets the length of both windows.
    fn is_short(&self) -> bool;
}

/// Bytes at the end of a link's windows that programs with ports use; multiples of 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortBytes {
    /// In the window that this host reads.
    pub read: u64,
    /// In the window that this host writes.
    pub write: u64,
}

/// The two hosts' tables of one link.
#[derive(Clone, Debug)]
pub struct LinkSettings<H> {
    /// This host's table.
    pub local: H,
    /// The peer's table.
    pub peer: H,
    /// Whether this host is first in the link's `hosts`.
    pub local_is_first: bool,
    /// Bytes set aside for ports.
    pub ports: PortBytes,
}

/// How a host is woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoorbellKind {
    /// Nothing wakes it.
    None,
    /// FIFO names are this path with a suffix.
    Prefix(PathBuf),
    /// By interrupts of a PCI function of its own.
    Vectors(Vectors),
    /// By a register of a PCI function of the other host.
    Register(Ring),
    /// By the eventfds that an ivshmem server has given.
    Server(Server),
}

/// The settings of one link as the local host uses them.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The window that this host reads.
    pub read: WindowRegion,
    /// The window that this host writes.
    pub write: WindowRegion,
    /// The end of the window that this host reads, set aside for ports.
    pub read_ports: WindowRegion,
    /// The end of the window that this host writes, set aside for ports.
    pub write_ports: WindowRegion,
    /// How this host is woken.
    pub doorbell: DoorbellKind,
    /// How the peer is woken.
    pub peer_doorbell: DoorbellKind,
    /// Time between two heartbeats of this host.
    pub heartbeat: Duration,
    /// Silence after which the peer counts as gone.
    pub timeout: Duration,
}

/// The windows of one host's table.
#[derive(Clone, Debug)]
pub struct Windows {
    /// The window that the host reads.
    pub read: WindowRegion,
    /// The window that the host writes.
    pub write: WindowRegion,
}

/// One of `read` and `write` is missing; `members` are what a window is named by.
pub(crate) fn lacks_one(has_read: bool, local: bool, members: &str) -> SettingError {
    let (there, missing) = if has_read {
        ("read", "write")
    } else {
        ("write", "read")
    };
    error(
        local,
        missing,
        format!("`{there}` is given but `{missing}` is not"),
        format!("add `{missing} = {{ {members} }}`"),
    )
}

impl Windows {
    /// Splits `length` bytes at `offset` of one source: the first host reads the first half.
    /// `mediums` are those of the read and the written window.
    ///
    /// # Errors
    /// The halves can't be windows.
    pub(crate) fn halves(
        source: &Source,
        (offset, length): (u64, u64),
        mediums: [Medium; 2],
        local: bool,
        is_first: bool,
    ) -> Result<Windows, SettingError> {
        // Halves on page boundaries where the device is large enough for that to cost nothing.
        let unit = if length >= 256 << 10 {
            4096
        } else {
            WINDOW_ALIGNMENT_BYTES
        };
        let half = length / 2 / unit * unit;
        let starts = [offset, offset.saturating_add(half)];
        let place =
            |at: usize, medium| WindowRegion::new(source, (starts[at], half), medium, local, "length");
        let mut read = place(usize::from(!is_first), mediums[0])?;
        let mut write = place(usize::from(is_first), mediums[1])?;
        read.file_length = offset.saturating_add(length);
        write.file_length = read.file_length;
        Ok(Windows { read, write })
    }
}

impl<H: Table> LinkSettings<H> {
    /// Joins two hosts' tables; nothing is set aside for ports.
    pub fn new(local: H, peer: H, local_is_first: bool) -> LinkSettings<H> {
        LinkSettings {
            local,
            peer,
            local_is_first,
            ports: PortBytes::default(),
        }
    }

    /// The local host's windows, doorbells and times.
    ///
    /// # Errors
    /// The first mistake found.
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
                    if self.local.is_short() { "length" } else { key },
                    format!(
                        "this host's {key} window has {} bytes, the peer's {their_key} window has {}",
                        own.length, theirs.length
                    ),
                    "give both hosts the same length: they are the two views of one window",
                ));
            }
        }
        if local.read.overlaps(&local.write) {
            return Err(error(
                true,
                "write",
                format!("the two windows overlap in {}", local.read.source),
                "move one of them by its `offset`",
            ));
        }
        contract::validate_heartbeat(
            (self.local.heartbeat(), self.local.timeout()),
            (self.peer.heartbeat(), self.peer.timeout()),
        )?;
        let [doorbell, peer_doorbell] = self.local.doorbells(&local, &self.peer, &peer)?;
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
