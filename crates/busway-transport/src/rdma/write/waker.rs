//! Carries out what `wake` decides, over a pipe: wishes, and SENDs that ring.

use std::sync::atomic::{Ordering, fence};

use super::pipe::{Handle, Pipe};
use super::wake::{MARK_AT, READ_AT, WANT_AT};
use crate::contract::ChannelError;
use crate::remote_write::{Waker, WritePermission};

impl Pipe {
    /// Rings unasked, once the connection stands: see the module.
    pub fn greet(&mut self) {
        self.gather_ring();
        self.post();
    }

    fn ring_for(&mut self, mark: u64) {
        let _ = self.rest.line.store(MARK_AT, mark);
        // Partner: the order of WRITE and READ in the other end's queue pair, see the module.
        fence(Ordering::SeqCst);
        let want = self.rest.line.load(WANT_AT).unwrap_or_default();
        if self.rest.ringer.must_ring(want) && self.has_room_for_bell() {
            self.rest.ringer.rings(want);
            self.gather_ring();
            self.post();
        }
    }

    /// See [`Waker::prepare_sleep`].
    fn rest(&mut self, seen: u64) -> bool {
        if !self.rest.lane.is_about_to_sleep() {
            return false;
        }
        if self.reap() {
            return true;
        }
        if self.has_room_for_bell() {
            if let Some(wish) = self.rest.sleeper.next_wish()
                && self.gather_word(self.rest.far_at + WANT_AT, wish).is_ok()
            {
                self.rest.sleeper.wished(wish);
            }
            if self.rest.sleeper.must_read() {
                self.gather_read(self.rest.far_at + MARK_AT, self.rest.own_at + READ_AT);
                self.rest.sleeper.reading(seen);
            }
        }
        self.post();
        // What completes from here on makes the descriptor readable: a SEND, the READ, or room for
        // what waits.
        while self.arm() {
            if self.reap() {
                return true;
            }
            self.post();
        }
        false
    }
}

impl WritePermission for Handle {
    type Guard<'a> = ();

    fn begin_write(&self) -> Result<(), ChannelError> {
        self.end_reason().map_or(Ok(()), Err)
    }

    fn end_reason(&self) -> Option<ChannelError> {
        self.with(|pipe| pipe.failure()).flatten()
    }
}

impl Waker for Handle {
    fn wake(&mut self, mark: u64) {
        self.with(|pipe| pipe.ring_for(mark));
    }

    fn poll(&mut self) {
        self.with(|pipe| {
            pipe.reap();
            pipe.post();
        });
    }

    fn prepare_sleep(&mut self, seen: u64) -> bool {
        self.with(|pipe| pipe.rest(seen)).unwrap_or(false)
    }

    fn is_about_to_sleep(&self) -> bool {
        self.with(|pipe| pipe.rest.lane.is_about_to_sleep())
            .unwrap_or(false)
    }

    fn has_backlog(&self) -> bool {
        self.with(|pipe| pipe.is_behind()).unwrap_or(false)
    }
}
