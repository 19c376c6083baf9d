//! A register of the port store that the peer writes, over a bus that reaches registered memory.
//!
//! Contract: the receiving host gives a link the register of a sampling channel, the memory in
//! which its programs read ([`Link::open_register`](super::Link::open_register)). The peer's
//! sender writes each message there; nothing on the receiving host runs for a message. While the
//! receiving end lives nobody else writes the register, and once that end is dropped the peer can
//! reach it no more.
//!
//! Both ends count in step: the message with the number `n` of its source has the register's
//! sequence `latest + (n - numbers.newest)`. So the receiving host knows afterwards which messages
//! it has, although it has seen none.

use std::fmt;

use busway_core::register;

use super::one_sided::PortMemory;

/// Whose numbers messages carry, and the newest of them that counts as delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceNumbers {
    /// Names the source's store; 0: none yet.
    pub origin: u64,
    /// Number of a message; messages after it are new.
    pub newest: u64,
}

/// What the receiving host notes before the peer may write.
pub type BeginWriting = Box<dyn FnOnce(SourceNumbers) + Send>;

/// See the module.
pub struct LandingRegister {
    /// The register and nothing else: the peer can write every byte of it.
    pub memory: PortMemory,
    /// Its shape.
    pub layout: register::Layout,
    /// Sequence before the first message of the register's session.
    pub start: u64,
    /// Sequence of the newest message.
    pub latest: u64,
    /// The source that this host had messages of last, and the newest of them.
    pub numbers: SourceNumbers,
    /// Called with the sender's numbers before it may write. They come from the peer.
    pub begin: BeginWriting,
}

impl fmt::Debug for LandingRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LandingRegister")
            .field("layout", &self.layout)
            .field("latest", &self.latest)
            .field("numbers", &self.numbers)
            .finish_non_exhaustive()
    }
}
