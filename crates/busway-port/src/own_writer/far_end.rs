//! One register in another host's port store, written by this process's own queue pair.
//!
//! Contract: [`FarEnds::write`] is called by the thread that writes the source port, under the
//! port's lock, after the store's register has the message; it neither waits nor allocates.
//! [`super::worker`] opens, tends and closes the ends. Numbers of messages are the store's
//! sequences, so an end can be offered a message twice, or late: it leaves out what is no newer
//! than what it has.
//!
//! A child that is forked without exec has the parent's descriptors, but not its queue pair: the
//! device would read the parent's memory. It finds [`ForkMark`] cleared, and rings instead.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use busway_core::Window;
use busway_core::register::{Layout, ReadOutcome, RegisterReader};
use busway_system as file;
use busway_transport::contract::{Flushed, Head, Kind, RegisterEnd};

use crate::config::Clock;
use crate::crash;
use crate::doorbell::Ringer;
use crate::partition::sampling::START;
use crate::peer_clock::{self, PeerClock};
use crate::sys::{Area, ForkMark, View};

/// The register of a source port in its own store, from which workers offer messages.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    window: Window,
    /// Keeps the memory behind `window`.
    _area: Area,
    layout: Layout,
}

impl Source {
    pub(crate) fn new(area: Area, layout: Layout) -> Source {
        Source {
            window: area.window(),
            _area: area,
            layout,
        }
    }

    /// Number of the newest message.
    pub(super) fn newest(&self) -> u64 {
        self.layout.latest(&self.window).unwrap_or(START)
    }

    /// Copies the newest message into `buffer`: its length, source time and number. `None` before
    /// the first, or if the writer is faster than every attempt.
    fn read(&self, buffer: &mut Vec<u8>) -> Option<(usize, i64, u64)> {
        buffer.resize(self.layout.max_size_bytes(), 0);
        let mut reader = RegisterReader::new(self.window.clone(), self.layout, START).ok()?;
        match reader.read(buffer).ok()? {
            ReadOutcome::New(sample) | ReadOutcome::Unchanged(sample) | ReadOutcome::LastGood(sample) => {
                Some((sample.len_bytes, sample.time_ns as i64, sample.sequence))
            }
            ReadOutcome::Contended | ReadOutcome::Empty => None,
        }
    }
}

/// What an end is like after its worker has tended it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tended {
    /// The other host has the newest message, or its device has.
    Done,
    /// A message waits for room in the queue pair.
    Waiting,
    /// The queue pair has ended, and this end is closed.
    Failed(String),
}

/// One register in another host's store.
pub(crate) struct OwnEnd {
    /// How the two hosts compare times.
    clock: file::Clock,
    /// Head of the file of the partition that stands for the other host: has its clock.
    host: View,
    mark: Arc<ForkMark>,
    open: Mutex<Option<Open>>,
}

impl std::fmt::Debug for OwnEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnEnd").finish_non_exhaustive()
    }
}

/// While this process has the queue pair.
struct Open {
    sender: RegisterEnd,
    /// Of the messages.
    origin: u64,
    /// The estimate of the other host's clock that was known last.
    estimate: Option<PeerClock>,
    /// Number of the newest message that is with the device.
    out: u64,
    failure: Option<String>,
}

impl OwnEnd {
    pub(crate) fn new(clock: file::Clock, host: View, mark: Arc<ForkMark>) -> OwnEnd {
        OwnEnd {
            clock,
            host,
            mark,
            open: Mutex::new(None),
        }
    }

    /// Writes a message; `false`: a worker has to. See [`FarEnds::write`].
    #[inline]
    fn write(&self, message: &[u8], time_ns: i64, number: u64) -> bool {
        // First: in a forked child the mutex may be locked for ever.
        if self.mark.is_forked() {
            return false;
        }
        let mut open = match self.open.try_lock() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let Some(open) = open.as_mut() else {
            return false;
        };
        // The message was written just now.
        open.offer(self, message, (time_ns, time_ns), number)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process has the queue pair from now on. For the worker.
    pub(super) fn open(&self, sender: RegisterEnd, origin: u64) {
        *self.lock() = Some(Open {
            sender,
            origin,
            estimate: None,
            out: START,
            failure: None,
        });
    }

    /// Ends the queue pair, if there is one. For the worker.
    pub(super) fn close(&self) {
        let open = self.lock().take();
        drop(open);
    }

    /// Sends what waits, and offers the newest message of the source if the device does not have
    /// it. For the worker; `buffer` is its own.
    pub(super) fn tend(&self, source: &Source, buffer: &mut Vec<u8>) -> Tended {
        let newest = source.newest();
        let is_behind = self.lock().as_ref().is_some_and(|open| open.out < newest);
        // Without the mutex, since this copies.
        let message = if is_behind { source.read(buffer) } else { None };
        let mut guard = self.lock();
        let Some(open) = guard.as_mut() else {
            return Tended::Done;
        };
        let flushed = match open.sender.flush() {
            Ok(flushed) => flushed,
            Err(error) => {
                open.failure.get_or_insert(error.to_string());
                Flushed::Idle
            }
        };
        let mut is_out = flushed == Flushed::Idle && !is_behind;
        if let Some((length, time_ns, number)) = message.filter(|_| open.failure.is_none()) {
            let now_ns = Clock::Monotonic.now_ns();
            is_out = open.offer(self, &buffer[..length], (time_ns, now_ns), number);
        }
        match open.failure.take() {
            Some(failure) => {
                *guard = None;
                Tended::Failed(failure)
            }
            None if is_out => Tended::Done,
            None => Tended::Waiting,
        }
    }
}

impl Open {
    /// Offers a message of this source time to the sender, at `now_ns`, both of `CLOCK_MONOTONIC`.
    /// Whether the device has it.
    #[inline]
    fn offer(&mut self, end: &OwnEnd, message: &[u8], (time_ns, now_ns): (i64, i64), number: u64) -> bool {
        if self.failure.is_some() {
            return false;
        }
        let stamp_ns = match end.clock {
            file::Clock::Ptp => Clock::Tai.of_monotonic_ns(time_ns),
            file::Clock::Estimated => {
                self.estimate = peer_clock::load(&end.host).or(self.estimate);
                match self.estimate {
                    Some(estimate) => estimate.to_peer_ns(time_ns, now_ns),
                    None => return false,
                }
            }
        };
        let head = Head {
            sequence: number,
            origin: self.origin,
            time_ns: stamp_ns as u64,
            payload_bytes: message.len() as u64,
            events: 0,
            user_header_bytes: 0,
            kind: Kind::Data,
        };
        match self.sender.copy_out(&head, message) {
            Ok(true) => {
                crash::step("copied-out");
                self.out = self.out.max(number);
                true
            }
            Ok(false) => false,
            Err(error) => {
                self.failure = Some(error.to_string());
                false
            }
        }
    }
}

/// All registers in other hosts' stores that a source port's processes may write themselves.
#[derive(Debug)]
pub(crate) struct FarEnds {
    pub(crate) ends: Vec<Arc<OwnEnd>>,
    /// Wakes the worker that has the queue pairs, in whichever process.
    ringer: Ringer,
}

impl FarEnds {
    pub(crate) fn new(ends: Vec<Arc<OwnEnd>>, ringer: Ringer) -> FarEnds {
        FarEnds { ends, ringer }
    }

    /// Writes the message `number`, which the store's register has, wherever this process has a
    /// queue pair; wakes a worker where it has none, or no room. For the holder of the port's lock.
    #[inline]
    pub(crate) fn write(&self, message: &[u8], time_ns: i64, number: u64) {
        let mut is_out = true;
        for end in &self.ends {
            is_out &= end.write(message, time_ns, number);
        }
        if !is_out {
            self.ringer.ring_after_publishing();
        }
    }
}
