//! What a bus gives to the registry: its name, its tables in the system file, and links.
//!
//! Contract: a type implements [`Bus`]; `buses!` in the crate `busway-buses` lists it. The settings
//! of a link implement [`LinkSettings`], from which the system file, `busway check` and the ports
//! learn what they need to know of the bus. What a bus does not have has a default.

use std::fmt::Debug;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::addresses::Addresses;
use super::link::{Link, LinkIdentity, OpenError};
use super::message::Message;
use super::needs::{FileUse, Finding, WindowUse};
use super::one_sided::{Access, PortPlace};
use super::register_writer::RegisterDevicePlace;
use super::settings::{SettingError, Site};

/// A kind of bus.
pub trait Bus: Sized + 'static {
    /// The bus's name in the system file, such as `tcp`.
    const NAME: &'static str;

    /// Whether programs can write into the other host's memory over this bus: then its settings
    /// implement [`LinkSettings::port_place`].
    const IS_ONE_SIDED: bool = false;

    /// Whether both hosts can store, load and copy in coherent memory of the link as in their own:
    /// then programs can keep the rings of queuing channels there. It is one-sided as well.
    const SHARES_MEMORY: bool = false;

    /// Whether the sender of a channel of ports can write the register or the queue in the other
    /// host's port store: then its links have [`Link::open_register`] and [`Link::open_ring`].
    const WRITES_REGISTERS: bool = false;

    /// Whether a link needs memory that both hosts map: [`Site::window`].
    const NEEDS_WINDOW: bool = false;

    /// One host's table in the system file: `tcp.vision = { … }`.
    type HostSettings: Clone + Debug + Default + DeserializeOwned;

    /// The settings of one link, as one of its hosts sees them.
    type LinkSettings: LinkSettings + Clone;

    /// What all links of one process share, such as a listener.
    type Shared: Default;

    /// Joins the tables of both hosts. `local_is_first` says whether this host comes first in the
    /// link's `hosts`; the two hosts differ in it.
    fn join(local: Self::HostSettings, peer: Self::HostSettings, local_is_first: bool) -> Self::LinkSettings;

    /// The lines that a `[[link]]` over this bus needs at `site`, beside `hosts` and `buses`.
    fn link_lines(site: &Site<'_>) -> String;

    /// What this machine lacks for the bus, and how to get it, as the end of "needs …".
    fn missing() -> Option<String> {
        None
    }

    /// Opens a link to `peer_host`. From then on the link tries to come up, whether or not the peer
    /// is there.
    ///
    /// # Errors
    /// Only what can't change by itself: invalid settings, no descriptors left.
    fn open<M: Message>(
        shared: &Self::Shared,
        identity: &LinkIdentity,
        settings: &Self::LinkSettings,
        peer_host: &str,
    ) -> Result<Box<dyn Link<M>>, OpenError>;
}

/// What the settings of a link describe. Call everything but [`validate`](Self::validate) on valid
/// settings only.
pub trait LinkSettings: Debug {
    /// Checks the tables of both hosts, each alone and against each other.
    ///
    /// # Errors
    /// The first mistake found.
    fn validate(&self) -> Result<(), SettingError>;

    /// The addresses that a bus over an IP network uses.
    fn addresses(&self) -> Option<Addresses> {
        None
    }

    /// The memory that this host maps.
    fn windows(&self) -> Vec<WindowUse> {
        Vec::new()
    }

    /// What `busway check` prints after the bus's name where there are neither addresses nor
    /// windows.
    fn details(&self) -> String {
        String::new()
    }

    /// Looks on this machine for what the link needs. Creates, maps and occupies nothing.
    fn check_here(&self) -> Vec<Finding> {
        self.addresses()
            .map_or(Vec::new(), |addresses| addresses.check_here())
    }

    /// The files that this host would map, found on this machine.
    fn files_here(&self) -> Vec<FileUse> {
        Vec::new()
    }

    /// The most bytes that can be set aside for ports in the memory that this host reads or writes.
    fn port_room_bytes(&self, _access: Access) -> u64 {
        0
    }

    /// Sets bytes aside for ports: multiples of 128, at most
    /// [`port_room_bytes`](Self::port_room_bytes) of each.
    fn set_port_bytes(&mut self, _read_bytes: u64, _write_bytes: u64) {}

    /// The memory that was set aside; `None` if none was.
    fn port_place(&self, _access: Access) -> Option<PortPlace> {
        None
    }

    /// Whether messages in a register or queue that the peer's device writes carry a checksum:
    /// the device may place their bytes in any order. Means nothing unless
    /// [`Bus::WRITES_REGISTERS`].
    fn checks_registers(&self) -> bool {
        true
    }

    /// The device by which programs of this host write registers of the peer's port store
    /// themselves; `None` where only the gateway does. Means nothing unless
    /// [`Bus::WRITES_REGISTERS`].
    fn register_device(&self) -> Option<RegisterDevicePlace> {
        None
    }

    /// Silence after which a core, a host without a conversation, counts as stopped. Means nothing
    /// where there is no memory for ports.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }
}
