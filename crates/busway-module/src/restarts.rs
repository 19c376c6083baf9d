//! When a partition that failed may start again.
//!
//! Contract: pure. The first restart is immediate; each further one in a row waits twice as long as
//! the one before, from [`FIRST_DELAY`] up to [`LONGEST_DELAY`]. A partition that has run for
//! [`STABLE`] begins a new row. Called by the supervisor.

use std::time::Duration;

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(10);
const STABLE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Restarts {
    limit: Option<u32>,
    in_row: u32,
    /// All restarts so far.
    pub(crate) total: u64,
}

impl Restarts {
    /// `limit` is the largest number in a row.
    pub(crate) fn new(limit: Option<u32>) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// How long to wait before the next restart of a partition that has run for `ran`; `None`: the
    /// limit is reached.
    pub(crate) fn next(&mut self, ran: Duration) -> Option<Duration> {
        if ran >= STABLE {
            self.in_row = 0;
        }
        if self.limit.is_some_and(|limit| self.in_row >= limit) {
            return None;
        }
        self.in_row = self.in_row.saturating_add(1);
        self.total += 1;
        let delay = match self.in_row {
            1 => Duration::ZERO,
            count => FIRST_DELAY.saturating_mul(1_u32.checked_shl(count - 2).unwrap_or(u32::MAX)),
        };
        Some(delay.min(LONGEST_DELAY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(5);

    #[test]
    fn restarts_in_a_row_wait_twice_as_long_each_time_up_to_a_bound() {
        let mut restarts = Restarts::new(None);
        let delays_ms: Vec<u128> = (0..12)
            .filter_map(|_| restarts.next(SOON))
            .map(|delay| delay.as_millis())
            .collect();
        assert_eq!(
            delays_ms,
            [
                0, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000, 10000
            ]
        );
        let far = (0..100).map(|_| restarts.next(SOON)).next_back();
        assert_eq!(far, Some(Some(LONGEST_DELAY)));
    }

    #[test]
    fn stable_partition_restarts_at_once_again() {
        let mut restarts = Restarts::new(Some(2));
        for _ in 0..2 {
            assert!(restarts.next(SOON).is_some());
        }
        assert_eq!(restarts.next(SOON), None);
        assert_eq!(restarts.next(STABLE), Some(Duration::ZERO));
        assert_eq!(restarts.total, 3);
    }
}
