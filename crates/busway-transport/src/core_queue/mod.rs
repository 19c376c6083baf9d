//! The gateway's ends of a queuing channel to a real-time core: a program without a gateway that uses `c/include/busway/port.h`.
//!
//! Contract: the channel lies in memory that both see, at places that follow from the system file, so no conversation takes part. The source's
//! part is a line and a ring, the destination's a line and the ring's credits; each is written by its end alone. The lines, in 64-bit words:
//!
//! ```text
//! offset 0     session   of the end that writes the line, not 0; a new one voids all of the old
//! offset 8     echo      the session of the other end as this one last met it
//! offset 16    key       of the channel's description: what another configuration left behind is not taken for this channel
//! offset 24    ping      a number that the other end shall repeat; 0 until this end asks
//! offset 32    pong      the last ping that this end has seen
//! ```
//!
//! **Sessions.** The ring begins at a position that follows from both sessions, so each end finds the other after a restart of either, and nothing
//! that an earlier pair left is taken for a message. The source sends once the destination echoes its session.
//!
//! **What a restart loses.** If the source starts anew, the destination takes what the former one left in the ring before it meets the new one:
//! nothing. If the destination starts anew, what it had not taken: the source counts it ([`Tally::lost`]; what was taken and not yet credited
//! counts too, at most a quarter of the ring, since it can't be told apart). Except that [`Destination`] goes on where the process before it
//! stopped, since its line and credits outlive it; what comes twice then has the same origin and number, by which its user passes it over.
//!
//! **Heartbeat.** A core answers pings whenever it uses the channel ([`Watch`]); so it needs no clock, and writes no faster than it is asked.
//!
//! Nothing here waits, allocates after construction or logs. The gateway's lanes use [`Source`] and [`Destination`] as the ends of any channel,
//! its control thread a [`Watch`].

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

/// What an end counts; its user looks at it from elsewhere. Relaxed: each number stands alone.
#[derive(Debug, Default)]
pub struct Tally {
    /// See [`Tally::lost`].
    lost: AtomicU64,
    /// See [`Tally::meetings`].
    meetings: AtomicU64,
}

impl Tally {
    /// Messages in the ring that its destination had not released when it started anew, as far as its credits told.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Times that the end met another session of the other end.
    pub fn meetings(&self) -> u64 {
        self.meetings.load(Ordering::Relaxed)
    }
}

/// The memory of a channel as one of its ends sees it: what it writes, and what the other end writes.
#[derive(Clone, Debug)]
pub struct Ends {
    own: Window,
    other: Window,
    /// Tells the channel from others that may have lain there.
    key: u64,
    /// Keep the memory behind the windows; `None` where it lives for ever.
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
    /// The memory that the links set aside is shorter than the system file says: both hosts need the same file.
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

    /// A meeting of the process before, if both ends stand as it left them.
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

    /// Stores a word after everything before it. Partner: the load of the other end, and its fence behind that.
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

/// The memory is shorter than its description: a mistake of whoever described it, which no peer can provoke.
fn too_short(_: OutOfBounds) -> ChannelError {
    ChannelError::Corrupt("the window ends before the channel does")
}
