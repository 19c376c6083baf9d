//! The queue pair of one channel end, as far memory: what is written is copied once, to where the
//! device reads it, and goes out in the order written.
//!
//! Contract: an end has one [`Pipe`], which all its parts share through [`Handle`]s (ring,
//! register, words, doorbell). Up to [`INLINE_BYTES`] bytes travel in the work request. Longer ones
//! stay in a *staging area*, a circle of registered memory, until a completion reports that the
//! device has read them. Requests are gathered and posted as lists. [`RemoteError::Busy`] means no
//! room. Called on a lane; nothing here blocks or allocates after construction.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, TryLockError};

use busway_core::{RemoteError, WORD_BYTES};

use super::far_memory::FarMemories;
pub use super::far_memory::FarMemory;
use super::wake::WakeState;
use crate::contract::ChannelError;
use crate::rdma::completion::{Completions, NOTHING};
use crate::rdma::device::Region;
use crate::rdma::error::PostError;
use crate::rdma::queue_pair::{Capacity, POST_MAX, Piece, QueuePair, Request, Work};
use crate::session::mailbox::{DroppedSenders, Linger};

/// What travels in the request itself: a ring line without its commit word. Every driver takes it
/// (siw 88 bytes).
const INLINE_BYTES: usize = 64;
/// Requests posted that have not completed, at most.
const SENDS: usize = 128;
/// RECVs for doorbell SENDs: at most one is under way, see [`super::wake`].
const RECVS: usize = 4;
/// Requests gathered: payload is busy at the first number, publications at the second; the rest is
/// for the bell.
const PAYLOAD_GATHERED: usize = 64;
const WORDS_GATHERED: usize = 112;
const MOST_GATHERED: usize = 128;
/// At the latest each so-many-th request completes visibly.
const SIGNAL_EVERY: u64 = 16;
/// Marks the number of a READ, whose result the bell waits for.
const READ: u64 = 1 << 62;

/// Sizes of an end's queue pair.
pub const CAPACITY: Capacity = Capacity {
    sends: SENDS as u32,
    recvs: RECVS as u32,
};

/// Where the bytes of a request lie.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// In the request.
    Inline([u8; INLINE_BYTES]),
    /// In the staging area, from there on.
    Staged(usize),
}

/// A request that has not been posted.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    what: What,
    source: Source,
    len_bytes: usize,
    /// The end of the staging area that it uses, free-running, if it completes visibly.
    signals: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// To this offset of the far memory.
    Write(usize),
    /// From this offset of the far memory to this one of the own memory.
    Read(usize, usize),
    /// An empty SEND.
    Ring,
}

/// Why the pipe failed; reported to every later call.
#[derive(Debug)]
struct Failure(io::ErrorKind, String);

/// See the module.
#[derive(Debug)]
pub struct Pipe {
    completions: Completions,
    far: FarMemories,
    /// Memory that the peer writes, and from which the bell's words are read by it.
    own: Region,
    /// The staging area, and behind it a place for RECVs, which carry nothing.
    staging: Region,
    staging_bytes: u64,
    /// Free-running ends of what is in use of the staging area.
    head: u64,
    tail: u64,
    /// `head` at the last request that completes visibly.
    signalled_head: u64,
    gathered: VecDeque<Gathered>,
    /// Requests gathered since one that completes visibly.
    unsignalled: u64,
    /// Requests posted, and completed.
    posted: u64,
    completed: u64,
    /// For each that completes visibly: its number, and the end of the staging area that it uses.
    marks: VecDeque<(u64, u64)>,
    failure: Option<Failure>,
    /// The bell's part.
    pub(super) rest: WakeState,
}

impl Pipe {
    /// A pipe over `pair`, whose RECVs are posted here. `staging` has room for [`RECV_BYTES`]
    /// behind `staging_bytes`.
    ///
    /// # Errors
    /// The device takes no RECV.
    pub fn new(
        pair: Arc<QueuePair>,
        far: FarMemory,
        own: Region,
        staging: Region,
        rest: WakeState,
    ) -> Result<Pipe, PostError> {
        let staging_bytes = (staging.len_bytes() - RECV_BYTES) & !(WORD_BYTES - 1);
        for number in 0..RECVS as u64 {
            pair.post_recv(&staging, staging_bytes, WORD_BYTES, number)?;
        }
        Ok(Pipe {
            completions: Completions::new(pair),
            far: FarMemories::new(far),
            own,
            staging,
            staging_bytes: staging_bytes as u64,
            head: 0,
            tail: 0,
            signalled_head: 0,
            gathered: VecDeque::with_capacity(MOST_GATHERED),
            unsignalled: 0,
            posted: 0,
            completed: 0,
            marks: VecDeque::with_capacity(SENDS + MOST_GATHERED),
            failure: None,
            rest,
        })
    }

    /// The memory of the peer that this end writes, to add to it before anything is written there.
    pub(super) fn far(&mut self) -> &mut FarMemories {
        &mut self.far
    }

    /// Why nothing goes any more.
    pub fn failure(&self) -> Option<ChannelError> {
        let Failure(kind, text) = self.failure.as_ref()?;
        Some(io::Error::new(*kind, text.as_str()).into())
    }

    fn fail(&mut self, error: &io::Error) {
        if self.failure.is_none() {
            self.failure = Some(Failure(error.kind(), error.to_string()));
        }
    }

    fn check(&self, offset: usize, len_bytes: usize) -> Result<(), RemoteError> {
        if self.failure.is_some() {
            return Err(RemoteError::Disconnected);
        }
        Ok(self.far.check(offset, len_bytes)?)
    }

    /// Gathers a WRITE of `header` and `parts` to `offset` of the far memory.
    ///
    /// # Errors
    /// As [`busway_core::RemoteWrite::write`].
    pub fn write(&mut self, offset: usize, header: &[u64], parts: &[&[u8]]) -> Result<(), RemoteError> {
        let payload_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let len_bytes = header.len() * WORD_BYTES + payload_bytes;
        self.check(offset, len_bytes)?;
        self.make_room(PAYLOAD_GATHERED)?;
        let source = if len_bytes <= INLINE_BYTES && self.inlines() {
            let mut bytes = [0; INLINE_BYTES];
            let (head, tail) = bytes.split_at_mut(header.len() * WORD_BYTES);
            for (word, into) in header.iter().zip(head.chunks_exact_mut(WORD_BYTES)) {
                into.copy_from_slice(&word.to_ne_bytes());
            }
            let mut rest = tail;
            for part in parts {
                let (into, behind) = rest.split_at_mut(part.len());
                into.copy_from_slice(part);
                rest = behind;
            }
            Source::Inline(bytes)
        } else {
            Source::Staged(self.stage(len_bytes, header, parts)?)
        };
        self.gather(What::Write(offset), source, len_bytes);
        Ok(())
    }

    /// Gathers a WRITE of one word.
    ///
    /// # Errors
    /// As [`busway_core::RemoteWrite::publish`].
    pub fn publish(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        self.check(offset, WORD_BYTES)?;
        self.make_room(WORDS_GATHERED)?;
        self.gather_word(offset, word)
    }

    /// As [`publish`](Self::publish), for the bell, which has room of its own.
    pub(super) fn gather_word(&mut self, offset: usize, word: u64) -> Result<(), RemoteError> {
        let source = if self.inlines() {
            let mut bytes = [0; INLINE_BYTES];
            bytes[..WORD_BYTES].copy_from_slice(&word.to_ne_bytes());
            Source::Inline(bytes)
        } else {
            Source::Staged(self.stage(WORD_BYTES, &[word], &[])?)
        };
        self.gather(What::Write(offset), source, WORD_BYTES);
        Ok(())
    }

    /// Gathers a READ of one word of the far memory, at `from`, to `to` in the own memory. It
    /// completes visibly.
    pub(super) fn gather_read(&mut self, from: usize, to: usize) {
        self.gather(What::Read(from, to), Source::Staged(0), WORD_BYTES);
    }

    /// Gathers an empty SEND.
    pub(super) fn gather_ring(&mut self) {
        self.gather(What::Ring, Source::Staged(0), 0);
    }

    /// Whether there is room to gather one wish and one doorbell SEND.
    pub(super) fn has_room_for_bell(&self) -> bool {
        self.failure.is_none() && self.gathered.len() + 3 <= MOST_GATHERED
    }

    fn inlines(&self) -> bool {
        self.completions.pair().max_inline_bytes() >= INLINE_BYTES
    }

    /// Fewer requests than `most` wait afterwards.
    fn make_room(&mut self, most: usize) -> Result<(), RemoteError> {
        if self.gathered.len() >= most {
            self.post();
            if self.gathered.len() >= most {
                self.reap();
                self.post();
            }
            if self.failure.is_some() {
                return Err(RemoteError::Disconnected);
            }
            if self.gathered.len() >= most {
                return Err(RemoteError::Busy);
            }
        }
        Ok(())
    }

    /// Copies bytes into the staging area; returns where they lie.
    fn stage(&mut self, len_bytes: usize, header: &[u64], parts: &[&[u8]]) -> Result<usize, RemoteError> {
        let needed = len_bytes.next_multiple_of(WORD_BYTES) as u64;
        let at = self.head % self.staging_bytes;
        let skipped = if at + needed > self.staging_bytes {
            self.staging_bytes - at
        } else {
            0
        };
        let end = self.head + skipped + needed;
        if end - self.tail > self.staging_bytes {
            self.post();
            self.reap();
            if end - self.tail > self.staging_bytes {
                return Err(RemoteError::Busy);
            }
        }
        let at = ((self.head + skipped) % self.staging_bytes) as usize;
        self.staging.write(at, header, parts)?;
        self.head = end;
        Ok(at)
    }

    fn gather(&mut self, what: What, source: Source, len_bytes: usize) {
        self.unsignalled += 1;
        let is_due = self.unsignalled >= SIGNAL_EVERY
            // So that the staging area never fills with bytes whose completion is not reported.
            || self.head - self.signalled_head >= self.staging_bytes / 4
            || matches!(what, What::Read(..));
        if is_due {
            self.unsignalled = 0;
            self.signalled_head = self.head;
        }
        self.gathered.push_back(Gathered {
            what,
            source,
            len_bytes,
            signals: is_due.then_some(self.head),
        });
    }

    /// Posts what was gathered, as far as the queue has room.
    pub fn post(&mut self) {
        while self.failure.is_none() && !self.gathered.is_empty() {
            let room = SENDS - (self.posted - self.completed) as usize;
            let count = room.min(POST_MAX).min(self.gathered.len());
            if count == 0 {
                return;
            }
            let (posted, result) = match self.post_list(count) {
                Ok(()) => (count, Ok(())),
                Err((posted, error)) => (posted, Err(error)),
            };
            for entry in self.gathered.drain(..posted) {
                self.posted += 1;
                if let Some(head) = entry.signals {
                    self.marks.push_back((self.posted, head));
                }
            }
            match result {
                Ok(()) => {}
                Err(PostError::Full) => return,
                Err(PostError::Failed(error)) => self.fail(&error),
            }
        }
    }

    /// Posts the first `count` requests by one call.
    fn post_list(&self, count: usize) -> Result<(), (usize, PostError)> {
        let mut pieces = [Piece::Inline(&[]); POST_MAX];
        for (entry, piece) in self.gathered.iter().zip(&mut pieces).take(count) {
            *piece = match (entry.what, &entry.source) {
                (What::Read(_, offset), _) => Piece::Registered {
                    region: &self.own,
                    offset,
                    len_bytes: entry.len_bytes,
                },
                (_, Source::Inline(bytes)) => Piece::Inline(&bytes[..entry.len_bytes]),
                (_, Source::Staged(offset)) => Piece::Registered {
                    region: &self.staging,
                    offset: *offset,
                    len_bytes: entry.len_bytes,
                },
            };
        }
        let empty = Request {
            work: Work::Send,
            pieces: &[],
            number: 0,
            is_signalled: false,
        };
        let mut requests = [empty; POST_MAX];
        for (at, (entry, request)) in self.gathered.iter().zip(&mut requests).take(count).enumerate() {
            let number = self.posted + at as u64 + 1;
            let piece = std::slice::from_ref(&pieces[at]);
            let (work, pieces, number) = match entry.what {
                What::Write(offset) => {
                    let (address, key) = self.far.address(offset);
                    (Work::Write { address, key }, piece, number)
                }
                What::Read(offset, _) => {
                    let (address, key) = self.far.address(offset);
                    (Work::Read { address, key }, piece, number | READ)
                }
                What::Ring => (Work::Send, &[][..], number),
            };
            *request = Request {
                work,
                pieces,
                number,
                is_signalled: entry.signals.is_some(),
            };
        }
        self.completions.pair().post(&requests[..count])
    }

    /// Takes in what has completed; whether the bell was rung or the word that it waits for has
    /// come.
    pub fn reap(&mut self) -> bool {
        let mut has_news = false;
        loop {
            let mut batch = NOTHING;
            let count = match self.completions.poll(&mut batch) {
                Ok(count) => count,
                Err(error) => {
                    self.fail(&error);
                    return true;
                }
            };
            for completion in &batch[..count] {
                if !completion.is_success() {
                    let error = self.completions.pair().failure(completion.status);
                    self.fail(&error);
                    has_news = true;
                } else if completion.is_recv {
                    self.rest.rung();
                    has_news = true;
                    let at = self.staging_bytes as usize;
                    let pair = self.completions.pair();
                    if let Err(PostError::Failed(error)) =
                        pair.post_recv(&self.staging, at, WORD_BYTES, completion.number)
                    {
                        self.fail(&error);
                    }
                } else {
                    self.complete(completion.number & !READ);
                    if completion.number & READ != 0 {
                        has_news |= self.rest.read();
                    }
                }
            }
            if count < batch.len() {
                return has_news;
            }
        }
    }

    fn complete(&mut self, number: u64) {
        self.completed = self.completed.max(number.min(self.posted));
        while let Some((marked, head)) = self.marks.front().copied()
            && marked <= number
        {
            self.tail = head;
            self.marks.pop_front();
        }
    }

    /// Makes the descriptor readable with the next completion; whether to [`reap`](Self::reap) once
    /// more before it is sure.
    pub(super) fn arm(&mut self) -> bool {
        match self.completions.arm() {
            Ok(must_look) => must_look,
            Err(error) => {
                self.fail(&error);
                false
            }
        }
    }

    /// Posts what has room; what completes from then on makes the descriptor readable.
    pub(super) fn wake_with_next_completion(&mut self) {
        while self.arm() {
            self.reap();
            self.post();
        }
    }

    /// The completion channel's descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.completions.pair().completion_queue().fd()
    }

    /// Whether requests wait for room in the queue.
    pub fn is_behind(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// Whether everything has left, as far as this side can know.
    fn has_left(&self) -> bool {
        self.gathered.is_empty() && self.posted == self.completed
    }

    fn is_iwarp(&self) -> bool {
        self.completions.pair().device().is_iwarp()
    }
}

/// Room that the staging area needs behind it.
pub const RECV_BYTES: usize = WORD_BYTES;

/// A pipe whose end was dropped: what was written leaves, then the connection ends.
struct Leaving(Box<Pipe>);

impl Linger for Leaving {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    fn pump(&mut self) -> bool {
        let pipe = &mut *self.0;
        loop {
            pipe.reap();
            pipe.post();
            // A WRITE over iWARP completes when TCP has it: there it is done when the receiver has
            // gone, or when the time is up.
            if pipe.failure.is_some() || !pipe.is_iwarp() && pipe.has_left() {
                return true;
            }
            if !pipe.arm() {
                return false;
            }
        }
    }
}

/// What the handles of one end share.
struct Shared {
    /// `None` only while it is being dropped.
    pipe: Mutex<Option<Box<Pipe>>>,
    dropped: Option<Arc<DroppedSenders>>,
}

/// A share of an end's pipe. All shares belong to one end, which one lane uses: the lock is always
/// free.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    /// The first share. What was not sent when the last one is dropped goes to `dropped`, if there
    /// is one.
    pub fn new(pipe: Pipe, dropped: Option<Arc<DroppedSenders>>) -> Handle {
        Handle(Arc::new(Shared {
            pipe: Mutex::new(Some(Box::new(pipe))),
            dropped,
        }))
    }

    /// Uses the pipe; `None` never happens, see [`Handle`].
    #[inline]
    pub fn with<T>(&self, use_it: impl FnOnce(&mut Pipe) -> T) -> Option<T> {
        let mut pipe = match self.0.pipe.try_lock() {
            Ok(pipe) => pipe,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        pipe.as_deref_mut().map(use_it)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let pipe = self
            .pipe
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let (Some(mut pipe), Some(dropped)) = (pipe, &self.dropped) {
            pipe.ask_for_last_completion();
            if pipe.failure.is_none() {
                dropped.put(Box::new(Leaving(pipe)));
            }
        }
    }
}

impl Pipe {
    /// So that [`has_left`](Self::has_left) comes true: the last request completes visibly.
    fn ask_for_last_completion(&mut self) {
        self.reap();
        self.unsignalled = SIGNAL_EVERY;
        let (offset, word) = self.rest.harmless_word();
        let _ = self.gather_word(offset, word);
        self.post();
    }
}
