//! The PCI bus: windows in memory resources of PCI functions.
//!
//! The resource is a non-transparent bridge (each host writes the other's memory), or one shared
//! memory in the middle, as between virtual machines. Everything but the keys of the system file is
//! in [`crate::window`]. See `docs/decisions/014-pci.md`.

pub mod settings;

use crate::contract::{self, Link, LinkIdentity, Message, OpenError, Site};
use crate::window::WindowLink;
use settings::{HostSettings, LinkSettings};

/// The bus.
pub struct Pci;

impl contract::Bus for Pci {
    const NAME: &'static str = "pci";
    const IS_ONE_SIDED: bool = true;
    const NEEDS_WINDOW: bool = true;

    type HostSettings = HostSettings;
    type LinkSettings = LinkSettings;
    type Shared = ();

    fn join(local: HostSettings, peer: HostSettings, local_is_first: bool) -> LinkSettings {
        LinkSettings::new(local, peer, local_is_first)
    }

    fn link_lines(site: &Site<'_>) -> String {
        site.window_line(Self::NAME)
    }

    fn open<M: Message>(
        _shared: &(),
        identity: &LinkIdentity,
        settings: &LinkSettings,
        peer_host: &str,
    ) -> Result<Box<dyn Link<M>>, OpenError> {
        WindowLink::open(Self::NAME, settings, identity, peer_host)
    }
}
