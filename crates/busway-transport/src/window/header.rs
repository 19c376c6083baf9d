//! The header of a window: its writer's identity, conversation and heartbeat.
//!
//! Contract: [`OwnHeader`] only writes the window that this host writes, [`PeerHeader`] only reads
//! the other. A peer's header is hostile. The own header is written again at every heartbeat, which
//! repairs one that was overwritten. Called by the control thread.

use busway_core::control::{self, Body, ByteOrder, Hello};
use busway_core::{OutOfBounds, Window};

use super::layout::{
    CONVERSATION_AT, ECHO_AT, HEARTBEAT_AT, HELLO_AT, HELLO_CHECK_AT, HELLO_LENGTH_AT, HELLO_MAX_BYTES,
    LENGTH_AT, MAGIC, MAGIC_AT, PROTOCOL_VERSION, RINGS_AT, VERSION_AT,
};
use crate::contract::{LinkIdentity, PeerHello};

/// The header that this host writes.
#[derive(Debug)]
pub struct OwnHeader {
    window: Window,
    hello: Vec<u8>,
    /// Number of this conversation, never 0.
    conversation: u64,
    echo: u64,
    heartbeat: u64,
    rings: u64,
}

impl OwnHeader {
    /// A header for `identity`; nothing is written yet.
    pub fn new(window: Window, identity: &LinkIdentity) -> Result<OwnHeader, String> {
        let hello = Hello {
            protocol_version: control::PROTOCOL_VERSION,
            byte_order: ByteOrder::NATIVE,
            session: identity.session,
            host: &identity.host,
            iceoryx2_version: &identity.application,
        };
        let mut bytes = vec![0; HELLO_MAX_BYTES];
        let length = control::encode(&Body::Hello(hello), &mut bytes).map_err(|error| error.to_string())?;
        bytes.truncate(length);
        Ok(OwnHeader {
            window,
            hello: bytes,
            conversation: 0,
            echo: 0,
            heartbeat: 0,
            rings: 0,
        })
    }

    /// Begins a conversation: everything of the one before is void.
    pub fn begin(&mut self, conversation: u64) {
        self.echo = 0;
        self.rings = 0;
        // The peer must not take the new number with the old echo.
        self.publish(CONVERSATION_AT, 0);
        self.conversation = conversation;
        self.write_all();
    }

    /// Echoes the peer's conversation, and reports whether this host can ring it.
    pub fn answer(&mut self, peer_conversation: u64, rings: bool) {
        self.rings = if rings { peer_conversation } else { 0 };
        self.echo = peer_conversation;
        // All of it, the conversation before the echo. If the link was dead when this conversation
        // began, the old number is still there, and the peer must not take it with the new echo.
        self.write_all();
    }

    /// Shows that this host lives, and mends the header.
    pub fn beat(&mut self) {
        self.heartbeat = self.heartbeat.wrapping_add(1);
        self.write_all();
    }

    /// Reports to the peer that this host closes the link.
    pub fn leave(&mut self) {
        self.publish(CONVERSATION_AT, 0);
        self.publish(ECHO_AT, 0);
    }

    pub fn conversation(&self) -> u64 {
        self.conversation
    }

    fn write_all(&mut self) {
        self.store(MAGIC_AT, MAGIC);
        self.store(VERSION_AT, PROTOCOL_VERSION);
        self.store(LENGTH_AT, self.window.len_bytes() as u64);
        self.store(HELLO_LENGTH_AT, self.hello.len() as u64);
        self.store(HELLO_CHECK_AT, checksum(self.conversation, &self.hello));
        // WriteGuard: a window is never shorter than its header.
        let _ = self.window.write(HELLO_AT, &[], &[&self.hello]);
        self.store(HEARTBEAT_AT, self.heartbeat);
        self.publish(CONVERSATION_AT, self.conversation);
        self.publish(RINGS_AT, self.rings);
        self.publish(ECHO_AT, self.echo);
        self.window.write_fence();
    }

    fn store(&self, at: usize, word: u64) {
        let _ = self.window.store(at, word);
    }

    /// Stores a word after everything before it. Partner: the fences in [`PeerHeader::read`].
    fn publish(&self, at: usize, word: u64) {
        self.window.write_fence();
        self.store(at, word);
    }
}

/// Whether a header word that is never all ones reads so, as from a PCI link that is down or a
/// function in reset. One is enough: the link may fail or return between two loads.
pub fn reads_all_ones(window: &Window) -> bool {
    [MAGIC_AT, CONVERSATION_AT, ECHO_AT]
        .into_iter()
        .any(|at| window.load(at) == Ok(u64::MAX))
}

/// A peer's header.
#[derive(Debug, PartialEq, Eq)]
pub enum PeerHeader {
    /// Nothing yet, or something half written: look again later.
    Absent,
    /// A header that this host can't use: why.
    Unusable(String),
    Present {
        /// Number of its conversation, never 0.
        conversation: u64,
        hello: PeerHello,
    },
}

/// The words of a peer's header that change while a conversation lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerPulse {
    /// Number of the peer's conversation.
    pub conversation: u64,
    /// The conversation of this host that the peer has seen.
    pub echo: u64,
    /// The peer's heartbeat counter.
    pub heartbeat: u64,
    /// The conversation of this host in which the peer can ring; 0 if it can't.
    pub rings: u64,
}

impl PeerPulse {
    /// Loads the echo first: if it is this host's conversation, the rest is at least as new.
    pub fn read(window: &Window) -> Result<PeerPulse, OutOfBounds> {
        let echo = window.load_acquire(ECHO_AT)?;
        let rings = window.load_acquire(RINGS_AT)?;
        let conversation = window.load_acquire(CONVERSATION_AT)?;
        let heartbeat = window.load(HEARTBEAT_AT)?;
        Ok(PeerPulse {
            conversation,
            echo,
            heartbeat,
            rings,
        })
    }
}

impl PeerHeader {
    /// Reads the header; `peer_host` is the name that the peer must have.
    pub fn read(window: &Window, peer_host: &str) -> Result<PeerHeader, OutOfBounds> {
        // The number before everything else, and once more after it. Partner: `OwnHeader::publish`.
        let conversation = window.load_acquire(CONVERSATION_AT)?;
        let magic = window.load(MAGIC_AT)?;
        if magic == MAGIC.swap_bytes() {
            return unusable(format!(
                "{peer_host} has another byte order than this host: its window can't be read here"
            ));
        }
        if conversation == 0 || magic != MAGIC {
            // Something else, or nothing: a fresh file, or a header that its writer will mend.
            return Ok(PeerHeader::Absent);
        }
        let version = window.load(VERSION_AT)?;
        let length_bytes = window.load(LENGTH_AT)?;
        let hello_bytes = window.load(HELLO_LENGTH_AT)?;
        let check = window.load(HELLO_CHECK_AT)?;
        let mut hello = [0; HELLO_MAX_BYTES];
        let hello = match usize::try_from(hello_bytes)
            .ok()
            .and_then(|length| hello.get_mut(..length))
        {
            Some(hello) => hello,
            None => return Ok(PeerHeader::Absent),
        };
        window.read(HELLO_AT, hello)?;
        window.read_fence();
        if window.load(CONVERSATION_AT)? != conversation {
            return Ok(PeerHeader::Absent);
        }
        if version != PROTOCOL_VERSION {
            return unusable(format!(
                "{peer_host} speaks version {version} of the window protocol, this host version {PROTOCOL_VERSION}: \
                 run the same Busway on both"
            ));
        }
        if check != checksum(conversation, hello) {
            return Ok(PeerHeader::Absent);
        }
        if length_bytes != window.len_bytes() as u64 {
            return unusable(format!(
                "{peer_host} writes a window of {length_bytes} bytes, this host reads one of {}: give both the same `length`, \
                 and the same sampling channels, whose registers lie behind it",
                window.len_bytes()
            ));
        }
        Ok(judge(conversation, hello, peer_host))
    }
}

fn unusable(why: String) -> Result<PeerHeader, OutOfBounds> {
    Ok(PeerHeader::Unusable(why))
}

/// Checks a hello whose checksum is right.
fn judge(conversation: u64, hello: &[u8], peer_host: &str) -> PeerHeader {
    let hello = match control::decode(hello) {
        Ok(Some((Body::Hello(hello), _))) => hello,
        Ok(_) => return PeerHeader::Absent,
        Err(error) => {
            return PeerHeader::Unusable(format!("{peer_host} greets in a way unknown here: {error}"));
        }
    };
    if hello.protocol_version != control::PROTOCOL_VERSION {
        return PeerHeader::Unusable(format!(
            "{peer_host} speaks version {} of the control protocol, this host version {}: run the same Busway on both",
            hello.protocol_version,
            control::PROTOCOL_VERSION
        ));
    }
    if hello.host != peer_host {
        return PeerHeader::Unusable(format!(
            "the host on the other side of the window calls itself `{}`, the system file says `{peer_host}`: \
             check which device each host names",
            hello.host
        ));
    }
    PeerHeader::Present {
        conversation,
        hello: PeerHello {
            host: hello.host.into(),
            session: hello.session,
            application: hello.iceoryx2_version.into(),
        },
    }
}

/// FNV-1a over the conversation and the hello: detects a hello that is incomplete or overwritten.
fn checksum(conversation: u64, hello: &[u8]) -> u64 {
    let bytes = conversation.to_ne_bytes();
    bytes
        .iter()
        .chain(hello)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}
