//! The bus `rdma-write`: the remote-write protocols, whose stores are WRITEs of a queue pair.
//!
//! A sender writes ring lines, payload and register slots into registered memory of the receiver;
//! the receiver writes credits into registered memory of the sender. Each reads its own memory
//! only. The link is that of all RDMA buses (`super::link`), the channel ends are those of all
//! remote-write buses (`crate::remote_write`). A sampling channel of ports needs no software at the
//! receiver: its sender writes the register in the port store (`register`).
//!
//! | module     | what it does                                       | runs on        |
//! |------------|----------------------------------------------------|----------------|
//! | `place`    | how each end describes its memory to the other     | control thread |
//! | `described` | puts such descriptions into bytes                 | control thread |
//! | `channels` | makes the ends                                     | control thread |
//! | `pipe`     | a queue pair as far memory                         | lanes          |
//! | `far_memory` | what a pipe may write                           | lanes          |
//! | `register` | makes the ends of a channel into the port store    | control thread |
//! | `register_sender` | the end that writes it                      | lanes          |
//! | `own_device` | connects that end for a program without gateway  | its own thread |
//! | `ring`     | makes the ends of a queue in the port store        | control thread |
//! | `ring_sender`, `ring_receiver` | these ends                     | lanes          |
//! | `wake`     | the wake-up protocol between the two ends          | lanes          |
//! | `waker`    | carries that protocol out over a pipe              | lanes          |
//! | `access`   | what the remote-write ends ask of a bus            | lanes          |
//!
//! Payload and the word that publishes it are two WRITEs of one queue pair. InfiniBand and RoCE
//! make them visible in order in memory registered without relaxed ordering; nothing relies on the
//! order of bytes within one WRITE. iWARP promises no such order (RFC 5040, section 5.5): there
//! messages carry checksums, and the receiver waits until the checksum fits. A setting forces
//! either way. A message with a checksum needs no WRITE of its own to publish it, so short messages
//! go in one WRITE over every transport (`place::ONE_WRITE_BYTES`, `SHORT_BYTES` in `channels`).

mod access;
mod channels;
mod described;
mod far_memory;
mod own_device;
mod pipe;
mod place;
mod register;
mod register_sender;
mod ring;
mod ring_receiver;
mod ring_sender;
mod ring_words;
pub mod settings;
mod wake;
mod waker;

use crate::contract::{self, Link, LinkIdentity, Message, OpenError, Site};
use channels::{Always, ByTransport, Never, WriteChannels, part, refused, staging_for, text, window_of};
use settings::{HostSettings, LinkSettings};

/// The bus.
pub struct RdmaWrite;

impl contract::Bus for RdmaWrite {
    const NAME: &'static str = "rdma-write";
    const WRITES_REGISTERS: bool = true;

    type HostSettings = HostSettings;
    type LinkSettings = LinkSettings;
    type Shared = super::link::Shared;

    fn join(local: HostSettings, peer: HostSettings, local_is_first: bool) -> LinkSettings {
        LinkSettings {
            link: super::settings::LinkSettings::new(local.link, peer.link, local_is_first),
            checked: local.checked,
            partition_writes: local.partition_writes,
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
    let _ = register::RegisterPlace::decode(bytes);
    let _ = register::decode_request(bytes, Default::default());
    let _ = ring::RingPlace::decode(bytes);
    let _ = ring::decode_request(bytes, Default::default());
}
