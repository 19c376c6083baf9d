//! A sampling channel's register in the memory of another host, written by the source's own
//! processes.
//!
//! Contract: the source's process writes the channel's register in its own store first, and then,
//! under the same lock, every far one; it never reads far memory. The other host's partitions read
//! it where it lies. No gateway takes part, except that it estimates the offset of the clocks where
//! nothing else keeps them together. Called by [`super::sampling`].
//!
//! The register's first line, of which the core's protocol uses the first word, has three words
//! more:
//!
//! ```text
//! offset 8     session    u64, not 0: drawn once for the source's store; sequences count from it
//! offset 16    key        u64, of the channel's description: what another configuration left behind is not taken for a message
//! offset 24    boot       u64, of the kernel that the source runs on: whoever runs on the same one has the same clock
//! ```
//!
//! They are written with every message, next to the word that publishes it, so a host whose memory
//! was lost has them again with the next.
//!
//! **Sessions.** When the source's host restarts, its sequences begin again, behind another session
//! number. The first write of a session announces it by storing `latest = session` before it
//! touches a slot: a reader of the session before finds that `latest` jumped, and rejects what it
//! was copying.
//!
//! **Gaps.** A far register may miss messages: the process that wrote them was killed in between.
//! The store has the sequence that was written there last
//! ([`copies`](crate::store::layout::copies)); if it is not the one before, `latest` is moved up to
//! that one first. So a slot is never written before `latest` is one message behind it, which is
//! what the readers' check relies on (`busway_core::register`).

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use busway_core::register::{Layout, RegisterWriter, Sample};
use busway_core::{RemoteError, RemoteWrite, Window};
use busway_system as file;
use busway_transport::contract::PortMemory;

use super::sampling::START;
use crate::config::{Clock, FarMemory};
use crate::crash::Steps;
use crate::peer_clock;
use crate::store::layout::copies;
use crate::sync::Ordering;
use crate::sys::{Area, View};

const SESSION: usize = 8;
const KEY: usize = 16;
const BOOT: usize = 24;

/// Bits of a message's number that count messages; those above distinguish sessions.
const COUNT_BITS: u32 = 48;

/// The writing end of one far register.
#[derive(Debug)]
pub(crate) struct FarWriter {
    window: Window,
    /// Keeps the memory behind `window`.
    _memory: PortMemory,
    layout: Layout,
    key: u64,
    clock: file::Clock,
    /// The channel's [`copies`], and this one's place among them.
    control: Area,
    index: usize,
}

/// Far memory in which each word that publishes is preceded by the header.
struct Headed {
    inner: Steps,
    session: u64,
    key: u64,
}

impl RemoteWrite for Headed {
    fn len_bytes(&self) -> usize {
        self.inner.len_bytes()
    }

    #[inline]
    fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError> {
        self.inner.write(offset, header, parts)
    }

    #[inline]
    fn fence(&mut self) {
        self.inner.fence();
    }

    /// A register publishes nothing but its index, which lies in the header's line: the line is
    /// fetched once for all.
    #[inline]
    fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        self.inner.0.publish(SESSION, self.session)?;
        self.inner.0.publish(KEY, self.key)?;
        self.inner.0.publish(BOOT, boot())?;
        self.inner.publish(offset, word)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }
}

impl FarWriter {
    /// The register `far`, mapped as `memory`. `control` are the channel's copies, `index` is this
    /// one's place among them. `None` if `memory` is too small.
    pub(crate) fn new(
        memory: PortMemory,
        far: &FarMemory,
        layout: Layout,
        control: Area,
        index: usize,
    ) -> Option<Self> {
        // Asked for once, before the first write that needs it.
        boot();
        Some(Self {
            window: memory.part(far.offset_bytes, layout.required_bytes())?,
            _memory: memory,
            layout,
            key: far.key,
            clock: far.clock,
            control,
            index,
        })
    }

    /// Writes `message`, which has the source time `time_ns` (`CLOCK_MONOTONIC`) and follows the
    /// message `before`, for the holder of the port's lock. `false` if the memory did not take it.
    #[inline]
    pub(crate) fn write(&self, message: &[u8], time_ns: i64, before: u64) -> bool {
        let session = self.session();
        let mut memory = Headed {
            inner: Steps(self.window.clone()),
            session,
            key: self.key,
        };
        let written = self.control.word(copies::WRITTEN + 8 * self.index);
        let latest = session.wrapping_add(before);
        // Relaxed throughout: the words are written under the port's lock, which orders them.
        if before == START || written.load(Ordering::Relaxed) != before {
            if self.layout.prepare(&mut memory, latest).is_err() {
                return false;
            }
            crate::crash::step("far-announced");
        }
        let stamp_ns = match self.clock {
            file::Clock::Ptp => Clock::Tai.now_ns(),
            file::Clock::Estimated => time_ns,
        };
        let Ok(mut writer) = RegisterWriter::resume(memory, self.layout, session, latest) else {
            return false;
        };
        if writer.write(&[message], stamp_ns as u64).is_err() {
            return false;
        }
        crate::crash::step("far-written");
        written.store(before.wrapping_add(1), Ordering::Relaxed);
        true
    }

    fn session(&self) -> u64 {
        let word = self.control.word(copies::SESSION);
        let session = word.load(Ordering::Relaxed);
        if session != 0 {
            return session;
        }
        let drawn = RandomState::new().hash_one(Clock::Monotonic.now_ns()).max(1);
        word.store(drawn, Ordering::Relaxed);
        drawn
    }
}

/// Where the messages of a reading end come from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// The host's own store.
    Store(Clock),
    /// Another host's partition.
    Far(FarOrigin),
}

/// Another host's partition.
#[derive(Debug)]
pub(crate) struct FarOrigin {
    /// Keeps the memory.
    _memory: PortMemory,
    key: u64,
    clock: file::Clock,
    /// Head of the file of the partition that stands for that host.
    head: View,
}

impl FarOrigin {
    pub(crate) fn new(memory: PortMemory, far: &FarMemory, head: View) -> Self {
        boot();
        Self {
            _memory: memory,
            key: far.key,
            clock: far.clock,
            head,
        }
    }

    /// Source time in ns of the clock of [`Origin::clock`].
    fn time_ns(&self, window: &Window, stamp: u64) -> i64 {
        let stamp_ns = stamp as i64;
        if self.clock == file::Clock::Ptp || window.load(BOOT).ok() == Some(boot()) {
            return stamp_ns;
        }
        let now_ns = Clock::Monotonic.now_ns();
        match peer_clock::load(&self.head) {
            Some(clock) => clock.to_local_ns(stamp_ns, now_ns),
            // Of an unknown age: older than any refresh period.
            None => i64::MIN,
        }
    }
}

impl Origin {
    /// Sequence before the first message of the session that `window` is in; `None` if nothing of
    /// this channel was ever written there.
    #[inline]
    pub(crate) fn session(&self, window: &Window) -> Option<u64> {
        match self {
            Origin::Store(_) => Some(START),
            Origin::Far(far) => {
                if window.load(KEY).ok()? != far.key {
                    return None;
                }
                window.load(SESSION).ok().filter(|session| *session != 0)
            }
        }
    }

    /// The clock of source times.
    #[inline]
    pub(crate) fn clock(&self) -> Clock {
        match self {
            Origin::Store(clock) => *clock,
            Origin::Far(far) if far.clock == file::Clock::Ptp => Clock::Tai,
            Origin::Far(_) => Clock::Monotonic,
        }
    }

    /// Source time of a message in ns of [`clock`](Self::clock).
    #[inline]
    pub(crate) fn time_ns(&self, window: &Window, sample: Sample) -> i64 {
        match self {
            Origin::Store(_) => sample.time_ns as i64,
            Origin::Far(far) => far.time_ns(window, sample.time_ns),
        }
    }

    /// Number of a message: grows within a session, and distinguishes sessions (by 16 bits).
    #[inline]
    pub(crate) fn number(&self, session: u64, sequence: u64) -> u64 {
        match self {
            Origin::Store(_) => sequence,
            Origin::Far(_) => {
                let count = sequence.wrapping_sub(session) & ((1 << COUNT_BITS) - 1);
                session << COUNT_BITS | count
            }
        }
    }
}

/// Whether the message `number` is not older than `other`: of the same session and not before it.
#[inline]
pub(crate) fn is_since(number: u64, other: u64) -> bool {
    number >> COUNT_BITS == other >> COUNT_BITS && number >= other
}

/// How many messages lie between `before` and the later `number`; none if they are of two sessions.
#[inline]
pub(crate) fn between(before: u64, number: u64) -> u64 {
    if number >> COUNT_BITS == before >> COUNT_BITS {
        number.wrapping_sub(before).wrapping_sub(1)
    } else {
        0
    }
}

/// A number for the running kernel and its view of `CLOCK_MONOTONIC` (time namespaces shift it):
/// equal numbers, equal clocks. Drawn at random if the kernel does not say; then nobody has the
/// same.
pub(super) fn boot() -> u64 {
    static BOOT: OnceLock<u64> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let Ok(boot) = std::fs::read("/proc/sys/kernel/random/boot_id") else {
            return RandomState::new().hash_one("no boot identifier").max(1);
        };
        // Missing where the kernel has no time namespaces.
        let shift = std::fs::read("/proc/self/timens_offsets").unwrap_or_default();
        let mut digest = crate::config::DIGEST.digest();
        digest.update(&boot);
        digest.update(&shift);
        digest.finalize().max(1)
    })
}
