//! Links on which a channel failed lately: a link may stand and carry no channel, be it that a firewall drops what channels send, that queue pairs break, or
//! that a window's memory is overwritten. Such a link rests, so that another one is taken, or no channel opened in vain too often. So does one that is back for
//! moments only, while there is another one: each move to it and away again loses messages.
//!
//! Plain state of one service or channel of ports, asked by `ways` and `ports` on the control thread.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A channel that failed is opened anew over the same link after this time.
const FIRST: Duration = Duration::from_secs(1);
/// Where another link can carry the messages meanwhile, the time doubles up to this with each failure: every attempt interrupts them. No longer, since
/// what is refused over both, for a reason of the peer's own, waits as long once that is mended.
const LONGEST: Duration = Duration::from_secs(16);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Rests(HashMap<usize, Rest>);

#[derive(Debug)]
struct Rest {
    lasts: Duration,
    ends_at: Instant,
    /// The link had come up and gone again: it rests whether it comes up or not.
    is_unsteady: bool,
    /// It has not been noticed that it is over.
    is_new: bool,
}

impl Rests {
    /// A channel over this link failed, `has_other` says whether another link can carry the messages.
    pub(super) fn failed(&mut self, link: usize, has_other: bool, now: Instant) {
        // What has worked for as long as it rested before is as good as new.
        let before = self.0.get(&link).filter(|rest| now < rest.ends_at + rest.lasts);
        let lasts = match before {
            Some(rest) if now < rest.ends_at => rest.lasts,
            Some(rest) if has_other => (rest.lasts * 2).min(LONGEST),
            _ => FIRST,
        };
        self.rest(link, lasts, false, now);
    }

    fn rest(&mut self, link: usize, lasts: Duration, is_unsteady: bool, now: Instant) {
        let rest = Rest {
            lasts,
            ends_at: now + lasts,
            is_unsteady,
            is_new: true,
        };
        self.0.insert(link, rest);
    }

    /// The link came up: what was with it is over, unless it does so time and again.
    pub(super) fn came_up(&mut self, link: usize, now: Instant) {
        self.0
            .retain(|&other, rest| other != link || rest.is_unsteady && now < rest.ends_at);
    }

    /// The link went down, and had stood for so long; another one can carry the messages.
    pub(super) fn went_down(&mut self, link: usize, stood: Duration, now: Instant) {
        if stood < FIRST {
            self.rest(link, FIRST, true, now);
        }
    }

    /// Whether the link is better left alone.
    pub(super) fn has(&self, link: usize, now: Instant) -> bool {
        self.0.get(&link).is_some_and(|rest| now < rest.ends_at)
    }

    /// Whether the end of some rest is still to be noticed.
    pub(super) fn needs_tick(&self) -> bool {
        self.0.values().any(|rest| rest.is_new)
    }

    /// Notices those that are over.
    pub(super) fn tick(&mut self, now: Instant) {
        for rest in self.0.values_mut() {
            rest.is_new &= now < rest.ends_at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_rests_longer_each_time_while_another_one_carries_the_messages() {
        let mut now = Instant::now();
        let mut rests = Rests::default();
        for seconds in [1, 2, 4, 8, 16, 16] {
            rests.failed(3, true, now);
            assert!(rests.has(3, now) && rests.needs_tick() && !rests.has(4, now));
            // What failed meanwhile, as a second channel does, is the same failure.
            rests.failed(3, true, now);
            let almost = now + Duration::from_secs(seconds) - Duration::from_millis(1);
            assert!(rests.has(3, almost), "{seconds} s");
            now += Duration::from_secs(seconds);
            assert!(!rests.has(3, now), "{seconds} s");
            rests.tick(now);
            assert!(!rests.needs_tick());
        }
    }

    #[test]
    fn a_link_that_comes_and_goes_rests_until_it_has_stayed_away_or_up_for_a_second() {
        let start = Instant::now();
        let mut rests = Rests::default();
        rests.went_down(0, FIRST, start);
        rests.came_up(0, start);
        assert!(!rests.has(0, start), "it had stood for long");
        let mut now = start;
        for _ in 0..200 {
            now += FIRST / 50;
            rests.went_down(0, FIRST / 50, now);
            rests.came_up(0, now);
            assert!(rests.has(0, now) && rests.needs_tick());
        }
        now += FIRST;
        rests.tick(now);
        assert!(!rests.has(0, now) && !rests.needs_tick());
        rests.came_up(0, now);
        rests.failed(0, true, now);
        assert!(!rests.has(0, now + FIRST), "nothing is left of it");
    }

    #[test]
    fn the_only_link_is_tried_every_second() {
        let mut now = Instant::now();
        let mut rests = Rests::default();
        for _ in 0..4 {
            rests.failed(0, false, now);
            now += FIRST;
            assert!(!rests.has(0, now));
        }
    }

    #[test]
    fn a_link_that_worked_for_a_while_or_came_up_anew_begins_with_the_shortest_rest() {
        let start = Instant::now();
        let mut rests = Rests::default();
        rests.failed(0, true, start);
        let later = start + FIRST * 3;
        rests.failed(0, true, later);
        assert!(!rests.has(0, later + FIRST));
        rests.failed(0, true, later + FIRST);
        assert!(rests.has(0, later + FIRST * 2));
        rests.came_up(0, later + FIRST * 2);
        assert!(!rests.has(0, later + FIRST * 2));
        rests.failed(0, true, later + FIRST * 2);
        assert!(!rests.has(0, later + FIRST * 3));
    }
}
