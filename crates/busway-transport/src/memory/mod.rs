//! The memory bus: two windows of shared memory, one for each direction.
//!
//! A window is a range of a file in `/dev/shm`, of a PCI resource file, of `/dev/mem` or of a UIO device. One host writes it and
//! the other reads it, so that a window may lie behind a bus over which reading is slow or impossible, and may be mapped
//! read-only by its reader. `layout.rs` says what lies where, `link.rs` how two hosts find each other, `crate::remote_write` what a
//! channel consists of, `bell.rs` how a sleeper is woken.
//!
//! ```text
//! link ── conversation ── talk                      control thread
//!   │          ├── landings ── allocator, place
//!   │          └── crate::remote_write ── way ─ gate, bell ── armed      lanes
//!   └── header, mapping ── tables ── source, layout
//! ```
//!
//! The bus `pci` is this one with other tables in the system file ([`tables::Table`]) and other sources ([`source::Source`]).

pub mod settings;
pub mod source;
pub mod tables;

mod allocator;
mod armed;
pub(crate) mod bell;
mod conversation;
mod gate;
mod header;
mod landings;
mod layout;
mod link;
pub(crate) mod mapping;
mod place;
mod set_aside;
mod sync;
mod talk;
mod way;

use crate::contract::{self, Link, LinkIdentity, Message, OpenError, Site};
use settings::{HostSettings, LinkSettings};

pub use link::MemoryLink;

/// The bus.
pub struct Memory;

impl contract::Bus for Memory {
    const NAME: &'static str = "memory";
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
        MemoryLink::open(Self::NAME, settings, identity, peer_host)
    }
}

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn decode_place(bytes: &[u8]) {
    let layout = layout::WindowLayout::new(1 << 20).expect("long enough");
    if let Ok(place) = place::LandingPlace::decode(bytes)
        && let Ok((parts, at)) = place.check(&layout)
    {
        assert!(at + parts.total_bytes <= 1 << 20, "a place outside its window");
    }
}
