//! The memory bus: windows in files of `/dev/shm`, in `/dev/mem`, in UIO devices or in PCI resource
//! files. Everything but the keys of the system file is in [`crate::window`].

pub mod settings;

use crate::contract::{self, Link, LinkIdentity, Message, OpenError, Site};
use crate::window::WindowLink;
use settings::{HostSettings, LinkSettings};

/// The bus.
pub struct Memory;

impl contract::Bus for Memory {
    const NAME: &'static str = "memory";
    const IS_ONE_SIDED: bool = true;
    const SHARES_MEMORY: bool = true;
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
