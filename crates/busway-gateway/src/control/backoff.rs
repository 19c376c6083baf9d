//! Links that a flow avoids for a while, since a channel over them failed or since they flap.
//!
//! A link may stand and carry no channel: a firewall drops what channels send, queue pairs break, a
//! window's memory is overwritten. A flapping link costs messages at each move. In both cases
//! another link is taken meanwhile; where there is none, the link is tried again after [`FIRST`].
//!
//! Plain state of one flow, used by [`super::routes`], [`super::flow`] and [`super::port_flow`].

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The first back-off of a link after a failure, and how long a link must stand to count as steady.
pub const FIRST: Duration = Duration::from_secs(1);
/// While another link carries the messages, the back-off doubles with each failure up to this:
/// every attempt interrupts them. It is no longer, since links that both refuse a flow for a reason
/// of the peer's own also wait as long once that reason is gone.
pub const LONGEST: Duration = Duration::from_secs(16);

/// See the module.
#[derive(Debug, Default)]
pub struct Backoff(HashMap<usize, Entry>);

#[derive(Debug)]
struct Entry {
    lasts: Duration,
    ends_at: Instant,
    /// The link flaps: coming up does not end the back-off.
    is_flapping: bool,
    /// [`Backoff::tick`] has not yet noticed the end.
    is_pending: bool,
}

impl Backoff {
    /// A channel over this link failed; `has_other`: another link can carry the messages.
    pub fn failed(&mut self, link: usize, has_other: bool, now: Instant) {
        // A link that worked for as long as its last back-off begins anew.
        let before = self
            .0
            .get(&link)
            .filter(|entry| now < entry.ends_at + entry.lasts);
        let lasts = match before {
            Some(entry) if now < entry.ends_at => entry.lasts,
            Some(entry) if has_other => (entry.lasts * 2).min(LONGEST),
            _ => FIRST,
        };
        self.begin(link, lasts, false, now);
    }

    fn begin(&mut self, link: usize, lasts: Duration, is_flapping: bool, now: Instant) {
        let entry = Entry {
            lasts,
            ends_at: now + lasts,
            is_flapping,
            is_pending: true,
        };
        self.0.insert(link, entry);
    }

    /// The link came up: its back-off ends, unless it flaps.
    pub fn came_up(&mut self, link: usize, now: Instant) {
        self.0
            .retain(|&other, entry| other != link || entry.is_flapping && now < entry.ends_at);
    }

    /// The link went down after it had stood for `stood`, and another one can carry the messages.
    pub fn went_down(&mut self, link: usize, stood: Duration, now: Instant) {
        if stood < FIRST {
            self.begin(link, FIRST, true, now);
        }
    }

    /// Whether the link is in back-off.
    pub fn has(&self, link: usize, now: Instant) -> bool {
        self.0.get(&link).is_some_and(|entry| now < entry.ends_at)
    }

    /// Whether the end of a back-off is still to be noticed by [`tick`](Self::tick).
    pub fn needs_tick(&self) -> bool {
        self.0.values().any(|entry| entry.is_pending)
    }

    /// Notices the back-offs that have ended.
    pub fn tick(&mut self, now: Instant) {
        for entry in self.0.values_mut() {
            entry.is_pending &= now < entry.ends_at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_with_each_failure_while_another_link_carries_the_messages() {
        let mut now = Instant::now();
        let mut backoff = Backoff::default();
        for seconds in [1, 2, 4, 8, 16, 16] {
            backoff.failed(3, true, now);
            assert!(backoff.has(3, now) && backoff.needs_tick() && !backoff.has(4, now));
            // A second failure meanwhile, as of a large-message channel, is the same failure.
            backoff.failed(3, true, now);
            let almost = now + Duration::from_secs(seconds) - Duration::from_millis(1);
            assert!(backoff.has(3, almost), "{seconds} s");
            now += Duration::from_secs(seconds);
            assert!(!backoff.has(3, now), "{seconds} s");
            backoff.tick(now);
            assert!(!backoff.needs_tick());
        }
    }

    #[test]
    fn flapping_link_stays_in_backoff_until_steady_for_a_second() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        backoff.went_down(0, FIRST, start);
        backoff.came_up(0, start);
        assert!(!backoff.has(0, start), "it had stood for long");
        let mut now = start;
        for _ in 0..200 {
            now += FIRST / 50;
            backoff.went_down(0, FIRST / 50, now);
            backoff.came_up(0, now);
            assert!(backoff.has(0, now) && backoff.needs_tick());
        }
        now += FIRST;
        backoff.tick(now);
        assert!(!backoff.has(0, now) && !backoff.needs_tick());
        backoff.came_up(0, now);
        backoff.failed(0, true, now);
        assert!(!backoff.has(0, now + FIRST), "nothing is left of it");
    }

    #[test]
    fn only_link_is_tried_every_second() {
        let mut now = Instant::now();
        let mut backoff = Backoff::default();
        for _ in 0..4 {
            backoff.failed(0, false, now);
            now += FIRST;
            assert!(!backoff.has(0, now));
        }
    }

    #[test]
    fn link_that_worked_or_came_up_anew_begins_with_the_first_backoff() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        backoff.failed(0, true, start);
        let later = start + FIRST * 3;
        backoff.failed(0, true, later);
        assert!(!backoff.has(0, later + FIRST));
        backoff.failed(0, true, later + FIRST);
        assert!(backoff.has(0, later + FIRST * 2));
        backoff.came_up(0, later + FIRST * 2);
        assert!(!backoff.has(0, later + FIRST * 2));
        backoff.failed(0, true, later + FIRST * 2);
        assert!(!backoff.has(0, later + FIRST * 3));
    }
}
