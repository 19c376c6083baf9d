//! The ends of a queue in memory that another host shares, and how the receiving end takes up the
//! session of the source.
//!
//! Contract: [`super::shared_queue`] has the layout and the rules. Called by [`super::queuing`] and
//! where a process joins.

use busway_core::ring::Position;

use super::queuing::{QueueReader, QueueWriter};
use super::shared_queue::{DestinationPart, SharedDestination, SharedSource, SourcePart};
use crate::crash;
use crate::store::layout::{OutletLayout, port};
use crate::sync::{Ordering, fence};
use crate::sys::{Area, View};

impl QueueWriter {
    /// To another host, which writes `other`.
    pub(crate) fn shared(
        own: SourcePart<Area>,
        other: DestinationPart<View>,
        layout: OutletLayout,
        shared: SharedSource,
    ) -> Self {
        Self {
            control: own.control,
            ring: own.ring.window(),
            ring_area: own.ring,
            waiting: other.waiting,
            credit: other.credit.window(),
            credit_words: other.credit,
            layout,
            shared: Some(shared),
        }
    }
}

impl QueueReader {
    /// From another host, which writes `other`; `area` is this port's part of its partition's file.
    pub(crate) fn shared(
        own: DestinationPart<Area>,
        other: SourcePart<View>,
        area: &Area,
        layout: OutletLayout,
        shared: SharedDestination,
    ) -> Self {
        Self {
            control: other.control,
            ring: other.ring.window(),
            _ring: other.ring,
            waiting: other.waiting,
            area: area.clone(),
            consumer_words: own.consumer,
            credit: own.credit.window(),
            credit_words: own.credit,
            layout,
            shared: Some(shared),
        }
    }

    /// Takes up the session that the source is in, if this queue has one. `false` if there is none:
    /// nothing can be received. For the holder of the port's lock, before it uses the queue.
    #[inline]
    pub(crate) fn meet(&self) -> bool {
        match &self.shared {
            None => true,
            Some(shared) if shared.is_met() => {
                shared.renew_boot();
                true
            }
            Some(shared) => self.meet_anew(shared),
        }
    }

    #[cold]
    fn meet_anew(&self, shared: &SharedDestination) -> bool {
        let Some((session, is_seen)) = shared.source_session() else {
            return false;
        };
        // Met before: then the own part was reset, and nobody knows what was received.
        let was_met = is_seen || self.area.word(port::ORIGIN).load(Ordering::Relaxed) == session;
        let position = if was_met {
            self.sent()
        } else {
            Some(Position::at_start(0))
        };
        let Some(position) = position else {
            return false;
        };
        shared.leave();
        crash::step("session-left");
        self.record().store(position);
        for (word, value) in self.credits(position) {
            word.store(value, Ordering::Relaxed);
        }
        let told = if was_met {
            // The next message tells of what was lost.
            self.overflows().wrapping_sub(1)
        } else {
            0
        };
        self.area
            .word(port::OVERFLOWS_TOLD)
            .store(told, Ordering::Relaxed);
        shared.enter(session);
        crash::step("session-met");
        self.area.word(port::ORIGIN).store(session, Ordering::Relaxed);
        self.wake();
        true
    }

    /// Writes the credits again, if another host has damaged them: a source that takes the queue
    /// for full sends nothing that would bring new ones. For the holder of the port's lock, when
    /// there is no message.
    pub(super) fn renew_credits(&self) {
        if !self.shared.as_ref().is_some_and(SharedDestination::is_met) {
            return;
        }
        let words = self.credits(self.record().load());
        if words
            .iter()
            .all(|(word, value)| word.load(Ordering::Relaxed) == *value)
        {
            return;
        }
        for (word, value) in words {
            word.store(value, Ordering::Relaxed);
        }
        self.wake();
    }

    /// Whether the session still is the one that was met: what was copied meanwhile is whole.
    #[inline]
    pub(crate) fn is_same(&self) -> bool {
        // Partner: the Release fence in `SharedSource::begin_anew`, before the source writes the
        // ring again.
        fence(Ordering::Acquire);
        self.shared.as_ref().is_none_or(SharedDestination::is_met)
    }
}
