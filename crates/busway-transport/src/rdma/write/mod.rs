//! The bus `rdma-write`: the remote-write protocols, whose stores are WRITEs of a queue pair.
//!
//! A sender writes ring lines, payload and register slots into registered memory of the receiver, the receiver credits into
//! registered memory of the sender; each reads its own memory only, and a sampling channel needs no software at the receiver. The
//! link is the one of all RDMA buses (`super::link`), the channel ends are those of all remote-write buses
//! (`crate::remote_write`); this folder joins the two.
//!
//! | module      | what it does                                                             | runs on        |
//! |-------------|--------------------------------------------------------------------------|----------------|
//! | `place`   | what the ends tell each other of their memory                            | control thread |
//! | `channels` | makes the ends                                                           | control thread |
//! | `pipe`    | a queue pair as far memory                                               | lanes          |
//! | `wake`    | wishes and rings, so that nobody sleeps too long                         | lanes          |
//! | `access`     | what the channel ends ask of a bus                                       | lanes          |
//!
//! Payload and the word that publishes it are two WRITEs of one queue pair, which InfiniBand and RoCE make visible in order in memory
//! registered without relaxed ordering; nothing relies on the order of bytes within one WRITE. iWARP promises no such order (RFC 5040,
//! section 5.5), so there messages carry checksums and the receiver waits until they fit; a setting can force that either way. A message with a
//! checksum needs no WRITE of its own to publish it: short ones go in one, whatever the transport (`place::ONE_WRITE_BYTES`, `SHORT_BYTES`
//! in `channels`).

mod access;
mod channels;
mod pipe;
mod place;
pub mod settings;
mod wake;
mod waker;

use crate::contract::{self, Link, LinkIdentity, Message, OpenError, Site};
use channels::{Always, ByTransport, Never, WriteChannels};
use settings::{HostSettings, LinkSettings};

/// The bus.
pub struct RdmaWrite;

impl contract::Bus for RdmaWrite {
    const NAME: &'static str = "rdma-write";

    type HostSettings = HostSettings;
    type LinkSettings = LinkSettings;
    type Shared = super::link::Shared;

    fn join(local: HostSettings, peer: HostSettings, local_is_first: bool) -> LinkSettings {
        LinkSettings {
            link: super::settings::LinkSettings::new(local.link, peer.link, local_is_first),
            checked: local.checked,
        }
    }

    fn link_lines(site: &Site<'_>) -> String {
        site.listen_lines(Self::NAME)
    }

    fn missing() -> Option<String> {
        super::missing()
    }

    fn open<M: Message>(
        shared: &super::link::Shared,
        identity: &LinkIdentity,
        settings: &LinkSettings,
        peer_host: &str,
    ) -> Result<Box<dyn Link<M>>, OpenError> {
        let open = match settings.checked {
            None => super::link::open::<WriteChannels<ByTransport>, M>,
            Some(true) => super::link::open::<WriteChannels<Always>, M>,
            Some(false) => super::link::open::<WriteChannels<Never>, M>,
        };
        open(shared, identity, &settings.link, peer_host)
    }
}

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn decode_place(bytes: &[u8]) {
    let _ = place::LandingMemory::decode(bytes);
    let _ = place::decode_request(bytes);
}
