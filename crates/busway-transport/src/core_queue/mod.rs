//! The gateway's ends of a queuing channel to a real-time core, which has no gateway and uses
//! `c/include/busway/port.h`.
//!
//! Contract: the channel lies in shared memory, at offsets that follow from the system file. The
//! source's part is a line and a ring, the destination's a line and the ring's credits. Each part
//! is written by its own end only. A line, in 64-bit words:
//!
//! ```text
//! offset 0     session   of the end that writes the line, not 0; a new one voids the old
//! offset 8     echo      the session of the other end that this end last accepted
//! offset 16    key       of the channel's description: rejects what another configuration left
//! offset 24    ping      a number that the other end repeats; 0 until this end asks
//! offset 32    pong      the last ping that this end has seen
//! ```
//!
//! **Sessions.** The ring's first position follows from both sessions. So the ends find each other
//! after a restart of either, and old entries are not taken for messages. The source sends once the
//! destination echoes its session.
//!
//! **Losses at a restart.** If the source restarts, the destination first takes what is left in the
//! ring: none. If the destination restarts with a new session, the source counts what was not
//! released ([`Tally::lost`]). That may include messages taken but not yet credited, at most a
//! quarter of the ring. [`Destination`] resumes its former session instead: messages that it then
//! delivers twice have the same origin and number, and its user drops them.
//!
//! **Heartbeat.** A core answers pings when it uses the channel ([`Watch`]): it needs no clock.
//!
//! Nothing here waits, logs, or allocates after construction. Lanes use [`Source`] and
//! [`Destination`], the control thread a [`Watch`].

mod destination;
mod source;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};

use busway_core::{LINE_BYTES, OutOfBounds, RemoteWrite, Window};
pub use destination::Destination;
pub use source::Source;
pub use watch::{State, Watch};

use crate::contract::ChannelError;
use crate::contract::{MapError, PortMemory, PortPlace};

const SESSION: usize = 0;
const ECHO: usize = 8;
const KEY: usize = 16;
const PING: usize = 24;
const PONG: usize = 32;

/// Length of an end's line in bytes: ring or credits follow it.
pub const END_BYTES: usize = LINE_BYTES;

/// Counters of an end. Relaxed: each is read alone.
#[derive(Debug, Default)]
pub struct Tally {
    /// See [`Tally::lost`].
    lost: AtomicU64,
    /// See [`Tally::meetings`].
    meetings: AtomicU64,
}

impl Tally {
    /// Messages in the ring that the destination had not credited when it restarted.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// How often the other end began a session.
    pub fn meetings(&self) -> u64 {
        self.meetings.load(Ordering::Relaxed)
    }
}

/// A channel's memory: the part that this end writes, and the part that the other end writes.
#[derive(Clone, Debug)]
pub struct Ends {
    own: Window,
    other: Window,
    /// Identifies the channel's description.
    key: u64,
    /// Keep the memory behind the windows; `None` where it is never unmapped.
    _memory: Option<[PortMemory; 2]>,
}

/// Where one end's part of a channel lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The memory that this host set aside, or the other one.
    pub place: PortPlace,
    /// Where the part begins in it, in bytes, a multiple of 64.
    pub offset_bytes: usize,
    /// Its length in bytes.
    pub len_bytes: usize,
}

impl Part {
    fn open(&self) -> Result<(Window, PortMemory), OpenError> {
        let memory = self.place.open()?;
        let window = memory.part(self.offset_bytes, self.len_bytes);
        Ok((window.ok_or(OpenError::Outside)?, memory))
    }
}

/// Why the memory of a channel can't be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file or device can't be had: which, and why.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The memory set aside is shorter than the system file says: both hosts need the same file.
    #[error(
        "the channel lies outside of the memory that is set aside for it; give every host the same system file"
    )]
    Outside,
}

impl Ends {
    /// Maps both parts: `own` for writing.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(own: &Part, other: &Part, key: u64) -> Result<Ends, OpenError> {
        let (own, own_memory) = own.open()?;
        let (other, other_memory) = other.open()?;
        Ok(Ends {
            own,
            other,
            key,
            _memory: Some([own_memory, other_memory]),
        })
    }

    /// Of windows whose memory outlives them.
    pub fn of_windows(own: Window, other: Window, key: u64) -> Ends {
        Ends {
            own,
            other,
            key,
            _memory: None,
        }
    }
}

/// What an end does to find the other one.
#[derive(Debug)]
struct Meeting {
    ends: Ends,
    session: u64,
    /// The other end's session as it was answered; 0 for none.
    answered: u64,
    /// The ping that was repeated last.
    pong: u64,
}

impl Meeting {
    fn new(ends: Ends, session: u64) -> Result<Meeting, OutOfBounds> {
        let mut meeting = Meeting {
            ends,
            session,
            answered: 0,
            pong: 0,
        };
        meeting.tell(ECHO, 0)?;
        meeting.tell(PONG, 0)?;
        meeting.tell(KEY, meeting.ends.key)?;
        meeting.tell(SESSION, session)?;
        meeting.ends.own.flush();
        Ok(meeting)
    }

    /// The handshake of the previous process, if both ends are as it left them.
    fn resume(ends: &Ends) -> Result<Option<Meeting>, OutOfBounds> {
        let session = ends.own.load(SESSION)?;
        let answered = ends.own.load(ECHO)?;
        let is_whole = session != 0
            && answered != 0
            && ends.own.load(KEY)? == ends.key
            && ends.other.load_acquire(KEY)? == ends.key
            && ends.other.load_acquire(SESSION)? == answered
            && ends.other.load_acquire(ECHO)? == session;
        Ok(is_whole.then(|| Meeting {
            ends: ends.clone(),
            session,
            answered,
            pong: 0,
        }))
    }

    /// Stores a word after all earlier stores. Partner: the other end's acquiring load.
    fn tell(&mut self, at: usize, word: u64) -> Result<(), OutOfBounds> {
        self.ends.own.write_fence();
        self.ends.own.store(at, word)
    }

    /// The other end's session, 0 if there is none of this channel. Repeats its ping.
    fn other(&mut self) -> Result<u64, OutOfBounds> {
        let session = self.ends.other.load_acquire(SESSION)?;
        if session == 0 || self.ends.other.load_acquire(KEY)? != self.ends.key {
            return Ok(0);
        }
        let ping = self.ends.other.load(PING)?;
        if ping != self.pong {
            self.pong = ping;
            self.tell(PONG, ping)?;
            self.ends.own.flush();
        }
        Ok(session)
    }

    fn answer(&mut self, session: u64) -> Result<(), OutOfBounds> {
        self.answered = session;
        self.tell(ECHO, session)?;
        self.ends.own.flush();
        Ok(())
    }
}

/// First position of the ring between two sessions.
fn start(source: u64, destination: u64) -> u64 {
    source.rotate_left(23) ^ destination.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The memory is shorter than its description, which no peer can cause.
fn too_short(_: OutOfBounds) -> ChannelError {
    ChannelError::Corrupt("the window ends before the channel does")
}
