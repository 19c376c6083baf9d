//! A queue in memory that the hosts of source and destination share.
//!
//! Contract: the queue of one destination port, as inside a host ([`super::queuing`]): the source's
//! processes send into the ring and wake the receiver, the destination's processes receive from it
//! and wake a sender that waits for room. No gateway takes part. Each host writes its own part
//! only:
//!
//! ```text
//! source's part
//! offset 0     session   u64, not 0: drawn for the source's store; 0 while a new one is prepared
//! offset 8     key       u64, of the queue's description: memory that was reset, or that another
//!                        configuration left behind, is no queue
//! offset 16    boot      u64, of the kernel that the source runs on: a futex reaches whoever runs
//!                        on the same one
//! offset 24    met       u64, 1 once the source has seen that the destination has this session,
//!                        else 0
//! offset 64    waiting   u64, processes that wait for room
//! offset 128   the writer's words, as in a channel's file (`store::layout::writer`)
//! offset 256   the ring
//!
//! destination's part
//! offset 0     session   u64, the one that positions and credits belong to; 0: none
//! offset 8     key       as above
//! offset 16    boot      u64, of the kernel that the destination runs on
//! offset 64    waiting   u64, processes that wait for a message
//! offset 128   where the consumer stands (`Record`)
//! offset 256   the ring's credits
//! ```
//!
//! All words are written under the lock of the port on that host. Both hosts check what the other
//! one has written, as inside a host.
//!
//! **Sessions.** The source begins a session, with empty ring and positions at 0, when its store is
//! new or its part of the memory was reset: [`SharedSource::begin`]. Until the destination has met
//! it, the source takes all credits for 0. The destination meets a session by setting its position
//! and credits back to 0: `QueueReader::meet` (module `session`). It rejects what it copied while a
//! session ended.
//!
//! **Restarts.** Messages lie in the source's part and the position in the destination's, so
//! neither a restart of the destination's host nor a new store there loses or repeats a message. A
//! new store of the source ends the session: messages that were not received are lost, and count as
//! an overflow. If the memory was reset, what was in it is lost; the next message tells of it as of
//! an overflow, unless source and memory have both begun anew.
//!
//! Called by [`super::queuing`] and [`super::session`].

use std::hash::{BuildHasher, RandomState};

use busway_core::ring::{CREDIT_BYTES, Layout, Position};
use busway_core::{LINE_BYTES, Window};
use busway_system::shared_queue::{DESTINATION_BYTES, SOURCE_HEAD_BYTES};

use super::far::boot;
use crate::config::Clock;
use crate::crash;
use crate::store::layout::{Record, shared, writer};
use crate::sync::{Ordering, fence};
use crate::sys::{Area, View};

const SESSION: usize = 0;
const KEY: usize = 8;
const BOOT: usize = 16;
const MET: usize = 24;
const WAITING: usize = 64;
const WRITER: usize = 128;
const RING: usize = 256;
const CONSUMER: usize = 128;
const CONSUMER_BYTES: usize = 64;
const CREDIT: usize = 256;

const _: () = assert!(WRITER + writer::BYTES == RING && RING == SOURCE_HEAD_BYTES);
const _: () = assert!(CREDIT + CREDIT_BYTES <= DESTINATION_BYTES);

/// Mapped memory that is taken apart.
pub(crate) trait Words: Sized {
    fn part(&self, offset: usize, len_bytes: usize) -> Self;
}

impl Words for View {
    fn part(&self, offset: usize, len_bytes: usize) -> Self {
        View::part(self, offset, len_bytes)
    }
}

impl Words for Area {
    fn part(&self, offset: usize, len_bytes: usize) -> Self {
        Area::part(self, offset, len_bytes)
    }
}

/// The pieces of a source's part.
pub(crate) struct SourcePart<A> {
    pub(crate) head: A,
    pub(crate) waiting: A,
    pub(crate) control: A,
    pub(crate) ring: A,
}

/// The pieces of a destination's part.
pub(crate) struct DestinationPart<A> {
    pub(crate) head: A,
    pub(crate) waiting: A,
    pub(crate) consumer: A,
    pub(crate) credit: A,
}

impl<A: Words> SourcePart<A> {
    pub(crate) fn of(part: &A, layout: &Layout) -> Self {
        Self {
            head: part.part(0, WAITING),
            waiting: part.part(WAITING, 8),
            control: part.part(WRITER, writer::BYTES),
            ring: part.part(RING, layout.required_bytes()),
        }
    }
}

impl<A: Words> DestinationPart<A> {
    pub(crate) fn of(part: &A) -> Self {
        Self {
            head: part.part(0, WAITING),
            waiting: part.part(WAITING, 8),
            consumer: part.part(CONSUMER, CONSUMER_BYTES),
            credit: part.part(CREDIT, CREDIT_BYTES),
        }
    }
}

/// The session of a part's head; `None` if the memory is not this queue's, or none has begun.
/// Whatever was written before the session is visible to what the caller loads next.
fn session_of(head: &View, key: u64) -> Option<u64> {
    let session = head.word(SESSION).load(Ordering::Relaxed);
    let found = head.word(KEY).load(Ordering::Relaxed);
    // Partner: the Release stores of SESSION in `begin` and `meet`.
    fence(Ordering::Acquire);
    (session != 0 && found == key).then_some(session)
}

/// Whether the destination has met the session that the source is in, for who looks from outside.
pub(crate) fn is_met(source_head: &View, destination_head: &View, key: u64) -> bool {
    let session = session_of(source_head, key);
    session.is_some() && session == session_of(destination_head, key)
}

/// Whether the source has begun a session, for who looks from outside.
pub(crate) fn has_begun(source_head: &View, key: u64) -> bool {
    session_of(source_head, key).is_some()
}

/// Whether a process of the other host, whose head this is, is known to run on this kernel.
fn is_on_this_kernel(head: &View, key: u64) -> bool {
    session_of(head, key).is_some() && head.word(BOOT).load(Ordering::Relaxed) == boot()
}

/// What the source's end has beside ring and writer's words.
#[derive(Debug)]
pub(crate) struct SharedSource {
    /// The head of the own part, and the number of processes that wait.
    head: Area,
    waiting: Area,
    /// The destination's head, and its credits.
    other: View,
    credit: View,
    /// The session's word in the store.
    session: Area,
    /// Credits as long as the destination has not met the session: 0.
    no_credit: Window,
    _no_credit: Area,
    key: u64,
}

impl SharedSource {
    /// `words` are the channel's [`shared`] words, `index` is the queue's place among them.
    pub(crate) fn new(
        own: &SourcePart<Area>,
        other: &DestinationPart<View>,
        words: &Area,
        index: usize,
        key: u64,
    ) -> Self {
        // Asked for once, before the first message that needs it.
        boot();
        let no_credit = words.part(shared::NO_CREDIT, CREDIT_BYTES);
        Self {
            head: own.head.clone(),
            waiting: own.waiting.clone(),
            other: other.head.clone(),
            credit: other.credit.clone(),
            session: words.part(shared::SESSIONS + 8 * index, 8),
            no_credit: no_credit.window(),
            _no_credit: no_credit,
            key,
        }
    }

    /// Whether the destination's credits are those of this session. They are visible then.
    #[inline]
    pub(crate) fn is_met(&self) -> bool {
        session_of(&self.other, self.key) == Some(self.head.word(SESSION).load(Ordering::Relaxed))
    }

    /// Credits for as long as the session is not met.
    pub(crate) fn no_credit(&self) -> &Window {
        &self.no_credit
    }

    /// Whether the destination can wake a sender.
    pub(crate) fn is_woken(&self) -> bool {
        is_on_this_kernel(&self.other, self.key)
    }

    /// Tells the destination how many processes wait for room.
    pub(crate) fn announce(&self, waiting: u64) {
        // Relaxed: `waiters::before_last_look` orders it.
        self.waiting.word(0).store(waiting, Ordering::Relaxed);
    }

    /// Begins a session, if the memory is in none of this store's. `control` and `ring` are those
    /// of the queue. For the holder of the port's lock, before it uses the queue.
    #[inline]
    pub(crate) fn begin(&self, control: &Area, ring: &Area, layout: &Layout) {
        let session = self.head.word(SESSION).load(Ordering::Relaxed);
        let is_ours = session != 0 && self.session.word(0).load(Ordering::Relaxed) == session;
        if !is_ours || self.head.word(KEY).load(Ordering::Relaxed) != self.key {
            self.begin_anew(control, ring, layout);
        }
        if self.head.word(BOOT).load(Ordering::Relaxed) != boot() {
            self.head.word(BOOT).store(boot(), Ordering::Relaxed);
        }
        if self.head.word(MET).load(Ordering::Relaxed) == 0 && self.is_met() {
            self.head.word(MET).store(1, Ordering::Relaxed);
        }
    }

    #[cold]
    fn begin_anew(&self, control: &Area, ring: &Area, layout: &Layout) {
        // The count before the session's end: after a kill in between, the successor counts again;
        // after a kill behind the end, it finds the count.
        let lost = self.lost(control, layout);
        control.word(writer::OVERFLOWS).store(lost, Ordering::Relaxed);
        crash::step("session-counted");
        self.head.word(SESSION).store(0, Ordering::Relaxed);
        // Partner: the Acquire fence in `QueueReader::is_same`. Whoever copies what is written from
        // here on finds that its session has ended.
        fence(Ordering::Release);
        crash::step("session-ended");
        // No commit word of an earlier session is taken for one of this.
        for line in 0..layout.lines() {
            ring.word(line * LINE_BYTES).store(0, Ordering::Relaxed);
        }
        let record = Record {
            area: control,
            offset: writer::PRODUCER,
        };
        record.store(Position::at_start(0));
        control.word(writer::PUBLISHED).store(0, Ordering::Relaxed);
        self.head.word(MET).store(0, Ordering::Relaxed);
        self.head.word(KEY).store(self.key, Ordering::Relaxed);
        crash::step("session-prepared");
        let drawn = RandomState::new().hash_one(Clock::Monotonic.now_ns()).max(1);
        self.session.word(0).store(drawn, Ordering::Relaxed);
        crash::step("session-drawn");
        // Partner: the Acquire fence in `session_of`.
        self.head.word(SESSION).store(drawn, Ordering::Release);
    }

    /// Messages of the session before that nobody will receive; at least one if that memory is
    /// gone, and unknown.
    fn lost(&self, control: &Area, layout: &Layout) -> u64 {
        let was_ours = self.head.word(KEY).load(Ordering::Relaxed) == self.key;
        if !was_ours {
            return u64::from(self.session.word(0).load(Ordering::Relaxed) != 0);
        }
        if self.head.word(SESSION).load(Ordering::Relaxed) == 0 {
            // A process was killed while it prepared the session.
            return control.word(writer::OVERFLOWS).load(Ordering::Relaxed);
        }
        let record = Record {
            area: control,
            offset: writer::PRODUCER,
        };
        let released = if self.is_met() {
            self.credit.word(0).load(Ordering::Relaxed)
        } else {
            0
        };
        let lost = record.load().line.wrapping_sub(released);
        // More can't have been in the ring: the words were damaged.
        if lost > layout.lines() as u64 { 1 } else { lost }
    }
}

/// What the destination's end has beside position and credits.
#[derive(Debug)]
pub(crate) struct SharedDestination {
    /// The head of the own part, and the number of processes that wait.
    head: Area,
    waiting: Area,
    /// The source's head.
    other: View,
    key: u64,
}

impl SharedDestination {
    pub(crate) fn new(own: &DestinationPart<Area>, other: &SourcePart<View>, key: u64) -> Self {
        // Asked for once, before the first message that needs it.
        boot();
        Self {
            head: own.head.clone(),
            waiting: own.waiting.clone(),
            other: other.head.clone(),
            key,
        }
    }

    /// Whether the source has begun a session.
    pub(crate) fn has_begun(&self) -> bool {
        session_of(&self.other, self.key).is_some()
    }

    /// Whether positions and credits are of the source's session.
    pub(crate) fn is_met(&self) -> bool {
        let session = session_of(&self.other, self.key);
        let own = session_of(&self.head.view(), self.key);
        session.is_some() && session == own
    }

    /// Whether the source can wake a receiver.
    pub(crate) fn is_woken(&self) -> bool {
        is_on_this_kernel(&self.other, self.key)
    }

    /// Tells the source how many processes wait for a message.
    pub(crate) fn announce(&self, waiting: u64) {
        // Relaxed: `waiters::before_last_look` orders it.
        self.waiting.word(0).store(waiting, Ordering::Relaxed);
    }

    /// The source's session, and whether the source has seen that this end had taken it up.
    pub(super) fn source_session(&self) -> Option<(u64, bool)> {
        let session = session_of(&self.other, self.key)?;
        Some((session, self.other.word(MET).load(Ordering::Relaxed) != 0))
    }

    /// Shows the kernel that this end runs on.
    #[inline]
    pub(super) fn renew_boot(&self) {
        if self.head.word(BOOT).load(Ordering::Relaxed) != boot() {
            self.head.word(BOOT).store(boot(), Ordering::Relaxed);
        }
    }

    /// From now on positions and credits are of no session.
    pub(super) fn leave(&self) {
        self.head.word(SESSION).store(0, Ordering::Relaxed);
        // The end of the session before what is written next: the source must not take new credits
        // for those of the old session. Partner: the Acquire fence in `session_of`.
        fence(Ordering::Release);
    }

    /// From now on they are of `session`.
    pub(super) fn enter(&self, session: u64) {
        self.head.word(KEY).store(self.key, Ordering::Relaxed);
        self.renew_boot();
        crash::step("session-half-met");
        // Partner: the Acquire fence in `session_of`.
        self.head.word(SESSION).store(session, Ordering::Release);
    }
}
